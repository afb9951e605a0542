"""Tags and labels of resources, by which owners are named, costs are counted, and rules are exempted from."""

import re
from collections.abc import Mapping
from typing import Final

from cloud_rules.tokens import (
    AKS_CLUSTER,
    AKS_POOL,
    ASG,
    EKS_CLUSTER,
    EKS_POOL,
    GKE_CLUSTER,
    GKE_POOL,
    KARPENTER_CLASS,
    KARPENTER_POOL,
    LAUNCH_TEMPLATE,
    token,
)
from judge import Resource, View

_WHERE: Final[Mapping[str, tuple[str, ...]]] = {
    EKS_CLUSTER: ("tags",),
    EKS_POOL: ("tags",),
    LAUNCH_TEMPLATE: ("tags",),
    GKE_CLUSTER: ("resourceLabels",),
    GKE_POOL: ("nodeConfig", "resourceLabels"),
    AKS_CLUSTER: ("tags",),
    AKS_POOL: ("tags",),
    KARPENTER_POOL: ("metadata", "labels"),
    KARPENTER_CLASS: ("spec", "tags"),
}
ANNOTATION: Final = "exempt.gpu-rules/"
"""An annotation of a Kubernetes object of this prefix and a rule's name exempts it: `2027-01-31 why`."""
TAG: Final = "exempt:"
"""A tag of AWS or Azure of this prefix and a rule's name."""
LABEL: Final = "exempt-"
"""A label of GCP, whose values are small letters, digits, `-` and `_`: `2027-01-31_waits-for-the-new-driver`."""


def where(resource: Resource) -> str:
    """The property that holds tags or labels."""
    return ".".join(_WHERE.get(token(resource.type), ("tags",)))


def tags(resource: Resource) -> dict[str, View]:
    """Tags or labels, each read by itself; of a resource that can have none, nothing."""
    kind = token(resource.type)
    if kind == ASG:
        return {each.text("key"): each.at("value") for each in resource.props.items("tags") if _known(each)}
    return resource.props.entries(*_WHERE[kind]) if kind in _WHERE else {}


def tag(resource: Resource, keys: list[str]) -> str:
    """The value of the first of these keys that is there, however it is written (`cost-center`, `CostCenter`)."""
    found = {plain(key): view for key, view in tags(resource).items()}
    return next((found[plain(key)].text() for key in keys if plain(key) in found), "")


def plain(key: str) -> str:
    """A key without what people write differently: capitals, `-`, `_`, `.`, and a prefix before `/` or `:`."""
    return re.sub(r"[^a-z0-9]", "", re.split(r"[/:]", key)[-1].lower())


def exemptions(resource: Resource) -> dict[str, str]:
    """The exemptions of a resource, keyed by rule name."""
    found: dict[str, str] = {}
    if resource.group:
        found |= _of(resource.props.entries("metadata", "annotations"), ANNOTATION)
    for key, view in tags(resource).items():
        for prefix in (TAG, LABEL):
            if key.startswith(prefix):
                found[key.removeprefix(prefix)] = view.text()
    return found


def _of(entries: Mapping[str, View], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): view.text() for key, view in entries.items() if key.startswith(prefix)}


def _known(entry: View) -> bool:
    """Whether the key of a tag is known: that of a preview may hold the cluster's name, which is not."""
    value = entry.value
    return isinstance(value, dict) and isinstance(value.get("key"), str)
