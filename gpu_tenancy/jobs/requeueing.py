"""Requeues a job: Kueue evicts it, or it is deleted and created again as it was submitted."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Final, cast

import yaml

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.cluster.demand import outcome
from gpu_tenancy.cluster.dry_run import created
from gpu_tenancy.cluster.pods import Manifest
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.jobs.jobs import uid_of
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError, UnreachableError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.names import KUEUE, WRITTEN_BY_KUEUE

_OF_KUEUE: Final = "kueue.x-k8s.io/manager"
_OF_JOBS: Final = ("batch.kubernetes.io/", "controller-uid", "job-name")  # of the API server, in templates of Jobs
# Set by Kueue: https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/podset/podset.go (`Merge`).
_SET: Final = {"metadata": ("annotations", "labels"), "spec": ("nodeSelector", "schedulingGates", "tolerations")}
_SUBMITTER: Final = "ray-job-submitter"  # in the template that Kueue writes into a RayJob without one
_ELASTIC: Final = "kueue.x-k8s.io/job-min-parallelism"
_EQUAL: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
_ENDS: Final = 180.0  # seconds until the pods of a job must have ended


def requeue(cluster: Cluster, manifest: Manifest, workloads: tuple[Workload, ...]) -> str:
    """Ends the pods of a job and requeues it; returns how.

    Kueue evicts the job, which keeps its place, if the user may change Workloads. Otherwise, or if the job ended, it is
    created again. Raises ConsoleError if it is not a job or is already pending, ApiError without the right.
    """
    title = f"{text_at(manifest, 'kind')} {text_at(manifest, 'metadata', 'name')}"
    kind = kind_of(manifest)
    if kind is None or kind.work != "batch" or not kind.is_queued:
        raise ConsoleError(f"{title}: is not a job", "restart a server with `kubectl rollout restart`")
    own = next((workload for workload in workloads if uid_of(manifest) in workload.owners), None)
    if own and own.stage == "waiting":
        raise ConsoleError(f"{title}: is pending in its queue already", "no action needed; `tenancy why` explains it")
    if own and not outcome(manifest) and _evicted(cluster, own):
        return "evicted by Kueue and queued again, at the place of its creation"
    again = as_submitted(manifest, own)
    created(cluster, again)  # A dry run: what is refused now would be lost.
    cluster.delete(Reference.of(manifest), uid=uid_of(manifest), foreground=True, wait=_ENDS)
    try:
        cluster.create(again)
    except (ApiError, UnreachableError):
        file = Path(f"{text_at(manifest, 'metadata', 'name')}.yaml")
        write_text(file, yaml.safe_dump(again, sort_keys=False))
        terminal.error_line(f"{title}: was deleted and could not be created again; run `kubectl create -f {file}`")
        raise
    return "deleted and created again, at the end of its queue"


def _evicted(cluster: Cluster, workload: Workload) -> bool:
    """False if the user may not change the workload."""
    reference = Reference(KUEUE, "Workload", workload.name, workload.namespace)
    try:
        cluster.patch(reference, {"spec": {"active": False}})
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False

    def free() -> bool:
        live = cluster.get(*reference)
        return live is None or not map_at(live, "status", "admission")

    try:
        cluster.wait_for(free, timeout=_ENDS, what=f"Kueue to evict Workload {workload.name}")
    finally:
        cluster.patch(reference, {"spec": {"active": True}})
    return True


def as_submitted(manifest: Manifest, workload: Workload | None) -> dict[str, Any]:
    """A job as it was before Kueue started it; its Workload has the original pod templates, None without Kueue."""
    made = deepcopy(dict(cast("dict[str, Any]", manifest)))
    made.pop("status", None)
    metadata = made["metadata"]
    made["metadata"] = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata}
    spec = made["spec"]
    spec.pop("suspend", None)
    if not spec.get("manualSelector"):
        spec.pop("selector", None)
    if "runtimePatches" in spec:
        spec["runtimePatches"] = [patch for patch in spec["runtimePatches"] if patch.get("manager") != _OF_KUEUE]
    if [text_at(one, "name") for one in maps_at(spec, "submitterPodTemplate", "spec", "containers")] == [_SUBMITTER]:
        del spec["submitterPodTemplate"]
    sets = maps_at(workload.manifest, "spec", "podSets") if workload else []
    counted = {text_at(pods, "name"): pods for pods in sets}
    kind = kind_of(made)
    for pods in kind.pod_sets(made) if kind else ():
        # Kueue has a name of its own for pods that are all alike.
        name = next(iter(counted)) if len(counted) == 1 else pods.name
        _restore(pods.template, map_at(counted.get(name, {}), "template"))
    annotations = texts_at(made, "metadata", "annotations")
    if _ELASTIC in annotations and counted:
        spec["parallelism"] = next(iter(counted.values()))["count"]
        if annotations.get(_EQUAL) == "true":
            spec["completions"] = spec["parallelism"]
    return made


def _restore(template: Manifest, submitted: Manifest) -> None:
    """Reverts in place changes of a template by Kueue and the API server; `submitted` is empty if it is unknown."""
    for key, fields in _SET.items() if submitted else ():
        part = template.get(key)
        if isinstance(part, dict):
            former = map_at(submitted, key)
            for field in fields:
                part.pop(field, None)
            part |= {field: former[field] for field in fields if field in former}
    for field in _SET["metadata"]:
        if found := map_at(template, "metadata", field):
            own = {
                key: value
                for key, value in found.items()
                if not key.startswith(_OF_JOBS) and key not in WRITTEN_BY_KUEUE
            }
            cast("dict[str, Any]", template["metadata"])[field] = own
