"""Measures previews, the apply of 100 teams and the start of `tenancy`: `python -m benchmarks.bench`.

Each figure is a multiple of other work that the same run measures, because a virtual machine can be twice as fast on
another day: previews and reviews of a fixed piece of work, applies of a thread pool that applies the same objects in
the same order to an empty API server, and starts of an empty Python. Memory is in MiB. A figure that differs by more
than a quarter from the recorded one is marked. `--record` replaces the record.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import timeit
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from benchmarks.leftovers import kill_at_end
from benchmarks.preview import stack
from gpu_tenancy.base.texts import plural
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.local.up import Options, api_groups, up
from gpu_tenancy.model.project import project_folder

RECORD: Final = Path(__file__).with_name("record.json")
TOLERANCE: Final = 1.25  # figures differ by less than this from run to run of a machine that does nothing else
TEAMS: Final = (1, 100, 1000)
APPLIED: Final = 100  # teams whose objects are applied
STARTS: Final = {
    "tenancy --version": ("--version",),
    "tenancy usage --help": ("usage", "--help"),
}
_RUNS: Final = 7
_THREADS: Final = 8  # of the pool that applies without waiting, as many as our own apply has


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
    for name, arguments in STARTS.items():
        yield name, _least((tenancy, *arguments)) / empty


def _least(command: tuple[str, ...]) -> float:
    seconds: list[float] = []
    for _ in range(_RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def applies() -> Iterator[tuple[str, float]]:
    """`tenancy local up` and its apply, first and again, as multiples of a thread pool that applies the same objects.

    Controllers of operators do not run, because only our own work is measured.
    """
    with TemporaryDirectory() as folder:
        project = _project(Path(folder) / "project")
        with _platform(Path(folder) / "floor") as platform:
            floors = _floors(platform, project)
        with _platform(Path(folder) / "up") as platform:
            for turn, floor in zip(("first", "again"), floors, strict=True):
                moments: dict[str, float] = {}  # at which each stage begins, by the first word of the line of progress

                def report(line: str, moments: dict[str, float] = moments) -> None:
                    moments.setdefault(line.partition(" ")[0], time.perf_counter())

                whole = _seconds(lambda: up("benchmark", platform, report, project, Options(controllers="none")))
                yield f"apply of {APPLIED} teams, {turn}", (moments["waiting"] - moments["applying"]) / floor
                yield f"local up of {APPLIED} teams, {turn} ({whole:.1f} s)", whole / floor


def _project(folder: Path) -> Path:
    here = project_folder()
    (folder / "stacks").mkdir(parents=True)
    for name in ("components", "gpu_tenancy"):
        (folder / name).symlink_to(here / name)
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(here / name, folder)
    sections = stack(APPLIED)
    # In a file of their own: Pulumi does not start a program with a longer config.
    (folder / "stacks" / "teams.yaml").write_text(yaml.safe_dump(sections["teams"]), encoding="utf-8")
    config = {f"gpu-tenancy:{key}": value for key, value in {**sections, "teams": "teams.yaml"}.items()}
    file = folder / "stacks" / "Pulumi.benchmark.yaml"
    file.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
    return folder


@contextmanager
def _platform(home: Path) -> Generator[Platform]:
    """An embedded platform with this home, which is stopped and deleted at the end."""
    kill_at_end()
    platform = Platform(home)
    try:
        yield platform
    finally:
        platform.down()


def _floors(platform: Platform, project: Path) -> tuple[float, float]:
    """Seconds to apply all objects to a platform with their definitions and nodes, and once more."""
    declared = preview("benchmark", project, onto=platform.kubeconfig)
    definitions = fetch(needed(read_pins(), api_groups(declared.objects)), platform.cache, _quiet)
    platform.up(_quiet, files=definitions)
    with platform.cluster() as cluster, ThreadPoolExecutor(_THREADS) as pool:
        bring_nodes(cluster, node_shapes(declared.stack))
        manifests = [[dict(item.manifest) for item in wave] for wave in waves(declared.objects)]

        def plainly() -> None:
            for wave in manifests:
                list(pool.map(partial(cluster.apply, metadata_only=True), wave))

        return _seconds(plainly), _seconds(plainly)


def _quiet(_: str) -> None:
    """Reports nothing: preparation is not measured."""


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


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
    for measured in (starts, previews, applies):
        for label, value in measured():
            name = label.partition(" (")[0]  # without the seconds, which are for the reader
            found[name] = round(value, 2)
            print(f"{label:42} {value:8.2f}  {compared(value, recorded.get(name))}", flush=True)
    if given.record:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
