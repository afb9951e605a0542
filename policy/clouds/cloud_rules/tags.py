"""Tags and labels of resources, for owners, cost centers and exemptions."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from cloud_rules import tokens
from rule_engine import Resource, UnknownValueError, View
from rule_engine.exemptions import annotated_exemptions

_WHERE: Final[Mapping[str, tuple[str, ...]]] = {
    tokens.ASG: ("tags",),
    tokens.EKS_CLUSTER: ("tags",),
    tokens.EKS_POOL: ("tags",),
    tokens.LAUNCH_TEMPLATE: ("tags",),
    tokens.NATIVE_ASG: ("tags",),
    tokens.NATIVE_EKS_CLUSTER: ("tags",),
    tokens.NATIVE_EKS_POOL: ("tags",),
    tokens.GKE_CLUSTER: ("resourceLabels",),
    tokens.GKE_POOL: ("nodeConfig", "resourceLabels"),
    tokens.AKS_CLUSTER: ("tags",),
    tokens.AKS_POOL: ("tags",),
    tokens.KARPENTER_POOL: ("metadata", "labels"),
    tokens.KARPENTER_CLASS: ("spec", "tags"),
}
TAG: Final = "exempt:"
"""Prefix of an AWS or Azure tag that exempts a resource; the rule's name follows."""
LABEL: Final = "exempt-"
"""Prefix of a GCP label that exempts a resource. Values have only lower-case letters, digits, `-` and `_`:
`2027-01-31_waits-for-the-new-driver`."""


def where(resource: Resource) -> str:
    """The property that contains a resource's tags or labels."""
    return ".".join(_WHERE.get(tokens.token(resource.type), ("tags",)))


def tags(resource: Resource) -> dict[str, View]:
    """Tags or labels of a resource; empty if its type has none. Single values can be unknown."""
    path = _WHERE.get(tokens.token(resource.type))
    return {} if path is None else _tags_of(resource.props.at(*path))


def _tags_of(view: View) -> dict[str, View]:
    if isinstance(view.value, list):  # AWS has lists of key and value for some types
        return {entry.text("key"): _value(entry) for entry in view.items() if _known(entry)}
    return view.entries()


def _other_tags(resource: Resource) -> dict[str, View]:
    """Tags or labels of a resource of any other type; empty if they are unknown."""
    if resource.group or tokens.token(resource.type) in _WHERE:
        return {}
    found: dict[str, View] = {}
    for key in ("tags", "labels", "resourceLabels"):
        with suppress(UnknownValueError):
            found |= _tags_of(resource.props.at(key))
    with suppress(UnknownValueError):  # launch templates of AWS Cloud Control
        for specification in resource.props.items("tagSpecifications"):
            if specification.text("resourceType") == "launch-template":
                found |= _tags_of(specification.at("tags"))
    return found


def tag(resource: Resource, keys: list[str]) -> str:
    """The value of the first of these keys that exists, in any spelling (`cost-center`, `CostCenter`); else empty."""
    views = {plain(key): view for key, view in tags(resource).items()}
    return next((views[plain(key)].text() for key in keys if plain(key) in views), "")


def plain(key: str) -> str:
    """A key in lower case, without `-`, `_` and `.`, and without a prefix before `/` or `:`."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[/:]", key)[-1].lower())


def exemptions(resource: Resource) -> dict[str, str]:
    """The exemptions of a resource, keyed by rule name."""
    by_rule: dict[str, str] = {}
    if resource.group:
        by_rule |= annotated_exemptions(resource)
    for key, view in (tags(resource) | _other_tags(resource)).items():
        for prefix in (TAG, LABEL):
            if key.startswith(prefix):
                by_rule[key.removeprefix(prefix)] = view.text()
    return by_rule


def _value(entry: View) -> View:
    """The value of a tag, which can be unknown."""
    return entry.entries().get("value", View(None))


def _known(entry: View) -> bool:
    """Whether the key of a tag is known: in a preview, it can contain the cluster's name, which is unknown."""
    value = entry.value
    return isinstance(value, dict) and isinstance(value.get("key"), str)
