"""Checks of references: flavors, cohorts, queues, priority classes and teams must exist."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from gpu_tenancy.base.problems import ANY, Path, Problem, dotted, unknown
from gpu_tenancy.model.catalogue.namespaces import owner_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import Shares
from gpu_tenancy.model.spec.workloads import Server, Training, Workload


def reference_problems(tree: Tree) -> Iterator[Problem]:
    """References to names that do not exist, and reserved or conflicting names."""
    stack = tree.stack
    yield from _priorities(stack)
    yield from _cohorts(tree)
    for name, team in stack.teams.items():
        yield from _team(tree, name, team)
    yield from _same_names(stack)
    for name in stack.teams:
        yield from _mounted(stack, name)
    for name, dataset in stack.datasets.items():
        for key in ("teams", "writers"):
            for index, team in enumerate(getattr(dataset, key)):
                yield from known_in(team, stack.teams, "team", ("datasets", name, key, index), ("teams",))


def _mounted(stack: Stack, name: str) -> Iterator[Problem]:
    """Datasets that a team's workloads mount, but do not exist, or are another team's."""
    team = stack.teams[name]
    for kind, workloads in (("serving", team.serving), ("training", team.training)):
        for workload, spec in workloads.items():
            for dataset in spec.datasets:
                place = ("teams", name, kind, workload, *mounted_at(spec, "dataset", dataset))
                yield from known_in(dataset, stack.datasets, "dataset", place, ("datasets",))
                if dataset in stack.datasets and not stack.datasets[dataset].is_of(name):
                    rule = f"is not a dataset of team {name}"
                    yield Problem(place, rule, f"add {name} to datasets.{dataset}.teams, or remove it", dataset)


def mounted_at(workload: Workload, kind: Literal["dataset", "volume"], name: str) -> Path:
    """The key by which a workload mounts a dataset or volume: that of its model, or of its mounts."""
    model = workload.model if isinstance(workload, Server) else None
    return ("model", kind) if model and getattr(model, kind) == name else (f"{kind}s", name)


def _same_names(stack: Stack) -> Iterator[Problem]:
    """PersistentVolumes and Volcano queues are cluster-scoped: `ml` + `a-b` and `ml-a` + `b` have the same name."""
    volumes = [(team, name) for name, dataset in stack.datasets.items() for team in stack.teams if dataset.is_of(team)]
    gangs = [(name, flavor) for name, team in stack.teams.items() for flavor in team.gangs]
    for kind, pairs in (("volume", volumes), ("queue", gangs)):
        seen: dict[str, str] = {}
        for team, name in pairs:
            first = seen.setdefault(f"{team}-{name}", team)
            if first != team:
                path = ("datasets", name) if kind == "volume" else ("teams", team, "gangs", name)
                rule = f"the {kind} of team {team} would be named {team}-{name}, like one of team {first}"
                yield Problem(path, rule, "rename one of them", about=(("teams",),))


def known_in(name: str | None, known: Iterable[str], kind: str, path: Path, of: Path) -> Iterator[Problem]:
    """A problem if a name is set that is not among the known ones, which are defined at `of`."""
    names = set(known)
    if name is not None and name not in names:
        rule, fix = unknown(kind, name, names)
        yield Problem(path, rule, fix if names else f"define it under {dotted(of)}", about=((*of, name),))


def _priorities(stack: Stack) -> Iterator[Problem]:
    defaults = [name for name, priority in stack.priorities.items() if priority.default]
    for name in defaults[1:]:
        rule = f"is set for {defaults[0]} too, but only one class can be the default"
        yield Problem(("priorities", name, "default"), rule, "remove one of them", "true")
    for name in stack.priorities:
        if name.startswith("system-"):
            yield Problem(("priorities", name), "uses the prefix system-, which Kubernetes reserves", "rename it", name)
    for name in stack.metrics.service_levels.waiting:
        place = ("metrics", "serviceLevels", "waiting", name)
        yield from known_in(name, stack.priorities, "priority class", place, ("priorities",))


def _cohorts(tree: Tree) -> Iterator[Problem]:
    cohorts = tree.stack.cohorts
    roots = [name for name, cohort in cohorts.items() if cohort.parent is None]
    if cohorts and not roots:
        yield Problem(("cohorts",), "has no root: every cohort has a parent", "leave the parent of the topmost out")
    for name in roots[1:]:
        yield Problem(
            ("cohorts", name),
            f"has no parent, but {roots[0]} is the root already, and quota cannot be borrowed between roots",
            f"set parent: {roots[0]}",
            about=(("cohorts", roots[0]),),
        )
    for name, cohort in cohorts.items():
        yield from known_in(cohort.parent, cohorts, "cohort", ("cohorts", name, "parent"), ("cohorts",))
        yield from _flavors(tree, cohort, ("cohorts", name))
        if loops(tree, name):
            yield Problem(
                ("cohorts", name, "parent"),
                "creates a cycle of cohorts, in which Kueue admits no workloads",
                "set a parent that is closer to the root",
                cohort.parent,
            )
    for name in roots[:1]:
        if cohorts[name].gpus or cohorts[name].quota:
            key = "gpus" if cohorts[name].gpus else "quota"
            rule = "must not be set for the root cohort, whose quota is the supply of the pools"
            yield Problem(("cohorts", name, key), rule, "remove it, or set it for a cohort below the root")


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
    known = [pool.flavor or pool_name for pool_name, pool in (tree.stack.pools | dict(tree.stack.elsewhere)).items()]
    for problem in known_in(name, known, "flavor", path, ("pools",)):
        # A pool that could not be read may have this flavor.
        yield replace(problem, about=(*problem.about, ("pools", ANY, "flavor")))


def _flavors(tree: Tree, shares: Shares, path: Path) -> Iterator[Problem]:
    for key in ("gpus", "quota"):
        for flavor in getattr(shares, key):
            place = (*path, key, flavor)
            yield from _flavor(tree, flavor, place)
            on_cpus = flavor in tree.flavors and tree.flavors[flavor].resource is None
            if on_cpus and (key == "gpus" or shares.quota[flavor].model_fields_set & {"guaranteed", "limit"}):
                fix = f"set {dotted((*path, 'quota', flavor))}.cpu and .memory instead"
                yield Problem(place, f"sets GPUs of flavor {flavor}, which has none", fix, about=_pools(tree, flavor))


def _pools(tree: Tree, flavor: str) -> tuple[Path, ...]:
    return tuple(("pools", pool.name) for pool in tree.flavors[flavor].pools)


def _reserved(stack: Stack, team: str) -> Iterator[Problem]:
    """A team in a namespace of the cluster's own pods: guards and webhooks exclude it."""
    owner = owner_of(team)
    if owner is None and team == stack.metrics.prometheus.namespace:
        owner = "Prometheus (metrics.prometheus.namespace)"
    if owner:
        yield Problem(("teams", team), f"is a reserved namespace of {owner}", "rename the team", team)


def _team(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    stack, path = tree.stack, ("teams", name)
    yield from _reserved(stack, name)
    if stack.cohorts:
        yield from known_in(team.cohort, stack.cohorts, "cohort", (*path, "cohort"), ("cohorts",))
    elif team.cohort not in {None, tree.root}:
        yield Problem(
            (*path, "cohort"),
            f"unknown cohort '{team.cohort}': the stack defines no cohorts",
            "define it under cohorts",
        )
    yield from known_in(team.priority, stack.priorities, "priority class", (*path, "priority"), ("priorities",))
    for index, priority in enumerate(team.compute.priorities):
        place = (*path, "compute", "priorities", index)
        yield from known_in(priority, stack.priorities, "priority class", place, ("priorities",))
    yield from _flavors(tree, team, path)
    for flavor, gang in team.gangs.items():
        place = (*path, "gangs", flavor)
        yield from _flavor(tree, flavor, place)
        if flavor in tree.flavors and tree.flavors[flavor].resource is None and gang.effective_limit:
            fix = "remove guaranteed and limit, and set cpu and memory"
            yield Problem(place, f"sets GPUs of flavor {flavor}, which has none", fix, about=_pools(tree, flavor))
    for kind in ("serving", "training"):
        for workload, spec in getattr(team, kind).items():
            place = (*path, kind, workload)
            yield from _flavor(tree, spec.flavor, (*place, "flavor"))
            for role, of_role in spec.roles.items() if isinstance(spec, Training) else ():
                yield from _flavor(tree, of_role.flavor, (*place, "roles", role, "flavor"))
            yield from known_in(
                spec.priority, stack.priorities, "priority class", (*place, "priority"), ("priorities",)
            )
    for workload in sorted(team.serving.keys() & team.training.keys()):
        yield Problem(
            (*path, "training", workload),
            "is also the name of a server, whose Service would select the job's pods",
            "rename one of them",
            workload,
        )
    yield from _notebook_flavors(tree, path, team)
    yield from _group_names(name, team)
    yield from _queue(stack, name, team)


def _notebook_flavors(tree: Tree, path: Path, team: Team) -> Iterator[Problem]:
    for size, spec in team.notebooks.sizes.items() if team.notebooks else ():
        yield from _flavor(tree, spec.flavor, (*path, "notebooks", "sizes", size, "flavor"))


def _group_names(name: str, team: Team) -> Iterator[Problem]:
    """Names of the groups of servers of several nodes: each has a StatefulSet and a Service of its own."""
    for kind, names in (("serving", team.serving), ("training", team.training)):
        for workload in names:
            server, _, index = workload.rpartition("-")
            of = team.serving.get(server)
            if of and of.grouped and index.isdecimal() and str(int(index)) == index and int(index) < of.most_replicas:
                rule = f"is also the name of a group of server {server}, which has a Service of that name"
                about = (("teams", name, "serving", server),)
                yield Problem(("teams", name, kind, workload), rule, "rename one of them", workload, about=about)


def _queue(stack: Stack, name: str, team: Team) -> Iterator[Problem]:
    if team.queue is None:
        return
    path = ("teams", name, "queue")
    if team.queue == name:
        yield Problem(path, "is the team itself", "remove queue, or set it to another team", name)
        return
    others = [other for other in stack.teams if other != name]
    yield from known_in(team.queue, others, "team", path, ("teams",))
    owner = stack.teams.get(team.queue)
    if owner and owner.queue is not None:
        yield Problem(path, f"has no queue: it uses the queue of {owner.queue}", f"set {owner.queue}", team.queue)
