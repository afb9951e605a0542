"""Kueue's Workloads: requests, stage of admission, and order in the queue."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.json import at, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amounts, gpu_count, gpus, times
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, name_of, namespace_of, requests
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.kueue import FlavorResource
from gpu_tenancy.model.names import IDLE, UNCOVERED

# Annotation with the name of the gate's owner.
GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"
_GROUP_OWNER: Final = "kueue.x-k8s.io/job-owner-name"  # names the object whose pods are a group, such as a StatefulSet
# Its value, as `components/reclaim_idle.sh` writes it.
_IDLE: Final = re.compile(r"since ([0-9TZ:-]{20}), (notify|requeue|cancel) at ([0-9TZ:-]{20})")
FIX_THIS: Final = "fix this; Kueue then admits the workload without further action"

Reason: TypeAlias = tuple[str, str]  # why a workload is blocked, and the fix


def at_most(limit: str, raised: str = "limit of the team") -> str:
    """The fix for a request above a limit; empty for a limit of 0."""
    return f"{f'request at most {limit}, or ' if limit else ''}ask the platform team to raise the {raised}"


Stage = Literal["waiting", "checked", "admitted", "finished", "switched off"]
"""`checked`: quota is reserved, and an admission check is not ready."""


def is_counted(resource: str, covered: Collection[str]) -> bool:
    """Whether Kueue counts a request: not if no flavor covers it and it is excluded, as this program configures Kueue.

    Where somebody else excludes fewer, Kueue says so in the Workload, which `tenancy why` shows.
    """
    return resource in covered or not resource.startswith(UNCOVERED)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template."""

    name: str
    count: int
    pod: Mapping[str, int]  # requests of one pod
    spec: Manifest = field(default_factory=dict[str, object], repr=False)  # pyright: ignore[reportAssignmentType]
    placed: bool = False  # requests a topology, so Kueue admits it to flavors with a topology
    within: str = ""  # node label with one value for all pods; empty for none

    @property
    def total(self) -> dict[str, int]:
        """Requests of all pods."""
        return times(self.pod, self.count)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Reserved quota of one pod set, and the flavor of each resource."""

    pods: PodSet
    flavors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Workload:
    """One Workload."""

    namespace: str
    name: str
    label: str  # namespace and job name, such as `ml-research/nightly`
    queue: str
    priority: int
    since: str  # decides the place in the queue; sorts by time
    stage: Stage
    sets: tuple[PodSet, ...]
    assigned: tuple[Assigned, ...]  # reserved quota; empty while pending
    owners: tuple[str, ...]  # uids
    manifest: Manifest = field(repr=False)

    @classmethod
    def of(cls, manifest: Manifest) -> "Workload":
        """Reads a Workload manifest."""
        sets = tuple(_pod_set(manifest, pods) for pods in maps_at(manifest, "spec", "podSets"))
        namespace, name = namespace_of(manifest), name_of(manifest)
        owners = maps_at(manifest, "metadata", "ownerReferences")
        # The one object that it was made for; the pods of a group can have none.
        owner = text_at(manifest, "metadata", "annotations", _GROUP_OWNER)
        if not owner and len(owners) == 1:
            owner = text_at(owners[0], "name")
        stage: Stage = "waiting"
        if is_true(manifest, "Finished"):
            stage = "finished"
        elif at(manifest, "spec", "active") is False:
            stage = "switched off"
        elif is_true(manifest, "Admitted"):
            stage = "admitted"
        elif is_true(manifest, "QuotaReserved"):
            stage = "checked"
        return cls(
            namespace=namespace,
            name=name,
            label=f"{namespace}/{owner or name}",
            queue=text_at(manifest, "spec", "queueName"),
            priority=int_at(manifest, "spec", "priority"),
            since=_since(manifest),
            stage=stage,
            sets=sets,
            assigned=tuple(_assigned(manifest, sets)),
            owners=tuple(text_at(owner, "uid") for owner in owners),
            manifest=manifest,
        )

    @property
    def total(self) -> dict[str, int]:
        """Requests of all pods."""
        return add(*(pods.total for pods in self.sets))

    @property
    def held(self) -> dict[FlavorResource, int]:
        """Reserved quota by flavor and resource; empty while pending."""
        held = Counter[FlavorResource]()
        for assigned in self.assigned:
            held.update({(assigned.flavors[name], name): amount for name, amount in assigned.pods.total.items()})
        return dict(held)

    @property
    def counts(self) -> bool:
        """Whether Kueue counts its quota: once it has ended or is switched off no longer, whatever its pods do.

        `Update` in pkg/controller/core/workload_controller.go of kubernetes-sigs/kueue at v0.19.2.
        """
        return self.stage not in {"finished", "switched off"}

    @property
    def holder(self) -> str:
        """ClusterQueue of its reserved quota, even if its LocalQueue has moved since; empty while pending."""
        return text_at(self.manifest, "status", "admission", "clusterQueue")

    @property
    def idle_note(self) -> tuple[datetime, str, datetime] | str:
        """Since when its GPUs are idle, what then happens and when; or text about a stop, or empty."""
        text = text_at(self.manifest, "metadata", "annotations", IDLE)
        found = _IDLE.fullmatch(text)
        return (datetime.fromisoformat(found[1]), found[2], datetime.fromisoformat(found[3])) if found else text

    def idle(self, now: datetime | None = None) -> str:
        """Such as `idle for 1 h 40 min, requeue in 20 min`, or when it was stopped for idle GPUs; empty for others."""
        note, now = self.idle_note, now or datetime.now(UTC)
        if isinstance(note, str):
            return note
        since, then, at = note
        return f"idle for {_minutes(now - since)}" + (f", {then} in {_minutes(at - now)}" if then != "notify" else "")

    @property
    def on_hold(self) -> bool:
        """Whether its object has stopped and can start again, such as a StatefulSet that was scaled to 0."""
        reserved = condition(self.manifest, "QuotaReserved")
        return text_at(reserved, "status") == "False" and text_at(reserved, "reason") == "OnHold"

    @property
    def held_back(self) -> Reason | None:
        """Why Kueue does not consider a pending workload, and the fix; None if Kueue does.

        `IsAdmissible` and `backoffWaitingTimeExpired` in https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg.
        Kueue removes `requeueAt` once it has passed.
        """
        if gates := text_at(self.manifest, "metadata", "annotations", GATED_BY):
            return f"gated by {gates} (annotation {GATED_BY})", FIX_THIS
        if self.on_hold:
            return f"on hold: {text_at(condition(self.manifest, 'QuotaReserved'), 'message')}", FIX_THIS
        if again := text_at(self.manifest, "status", "requeueState", "requeueAt"):
            return f"evicted; Kueue requeues it at {again}", "no action needed until then"
        requeued = condition(self.manifest, "Requeued")
        if text_at(requeued, "status") == "False":
            return f"not requeued by Kueue: {text_at(requeued, 'message')}", FIX_THIS
        return None


def _minutes(length: timedelta) -> str:
    """`1 h 40 min`, `20 min`; 0 min for the past."""
    hours, minutes = divmod(max(0, int(length.total_seconds() // 60)), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def read_workloads(manifests: Iterable[Manifest]) -> tuple[Workload, ...]:
    """Reads Workloads; if jobs of a namespace have the same name, the Workload's own name is the label."""
    found = [Workload.of(manifest) for manifest in manifests]
    used = Counter(each.label for each in found if each.stage != "finished")
    own = (replace(each, label=f"{each.namespace}/{each.name}") if used[each.label] > 1 else each for each in found)
    return tuple(own)


def _since(manifest: Manifest) -> str:
    # An eviction for PodsReadyTimeout or AdmissionCheck requeues at the end: `GetQueueOrderTimestamp` in
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
    evicted = condition(manifest, "Evicted")
    late = text_at(evicted, "status") == "True" and text_at(evicted, "reason") in {"PodsReadyTimeout", "AdmissionCheck"}
    return text_at(evicted, "lastTransitionTime") if late else text_at(manifest, "metadata", "creationTimestamp")


# Fields of a topology request by which pods state their place; every Job has the other fields:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go (`IsExplicitlyRequestingTAS`).
_PLACES: Final = frozenset(
    (
        "required", "preferred", "unconstrained", "podSetSliceRequiredTopology", "podSetSliceSize",
        "podsetSliceRequiredTopologyConstraints",
    )
)  # fmt: skip


def _pod_set(manifest: Manifest, podset: Manifest) -> PodSet:
    # Kueue's count of the requests includes namespace defaults and exclusions.
    name, number = text_at(podset, "name"), int_at(podset, "count", otherwise=1)
    spec = map_at(podset, "template", "spec")
    placed = any(key in _PLACES for key in map_at(podset, "topologyRequest"))
    for counted in maps_at(manifest, "status", "resourceRequests"):
        if text_at(counted, "name") == name and number:
            total = amounts(at(counted, "resources"))
            return PodSet(name, number, {key: value // number for key, value in total.items()}, spec, placed)
    return PodSet(name, number, requests(spec), spec, placed)


def _assigned(manifest: Manifest, sets: Iterable[PodSet]) -> Iterator[Assigned]:
    reclaimable = maps_at(manifest, "status", "reclaimablePods")
    released = {text_at(pods, "name"): int_at(pods, "count", otherwise=1) for pods in reclaimable}
    specs = {pods.name: pods.spec for pods in sets}
    for assigned in maps_at(manifest, "status", "admission", "podSetAssignments"):
        name, count = text_at(assigned, "name"), int_at(assigned, "count", otherwise=1)
        used = amounts(at(assigned, "resourceUsage"))
        pod = {resource: amount // max(1, count) for resource, amount in used.items()}
        left = PodSet(name, max(0, count - released.get(name, 0)), pod, specs.get(name, {}))
        yield Assigned(left, {resource: text_at(assigned, "flavors", resource) for resource in used})


def waiting(workloads: Iterable[Workload]) -> list[Workload]:
    """Pending workloads in queue order: by priority, then by time."""
    return sorted(
        (workload for workload in workloads if workload.stage == "waiting"),
        key=lambda workload: (-workload.priority, workload.since, workload.namespace, workload.name),
    )


def ahead(workload: Workload, others: Iterable[Workload]) -> list[Workload]:
    """Pending workloads ahead of one in the same queue, except workloads that Kueue does not consider."""
    pending = [other for other in waiting(others) if not other.held_back or other.label == workload.label]
    labels = [other.label for other in pending]
    return pending[: labels.index(workload.label)] if workload.label in labels else pending


# Fields of `executed`; v1beta1 has the second spelling.
EXECUTED: Final = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
_HOUR: Final = 3600


def executed(manifest: Manifest) -> int:
    """Seconds that a Workload was admitted before its last eviction."""
    return sum(int_at(manifest, "status", field) for field in EXECUTED)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Evictions of a namespace's workloads, including finished ones; Kueue counts them while a Workload exists.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go (`schedulingStats`,
    `accumulatedPastExecutionTimeSeconds`)
    """

    team: str
    workloads: int
    evictions: Mapping[str, int]  # by reason, such as `Preempted`
    gpu_hours: float  # of all GPUs until eviction; the loss is smaller with checkpoints

    @property
    def text(self) -> str:
        """Such as `3 evictions (2 Preempted, 1 NodeFailures) after 14.5 GPU-hours`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.evictions.items())
        return f"{plural(sum(self.evictions.values()), 'eviction')} ({reasons}) after {self.gpu_hours:.1f} GPU-hours"


def interrupted(workloads: Iterable[Workload]) -> Iterator[Interrupted]:
    """Evictions of workloads with GPUs, by namespace."""
    teams: dict[str, list[Workload]] = defaultdict(list)
    for workload in workloads:
        evictions = maps_at(workload.manifest, "status", "schedulingStats", "evictions")
        if gpus(workload.total) and any(int_at(one, "count") for one in evictions):
            teams[workload.namespace].append(workload)
    for team, found in sorted(teams.items()):
        counted, gpu_seconds = Counter[str](), 0
        for workload in found:
            for one in maps_at(workload.manifest, "status", "schedulingStats", "evictions"):
                counted[text_at(one, "reason")] += int_at(one, "count")
            gpu_seconds += executed(workload.manifest) * gpu_count(workload.total)
        yield Interrupted(team, len(found), dict((+counted).most_common()), gpu_seconds / _HOUR)
