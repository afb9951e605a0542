"""Scenes that a stack tells by itself: everyone busy, and one team alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.admission import PodSet, Step, Unmodelled, Workload
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.whatif.stage import Moment, play


@dataclass(frozen=True, slots=True)
class Scene:
    """One simulated state.

    Attributes:
        title: `everyone busy, ml-research came first`.
        wanted: GPUs that each team asked for, by team and flavor.
        moment: who runs and who waits.
    """

    title: str
    wanted: dict[tuple[str, str], int]
    moment: Moment


def busy(tree: Tree, *, first: str | None = None, last: str | None = None) -> Scene:
    """Every queue wants all that it may have of every flavor, in jobs of one GPU.

    Teams come in turns, one job each; `first` has all of its jobs there before anybody else comes, `last` comes when
    all others are there.

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
    words = "".join(f", {name} came {when}" for name, when in ((first, "first"), (last, "last")) if name)
    return _scene(tree, f"everyone busy{words}", order)


def alone(tree: Tree, team: str) -> Scene:
    """Only one team wants anything, and that is all that it may have."""
    return _scene(tree, f"{team} alone", list(_jobs(tree, team)))


def unmodelled_of(tree: Tree) -> tuple[Unmodelled, ...]:
    """What of the stack the simulation leaves out."""
    return (Unmodelled.ADMISSION_CHECKS,) if provisioning_checks(tree) else ()


def _scene(tree: Tree, title: str, workloads: list[Workload]) -> Scene:
    wanted: dict[tuple[str, str], int] = {}
    for each in workloads:
        flavor = next(iter(each.pod_sets[0].flavors or ()))
        wanted[each.queue, flavor] = wanted.get((each.queue, flavor), 0) + 1
    (moment,) = play(tree, [(title, Step(submit=tuple(workloads)))])
    return Scene(title, wanted, moment)


def _jobs(tree: Tree, team: str) -> Iterator[Workload]:
    """Jobs of one GPU each, as many as the team's limits allow; by GPUs alone, so that no cpu decides."""
    for name, shares in tree.team_shares[team].items():
        resource = tree.flavors[name].resource
        if resource is None or resource not in shares:
            continue
        for number in range(shares[resource].limit or 0):
            part = PodSet({resource: 1}, flavors=frozenset({name}))
            yield Workload(f"{team}-{name}-{number + 1}", team, (part,))


def _in_turns(each: list[list[Workload]]) -> Iterator[Workload]:
    for number in range(max((len(jobs) for jobs in each), default=0)):
        for jobs in each:
            yield from jobs[number : number + 1]
