"""Rules for tenants' namespaces."""

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

from pydantic import Field

from rule_engine import ADVICE, Resource, Severity, Stack, UnknownValueError, View, located_at, rule
from workload_rules.objects import QUOTAS, always, matches_any, name, objects
from workload_rules.pods import POD_PARTS, Claim, Pod, TenantGpus, Tenants, for_tenants, namespace_of

_STANDARDS: Final = "https://kubernetes.io/docs/concepts/security/pod-security-admission/"
_NETWORK: Final = "https://kubernetes.io/docs/concepts/services-networking/network-policies/"
_QUOTA: Final = "https://kubernetes.io/docs/concepts/policy/resource-quotas/"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"

NAMESPACES: Final = objects("namespaces", "core:Namespace")
_CLAIMS: Final = objects("claims of devices", "resource.k8s.io:ResourceClaim", "resource.k8s.io:ResourceClaimTemplate")
_DOMAINS: Final = objects("ComputeDomains", "resource.nvidia.com:ComputeDomain")
_CHANNEL: Final = "compute-domain-default-channel.nvidia.com"
"""DeviceClass of the channels that pods claim by the template of a ComputeDomain, which NVIDIA's DRA driver makes:
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1/templates."""
_POLICIES: Final = objects("NetworkPolicies", "networking.k8s.io:NetworkPolicy")


def _own(resource: Resource) -> str:
    return name(resource) or resource.name


class LevelSettings(Tenants):
    """The required Pod Security level."""

    level: Literal["baseline", "restricted"] = Field(
        "baseline", description="Minimum Pod Security level that a tenant namespace must enforce."
    )


@rule(
    "pod-security-level",
    rationale=(
        "Without one, anyone who can create pods in the namespace can take over the node and read every team's data"
        " on it."
    ),
    fix="Label the namespace; run privileged components in a system namespace.",
    link=_STANDARDS,
    severity=Severity.HIGH,
    level=ADVICE,
    on=NAMESPACES,
)
def pod_security_level(space: Resource, settings: LevelSettings) -> Iterator[str]:
    """A tenant namespace must enforce a Pod Security level."""
    if not settings.tenant(_own(space)):
        return
    level = space.props.text("metadata", "labels", _ENFORCE)
    sufficient = {"restricted", settings.level}
    if not level:
        yield f"enforces no Pod Security level; set label {_ENFORCE}: {settings.level}"
    elif level not in sufficient:
        yield f"enforces the Pod Security level {level}; set {settings.level}"


class DenySettings(Tenants):
    """Traffic directions that a namespace must deny by default."""

    egress: bool = Field(default=False, description="Whether egress from the pods must be denied as well.")


def _denies(policy: Resource, direction: str) -> bool:
    """Whether a policy denies one direction for all pods of its namespace."""
    spec = policy.props.at("spec")
    if spec.entries("podSelector", "matchLabels"):
        return False
    if spec.items("podSelector", "matchExpressions") or spec.items(direction.lower()):
        return False
    types = spec.texts("policyTypes")
    return direction in types or (not types and (direction == "Ingress" or spec.has("egress")))


@rule(
    "default-deny",
    rationale="Otherwise pods of every other namespace can reach its model servers and its training ports.",
    fix="Create a NetworkPolicy that selects all pods and allows nothing, and add policies for the required traffic.",
    link=f"{_NETWORK}#default-policies",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NAMESPACES,
)
def default_deny(space: Resource, settings: DenySettings, stack: Stack) -> Iterator[str]:
    """A tenant namespace must deny traffic by default."""
    own_name = _own(space)
    if not settings.tenant(own_name):
        return
    directions = ["Ingress", "Egress"] if settings.egress else ["Ingress"]
    missing = [
        direction
        for direction in directions
        if stack.first(_POLICIES, partial(_denies, direction=direction), (namespace_of, own_name)) is None
    ]
    if missing:
        yield (
            f"no NetworkPolicy denies {' and '.join(missing)} by default; create one with podSelector {{}},"
            f" policyTypes [{', '.join(missing)}] and no rules"
        )


_EVERYWHERE: Final = frozenset({"0.0.0.0/0", "::/0"})


def _is_open(allowed: View) -> bool:
    """Whether a rule of a NetworkPolicy allows all traffic from all namespaces or networks."""
    if allowed.items("ports"):
        return False
    peers = allowed.items("from")
    return not peers or any(
        peer.text("ipBlock", "cidr") in _EVERYWHERE
        or (peer.has("namespaceSelector") and not _selects_some(peer, "namespaceSelector", "podSelector"))
        for peer in peers
    )


def _selects_some(view: View, *selectors: str) -> bool:
    """Whether one of these label selectors excludes anything."""
    return any(
        view.entries(selector, "matchLabels") or view.items(selector, "matchExpressions") for selector in selectors
    )


@rule(
    "network-policy-open",
    rationale="NetworkPolicies add up: one that allows everything has the effect of none that denies.",
    fix="Name the pods or the ports that others need, and the namespaces that need them.",
    link=f"{_NETWORK}#allow-all-ingress-traffic",
    severity=Severity.HIGH,
    level=ADVICE,
    on=_POLICIES,
)
def network_policy_open(policy: Resource, settings: Tenants) -> Iterator[str]:
    """A NetworkPolicy must not allow all traffic into all pods of a tenant namespace."""
    if not settings.tenant(namespace_of(policy)):
        return
    spec = policy.props.at("spec")
    for allowed in spec.items("ingress"):
        if _is_open(allowed) and not _selects_some(spec, "podSelector"):
            yield f"{'.'.join(allowed.path)} allows all traffic into all pods; set `from` or `ports`, or a podSelector"


class SpaceQuota(TenantGpus):
    """Namespaces whose quotas are created outside this stack."""

    external: list[str] = Field([], description="Namespaces, as patterns, whose quotas are created outside this stack.")
    classes: list[str] = Field(["*gpu*", "mig.*"], description="DeviceClasses of GPUs, as patterns.")


def _is_limited(key: str, namespace: str, stack: Stack) -> bool:
    in_namespace = (namespace_of, namespace)
    return stack.first(QUOTAS, lambda quota: quota.props.has("spec", "hard", key), in_namespace) is not None


def _without_quota(request: str, namespace: str, key: str) -> str:
    return (
        f"{request}, but no ResourceQuota of namespace {namespace} has {key}; create one, or list the namespace under"
        " `external`"
    )


def _full_name(claim: Resource) -> str:
    return f"{claim.kind} {namespace_of(claim)}/{name(claim)}"


def _template_of_channels(domain: Resource) -> str:
    name_of_template = domain.props.text("spec", "channel", "resourceClaimTemplate", "name")
    return f"ResourceClaimTemplate {namespace_of(domain)}/{name_of_template}"


def _device_classes(claim: Claim, namespace: str, stack: Stack) -> list[str]:
    """The DeviceClasses of a claim, in all versions of its API: https://kubernetes.io/docs/reference/kubernetes-api/resource/.

    Raises:
        UnknownValueError: the claim is not in this stack.
    """
    named = f"{claim.kind} {namespace}/{claim.name}"
    found = stack.first(_CLAIMS, always, (_full_name, named))
    if found is None and stack.first(_DOMAINS, always, (_template_of_channels, named)):
        return [_CHANNEL]
    if found is None:
        raise UnknownValueError(claim.path, f"references {claim.kind} {claim.name}, which is not in this stack")
    above = ("spec", "spec") if claim.kind == "ResourceClaimTemplate" else ("spec",)
    classes: set[str] = set()
    with located_at(found):
        for request in found.props.items(*above, "devices", "requests"):
            alternatives = [request, request.at("exactly"), *request.items("firstAvailable")]
            classes.update(alternative.text("deviceClassName") for alternative in alternatives)
    return sorted(classes - {""})


@rule(
    "gpu-namespace-quota",
    rationale="Without one, pods that name no queue can use all GPUs of the cluster.",
    fix="Create a ResourceQuota with `requests.<resource>` in the namespace.",
    link=_QUOTA,
    severity=Severity.HIGH,
    level=ADVICE,
    on=POD_PARTS,
)
@for_tenants
def gpu_namespace_quota(pod: Pod, settings: SpaceQuota, stack: Stack) -> Iterator[str]:
    """A namespace with GPU pods must have a ResourceQuota for these GPUs."""
    if matches_any(pod.namespace, settings.external):
        return
    for resource in pod.gpus(settings):
        if not _is_limited(f"requests.{resource}", pod.namespace, stack):
            yield _without_quota(f"requests {resource}", pod.namespace, f"requests.{resource}")
    for claim in pod.claims:
        for device_class in _device_classes(claim, pod.namespace, stack):
            key = f"{device_class}.deviceclass.resource.k8s.io/devices"
            if matches_any(device_class, settings.classes) and not _is_limited(key, pod.namespace, stack):
                yield _without_quota(f"claims {device_class} by {claim.kind} {claim.name}", pod.namespace, key)
