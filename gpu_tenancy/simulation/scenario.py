"""Jobs over time, read from a user's YAML file."""

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from gpu_tenancy.base.bounds import value_problems
from gpu_tenancy.base.problems import Path, Problem, dotted, nearest
from gpu_tenancy.model.fields import Bytes, Count, Cpu, Positive, Section, WorkloadName
from gpu_tenancy.model.plan.pods import choices, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.schema import URI, Schema
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.model.yaml import Data, UnreadableError, read_yaml
from gpu_tenancy.simulation.stage import Job, JobStep

MOST_JOBS: Final = 1000
"""Most jobs of one entry of `submit`; their simulation takes seconds."""


class Submitted(Section):
    """A job to submit, or several that are alike."""

    name: WorkloadName
    """Name of the job; must be unique among current jobs."""
    team: str
    """Team whose queue gets the job."""
    jobs: Annotated[int, Field(ge=1, le=MOST_JOBS)] = 1
    """Number of such jobs, each admitted on its own; of several, the names are `NAME-1`, `NAME-2`, …"""
    flavor: str | None = None
    """Flavor to run on; may be omitted if the team has only one GPU flavor."""
    gpus: Count | None = None
    """GPUs of each pod; 0 for CPU jobs. Default: 1, or 0 if the team or the flavor has no GPUs."""
    pods: Positive = 1
    """Number of pods, which are admitted together."""
    cpu: Cpu | None = None
    """CPUs of each pod; default: the share of its GPUs in the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod; default: as for CPUs."""
    priority: str | None = None
    """Priority class; default: that of the team."""


class ScenarioStep(Section):
    """One step: jobs end, then jobs are submitted, one after the other."""

    label: str | None = None
    """Title of the step; default: what happens in it."""
    finish: list[str] = Field(default_factory=list[str])
    """Names of running or pending jobs that end; the name of several jobs that are alike ends all of them."""
    submit: list[Any] = Field(default_factory=list[Any])
    """Jobs to submit, in this order."""


class Scenario(Section):
    """Jobs over time, for `tenancy local demo` and `tenancy whatif --workloads`.

    Example:
        >>> Scenario.model_validate({"steps": [{"submit": [{"name": "big", "team": "a", "gpus": 8, "pods": 4}]}]})
    """

    steps: list[Any]
    """The steps, in order."""


def scenario_schema() -> Schema:
    """The JSON schema of a scenario file, joined from the schemas of scenarios, steps and jobs."""
    whole, step, job = (shape.model_json_schema(by_alias=True) for shape in (Scenario, ScenarioStep, Submitted))
    step["properties"]["submit"] |= {"items": {"$ref": "#/$defs/Submitted"}}
    whole["properties"]["steps"] |= {"items": {"$ref": "#/$defs/ScenarioStep"}}
    description = whole.pop("description").partition("\n")[0]
    return {
        "$schema": URI,
        **whole,
        "title": "Jobs over time",
        "description": description,
        "$defs": {"ScenarioStep": step, "Submitted": job},
    }


def scenario_schema_text() -> str:
    """The content of `stacks/scenarios/schema.json`."""
    return json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"


_NAMED: Final = 3
"""Most entries of `submit` or `finish` in the label of a step; beyond, it has the number of jobs."""


class ScenarioError(ValueError):
    """Problems of a scenario file, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def read_scenario(file: FilePath, tree: Tree) -> list[JobStep]:
    """Reads jobs over time; sizes and flavors default as in a stack's jobs. Raises ScenarioError with all problems."""
    try:
        found = read_yaml(file, str(file), instead="set --workloads to a YAML file with steps")
    except UnreadableError as error:
        line = f":{error.line}" if error.line else ""
        raise ScenarioError([f"{file}{line}: {error.rule}; {error.fix}"]) from error
    if not isinstance(found.data, dict):
        raise ScenarioError([f"{file}: must be a mapping; add steps, each with submit and finish"])
    source = Source(cast("Data", found.data), str(file), found.lines)
    unreadable = [
        replace(problem, file=str(file), line=source.line(problem.path)) for problem in value_problems(source.sections)
    ]
    return _read(source, tree, [*found.problems, *unreadable], readable=not unreadable)


def scenario_of(data: Data, tree: Tree) -> list[JobStep]:
    """As `read_scenario`, from plain data."""
    return _read(Source(data), tree, [], readable=True)


def _read(source: Source, tree: Tree, problems: list[Problem], *, readable: bool) -> list[JobStep]:
    steps = _Reader(tree, source, problems).steps() if readable else []
    if problems:
        ordered = sorted(problems, key=lambda problem: (problem.line or 0, dotted(problem.path)))
        raise ScenarioError(dict.fromkeys(str(problem) for problem in ordered))
    return steps


_Shape = TypeVar("_Shape", bound=Section)


class _Reader:
    """Reads each part separately, so that a problem does not hide another."""

    def __init__(self, tree: Tree, source: Source, problems: list[Problem]) -> None:
        self.problems = problems
        self._tree = tree
        self._source = source
        self._current = _CurrentJobs()

    def steps(self) -> list[JobStep]:
        self._shape(Scenario, self._source.sections, ())
        raw_steps = self._source.sections.get("steps")
        found: list[JobStep] = []
        for number, raw in enumerate(cast("list[Any]", raw_steps) if isinstance(raw_steps, list) else ()):
            at = ("steps", number)
            step = self._shape(ScenarioStep, raw, at)
            if step:
                found.append(self._step(number, step, at))
            else:
                self._current.add(raw)
        return found

    def _step(self, number: int, step: ScenarioStep, at: Path) -> JobStep:
        finished: list[str] = []
        for index, name in enumerate(step.finish):
            if name not in self._current:
                fix = nearest(name, self._current)
                self._wrong((*at, "finish", index), name, "is not a running or pending job", fix)
            finished += self._current.end(name)
        submitted: list[list[Job]] = []
        for index, raw in enumerate(step.submit):
            here = (*at, "submit", index)
            shaped = self._shape(Submitted, raw, here)
            if shaped and (alike := self._jobs(shaped, here)):
                submitted.append(alike)
            self._current.add(raw)
        jobs = tuple(job for entry in submitted for job in entry)
        entries = [f"{entry[0].name} to {entry[-1].name}" if len(entry) > 1 else entry[0].name for entry in submitted]
        parts = [f"finish {_listed(step.finish, len(finished))}"] if step.finish else []
        parts += [f"submit {_listed(entries, len(jobs))}"] if jobs else []
        return JobStep(f"{number + 1}. {step.label or '; '.join(parts) or 'no change'}", tuple(finished), jobs)

    def _jobs(self, entry: Submitted, at: Path) -> list[Job]:
        before = len(self.problems)
        stack = self._tree.stack
        names = _names(entry.name, entry.jobs)
        for name in dict.fromkeys((entry.name, *names)):
            if name in self._current:
                rule = "is already the name of a job"
                self._wrong((*at, "name"), name, rule, "finish that job first, or use another name")
        for key, noun, value, known in (
            ("team", "team", entry.team, stack.teams),
            ("flavor", "flavor", entry.flavor, self._tree.flavors),
            ("priority", "priority class", entry.priority, stack.priorities),
        ):
            if value is not None and value not in known:
                self._wrong((*at, key), value, f"is not a known {noun}", nearest(value, known))
        job = self._sized(entry, at) if len(self.problems) == before else None
        return [replace(job, name=name) for name in names] if job else []

    def _sized(self, entry: Submitted, at: Path) -> Job | None:
        tree, stack, gpus = self._tree, self._tree.stack, entry.gpus
        if gpus is None:
            with_gpus = (
                tree.flavors[entry.flavor].resource
                if entry.flavor
                else choices(tree, entry.team, Training.model_construct(gpus=1))
            )
            gpus = 1 if with_gpus else 0
        # Constructed, since its amounts are in base units already.
        training = Training.model_construct(
            flavor=entry.flavor, gpus=gpus, workers=entry.pods, cpu=entry.cpu, memory=entry.memory
        )
        size = pod_size(tree, entry.team, training)
        if size is None:
            shares = tree.team_shares.get(tree.queue_of(entry.team), {})
            known = [name for name in shares if tree.flavors[name].resource]
            rule = f"missing; team {entry.team} has {' and '.join(known) or 'no GPUs'}"
            self._wrong((*at, "flavor"), None, rule, "set one of them" if known else "set gpus to 0")
            return None
        if gpus and size.flavor.resource is None:
            self._wrong((*at, "flavor"), entry.flavor, f"has no GPUs, but the job requests {gpus}", "set gpus to 0")
            return None
        priority = entry.priority or stack.teams[entry.team].priority
        default = next((declared.value for declared in stack.priorities.values() if declared.default), 0)
        value = stack.priorities[priority].value if priority in stack.priorities else default
        queue = tree.queue_of(entry.team)
        return Job(entry.name, entry.team, queue, size.flavor.name, size.amounts, entry.pods, priority, value)

    def _shape(self, shape: type[_Shape], raw: Any, at: Path) -> _Shape | None:
        try:
            return shape.model_validate(raw)
        except ValidationError as error:
            for detail in error.errors():
                self._wrong((*at, *detail["loc"]), *_problem(detail, shape))
            return None

    def _wrong(self, path: Path, value: str | None, rule: str, fix: str) -> None:
        self.problems.append(Problem(path, rule, fix, value, file=self._source.file, line=self._source.line(path)))


_TYPES: Final = {
    "int_type": "must be an integer",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_too_short": "must not be empty",
}


def _problem(detail: ErrorDetails, shape: type[Section]) -> tuple[str | None, str, str]:
    context, value = detail.get("ctx", {}), detail["input"]
    written = None if isinstance(value, dict | list) else str(value)
    key = str(detail["loc"][0]) if detail["loc"] else ""
    field = shape.model_fields.get(key)
    means = (field.description or "").partition(". ")[0].rstrip(".") if field else "steps, each with submit and finish"
    match detail["type"]:
        case "stack":
            return written, context["rule"], context["fix"]
        case "extra_forbidden":
            return None, "unknown key", nearest(key, shape.model_fields)
        case "missing":
            return None, "missing", f"set it: {means}"
        case "greater_than_equal":
            return written, f"must be at least {context['ge']}", f"{key}: {means}"
        case "less_than_equal":
            return written, f"must be at most {context['le']}", f"{key}: {means}"
        case kind:
            rule = _TYPES.get(kind) or f"is not valid: {detail['msg'].lower()}"
            return written, rule, f"{key}: {means}" if key else means


def _listed(entries: list[str], jobs: int) -> str:
    return f"{jobs} jobs" if len(entries) > _NAMED else ", ".join(entries)


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{number + 1}" for number in range(count)]


class _CurrentJobs(dict[str, list[str]]):
    """Names of jobs that have not ended, also the common name of several equal jobs."""

    def add(self, raw: Any) -> None:
        """Records submitted jobs, valid or not, since a later step may end them."""
        if isinstance(raw, list):
            for item in cast("list[Any]", raw):
                self.add(item)
        if not isinstance(raw, dict):
            return
        keys = cast("dict[str, Any]", raw)
        name, count = keys.get("name"), keys.get("jobs", 1)
        if isinstance(name, str):
            names = _names(name, count if isinstance(count, int) and 1 <= count <= MOST_JOBS else 1)
            self.update({name: names, **{member: [member] for member in names}})
        self.add(keys.get("submit"))

    def end(self, name: str) -> list[str]:
        """Newest jobs first, so that pending ones usually end before running ones and none is admitted in between."""
        ended = [member for member in reversed(self.get(name, ())) if member in self]
        for member in (name, *ended):
            self.pop(member, None)
        # A common name is free when the last of its jobs has ended.
        for common in [common for common, names in self.items() if not any(member in self for member in names)]:
            del self[common]
        return ended


if __name__ == "__main__":
    sys.stdout.write(scenario_schema_text())
