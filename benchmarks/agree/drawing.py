"""Draws scenarios by chance: queues that contend for quota, and workloads that are submitted and finish.

The classes are those of the recordings in `tests/kueue/recordings`, and Kueue's webhooks accept all scenarios. The
generator is Python's, not Hypothesis: a seed gives the same scenarios everywhere, and a miss is not shrunk, because
each attempt would take half a minute.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from gpu_tenancy.base.guarantee import BESIDE

Data: TypeAlias = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
ROOT: Final = "root"
_RECLAIM: Final = {"Any": 12, "LowerPriority": 7, "Never": 2}
_WITHIN: Final = {"Never": 8, "LowerPriority": 9, "LowerOrNewerEqualPriority": 3}
_WEIGHTS: Final = (0, 0.5, 1, 1, 2, 2, 3, 4)
_FUNGIBILITY: Final = ("MayStopSearch", "TryNextFlavor")
_PREFERENCES: Final = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
_OFTEN: Final = 0.6
_HALF: Final = 0.5
_SELDOM: Final = 0.3
WORKLOADS: Final = 14  # maximum of a scenario
PRIORITIES: Final = {"low": 10, "mid": 50, "high": 100}
MODES: Final = {False: "off", True: "on"}  # fair sharing, and its name in the id of a scenario
_COMERS: Final = 3  # maximum of queues that start to submit one after another
_AGAIN: Final = 0.4  # part of the steps with a finish in which a workload is also submitted
_SHARES: Final = (0, 2, 3, 4, 4, 4, 5, 8)
"""CPUs, or memory, for each GPU of a quota or a workload in classes with `vector`; the machine has `_SHARE`."""
_SHARE: Final = 4
_NEVER_FITS: Final = 0.1  # part of the workloads that are larger than all quota together, in classes with `StrictFIFO`


@dataclass(frozen=True, slots=True)
class Shape:
    """One class of scenarios; numbers are parts, from 0 to 1, unless they are named otherwise."""

    name: str
    equal: bool = False
    zero: float = 0.0  # queues without nominal quota
    weights: float = 0.0  # queues and cohorts with a weight
    lending: float = 0.0  # quotas with a lending limit
    levels: int = 1  # depth of the tree of cohorts
    flavors: tuple[int, ...] = (1,)  # numbers of flavors to choose from
    second: float = 0.0  # scenarios with CPUs beside GPUs
    vector: bool = False  # CPUs and memory follow GPUs, but not exactly, so that GPUs, CPUs and memory bind in turn
    strict: float = 0.0  # queues with `StrictFIFO`
    priorities: float = 0.0  # workloads with a priority class
    gangs: float = 0.0  # workloads with several pods
    odd: float = 0.0  # queues that lack a flavor; half as many have no cohort; also root cohorts that are only named
    borrowers: float = 0.0  # queues with `borrowWithinCohort`, which Kueue has only without fair sharing
    modes: tuple[bool, ...] = (False, True)  # fair sharing off, on


SHAPES: Final = (
    Shape("flat-equal", equal=True, second=0.25),
    Shape("flat-weights", weights=1.0, zero=0.1, second=0.25),
    Shape("tree", levels=3, weights=0.5, lending=0.2, zero=0.15),
    Shape("priorities", priorities=0.8, second=0.15),
    Shape("lending", lending=0.7, zero=0.1),
    Shape("fifo", strict=0.7, priorities=0.1),
    Shape("two-flavors", flavors=(2,), zero=0.3, lending=0.3, priorities=0.2),
    Shape("gang", gangs=0.7, strict=0.25, second=0.2),
    Shape("guarantee-zero", zero=0.5),
    Shape(
        "mixed",
        zero=0.2,
        weights=0.7,
        lending=0.3,
        levels=4,
        flavors=(1, 2, 2, 3),
        second=0.35,
        strict=0.25,
        priorities=0.7,
        gangs=0.3,
        odd=0.2,
        borrowers=0.25,
    ),
    Shape("borrow-within-cohort", priorities=0.9, borrowers=0.7, modes=(False,)),
    Shape("vector", vector=True, levels=2, flavors=(1, 1, 2), zero=0.1, weights=0.3, priorities=0.2, gangs=0.2),
)


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Queues and cohorts, in the form of a scenario; `resources` are of each pod, GPUs first."""

    cohorts: list[Data]
    queues: list[Data]
    resources: tuple[str, ...]

    @property
    def largest(self) -> int:
        """The largest nominal quota of GPUs of a queue; at least 1."""
        return max(1, *self._nominal())

    @property
    def total(self) -> int:
        """All nominal quotas of GPUs together."""
        return sum(self._nominal())

    def _nominal(self) -> list[int]:
        lines = (line for owner in self.queues for line in owner["resources"])
        return [line["nominal"] for line in lines if line["resource"] == self.resources[0]]


def tenancy(shape: Shape, chance: Random, *, fair: bool) -> Tenancy:
    """Draws queues and cohorts of a class."""
    resources = (GPU, "cpu") if chance.random() < shape.second else (GPU,)
    if shape.vector:
        resources = (GPU, *BESIDE)
    count = chance.choice(shape.flavors)
    flavors = ["main"] if count == 1 else [f"f{number + 1}" for number in range(count)]
    weights = shape.weights if fair or shape.name == "flat-weights" else 0.0
    cohorts = list(_cohorts(shape, chance, flavors, weights))
    drawn = _Queues(shape, chance, flavors, resources, weights, 0.0 if fair else shape.borrowers)
    many = chance.randint(3, 6) if shape.levels > 1 else chance.randint(2, 5)
    queues = [drawn.queue(f"q{letter}", chance.choice(cohorts)["name"]) for letter in "abcdef"[:many]]
    if shape.equal:
        queues = [{**queue, "resources": queues[0]["resources"]} for queue in queues]
    parents: Mapping[str, str | None] = {cohort["name"]: cohort["parent"] for cohort in cohorts}
    used: set[str] = set()  # the cohorts with queues, and all above them
    for queue in queues:
        name: str | None = queue.get("cohort")
        while name:
            used.add(name)
            name = parents[name]
    if chance.random() < shape.odd and set(cohorts[0]) == {"name", "parent"}:
        used.discard(ROOT)  # it is only named
    return Tenancy([cohort for cohort in cohorts if cohort["name"] in used], queues, resources)


def _cohorts(shape: Shape, chance: Random, flavors: Sequence[str], weights: float) -> Iterator[Data]:
    """A tree of cohorts, each after its parent; only some have quota of their own."""
    yield {"name": ROOT, "parent": None, **(_own(shape, chance, flavors, root=True) if shape.levels > 1 else {})}
    parents = [ROOT]
    for level in range(1, shape.levels):
        names = [f"m{level}{letter}" for letter in "abc"[: chance.randint(1, 3)]]
        for name in names:
            yield {
                "name": name,
                "parent": chance.choice(parents),
                **_own(shape, chance, flavors, root=False),
                **_weight(chance, weights),
            }
        parents = names
        if chance.random() < _SELDOM:
            return


def _own(shape: Shape, chance: Random, flavors: Sequence[str], *, root: bool) -> Data:
    """The quota of a cohort itself. A root has no limits."""
    if chance.random() > _SELDOM:
        return {}
    lines: list[Data] = []
    for flavor in flavors:
        line: Data = {"flavor": flavor, "resource": GPU, "nominal": chance.choice((0, 0, 1, 2, 3))}
        if not root and chance.random() < _OFTEN:
            line["borrowingLimit"] = chance.choice((0, 2, 4))
        if not root and chance.random() < _SELDOM:
            line["lendingLimit"] = chance.randint(0, 4)
        lines += [line, *(_beside(chance, line) if shape.vector else ())]
    return {"quota": lines}


def _beside(chance: Random, line: Data) -> Iterator[Data]:
    """The CPUs and memory of a quota of GPUs; their limit is the machine's share of the GPUs that may be used."""
    for resource in BESIDE:
        share = chance.choice(_SHARES)
        found: Data = {**line, "resource": resource, "nominal": line["nominal"] * share}
        if "borrowingLimit" in line:
            most = (line["nominal"] + line["borrowingLimit"]) * _SHARE
            found["borrowingLimit"] = max(0, most - found["nominal"])
        if "lendingLimit" in line:
            found["lendingLimit"] = line["lendingLimit"] * share
        yield found


def _weight(chance: Random, part: float) -> Data:
    return {"weight": chance.choice(_WEIGHTS)} if chance.random() < part else {}


@dataclass(frozen=True, slots=True)
class _Queues:
    shape: Shape
    chance: Random
    flavors: Sequence[str]
    resources: Sequence[str]
    weights: float
    borrowers: float

    def queue(self, name: str, cohort: str) -> Data:
        chance, shape = self.chance, self.shape
        flavors = chance.sample(self.flavors, len(self.flavors)) if chance.random() < _SELDOM else list(self.flavors)
        if chance.random() < shape.odd:
            flavors = flavors[: max(1, len(flavors) - 1)]
        alone = chance.random() < shape.odd / 2
        return {
            "name": name,
            **({} if alone else {"cohort": cohort}),
            "strategy": "StrictFIFO" if chance.random() < shape.strict else "BestEffortFIFO",
            "preemption": self._preemption(),
            "resources": [line for flavor in flavors for line in self._lines(flavor, alone=alone)],
            **self._fungibility(),
            **_weight(chance, self.weights),
        }

    def _preemption(self) -> Data:
        chance = self.chance
        reclaim = chance.choices(tuple(_RECLAIM), tuple(_RECLAIM.values()))[0]
        within = chance.choices(tuple(_WITHIN), tuple(_WITHIN.values()))[0]
        if reclaim == "Never" or chance.random() >= self.borrowers:
            return {"reclaimWithinCohort": reclaim, "withinClusterQueue": within}
        threshold = chance.choice((None, 0, 10, 50, 100))
        return {
            "reclaimWithinCohort": reclaim,
            "withinClusterQueue": within,
            "borrowWithinCohort": {
                "policy": "LowerPriority",
                **({} if threshold is None else {"maxPriorityThreshold": threshold}),
            },
        }

    def _fungibility(self) -> Data:
        if len(self.flavors) == 1 or self.chance.random() > _OFTEN:
            return {}
        borrow, preempt = (self.chance.choice(_FUNGIBILITY) for _ in range(2))
        preferred = {borrow, preempt} == {"TryNextFlavor"} and self.chance.random() < _OFTEN
        preference = {"preference": self.chance.choice(_PREFERENCES)} if preferred else {}
        return {"flavorFungibility": {"whenCanBorrow": borrow, "whenCanPreempt": preempt, **preference}}

    def _lines(self, flavor: str, *, alone: bool) -> Iterator[Data]:
        if self.shape.vector:
            gpus = self._line(flavor, GPU, alone=alone)
            yield from (gpus, *_beside(self.chance, gpus))
        else:
            yield from (self._line(flavor, resource, alone=alone) for resource in self.resources)

    def _line(self, flavor: str, resource: str, *, alone: bool) -> Data:
        chance, shape = self.chance, self.shape
        nominal = 0 if chance.random() < shape.zero else chance.randint(1, 6 if len(self.flavors) == 1 else 4)
        line: Data = {"flavor": flavor, "resource": resource, "nominal": nominal}
        if alone:
            return line  # limits need a cohort
        if chance.random() < _HALF:
            line["borrowingLimit"] = chance.choice((0, 2, 2, 4, 6, max(1, nominal), max(2, 2 * nominal)))
        if chance.random() < shape.lending:
            line["lendingLimit"] = chance.randint(0, nominal)
        return line


def classes() -> tuple[tuple[str, bool], ...]:
    """Each class with each of its modes: fair sharing off, on."""
    return tuple((shape.name, fair) for fair in MODES for shape in SHAPES if fair in shape.modes)


def draw(seed: int, count: int, workloads: int = WORKLOADS, only: str | None = None) -> list[Data]:
    """Draws scenarios, equally many of each class; a larger count begins with the scenarios of a smaller one.

    The same seed gives the same scenarios; `workloads` is the maximum of each scenario, `only` a class.
    """
    shapes = {shape.name: shape for shape in SHAPES}
    kinds = [kind for kind in classes() if only in (None, kind[0])]
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
    """Draws the steps of one scenario; `left` is the number of workloads that can still be submitted."""

    shape: Shape
    made: Tenancy
    chance: Random
    left: int
    alive: list[str] = field(default_factory=list[str])
    submitted: int = 0

    def steps(self) -> Iterator[Data]:
        """Some queues use all that they can; others submit; workloads finish."""
        chance, names = self.chance, [queue["name"] for queue in self.made.queues]
        chance.shuffle(names)
        first = chance.choice((1, 1, 2, 2, 3))
        yield self._submit(names[:first], min(chance.randint(4, 8), self.left * 2 // 3))
        for name in names[first:][:_COMERS]:
            if self.left:
                yield self._submit([name], chance.randint(1, 3))
        for _ in range(chance.choice((0, 1, 1, 2))):
            finished = chance.sample(self.alive, min(len(self.alive), chance.randint(1, 2)))
            self.alive = [name for name in self.alive if name not in finished]
            yield {"finish": finished, **(self._submit(names, 1) if chance.random() < _AGAIN else {})}

    def _submit(self, queues: Sequence[str], many: int) -> Data:
        drawn = [self._workload(self.chance.choice(queues)) for _ in range(min(many, self.left))]
        self.left -= len(drawn)
        self.alive += [workload["name"] for workload in drawn]
        return {"submit": drawn} if drawn else {}

    def _workload(self, queue: str) -> Data:
        chance, shape = self.chance, self.shape
        self.submitted += 1
        pods = chance.choice((1, 2, 2, 3, 3, 4, 5, 6)) if chance.random() < shape.gangs else 1
        resources = self.made.resources
        if shape.strict and chance.random() < _NEVER_FITS:
            amount = self.made.total + chance.randint(1, 6)
        else:
            most = 2 * max(1, self.made.largest // pods)
            amount = min(most, chance.choices((1, 2, 3, 4, most), (7, 9, 5, 4, 3))[0])
        requests = {GPU: amount}
        for resource in resources[1:]:
            requests[resource] = max(1, amount * chance.choice(_SHARES)) if shape.vector else chance.randint(1, 3)
        priority = chance.choice((None, *PRIORITIES)) if chance.random() < shape.priorities else None
        return {
            "name": f"w{self.submitted:02}",
            "queue": queue,
            "requests": requests,
            "pods": pods,
            **({"priority": priority} if priority else {}),
        }
