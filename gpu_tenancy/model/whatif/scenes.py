"""Scenarios that need no input: everyone busy, and one team alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.kueue import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.whatif.stage import Moment, play


@dataclass(frozen=True, slots=True)
class Scene:
    """One simulated state.

    Attributes:
        title: `everyone busy, ml-research first`.
        wanted: GPUs that each team requested, by team and flavor.
        moment: running and pending jobs.
    """

    title: str
    wanted: dict[tuple[str, str], int]
    moment: Moment


def busy(tree: Tree, *, first: str | None = None, last: str | None = None) -> Scene:
    """Every team requests its limit of every flavor, in jobs of one GPU.

    Teams submit in turns, one job each; `first` submits all of its jobs before all others, `last` after them.

    Args:
        tree: of the stack.
        first: a team with a queue.
        last: a team with a queue.
    """
    jobs = {name: list(_jobs(tree, name)) for name in tree.queue_owners}
    between = [name for name in jobs if name not in (first, last)]
    order = [
        *(jobs[first] if first else ()),
        *_in_turns([jobs[name] for name in between]),
        *(jobs[last] if last else ()),
    ]
    order_text = "".join(f", {name} {when}" for name, when in ((first, "first"), (last, "last")) if name)
    return _scene(tree, f"everyone busy{order_text}", order)


def alone(tree: Tree, team: str) -> Scene:
    """Only one team submits jobs, up to its limit."""
    return _scene(tree, f"{team} alone", list(_jobs(tree, team)))


def unmodelled_of(tree: Tree) -> tuple[Unmodelled, ...]:
    """What the stack uses and the simulation does not cover."""
    return (Unmodelled.ADMISSION_CHECKS,) if provisioning_checks(tree) else ()


def _scene(tree: Tree, title: str, workloads: list[Workload]) -> Scene:
    wanted: dict[tuple[str, str], int] = {}
    for each in workloads:
        flavor = next(iter(each.pod_sets[0].flavors or ()))
        wanted[each.queue, flavor] = wanted.get((each.queue, flavor), 0) + 1
    (moment,) = play(tree, [(title, Step(submit=tuple(workloads)))])
    return Scene(title, wanted, moment)


def _jobs(tree: Tree, team: str) -> Iterator[Workload]:
    """Jobs of one GPU each, up to the team's limits; without CPUs, so that only GPUs decide."""
    for name, shares in tree.team_shares[team].items():
        resource = tree.flavors[name].resource
        if resource is None or resource not in shares:
            continue
        for number in range(shares[resource].limit or 0):
            part = PodSet({resource: 1}, flavors=frozenset({name}))
            yield Workload(f"{team}-{name}-{number + 1}", team, (part,))


def _in_turns(teams: list[list[Workload]]) -> Iterator[Workload]:
    for number in range(max((len(jobs) for jobs in teams), default=0)):
        for jobs in teams:
            yield from jobs[number : number + 1]
