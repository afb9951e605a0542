"""Rules for tenants' namespaces: isolation, quotas, guards, and the Services and routes that open them."""

from collections.abc import Iterator
from functools import partial
from typing import Final, Literal

from pydantic import Field

from rule_engine import Resource, Stack, UnknownValueError, View, located_at, rule
from workload_rules.objects import QUOTAS, always, matches_any, name, objects
from workload_rules.pods import POD_PARTS, Claim, Pod, TenantGpus, Tenants, for_tenants, namespace_of

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


class _LevelSettings(Tenants):
    level: Literal["baseline", "restricted"] = "baseline"
    """Minimum Pod Security level that a tenant namespace must enforce."""


@rule("pod-security-level", NAMESPACES)
def pod_security_level(space: Resource, settings: _LevelSettings) -> Iterator[str]:
    """A tenant namespace must enforce a Pod Security level."""
    if not settings.tenant(_own(space)):
        return
    version = space.props.as_part().text("metadata", "labels", f"{_ENFORCE}-version", default="latest")
    if version != "latest":
        yield f"enforces the Pod Security level of Kubernetes {version}; remove label {_ENFORCE}-version"
        return
    level = space.props.text("metadata", "labels", _ENFORCE)
    sufficient = {"restricted", settings.level}
    if not level:
        yield f"enforces no Pod Security level; set label {_ENFORCE}: {settings.level}"
    elif level not in sufficient:
        yield f"enforces the Pod Security level {level}; set {settings.level}"


class _DenySettings(Tenants):
    egress: bool = False
    """Whether egress from the pods must be denied as well."""


def _denies(policy: Resource, direction: str) -> bool:
    """Whether a policy denies one direction for all pods of its namespace."""
    spec = policy.props.at("spec")
    if spec.entries("podSelector", "matchLabels"):
        return False
    if spec.items("podSelector", "matchExpressions") or spec.items(direction.lower()):
        return False
    types = spec.texts("policyTypes")
    return direction in types or (not types and (direction == "Ingress" or spec.has("egress")))


@rule("default-deny", NAMESPACES)
def default_deny(space: Resource, settings: _DenySettings, stack: Stack) -> Iterator[str]:
    """A tenant namespace must deny traffic by default."""
    own_name = _own(space)
    if not settings.tenant(own_name):
        return
    missing = [
        direction
        for direction in (["Ingress", "Egress"] if settings.egress else ["Ingress"])
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


@rule("network-policy-open", _POLICIES)
def network_policy_open(policy: Resource, settings: Tenants) -> Iterator[str]:
    """A NetworkPolicy must not allow all traffic into all pods of a tenant namespace."""
    if not settings.tenant(namespace_of(policy)):
        return
    spec = policy.props.at("spec")
    for allowed in spec.items("ingress"):
        if _is_open(allowed) and not _selects_some(spec, "podSelector"):
            yield f"{'.'.join(allowed.path)} allows all traffic into all pods; set `from` or `ports`, or a podSelector"


class _SpaceQuota(TenantGpus):
    external: list[str] = Field([])
    """Namespaces, as patterns, whose quotas are created outside this stack."""
    classes: list[str] = Field(["*gpu*", "mig.*"])
    """DeviceClasses of GPUs, as patterns."""


def _named_claim(claim: Resource) -> str:
    return f"{claim.kind} {namespace_of(claim)}/{name(claim)}"


def _template_of_channels(domain: Resource) -> str:
    name_of_template = domain.props.text("spec", "channel", "resourceClaimTemplate", "name")
    return f"ResourceClaimTemplate {namespace_of(domain)}/{name_of_template}"


def _device_classes(claim: Claim, namespace: str, stack: Stack) -> list[str]:
    """The DeviceClasses of a claim, in all versions of its API: https://kubernetes.io/docs/reference/kubernetes-api/resource/."""
    named = f"{claim.kind} {namespace}/{claim.name}"
    found = stack.first(_CLAIMS, always, (_named_claim, named))
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


def _requests(pod: Pod, settings: _SpaceQuota, stack: Stack) -> Iterator[tuple[str, str]]:
    """The GPUs that a pod requests or claims, for messages, each with its key in a ResourceQuota."""
    yield from ((f"requests {resource}", f"requests.{resource}") for resource in pod.gpus(settings))
    for claim in pod.claims:
        for device_class in _device_classes(claim, namespace_of(pod), stack):
            if matches_any(device_class, settings.classes):
                key = f"{device_class}.deviceclass.resource.k8s.io/devices"
                yield f"claims {device_class} by {claim.kind} {claim.name}", key


@rule("gpu-namespace-quota", POD_PARTS)
@for_tenants
def gpu_namespace_quota(pod: Pod, settings: _SpaceQuota, stack: Stack) -> Iterator[str]:
    """A namespace with GPU pods must have a ResourceQuota for these GPUs."""
    if matches_any(namespace_of(pod), settings.external):
        return
    for request, key in _requests(pod, settings, stack):
        in_namespace = (namespace_of, namespace_of(pod))
        if not stack.first(QUOTAS, lambda quota, key=key: quota.props.has("spec", "hard", key), in_namespace):
            yield (
                f"{request}, but no ResourceQuota of namespace {namespace_of(pod)} has {key}; create one, or list the"
                " namespace under `external`"
            )


# Services and routes.

_HOSTS: Final = (
    "external-dns.alpha.kubernetes.io/hostname",
    "external-dns.alpha.kubernetes.io/internal-hostname",
    "nginx.ingress.kubernetes.io/server-alias",
)
"""Annotations in which controllers read hosts."""
_GATEWAY: Final = "gateway.networking.k8s.io"
_NAMED: Final = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute"})
"""Routes with host names; routes of TCP and UDP have none."""

SERVICES: Final = objects("Services", "core:Service")
ROUTES: Final = objects(
    "Services, Ingresses, Gateways and their routes",
    "core:Service",
    "networking.k8s.io:Ingress",
    "extensions:Ingress",
    *(f"{_GATEWAY}:{kind}" for kind in ("Gateway", "ListenerSet", *sorted(_NAMED))),
)


@rule("no-external-ips", SERVICES)
@for_tenants
def no_external_ips(service: Resource, _: Tenants) -> Iterator[str]:
    """Services must not set external addresses."""
    if addresses := service.props.texts("spec", "externalIPs"):
        yield f"sets externalIPs {', '.join(addresses)}; remove spec.externalIPs"


class _Opened(Tenants):
    services: list[str] = Field([])
    """Services that may have another type than ClusterIP, as patterns of NAMESPACE/NAME."""


@rule("service-types-reviewed", SERVICES)
@for_tenants
def service_types_reviewed(service: Resource, settings: _Opened) -> Iterator[str]:
    """Only listed Services of tenants must be of another type than ClusterIP."""
    of_type = service.props.text("spec", "type", default="ClusterIP")
    if of_type != "ClusterIP" and not matches_any(f"{namespace_of(service)}/{_own(service)}", settings.services):
        yield f"has type {of_type}; set type: ClusterIP, or list it under `services`"


class _Hosts(Tenants):
    hosts: list[str] = Field([])
    """Hosts that may be claimed, as patterns of NAMESPACE/HOST: `ml-serving/*.example.com`."""


def _hosts(route: Resource) -> Iterator[str]:
    """The hosts that an object claims; empty for every host."""
    spec = route.props.at("spec")
    if route.kind == "Ingress":
        yield from (entry.text("host") for entry in spec.items("rules"))
        yield from (host for entry in spec.items("tls") for host in entry.texts("hosts"))
        if spec.has("defaultBackend") or spec.has("backend"):
            yield ""
    elif route.kind in _NAMED:
        yield from spec.texts("hostnames") or ([""] if spec.items("parentRefs") else [])
    else:
        yield from (listener.text("hostname") for listener in spec.items("listeners"))
    annotations = route.props.entries("metadata", "annotations")
    for key in _HOSTS:
        if key in annotations:
            yield from (host.strip() for host in annotations[key].text().split(","))


@rule("route-hosts-reviewed", ROUTES)
@for_tenants
def route_hosts_reviewed(route: Resource, settings: _Hosts) -> Iterator[str]:
    """Ingresses and routes of tenants must claim listed hosts only."""
    for host in dict.fromkeys(_hosts(route)):
        if not host:
            yield "claims every host; set a host and list it under `hosts`"
        elif not matches_any(f"{namespace_of(route)}/{host}", settings.hosts):
            yield f"claims host {host}; list it under `hosts`"


class _Grants(Tenants):
    grants: list[str] = Field([])
    """Reviewed grants, as patterns of FROM/TO, the two namespaces: `ml-serving/gateways`."""


@rule("reference-grants-reviewed", objects("ReferenceGrants", f"{_GATEWAY}:ReferenceGrant"))
def reference_grants_reviewed(grant: Resource, settings: _Grants) -> Iterator[str]:
    """A ReferenceGrant must not open a namespace to another one of a tenant."""
    for referrer in dict.fromkeys(item.text("namespace") for item in grant.props.items("spec", "from")):
        pair = f"{referrer}/{namespace_of(grant)}"
        if referrer != namespace_of(grant) and settings.tenant(referrer) and not matches_any(pair, settings.grants):
            yield f"opens namespace {namespace_of(grant)} to {referrer}; remove it, or list {pair} under `grants`"
