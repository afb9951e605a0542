"""GPU-hours that `idle` of a stack would have freed in a month, by thresholds, from the recorded use of jobs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Final, TypeAlias

from gpu_tenancy.cost.prometheus import Labels, Prometheus
from gpu_tenancy.cost.statement import HOUR, Freed, Period, Terms
from gpu_tenancy.model.kinds import servers
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.model.spec.teams import Idle

THRESHOLDS: Final = tuple(product((5.0, 1.0), (1800, 7200, 21600)))  # percent and seconds
_GAP: Final = 900  # seconds without samples after which the time starts again, as in the recording rules
_DAY: Final = 86_400.0  # of one query
_Owner: TypeAlias = tuple[str, str, str]  # namespace, kind and name of the owner of pods
_OWNER: Final = "created_by_kind, created_by_name"
_USE: Final = (
    f"max by (namespace, {_OWNER}) (gpu_tenancy:pod_gpu_utilization * on (namespace, pod) group_left ({_OWNER})"
    f" max by (namespace, pod, {_OWNER}) (kube_pod_info{{created_by_kind!~%r}}))"
)
_HELD: Final = "last_over_time(gpu_tenancy:gpus_of_job[10m])"


@dataclass(slots=True)
class _Job:
    """A job at one threshold, sample by sample."""

    below: float
    after: float
    grace: float
    busy: float = -inf  # time of its last use
    seen: float = -inf  # time of its last sample
    stopped: bool = False
    seconds: float = 0.0  # freed
    gpu_seconds: float = 0.0  # freed
    stops: int = 0
    again: bool = False  # busy after a stop

    def sample(self, at: float, use: float, gpus: float) -> None:
        """Counts the time until the next sample as freed, from a stop until the job is busy again."""
        if at - self.seen > _GAP:
            self.busy, self.stopped = at + self.grace, False
        self.seen = at
        if use >= self.below:
            self.again |= self.stopped
            self.busy, self.stopped = at, False
        elif not self.stopped and at - self.busy >= self.after:
            self.stops += 1
            self.stopped = True
        if self.stopped:
            self.seconds += RECORDED_EVERY
            self.gpu_seconds += gpus * RECORDED_EVERY


def freed(terms: Terms, server: Prometheus, period: Period) -> Iterator[Freed]:
    """Each threshold of each team that it would have freed GPUs of; pods without an owner count as one job."""
    stack = terms.tree.stack
    idle = {team: stack.idle_of(team) or Idle() for team in stack.teams}
    found = _watched(idle, server, period, lambda one: [(*threshold, one.grace) for threshold in THRESHOLDS])
    for team in stack.teams:
        _, price = terms.flavor_of(team)
        own = [(name or "pods without an owner", jobs) for (of, _, name), jobs in found.items() if of == team]
        for place, (below, after) in enumerate(THRESHOLDS):
            if stops := sum(jobs[place].stops for _, jobs in own):
                hours = sum(jobs[place].gpu_seconds for _, jobs in own) / HOUR
                again = tuple(sorted(name for name, jobs in own if jobs[place].again))
                yield Freed(team, below, after, hours, price, stops, again)


def freed_seconds(teams: Mapping[str, Idle], server: Prometheus, period: Period) -> Mapping[tuple[str, str], float]:
    """Seconds that `idle` of each team would have freed of each Job if it stops them, by namespace and name."""
    found = _watched(teams, server, period, lambda idle: [(idle.below, idle.after, idle.grace)])
    return {(team, name): job.seconds for (team, kind, name), (job,) in found.items() if kind == "Job"}


def _watched(
    teams: Mapping[str, Idle],
    server: Prometheus,
    period: Period,
    thresholds: Callable[[Idle], Iterable[tuple[float, float, float]]],
) -> Mapping[_Owner, tuple[_Job, ...]]:
    """The jobs of teams that no exception spares, each at some thresholds: percent, seconds, and the grace period."""
    found: dict[_Owner, tuple[_Job, ...]] = {}
    use = _USE % "|".join(servers())
    start = period.start
    while start < period.end:
        end = min(start + _DAY - RECORDED_EVERY, period.end)
        held = {_owner(labels): dict(samples) for labels, samples in server.range(_HELD, start, end)}
        for labels, samples in server.range(use, start, end):
            team, kind, name = key = _owner(labels)
            if team not in teams or {kind, name} & {*teams[team].spare}:
                continue
            jobs = found.setdefault(key, tuple(_Job(*one) for one in thresholds(teams[team])))
            for at, percent in samples:
                gpus = held.get(key, {}).get(at, 0.0)
                for job in jobs:
                    job.sample(at, percent, gpus)
        start += _DAY
    return found


def _owner(labels: Labels) -> _Owner:
    return labels["namespace"], labels.get("created_by_kind", ""), labels.get("created_by_name", "")
