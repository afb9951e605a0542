"""Objects of tenants that the guards refuse or accept (`guards.yaml`), and objects that expose a team's namespace."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from acceptance_guards import (
    EXPERIMENTS,
    PRODUCTION,
    QUEUE,
    RESEARCH,
    Door,
    Person,
    cron_job,
    gang,
    job,
    job_set,
    job_template,
    leader_worker_set,
    network_policy,
    pod,
    pod_group,
    pod_of,
    pytorch_job,
    ray_cluster,
    replicas,
    train_job,
    volcano_cron_job,
)
from builders import patched

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

INTERNAL: Final = {"networking.gke.io/load-balancer-type": "Internal"}
PUBLIC: Final = {"alb.ingress.kubernetes.io/scheme": "internet-facing"}
GATEWAY: Final = "gateway.networking.k8s.io"
LISTENER: Final = {"hostname": "chat.example.com"}
OWN_GANG: Final = "ml-research-l4"


def made(api: str, kind: str, spec: Any, namespace: str = EXPERIMENTS, **annotations: str) -> Any:
    metadata = {"name": "open", "namespace": namespace, "annotations": annotations}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def service(namespace: str = EXPERIMENTS, annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    return made("v1", "Service", {"ports": [{"port": 80}], **spec}, namespace, **(annotations or {}))


def ingress(host: str) -> Any:
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return made("networking.k8s.io/v1", "Ingress", {"rules": [rule], "ingressClassName": "nginx"})


def route(*hosts: str, parent: Any = None, kind: str = "HTTPRoute") -> Any:
    parents = [{"namespace": "shared", "name": "edge"} if parent is None else parent]
    version = "v1alpha2" if kind in {"TCPRoute", "UDPRoute"} else "v1"
    named = {"hostnames": list(hosts)} if hosts else {}
    return made(f"{GATEWAY}/{version}", kind, {"parentRefs": parents, **named})


def _scaled_job() -> Any:
    metadata = {"name": "s", "namespace": RESEARCH, "labels": {QUEUE: RESEARCH}}
    triggers = [{"type": "cron", "metadata": {"start": "0 3 * * *"}}]
    spec = {"jobTargetRef": {"template": {"spec": pod_of()}}, "triggers": triggers}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledJob", "metadata": metadata, "spec": spec}


def _replication_controller() -> Any:
    found: Any = {**replicas("ReplicaSet", RESEARCH, RESEARCH), "apiVersion": "v1", "kind": "ReplicationController"}
    return {**found, "spec": {"template": found["spec"]["template"]}}


# Objects that the guards accept; cases change them.
OBJECTS: Final[dict[str, Any]] = {
    "pod": pod(RESEARCH, RESEARCH),
    "job": job(RESEARCH, RESEARCH),
    "cron job": cron_job(RESEARCH, RESEARCH),
    "deployment": replicas("Deployment", RESEARCH, RESEARCH),
    "stateful set": replicas("StatefulSet", RESEARCH, RESEARCH),
    "replica set": replicas("ReplicaSet", RESEARCH, None, inside=RESEARCH),
    "daemon set": replicas("DaemonSet", RESEARCH, None, inside=RESEARCH),
    "replication controller": _replication_controller(),
    "job set": job_set(RESEARCH, RESEARCH),
    "train job": train_job(RESEARCH, RESEARCH),
    "scaled job": _scaled_job(),
    "gang": gang(RESEARCH, OWN_GANG),
    "leader worker set": leader_worker_set(RESEARCH, None, pod_of(0)),
    "ray cluster": ray_cluster(RESEARCH, None, pod_of(0)),
    "pytorch job": pytorch_job(RESEARCH, None, pod_of(0)),
    "pod group": pod_group(RESEARCH, OWN_GANG),
    "volcano cron job": volcano_cron_job(RESEARCH, OWN_GANG),
    "job template": job_template(RESEARCH, OWN_GANG),
    "network policy": network_policy(RESEARCH),
    "service": service(),
    "ingress": ingress("chat.example.com"),
    "route": route("chat.example.com"),
    "gateway": made(
        f"{GATEWAY}/v1",
        "Gateway",
        {"gatewayClassName": "nginx", "listeners": [{**LISTENER, "name": "l0", "port": 80, "protocol": "HTTP"}]},
    ),
    "listener set": made(
        f"{GATEWAY}/v1", "ListenerSet", {"parentRef": {"name": "edge", "namespace": "shared"}, "listeners": [LISTENER]}
    ),
}
TABLE: Final[dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("guards.yaml").read_text(encoding="utf-8")
)
CASES: Final = [
    pytest.param(TABLE[subject][name], id=f"{subject}: {name}") for subject in TABLE for name in TABLE[subject]
]


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("case", CASES)
def test_guards_refuse_and_accept(tenant: Person, case: Any) -> None:
    own = OBJECTS[case["of"]]
    if "patch" in case:
        message = tenant.refusal(patched(own, case["patch"]))
        assert case["refused"] in message if "refused" in case else message.endswith(case["ends"]), message
    if "accepted" in case:
        assert not tenant.refusal(patched(own, case["accepted"]))


# What opens a team's namespace.


def elsewhere(manifest: Any, namespace: str) -> Any:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}


@pytest.mark.usefixtures("foreign")
def test_nothing_opens_without_a_word_of_the_stack(tenant: Person) -> None:
    words = f"claims host chat.example.com; add it to teams.{RESEARCH}.network.expose.hosts in the stack"
    assert words in tenant.refusal(elsewhere(ingress("chat.example.com"), RESEARCH))
    assert "has type LoadBalancer" in tenant.refusal(service(RESEARCH, INTERNAL, type="LoadBalancer"))
    assert "is attached to shared/edge" in tenant.refusal(elsewhere(route(kind="TCPRoute"), RESEARCH))
    assert not tenant.refusal(service(RESEARCH))
    mesh = route(parent={"group": "", "kind": "Service", "name": "x"}, kind="TCPRoute")
    assert not tenant.refusal(elsewhere(mesh, RESEARCH)), "of its own Service"


def test_a_public_team_opens_to_the_internet(tenant: Person) -> None:
    for kind in ("LoadBalancer", "NodePort"):
        assert not tenant.refusal(service(PRODUCTION, type=kind))
    assert "sets externalIPs" in tenant.refusal(service(PRODUCTION, externalIPs=["10.1.2.3"]))


def test_services_of_kuberay_are_judged_too(cluster: Cluster, door: Door, tenant: Person) -> None:
    assert tenant
    with door.let_in("operator", "cluster-admin", EXPERIMENTS, home="kuberay-system") as operator:
        cluster.wait_for(lambda: not operator.refusal(service()), what="its rights")
        assert "has type NodePort" in operator.refusal(service(type="NodePort"))


def test_an_update_passes_that_opens_nothing_more(tenant: Person, kept: Callable[..., Any]) -> None:
    open_service, open_ingress = kept(service(type="NodePort")), kept(ingress("chat.ml-serving.example.com"))
    for patch in ({"metadata": {"labels": {"note": "x"}}}, {"spec": {"ports": [{"port": 81}]}}):
        assert not tenant.patch_refusal(open_service, patch)
    assert "sets externalIPs" in tenant.patch_refusal(open_service, {"spec": {"externalIPs": ["10.1.2.3"]}})
    assert not tenant.patch_refusal(open_service, {"spec": {"type": "ClusterIP"}})
    assert not tenant.patch_refusal(open_ingress, {"metadata": {"annotations": {"note": "x"}}})
    assert "claims host other.example.com" in tenant.patch_refusal(
        open_ingress, {"spec": {"rules": ingress("other.example.com")["spec"]["rules"]}}
    )
    assert "claims host chat.ml-serving" in tenant.patch_refusal(open_ingress, {"metadata": {"annotations": PUBLIC}})


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("case", TABLE["expose"].values(), ids=TABLE["expose"])
def test_no_update_opens_more_than_the_stack_allows(tenant: Person, case: Any) -> None:
    own = OBJECTS[case["of"]]
    attempt, twin = patched(own, case["patch"]), patched(own, case["accepted"])
    base = {**twin, "metadata": {**twin["metadata"], "name": "base"}}
    tenant.cluster.create(base)
    notes = dict.fromkeys(twin["metadata"]["annotations"]) | attempt["metadata"]["annotations"]
    change = {"metadata": {"annotations": notes}, "spec": dict.fromkeys(twin["spec"]) | attempt["spec"]}
    message = tenant.patch_refusal(base, change)
    tenant.cluster.delete(Reference.of(base))
    assert case["refused"] in message or "may not change once set" in message, message


BLOCKING: Final[list[tuple[dict[str, Any], str]]] = [
    ({"maxUnavailable": 0}, "sets maxUnavailable: 0, so no pod could be evicted and its node not be drained"),
    ({"maxUnavailable": "0%"}, "sets maxUnavailable: 0%"),
    ({"minAvailable": "100%"}, "sets minAvailable: 100%"),
]


@pytest.mark.parametrize(("spec", "words"), BLOCKING)
def test_a_disruption_budget_lets_nodes_be_drained(
    tenant: Person, kept: Callable[..., Any], spec: dict[str, Any], words: str
) -> None:
    selected = {"selector": {"matchLabels": {"app": "x"}}}
    blocking = made("policy/v1", "PodDisruptionBudget", {**selected, **spec})
    assert words in tenant.refusal(blocking)
    for twin in ({"maxUnavailable": 1}, {"maxUnavailable": "10%"}, {"minAvailable": 1}, {"minAvailable": "90%"}):
        assert not tenant.refusal(made("policy/v1", "PodDisruptionBudget", {**selected, **twin}))
    own = kept(made("policy/v1", "PodDisruptionBudget", {**selected, "maxUnavailable": 1}), "own")
    assert words in tenant.patch_refusal(own, {"spec": {"maxUnavailable": None, **spec}})
    assert not tenant.patch_refusal(own, {"spec": {"maxUnavailable": 2}})
    kept(blocking)
    assert not tenant.patch_refusal(blocking, {"metadata": {"labels": {"note": "x"}}})
