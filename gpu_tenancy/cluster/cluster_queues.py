"""ClusterQueues and Cohorts of a cluster as types of `gpu_tenancy.kueue`, with their status and maintenance holds."""

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self, TypeVar

from gpu_tenancy import kueue
from gpu_tenancy.base.json import Json, at, int_at, maps_at, text_at
from gpu_tenancy.base.quantity import amount, parse_quantity
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.reading import Kind, State, read
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.model.names import HOLD

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold of a ClusterQueue or ResourceFlavor for maintenance: it admits no new workloads. Times are in RFC 3339."""

    name: str
    kind: str
    by: str  # user
    since: str
    until: str = ""  # empty for no end
    before: Json = None  # the field before the hold; None if unset
    after: Json = None  # the field as the hold set it

    @classmethod
    def of(cls, manifest: Manifest) -> Self | None:
        """Reads the annotation; None if there is none or it was not written by `hold`."""
        name, kind = name_of(manifest), text_at(manifest, "kind")
        try:
            written = json.loads(text_at(manifest, "metadata", "annotations", HOLD))
            by, since, until = (str(written[key]) for key in ("by", "since", "until"))
            for moment in filter(None, (since, until)):
                datetime.fromisoformat(moment)
            return cls(name, kind, by, since, until, written["before"], written["after"])
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def annotation(self) -> str:
        """Value of the annotation, in JSON."""
        kept = {"by": self.by, "since": self.since, "until": self.until, "before": self.before, "after": self.after}
        return json.dumps(kept, sort_keys=True)

    @property
    def path(self) -> tuple[str, str]:
        """The field that the hold changes."""
        return ("spec", "stopPolicy") if self.kind == "ClusterQueue" else ("spec", "nodeTaints")

    @property
    def text(self) -> str:
        """Such as `held by ada since 2026-11-24 18:00 UTC until 2026-11-24 20:00 UTC`."""
        end = f" until {moment_text(self.until)}" if self.until else ""
        return f"held by {self.by} since {moment_text(self.since)}{end}"

    @property
    def sentence(self) -> str:
        """The same with the kind and the name of what is held."""
        return f"{self.kind} {self.name} is {self.text}"

    @property
    def fix(self) -> str:
        """How to end the hold."""
        release = f"ask the platform team for `tenancy cluster release {self.name}`"
        return f"wait until then, or {release}" if self.until else release


def holds_of(manifests: Iterable[Manifest]) -> Sequence[Hold]:
    """Reads the holds of objects."""
    return [hold for manifest in manifests if (hold := Hold.of(manifest))]


def moment_text(moment: str) -> str:
    """An RFC 3339 time in UTC for people."""
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue with its reserved quota."""

    spec: kueue.ClusterQueue
    usage: Mapping[kueue.FlavorResource, int] = field(default_factory=dict[kueue.FlavorResource, int])
    counted: bool = True  # False if Kueue has not seen the queue, or is not running
    pending: int = 0
    inactive: str = ""  # why the queue admits no workloads; empty if it does
    stop_policy: str = ""
    hold: Hold | None = None
    invalid: str = ""  # values that Kueue 0.19 does not know; they count as the default

    @property
    def name(self) -> str:
        """Name of the ClusterQueue."""
        return self.spec.name

    @property
    def strict(self) -> bool:
        """Whether its queueing strategy is StrictFIFO."""
        return self.spec.strategy is kueue.Strategy.STRICT


def read_cluster_queue(manifest: Manifest) -> ClusterQueue:
    """Reads a ClusterQueue manifest."""
    active, reserved = condition(manifest, "Active"), reported_usage(manifest, "flavorsReservation")
    policy = text_at(manifest, "spec", "stopPolicy").replace("None", "")
    inactive = text_at(active, "message") if text_at(active, "status") == "False" else ""
    unknown: list[str] = []
    return ClusterQueue(
        spec=_spec(manifest, unknown),
        usage=reserved,
        counted=bool(active) or bool(reserved),
        pending=int_at(manifest, "status", "pendingWorkloads"),
        inactive=f"stopPolicy is {policy}" if policy else inactive,
        stop_policy=policy,
        hold=Hold.of(manifest),
        invalid="; ".join(unknown),
    )


def _spec(manifest: Manifest, unknown: list[str]) -> kueue.ClusterQueue:
    def chosen(default: _Choice, *keys: str) -> _Choice:
        value = text_at(manifest, "spec", *keys)
        try:
            return type(default)(value) if value else default
        except ValueError as error:
            unknown.append(str(error))
            return default

    default = kueue.Fungibility()
    borrows = text_at(manifest, "spec", "preemption", "borrowWithinCohort", "policy") == "LowerPriority"
    threshold = at(manifest, "spec", "preemption", "borrowWithinCohort", "maxPriorityThreshold")
    return kueue.ClusterQueue(
        name=name_of(manifest),
        groups=_groups(manifest),
        cohort=text_at(manifest, "spec", "cohortName") or None,
        strategy=chosen(kueue.Strategy.BEST_EFFORT, "queueingStrategy"),
        preemption=kueue.Preemption(
            within=chosen(kueue.Policy.NEVER, "preemption", "withinClusterQueue"),
            reclaim=chosen(kueue.Policy.NEVER, "preemption", "reclaimWithinCohort"),
            borrow=kueue.BorrowWithinCohort(threshold if isinstance(threshold, int) else None) if borrows else None,
        ),
        fungibility=kueue.Fungibility(
            chosen(default.when_can_borrow, "flavorFungibility", "whenCanBorrow"),
            chosen(default.when_can_preempt, "flavorFungibility", "whenCanPreempt"),
            chosen(default.preference, "flavorFungibility", "preference"),
        ),
        weight=_weight(manifest),
    )


def read_cohort(manifest: Manifest) -> kueue.Cohort:
    """Reads a Cohort manifest."""
    parent = text_at(manifest, "spec", "parentName") or None
    return kueue.Cohort(name_of(manifest), parent, _groups(manifest), _weight(manifest))


def _weight(manifest: Manifest) -> float | None:
    weight = at(manifest, "spec", "fairSharing", "weight")
    return None if weight is None else float(parse_quantity(str(weight)))


def _groups(manifest: Manifest) -> tuple[kueue.ResourceGroup, ...]:
    # Flavors are in the order in which Kueue tries them.

    def quota(line: Manifest) -> kueue.Quota:
        limits = (line.get(key) for key in ("borrowingLimit", "lendingLimit"))
        name = text_at(line, "name")
        nominal = amount(name, line.get("nominalQuota") or "0")
        return kueue.Quota(nominal, *(None if limit is None else amount(name, limit) for limit in limits))

    def quotas(flavor: Manifest) -> kueue.FlavorQuotas:
        lines = maps_at(flavor, "resources")
        return kueue.FlavorQuotas(text_at(flavor, "name"), {text_at(line, "name"): quota(line) for line in lines})

    groups = maps_at(manifest, "spec", "resourceGroups")
    return tuple(kueue.ResourceGroup(tuple(map(quotas, maps_at(group, "flavors")))) for group in groups)


def reported_usage(manifest: Mapping[str, Json], key: str) -> dict[kueue.FlavorResource, int]:
    """Usage in the status of a ClusterQueue or LocalQueue, from a list such as `flavorsReservation`."""
    return {
        (text_at(flavor, "name"), name): amount(name, line.get("total") or "0")
        for flavor in maps_at(manifest, "status", key)
        for line in maps_at(flavor, "resources")
        if (name := text_at(line, "name"))
    }


def is_fair_sharing(manifests: Collection[Manifest]) -> bool:
    """Whether fair sharing is on. Tenants may not read Kueue's configuration, so the status of ClusterQueues tells.

    If it is on, Kueue reports a share in each status. Without any status, a weight indicates fair sharing.
    """
    counted = [manifest for manifest in manifests if maps_at(manifest, "status", "conditions")]
    if counted:
        return any(isinstance(at(manifest, "status", "fairSharing"), dict) for manifest in counted)
    return any(at(manifest, "spec", "fairSharing", "weight") is not None for manifest in manifests)


def quotas_of(tenancy: kueue.Tenancy, queues: Iterable[ClusterQueue]) -> kueue.Quotas:
    """Quotas and usage; cycles of cohorts are removed, as Kueue ignores them."""
    return kueue.Quotas(kueue.without_cycles(tenancy), {queue.name: queue.usage for queue in queues})


def read_settled(cluster: Cluster, kinds: Collection[Kind]) -> State:
    """Reads the cluster until Kueue's reported usage matches its Workloads; Kueue writes one after the other.

    After five tries, one second apart, returns the last state. Raises the errors of `read`.
    """
    state = read(cluster, kinds)
    for _ in range(4):
        if counts_are_current(state):
            break
        time.sleep(1)
        state = read(cluster, kinds)
    return state


def counts_are_current(state: State) -> bool:
    """Whether the reported usage of each ClusterQueue matches its Workloads; True if some cannot be read."""
    if not state.knows("Workload"):
        return True
    held: dict[tuple[str, str, str], int] = defaultdict(int)
    for workload in map(Workload.of, state.of("Workload")):
        for (flavor, resource), quantity in workload.held.items() if workload.counts else ():
            held[workload.holder, flavor, resource] += quantity
    return all(
        used == held[name_of(queue), flavor, resource]
        for queue in state.of("ClusterQueue")
        for (flavor, resource), used in reported_usage(queue, "flavorsReservation").items()
    )
