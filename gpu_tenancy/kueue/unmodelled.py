"""Kueue features that the simulation does not model, so that results may differ; and their use in manifests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias, cast

Data: TypeAlias = Mapping[str, Any]


class Unmodelled(StrEnum):
    """A feature that is not modelled; the value is its effect as text for users."""

    TOPOLOGY = "topology-aware scheduling: a workload may wait for nodes that are near one another"
    ADMISSION_CHECKS = "admission checks: a workload with quota may still wait for a check, and be evicted by it"
    MULTIKUEUE = "MultiKueue: a workload may run in another cluster"
    PARTIAL_ADMISSION = "partial admission: a workload with a minimum count may run with fewer pods"
    PODS_READY = "waitForPodsReady: a workload whose pods do not get ready is evicted, and others may wait for it"
    ADMISSION_FAIR_SHARING = "admission fair sharing: the past use of local queues decides who is next in a queue"
    STOPPED_QUEUES = "stopPolicy: a queue that is held or drained admits nothing"
    CONCURRENT_ADMISSION = "concurrent admission: a workload may try several flavors at once and move between them"
    ELASTIC_JOBS = "elastic jobs: a running workload may grow and shrink"
    TRANSFORMATIONS = "resource transformations: the manager counts other resources than the pods ask for"
    NAMESPACES = "namespace selectors: a queue may refuse the workloads of a namespace"
    FEATURE_GATES = "feature gates: the simulation has those that are on by default"


_QUEUE: Final[Mapping[str, Unmodelled]] = {
    "admissionChecks": Unmodelled.ADMISSION_CHECKS,
    "admissionChecksStrategy": Unmodelled.ADMISSION_CHECKS,
    "admissionScope": Unmodelled.ADMISSION_FAIR_SHARING,
    "concurrentAdmissionPolicy": Unmodelled.CONCURRENT_ADMISSION,
}


def unmodelled(manifests: Iterable[Data]) -> tuple[Unmodelled, ...]:
    """The features that ClusterQueues, flavors and workloads use, in enum order."""
    used = {feature for manifest in manifests for feature in _used(manifest)}
    return tuple(feature for feature in Unmodelled if feature in used)


def _used(manifest: Data) -> Iterator[Unmodelled]:
    spec = _map(manifest.get("spec"))
    match manifest.get("kind"):
        case "ClusterQueue":
            yield from (feature for key, feature in _QUEUE.items() if spec.get(key))
        case "ResourceFlavor" if spec.get("topologyName"):
            yield Unmodelled.TOPOLOGY
        case "Workload":
            pod_sets = spec.get("podSets")
            for pod_set in map(_map, cast("Sequence[object]", pod_sets) if isinstance(pod_sets, list) else ()):
                if pod_set.get("minCount"):
                    yield Unmodelled.PARTIAL_ADMISSION
                if pod_set.get("topologyRequest"):
                    yield Unmodelled.TOPOLOGY
            annotations = _map(_map(manifest.get("metadata")).get("annotations"))
            if annotations.get("kueue.x-k8s.io/elastic-job"):
                yield Unmodelled.ELASTIC_JOBS
        case _:
            pass


def _map(value: object) -> Data:
    return cast("Data", value) if isinstance(value, Mapping) else {}
