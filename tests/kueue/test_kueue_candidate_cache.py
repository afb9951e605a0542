"""The candidate cache: what it has cached across cycles equals what a new cache computes."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kueue_builders import GPU

from gpu_tenancy.kueue import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Settled,
    Step,
    Strategy,
    Tenancy,
    Workload,
    cycle,
    run,
    runner,
    settle,
)
from gpu_tenancy.kueue.candidate_cache import CandidateCache

FLAVORS = ("a100", "h100")
MANY = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class World:
    """A random tenancy of up to twenty queues, with twenty to sixty workloads that are submitted and finish."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - the same world for the same seed, no secret
        self._flavors = FLAVORS[: self._pick(1, 1, 2)]
        self._resources = (GPU, "cpu")[: self._pick(1, 1, 1, 2)]
        fair = self._pick(None, FAIR)
        groups = [
            Cohort(f"group-{number}", "org", self._groups(3), self._pick(1.0, 2.0))
            for number in range(self._pick(0, 2, 3))
        ]
        teams = [Cohort(f"team-{number}", "group-0") for number in range(self._pick(0, 1) if groups else 0)]
        self._cohorts = [Cohort("org"), *groups, *teams]
        queues = tuple(self._queue(number, fair=fair is not None) for number in range(self._random.randint(3, 20)))
        self.tenancy = Tenancy(queues, tuple(self._cohorts), fair)
        self.steps = list(self._steps())

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _groups(self, max_nominal: int) -> tuple[ResourceGroup, ...]:
        quotas = [
            FlavorQuotas(
                flavor,
                {
                    resource: Quota(
                        nominal := self._random.randint(0, max_nominal),
                        self._pick(None, None, self._random.randint(0, 6)),
                        self._pick(None, None, self._random.randint(0, nominal)),
                    )
                    for resource in self._resources
                },
            )
            for flavor in self._flavors
        ]
        return (ResourceGroup(tuple(quotas)),)

    def _queue(self, number: int, *, fair: bool) -> ClusterQueue:
        reclaim = self._pick(Policy.ANY, Policy.ANY, Policy.LOWER, Policy.NEVER)
        borrow = None if fair or reclaim is Policy.NEVER else self._pick(None, None, BorrowWithinCohort(50))
        return ClusterQueue(
            f"queue-{number}",
            self._groups(6),
            self._pick(*(cohort.name for cohort in self._cohorts)),
            self._pick(Strategy.BEST_EFFORT, Strategy.BEST_EFFORT, Strategy.STRICT),
            Preemption(self._pick(Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER), reclaim, borrow),
            Fungibility(self._pick(*Fungible), self._pick(*Fungible)),
            self._pick(1.0, 1.0, 2.0, 0.5),
        )

    def _steps(self) -> Any:
        unfinished: list[str] = []
        for number in range(self._random.randint(20, 60)):
            if unfinished and self._random.random() < 0.15:
                yield Step(finish=(unfinished.pop(self._random.randrange(len(unfinished))),))
            unfinished.append(f"w{number}")
            requests = {resource: self._pick(1, 1, 2, 2, 3, 5) for resource in self._resources}
            queue = f"queue-{self._random.randrange(len(self.tenancy.queues))}"
            pod_set = PodSet(requests, self._pick(1, 1, 1, 2))
            yield Step((Workload(unfinished[-1], queue, (pod_set,), self._pick(0, 0, 50, 100)),))

    def simulate(self, *, at_once: bool) -> list[Settled]:
        """The states; `at_once`: all workloads are submitted before the first cycle, and none finishes."""
        if not at_once:
            return list(run(self.tenancy, self.steps))
        return [settle(self.tenancy, [workload for step in self.steps for workload in step.submit])]


@pytest.mark.slow
@MANY
@given(st.integers(0, 10**9))
def test_caches_equal_a_fresh_computation(seed: int) -> None:
    world = World(seed)
    with_cache = world.simulate(at_once=False)
    run_cycle = cycle.run_cycle

    def with_new_cache(tree: Any, heads: Any, number: int, _found: cycle.Nominations) -> Any:
        cache = CandidateCache(tree.queues.values(), tree.resources)
        return run_cycle(tree, heads, number, cycle.Nominations(tree, cache))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_cycle", with_new_cache)
        assert world.simulate(at_once=False) == with_cache
