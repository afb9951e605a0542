"""Workloads over time, as a person writes them in YAML."""

from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any, Final, TypeVar, cast

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from gpu_tenancy.model.admission import PodSet, Step, Workload
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem, dotted, nearest
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.base import Bytes, Count, Cpu, Positive, Section
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.model.written import Data, UnreadableError, read_yaml

_NAMED: Final = 3
"""Jobs that a step's label names; of more it says how many."""


class Submitted(Section):
    """A job that comes."""

    name: str = Field(min_length=1)
    """What it is called from now on; no other job that is there may have the name."""
    team: str
    """Whose it is: it goes to the queue of this team."""
    flavor: str | None = None
    """Flavor to run on; left out where the team has only one of GPUs."""
    gpus: Count = 1
    """GPUs of each pod; 0 for work on CPUs."""
    pods: Positive = 1
    """Pods that run side by side, admitted together or not at all."""
    cpu: Cpu | None = None
    """Cpus of each pod; left out, what its GPUs bring of the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod, likewise."""
    priority: str | None = None
    """Priority class; left out, the team's."""


class StoryStep(Section):
    """What happens next: jobs end, then jobs come, each after the one before has come to rest."""

    label: str | None = None
    """What the step is called; left out, what happens in it."""
    finish: list[str] = Field(default_factory=list[str])
    """Names of jobs that end, whether they run or wait."""
    submit: list[Any] = Field(default_factory=list[Any])
    """Jobs that come, in this order."""


class Story(Section):
    """Steps of a story; in `submit` of each are jobs as `Submitted` says.

    Example:
        >>> Story.model_validate({"steps": [{"submit": [{"name": "big", "team": "a", "gpus": 8, "pods": 4}]}]})
    """

    steps: list[Any]
    """What happens, step by step."""


class StoryError(ValueError):
    """A story that cannot be played, with everything that is wrong in it, a line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def read_story(file: FilePath, tree: Tree) -> list[tuple[str, Step]]:
    """Reads workloads over time, and gives each the size and the flavor that the stack's own jobs would have.

    Raises:
        StoryError: with all that is wrong in the file: place, value, rule and mend, a line each.
    """
    try:
        found = read_yaml(file, str(file), instead="name a file of steps")
    except UnreadableError as error:
        line = f":{error.line}" if error.line else ""
        raise StoryError([f"{file}{line}: {error.rule}; {error.mend}"]) from error
    if not isinstance(found.data, dict):
        raise StoryError([f"{file}: is no mapping of keys; write steps, each with submit and finish"])
    reader = _Reader(tree, Source(cast("Data", found.data), str(file), found.lines), list(found.problems))
    steps = reader.steps()
    if reader.problems:
        ordered = sorted(reader.problems, key=lambda each: (each.line or 0, dotted(each.path)))
        raise StoryError(dict.fromkeys(str(each) for each in ordered))
    return steps


_Shape = TypeVar("_Shape", bound=Section)


class _Reader:
    """Reads each part by itself, so that a mistake in one hides none in another."""

    def __init__(self, tree: Tree, source: Source, problems: list[Problem]) -> None:
        self.problems = problems
        self._tree = tree
        self._source = source
        self._there: set[str] = set()

    def steps(self) -> list[tuple[str, Step]]:
        self._shape(Story, self._source.sections, ())
        said = self._source.sections.get("steps")
        found: list[tuple[str, Step]] = []
        for number, raw in enumerate(cast("list[Any]", said) if isinstance(said, list) else ()):
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
                self._wrong((*at, "finish", index), name, "is no job that is there", nearest(name, self._there))
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
        """Notes the names of what came, well formed or not: a later step may end it."""
        if isinstance(raw, dict):
            said = cast("dict[str, Any]", raw)
            if isinstance(said.get("name"), str):
                self._there.add(said["name"])
            self._came(said.get("submit"))
        elif isinstance(raw, list):
            for each in cast("list[Any]", raw):
                self._came(each)

    def _workload(self, job: Submitted, at: Path) -> Workload | None:
        """A job as the queue gets it; None where something is wrong with it."""
        before = len(self.problems)
        stack = self._tree.stack
        if job.name in self._there:
            self._wrong((*at, "name"), job.name, "is there already", "finish it first, or take another name")
        if job.team not in stack.teams:
            self._wrong((*at, "team"), job.team, "is no team", nearest(job.team, stack.teams))
        if job.flavor is not None and job.flavor not in self._tree.flavors:
            self._wrong((*at, "flavor"), job.flavor, "is no flavor", nearest(job.flavor, self._tree.flavors))
        if job.priority is not None and job.priority not in stack.priorities:
            self._wrong((*at, "priority"), job.priority, "is no class", nearest(job.priority, stack.priorities))
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
            rule = f"is missing, and team {job.team} has {' and '.join(known) or 'no GPUs'}"
            self._wrong((*at, "flavor"), None, rule, "write which")
            return None
        if job.gpus and size.flavor.resource is None:
            self._wrong((*at, "flavor"), job.flavor, f"has no GPUs, and the job asks for {job.gpus}", "write gpus: 0")
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
                self._wrong((*at, *each["loc"]), *_said(each, shape))
            return None

    def _wrong(self, path: Path, value: str | None, rule: str, mend: str) -> None:
        self.problems.append(Problem(path, rule, mend, value, file=self._source.file, line=self._source.line(path)))


_TYPES: Final = {
    "int_type": "is no whole number",
    "string_type": "is no text",
    "list_type": "is no list",
    "model_type": "is no mapping of keys",
    "model_attributes_type": "is no mapping of keys",
    "string_too_short": "is empty",
}


def _said(detail: ErrorDetails, shape: type[Section]) -> tuple[str | None, str, str]:
    """What a part's shape has wrong: value, rule and mend."""
    context, value = detail.get("ctx", {}), detail["input"]
    written = None if isinstance(value, dict | list) else str(value)
    key = str(detail["loc"][0]) if detail["loc"] else ""
    field = shape.model_fields.get(key)
    means = (field.description or "").rstrip(".") if field else "steps, each with submit and finish"
    match detail["type"]:
        case "stack":
            return written, context["rule"], context["mend"]
        case "extra_forbidden":
            return None, "is no key here", nearest(key, shape.model_fields)
        case "missing":
            return None, "is missing", f"write it: {means}"
        case "greater_than_equal":
            return written, f"is less than {context['ge']}", f"it says: {means}"
        case kind:
            rule = _TYPES.get(kind) or f"is not right: {detail['msg'].lower()}"
            return written, rule, f"it says: {means}"


def _label(number: int, step: StoryStep, came: list[Workload]) -> str:
    if step.label:
        return f"{number + 1}. {step.label}"
    parts = [_happens(step.finish, "ends", "end")] if step.finish else []
    parts += [_happens([job.name for job in came], "comes", "come")] if came else []
    return f"{number + 1}. {'; '.join(parts) or 'nothing happens'}"


def _happens(names: list[str], one: str, several: str) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} jobs {several}"
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    return f"{listed} {one if len(names) == 1 else several}"
