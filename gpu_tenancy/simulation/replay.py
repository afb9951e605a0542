"""Plays recorded jobs under the queues of a stack."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.kueue import PodSet, Workload
from gpu_tenancy.kueue.replay import Arrival, Replay, ReplayedJob
from gpu_tenancy.model.plan.pods import choices, pod_size
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Measure, Tree, supply_of
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.simulation.outcome import HOUR, Curve, FlavorOutcome, Group, Outcome
from gpu_tenancy.simulation.records import JobRecord, Part

_MILLI: Final = 1000.0


@dataclass(frozen=True, slots=True)
class _Shape:
    """Data that records with the same team, parts and priority share in the stack."""

    team: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    priority: int
    group: Group
    gpus: int


def replay(tree: Tree, records: Iterable[JobRecord], *, checkpoint: float | None = None) -> Outcome:
    """Plays jobs as they arrived, each for as long as it ran, on the queues of a stack.

    A job saves its progress after every `checkpoint` seconds; None: a preempted job starts again. Raises ConsoleError
    for an invalid record.
    """
    player = _Player(tree)
    played = Replay(tenancy(tree), player, checkpoint=None if checkpoint is None else int(checkpoint * _MILLI))
    played.play(player.arrivals(records))
    for job in played.pending:
        player.shape(job).group.never += 1
    player.outcome.livelocks = played.livelocks
    return player.outcome


class _Player:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.outcome = Outcome()
        for name, flavor in tree.flavors.items():
            if flavor.resource:
                self.outcome.flavors[name] = FlavorOutcome(supply_of(tree, Measure(name, flavor.resource)), Curve())
        self._shapes: dict[tuple[str, tuple[Part, ...], str | None], _Shape | str] = {}
        self._of_workload: dict[str, _Shape] = {}
        self._dealing = _Dealing(tree)

    def arrivals(self, records: Iterable[JobRecord]) -> Iterator[Arrival]:
        """The records as input of the simulation; counts records that the stack cannot have."""
        began: float | None = None
        for number, record in enumerate(records):
            began = record.at if began is None else began
            team = record.team
            if team is None:
                self.outcome.dealt += 1
                team = self._dealing.team(record)
            key = team, record.parts, record.priority
            if (shape := self._shapes.get(key)) is None:
                shape = self._shapes[key] = self._find(team, record)
            if isinstance(shape, str):
                self.outcome.left_out[shape] += 1
                continue
            self.outcome.arrivals = record.at - began
            name = f"{number} {record.name}"
            self._of_workload[name] = shape
            workload = Workload(name, shape.queue, shape.pod_sets, shape.priority)
            yield Arrival(round((record.at - began) * _MILLI), workload, round(record.duration * _MILLI))

    def shape(self, job: ReplayedJob) -> _Shape:
        return self._of_workload[job.arrival.workload.name]

    def arrived(self, job: ReplayedJob, now: int) -> None:
        shape = self.shape(job)
        shape.group.jobs += 1
        self._waiting(shape, now, shape.gpus)

    def started(self, job: ReplayedJob, now: int) -> None:
        shape = self.shape(job)
        if job.preemptions == 0:
            shape.group.waits.add((now - job.arrival.at) / _MILLI)
        self._waiting(shape, now, -shape.gpus)
        self._hold(job, now, 1)

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:
        shape = self.shape(job)
        ran = (now - (job.running_since or 0)) / _MILLI
        shape.group.gpu_hours += ran * shape.gpus / HOUR
        self._hold(job, now, -1)
        if by is None:
            shape.group.lost_gpu_hours += job.lost / _MILLI * shape.gpus / HOUR
            del self._of_workload[job.arrival.workload.name]
            return
        shape.group.preemptions += 1
        self.outcome.preempted_by[self.shape(by).team, shape.team] += 1
        self._waiting(shape, now, shape.gpus)

    def _waiting(self, shape: _Shape, now: int, gpus: int) -> None:
        if gpus:
            self.outcome.waiting.setdefault(shape.team, Curve()).change(now / _MILLI, gpus)

    def _hold(self, job: ReplayedJob, now: int, sign: int) -> None:
        for pod_set, flavors in zip(job.arrival.workload.pod_sets, job.info.flavors, strict=True):
            for resource, amount in pod_set.requests.items():
                held = self.outcome.flavors.get(flavors.get(resource, ""))
                if held is not None and is_extended(resource):
                    held.held.change(now / _MILLI, sign * amount * pod_set.count)

    def _find(self, team: str, record: JobRecord) -> "_Shape | str":
        stack = self._tree.stack
        if team not in stack.teams:
            return f"team {team} is not in the stack"
        pod_sets: list[PodSet] = []
        for index, part in enumerate(record.parts):
            found = self._pod_set(team, part, f"part-{index}")
            if isinstance(found, str):
                return found
            pod_sets.append(found)
        name = record.priority if record.priority in stack.priorities else stack.teams[team].priority
        default = next((declared for declared, priority in stack.priorities.items() if priority.default), "")
        name = name if name in stack.priorities else default
        value = stack.priorities[name].value if name else 0
        group = self.outcome.groups.setdefault((team, name or ""), Group())
        gpus = sum(part.gpus * part.pods for part in record.parts)
        return _Shape(team, self._tree.queue_of(team), tuple(pod_sets), value, group, gpus)

    def _pod_set(self, team: str, part: Part, name: str) -> "PodSet | str":
        tree = self._tree
        if part.flavor is not None and part.flavor not in tree.flavors:
            return f"flavor {part.flavor} is not in the stack"
        # Constructed, since its amounts are in base units already.
        pod = Training.model_construct(
            flavor=part.flavor, gpus=part.gpus, workers=part.pods, cpu=part.cpu, memory=part.memory
        )
        names = [part.flavor] if part.flavor is not None else choices(tree, team, pod)
        if not names:
            return f"team {team} has no flavor {'with GPUs' if part.gpus else 'without GPUs'}"
        size = pod_size(tree, team, pod.model_copy(update={"flavor": names[0]}))
        if size is None or (part.gpus and size.flavor.resource is None):
            return f"flavor {names[0]} has no GPUs"
        alike = frozenset(one for one in names if tree.flavors[one].resource == size.flavor.resource)
        return PodSet(size.amounts, part.pods, alike, name)


class _Dealing:
    """Deals jobs without a team to teams by their guarantees, the same job always to the same team."""

    def __init__(self, tree: Tree) -> None:
        self._teams: dict[bool, list[tuple[int, str]]] = {}
        for with_gpus in (True, False):
            weights = {team: _weight(tree, team, with_gpus=with_gpus) for team in tree.team_shares}
            able = {team: weight for team, weight in weights.items() if weight} or weights
            self._teams[with_gpus] = list(zip(accumulate(able.values()), able, strict=True))

    def team(self, record: JobRecord) -> str:
        teams = self._teams[any(part.gpus for part in record.parts)]
        drawn = zlib.crc32(record.name.encode()) % max(1, teams[-1][0])
        return next((team for end, team in teams if drawn < end), teams[-1][1])


def _weight(tree: Tree, team: str, *, with_gpus: bool) -> int:
    """Guaranteed GPUs, or CPUs without GPUs; a flavor with a limit and no guarantee counts as 1."""
    total = 0
    for name, shares in tree.team_shares[team].items():
        resource = tree.flavors[name].resource
        if (resource is not None) == with_gpus:
            share = shares.get(resource or "cpu")
            total += 0 if share is None else max(share.guaranteed, int(share.effective_limit > 0))
    return total
