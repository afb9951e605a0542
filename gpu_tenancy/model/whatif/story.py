"""Jobs over time, from a YAML file of the user."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, Final, TypeVar, cast

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from gpu_tenancy.model.bounds import value_problems
from gpu_tenancy.model.kueue import PodSet, Step, Workload
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem, dotted, nearest
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Positive, Section
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.model.written import Data, UnreadableError, read_yaml

_NAMED: Final = 3
"""Names of jobs in the label of a step; for more jobs it has only their number."""


class Submitted(Section):
    """A job to submit."""

    name: str = Field(min_length=1)
    """Name of the job; must be unique among current jobs."""
    team: str
    """Team whose queue gets the job."""
    flavor: str | None = None
    """Flavor to run on; may be omitted if the team has only one GPU flavor."""
    gpus: Count = 1
    """GPUs of each pod; 0 for CPU jobs."""
    pods: Positive = 1
    """Number of pods, which are admitted together."""
    cpu: Cpu | None = None
    """CPUs of each pod; default: the share of its GPUs in the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod; default: as for CPUs."""
    priority: str | None = None
    """Priority class; default: that of the team."""


class StoryStep(Section):
    """One step: jobs end, then jobs are submitted, one after the other."""

    label: str | None = None
    """Title of the step; default: what happens in it."""
    finish: list[str] = Field(default_factory=list[str])
    """Names of running or pending jobs that end."""
    submit: list[Any] = Field(default_factory=list[Any])
    """Jobs to submit, in this order."""


class Story(Section):
    """Steps; `submit` of each has jobs in the form of `Submitted`.

    Example:
        >>> Story.model_validate({"steps": [{"submit": [{"name": "big", "team": "a", "gpus": 8, "pods": 4}]}]})
    """

    steps: list[Any]
    """The steps, in order."""


class StoryError(ValueError):
    """A file with problems, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def read_story(file: FilePath, tree: Tree) -> list[tuple[str, Step]]:
    """Reads jobs over time, with the defaults for size and flavor of the stack's own jobs.

    Raises:
        StoryError: all problems of the file: place, value, rule and fix, one line each.
    """
    try:
        found = read_yaml(file, str(file), instead="set --workloads to a YAML file with steps")
    except UnreadableError as error:
        line = f":{error.line}" if error.line else ""
        raise StoryError([f"{file}{line}: {error.rule}; {error.fix}"]) from error
    if not isinstance(found.data, dict):
        raise StoryError([f"{file}: must be a mapping; add steps, each with submit and finish"])
    source = Source(cast("Data", found.data), str(file), found.lines)
    unreadable = [
        replace(problem, file=str(file), line=source.line(problem.path)) for problem in value_problems(source.sections)
    ]
    reader = _Reader(tree, source, [*found.problems, *unreadable])
    steps = reader.steps() if not unreadable else []
    if reader.problems:
        ordered = sorted(reader.problems, key=lambda each: (each.line or 0, dotted(each.path)))
        raise StoryError(dict.fromkeys(str(each) for each in ordered))
    return steps


_Shape = TypeVar("_Shape", bound=Section)


class _Reader:
    """Reads each part separately, so that a problem in one does not hide another."""

    def __init__(self, tree: Tree, source: Source, problems: list[Problem]) -> None:
        self.problems = problems
        self._tree = tree
        self._source = source
        self._there: set[str] = set()

    def steps(self) -> list[tuple[str, Step]]:
        self._shape(Story, self._source.sections, ())
        raw_steps = self._source.sections.get("steps")
        found: list[tuple[str, Step]] = []
        for number, raw in enumerate(cast("list[Any]", raw_steps) if isinstance(raw_steps, list) else ()):
            at = ("steps", number)
            step = self._shape(StoryStep, raw, at)
            if step:
                found.append(self._step(number, step, at))
            else:
                self._came(raw)
        return found

    def _step(self, number: int, step: StoryStep, at: Path) -> tuple[str, Step]:
        for index, name in enumerate(step.finish):
            if name not in self._there:
                self._wrong((*at, "finish", index), name, "is not a running or pending job", nearest(name, self._there))
            self._there.discard(name)
        came: list[Workload] = []
        for index, raw in enumerate(step.submit):
            here = (*at, "submit", index)
            job = self._shape(Submitted, raw, here)
            workload = self._workload(job, here) if job else None
            if workload:
                came.append(workload)
            self._came(raw)
        return _label(number, step, came), Step(tuple(came), tuple(step.finish))

    def _came(self, raw: Any) -> None:
        """Records the names of submitted jobs, valid or not: a later step may end them."""
        if isinstance(raw, dict):
            keys = cast("dict[str, Any]", raw)
            if isinstance(keys.get("name"), str):
                self._there.add(keys["name"])
            self._came(keys.get("submit"))
        elif isinstance(raw, list):
            for item in cast("list[Any]", raw):
                self._came(item)

    def _workload(self, job: Submitted, at: Path) -> Workload | None:
        """A job as its queue gets it; None where it has problems."""
        before = len(self.problems)
        stack = self._tree.stack
        if job.name in self._there:
            self._wrong(
                (*at, "name"), job.name, "is already the name of a job", "finish that job first, or use another name"
            )
        if job.team not in stack.teams:
            self._wrong((*at, "team"), job.team, "is not a known team", nearest(job.team, stack.teams))
        if job.flavor is not None and job.flavor not in self._tree.flavors:
            self._wrong((*at, "flavor"), job.flavor, "is not a known flavor", nearest(job.flavor, self._tree.flavors))
        if job.priority is not None and job.priority not in stack.priorities:
            self._wrong(
                (*at, "priority"),
                job.priority,
                "is not a known priority class",
                nearest(job.priority, stack.priorities),
            )
        return self._sized(job, at) if len(self.problems) == before else None

    def _sized(self, job: Submitted, at: Path) -> Workload | None:
        tree, stack = self._tree, self._tree.stack
        # Constructed, since its amounts are in base units already.
        training = Training.model_construct(
            flavor=job.flavor, gpus=job.gpus, workers=job.pods, cpu=job.cpu, memory=job.memory
        )
        size = pod_size(tree, job.team, training)
        if size is None:
            shares = tree.team_shares.get(tree.queue_of(job.team), {})
            known = [name for name in shares if tree.flavors[name].resource]
            rule = f"missing; team {job.team} has {' and '.join(known) or 'no GPUs'}"
            self._wrong((*at, "flavor"), None, rule, "set one of them")
            return None
        if job.gpus and size.flavor.resource is None:
            self._wrong((*at, "flavor"), job.flavor, f"has no GPUs, but the job requests {job.gpus}", "set gpus to 0")
            return None
        priority = job.priority or stack.teams[job.team].priority
        default = next((each.value for each in stack.priorities.values() if each.default), 0)
        value = stack.priorities[priority].value if priority in stack.priorities else default
        part = PodSet(size.amounts, job.pods, frozenset({size.flavor.name}))
        return Workload(job.name, tree.queue_of(job.team), (part,), value)

    def _shape(self, shape: type[_Shape], raw: Any, at: Path) -> _Shape | None:
        try:
            return shape.model_validate(raw)
        except ValidationError as error:
            for each in error.errors():
                self._wrong((*at, *each["loc"]), *_problem(each, shape))
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
    """Value, rule and fix of a validation error."""
    context, value = detail.get("ctx", {}), detail["input"]
    written = None if isinstance(value, dict | list) else str(value)
    key = str(detail["loc"][0]) if detail["loc"] else ""
    field = shape.model_fields.get(key)
    means = (field.description or "").rstrip(".") if field else "steps, each with submit and finish"
    match detail["type"]:
        case "stack":
            return written, context["rule"], context["fix"]
        case "extra_forbidden":
            return None, "unknown key", nearest(key, shape.model_fields)
        case "missing":
            return None, "missing", f"set it: {means}"
        case "greater_than_equal":
            return written, f"must be at least {context['ge']}", f"{key}: {means}"
        case kind:
            rule = _TYPES.get(kind) or f"is not valid: {detail['msg'].lower()}"
            return written, rule, f"{key}: {means}" if key else means


def _label(number: int, step: StoryStep, came: list[Workload]) -> str:
    if step.label:
        return f"{number + 1}. {step.label}"
    parts = [f"finish {_names(step.finish)}"] if step.finish else []
    parts += [f"submit {_names([job.name for job in came])}"] if came else []
    return f"{number + 1}. {'; '.join(parts) or 'no change'}"


def _names(names: list[str]) -> str:
    return f"{len(names)} jobs" if len(names) > _NAMED else ", ".join(names)
