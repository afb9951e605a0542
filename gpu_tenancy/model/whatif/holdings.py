"""Usage of each team and flavor at a moment, with its guarantee and limit."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_tenancy.model.plan.shares import Share, Tree
from gpu_tenancy.model.whatif.stage import Moment, Running, Waiting


@dataclass(frozen=True, slots=True)
class Held:
    """A team's GPUs of one flavor (partitions or turns, where they are shared).

    Attributes:
        runs: used by its jobs.
        waits: requested by its pending jobs.
    """

    team: str
    flavor: str
    guaranteed: int
    limit: int
    runs: int
    waits: int

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
    """Every team with a queue, and every GPU flavor of its share or of its jobs."""
    runs, waits = _sums(tree, moment.running), _sums(tree, moment.waiting)
    found: list[Held] = []
    for team, shares in tree.team_shares.items():
        for name, flavor in tree.flavors.items():
            key = (team, name)
            share = shares.get(name, {}).get(flavor.resource) if flavor.resource else None
            if flavor.resource and (share or key in runs or key in waits):
                promised = share or Share()
                found.append(
                    Held(team, name, promised.guaranteed, promised.effective_limit, runs.get(key, 0), waits.get(key, 0))
                )
    return tuple(found)


def supply(tree: Tree, flavor: str) -> int:
    """GPUs of a flavor in the queues: the maximum of its pools, without those reserved for Volcano's gangs."""
    return tree.supply(flavor).get(tree.flavors[flavor].resource or "", 0)


def _sums(tree: Tree, jobs: Iterable[Running | Waiting]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for each in jobs:
        if each.flavor in tree.flavors:
            found[each.team, each.flavor] = found.get((each.team, each.flavor), 0) + each.gpus
    return found
