"""Kueue's Workloads: what each asks for, how far it came, and in which order they wait."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from console.cluster.waiting import condition, is_true
from console.live.amounts import amounts
from console.live.pods import Manifest, called, home, requests
from console.live.tree import Line
from console.offline.wire import at, maps_at, text_at
from model.quantity import add, times

Stage = Literal["waiting", "checked", "admitted", "finished", "switched off"]
"""`checked`: quota is reserved, and an admission check holds it."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one kind.

    Attributes:
        pod: what one asks for.
        spec: of the pod; where it may run.
    """

    name: str
    count: int
    pod: Mapping[str, int]
    spec: Manifest = field(default_factory=dict[str, object], repr=False)  # pyright: ignore[reportAssignmentType]

    @property
    def total(self) -> dict[str, int]:
        """What all its pods ask for."""
        return times(self.pod, self.count)


@dataclass(frozen=True, slots=True)
class Workload:
    """One Workload.

    Attributes:
        queue: the LocalQueue that it names.
        since: when its turn counts from, as text that sorts by time.
        held: what of each flavor is reserved for it; empty while it waits.
        owners: uids of what it was made for.
    """

    namespace: str
    name: str
    queue: str
    priority: int
    since: str
    stage: Stage
    sets: tuple[PodSet, ...]
    held: Mapping[Line, int]
    owners: tuple[str, ...]
    manifest: Manifest = field(repr=False)

    @classmethod
    def of(cls, manifest: Manifest) -> "Workload":
        """Reads the object."""
        priority = at(manifest, "spec", "priority")
        return cls(
            namespace=home(manifest),
            name=called(manifest),
            queue=text_at(manifest, "spec", "queueName"),
            priority=priority if isinstance(priority, int) else 0,
            since=_since(manifest),
            stage=_stage(manifest),
            sets=tuple(_pod_set(manifest, each) for each in maps_at(manifest, "spec", "podSets")),
            held=_held(manifest),
            owners=tuple(text_at(each, "uid") for each in maps_at(manifest, "metadata", "ownerReferences")),
            manifest=manifest,
        )

    @property
    def total(self) -> dict[str, int]:
        """What all its pods ask for."""
        return add(*(each.total for each in self.sets))


def _since(manifest: Manifest) -> str:
    """Creation, but for what was evicted because pods were not ready or a check failed: it went back to the end.

    `GetQueueOrderTimestamp` in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
    """
    evicted = condition(manifest, "Evicted")
    late = text_at(evicted, "status") == "True" and text_at(evicted, "reason") in {"PodsReadyTimeout", "AdmissionCheck"}
    return text_at(evicted, "lastTransitionTime") if late else text_at(manifest, "metadata", "creationTimestamp")


def _stage(manifest: Manifest) -> Stage:
    if is_true(manifest, "Finished"):
        return "finished"
    if at(manifest, "spec", "active") is False:
        return "switched off"
    if is_true(manifest, "Admitted"):
        return "admitted"
    return "checked" if is_true(manifest, "QuotaReserved") else "waiting"


def _pod_set(manifest: Manifest, podset: Manifest) -> PodSet:
    """Kueue's own count of what a waiting workload asks for comes first: it has namespace defaults and exclusions."""
    name, count = text_at(podset, "name"), at(podset, "count")
    number = count if isinstance(count, int) else 1
    template = at(podset, "template", "spec")
    spec = template if isinstance(template, dict) else {}
    for each in maps_at(manifest, "status", "resourceRequests"):
        if text_at(each, "name") == name and number:
            total = amounts(at(each, "resources"))
            return PodSet(name, number, {key: value // number for key, value in total.items()}, spec)
    return PodSet(name, number, requests(spec), spec)


def _held(manifest: Manifest) -> dict[Line, int]:
    held: dict[Line, int] = {}
    for each in maps_at(manifest, "status", "admission", "podSetAssignments"):
        for name, value in amounts(at(each, "resourceUsage")).items():
            line = (text_at(each, "flavors", name), name)
            held[line] = held.get(line, 0) + value
    return held


def waiting(workloads: Iterable[Workload]) -> list[Workload]:
    """Those that no quota is reserved for, the next first: by priority, then by time."""
    return sorted(
        (each for each in workloads if each.stage == "waiting"),
        key=lambda each: (-each.priority, each.since, each.namespace, each.name),
    )


def ahead(workload: Workload, others: Iterable[Workload]) -> list[Workload]:
    """What waits in the same queue and comes first."""
    line = waiting(others)
    names = [(each.namespace, each.name) for each in line]
    own = (workload.namespace, workload.name)
    return line[: names.index(own)] if own in names else line
