"""Commands for the embedded platform: start it with a stack, show its status, remove it."""

import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.markup import escape
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import command
from gpu_tenancy.base.terminal import ProjectFolder, StackName
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.cluster import contexts
    from gpu_tenancy.embedded import parts as embedded_parts
    from gpu_tenancy.embedded import platform as embedded_platform
    from gpu_tenancy.embedded import processes
    from gpu_tenancy.engine import project as rendering
    from gpu_tenancy.local import metrics as local_metrics
    from gpu_tenancy.local import report, show
    from gpu_tenancy.local import up as local_up
    from gpu_tenancy.model import project as projects
    from gpu_tenancy.review import page as review_page


Controllers: TypeAlias = Literal["all", "none"]
Service: TypeAlias = Literal["eks", "gke", "aks"]


def up(
    stack: StackName = "local",
    out: Annotated[Path, typer.Option(help="Folder for the report; it is written to OUT/<stack>.")] = Path("out"),
    project: ProjectFolder = None,
    controllers: Annotated[
        Controllers, typer.Option(help="Run the controllers of the stack's operators, such as Kueue, or none.")
    ] = "all",
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete another stack that the platform carries, with everything on it.")
    ] = False,
    service: Annotated[
        Service | None, typer.Option("--as", help="Admit as the API servers of EKS, GKE or AKS do; default: unchanged.")
    ] = None,
) -> None:
    """Deploy a stack to the embedded platform: an API server and scheduler on this machine, with simulated GPU nodes.

    Uses `pulumi up` if pulumi is on the PATH, otherwise server-side apply. Exit code 3 if a guarantee is not met.

    [dim]tenancy local up local[/dim]
    """
    with terminal.errors(stack):

        def foreshow(preview: "rendering.Preview") -> None:
            page = review_page.write_forecast(preview, out / stack)
            terminal.report(f"preview of the stack: {page}")

        options = local_up.Options(controllers=controllers, replace=replace, foreshow=foreshow, service=service or "")
        folder = projects.project_folder(project)
        result = local_up.up(stack, embedded_platform.Platform(), terminal.report, folder, options)
        show.outcome(terminal.out, result)
        page = report.write_report(result, out / stack)
        terminal.out.print(escape(f"\nkubeconfig  {result.kubeconfig}\nreport      {page}"))
        terminal.out.print("\nnext")
        where = "" if contexts.uses_embedded() else " --embedded"
        for step in show.next_steps(result, out / stack):
            terminal.out.print(command(f"  {terminal.program()} {step}{where}"), highlight=False)
        terminal.out.print(f"\n{escape(str(result.composition))}", highlight=False)
        if result.verdict.tone == "bad":
            raise typer.Exit(terminal.ExitCode.BLOCKED)


def metrics(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any free one.")] = 9400,
    out: Annotated[Path, typer.Option(help="Folder for the files; they are written to OUT/<stack>/metrics.")] = Path(
        "out"
    ),
    project: ProjectFolder = None,
) -> None:
    """Serve metrics of the embedded platform to a Prometheus on this machine, until interrupted.

    Objects as kube-state-metrics names them, and simulated values of GPUs as dcgm-exporter names them. Writes the
    configuration of a Prometheus that reads them and Kueue's own metrics, and of a Grafana with the stack's dashboards.
    Any program on this machine can read the metrics.

    [dim]tenancy local metrics[/dim]
    """
    platform = embedded_platform.Platform()
    carried = platform.carried()
    if carried is None:
        raise ConsoleError("the embedded platform has no stack", "run `tenancy local up`")
    stack = options.tree_of(carried.name, project).written
    folder = out / carried.name / "metrics"
    with local_metrics.serving(platform, stack, port, folder) as server:
        sys.stdout.write(f"{folder / 'prometheus.yml'}\n")
        sys.stdout.flush()
        where = f"http://{embedded_parts.LOOPBACK}:{server.server_port}"
        hint = f"serving {where} until Ctrl-C; start Prometheus with this file"
        terminal.err.print(hint, highlight=False, style="dim")
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def down() -> None:
    """Stop the embedded platform and delete its data. Downloaded and built programs are kept.

    [dim]tenancy local down[/dim]
    """
    platform = embedded_platform.Platform()
    with platform.deploying(terminal.report):  # else an `up` would go on without the platform
        platform.down(terminal.report)
    terminal.out.print("embedded platform removed")


def status(output: Output = None) -> None:
    """Show which parts of the embedded platform are running, and its stack. Exit code 1 if a part is not running.

    [dim]tenancy local status[/dim]
    """
    platform = embedded_platform.Platform()
    parts = platform.status()
    table = terminal.table("part", "state")
    for part in parts:
        table.add_row(part.part, f"pid {part.pid}" if part.pid else "not running")
    stack, more = None, list[str]()
    if carried := platform.carried():
        stack = {"stack": carried.name, "engine": carried.engine, "kubeconfig": str(platform.kubeconfig)}
        more += [f"\nstack       {carried.name}, deployed with {carried.engine}"]
        more += [f"kubeconfig  {platform.kubeconfig}"]
    answer(output, {"parts": [asdict(part) for part in parts], "deployed": stack}, table, *map(Text, more))
    exited = [part.part for part in parts if not part.pid]
    for part in exited if len(exited) < len(parts) else ():
        log = platform.places.log(part)
        problem = f"\n{part} exited. Last log lines ({log}):\n{processes.tail(log)}"
        terminal.err.print(escape(problem), highlight=False)
    if exited:
        raise typer.Exit(terminal.ExitCode.ERROR)
