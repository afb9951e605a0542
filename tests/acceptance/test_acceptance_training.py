"""The pods of TrainJobs before a real API server: their class, and the quota that admits only some classes."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, cast

import pytest
from acceptance_builders import admitted, declared, moved, only, refusal, refused_soon
from builders import Data, job, stack, team

from gpu_tenancy.base.json import at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

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
    """A namespace with those quotas, in force."""
    cluster.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": 5}
    )
    for name in ("default", "workload"):
        cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        )
    for quota in (item for item in ours if item.kind == "ResourceQuota"):
        cluster.apply(moved(dict(quota.manifest), namespace))
        cluster.wait_for(
            lambda name=quota.name: at(cluster.get("v1", "ResourceQuota", name, namespace) or {}, "status", "hard"),
            what=f"quota {quota.name}",
        )
    yield namespace
    cluster.delete(Reference("scheduling.k8s.io/v1", "PriorityClass", CLASS))


def pod_of(runtime: Any, train_job: Any, namespace: str) -> Any:
    """The pod that Kubeflow Trainer makes: the runtime's, with the TrainJob's patch and trainer.

    Lists of named items are merged by name, as a strategic merge patch does:
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


def test_a_train_job_and_its_runtime_are_accepted_by_their_definitions(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
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


def test_the_quota_admits_the_pods_of_a_train_job_and_would_refuse_those_of_trainers_own_runtime(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
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


def test_a_namespace_that_admits_every_class_has_only_the_runtime_of_its_jobs() -> None:
    names = {item.name for item in declared(sections()) if item.kind == "TrainingRuntime"}
    assert names == {"job-fit"}
