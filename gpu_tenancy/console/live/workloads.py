"""Kueue's Workloads: what each asks for, how far it came, and in which order they wait."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gpu_tenancy.console.cluster.waiting import condition, is_true
from gpu_tenancy.console.live.amounts import amounts
from gpu_tenancy.console.live.pods import Manifest, called, home, requests
from gpu_tenancy.console.live.tree import Line
from gpu_tenancy.console.offline.wire import at, maps_at, text_at
from gpu_tenancy.model.quantity import add, times

_GATES: Final = "kueue.x-k8s.io/admission-gated-by"

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
        assigned: what is reserved for it; empty while it waits.
        owners: uids of what it was made for.
    """

    namespace: str
    name: str
    queue: str
    priority: int
    since: str
    stage: Stage
    sets: tuple[PodSet, ...]
    assigned: "tuple[Assigned, ...]"
    owners: tuple[str, ...]
    manifest: Manifest = field(repr=False)

    @classmethod
    def of(cls, manifest: Manifest) -> "Workload":
        """Reads the object."""
        priority = at(manifest, "spec", "priority")
        sets = tuple(_pod_set(manifest, each) for each in maps_at(manifest, "spec", "podSets"))
        return cls(
            namespace=home(manifest),
            name=called(manifest),
            queue=text_at(manifest, "spec", "queueName"),
            priority=priority if isinstance(priority, int) else 0,
            since=_since(manifest),
            stage=_stage(manifest),
            sets=sets,
            assigned=tuple(_assigned(manifest, sets)),
            owners=tuple(text_at(each, "uid") for each in maps_at(manifest, "metadata", "ownerReferences")),
            manifest=manifest,
        )

    @property
    def total(self) -> dict[str, int]:
        """What all its pods ask for."""
        return add(*(each.total for each in self.sets))

    @property
    def held(self) -> dict[Line, int]:
        """What of each flavor is reserved for it; empty while it waits."""
        found: dict[Line, int] = {}
        for each in self.assigned:
            for resource, amount in each.pods.total.items():
                line = (each.flavors[resource], resource)
                found[line] = found.get(line, 0) + amount
        return found

    @property
    def label(self) -> str:
        """Such as `ml-research/job-train-1a2b3`."""
        return f"{self.namespace}/{self.name}"

    @property
    def holder(self) -> str:
        """The ClusterQueue whose quota it holds, which its LocalQueue may have left since; empty while it waits."""
        return text_at(self.manifest, "status", "admission", "clusterQueue")

    @property
    def again(self) -> str:
        """When Kueue looks at it again, which it does not before; empty where it does already."""
        return text_at(self.manifest, "status", "requeueState", "requeueAt")

    @property
    def put_off(self) -> str:
        """Why Kueue does not look at it although it waits; empty where it does.

        `IsAdmissible` and `backoffWaitingTimeExpired` in
        https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg. Kueue takes `requeueAt` away once it has passed.
        """
        gates = text_at(self.manifest, "metadata", "annotations", _GATES)
        if gates:
            return f"it is gated by {gates} (annotation {_GATES})"
        reserved = condition(self.manifest, "QuotaReserved")
        if text_at(reserved, "status") == "False" and text_at(reserved, "reason") == "OnHold":
            return f"it is on hold: {text_at(reserved, 'message')}"
        if self.again:
            return f"it was evicted, and Kueue looks at it again at {self.again}"
        requeued = condition(self.manifest, "Requeued")
        if text_at(requeued, "status") == "False":
            return f"Kueue has not put it back into its queue: {text_at(requeued, 'message')}"
        return ""


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


@dataclass(frozen=True, slots=True)
class Assigned:
    """What quota is reserved for pods of one kind, and from which flavor each resource is."""

    pods: PodSet
    flavors: Mapping[str, str]


def _assigned(manifest: Manifest, sets: Iterable[PodSet]) -> Iterator[Assigned]:
    """What Kueue gave to each pod set, without the pods that gave theirs back since."""
    back = {text_at(each, "name"): _count(each) for each in maps_at(manifest, "status", "reclaimablePods")}
    specs = {each.name: each.spec for each in sets}
    for each in maps_at(manifest, "status", "admission", "podSetAssignments"):
        name, count, used = text_at(each, "name"), _count(each), amounts(at(each, "resourceUsage"))
        pod = {resource: amount // max(1, count) for resource, amount in used.items()}
        left = PodSet(name, max(0, count - back.get(name, 0)), pod, specs.get(name, {}))
        yield Assigned(left, {resource: text_at(each, "flavors", resource) for resource in used})


def _count(manifest: Manifest) -> int:
    found = at(manifest, "count")
    return found if isinstance(found, int) else 1


def waiting(workloads: Iterable[Workload]) -> list[Workload]:
    """Those that no quota is reserved for, the next first: by priority, then by time."""
    return sorted(
        (each for each in workloads if each.stage == "waiting"),
        key=lambda each: (-each.priority, each.since, each.namespace, each.name),
    )


def ahead(workload: Workload, others: Iterable[Workload]) -> list[Workload]:
    """What waits in the same queue and comes first; what Kueue does not look at is ahead of nothing."""
    line = [each for each in waiting(others) if not each.put_off or each.label == workload.label]
    names = [(each.namespace, each.name) for each in line]
    own = (workload.namespace, workload.name)
    return line[: names.index(own)] if own in names else line
