"""Draws scenarios by chance: queues that contend for quota, and workloads that are submitted and finish.

The classes are those of the recordings in `tests/kueue/recordings`. The generator is Python's, not Hypothesis: a seed
gives the same scenarios everywhere, and a miss is not shrunk, because each attempt would take half a minute.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks.agree.tenancies import SHAPES, Data, Shape, Tenancy, tenancy

WORKLOADS: Final = 14
"""Of a scenario, at most."""
PRIORITIES: Final = {"low": 10, "mid": 50, "high": 100}
MODES: Final = {False: "off", True: "on"}
"""Fair sharing, and how it is named in the id of a scenario."""
_COMERS: Final = 3
"""Queues that come one after another, at most."""
_AGAIN: Final = 0.4
"""Part of the steps with a finish in which a workload is also submitted."""
_NEVER_FITS: Final = 0.1
"""Part of the workloads that are larger than all quota together, in classes with `StrictFIFO`."""


def classes() -> tuple[tuple[str, bool], ...]:
    """Each class with each mode that it exists in: fair sharing off, on."""
    return tuple((shape.name, fair) for fair in MODES for shape in SHAPES if fair in shape.modes)


def draw(seed: int, count: int, workloads: int = WORKLOADS) -> list[Data]:
    """Draws scenarios, equally many of each class; those of a larger count begin with those of a smaller one.

    Args:
        seed: the same seed gives the same scenarios.
        count: number of scenarios.
        workloads: maximum number of workloads of a scenario.
    """
    kinds, shapes = classes(), {shape.name: shape for shape in SHAPES}
    return [
        _scenario(shapes[name], f"{seed}-{number // len(kinds):02}", workloads, fair=fair)
        for number, (name, fair) in ((number, kinds[number % len(kinds)]) for number in range(count))
    ]


def _scenario(shape: Shape, number: str, workloads: int, *, fair: bool) -> Data:
    size = "" if workloads == WORKLOADS else f"-w{workloads}"
    identity = f"{MODES[fair]}-{shape.name}-{number}{size}"
    chance = Random(identity)  # noqa: S311 - the same scenarios every time, no secret
    made = tenancy(shape, chance, fair=fair)
    return {
        "id": identity,
        "class": shape.name,
        "fairSharing": fair,
        "cohorts": made.cohorts,
        "clusterQueues": made.queues,
        "priorities": PRIORITIES if shape.priorities else {},
        "steps": list(_Story(shape, made, chance, workloads).steps()),
    }


@dataclass(slots=True)
class _Story:
    """Draws the steps of one scenario.

    Attributes:
        left: number of workloads that can still be submitted.
        alive: the names of the workloads that have not finished.
    """

    shape: Shape
    made: Tenancy
    chance: Random
    left: int
    alive: list[str] = field(default_factory=list[str])
    submitted: int = 0

    def steps(self) -> Iterator[Data]:
        """Some queues take what they can; others come; workloads finish."""
        chance, names = self.chance, [queue["name"] for queue in self.made.queues]
        chance.shuffle(names)
        first = chance.choice((1, 1, 2, 2, 3))
        yield self._submit(names[:first], min(chance.randint(4, 8), self.left * 2 // 3))
        for name in names[first:][:_COMERS]:
            if self.left:
                yield self._submit([name], chance.randint(1, 3))
        for _ in range(chance.choice((0, 1, 1, 2))):
            yield {**self._finish(), **(self._submit(names, 1) if chance.random() < _AGAIN else {})}

    def _submit(self, queues: Sequence[str], many: int) -> Data:
        drawn = [self._workload(self.chance.choice(queues)) for _ in range(min(many, self.left))]
        self.left -= len(drawn)
        self.alive += [workload["name"] for workload in drawn]
        return {"submit": drawn} if drawn else {}

    def _finish(self) -> Data:
        names = self.chance.sample(self.alive, min(len(self.alive), self.chance.randint(1, 2)))
        self.alive = [name for name in self.alive if name not in names]
        return {"finish": names}

    def _workload(self, queue: str) -> Data:
        chance, shape = self.chance, self.shape
        self.submitted += 1
        pods = chance.choice((1, 2, 2, 3, 3, 4, 5, 6)) if chance.random() < shape.gangs else 1
        resources, amount = self.made.resources, self._amount(pods)
        requests = {resource: amount if resource == resources[0] else chance.randint(1, 3) for resource in resources}
        priority = chance.choice((None, *PRIORITIES)) if chance.random() < shape.priorities else None
        return {
            "name": f"w{self.submitted:02}",
            "queue": queue,
            "requests": requests,
            "pods": pods,
            **({"priority": priority} if priority else {}),
        }

    def _amount(self, pods: int) -> int:
        chance = self.chance
        if self.shape.strict and chance.random() < _NEVER_FITS:
            return self.made.total + chance.randint(1, 6)
        most = 2 * max(1, self.made.largest // pods)
        return min(most, chance.choices((1, 2, 3, 4, most), (7, 9, 5, 4, 3))[0])
