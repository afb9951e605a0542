"""TrainJobs, queued nodes, CPU teams and claims of storage before a real API server."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, cast

import pytest
from acceptance_builders import (
    admitted,
    an_account,
    declared,
    flat,
    in_waves,
    moved,
    only,
    refusal,
    refused_soon,
    sections_of,
)
from builders import Data, job, pool, stack, team
from removing import remove

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.embedded.drivers import STORAGE, bring_volumes
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.placement import NAMESPACE, check_placement
from gpu_tenancy.local.settling import settle
from gpu_tenancy.local.summary import summarise
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import ClaimPlan
from gpu_tenancy.model.source import Source

CLASS: Final = "training-high"
FIT: Final = job(framework="pytorch", workers=2, gpus=4)


def sections(**of_team: object) -> Data:
    gpus = {"h100": {"guaranteed": 8, "limit": 16}}
    return stack(priorities={CLASS: 5}, teams={"a": team(gpus=gpus, priority=CLASS, training={"fit": FIT}, **of_team)})


@pytest.fixture(scope="module")
def ours() -> tuple[KubernetesObject, ...]:
    """A namespace that admits pods of one class, with a TrainJob."""
    return declared(sections(compute={"priorities": [CLASS]}))


@pytest.fixture
def home(cluster: Cluster, namespace: str, ours: tuple[KubernetesObject, ...]) -> Iterator[str]:
    cluster.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": 5}
    )
    for name in ("default", "workload"):
        an_account(cluster, namespace, name)
    for quota in (item for item in ours if item.kind == "ResourceQuota"):
        cluster.apply(moved(dict(quota.manifest), namespace))
        cluster.wait_for(
            lambda name=quota.name: at(cluster.get("v1", "ResourceQuota", name, namespace) or {}, "status", "hard"),
            what=f"quota {quota.name}",
        )
    yield namespace
    cluster.delete(Reference("scheduling.k8s.io/v1", "PriorityClass", CLASS))


def pod_of(runtime: Any, train_job: Any, namespace: str) -> Any:
    """The runtime's pod with the TrainJob's patch and trainer; lists of named items are merged by name.

    https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go.
    """
    (patch,) = train_job["spec"]["runtimePatches"]
    template = merged(runtime["spec"]["template"], patch["trainingRuntimeSpec"]["template"])
    (replicated,) = template["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]
    (node,) = pod["spec"]["containers"]
    trainer = train_job["spec"]["trainer"]
    node |= {"image": trainer["image"], "resources": trainer["resourcesPerNode"]}
    spec = {**pod["spec"], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fit-node-0", "namespace": namespace}, "spec": spec}


def merged(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        below, over = cast("Data", base), cast("Data", patch)
        return {key: merged(below.get(key), over[key]) if key in over else below[key] for key in (*below, *over)}
    if isinstance(base, list) and isinstance(patch, list):
        items, changes = cast("list[Any]", base), cast("list[Any]", patch)
        if all("name" in item for item in [*items, *changes]):
            named: Data = {item["name"]: item for item in items}
            for change in changes:
                named[change["name"]] = merged(named.get(change["name"]), change)
            return list(named.values())
    return deepcopy(cast("Any", patch))


def test_train_jobs_and_runtimes_are_accepted(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    runtime, train_job = moved(only(ours, "TrainingRuntime", "job-fit"), home), moved(only(ours, "TrainJob"), home)
    assert train_job["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}
    live: Any = cluster.apply(runtime)
    (replicated,) = live["spec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1, "Trainer's webhook accepts no other number"
    cluster.apply(train_job, dry_run=True)


def test_a_train_job_cannot_set_the_class_itself(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
    train_job = moved(only(ours, "TrainJob"), home)
    (patch,) = train_job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["priorityClassName"] = CLASS
    assert "priorityClassName" in refusal(lambda: cluster.apply(train_job, dry_run=True))


def test_the_quota_admits_pods_of_train_jobs(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    runtime = only(ours, "TrainingRuntime", "job-fit")
    pod = pod_of(runtime, only(ours, "TrainJob"), home)
    taken = admitted(cluster, pod)
    assert taken["spec"]["priorityClassName"] == CLASS
    assert taken["spec"]["priority"] == 5
    assert taken["spec"]["serviceAccountName"] == "workload"
    assert taken["spec"]["automountServiceAccountToken"] is False
    assert taken["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (node,) = taken["spec"]["containers"]
    assert node["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

    del pod["spec"]["priorityClassName"]
    words = "exceeded quota: budget-no-other-priority, requested: pods=1, used: pods=0, limited: pods=0"
    refused_soon(cluster, words, pod)


def test_namespaces_of_every_class_have_their_own_runtimes() -> None:
    names = {item.name for item in declared(sections()) if item.kind == "TrainingRuntime"}
    assert names == {"job-fit"}


# Queued nodes.

QUEUED: Final = {"kind": "queued", "maxRun": "2d"}


def queued() -> tuple[KubernetesObject, ...]:
    cpu = pool("n2-standard-32", 3, labels={"node-type": "cpu"})
    h100 = pool("a3-highgpu-8g", {"min": 0, "max": 2}, capacity=QUEUED)
    return declared(
        stack(
            cluster={"cloud": "existing", "provider": "gcp"},
            pools={"cpu": cpu, "h100": h100},
            teams={"a": team(gpus={"h100": {"guaranteed": 8}})},
        )
    )


def test_objects_of_queued_provisioning_are_accepted(cluster: Cluster, tmp_path: Path) -> None:
    waves = in_waves(queued())
    apply(cluster, waves, tmp_path / "inventory.json")
    found: Any = cluster.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", "a")
    remove(cluster, flat(waves))
    (held,) = found["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert held == {"name": "provision-h100", "onFlavors": ["h100"]}


def test_checks_are_applied_before_their_queue() -> None:
    kinds = [manifest["kind"] for manifest in flat(in_waves(queued()))]
    assert kinds.index("ProvisioningRequestConfig") < kinds.index("AdmissionCheck") < kinds.index("ClusterQueue")


def test_a_parameter_longer_than_kueue_takes_is_refused(cluster: Cluster) -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    config["spec"]["parameters"]["maxRunDurationSeconds"] = "1" * 256
    assert "Too long" in refusal(lambda: cluster.apply(config, dry_run=True))


def test_the_queue_asks_for_the_nodes_in_gkes_own_words() -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    assert config["spec"] == {
        "provisioningClassName": "queued-provisioning.gke.io",
        "parameters": {"maxRunDurationSeconds": "172800"},
        "managedResources": ["nvidia.com/gpu"],
        "podSetUpdates": {
            "nodeSelector": [
                {
                    "key": "autoscaling.gke.io/provisioning-request",
                    "valueFromProvisioningClassDetail": "ResizeRequestName",
                }
            ]
        },
    }


# Claims of storage.

SECTIONS: Final[Data] = stack(
    teams={
        "a": team(
            gpus={"h100": {"guaranteed": 8}},
            storage={"ck": {"size": "1Gi"}},
            training={"t": job(flavor="h100", volumes={"ck": "/ck"}, datasets={"corpus": "/data"}, scratch="1Gi")},
        )
    },
    datasets={"corpus": "s3://ml-corpus/v3"},
)


def phase(cluster: Cluster, name: str, namespace: str) -> str:
    return text_at(cluster.get("v1", "PersistentVolumeClaim", name, namespace) or {}, "status", "phase")


def _released(cluster: Cluster) -> bool:
    phases = [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)]
    return phases == ["Released"]


def test_claims_are_bound_and_mounted(cluster: Cluster, namespace: str) -> None:
    objects = declared(SECTIONS)
    volume = only(objects, "PersistentVolume")
    volume["metadata"]["name"] = f"{namespace}-corpus"
    volume["spec"]["claimRef"]["namespace"] = namespace
    cluster.apply(volume)
    claim = moved(only(objects, "PersistentVolumeClaim", "corpus"), namespace)
    claim["spec"]["volumeName"] = f"{namespace}-corpus"
    cluster.apply(claim)
    cluster.apply(moved(only(objects, "PersistentVolumeClaim", "ck"), namespace))
    bring_volumes(cluster, [ClaimPlan("ck", namespace, 2**30, "ReadWriteOnce", None, "")], default=True)
    for name in ("corpus", "ck"):
        cluster.wait_for(lambda name=name: phase(cluster, name, namespace) == "Bound", what=f"claim {name} to be bound")
    an_account(cluster, namespace)
    spec = only(objects, "Job", "t")["spec"]["template"]["spec"]
    spec.pop("priorityClassName", None)
    pod: Data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t", "namespace": namespace}, "spec": spec}
    made = cluster.apply(pod)
    claims = [text_at(one, "persistentVolumeClaim", "claimName") for one in maps_at(made, "spec", "volumes")]
    assert sorted(filter(None, claims)) == ["ck", "corpus"]
    bring_volumes(cluster, [], default=False)
    assert [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)] == [
        "Bound"
    ]
    for kind, name in (("Pod", "t"), ("PersistentVolumeClaim", "ck"), ("PersistentVolumeClaim", "corpus")):
        cluster.delete(Reference("v1", kind, name, namespace))
    cluster.delete(Reference("v1", "PersistentVolume", f"{namespace}-corpus"))
    cluster.wait_for(lambda: _released(cluster), what="the volume to be released")
    bring_volumes(cluster, [], default=False)
    assert cluster.list("v1", "PersistentVolume", labels=STORAGE) == ()


# Teams without GPUs.

TEAMS = ("namespace1", "namespace2", "namespace3", "namespace4")


@pytest.fixture(scope="module")
def elastic(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plan, Tree]]:
    sections = sections_of("example-elastic")
    stack = load(Source(sections))
    made = plan(stack)
    waves = in_waves(declared(sections))
    bring_nodes(cluster, node_shapes(stack))
    apply(cluster, waves, tmp_path_factory.mktemp("elastic") / "inventory.json")
    settle(cluster, made)
    yield made, Tree(stack)
    remove(cluster, flat(waves))
    bring_nodes(cluster, ())


def test_no_team_can_request_more_cpus_than_may_run_and_wait(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = check_placement(cluster, *elastic)
    assert [check.promise for check in found] == [f"{team} cannot request more than its 80 CPUs" for team in TEAMS]
    assert [check.seen for check in found if not check.holds] == []
    for check in found:
        assert check.seen == "0 used; a pod with 80 is admitted, a pod with 81 is rejected"
        assert "exceeded quota: budget, requested: requests.cpu=81, used: requests.cpu=0" in check.message
    cluster.wait_gone(Reference("v1", "Namespace", NAMESPACE))


def test_the_summary_counts_cpus_and_memory(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = summarise(cluster, *elastic)
    assert {(holding.team, holding.flavor): (holding.guaranteed, holding.limit) for holding in found.holdings} == {
        key: value
        for team in TEAMS
        for key, value in {(team, "CPUs"): (10_000, 20_000), (team, "memory"): (40 * 2**30, 80 * 2**30)}.items()
    }
    assert {supply.flavor: (supply.nodes, supply.capacity) for supply in found.supply} == {
        "CPUs": (4, 40_000),
        "memory": (4, 160 * 2**30),
    }
