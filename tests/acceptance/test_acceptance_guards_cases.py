"""Objects and pods of tenants that the guards refuse or accept (`guards.yaml`, `devices.yaml`)."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml
from acceptance_guards import (
    EXPERIMENTS,
    GPU,
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
    labels,
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
    "config map": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": RESEARCH}},
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


Kept: TypeAlias = Callable[..., Any]
COUNTED: Final = "which adds devices that no queue counts; remove it, and request GPUs under resources.limits"
DEVICES: Final = yaml.safe_load(Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DEVICES, ids=[case["name"] for case in DEVICES])
def test_devices_past_the_scheduler_are_refused(tenant: Person, case: Any) -> None:
    words = f"{case['words']}, {COUNTED}"
    attempt, twin = (pod_of(volumes=[{"name": "d", "emptyDir": {}}], **case[key]) for key in ("refused", "accepted"))
    for hostile, honest in zip(every_kind(attempt), every_kind(twin), strict=True):
        message = tenant.refusal(hostile)
        assert words in message, message
        assert not tenant.refusal(honest)


@pytest.mark.parametrize("key", ["cdi.k8s.io/gpus", "nvidia.cdi.k8s.io/container.c"])
def test_devices_by_annotation_are_refused(tenant: Person, kept: Kept, key: str) -> None:
    words, notes = f"sets annotation {key}, which adds devices that no queue counts; remove it", {key: f"{GPU}=all"}
    assert words in tenant.refusal(pod(RESEARCH, None, pod_of(0), annotations=notes))
    own = kept(pod(RESEARCH, None, pod_of(0)), "plain")
    assert words in tenant.patch_refusal(own, {"metadata": {"annotations": notes}})
    assert not tenant.patch_refusal(own, {"metadata": {"annotations": {f"example.com/{key.partition('/')[0]}": "x"}}})


# Volumes by type, each with the fields that it requires.
FOREIGN: Final[dict[str, Any]] = {
    "awsElasticBlockStore": {"volumeID": "v"},
    "azureDisk": {"diskName": "d", "diskURI": "https://example.com/d.vhd"},
    "azureFile": {"secretName": "s", "shareName": "s"},
    "cephfs": {"monitors": ["m"]},
    "cinder": {"volumeID": "v"},
    "csi": {"driver": "nfs.csi.k8s.io"},
    "fc": {"wwids": ["w"]},
    "flexVolume": {"driver": "example.com/d"},
    "flocker": {"datasetName": "d"},
    "gcePersistentDisk": {"pdName": "d"},
    "gitRepo": {"repository": "https://example.com/r"},
    "glusterfs": {"endpoints": "e", "path": "p"},
    "hostPath": {"path": "/"},
    "iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:s", "lun": 0},
    "nfs": {"server": "192.0.2.1", "path": "/"},
    "photonPersistentDisk": {"pdID": "d"},
    "portworxVolume": {"volumeID": "v"},
    "quobyte": {"registry": "r:1", "volume": "v"},
    "rbd": {"monitors": ["m"], "image": "i"},
    "scaleIO": {"gateway": "g", "system": "s", "volumeName": "v", "secretRef": {"name": "s"}},
    "storageos": {"volumeName": "v"},
    "vsphereVolume": {"volumePath": "p"},
}
CLAIMED: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
OWN_VOLUMES: Final[dict[str, Any]] = {
    "configMap": {"name": "c"},
    "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True},
    "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]},
    "emptyDir": {"medium": "Memory"},
    "ephemeral": {"volumeClaimTemplate": {"spec": CLAIMED}},
    "image": {"reference": "registry.example.com/model:1"},
    "persistentVolumeClaim": {"claimName": "data"},
    "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]},
    "secret": {"secretName": "s"},
}


def with_volumes(volumes: dict[str, Any], gpus: int = 0) -> Any:
    return pod_of(gpus, volumes=[{"name": f"v{n}", kind: of} for n, (kind, of) in enumerate(volumes.items())])


def is_foreign(kind: str) -> str:
    what = f"CSI driver {FOREIGN[kind]['driver']}" if kind == "csi" else f"type {kind}"
    fix = ", or add the driver to guards.csi in the stack" if kind == "csi" else ""
    return (
        f"has volume v0 of {what}, which the node mounts past roles, quotas and NetworkPolicies;"
        f" use a PersistentVolumeClaim{fix}"
    )


def test_only_claims_and_parts_of_pods_are_volumes(cluster: Cluster, door: Door, tenant: Person) -> None:
    _, served = tenant.asked("GET", "/openapi/v3/api/v1")
    types = served["components"]["schemas"]["io.k8s.api.core.v1.Volume"]["properties"].keys()
    assert types == {"name", *FOREIGN, *OWN_VOLUMES}
    for kind, volume in FOREIGN.items():
        message = tenant.refusal(job(RESEARCH, RESEARCH, with_volumes({kind: volume})))
        assert message.endswith(is_foreign(kind)), message
    for hostile, honest in zip(
        every_kind(with_volumes({"nfs": FOREIGN["nfs"]}, 1)), every_kind(with_volumes(OWN_VOLUMES, 1)), strict=True
    ):
        assert is_foreign("nfs") in tenant.refusal(hostile)
        assert not tenant.refusal(honest)
    with door.newcomer("dana", "edit", "privileged-team") as dana:
        level: Any = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
        cluster.patch(Reference("v1", "Namespace", "privileged-team"), level)
        hosted = job("privileged-team", None, with_volumes({"hostPath": {"path": "/dev"}}))
        cluster.wait_for(lambda: not dana.refusal(hosted), what="the label of the namespace")
        assert is_foreign("nfs") in dana.refusal(job("privileged-team", None, with_volumes({"nfs": FOREIGN["nfs"]})))


def test_servers_with_older_volumes_can_be_scaled(tenant: Person, kept: Kept) -> None:
    mounting, plain = (
        kept(replicas("Deployment", RESEARCH, None, spec=with_volumes(volumes)), name)
        for name, volumes in {"mounting": {"nfs": FOREIGN["nfs"]}, "plain": {}}.items()
    )
    assert not tenant.patch_refusal(mounting, {"spec": {"replicas": 2}})
    changes: list[tuple[Any, str]] = [({"nfs": FOREIGN["nfs"]}, is_foreign("nfs")), ({"emptyDir": {}}, "")]
    for volume, words in changes:
        message = tenant.patch_refusal(plain, {"spec": {"template": {"spec": {"volumes": [{"name": "v0", **volume}]}}}})
        assert message.endswith(words) if words else not message, message


def every_kind(spec: Any) -> Iterator[Any]:
    """Objects with the pod, of kinds with different places of the pod template."""
    yield pod(RESEARCH, RESEARCH, spec)
    yield job(RESEARCH, RESEARCH, spec)
    yield job_set(RESEARCH, RESEARCH, spec)
    yield gang(RESEARCH, OWN_GANG, spec)
    yield ray_cluster(RESEARCH, None, {**spec, "restartPolicy": "Always"}, inside=RESEARCH)
    cron = cron_job(RESEARCH, RESEARCH)
    cron["spec"]["jobTemplate"]["spec"]["template"]["spec"] = spec
    yield cron


def apart(field: str, **reach: Any) -> Any:
    own = {"labelSelector": {"matchLabels": labels(None)}, "topologyKey": "kubernetes.io/os"}
    return pod_of(affinity={field: {"requiredDuringSchedulingIgnoredDuringExecution": [own, {**own, **reach}]}})


OWN: Final = {"matchLabels": {"kubernetes.io/metadata.name": RESEARCH}}


@pytest.mark.parametrize(
    "reach",
    [
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchLabels": {"x": "y"}}},
        {"namespaceSelector": {**OWN, "matchExpressions": [{"key": "x", "operator": "Exists"}]}},
        {"namespaces": [RESEARCH, "ml-serving"]},
    ],
)
def test_no_pod_keeps_pods_of_other_teams_from_nodes(tenant: Person, reach: Any) -> None:
    words = (
        "sets affinity.podAntiAffinity to pods of other namespaces, which keeps these from nodes; remove namespaces and"
        " namespaceSelector of its terms under requiredDuringSchedulingIgnoredDuringExecution"
    )
    for manifest in every_kind(apart("podAntiAffinity", **reach)):
        assert words in tenant.refusal(manifest), manifest["kind"]
    words = "sets affinity.podAffinity to pods of other namespaces; remove namespaces"
    assert words in tenant.refusal(job(RESEARCH, RESEARCH, apart("podAffinity", **reach)))


@pytest.mark.parametrize("reach", [{}, {"namespaces": [RESEARCH]}, {"namespaceSelector": OWN}])
def test_pods_may_stay_apart_within_their_namespace(tenant: Person, reach: Any) -> None:
    for manifest in every_kind(apart("podAntiAffinity", **reach)):
        assert not tenant.refusal(manifest), manifest["kind"]
    term: Any = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    assert not tenant.refusal(job(RESEARCH, RESEARCH, pod_of(affinity={"podAntiAffinity": wish})))


def test_jobset_keeps_no_jobsets_of_other_teams_from_nodes(tenant: Person) -> None:
    words = (
        "sets annotation alpha.jobset.sigs.k8s.io/exclusive-topology, which keeps JobSets of other namespaces from"
        " nodes; remove it"
    )
    exclusive = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/os"}}
    together = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}}
    for path in (
        (),
        ("spec", "replicatedJobs", 0, "template"),
        ("spec", "replicatedJobs", 0, *["template", "spec"] * 2),
    ):
        for metadata, refused in ((exclusive, True), (together, False)):
            place = found = job_set(RESEARCH, RESEARCH)
            for key in path[: -1 if path[-1:] == ("spec",) else None]:
                place = place[key]
            place["metadata"] = {**place.get("metadata", {}), **metadata}
            assert (words in tenant.refusal(found)) == refused


LONG: Final = "in a pod with GPUs, for which it would keep them after its queue gave them to others"


def lingering(seconds: int, gpus: int = 1) -> Any:
    return pod_of(gpus, terminationGracePeriodSeconds=seconds)


def test_pods_with_gpus_end_soon_after_they_are_deleted(tenant: Person) -> None:
    words = f"sets terminationGracePeriodSeconds: 601 {LONG}; set terminationGracePeriodSeconds: 600 or less"
    for manifest in every_kind(lingering(601)):
        assert words in tenant.refusal(manifest), manifest["kind"]
    for spec in (lingering(600), lingering(31536000, 0)):
        for manifest in every_kind(spec):
            assert not tenant.refusal(manifest), manifest["kind"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_servers_may_take_longer(tenant: Person, kind: str) -> None:
    assert not tenant.refusal(replicas(kind, RESEARCH, RESEARCH, spec=lingering(3600)))
    words = f"sets terminationGracePeriodSeconds: 3601 {LONG}; set terminationGracePeriodSeconds: 3600 or less"
    assert words in tenant.refusal(replicas(kind, RESEARCH, RESEARCH, spec=lingering(3601)))


def test_a_deletion_lengthens_no_grace_period(tenant: Person, kept: Kept) -> None:
    # A pod without a node is deleted at once, whatever the period.
    own = kept(pod(RESEARCH, RESEARCH, {**lingering(60), "nodeName": "l4-0"}), "ends")
    light = kept(pod(RESEARCH, None, {**lingering(60, 0), "nodeName": "l4-0"}), "light")
    words = (
        "is deleted with a grace period of 31536000 s, longer than that of the pod, for which it would keep its GPUs;"
        " set --grace-period=60 or less"
    )
    assert words in tenant.delete_refusal(own, gracePeriodSeconds=31536000)
    assert tenant.delete_refusal(own, gracePeriodSeconds=61)
    for options in ({}, {"gracePeriodSeconds": 60}, {"gracePeriodSeconds": 0}):
        assert not tenant.delete_refusal(own, **options)
    assert not tenant.delete_refusal(light, gracePeriodSeconds=31536000)


def test_nor_does_an_eviction(tenant: Person, kept: Kept) -> None:
    kept(pod(RESEARCH, RESEARCH, lingering(60)), "evicted")
    # Kubernetes' own `edit` may evict pods.
    path = f"/api/v1/namespaces/{RESEARCH}/pods/evicted/eviction"

    def evicting(**options: Any) -> tuple[int, str]:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "evicted", "namespace": RESEARCH},
            "deleteOptions": {"dryRun": ["All"], **options},
        }
        status, answer = tenant.asked("POST", path, body)
        return status, str(answer.get("message", ""))

    status, message = evicting(gracePeriodSeconds=61)
    assert status in {403, 422}, message
    assert "sets deleteOptions.gracePeriodSeconds: 61, for which the pod could keep GPUs" in message
    for options in ({}, {"gracePeriodSeconds": 0}):
        status, message = evicting(**options)
        assert status < 300, message


def whole(limit: str, request: str | None, *, container: str | None = "1") -> Any:
    """A pod with pod-level resources, and resources of its container."""
    resources = {"limits": {"cpu": limit}, **({"requests": {"cpu": request}} if request else {})}
    spec = pod_of(0, resources=resources)
    amounts = {"cpu": container, "memory": "1Gi"} if container else {"memory": "1Gi"}
    spec["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return spec


def test_the_ratio_of_a_whole_pod_is_bounded(tenant: Person) -> None:
    # ml-research has requests of 64 cpus and limits of 128.
    words = ", but a limit can be at most 2 times the request in this namespace; set spec.resources.requests.cpu: 32"
    # The API server gives a pod what its containers request, but not a template.
    summed = "what its containers request"
    for make, request, source in (
        (pod, "1", "a request of 1"),
        (pod, None, "a request of 1"),
        (job, "1", "a request of 1"),
        (job, None, summed),
    ):
        message = tenant.refusal(make(RESEARCH, RESEARCH, whole("64", request)))
        assert f"limits cpu of the whole pod to 64 for {source}{words}" in message
    for make in (pod, job):
        for spec in (whole("2", "1"), whole("2", None), whole("8", "4")):
            assert not tenant.refusal(make(RESEARCH, RESEARCH, spec))


def test_a_resize_keeps_the_ratio_of_a_whole_pod(cluster: Cluster, tenant: Person, door: Door, kept: Kept) -> None:
    """The LimitRange is applied to a resize too, but has no ratio of whole pods."""
    assert tenant
    own = kept(pod(RESEARCH, None, whole("2", "1")), "resized")
    with door.let_in("resizer", "cluster-admin", RESEARCH) as resizer:
        cluster.wait_for(lambda: not resizer.refusal(pod(RESEARCH, None, pod_of(0))), what="rights")
        beyond, within = (
            resizer.patch_refusal(own, {"spec": {"resources": {"limits": {"cpu": limit}}}}, subresource="resize")
            for limit in ("64", "1500m")
        )
    assert "limits cpu of the whole pod to 64 for a request of 1, but a limit can be at most" in beyond
    assert not within


def test_a_pod_that_requests_gpus_names_them_in_its_containers(tenant: Person) -> None:
    spec = pod_of(0, resources={"limits": {GPU: "1"}})
    assert "resources" in tenant.refusal(pod(RESEARCH, RESEARCH, spec))
