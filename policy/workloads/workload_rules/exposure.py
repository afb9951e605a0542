"""Rules for Services and routes: what clients outside of the cluster reach of a tenant's namespace."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import Field

from rule_engine import ADVICE, MUST, Resource, Severity, rule
from workload_rules.objects import matches_any, name, objects
from workload_rules.pods import Tenants, namespace_of

_FACTS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("load_balancers.yaml").read_bytes())
_INTERNAL: Final = [annotation for cloud in _FACTS.values() for annotation in cloud["internal"].items()]
_PUBLIC: Final = [annotation for cloud in _FACTS.values() for annotation in cloud["public"].items()]
"""Annotations by which clouds make a load balancer internal, or public."""
_HOSTS: Final = (
    "external-dns.alpha.kubernetes.io/hostname",
    "external-dns.alpha.kubernetes.io/internal-hostname",
    "nginx.ingress.kubernetes.io/server-alias",
)
"""Annotations in which controllers read hosts."""
_EVERY: Final = "claims every host; set a host and list it under `hosts`"
_SERVICES: Final = "https://kubernetes.io/docs/concepts/services-networking/service/"
_GATEWAY: Final = "gateway.networking.k8s.io"
_NAMED: Final = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute"})
"""Routes with host names; those of TCP and UDP have none."""

SERVICES: Final = objects("Services", "core:Service")
ROUTES: Final = objects(
    "Services, Ingresses, Gateways and their routes",
    "core:Service",
    "networking.k8s.io:Ingress",
    "extensions:Ingress",
    *(f"{_GATEWAY}:{kind}" for kind in ("Gateway", "ListenerSet", *sorted(_NAMED))),
)


def _full_name(resource: Resource) -> str:
    return f"{namespace_of(resource)}/{name(resource) or resource.name}"


@rule(
    "no-external-ips",
    rationale="Every node takes the traffic to these addresses, also that of other teams and of the nodes themselves.",
    fix="Remove `externalIPs`.",
    link="https://github.com/kubernetes/kubernetes/issues/97076",
    severity=Severity.HIGH,
    level=MUST,
    on=SERVICES,
)
def no_external_ips(service: Resource, settings: Tenants) -> Iterator[str]:
    """Services must not set external addresses."""
    addresses = service.props.texts("spec", "externalIPs")
    yield from settings.of_tenant(
        service, [f"sets externalIPs {', '.join(addresses)}; remove spec.externalIPs"] if addresses else []
    )


class Opened(Tenants):
    """Services that may be reached from outside of the cluster."""

    services: list[str] = Field(
        [], description="Services that may have another type than ClusterIP, as patterns of NAMESPACE/NAME."
    )


@rule(
    "service-types-reviewed",
    rationale="Others than ClusterIP are reached from outside of the cluster, or lead clients to a name outside.",
    fix="Set `type: ClusterIP`, or list the Service under `services`.",
    link=f"{_SERVICES}#publishing-services-service-types",
    severity=Severity.HIGH,
    level=ADVICE,
    on=SERVICES,
)
def service_types_reviewed(service: Resource, settings: Opened) -> Iterator[str]:
    """Only listed Services of tenants must be of another type than ClusterIP."""
    of_type = service.props.text("spec", "type", default="ClusterIP")
    if of_type != "ClusterIP" and not matches_any(_full_name(service), settings.services):
        yield from settings.of_tenant(
            service, [f"has type {of_type}; set type: ClusterIP, or list it under `services`"]
        )


class Public(Tenants):
    """Objects whose load balancers may be public."""

    public: list[str] = Field(
        [], description="Services, Ingresses and Gateways with a public load balancer, as patterns of NAMESPACE/NAME."
    )


@rule(
    "load-balancers-internal",
    rationale="A load balancer of a cloud is public by default: anyone can send requests to a tenant's pods.",
    fix="Set the annotation of the cloud for internal load balancers, or list the object under `public`.",
    link=f"{_SERVICES}#internal-load-balancer",
    severity=Severity.HIGH,
    level=ADVICE,
    on=ROUTES,
)
def load_balancers_internal(route: Resource, settings: Public) -> Iterator[str]:
    """Load balancers of tenants must be internal, but for those that are listed."""
    metadata = route.props.at("metadata")
    spec = route.props.at("spec")
    annotations = {**spec.string_map("infrastructure", "annotations"), **metadata.string_map("annotations")}
    problem = next((f"sets {key}: {value}" for key, value in _PUBLIC if annotations.get(key) == value), "")
    is_balancer = route.kind == "Service" and spec.text("type") == "LoadBalancer" and not spec.has("loadBalancerClass")
    if not problem and is_balancer and not any(annotations.get(key) == value for key, value in _INTERNAL):
        problem = "has type LoadBalancer without an annotation for internal load balancers"
    if problem and not matches_any(_full_name(route), settings.public):
        yield from settings.of_tenant(
            route, [f"{problem}; make it internal, such as by {': '.join(_INTERNAL[0])}, or list it under `public`"]
        )


class Hosts(Tenants):
    """Hosts that tenants can claim."""

    hosts: list[str] = Field(
        [],
        description="Hosts that may be claimed, as patterns of NAMESPACE/HOST: `ml-serving/*.example.com`.",
    )


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


@rule(
    "route-hosts-reviewed",
    rationale="Whoever claims the host of another team gets its requests, with the credentials in them.",
    fix="List the host under `hosts`, or use one that is listed.",
    link="https://gateway-api.sigs.k8s.io/concepts/security-model/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=ROUTES,
)
def route_hosts_reviewed(route: Resource, settings: Hosts) -> Iterator[str]:
    """Ingresses and routes of tenants must claim listed hosts only."""
    found = list(dict.fromkeys(_hosts(route)))
    if not found:
        return
    wrong = [host for host in found if not host or not matches_any(f"{namespace_of(route)}/{host}", settings.hosts)]
    texts = [f"claims host {host}; list it under `hosts`" if host else _EVERY for host in wrong]
    yield from settings.of_tenant(route, texts)
