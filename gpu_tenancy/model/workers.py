"""MultiKueue between stacks: a manager has the flavors, teams and quotas of its workers' stacks, so that they agree."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Final, TypeAlias, cast

from pydantic import ValidationError

from gpu_tenancy.base.problems import Path, Problem, StackError
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.fields import Section
from gpu_tenancy.model.plan.needs import OF_JOBS, there
from gpu_tenancy.model.plan.pools import PoolSupply
from gpu_tenancy.model.plan.shares import NodeShares, Tree
from gpu_tenancy.model.source import Source, read_file
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.roles import KINDS
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import MultiKueue
from gpu_tenancy.model.yaml import Data

_Read: TypeAlias = Callable[[Source], Stack]
_SECTION: Final = "multikueue"


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker as its file has it; `place` is the manager's reference to it."""

    name: str
    place: Path
    source: Source
    tree: Tree

    def section(self, key: str) -> Data:
        """A section of its file, as written."""
        return cast("Data", self.source.sections.get(key) or {})


def _section_of(source: Source) -> MultiKueue | None:
    """The section; None if it is missing or invalid, which `load` reports."""
    raw = source.sections.get(_SECTION)
    try:
        return None if raw is None else MultiKueue.model_validate(raw)
    except ValidationError:
        return None


def _own_name(source: Source) -> str:
    """The name of a stack by its file; empty without a file."""
    return FilePath(source.file).stem.removeprefix("Pulumi.")


def _first_of(error: StackError) -> str:
    more = len(error.problems) - 1
    return f"{error.problems[0]}" + (f" (and {more} more)" if more else "")


def _read_beside(source: Source, stack: str) -> Source:
    name = f"Pulumi.{stack}.yaml"
    if source.folder is None:
        rule = "is another stack, but stacks are files of a project, which a component does not have"
        raise StackError([Problem((_SECTION,), rule, "deploy it as a stack of a project", stack)])
    shown = str(FilePath(source.file).with_name(name)) if source.file else name
    if not (source.folder / name).is_file():
        raise StackError([Problem((_SECTION,), "is not a stack of this project", f"add {shown}", stack)])
    return read_file(source.folder / name, shown)


def _read_workers(source: Source, found: MultiKueue, read: _Read) -> tuple[list[_Worker], list[Problem]]:
    """The workers of a manager, and the problems of unreadable workers."""
    workers: list[_Worker] = []
    problems: list[Problem] = []
    own = _own_name(source)
    for index, worker in enumerate(found.workers):
        place = (_SECTION, "workers", index, "stack")
        try:
            file = _read_beside(source, worker.stack)
            stack = read(file)
        except StackError as error:
            rule = f"cannot be read: {_first_of(error)}"
            problems.append(Problem(place, rule, f"run `tenancy stack validate {worker.stack}`", worker.stack))
            continue
        manager = stack.multikueue.manager if stack.multikueue else None
        if manager is None or (own and manager != own):
            fix = f"set multikueue: {{manager: {own or 'this stack'}}} in {file.file}"
            rule = f"has the manager {manager}" if manager else "has no manager, so nobody has rights in its cluster"
            problems.append(Problem(place, rule, fix, worker.stack))
            continue
        workers.append(_Worker(worker.name, place[:-1], file, Tree(stack)))
    return workers, problems


_READ: Final = ("pools", "machines", "prices", "priorities", "cohorts", "fairness", "datasets")
"""Sections that a manager does not have; all but datasets are read from its workers."""
_TEAM: Final = (
    "owner", "cost_center", "tier", "workload_secrets", "secrets", "image_pull_secrets", "cohort", "queue", "priority",
    "deadline", "weight", "usage_weight", "lends", "preemption", "containers", "pod_security",
)  # fmt: skip
"""Fields of a team that are the same in all clusters: Kueue copies a workload as the manager admitted it."""
_OWN: Final = frozenset({"members", "serviceAccounts", "training", "compute", "objects", "claims", "network"})
"""Keys of a team that the manager's file can have."""

_OPERATORS: Final[Mapping[str, str]] = {name: kind.operator for name, kind in KINDS.items() if kind.operator}
"""Operator of each framework that needs one."""


def _own_problems(source: Source, workers: list[_Worker]) -> Iterator[Problem]:
    """Keys that the manager's file must not have."""
    for key in _READ:
        if key in source.sections:
            why = "runs no pods" if key == "datasets" else "has it from its workers"
            rule = f"must not be set for a manager, which {why}"
            yield Problem((key,), rule, "remove it, and set it in the stacks of the workers")
    if "pools" in cast("Data", source.sections[_SECTION]):
        yield Problem((_SECTION, "pools"), "unknown key 'pools'", "remove it: the pools are in the workers' stacks")
    teams = cast("Data", source.sections.get("teams") or {})
    known = {team for worker in workers for team in worker.tree.stack.teams}
    for team, own in teams.items():
        if workers and team not in known:
            fix = "add it to the stacks of the workers, or remove it"
            yield Problem(("teams", team), "is a team of no worker", fix)
        if not isinstance(own, dict):
            continue
        for key in cast("Data", own):
            if key not in _OWN:
                rule = "must not be set for a manager, whose teams are those of its workers"
                yield Problem(("teams", team, key), rule, "remove it, and set it in the stacks of the workers")
        yield from _operators(team, cast("Data", own), workers)


def _operators(team: str, own: Data, workers: list[_Worker]) -> Iterator[Problem]:
    """Jobs of the manager whose operator a worker lacks."""
    jobs = cast("Data", own.get("training")) if isinstance(own.get("training"), dict) else {}
    for name, job in jobs.items():
        for worker in workers:
            framework = cast("Data", job).get("framework") if isinstance(job, dict) else None
            operator = _OPERATORS.get(str(framework))
            if operator and not there(worker.tree, operator):
                rule = f"needs {operators()[operator].title}, which worker {worker.name} does not run"
                fix = f"set operators.{operator} in {worker.source.file}, or remove framework"
                yield Problem(("teams", team, "training", name, "framework"), rule, fix, str(framework))


def _differences(first: _Worker, other: _Worker) -> Iterator[Problem]:
    """Forbidden differences between two workers."""
    trees = first.tree, other.tree
    mine, theirs = (tree.stack for tree in trees)
    for what, one, two in (
        ("fairness", mine.fairness, theirs.fairness),
        ("priorities", *({name: one.value for name, one in stack.priorities.items()} for stack in (mine, theirs))),
        ("cohorts", *({name: one.parent for name, one in stack.cohorts.items()} for stack in (mine, theirs))),
        *((f"operators.{name}", *("on" if there(tree, name) else "off" for tree in trees)) for name in OF_JOBS),
    ):
        if one != two:
            yield _differs(first, other, what, one, two)
    for team in sorted({*mine.teams} ^ {*theirs.teams}):
        has, lacks = (first, other) if team in mine.teams else (other, first)
        rule = f"worker {has.name} has team {team}, and worker {lacks.name} has not"
        yield Problem(lacks.place, rule, f"add the team to {lacks.source.file}, without GPUs if it has none there")
    for team, field in ((team, field) for team in mine.teams if team in theirs.teams for field in _TEAM):
        one, two = (getattr(stack.teams[team], field) for stack in (mine, theirs))
        if field == "secrets":  # Of Secrets the names, which pods refer to.
            one, two = (", ".join(sorted(names)) or "none" for names in (one, two))
        if one != two:
            yield _differs(first, other, f"teams.{team}.{Team.model_fields[field].alias}", one, two)


def _differs(first: _Worker, other: _Worker, what: str, one: object, two: object) -> Problem:
    rule = f"differs from worker {first.name} in {what}: {_brief(two)} here, {_brief(one)} there"
    return Problem(other.place, rule, f"set the same {what} in both stacks")


def _brief(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_brief(one)}" for key, one in cast("Mapping[str, object]", value).items()) or "none"
    return "unset" if value is None else "another section" if isinstance(value, Section) else str(value)


_Amounts: TypeAlias = dict[str, dict[str, tuple[int, int | None]]]  # guarantee and limit by flavor and resource


def _pools(workers: list[_Worker]) -> dict[str, tuple[_Worker, Data]]:
    """The workers' pools by their names in the manager, such as `west-h100`."""
    return {
        f"{worker.name}-{pool.name}": (worker, _pool(pool))
        for worker in workers
        for flavor in worker.tree.flavors.values()
        for pool in flavor.pools
    }


def _pool(supply: PoolSupply) -> Data:
    """A worker's pool as a description of its nodes, whatever its cloud."""
    gpus = {"gpu": supply.product or "gpu", "gpusPerNode": supply.gpus_per_node, "resource": supply.resource}
    # The levels that jobs can ask for, by their labels: the clouds of manager and worker can differ.
    levels = {one.level: one.label for one in supply.levels if one.level in {"block", "rack"}}
    return {
        "flavor": supply.flavor,
        "cpu": f"{supply.node[CPU]}m",
        "memory": supply.node[MEMORY],
        "nodes": supply.max_nodes,
        "labels": dict(supply.labels),
        "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in supply.taints],
        **(gpus if supply.resource else {}),
        **({"topology": levels or {"source": "node"}} if supply.levels else {}),
    }


def _teams(workers: list[_Worker], own: Mapping[str, Any]) -> Data:
    """The teams with the sum of their quotas, and the keys of the manager's file."""
    first = workers[0]
    kept = {Team.model_fields[field].alias for field in _TEAM} | {"members"}
    made: Data = {}
    for name, written in first.section("teams").items():
        shares = [worker.tree.team_shares.get(name, {}) for worker in workers]
        quota = _summed([_amounts(share, team=True) for share in shares])
        shared = {key: value for key, value in written.items() if key in kept}
        lends = {"lends": first.tree.lends(name)} if first.tree.stack.teams[name].queue is None else {}
        made[name] = {**shared, **lends, **({"quota": quota} if quota else {}), **(own.get(name) or {})}
    return made


def _cohorts(workers: list[_Worker]) -> Data:
    """The cohorts with the sum of their quotas; a cohort without a limit in one worker has none."""
    made: Data = {}
    for name, written in workers[0].section("cohorts").items():
        quota = _summed([_amounts(worker.tree.stated.get(name, {}), team=False) for worker in workers])
        rest = {key: value for key, value in cast("Data", written or {}).items() if key not in {"gpus", "quota"}}
        made[name] = {**rest, **({"quota": quota} if quota else {})}
    return made


def _amounts(shares: NodeShares, *, team: bool) -> _Amounts:
    return {
        flavor: {
            resource: (share.guaranteed, share.effective_limit if team else share.limit)
            for resource, share in by_resource.items()
        }
        for flavor, by_resource in shares.items()
    }


def _summed(shares: list[_Amounts]) -> Data:
    quota: Data = {}
    for flavor in dict.fromkeys(flavor for amounts in shares for flavor in amounts):
        of_flavor = [amounts[flavor] for amounts in shares if flavor in amounts]
        for resource in dict.fromkeys(resource for by_resource in of_flavor for resource in by_resource):
            held = [by_resource[resource] for by_resource in of_flavor if resource in by_resource]
            limits = [limit for _, limit in held]
            total: Data = {"guaranteed": sum(guaranteed for guaranteed, _ in held)}
            if None not in limits:
                total["limit"] = sum(limit or 0 for limit in limits)
            entry = quota.setdefault(flavor, {})
            if resource == CPU:
                entry["cpu"] = {key: f"{amount}m" for key, amount in total.items()}
            elif resource == MEMORY:
                entry["memory"] = total
            else:
                entry.update(total)
    return quota


def with_workers(source: Source, read: _Read) -> Source:
    """The source of a manager with values from its workers, which `read` checks; any other source is unchanged.

    Raises StackError: a worker is missing or invalid, workers differ, or the file has keys that its workers define.
    """
    found = _section_of(source)
    if found is None or not found.workers:
        return source  # An invalid section is reported by whoever checks the stack.
    workers, problems = _read_workers(source, found, read)
    problems += _own_problems(source, workers)
    problems += [problem for first in workers[:1] for other in workers[1:] for problem in _differences(first, other)]
    if problems:
        raise StackError(replace(one, file=source.file, line=source.line(one.path)) for one in problems)
    placed = _pools(workers)
    first = workers[0]
    made: Data = {
        "pools": {},
        "people": first.section("people"),
        "fairness": first.source.sections.get("fairness") or "hierarchical",
        "priorities": first.section("priorities"),
        "cohorts": _cohorts(workers),
        **source.sections,
        "teams": _teams(workers, source.sections.get("teams") or {}),
        _SECTION: {**source.sections[_SECTION], "pools": {name: pool for name, (_, pool) in placed.items()}},
    }
    places = {("pools", pool): worker.place for pool, (worker, _) in placed.items()}
    lines = {place: line for place, named in places.items() if (line := source.line(named))}
    return replace(source, sections=made, lines={**source.lines, **lines})


def manager_problems(source: Source, stack: Stack, read: _Read) -> Iterator[Problem]:
    """Problems of a worker with its manager, whose stack `read` checks; the manager's preview reports them too."""
    manager = stack.multikueue.manager if stack.multikueue else None
    if manager is None or source.folder is None or not source.file:
        return
    place, own = (_SECTION, "manager"), _own_name(source)
    try:
        managing = _read_beside(source, manager)
        section = _section_of(managing)
        if section is None or own not in {worker.stack for worker in section.workers}:
            fix = (
                f"add {{name: …, stack: {own}, secret: …}} to multikueue.workers in {managing.file}, or remove this key"
            )
            yield Problem(place, f"does not name {own} as a worker", fix, manager)
            return
        read(managing)
    except StackError as error:
        rule = f"is not valid with this worker: {_first_of(error)}"
        yield Problem(place, rule, "change one of the two stacks", manager)
