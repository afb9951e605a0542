"""Usage of each team and flavor at a moment, with its guarantee and limit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.shares import Measure, Share, Tree, measures_of
from gpu_tenancy.simulation.scenarios.stage import Moment, Running, Waiting, amount_of


@dataclass(frozen=True, slots=True)
class Held:
    """A team's GPUs of one flavor (partitions or turns, where they are shared); CPU or memory without GPUs.

    Attributes:
        flavor: name of the flavor, with the resource where it has no GPUs: `Measure.label`.
        runs: used by its jobs.
        waits: requested by its pending jobs.
        resource: the counted resource; all amounts are in its base unit.
    """

    team: str
    flavor: str
    guaranteed: int
    limit: int
    runs: int
    waits: int
    resource: str

    @property
    def own(self) -> int:
        """What is used of the guarantee."""
        return min(self.runs, self.guaranteed)

    @property
    def borrowed(self) -> int:
        """What is used beyond the guarantee."""
        return self.runs - self.own

    @property
    def unused(self) -> int:
        """What the team does not use of its guarantee: idle or lent."""
        return self.guaranteed - self.own


def holdings(tree: Tree, moment: Moment) -> tuple[Held, ...]:
    """Every team with a queue, and what is counted of its share or of its jobs."""
    return tuple(held for team in tree.team_shares for held in _of_team(tree, team, moment))


def _of_team(tree: Tree, team: str, moment: Moment) -> Iterator[Held]:
    shares, own = tree.team_shares[team], set(measures_of(tree, team))
    for measure in every_measure(tree):
        runs, waits = (_sum(jobs, team, measure) for jobs in (moment.running, moment.waiting))
        if measure in own or runs or waits:
            share = shares.get(measure.flavor, {}).get(measure.resource, Share())
            yield Held(team, measure.label, share.guaranteed, share.effective_limit, runs, waits, measure.resource)


def every_measure(tree: Tree) -> Iterator[Measure]:
    """What can be counted in a stack: the GPUs of each flavor, or its CPU and memory; GPUs first."""
    ordered = sorted(tree.flavors.items(), key=lambda item: item[1].resource is None)
    for name, flavor in ordered:
        yield from (Measure(name, resource) for resource in ((flavor.resource,) if flavor.resource else (CPU, MEMORY)))


def _sum(jobs: Iterable[Running | Waiting], team: str, measure: Measure) -> int:
    return sum(amount_of(job, measure) for job in jobs if job.team == team)
