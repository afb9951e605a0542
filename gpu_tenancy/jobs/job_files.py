"""A job in a file with the keys that `training` of a stack has, so that it can move into a stack as it is."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path as FilePath
from typing import Final, cast, get_args

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import Path, Problem, StackError
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.jobs.submitting import Wish
from gpu_tenancy.model.load import draft
from gpu_tenancy.model.names import NO_LAUNCHER, Launched, Runtime
from gpu_tenancy.model.plan.secrets import literals
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.model.yaml import Data, UnreadableError, read_yaml

_TAKEN: Final = frozenset(
    {
        "image", "command", "args", "env", "flavor", "gpus", "cpu", "memory", "datasets", "volumes", "priority",
        "framework", "workers", "deadline", "shared_memory", "scratch", "movable", "retries", "keep",
    }
)  # fmt: skip
"""Fields of a job that `Wish` has too."""
_OF_RUNTIME: Final = frozenset({"keep", "retries"})
"""Those that a TrainJob has no field for: they are in a TrainingRuntime, which researchers may not create."""


def read_job(file: FilePath, team: str) -> Wish:
    """The one job of a file, as NAME: KEYS.

    Args:
        file: YAML, as in `teams.<team>.training` of a stack.
        team: the namespace.

    Raises:
        ConsoleError: the file cannot be read, or has not one job.
        StackError: a key is wrong, or only a stack can have it.
    """
    shown = str(file)
    around: Path = ("teams", team, "training")
    try:
        content = read_yaml(file, shown, instead="set --file to a YAML file with a job")
    except UnreadableError as error:
        raise ConsoleError(f"{shown}{f':{error.line}' if error.line else ''}: {error.rule}", error.fix) from error
    lines: dict[Path, int] = {(*around, *path): line for path, line in content.lines.items()}
    # What is around the job has no problems: only those of the job are reported.
    of_team: Data = {"owner": "x", "costCenter": "x", "training": {} if content.data is None else content.data}
    source = Source({"pools": {}, "teams": {team: of_team}}, shown, lines)
    read = draft(source)
    problems = [replace(problem, path=(*around, *problem.path)) for problem in content.problems]
    problems += read.problems
    jobs = read.stack.teams[team].training if read.stack and team in read.stack.teams else {}
    if not problems and len(jobs) != 1:
        raise ConsoleError(f"{shown}: has {len(jobs)} jobs", "write one, as NAME: KEYS, such as `nightly: {image: …}`")
    for name, job in jobs.items():
        path = (*around, name)
        found = (replace(problem, file=shown, line=source.line(problem.path)) for problem in _of_stacks(path, job))
        problems += found
    if problems:
        raise StackError(problems)
    (name, job), *_ = jobs.items()
    return _wish(name, job)


def _of_stacks(path: Path, job: Training) -> Iterator[Problem]:
    """What only a stack can have."""
    fix = f"remove it, or add the job to teams.{path[1]}.training of the stack"
    for field in sorted(job.model_fields_set - _TAKEN):
        yield Problem((*path, to_camel(field)), "is not a key of jobs that you submit", fix)
    if job.framework not in get_args(Runtime):
        rule = "is not a kind of jobs that you submit"
        if job.framework in get_args(Launched):
            rule += f": {NO_LAUNCHER}"
        yield Problem((*path, "framework"), rule, fix, job.framework)
    if job.kind.runtime:
        for field in sorted(job.model_fields_set & _OF_RUNTIME):
            yield Problem((*path, field), f"is not a key of jobs that you submit with framework: {job.framework}", fix)
    if job.elastic:
        yield Problem((*path, "workers"), "sets min and max, which jobs that you submit cannot have", fix)
    for name, variable in job.env.items():
        if variable.value is None and variable.secret is None:
            yield Problem((*path, "env", name), "is neither a text nor a key of a Secret", fix)


def _wish(name: str, job: Training) -> Wish:
    return Wish(
        job.image,
        tuple(job.command),
        name,
        job.gpus,
        job.workers.max,
        job.flavor or "",
        cast("Runtime", job.framework),
        job.priority or "",
        None if job.deadline is None else ceil(job.deadline),
        "" if job.cpu is None else format_amount(CPU, job.cpu),
        "" if job.memory is None else format_amount(MEMORY, job.memory),
        literals(job.env),
        {key: (variable.secret, variable.key or "") for key, variable in job.env.items() if variable.secret},
        {**job.datasets, **job.volumes},
        args=tuple(job.args),
        datasets=frozenset(job.datasets),
        shared_memory=job.shared_memory,
        scratch=job.scratch,
        stays=job.stays,
        retries=job.retries,
        keep=int(job.keep),
    )
