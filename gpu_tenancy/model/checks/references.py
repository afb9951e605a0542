"""Names that must lead somewhere: flavors, cohorts, queues, priorities, teams."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import ANY, Path, Problem, dotted, nearest
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import Shares

_RESERVED = ("default", "kube-")


def reference_problems(tree: Tree) -> Iterator[Problem]:
    """Every name that is used and not there, and the ones that must not be taken."""
    stack = tree.stack
    yield from _priorities(stack)
    yield from _cohorts(tree)
    for name, team in stack.teams.items():
        yield from _team(tree, name, team)
    yield from _run_together(stack)
    for name, dataset in stack.datasets.items():
        for index, team in enumerate(dataset.teams):
            yield from known_in(team, stack.teams, "team", ("datasets", name, "teams", index), ("teams",))


def _run_together(stack: Stack) -> Iterator[Problem]:
    """Volumes and gangs' queues belong to no namespace: `ml` + `a-b` and `ml-a` + `b` would be one and the same."""
    volumes = [
        (team, name)
        for name, dataset in stack.datasets.items()
        for team in stack.teams
        if not dataset.teams or team in dataset.teams
    ]
    gangs = [(name, flavor) for name, team in stack.teams.items() for flavor in team.gangs]
    for kind, pairs in (("volume", volumes), ("queue", gangs)):
        seen: dict[str, str] = {}
        for team, name in pairs:
            first = seen.setdefault(f"{team}-{name}", team)
            if first != team:
                path = ("datasets", name) if kind == "volume" else ("teams", team, "gangs", name)
                rule = f"gives team {team} a {kind} of the name {team}-{name}, which team {first} has already"
                yield Problem(path, rule, "rename one of them", about=(("teams",),))


def known_in(name: str | None, known: Iterable[str], kind: str, path: Path, of: Path) -> Iterator[Problem]:
    """A problem where a name is none of the known ones, which stand at `of`; nothing where there is no name."""
    if name is not None and name not in set(known):
        yield Problem(path, f"is no {kind} of {dotted(of)}", nearest(name, known), name, about=((*of, name),))


def _priorities(stack: Stack) -> Iterator[Problem]:
    defaults = [name for name, priority in stack.priorities.items() if priority.default]
    for name in defaults[1:]:
        rule = f"is a second default beside {defaults[0]}"
        yield Problem(("priorities", name, "default"), rule, "keep one", "true")
    for name in stack.priorities:
        if name.startswith("system-"):
            yield Problem(("priorities", name), "has a name that Kubernetes keeps for itself", "drop 'system-'", name)


def _cohorts(tree: Tree) -> Iterator[Problem]:
    cohorts = tree.stack.cohorts
    roots = [name for name, cohort in cohorts.items() if cohort.parent is None]
    if cohorts and not roots:
        yield Problem(("cohorts",), "has no root: every cohort has a parent", "leave the parent of the topmost out")
    for name in roots[1:]:
        yield Problem(
            ("cohorts", name),
            f"is a second root beside {roots[0]}, and nobody could borrow across",
            f"write parent: {roots[0]}",
            about=(("cohorts", roots[0]),),
        )
    for name, cohort in cohorts.items():
        yield from known_in(cohort.parent, cohorts, "cohort", ("cohorts", name, "parent"), ("cohorts",))
        yield from _flavors(tree, cohort, ("cohorts", name))
        if loops(tree, name):
            yield Problem(
                ("cohorts", name, "parent"),
                "leads back to the cohort itself, which Kueue accepts in silence and never admits from",
                "name a parent nearer to the root",
                cohort.parent,
            )
    for name in roots[:1]:
        if cohorts[name].gpus or cohorts[name].quota:
            key = "gpus" if cohorts[name].gpus else "quota"
            rule = "says what the root has, which is what the pools have"
            yield Problem(("cohorts", name, key), rule, "leave it out, or write it at a group below the root")


def loops(tree: Tree, cohort: str) -> bool:
    """Whether a cohort's parents lead back to it."""
    seen: set[str] = set()
    above = tree.parents.get(cohort)
    while above is not None and above not in seen:
        if above == cohort:
            return True
        seen.add(above)
        above = tree.parents.get(above)
    return False


def _flavor(tree: Tree, name: str | None, path: Path) -> Iterator[Problem]:
    known = [pool.flavor or each for each, pool in tree.stack.pools.items()]
    for problem in known_in(name, known, "flavor", path, ("pools",)):
        # Any pool may have given itself this flavor.
        yield replace(problem, about=(*problem.about, ("pools", ANY, "flavor")))


def _flavors(tree: Tree, shares: Shares, path: Path) -> Iterator[Problem]:
    for key in ("gpus", "quota"):
        for flavor in getattr(shares, key):
            place = (*path, key, flavor)
            yield from _flavor(tree, flavor, place)
            on_cpus = flavor in tree.flavors and tree.flavors[flavor].resource is None
            if on_cpus and (key == "gpus" or shares.quota[flavor].model_fields_set & {"guaranteed", "limit"}):
                mend = f"write {dotted((*path, 'quota', flavor))}.cpu and .memory"
                yield Problem(place, "promises GPUs of a pool that has none", mend, about=_pools(tree, flavor))


def _pools(tree: Tree, flavor: str) -> tuple[Path, ...]:
    return tuple(("pools", pool.name) for pool in tree.flavors[flavor].pools)


def _team(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    stack, path = tree.stack, ("teams", name)
    if name == _RESERVED[0] or name.startswith(_RESERVED[1]):
        yield Problem(path, "is a namespace of Kubernetes' own", "name the team otherwise", name)
    if stack.cohorts:
        yield from known_in(team.cohort, stack.cohorts, "cohort", (*path, "cohort"), ("cohorts",))
    elif team.cohort not in {None, tree.root}:
        yield Problem(
            (*path, "cohort"),
            "is no cohort: the stack has none but the root",
            "add it under cohorts",
            team.cohort,
        )
    yield from known_in(team.priority, stack.priorities, "priority class", (*path, "priority"), ("priorities",))
    for index, priority in enumerate(team.compute.priorities):
        place = (*path, "compute", "priorities", index)
        yield from known_in(priority, stack.priorities, "priority class", place, ("priorities",))
    yield from _flavors(tree, team, path)
    for flavor, gang in team.gangs.items():
        place = (*path, "gangs", flavor)
        yield from _flavor(tree, flavor, place)
        if flavor in tree.flavors and tree.flavors[flavor].resource is None and gang.most:
            mend = "leave guaranteed and limit out, and write its cpu and memory"
            yield Problem(place, "promises GPUs of a pool that has none", mend, about=_pools(tree, flavor))
    for kind in ("serving", "training"):
        for workload, spec in getattr(team, kind).items():
            place = (*path, kind, workload)
            yield from _flavor(tree, spec.flavor, (*place, "flavor"))
            yield from known_in(
                spec.priority, stack.priorities, "priority class", (*place, "priority"), ("priorities",)
            )
    for workload in sorted(team.serving.keys() & team.training.keys()):
        yield Problem(
            (*path, "training", workload),
            "is a server's name too, whose Service would send its callers to the job's pods",
            "name one of them otherwise",
            workload,
        )
    yield from _queue(stack, name, team)


def _queue(stack: Stack, name: str, team: Team) -> Iterator[Problem]:
    if team.queue is None:
        return
    path = ("teams", name, "queue")
    others = [other for other in stack.teams if other != name]
    yield from known_in(team.queue, others, "other team", path, ("teams",))
    owner = stack.teams.get(team.queue)
    if owner and team.queue != name and owner.queue is not None:
        yield Problem(path, f"has no queue of its own, it uses {owner.queue}'s", f"name {owner.queue}", team.queue)
