"""Compares new figures with the recorded ones: `python -m benchmarks.comparing out/bench`.

A record belongs to one machine, so only large differences are printed. `--record` replaces the recorded figures.
"""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

RECORDS: Final = Path(__file__).parent / "records"
TOLERANCE: Final = 1.25
"""Figures differ by less than this from run to run of a machine that does nothing else."""


def figures(measured: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Each number of a JSON document by its path, such as `100 / first / apply`."""
    if isinstance(measured, dict):
        children = list(cast("Mapping[str, Any]", measured).items())
    elif isinstance(measured, list):
        children = [(str(number), item) for number, item in enumerate(cast("list[Any]", measured))]
    else:
        children = []
        if isinstance(measured, int | float):
            yield place, float(measured)
    for key, value in children:
        yield from figures(value, f"{place} / {key}" if place else key)


def changes(before: Any, now: Any) -> Iterator[str]:
    """A line for each figure that differs by more than the tolerance; larger is worse."""
    recorded = dict(figures(before))
    for place, value in figures(now):
        old = recorded.get(place)
        if old is None or old < 0.1:  # noqa: PLR2004 - too short to compare
            continue
        if value > old * TOLERANCE:
            yield f"{place}: {old:.1f} → {value:.1f}, worse"
        elif value * TOLERANCE < old:
            yield f"{place}: {old:.1f} → {value:.1f}, better"


def main() -> None:
    """Prints what changed in each file of a folder."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path, help="folder of JSON files")
    arguments.add_argument("--record", action="store_true", help="make these the recorded figures")
    given = arguments.parse_args()
    for file in sorted(given.folder.glob("*.json")):
        recorded = RECORDS / file.name
        if recorded.is_file():
            lines = list(changes(json.loads(recorded.read_text()), json.loads(file.read_text())))
            print(f"{file.stem}: " + (f"{len(lines)} figures changed" if lines else "as recorded"))
            for line in lines:
                print(f"  {line}")
        else:
            print(f"{file.stem}: no record")
        if given.record:
            RECORDS.mkdir(exist_ok=True)
            shutil.copy(file, recorded)


if __name__ == "__main__":
    main()
