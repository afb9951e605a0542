"""What the workers of one manager must have in common, and what the manager's own file must not have."""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.fields import Section
from gpu_tenancy.model.plan.needs import OF_JOBS, there
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.roles import KINDS
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.workers.reading import SECTION, Data, Worker

_READ: Final = ("pools", "machines", "prices", "priorities", "cohorts", "fairness", "datasets")
"""Sections that a manager does not have; all but datasets are read from its workers."""
TEAM: Final = (
    "owner", "cost_center", "tier", "workload_secrets", "secrets", "image_pull_secrets", "cohort", "queue", "priority",
    "deadline", "weight", "usage_weight", "lends", "preemption", "containers", "pod_security",
)  # fmt: skip
"""Fields of a team that are the same in all clusters: Kueue copies a workload as the manager admitted it."""
_OWN: Final = frozenset({"members", "serviceAccounts", "training", "compute", "objects", "claims", "network"})
"""Keys of a team that the manager's file can have."""

_OPERATORS: Final[Mapping[str, str]] = {name: kind.operator for name, kind in KINDS.items() if kind.operator}
"""The operator of each framework that needs one, by its field."""


def own_problems(source: Source, workers: list[Worker]) -> Iterator[Problem]:
    """What the manager's file must not have."""
    for key in _READ:
        if key in source.sections:
            rule = "must not be set for a manager, which has it from its workers"
            if key == "datasets":
                rule = "must not be set for a manager, which runs no pods"
            yield Problem((key,), rule, "remove it, and set it in the stacks of the workers")
    if "pools" in cast("Data", source.sections[SECTION]):
        yield Problem((SECTION, "pools"), "unknown key 'pools'", "remove it: the pools are in the workers' stacks")
    teams = cast("Data", source.sections.get("teams") or {})
    known = {team for worker in workers for team in worker.tree.stack.teams}
    for team, own in teams.items():
        if workers and team not in known:
            yield Problem(
                ("teams", team), "is a team of no worker", "add it to the stacks of the workers, or remove it"
            )
        if not isinstance(own, dict):
            continue
        for key in cast("Data", own):
            if key not in _OWN:
                rule = "must not be set for a manager, whose teams are those of its workers"
                yield Problem(("teams", team, key), rule, "remove it, and set it in the stacks of the workers")
        yield from _operators(team, cast("Data", own), workers)


def _operators(team: str, own: Data, workers: list[Worker]) -> Iterator[Problem]:
    """Jobs of the manager that a worker has no operator for."""
    jobs = cast("Data", own.get("training")) if isinstance(own.get("training"), dict) else {}
    for name, job in jobs.items():
        for worker in workers:
            framework = cast("Data", job).get("framework") if isinstance(job, dict) else None
            operator = _OPERATORS.get(str(framework))
            if operator and not there(worker.tree, operator):
                rule = f"needs {operators()[operator].title}, which worker {worker.name} does not run"
                fix = f"set operators.{operator} in {worker.source.file}, or remove framework"
                yield Problem(("teams", team, "training", name, "framework"), rule, fix, str(framework))


def differences(first: Worker, other: Worker) -> Iterator[Problem]:
    """What differs between two workers and must not."""
    trees = first.tree, other.tree
    mine, theirs = (tree.stack for tree in trees)
    for what, one, two in (
        ("fairness", mine.fairness, theirs.fairness),
        ("priorities", _priorities(mine), _priorities(theirs)),
        ("cohorts", _parents(mine), _parents(theirs)),
        *((f"operators.{name}", *("on" if there(tree, name) else "off" for tree in trees)) for name in OF_JOBS),
    ):
        if one != two:
            yield _differs(first, other, what, one, two)
    for team in sorted({*mine.teams} ^ {*theirs.teams}):
        has, lacks = (first, other) if team in mine.teams else (other, first)
        rule = f"worker {has.name} has team {team}, and worker {lacks.name} has not"
        yield Problem(lacks.place, rule, f"add the team to {lacks.source.file}, without GPUs if it has none there")
    for team in mine.teams:
        if team in theirs.teams:
            yield from _team_differences(first, other, team)


def _team_differences(first: Worker, other: Worker, team: str) -> Iterator[Problem]:
    for field in TEAM:
        one, two = (_compared(getattr(worker.tree.stack.teams[team], field), field) for worker in (first, other))
        if one != two:
            yield _differs(first, other, f"teams.{team}.{Team.model_fields[field].alias}", one, two)


def _compared(value: object, field: str) -> object:
    """What must be the same of a field: of Secrets the names, which pods refer to."""
    return ", ".join(sorted(cast("Mapping[str, object]", value))) or "none" if field == "secrets" else value


def _differs(first: Worker, other: Worker, what: str, one: object, two: object) -> Problem:
    rule = f"differs from worker {first.name} in {what}: {_brief(two)} here, {_brief(one)} there"
    return Problem(other.place, rule, f"set the same {what} in both stacks")


def _brief(value: object) -> str:
    """A value of a stack in an error."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return ", ".join(f"{key} {_brief(one)}" for key, one in pairs) or "none"
    return "unset" if value is None else "another section" if isinstance(value, Section) else str(value)


def _priorities(stack: Stack) -> dict[str, int]:
    return {name: entry.value for name, entry in stack.priorities.items()}


def _parents(stack: Stack) -> dict[str, str | None]:
    return {name: cohort.parent for name, cohort in stack.cohorts.items()}
