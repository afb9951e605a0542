"""The command `submit`: a job in the queue of a team from a few words."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.quantity import seconds
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.commands.jobs import followed
from gpu_tenancy.cli.commands.options import asking, team_of
from gpu_tenancy.cli.commands.usage import judged, read_for_fit
from gpu_tenancy.cli.lazy import lazily
from gpu_tenancy.model.names import NO_LAUNCHER, Launched, Runtime

with lazily():
    from gpu_tenancy.cluster import demand, pods
    from gpu_tenancy.explain import show
    from gpu_tenancy.jobs import job_files, submitting
    from gpu_tenancy.kube import client, errors


Mounts = Annotated[
    list[str] | None,
    typer.Option(help="Dataset or storage of the team by its PersistentVolumeClaim: CLAIM=PATH. Repeatable."),
]


def _count(written: object) -> int:
    """A number of GPUs. Raises BadParameter for anything else."""
    text = str(written)
    if text.isdecimal():
        return int(text)
    flavor, _, number = text.partition(":")
    fix = f"; write --gpus {number} --flavor {flavor}" if number.isdecimal() else ", such as 8"
    raise typer.BadParameter(f"{text} is not a number of GPUs{fix}")


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(help="After `--`: the command and its arguments; default: the image's.")
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="YAML file with a job as `training` of a stack has it: NAME: KEYS.", show_default=False
        ),
    ] = None,
    image: Annotated[str, typer.Option(help="Container image; required without --file.", show_default=False)] = "",
    name: Annotated[str, typer.Option(help="Name of the job; default: a generated one.", show_default=False)] = "",
    gpus: Annotated[
        int, typer.Option(metavar="NUMBER", parser=_count, help="GPUs of each pod; 0 for a job without.")
    ] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Number of pods, which all start together.")] = 1,
    flavor: Annotated[
        str, typer.Option(help="Flavor of the GPUs; default: any of the queue.", show_default=False)
    ] = "",
    framework: Annotated[
        Literal[Runtime, Launched],
        typer.Option(
            help="`job`: pods that know their index; `pytorch`, `jax`: a TrainJob; `ray`: a RayJob, whose head runs it."
            " `mpi`, `deepspeed`: only in the stack."
        ),
    ] = "job",
    priority: Annotated[str, typer.Option(help="Priority class; default: the team's.", show_default=False)] = "",
    deadline: Annotated[
        str | None, typer.Option(help="Maximum run time, such as 4h; default: none of its own.", show_default=False)
    ] = None,
    cpu: Annotated[str, typer.Option(help="CPUs of a pod; default: its GPUs' share.", show_default=False)] = "",
    memory: Annotated[
        str, typer.Option(help="Memory of a pod, such as 64Gi; default: as `--cpu`.", show_default=False)
    ] = "",
    env: Annotated[list[str] | None, typer.Option(help="Variable: NAME=VALUE. Repeatable.")] = None,
    secret: Annotated[
        list[str] | None, typer.Option(help="Variable with a key of a Secret: NAME=SECRET/KEY. Repeatable.")
    ] = None,
    mount: Mounts = None,
    code: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of code in which the command runs: at most 180 KiB compressed.",
            show_default=False,
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            metavar="CRON", help='Submit it by a CronJob: five fields in UTC, such as "0 2 * * *".', show_default=False
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Print its logs until it ends.")] = False,
    namespace: options.TeamOption = None,
    place: terminal.Place,
    verbose: options.Verbose = False,
    dry_run: options.DryRun = False,
) -> None:
    """Submit a job to the queue of your team, unless it can never be admitted.

    Queue, node selector, tolerations, CPU and memory are filled in by what your team has. It says first whether the job
    fits; if it does not, or with -v, it prints the checks of `tenancy fit`. Exit code 3: it does not fit and was not
    submitted; or, with --follow, the job failed.

    [dim]tenancy submit --image example.com/train:3 --gpus 8 --nodes 2 --framework pytorch -- torchrun train.py[/dim]
    """
    with asking(place) as cluster:
        if schedule and follow:
            raise UsageError("--schedule: cannot be combined with --follow", "remove one of them")
        if framework == "mpi" or framework == "deepspeed":  # noqa: PLR1714 - so that the types are narrowed
            fix = f"add the job to `training` of the stack with `framework: {framework}`, or use --framework pytorch"
            raise ConsoleError(f"--framework {framework}: {NO_LAUNCHER}", fix)
        team = team_of(cluster, None, namespace, "tenancy submit -n TEAM")
        wish = submitting.Wish(
            image,
            tuple(command or ()),
            name,
            gpus,
            nodes,
            flavor,
            framework,
            priority,
            None if deadline is None else ceil(seconds("--deadline", deadline)),
            cpu,
            memory,
            dict(pairs("--env", env)),
            {variable: _key(variable, source) for variable, source in pairs("--secret", secret)},
            dict(pairs("--mount", mount)),
            code=job_files.packed(code) if code else "",
        )
        if file:
            if wish != submitting.Wish(""):
                raise UsageError("--file: cannot be combined with options of the job", "set them in the file")
            wish = job_files.read_job(file, team)
        elif not image:
            raise UsageError("no image", "set --image, or --file")
        wish = replace(wish, user=options.user_of(cluster))
        with terminal.reported_if_slow("reading the cluster and running a dry run"):
            state = read_for_fit(cluster, team)
            manifest = submitting.job_of(wish, team, state, submitting.read_terms(cluster, team, state, wish.image))
            created = submitting.scheduled(manifest, schedule) if schedule else manifest
            if dry_run:
                sys.stdout.write(yaml.safe_dump(created, sort_keys=False))
                return
            (result,) = judged(cluster, team, state, [demand.demand(manifest, team)])
        brief = not verbose and result.verdict in {"now", "later"}
        submitted = _created(cluster, created) if result.verdict != "never" else None
        terminal.out.print(show.fitting(result, brief=brief), highlight=False)
        if submitted is None:
            terminal.error_line("not submitted, since it can never be admitted")
            raise typer.Exit(terminal.ExitCode.BLOCKED)
        title = f"{text_at(submitted, 'kind')} {team}/{text_at(submitted, 'metadata', 'name')}"
        where = f"queue {team}{' -v' if schedule else ''}"
        terminal.out.print(f"{title} submitted; `tenancy {where}` lists it", highlight=False)
        if follow:
            followed(cluster, submitted)


def _created(cluster: "client.Cluster", manifest: "dict[str, Any]") -> "pods.Manifest":
    """Creates the object. Raises ConsoleError if its name is in use."""
    try:
        return cluster.create(manifest)
    except errors.ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        place = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
        fix = f"set another --name, or run `tenancy cancel {place} --yes` first"
        raise ConsoleError(f"{manifest['kind']} {place} exists already", fix) from error


def pairs(option: str, written: Iterable[str] | None) -> Iterable[tuple[str, str]]:
    """Names and values of an option. Raises ConsoleError if there is no name or no value."""
    for text in written or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConsoleError(f"{option} {text}: no `=`", f"write it as {option} NAME=VALUE")
        yield name, value


def _key(variable: str, source: str) -> tuple[str, str]:
    secret, _, key = source.partition("/")
    if not (secret and key):
        fix = f"write it as --secret {variable}=SECRET/KEY"
        raise ConsoleError(f"--secret {variable}={source}: no Secret and key", fix)
    return secret, key
