"""Our own apply of 10 and 100 teams to an embedded platform of its own, stage by stage, beside a plain client.

`python -m benchmarks.apply` prints a table; `--teams 100` measures one size, `--json FILE` writes the numbers. The
floor is a thread pool that applies the same objects in the same order, and waits for nothing, to an empty platform.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from benchmarks.measuring import Watch, arguments, write
from benchmarks.projects import NAME, platform_in, prepared, project_of
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.local.up import Options, up

SIZES: Final = (10, 100)
FLOOR: Final = 8
"""Threads of the plain client, as many as our own apply has."""

_STAGES: Final = {
    "reading": "reading",
    "starting": "control plane",
    "restarting": "control plane",
    "installing": "definitions",
    "creating": "nodes",
    "applying": "apply",
    "waiting": "waiting",
    "verifying": "checks",
}
"""The stage that begins with a line, by the first word of the line."""

Seconds: TypeAlias = dict[str, float]


@dataclass
class Stages:
    """Seconds of each stage, by the lines that `up` reports; a stage that begins ends the one before."""

    seconds: Seconds = field(default_factory=dict[str, float])
    _now: str = ""
    _since: float = 0.0

    def __call__(self, line: str) -> None:
        """Takes a line of progress."""
        stage = _STAGES.get(line.partition(" ")[0])
        if stage and stage != self._now:
            self.end()
            self._now, self._since = stage, time.perf_counter()

    def end(self) -> None:
        """Ends the last stage."""
        if self._now:
            self.seconds[self._now] = self.seconds.get(self._now, 0) + time.perf_counter() - self._since
        self._now = ""


def measure(teams: int) -> dict[str, Seconds]:
    """Seconds of each stage of the first `up`, of the second one, and of the floor of both.

    Controllers of operators do not run, so that what is measured is ours and not theirs.
    """
    with TemporaryDirectory() as folder:
        project = project_of(Path(folder) / "project", teams)
        with platform_in(Path(folder) / "floor") as platform:
            floors = _floors(platform, project)
        with platform_in(Path(folder) / "up") as platform:
            rows = {turn: _up(platform, project) for turn in ("first", "again")}
    return {turn: {**row, "floor": floor} for (turn, row), floor in zip(rows.items(), floors, strict=True)}


def _up(platform: Platform, project: Path) -> Seconds:
    stages = Stages()
    whole = Watch.of(lambda: up(NAME, platform, stages, project, Options(controllers="none"))).wall
    stages.end()
    return {**stages.seconds, "whole": whole}


def _floors(platform: Platform, project: Path) -> tuple[float, float]:
    """Seconds to apply all objects to a platform with their definitions and nodes, and once more."""
    read = preview(NAME, project, onto=platform.kubeconfig)
    with prepared(platform, read) as cluster:
        manifests = [[dict(item.manifest) for item in wave] for wave in waves(read.objects)]
        first, again = (Watch.of(partial(_plainly, cluster, manifests)).wall for _ in range(2))
        return first, again


def _plainly(cluster: Cluster, manifests: Sequence[Sequence[Manifest]]) -> None:
    with ThreadPoolExecutor(FLOOR) as pool:
        for wave in manifests:
            list(pool.map(partial(cluster.apply, metadata_only=True), wave))


def main() -> None:
    """Measures every size and prints two rows for each: the first `up` and the second one."""
    given = arguments(__doc__).parse_args()
    columns = [*dict.fromkeys(_STAGES.values()), "whole"]
    print(f"teams  run    {'  '.join(columns)}  floor  apply / floor")
    measured: dict[int, dict[str, Seconds]] = {}
    for teams in [given.teams] if given.teams else SIZES:
        measured[teams] = measure(teams)
        for turn, row in measured[teams].items():
            cells = "  ".join(f"{row.get(column, 0):{len(column)}.1f}" for column in columns)
            print(f"{teams:5}  {turn:5}  {cells}  {row['floor']:5.1f}  {row['apply'] / row['floor']:.2f} x", flush=True)
    write(given.json, measured)


if __name__ == "__main__":
    main()
