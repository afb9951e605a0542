"""Temporary copies of a stack's cohort trees, which Kueue counts separately, with the same quotas and flavors.

Flavors are copied without a topology, because Kueue counts the pods on a topology's nodes over all trees. Queues and
flavors that are held for maintenance are copied as if they were not.
"""

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, cast

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.names import ACCOUNT, HOLD, KUEUE
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree

_PREFIX: Final = "tenancy-copy-"
COPY: Final = "gpu-tenancy.dev/copy"  # label of the copies and of their namespaces


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs of a ClusterQueue are submitted, and whether their pods run on nodes; pods of copies do not."""

    namespace: str
    local_queue: str
    runs: bool


def own_places(tree: Tree) -> Mapping[str, Place]:
    """Each queue's own place: the namespace of its owner, with a LocalQueue of the same name."""
    return {name: Place(name, name, runs=True) for name in tree.queue_owners}


@contextmanager
def copied(cluster: Cluster, tree: Tree, *, more: tuple[Manifest, ...] = ()) -> Generator[Mapping[str, Place]]:
    """Copies the stack's cohorts and ClusterQueues in the cluster, each with a namespace, and deletes them at the end.

    Copies have no AdmissionChecks, because no autoscaler runs. `more` are further ClusterQueues in the stack's cohorts.
    The places are by the queue's name in the stack. Raises WaitTimeoutError if Kueue does not accept the copies, or an
    earlier run's copies are not deleted.
    """
    remove(cluster)
    spec = tenancy(tree)
    cohorts = [cluster.get(KUEUE, "Cohort", cohort.name) for cohort in spec.cohorts]
    queues = [*(cluster.get(KUEUE, "ClusterQueue", queue.name) for queue in spec.queues), *more]
    names = [text_at(queue, "metadata", "name") for queue in queues if queue]
    live = {name: cluster.get(KUEUE, "ResourceFlavor", name) or {} for name in tree.flavors}
    flavors = [found for name, found in live.items() if found and (tree.flavors[name].levels or Hold.of(found))]
    placed = [text_at(flavor, "metadata", "name") for flavor in flavors]
    try:
        for manifest in (*flavors, *filter(None, cohorts), *filter(None, queues)):
            cluster.apply(_copy(manifest, placed))
        for name in names:
            copy = _PREFIX + name
            labels: Json = {COPY: "true", **dict([TEAM_LABEL])}
            account: Manifest = {
                "metadata": {"name": ACCOUNT, "namespace": copy},
                "automountServiceAccountToken": False,
            }
            queue: Json = {"name": name, "namespace": copy}
            manifests: tuple[Manifest, ...] = (
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": copy, "labels": labels}},
                {"apiVersion": "v1", "kind": "ServiceAccount", **account},
                {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": queue, "spec": {"clusterQueue": copy}},
            )
            for manifest in manifests:
                cluster.apply(manifest)
        for name in names:
            cluster.wait_for(lambda name=name: _ready(cluster, name), what=f"ClusterQueue {_PREFIX}{name} to be active")
        yield {name: Place(_PREFIX + name, name, runs=False) for name in names}
    finally:
        remove(cluster, wait=0)


def remove(cluster: Cluster, *, wait: float = 60) -> None:
    """Deletes all copies with their jobs; waits at most `wait` seconds until they are gone."""
    namespaces = _listed(cluster, "v1", "Namespace")
    kinds = ("ClusterQueue", "Cohort", "ResourceFlavor")
    queues = [Reference(KUEUE, kind, name) for kind in kinds for name in _listed(cluster, KUEUE, kind)]
    # Jobs first: a ClusterQueue is deleted when none of its workloads has quota.
    for namespace in namespaces:
        for job in cluster.list("batch/v1", "Job", namespace=namespace, metadata_only=True):
            cluster.delete(Reference("batch/v1", "Job", text_at(job, "metadata", "name"), namespace), wait=0)
        cluster.delete(Reference("v1", "Namespace", namespace), wait=0)
    for reference in queues:
        cluster.delete(reference, wait=0)
    if wait:
        for reference in (*(Reference("v1", "Namespace", name) for name in namespaces), *queues):
            cluster.wait_gone(reference, timeout=wait)


def _listed(cluster: Cluster, api_version: str, kind: str) -> list[str]:
    found = cluster.list(api_version, kind, labels=COPY, metadata_only=True)
    return [text_at(item, "metadata", "name") for item in found]


def uncopied(text: str) -> str:
    """The text with the names of the stack's own flavors, cohorts and queues."""
    return text.replace(_PREFIX, "")


def _copy(manifest: Manifest, placed: Collection[str]) -> Manifest:
    """A copy that refers to copies of the flavors in `placed`."""
    spec = deepcopy(cast("dict[str, Any]", manifest["spec"]))
    name = text_at(manifest, "metadata", "name")
    spec.pop("topologyName", None)
    spec.pop("stopPolicy", None)
    if "nodeTaints" in spec:
        spec["nodeTaints"] = [taint for taint in spec["nodeTaints"] if taint["key"] != HOLD]
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            flavor["name"] = (_PREFIX if flavor["name"] in placed else "") + flavor["name"]
    for key in ("cohortName", "parentName"):
        if spec.get(key):
            spec[key] = _PREFIX + spec[key]
    if manifest["kind"] == "ClusterQueue":
        spec["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": _PREFIX + name}}
        for key in ("admissionChecksStrategy", "admissionChecks"):
            spec.pop(key, None)
    metadata: Json = {"name": _PREFIX + name, "labels": {COPY: "true"}}
    return {"apiVersion": KUEUE, "kind": manifest["kind"], "metadata": metadata, "spec": spec}


def _ready(cluster: Cluster, name: str) -> bool:
    return is_true(cluster.get(KUEUE, "ClusterQueue", _PREFIX + name) or {}, "Active") and is_true(
        cluster.get(KUEUE, "LocalQueue", name, _PREFIX + name) or {}, "Active"
    )
