"""The object that `tenancy why` explains: a job, a server or a pod, with its pods and workloads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import at, maps_at, text_at, texts_at
from gpu_tenancy.cluster.demand import Demand, demand, with_runtime
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, namespace_of, selects
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.workloads import Workload, read_workloads
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.kinds import kind_of, kinds
from gpu_tenancy.model.names import QUEUE_LABEL

KINDS: Final = tuple(sorted((kind.api for kind in kinds().values() if kind.version), key=lambda api: api[1]))


@dataclass(frozen=True, slots=True)
class Target:
    """One object that runs pods.

    Attributes:
        demand: its pod templates and queue.
        pods: its pods that have not ended.
        workloads: Kueue's Workloads of it or of its pods.
        groups: Volcano's PodGroups of it.
    """

    manifest: Manifest
    demand: Demand
    pods: tuple[Manifest, ...] = ()
    workloads: tuple[Workload, ...] = ()
    groups: tuple[Manifest, ...] = ()

    @property
    def title(self) -> str:
        """Such as `Job ml-research/nightly`."""
        return f"{text_at(self.manifest, 'kind')} {namespace_of(self.manifest)}/{name_of(self.manifest)}"

    @property
    def uid(self) -> str:
        """Its uid."""
        return text_at(self.manifest, "metadata", "uid")

    @property
    def queue(self) -> str:
        """The LocalQueue of its label or of its pods' labels; empty for none."""
        return self.demand.queue or next(
            (label(each, QUEUE_LABEL) for each in self.pods if label(each, QUEUE_LABEL)), ""
        )

    @property
    def outcome(self) -> str:
        """How it ended, such as `Complete`; empty where it did not."""
        return outcome(self.manifest)


FAILED: Final = frozenset({"Failed", "Aborted"})
"""The outcomes of what did not complete."""


def outcome(manifest: Manifest) -> str:
    """How an object ended, such as `Complete`; empty where it did not."""
    for kind in ("Complete", "Completed", "Failed"):
        if is_true(manifest, kind):
            return kind
    states = (("phase",), ("state", "phase"), ("jobDeploymentStatus",))
    phase = next(filter(None, (text_at(manifest, "status", *path) for path in states)), "")
    return phase if phase in {"Succeeded", "Failed", "Complete", "Completed", "Aborted", "Terminated"} else ""


def target_of(manifest: Manifest, state: State) -> Target:
    """Collects the pods, Workloads and PodGroups of an object."""
    namespace, uid = namespace_of(manifest), text_at(manifest, "metadata", "uid")
    pods = tuple(each for each in state.of("Pod", namespace) if belongs(each, manifest) and not ended(each))
    uids = {uid, *(text_at(each, "metadata", "uid") for each in pods)}
    found = (each for each in read_workloads(state.of("Workload")) if each.namespace == namespace)
    return Target(
        manifest,
        with_runtime(demand(manifest, namespace), state),
        pods,
        tuple(each for each in found if uids & set(each.owners)),
        tuple(each for each in state.of("PodGroup", namespace) if uids & set(owners(each))),
    )


def owners(manifest: Manifest) -> list[str]:
    """Uids of the owners of an object."""
    return [text_at(each, "uid") for each in maps_at(manifest, "metadata", "ownerReferences")]


def belongs(pod: Manifest, manifest: Manifest) -> bool:
    """Whether a pod is the object itself, or belongs to it directly or indirectly."""
    uid, kind = text_at(manifest, "metadata", "uid"), kind_of(manifest)
    if uid in {text_at(pod, "metadata", "uid"), *owners(pod)}:
        return True
    carried: Mapping[str, str] = texts_at(pod, "metadata", "labels")
    if kind and kind.label:
        owner = text_at(manifest, *(step.field for step in kind.named)) if kind.named else name_of(manifest)
        return bool(owner) and carried.get(kind.label) == owner
    selector = at(manifest, "spec", "selector")
    return bool(selector) and selects(selector, carried)
