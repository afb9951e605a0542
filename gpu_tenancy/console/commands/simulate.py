"""The command that asks the simulation of Kueue what it would have done in recorded scenarios."""

import json
from pathlib import Path
from typing import Annotated

import typer

from gpu_tenancy.console import terminal
from gpu_tenancy.console.errors import ConsoleError


def register(app: typer.Typer) -> None:
    """Adds this command."""
    app.command()(simulate)


def simulate(
    scenarios: Annotated[Path, typer.Option(help="Scenarios, one JSON object a line.")],
    out: Annotated[Path, typer.Option(help="File for what is admitted and what waits, a line for each scenario.")],
) -> None:
    """What Kueue would do with submissions step by step, without a cluster.

    A scenario has cohorts, cluster queues, priorities and steps that submit or finish workloads.

    [dim]tenancy simulate --scenarios scenarios.jsonl --out observed.jsonl[/dim]
    """
    with terminal.errors():
        try:
            text = scenarios.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ConsoleError(f"there is no file {scenarios}", "name the file of scenarios") from error
        lines = [
            _observed(line, f"{scenarios}:{number}")
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip()
        ]
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        terminal.out.print(f"{len(lines)} scenarios in {out}", highlight=False)


def _observed(line: str, place: str) -> str:
    from gpu_tenancy.model.admission.scenarios import observe  # noqa: PLC0415 - `--help` can do without

    try:
        return json.dumps(observe(json.loads(line)))
    except json.JSONDecodeError as error:
        raise ConsoleError(f"{place} is no JSON: {error}", "write one scenario a line") from error
    except KeyError as error:
        raise ConsoleError(f"{place}: the scenario has no {error}", "write it as in the others") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{place}: {error}", "write the scenario as in the others") from error
