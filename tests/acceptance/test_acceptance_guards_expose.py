"""What clients outside of a team's namespace reach: only what the stack allows, whatever kind opens it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from acceptance_guards import EXPERIMENTS, PRODUCTION, RESEARCH, Door, Person

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

INTERNAL: Final = {"networking.gke.io/load-balancer-type": "Internal"}
PUBLIC: Final = {"alb.ingress.kubernetes.io/scheme": "internet-facing"}
DNS: Final = "external-dns.alpha.kubernetes.io/hostname"
GATEWAY: Final = "gateway.networking.k8s.io"
LISTENING: Final = [(f"{GATEWAY}/v1", "ListenerSet"), ("gateway.networking.x-k8s.io/v1alpha1", "XListenerSet")]
HEARD: Final = {"hostname": "chat.example.com"}


def made(api: str, kind: str, spec: Any, namespace: str = EXPERIMENTS, **annotations: str) -> Any:
    metadata = {"name": "open", "namespace": namespace, "annotations": annotations}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def service(namespace: str = EXPERIMENTS, annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    return made("v1", "Service", {"ports": [{"port": 80}], **spec}, namespace, **(annotations or {}))


def ingress(
    host: str | None, name: str | None = "nginx", annotations: Mapping[str, str] | None = None, **spec: Any
) -> Any:
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    rule = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    rules = [{**rule, **({} if host is None else {"host": host})}]
    named = {} if name is None else {"ingressClassName": name}
    return made("networking.k8s.io/v1", "Ingress", {"rules": rules, **named, **spec}, **(annotations or {}))


def route(
    *hosts: str, parent: Any = None, kind: str = "HTTPRoute", annotations: Mapping[str, str] | None = None
) -> Any:
    parents = [{"namespace": "shared", "name": "edge"} if parent is None else parent]
    version = "v1alpha2" if kind in {"TCPRoute", "UDPRoute"} else "v1"
    named = {"hostnames": list(hosts)} if hosts else {}
    return made(f"{GATEWAY}/{version}", kind, {"parentRefs": parents, **named}, **(annotations or {}))


def gateway(name: str, *hosts: str, **infrastructure: Any) -> Any:
    listeners = [
        {"name": f"l{n}", "port": 80, "protocol": "HTTP", **({"hostname": host} if host else {})}
        for n, host in enumerate(hosts)
    ]
    beside = {"infrastructure": infrastructure} if infrastructure else {}
    return made(f"{GATEWAY}/v1", "Gateway", {"gatewayClassName": name, "listeners": listeners, **beside})


PLACE: Final = f"teams.{EXPERIMENTS}.network.expose."
HOSTS: Final = f"use one of chat.example.com, *.ml.example.com, or add it to {PLACE}hosts in the stack"
CLASSES: Final = f"use one of nginx, shared/edge, or add it to {PLACE}classes in the stack"
INTERNET: Final = f", which opens it to the internet; remove it, or set {PLACE}reach: public in the stack"
AWS: Final = "service.beta.kubernetes.io/aws-load-balancer-"
CASES: Final[dict[str, tuple[Any, str, Any]]] = {
    "traffic of others": (
        service(externalIPs=["10.1.2.3"]),
        "sets externalIPs: [10.1.2.3], by which nodes would take the traffic of others; remove spec.externalIPs",
        service(),
    ),
    "a port of all nodes": (
        service(type="NodePort"),
        f"has type NodePort, which opens the namespace; set type: ClusterIP, or add NodePort to {PLACE}services in",
        service(type="ClusterIP"),
    ),
    "another name": (
        service(type="ExternalName", externalName="db.ml-serving.svc"),
        "has type ExternalName",
        service(clusterIP="None"),
    ),
    "a public load balancer": (
        service(type="LoadBalancer"),
        (
            f"has a load balancer that can be public; set annotation {AWS}internal: true or"
            " networking.gke.io/load-balancer-type: Internal or"
            " service.beta.kubernetes.io/azure-load-balancer-internal: true, or set"
            f" {PLACE}reach: public in the stack"
        ),
        service(type="LoadBalancer", annotations=INTERNAL),
    ),
    "a public load balancer by an annotation": (
        service(
            type="LoadBalancer",
            annotations={**INTERNAL, f"{AWS}scheme": "internet-facing"},
        ),
        f"sets annotation {AWS}scheme: internet-facing{INTERNET}",
        service(type="LoadBalancer", annotations={**INTERNAL, "note": "internet-facing"}),
    ),
    "another class of load balancers": (
        service(type="LoadBalancer", loadBalancerClass="example.com/other"),
        f"has class example.com/other; {CLASSES}",
        service(type="LoadBalancer", loadBalancerClass="shared/edge"),
    ),
    "a host of others": (
        ingress("chat.ml-serving.example.com"),
        f"claims host chat.ml-serving.example.com; {HOSTS}",
        ingress("chat.example.com"),
    ),
    "a name beside those below": (
        ingress("ml.example.com"),
        "claims host ml.example.com",
        ingress("a.b.ml.example.com"),
    ),
    "all names of a domain": (ingress("*.example.com"), "claims host *.example.com", ingress("*.ml.example.com")),
    "every host": (
        ingress(None),
        f"claims every host; {HOSTS.replace('add it', 'set a host and add it')}",
        ingress("a.ml.example.com"),
    ),
    "what no host has": (
        ingress("chat.example.com", defaultBackend={"service": {"name": "x", "port": {"number": 80}}}),
        "claims every host",
        ingress("chat.example.com"),
    ),
    "a certificate of others": (
        ingress("chat.example.com", tls=[{"hosts": ["a.example.com"], "secretName": "c"}]),
        "claims host a.example.com",
        ingress("chat.example.com", tls=[{"hosts": ["chat.example.com"], "secretName": "c"}]),
    ),
    "a host by an annotation": (
        ingress(
            "chat.example.com", annotations={"nginx.ingress.kubernetes.io/server-alias": "b.ml.example.com, a.com"}
        ),
        "claims host a.com",
        ingress("chat.example.com", annotations={"nginx.ingress.kubernetes.io/server-alias": "b.ml.example.com"}),
    ),
    "a name in DNS": (
        service(annotations={DNS: "api.example.com"}),
        "claims host api.example.com",
        service(annotations={DNS: "api.ml.example.com"}),
    ),
    "another class": (
        ingress("chat.example.com", "public"),
        f"has class public; {CLASSES}",
        ingress("chat.example.com"),
    ),
    "another class by its annotation": (
        ingress("chat.example.com", None, {"kubernetes.io/ingress.class": "public"}),
        "has class public",
        ingress("chat.example.com", None, {"kubernetes.io/ingress.class": "nginx"}),
    ),
    "no class": (
        ingress("chat.example.com", None),
        f"has no class; {CLASSES.replace('add it', 'set spec.ingressClassName and add it')}",
        ingress("chat.example.com"),
    ),
    "a public Ingress": (
        ingress("chat.example.com", annotations=PUBLIC),
        "sets annotation alb.ingress.kubernetes.io/scheme: internet-facing",
        ingress("chat.example.com", annotations={"alb.ingress.kubernetes.io/scheme": "internal"}),
    ),
    "a route of others": (
        route("a.example.com"),
        f"claims host a.example.com; {HOSTS}",
        route("chat.example.com", "a.ml.example.com"),
    ),
    "a route of every host": (route(), "claims every host", route("chat.example.com")),
    "another Gateway": (
        route("chat.example.com", parent={"namespace": "shared", "name": "public"}),
        f"is attached to shared/public; {CLASSES}",
        route("chat.example.com", parent={"name": "own"}),
    ),
    "a route without hosts": (
        route(parent={"namespace": "shared", "name": "public"}, kind="TCPRoute"),
        "is attached to shared/public",
        route(kind="TCPRoute"),
    ),
    "a service of gRPC of others": (
        route("a.example.com", kind="GRPCRoute"),
        f"claims host a.example.com; {HOSTS}",
        route("chat.example.com", kind="GRPCRoute"),
    ),
    "a certificate's route of every host": (
        route(kind="TLSRoute"),
        "claims every host",
        made(f"{GATEWAY}/v1", "TLSRoute", {}),
    ),
    "datagrams to another Gateway": (
        route(parent={"namespace": "shared", "name": "public"}, kind="UDPRoute"),
        "is attached to shared/public",
        route(kind="UDPRoute"),
    ),
    **{
        f"listeners of others in {api}": (
            made(api, kind, {"parentRef": {"name": "edge", "namespace": "shared"}, "listeners": [{"hostname": ""}]}),
            "claims every host",
            made(api, kind, {"parentRef": {"name": "edge", "namespace": "shared"}, "listeners": [HEARD]}),
        )
        for api, kind in LISTENING
    },
    **{
        f"listeners of another Gateway in {api}": (
            made(api, kind, {"parentRef": {"name": "public", "namespace": "shared"}, "listeners": [HEARD]}),
            "is attached to shared/public",
            made(api, kind, {"parentRef": {"name": "own"}, "listeners": [HEARD]}),
        )
        for api, kind in LISTENING
    },
    "a name in the DNS of the network": (
        service(annotations={"external-dns.alpha.kubernetes.io/internal-hostname": "api.example.com"}),
        "claims host api.example.com",
        service(annotations={"external-dns.alpha.kubernetes.io/internal-hostname": "api.ml.example.com"}),
    ),
    "another class of Gateways": (
        gateway("public", "chat.example.com"),
        "has class public",
        gateway("nginx", "chat.example.com"),
    ),
    "a Gateway of every host": (
        gateway("nginx", "chat.example.com", ""),
        "claims every host",
        gateway("nginx", "chat.example.com"),
    ),
    "a public Gateway": (
        gateway("nginx", "chat.example.com", annotations=PUBLIC),
        "sets annotation alb.ingress.kubernetes.io/scheme",
        gateway("nginx", "chat.example.com", annotations=INTERNAL),
    ),
}


@pytest.mark.parametrize(("attempt", "words", "twin"), CASES.values(), ids=CASES.keys())
def test_only_what_the_stack_allows_is_open(foreign: None, tenant: Person, attempt: Any, words: str, twin: Any) -> None:
    assert foreign is None
    message = tenant.refusal(attempt)
    assert words in message, message
    assert not tenant.refusal(twin)


def elsewhere(manifest: Any, namespace: str) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


def test_where_the_stack_says_nothing_nothing_is_open(foreign: None, tenant: Person) -> None:
    assert foreign is None
    words = f"claims host chat.example.com; add it to teams.{RESEARCH}.network.expose.hosts in the stack"
    assert words in tenant.refusal(elsewhere(ingress("chat.example.com"), RESEARCH))
    assert "has type LoadBalancer" in tenant.refusal(service(RESEARCH, INTERNAL, type="LoadBalancer"))
    assert "is attached to shared/edge" in tenant.refusal(elsewhere(route(kind="TCPRoute"), RESEARCH))
    assert not tenant.refusal(service(RESEARCH))
    mesh = route(parent={"group": "", "kind": "Service", "name": "x"}, kind="TCPRoute")
    assert not tenant.refusal(elsewhere(mesh, RESEARCH)), "of its own Service"


def test_a_public_team_may_open_to_the_internet(tenant: Person) -> None:
    for kind in ("LoadBalancer", "NodePort"):
        assert not tenant.refusal(service(PRODUCTION, type=kind))
    assert "sets externalIPs" in tenant.refusal(service(PRODUCTION, externalIPs=["10.1.2.3"]))


def test_what_kuberay_opens_for_a_tenant_is_evaluated_too(cluster: Cluster, door: Door, tenant: Person) -> None:
    assert tenant
    with door.let_in("operator", "cluster-admin", EXPERIMENTS, home="kuberay-system") as operator:
        cluster.wait_for(lambda: not operator.refusal(service()), what="its rights")
        assert "has type NodePort" in operator.refusal(service(type="NodePort"))


@pytest.fixture
def older(cluster: Cluster, tenant: Person) -> Iterator[list[Any]]:
    """A Service and an Ingress that are older than the rules."""
    assert tenant
    olds = [service(type="NodePort"), ingress("chat.ml-serving.example.com")]
    for manifest in olds:
        cluster.create(manifest)
    yield olds
    for manifest in olds:
        cluster.delete(Reference.of(manifest))


def test_an_update_passes_that_opens_nothing_more(tenant: Person, older: list[Any]) -> None:
    open_service, open_ingress = older
    for patch in ({"metadata": {"labels": {"note": "x"}}}, {"spec": {"ports": [{"port": 81}]}}):
        assert not tenant.patch_refusal(open_service, patch)
    assert "sets externalIPs" in tenant.patch_refusal(open_service, {"spec": {"externalIPs": ["10.1.2.3"]}})
    assert not tenant.patch_refusal(open_service, {"spec": {"type": "ClusterIP"}})
    assert not tenant.patch_refusal(open_ingress, {"metadata": {"annotations": {"note": "x"}}})
    assert "claims host other.example.com" in tenant.patch_refusal(
        open_ingress, {"spec": {"rules": ingress("other.example.com")["spec"]["rules"]}}
    )
    assert "claims host chat.ml-serving" in tenant.patch_refusal(open_ingress, {"metadata": {"annotations": PUBLIC}})


@pytest.mark.parametrize("name", CASES)
def test_no_update_opens_what_the_stack_does_not_allow(foreign: None, tenant: Person, name: str) -> None:
    assert foreign is None
    attempt, words, twin = CASES[name]
    own = {**twin, "metadata": {**twin["metadata"], "name": "base"}}
    tenant.cluster.create(own)
    notes = dict.fromkeys(twin["metadata"]["annotations"]) | attempt["metadata"]["annotations"]
    change = {"metadata": {"annotations": notes}, "spec": dict.fromkeys(twin["spec"]) | attempt["spec"]}
    message = tenant.patch_refusal(own, change)
    tenant.cluster.delete(Reference.of(own))
    assert words in message or "may not change once set" in message, message


BLOCKING: Final[list[tuple[dict[str, Any], str]]] = [
    ({"maxUnavailable": 0}, "sets maxUnavailable: 0, so no pod could be evicted and its node not be drained"),
    ({"maxUnavailable": "0%"}, "sets maxUnavailable: 0%"),
    ({"minAvailable": "100%"}, "sets minAvailable: 100%"),
]


@pytest.mark.parametrize(("spec", "words"), BLOCKING)
def test_a_disruption_budget_lets_nodes_be_drained(
    cluster: Cluster, tenant: Person, spec: dict[str, Any], words: str
) -> None:
    selected = {"selector": {"matchLabels": {"app": "x"}}}
    blocking = made("policy/v1", "PodDisruptionBudget", {**selected, **spec})
    assert words in tenant.refusal(blocking)
    for twin in ({"maxUnavailable": 1}, {"maxUnavailable": "10%"}, {"minAvailable": 1}, {"minAvailable": "90%"}):
        assert not tenant.refusal(made("policy/v1", "PodDisruptionBudget", {**selected, **twin}))
    own = made("policy/v1", "PodDisruptionBudget", {**selected, "maxUnavailable": 1})
    own["metadata"]["name"] = "own"
    cluster.create(own)
    assert words in tenant.patch_refusal(own, {"spec": {"maxUnavailable": None, **spec}})
    assert not tenant.patch_refusal(own, {"spec": {"maxUnavailable": 2}})
    cluster.delete(Reference.of(own))
    # As if it were older than the rule.
    cluster.create(blocking)
    assert not tenant.patch_refusal(blocking, {"metadata": {"labels": {"note": "x"}}})
    cluster.delete(Reference.of(blocking))
