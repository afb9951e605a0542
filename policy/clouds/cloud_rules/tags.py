"""Type tokens of the resources that rules check, and their tags and labels: owners, cost centers, exemptions."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from rule_engine import Resource, UnknownValueError, View
from rule_engine.exemptions import annotated_exemptions

LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
NATIVE_LAUNCH_TEMPLATE: Final = "aws-native:ec2:LaunchTemplate"
GKE_CLUSTER: Final = "gcp:container/cluster:Cluster"
GKE_POOL: Final = "gcp:container/nodePool:NodePool"
AKS_CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
AKS_POOL: Final = "azure-native:containerservice:AgentPool"
KARPENTER_POOL: Final = "kubernetes:karpenter.sh:NodePool"
KARPENTER_CLASS: Final = "kubernetes:karpenter.k8s.aws:EC2NodeClass"
EKS_CLUSTERS: Final = ("aws:eks/cluster:Cluster", "aws-native:eks:Cluster")
EKS_POOLS: Final = ("aws:eks/nodeGroup:NodeGroup", "aws-native:eks:Nodegroup")
ASGS: Final = ("aws:autoscaling/group:Group", "aws-native:autoscaling:AutoScalingGroup")
LAUNCH_TEMPLATES: Final = (LAUNCH_TEMPLATE, NATIVE_LAUNCH_TEMPLATE)

_VERSION: Final = re.compile(r"^(azure-native:\w+|kubernetes:[\w.-]+)/v\w+:")


def token(type_: str) -> str:
    """A type token without API version, which azure-native and Kubernetes types have (`…/v20250501:AgentPool`)."""
    return _VERSION.sub(r"\1:", type_)


def of_types(*types: str) -> Callable[[Resource], bool]:
    """Selects resources of these types, in any API version."""
    accepted = frozenset(types)
    return lambda resource: token(resource.type) in accepted


def ignores(resource: Resource, path: str) -> bool:
    """Whether `ignoreChanges` contains a property, a parent of it, or `*`."""
    return any(
        path == ignored or path.startswith((f"{ignored}.", f"{ignored}[")) or ignored == "*"
        for ignored in resource.ignored
    )


_WHERE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*EKS_CLUSTERS, *EKS_POOLS, *ASGS, LAUNCH_TEMPLATE, AKS_CLUSTER, AKS_POOL), ("tags",)),
    GKE_CLUSTER: ("resourceLabels",),
    GKE_POOL: ("nodeConfig", "resourceLabels"),
    KARPENTER_POOL: ("metadata", "labels"),
    KARPENTER_CLASS: ("spec", "tags"),
}
TAG: Final = "exempt:"  # prefix of an AWS or Azure tag that exempts a resource; the rule's name follows
LABEL: Final = "exempt-"
"""Prefix of a GCP label that exempts a resource. Values have only lower-case letters, digits, `-` and `_`:
`2027-01-31_waits-for-the-new-driver`."""


def where(resource: Resource) -> str:
    """The property that contains a resource's tags or labels."""
    return ".".join(_WHERE.get(token(resource.type), ("tags",)))


def tags(resource: Resource) -> Mapping[str, View]:
    """Tags or labels of a resource; empty if its type has none. Single values can be unknown."""
    path = _WHERE.get(token(resource.type))
    return {} if path is None else _tags_of(resource.props.at(*path))


def _tags_of(view: View) -> Mapping[str, View]:
    if isinstance(view.value, list):  # AWS has lists of key and value for some types
        return {
            entry.text("key"): entry.entries().get("value", View(None))
            for entry in view.items()
            # In a preview, a key can contain the cluster's name, which is unknown.
            if isinstance(entry.value, dict) and isinstance(entry.value.get("key"), str)
        }
    return view.entries()


def _other_tags(resource: Resource) -> dict[str, View]:
    """Tags or labels of a resource of any other type; empty if they are unknown."""
    if resource.group or token(resource.type) in _WHERE:
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
    by_rule = annotated_exemptions(resource) if resource.group else {}
    for key, view in {**tags(resource), **_other_tags(resource)}.items():
        for prefix in (TAG, LABEL):
            if key.startswith(prefix):
                by_rule[key.removeprefix(prefix)] = view.text()
    return by_rule
