"""Simulates Kueue for a file with a JSON scenario per line, each with its own queues and workloads.

`make simulate` runs it with a file of scenarios and a file to write: a line of JSON per scenario, with what is admitted
and pending after each step.
"""

import json
from pathlib import Path

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.kueue.scenarios import observe


def main(scenarios: Path, out: Path) -> None:
    """Writes the result of each scenario. Raises typer.Exit if the file cannot be read or has an invalid scenario."""
    with terminal.errors():
        try:
            text = scenarios.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError) as error:
            fix = "specify a file with one JSON scenario per line"
            raise ConsoleError(f"{scenarios} is not a file", fix) from error
        numbered = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
        write_text(out, "".join(f"{_observed(line, f'{scenarios}:{number}')}\n" for number, line in numbered))
        terminal.out.print(f"{len(numbered)} scenarios in {out}", highlight=False, markup=False)


def _observed(line: str, place: str) -> str:
    try:
        return json.dumps(observe(json.loads(line)))
    except json.JSONDecodeError as error:
        raise ConsoleError(f"{place}: not valid JSON: {error}", "write one JSON scenario per line") from error
    except KeyError as error:
        raise ConsoleError(f"{place}: missing key {error}", "add the key to the scenario") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{place}: invalid scenario: {error}", "correct the scenario") from error


if __name__ == "__main__":
    typer.run(main)
