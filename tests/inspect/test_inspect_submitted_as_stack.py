"""A job of a file that is submitted and the same section of a stack become the same object, but for what is listed."""

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest
from builders import Data, planned, stack, team
from live_builders import GPU, cluster_queue, flavor, local_queue, meta, node, state

from gpu_tenancy.cluster.reading import State
from gpu_tenancy.jobs.job_files import read_job
from gpu_tenancy.jobs.submitting import job_of
from gpu_tenancy.jobs.terms import Terms
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.plan.namespaces import NamespacePlan

NAME: Final = "app.kubernetes.io/name"
SMALL: Final[Data] = {"image": "registry.example.com/ml/train:3.0.1", "command": ["python"], "args": ["train.py"]}
SIZED: Final[Data] = {**SMALL, "gpus": 4, "cpu": 8, "memory": "64Gi"}
DISTRIBUTED: Final[Data] = {**SIZED, "workers": 2, "volumes": {"checkpoints": "/checkpoints"}, "priority": "ml-high"}
JOBS: Final[dict[str, Data]] = {
    "a job of one GPU": {**SMALL, "cpu": 8, "memory": "64Gi"},
    "a job without GPUs": {**SMALL, "gpus": 0},
    "a job of several GPUs and pods": DISTRIBUTED,
    "a job with its own deadline and priority": {**SIZED, "deadline": "90m", "priority": "ml-high"},
    "a job with its own retries and time to be kept": {**SIZED, "retries": 0, "keep": "1h"},
    "a job with its own shared memory and scratch space": {**SIZED, "sharedMemory": "1Gi", "scratch": "10Gi"},
    "a job that node autoscalers may move": {**SIZED, "movable": True},
    "a job with variables and a key of a Secret": {
        **SIZED,
        "env": {"STEPS": "1", "TOKEN": {"secret": "tracking", "key": "T"}},
    },
    "a job with storage and a dataset": {
        **SIZED,
        "volumes": {"checkpoints": "/checkpoints"},
        "datasets": {"corpus": "/data"},
    },
    "a TrainJob of PyTorch": {**DISTRIBUTED, "framework": "pytorch"},
    "a TrainJob of JAX": {**DISTRIBUTED, "framework": "jax", "deadline": "1h"},
    "a RayJob": {**DISTRIBUTED, "framework": "ray"},
    "a RayJob with its own retries": {**SIZED, "framework": "ray", "retries": 1},
}
DIFFERENCES: Final = """
metadata.labels[app.kubernetes.io/name]: what a person submits must not answer for a Service of that name
template.metadata.labels: likewise
runtimeRef: researchers may not create a TrainingRuntime, so they name one of the cluster
trainingRuntimeSpec.template.metadata: the digest of the runtime, by which a stack replaces its TrainJobs
""".strip()
"""All that differs, and why."""


def sections(job: Data, security: str = "baseline") -> Data:
    owner = team(
        gpus={"h100": {"guaranteed": 8}},
        storage={"checkpoints": {"size": "1Gi", "mode": "shared", "storageClass": "efs"}},
        podSecurity=security,
        training={"nightly": job},
    )
    bucket = {"bucket": "s3://corpus", "teams": ["a"]}
    return stack(
        teams={"a": owner},
        datasets={"corpus": bucket},
        priorities={"ml-high": 1000},
        operators={"trainer": "installed", "kuberay": "installed"},
    )


def seen(space: NamespacePlan, labels: Any) -> State:
    """What a researcher sees of that stack."""
    request = {"cpu": "1", "memory": "4Gi"}
    bounds = {"type": "Container", "defaultRequest": request}
    queue = cluster_queue("a")
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"] += ["cpu", "memory"]
    more = [{"name": "cpu", "nominalQuota": "172"}, {"name": "memory", "nominalQuota": "1800Gi"}]
    (line,) = group["flavors"]
    line["name"] = "h100"
    line["resources"] += more
    group["flavors"].append(
        {"name": "cpu", "resources": [*more, {"name": GPU, "nominalQuota": "0", "borrowingLimit": "0"}]}
    )
    cpu: Data = {"metadata": meta("cpu"), "spec": {"nodeLabels": {}}}
    corpus = meta("corpus", "a", annotations={"gpu-tenancy.dev/bucket": "s3://corpus"})
    return state(
        ClusterQueue=[queue],
        LocalQueue=[local_queue("a")],
        ResourceFlavor=[flavor("h100", **labels), cpu],
        Node=[node(**labels)],
        LimitRange=[{"metadata": meta("containers", "a"), "spec": {"limits": [bounds]}}],
        PersistentVolumeClaim=[
            {"metadata": corpus, "spec": {"accessModes": ["ReadOnlyMany"]}},
            {"metadata": meta("checkpoints", "a"), "spec": {"accessModes": ["ReadWriteMany"]}},
        ],
        Namespace=[{"metadata": meta("a", labels=space.labels)}],
    )


def both(job: Data, folder: Path, security: str = "baseline") -> tuple[Data, Data]:
    """The object of the stack, and that of the file."""
    (made,) = planned(sections(job, security)).teams
    (declared,) = made.jobs
    file = folder / "job.yaml"
    file.write_text(json.dumps({"nightly": job}), encoding="utf-8")
    labels = next(role.pod.node_labels for role in declared.roles if role.pod.gpus or len(declared.roles) == 1)
    gpu_labels = labels if any(role.pod.gpus for role in declared.roles) else {"model": "h100"}
    terms = Terms(made.namespace.labels["pod-security.kubernetes.io/enforce"] == "restricted", "workload")
    submitted = job_of(read_job(file, "a"), "a", seen(made.namespace, gpu_labels), terms)
    return job_manifest(declared), submitted


def without_differences(value: Any) -> Any:
    """An object without what `DIFFERENCES` lists."""
    if isinstance(value, list):
        return [without_differences(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = cast("dict[str, Any]", value).items()
    fields = {key: without_differences(item) for key, item in named if key not in {NAME, "runtimeRef"}}
    if "metadata" in fields and "gpu-tenancy.dev/runtime" in fields["metadata"].get("annotations", {}):
        del fields["metadata"]
    return {key: item for key, item in fields.items() if item != {} or key in {"rayStartParams", "emptyDir"}}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_file_and_a_stack_make_the_same_object(job: Data, tmp_path: Path) -> None:
    declared, submitted = both(job, tmp_path)
    assert without_differences(submitted) == without_differences(declared)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_namespace_that_rejects_root_gets_the_same_object_too(job: Data, tmp_path: Path) -> None:
    declared, submitted = both(job, tmp_path, "restricted")
    assert without_differences(submitted) == without_differences(declared)
    assert '"runAsNonRoot": true' in json.dumps(submitted)


def test_what_differs_is_listed(tmp_path: Path) -> None:
    declared, submitted = both(JOBS["a TrainJob of PyTorch"], tmp_path)
    assert declared["spec"]["runtimeRef"] != submitted["spec"]["runtimeRef"]
    assert NAME in declared["metadata"]["labels"]
    assert NAME not in json.dumps(submitted)
    assert "gpu-tenancy.dev/runtime" not in json.dumps(submitted)
    assert GPU in json.dumps(submitted)
