"""The command `simulate`: runs recorded scenarios through the simulation of Kueue."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.writing import write_text


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(simulate)


def simulate(
    scenarios: Annotated[Path, typer.Option(help="File with one JSON scenario per line.")],
    out: Annotated[Path, typer.Option(help="File to write: admitted and pending workloads, one line per scenario.")],
) -> None:
    """Simulate how Kueue admits and preempts workloads, step by step and without a cluster.

    A scenario has cohorts, cluster queues, priority classes, and steps that submit or finish workloads.

    [dim]tenancy simulate --scenarios scenarios.jsonl --out observed.jsonl[/dim]
    """
    with terminal.errors():
        try:
            text = scenarios.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ConsoleError(
                f"--scenarios: {scenarios} is not a file", "specify a file with one JSON scenario per line"
            ) from error
        lines = [
            _observed(line, f"{scenarios}:{number}")
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip()
        ]
        write_text(out, "".join(f"{line}\n" for line in lines))
        terminal.out.print(f"{len(lines)} scenarios in {out}", highlight=False)


def _observed(line: str, place: str) -> str:
    from gpu_tenancy.kueue.scenarios import observe  # noqa: PLC0415 - `--help` can do without

    try:
        return json.dumps(observe(json.loads(line)))
    except json.JSONDecodeError as error:
        raise ConsoleError(f"{place}: not valid JSON: {error}", "write one JSON scenario per line") from error
    except KeyError as error:
        raise ConsoleError(f"{place}: missing key {error}", "add the key to the scenario") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{place}: invalid scenario: {error}", "correct the scenario") from error
