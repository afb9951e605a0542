"""Compares new figures with the recorded ones: `python -m benchmarks.comparing out/bench`.

Seconds are compared as multiples of the same work, because a virtual machine can be twice as fast on another day. A
record belongs to one kind of machine, so only large differences are printed. `--record` replaces the recorded figures.
"""

import argparse
import json
import shutil
import timeit
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

RECORDS: Final = Path(__file__).parent / "records"
TOLERANCE: Final = 1.25
"""Figures differ by less than this from run to run of a machine that does nothing else."""
YARDSTICK: Final = RECORDS / "yardstick.json"
"""The seconds that `yardstick` took when the figures were recorded."""
_NO_SECONDS: Final = ("teams", "objects", "cores", "peak")
"""Ends of the places of numbers that no machine makes larger by being slow."""


def yardstick() -> float:
    """Seconds of a fixed piece of work, the best of some rounds: how fast this machine is now."""
    return min(timeit.repeat(_work, number=1, repeat=5))


def _work() -> None:
    json.loads(json.dumps([{"name": str(number), "value": number % 7} for number in range(200_000)]))


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


def changes(before: Any, now: Any, slower: float = 1) -> Iterator[str]:
    """A line for each figure that differs by more than the tolerance; larger is worse.

    Args:
        before: the recorded figures.
        now: the new ones.
        slower: how many times as long the same work takes on the machine now; recorded seconds are shown as they would
            be on it.
    """
    recorded = dict(figures(before))
    for place, value in figures(now):
        old = recorded.get(place)
        if old is None or old < 0.1:  # noqa: PLR2004 - too short to compare
            continue
        old *= 1 if place.endswith(_NO_SECONDS) else slower
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
    now = yardstick()
    slower = now / json.loads(YARDSTICK.read_text())["seconds"] if YARDSTICK.is_file() else 1
    print(f"the machine needs {slower:.2f} times as long as when the figures were recorded")
    for file in sorted(given.folder.glob("*.json")):
        recorded = RECORDS / file.name
        if recorded.is_file():
            lines = list(changes(json.loads(recorded.read_text()), json.loads(file.read_text()), slower))
            print(f"{file.stem}: " + (f"{len(lines)} figures changed" if lines else "as recorded"))
            for line in lines:
                print(f"  {line}")
        else:
            print(f"{file.stem}: no record")
        if given.record:
            RECORDS.mkdir(exist_ok=True)
            shutil.copy(file, recorded)
    if given.record:
        YARDSTICK.write_text(json.dumps({"seconds": now}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
