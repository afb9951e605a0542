"""The command `tenancy`: everything that is not the Pulumi program."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from console.errors import ConsoleError
from model.problems import StackError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="GPU platforms that teams share: previews without any credential, and a platform of your own to try them on.",
)

FINE: Final = 0
STACK_WRONG: Final = 1
PROMISE_BROKEN: Final = 2
INTERNAL: Final = 3

# Into a file or another program, lines are as long as what they say: nothing is cut for a terminal that is not there.
_out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 240)
_err = Console(stderr=True, soft_wrap=True)

StackName = Annotated[str, typer.Argument(help="A stack: stacks/Pulumi.<stack>.yaml")]
ProjectFolder = Annotated[
    Path | None, typer.Option(help="Folder of Pulumi.yaml, the program and stacks/, in place of this project's own.")
]


def _report(line: str) -> None:
    """A line of progress, beside what the command prints."""
    _err.print(f"[dim]· {line}[/dim]", highlight=False)


@contextmanager
def _errors(stack: str) -> Generator[None]:
    """Turns what may go wrong into sentences and exit codes."""
    from pulumi import RunError  # noqa: PLC0415 - `--help` can do without Pulumi's SDK

    from console.project import RenderError  # noqa: PLC0415 - as above
    from console.show import problems  # noqa: PLC0415 - as above

    try:
        yield
    except StackError as error:
        problems(_err, error.problems, f"stack {stack}")
        raise typer.Exit(STACK_WRONG) from error
    except RenderError as error:
        problems(_err, error.problems, f"what stack {stack} declares")
        raise typer.Exit(INTERNAL) from error
    # RunError: the program itself says what it lacks. FileExistsError: a file of the user's own is in the way.
    except (ConsoleError, RunError, FileExistsError) as error:
        _err.print(f"[red]error[/red] {escape(str(error))}", highlight=False)
        raise typer.Exit(STACK_WRONG) from error


@app.command()
def preview(
    stack: StackName,
    out: Annotated[Path | None, typer.Option(help="Folder for the Kubernetes objects, as YAML.")] = None,
    project: ProjectFolder = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="A policy pack that judges it: `workloads`, `clouds`, FOLDER, or FOLDER=CONFIG.json; may be repeated."
        ),
    ] = None,
) -> None:
    """What a stack will be, without cloud, cluster, login or Pulumi's CLI; 2 where a policy's rule is broken.

    [dim]tenancy preview local --out out/local --policy workloads --policy clouds[/dim]
    """
    with _errors(stack):
        from console import project as projects  # noqa: PLC0415 - as above
        from console import show  # noqa: PLC0415
        from console.offline.objects import write  # noqa: PLC0415
        from console.offline.releases import write_releases  # noqa: PLC0415
        from console.offline.tree import tree  # noqa: PLC0415
        from console.policies.choosing import choose  # noqa: PLC0415

        found = projects.preview(stack, project or projects.ROOT)
        chosen = [choose(each, found.stack.environment) for each in policy or ()]
        _out.print(tree(found.rendered))
        _out.print()
        _out.print(show.pools(found.stack))
        _out.print(f"[dim]{show.price_note(found.stack)}[/dim]", highlight=False)
        if out:
            written = write(found.objects, out / "objects")
            _out.print(f"{len(written)} objects in {out / 'objects'}")
            releases = write_releases(found.rendered, out / "releases")
            if releases:
                _out.print(f"{len(releases)} Helm releases with their values in {out / 'releases'}")
        if chosen:
            from console.policies.judging import judge  # noqa: PLC0415

            if not show.policies(_out, judge(found.rendered, chosen)):
                raise typer.Exit(PROMISE_BROKEN)


@app.command()
def up(
    stack: StackName = "local",
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("out"),
    project: ProjectFolder = None,
) -> None:
    """A stack on the embedded platform: a real API server and scheduler, with nodes that carry the pools' GPUs.

    By `pulumi up` where the CLI is on the PATH, else by server-side apply of the preview's objects.

    [dim]tenancy up local[/dim]
    """
    with _errors(stack):
        from console import show  # noqa: PLC0415 - as above
        from console.embedded.platform import Platform  # noqa: PLC0415
        from console.project import ROOT  # noqa: PLC0415
        from console.report import write_report  # noqa: PLC0415
        from console.up import up as bring_up  # noqa: PLC0415

        result = bring_up(stack, Platform(), _report, project or ROOT)
        show.outcome(_out, result)
        page = write_report(result, out / stack)
        _out.print(f"\nkubeconfig  {result.kubeconfig}\nreport      {page}")
        if not result.holds:
            raise typer.Exit(PROMISE_BROKEN)


@app.command()
def down() -> None:
    """Ends the embedded platform: no process and no file is left but what was built and downloaded.

    [dim]tenancy down[/dim]
    """
    with _errors(""):
        from console.embedded.platform import Platform  # noqa: PLC0415 - as above

        Platform().down()
        _out.print("the embedded platform is gone")


@app.command()
def status() -> None:
    """Which parts of the embedded platform run, and which stack it carries. Exit code 1 where a part does not run.

    [dim]tenancy status[/dim]
    """
    with _errors(""):
        from console.embedded.platform import Platform  # noqa: PLC0415 - as above

        platform = Platform()
        parts = platform.status()
        for part in parts:
            _out.print(f"{part.part:26}{f'pid {part.pid}' if part.runs else 'does not run'}", highlight=False)
        carried = platform.carried()
        if carried:
            _out.print(f"\nstack {carried[0]}, by {carried[1]}\nkubeconfig {platform.kubeconfig}", highlight=False)
        if not all(part.runs for part in parts):
            raise typer.Exit(STACK_WRONG)


@app.command()
def clouds() -> None:
    """What each cloud can do with a node pool: ways to buy machines, drivers, partitions, networks.

    [dim]tenancy clouds[/dim]
    """
    from console.catalogue import abilities_table  # noqa: PLC0415 - as above

    _out.print(abilities_table(), highlight=False)


@app.command()
def machines(
    cloud: Annotated[str | None, typer.Option(help="Only this cloud's: aws, gcp or azure.")] = None,
) -> None:
    """The machines that a stack may name, with what pods have of them and what they cost.

    [dim]tenancy machines --cloud gcp[/dim]
    """
    from console.catalogue import machines_table  # noqa: PLC0415 - as above
    from model.catalogue import cloud_tables  # noqa: PLC0415
    from model.problems import nearest  # noqa: PLC0415

    if cloud is not None and cloud not in cloud_tables():
        _err.print(f"[red]error[/red] there are no machines of {escape(cloud)}; {nearest(cloud, cloud_tables())}")
        raise typer.Exit(STACK_WRONG)
    _out.print(machines_table(cloud), highlight=False)


@app.command()
def schema(
    out: Annotated[Path | None, typer.Option(help="File to write; left out, it is printed.")] = None,
) -> None:
    """The JSON schema of a stack's file, by which editors check and complete.

    [dim]tenancy schema --out stacks/schema.json[/dim]
    """
    from model.schema import file_schema  # noqa: PLC0415 - as above

    text = json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"
    if out:
        out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


def main() -> None:
    """Runs the command; an error that nobody foresaw is 3, with its trace of calls for a bug report."""
    try:
        app()
    except Exception:  # noqa: BLE001 - the last place that could say it
        Console(stderr=True).print_exception(max_frames=20)
        sys.exit(INTERNAL)
