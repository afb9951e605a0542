"""Measures previews and the start of `tenancy`: `python -m benchmarks.bench`.

Each figure is a multiple of other work that the same run measures, because a virtual machine can be twice as fast on
another day: previews and reviews of a fixed piece of work, and starts of an empty Python. Memory is in MiB. A figure
that differs by more than a quarter from the recorded one is marked. `--record` replaces the record.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator, Mapping
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Final

from gpu_tenancy.base.texts import plural

RECORD: Final = Path(__file__).with_name("record.json")
TOLERANCE: Final = 1.25  # figures differ by less than this from run to run of a machine that does nothing else
TEAMS: Final = (1, 100, 1000)
STARTS: Final = {"tenancy --version": ("--version",), "tenancy usage --help": ("usage", "--help")}
_RUNS: Final = 7


def previews() -> Iterator[tuple[str, float]]:
    """Processor time of previews and reviews as multiples of a fixed piece of work, and memory in MiB."""

    def fixed() -> None:
        json.loads(json.dumps([{"name": str(number), "value": number % 7} for number in range(200_000)]))

    for teams in TEAMS:
        work = min(timeit.repeat(fixed, timer=time.process_time, number=1, repeat=5))
        command = [sys.executable, "-m", "benchmarks.preview", str(teams)]
        environment = {**os.environ, "GPU_TENANCY_CORES": "1"}
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(ended.stdout)
        size = plural(teams, "team")
        yield f"preview of {size} ({row['seconds']:.1f} s)", row["preview"] / work
        yield f"review of {size}", row["review"] / work
        yield f"memory of a preview of {size}", row["memory"]


def starts() -> Iterator[tuple[str, float]]:
    """Processor time of commands as multiples of an empty Python's, each the minimum of some runs."""
    empty = _least((sys.executable, "-c", ""))
    tenancy = str(Path(sys.executable).with_name("tenancy"))
    yield from ((name, _least((tenancy, *arguments)) / empty) for name, arguments in STARTS.items())


def _least(command: tuple[str, ...]) -> float:
    seconds: list[float] = []
    for _ in range(_RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def compared(value: float, recorded: float | None) -> str:
    """A figure with its ratio to the recorded one; larger is worse."""
    if recorded is None:
        return "not recorded"
    verdict = "worse" if value > recorded * TOLERANCE else "better" if value * TOLERANCE < recorded else "as recorded"
    return f"{recorded:.2f}, {verdict}"


def main() -> None:
    """Prints a line for each figure: its multiple or MiB, and the recorded one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="make these the recorded figures")
    given = parser.parse_args()
    recorded: Mapping[str, float] = json.loads(RECORD.read_text(encoding="utf-8"))
    found: dict[str, float] = {}
    for measured in (starts, previews):
        for label, value in measured():
            name = label.partition(" (")[0]  # without the seconds, which are for the reader
            found[name] = round(value, 2)
            print(f"{label:42} {value:8.2f}  {compared(value, recorded.get(name))}", flush=True)
    if given.record:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
