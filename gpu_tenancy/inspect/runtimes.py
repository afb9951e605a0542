"""Pods of TrainJobs: Kubeflow Trainer merges a TrainJob into its runtime, and Kueue counts the pods of the result.

https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from gpu_tenancy.base.json import Json, at, int_at, maps_at, text_at
from gpu_tenancy.inspect.demand import Demand, Template, template_of
from gpu_tenancy.inspect.pods import Manifest, name_of, namespace_of
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.model.names import NODE, TRAINER_STEP


def with_runtime(demand: Demand, state: State) -> Demand:
    """A TrainJob with all pods of its runtime; other kinds, and TrainJobs without a known runtime, are unchanged."""
    if text_at(demand.manifest, "kind") != "TrainJob":
        return demand
    runtime = _runtime(demand.manifest, state)
    return replace(demand, templates=tuple(_templates(demand.manifest, runtime))) if runtime else demand


def _runtime(manifest: Manifest, state: State) -> Manifest | None:
    name = text_at(manifest, "spec", "runtimeRef", "name")
    if text_at(manifest, "spec", "runtimeRef", "kind") == "TrainingRuntime":
        of_namespace = state.of("TrainingRuntime", namespace_of(manifest))
        return next((runtime for runtime in of_namespace if name_of(runtime) == name), None)
    return next((runtime for runtime in state.of("ClusterTrainingRuntime") if name_of(runtime) == name), None)


def _templates(manifest: Manifest, runtime: Manifest) -> Iterator[Template]:
    jobs: Json = at(runtime, "spec", "template", "spec", "replicatedJobs")
    for patch in maps_at(manifest, "spec", "runtimePatches"):
        patches = at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        jobs = _merged(jobs, patches) if patches else jobs
    for job in maps_at({"jobs": jobs}, "jobs"):
        count = _count(manifest, runtime, job) * int_at(job, "replicas", otherwise=1)
        yield template_of(text_at(job, "name"), count, _trained(manifest, runtime, job))


def _count(manifest: Manifest, runtime: Manifest, job: Manifest) -> int:
    """Pods of a replicated job: those of the trainer are `numNodes`, of MPI without a launcher that computes."""
    otherwise = int_at(job, "template", "spec", "parallelism", otherwise=1)
    if _trains(job):
        otherwise = int_at(runtime, "spec", "mlPolicy", "numNodes", otherwise=1)
    nodes = int_at(manifest, "spec", "trainer", "numNodes", otherwise=0)
    if not nodes:
        return otherwise
    if isinstance(at(runtime, "spec", "mlPolicy", "mpi"), dict):
        workers = max(nodes - 1, 1) if _launcher_computes(runtime) else nodes
        return workers if text_at(job, "name") == NODE else otherwise
    return nodes if _trains(job) else otherwise


def _trains(job: Manifest) -> bool:
    label, value = TRAINER_STEP
    return text_at(job, "template", "metadata", "labels", label) == value


def _launcher_computes(runtime: Manifest) -> bool:
    return at(runtime, "spec", "mlPolicy", "mpi", "runLauncherAsNode") is True


def _trained(manifest: Manifest, runtime: Manifest, job: Manifest) -> Json:
    """The pod template, with the TrainJob's image and resources where Trainer sets them."""
    template = at(job, "template", "spec", "template")
    own: dict[str, Json] = {"name": NODE}
    if _trains(job) and (image := text_at(manifest, "spec", "trainer", "image")):
        own["image"] = image
    if _trains(job) or (_launcher_computes(runtime) and text_at(job, "name") == NODE):
        own["resources"] = at(manifest, "spec", "trainer", "resourcesPerNode") or {}
    named = {
        text_at(container, "name") for container in maps_at(job, "template", "spec", "template", "spec", "containers")
    }
    return _merged(template, {"spec": {"containers": [own]}}) if NODE in named else template


def _merged(base: Json, patch: Json) -> Json:
    """A strategic merge: lists of named items by name, other lists as a whole."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {key: _merged(base[key], value) if key in base else value for key, value in patch.items()}
        return {**base, **both}
    if isinstance(base, list) and isinstance(patch, list) and all(_named(item) for item in (*base, *patch)):
        items = {text_at(cast("Mapping[str, Json]", item), "name"): item for item in base}
        for item in patch:
            name = text_at(cast("Mapping[str, Json]", item), "name")
            items[name] = _merged(items[name], item) if name in items else item
        return list(items.values())
    return patch


def _named(item: Json) -> bool:
    return isinstance(item, dict) and "name" in item
