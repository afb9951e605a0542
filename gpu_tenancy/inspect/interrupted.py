"""What Kueue has evicted, as its Workloads count it: how often, why, and for how long they had run.

Kueue counts in each Workload, for as long as this exists. How much was lost is not known: a job that writes checkpoints
goes on from the last one.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go (`schedulingStats`,
`accumulatedPastExecutionTimeSeconds`)
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import gpus
from gpu_tenancy.base.json import int_at, maps_at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.workloads import Workload

EXECUTED: Final = ("accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
"""Fields of a Workload's status: the seconds that it was admitted before its last eviction. The second is v1beta1's."""
_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Workloads of a namespace that were evicted, those that have finished since included.

    Attributes:
        workloads: how many.
        evictions: by Kueue's reason, such as `Preempted`.
        gpu_hours: of all their GPUs while they were admitted, until they were evicted: the most that was lost.
    """

    team: str
    workloads: int
    evictions: Mapping[str, int]
    gpu_hours: float

    @property
    def text(self) -> str:
        """Such as `3 evictions (2 Preempted, 1 NodeFailures) after 14.5 GPU-hours`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.evictions.items())
        return f"{plural(sum(self.evictions.values()), 'eviction')} ({reasons}) after {self.gpu_hours:.1f} GPU-hours"


def interrupted(workloads: Iterable[Workload]) -> Iterator[Interrupted]:
    """The evictions of workloads with GPUs, by namespace."""
    teams: dict[str, list[tuple[Counter[str], float]]] = defaultdict(list)
    for workload in workloads:
        if gpus(workload.total) and (evictions := _evictions(workload)):
            teams[workload.namespace].append((evictions, _gpu_hours(workload)))
    for team, found in sorted(teams.items()):
        evictions = sum((counted for counted, _ in found), Counter[str]())
        yield Interrupted(team, len(found), dict(evictions.most_common()), sum(hours for _, hours in found))


def _evictions(workload: Workload) -> Counter[str]:
    counted = Counter[str]()
    for one in maps_at(workload.manifest, "status", "schedulingStats", "evictions"):
        counted[text_at(one, "reason")] += int_at(one, "count")
    return +counted


def _gpu_hours(workload: Workload) -> float:
    seconds = sum(int_at(workload.manifest, "status", field) for field in EXECUTED)
    return seconds * sum(gpus(workload.total).values()) / _HOUR
