"""Sources of a submitted job: a file with the keys of `training` in a stack, and a folder of code.

A job in a file can move into a stack unchanged. The archive of the code is an annotation of the pods, which the kubelet
shows as a file and which ends with the job: a researcher may not create ConfigMaps, and there may be no registry.
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import base64
import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Final, cast, get_args

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import Path, Problem, StackError
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.jobs.submitting import Wish
from gpu_tenancy.model.load import draft
from gpu_tenancy.model.names import NO_LAUNCHER, Launched, Runtime
from gpu_tenancy.model.plan.secrets import literals
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.workloads import Training
from gpu_tenancy.model.yaml import Data, UnreadableError, read_yaml

# Fields of a job that `Wish` has too.
_TAKEN: Final = frozenset(
    {
        "image", "command", "args", "env", "flavor", "gpus", "cpu", "memory", "datasets", "volumes", "priority",
        "framework", "workers", "deadline", "shared_memory", "scratch", "movable", "retries", "keep",
    }
)  # fmt: skip
_OF_RUNTIME: Final = frozenset({"keep", "retries"})  # in a TrainingRuntime, which researchers may not create


def read_job(file: FilePath, team: str) -> Wish:
    """Reads the one job of a YAML file, as NAME: KEYS, with the keys of `teams.<team>.training` of a stack.

    Raises ConsoleError if the file is not readable or does not have one job, StackError if a key is wrong or only for
    stacks.
    """
    shown = str(file)
    around: Path = ("teams", team, "training")
    try:
        content = read_yaml(file, shown, instead="set --file to a YAML file with a job")
    except UnreadableError as error:
        raise error.at(file) from error
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
        problems += (replace(problem, file=shown, line=source.line(problem.path)) for problem in _of_stacks(path, job))
    if problems:
        raise StackError(problems)
    (name, job), *_ = jobs.items()
    return _wish(name, job)


def _of_stacks(path: Path, job: Training) -> Iterator[Problem]:
    # Keys that only a stack can have.
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
        job.deadline,
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
        keep=job.keep,
    )


# Bytes of the archive. All annotations of an object have at most 256 KiB, and base64 makes four bytes of three:
# https://github.com/kubernetes/kubernetes/blob/v1.34.0/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go
LARGEST: Final = 180 * 1024
# Folders without code, for folders outside of git.
_LEFT_OUT: Final = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".ipynb_checkpoints"})
_SHOWN: Final = 3


def packed(folder: FilePath) -> str:
    """Files of a folder, except files that git ignores, as the value of the annotation; deterministic.

    Raises ConsoleError if it is not a folder, has no files, or they are too large.
    """
    if not folder.is_dir():
        raise ConsoleError(f"--code {folder}: is not a folder", "set the folder in which the command is to run")
    names = sorted(_of_git(folder) or _walked(folder))
    if not names:
        raise ConsoleError(f"--code {folder}: has no files", "add the code, or check .gitignore")
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed_, tarfile.open(fileobj=packed_, mode="w") as tar:
        for name in names:
            _add(tar, folder, name)
    if (size := len(content.getvalue())) > LARGEST:
        sizes = {name: (folder / name).lstat().st_size for name in names}
        largest = sorted(sizes, key=lambda name: -sizes[name])
        raise ConsoleError(
            f"--code {folder}: {size // 1024} KiB compressed exceed {LARGEST // 1024} KiB; largest files:"
            f" {first_names(largest, _SHOWN)}",
            "list what is not code in .gitignore, or bring it by the image, or by a claim of the team with --mount",
        )
    return base64.b64encode(content.getvalue()).decode()


def _add(tar: tarfile.TarFile, folder: FilePath, name: str) -> None:
    """Adds a file or a link without its owner and times."""
    file = folder / name
    entry = tar.gettarinfo(file, name)
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    if entry.isreg() or entry.islnk():
        entry.type, entry.linkname, content = tarfile.REGTYPE, "", file.read_bytes()
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    elif entry.issym():
        tar.addfile(entry)


def _of_git(folder: FilePath) -> list[str]:
    """Files that git does not ignore; empty outside of a work tree."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return []
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name} if done.returncode == 0 else set[str]()
    return [name for name in names if (folder / name).is_symlink() or (folder / name).is_file()]


def _walked(folder: FilePath) -> Iterator[str]:
    for above, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        found = (FilePath(above, name) for name in files)
        yield from (str(file.relative_to(folder)) for file in found if file.is_symlink() or file.is_file())
