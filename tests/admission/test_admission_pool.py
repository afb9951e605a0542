"""Candidates and shares that are kept from cycle to cycle are those that a new look finds."""

import random
from typing import Any

import pytest
from admission_builders import GPU
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_tenancy.model.admission import (
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
from gpu_tenancy.model.admission.pool import Pool

FLAVORS = ("a100", "h100")
MANY = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class World:
    """A tenancy of up to twenty queues, and twenty to sixty workloads that come and go, by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - the same world for the same seed, no secret
        self._flavors = FLAVORS[: self._pick(1, 1, 2)]
        self._resources = (GPU, "cpu")[: self._pick(1, 1, 1, 2)]
        fair = self._pick(None, FAIR)
        groups = [
            Cohort(f"group-{n}", "org", self._groups(3), self._pick(1.0, 2.0)) for n in range(self._pick(0, 2, 3))
        ]
        below = [Cohort(f"team-{n}", "group-0") for n in range(self._pick(0, 1) if groups else 0)]
        self._cohorts = [Cohort("org"), *groups, *below]
        queues = tuple(self._queue(n, fair=fair is not None) for n in range(self._chance.randint(3, 20)))
        self.tenancy = Tenancy(queues, tuple(self._cohorts), fair)
        self.steps = list(self._steps())

    def _pick(self, *of: Any) -> Any:
        return self._chance.choice(of)

    def _groups(self, most: int) -> tuple[ResourceGroup, ...]:
        quotas = [
            FlavorQuotas(
                flavor,
                {
                    resource: Quota(
                        nominal := self._chance.randint(0, most),
                        self._pick(None, None, self._chance.randint(0, 6)),
                        self._pick(None, None, self._chance.randint(0, nominal)),
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
            self._pick(*(each.name for each in self._cohorts)),
            self._pick(Strategy.BEST_EFFORT, Strategy.BEST_EFFORT, Strategy.STRICT),
            Preemption(self._pick(Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER), reclaim, borrow),
            Fungibility(self._pick(*Fungible), self._pick(*Fungible)),
            self._pick(1.0, 1.0, 2.0, 0.5),
        )

    def _steps(self) -> Any:
        there: list[str] = []
        for number in range(self._chance.randint(20, 60)):
            if there and self._chance.random() < 0.15:
                yield Step(finish=(there.pop(self._chance.randrange(len(there))),))
            there.append(f"w{number}")
            asks = {resource: self._pick(1, 1, 2, 2, 3, 5) for resource in self._resources}
            where = f"queue-{self._chance.randrange(len(self.tenancy.queues))}"
            yield Step(
                (Workload(there[-1], where, (PodSet(asks, self._pick(1, 1, 1, 2)),), self._pick(0, 0, 50, 100)),)
            )

    def happens(self, *, at_once: bool) -> list[Settled]:
        """What becomes of it; at once: everybody comes before anything comes to rest, and nobody ends."""
        if not at_once:
            return list(run(self.tenancy, self.steps))
        return [settle(self.tenancy, [each for step in self.steps for each in step.submit])]


@MANY
@given(st.integers(0, 10**9))
def test_candidates_and_shares_that_are_kept_are_those_of_the_moment(seed: int) -> None:
    world = World(seed)
    kept = world.happens(at_once=False)
    of_a_cycle = cycle.run_cycle

    def anew(tree: Any, heads: Any, number: int, pool: Pool) -> Any:
        return of_a_cycle(tree, heads, number, Pool(pool.queues, pool.resources))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run_cycle", anew)
        assert world.happens(at_once=False) == kept
