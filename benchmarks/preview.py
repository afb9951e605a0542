"""The offline preview of 1, 10, 100 and 1,000 teams: time, memory and growth, each size in a process of its own.

`python -m benchmarks.preview` prints a table; `--json FILE` writes the same as JSON. `--teams 100` measures one size in
this process and prints JSON. The columns are of one process, except `by two`: the preview whose teams two processes
render. They are without imports of packages; those of the review have the report, the comment and both policy packs,
which take what is left of the cores.
"""

import json
import os
import platform
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.measuring import Watch, arguments, write

SIZES: Final = (1, 10, 100, 1000)
ROUNDS: Final = 3
CORES: Final = "GPU_TENANCY_CORES"
"""Environment variable with the number of processes that render a stack."""
PACKS: Final = ("workloads", "clouds")


def stack(teams: int) -> dict[str, Any]:
    """A stack of that many teams, each with a guarantee, a server, a job and budgets; a group for every ten."""
    groups = {f"group-{n}": {"parent": "org"} for n in range((teams + 9) // 10)}
    return {
        "environment": "benchmark",
        "cluster": {"cloud": "existing", "provides": ["networkPolicies", "resourceMetrics"]},
        "pools": {
            "cpu": {"machine": "m7i.8xlarge", "nodes": teams},
            "h100": {"machine": "p5.48xlarge", "nodes": 2 * teams},
        },
        "priorities": {"high": 1000, "low": {"value": 10, "preempts": False}},
        "cohorts": {"org": {}, **groups},
        "teams": {f"team-{n}": _team(n) for n in range(teams)},
    }


def _team(number: int) -> dict[str, Any]:
    return {
        "owner": f"owner-{number}",
        "costCenter": f"cc-{number}",
        "cohort": f"group-{number // 10}",
        "priority": "high",
        "gpus": {"h100": {"guaranteed": 8, "limit": 16}},
        "objects": {"pods": 100, "services": 10},
        "serving": {"server": {"image": "registry.example.com/server:1", "replicas": {"min": 1, "max": 4}}},
        "training": {"job": {"image": "registry.example.com/train:1", "workers": 2, "gpus": 4}},
    }


def measure(teams: int) -> dict[str, float]:
    """Seconds and the peak of memory in MiB, for one preview and one review in this process."""
    from gpu_tenancy.engine.isolation import relaxed_collector  # noqa: PLC0415 - not measured

    with relaxed_collector():  # as the command does
        return _measure(teams)


def _measure(teams: int) -> dict[str, float]:
    from gpu_tenancy.engine import files  # noqa: PLC0415 - not measured
    from gpu_tenancy.engine.checks import problems  # noqa: PLC0415 - not measured
    from gpu_tenancy.engine.objects import kubernetes_objects  # noqa: PLC0415 - not measured
    from gpu_tenancy.engine.project import Preview  # noqa: PLC0415
    from gpu_tenancy.engine.render import render  # noqa: PLC0415
    from gpu_tenancy.model.load import load  # noqa: PLC0415
    from gpu_tenancy.model.project import project_folder  # noqa: PLC0415
    from gpu_tenancy.model.source import Source, to_config  # noqa: PLC0415

    config = to_config(Source(stack(1)))
    render(project_folder(), project="gpu-tenancy", stack="imports", config=config)  # what a program imports
    began = Watch.now()
    source = Source(stack(teams))
    loaded = load(source)
    checked = Watch.now()
    rendered = render(project_folder(), project="gpu-tenancy", stack="benchmark", config=to_config(source))
    if found := problems(rendered):
        raise SystemExit("\n".join(found))
    done = Watch.now()
    with TemporaryDirectory() as folder:
        objects = len(files.write(kubernetes_objects(rendered), Path(folder) / "objects"))
        written = Watch.now()
    row = {
        "teams": teams,
        "objects": objects,
        "check": checked.since(began).wall,
        "render": done.since(checked).wall,
        "write": written.since(done).wall,
        "preview": written.since(began).wall,
        "preview cpu": written.since(began).cpu,
        "peak": _peak(resource.RUSAGE_SELF),
    }
    reviewed = _review(Preview("benchmark", loaded, rendered, kubernetes_objects(rendered), loaded))
    own, packs = _peak(resource.RUSAGE_SELF), _peak(resource.RUSAGE_CHILDREN)
    return {**row, "review": reviewed.wall, "review cpu": reviewed.cpu, "review peak": own, "pack peak": packs}


def _review(preview: Any) -> Watch:
    from gpu_tenancy.model.project import project_folder  # noqa: PLC0415 - not measured
    from gpu_tenancy.review.build import review  # noqa: PLC0415
    from gpu_tenancy.review.comment import comment  # noqa: PLC0415
    from gpu_tenancy.review.page import page  # noqa: PLC0415

    def work() -> None:
        done = review(preview, project_folder(), policies=PACKS)
        comment(done)
        page(done)

    return Watch.of(work)


def _peak(who: int) -> float:
    """The peak of memory in MiB; of children, that of the largest one."""
    return resource.getrusage(who).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)


def _in_process_of_its_own(teams: int, processes: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.preview", "--teams", str(teams)]
    environment = {**os.environ, CORES: str(processes)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _median(teams: int, rounds: int) -> dict[str, float]:
    """The row of one process whose processor time is in the middle, with the time of a preview by two processes."""
    rows = sorted((_in_process_of_its_own(teams, 1) for _ in range(rounds)), key=lambda row: row["preview cpu"])
    by_two = sorted(_in_process_of_its_own(teams, 2)["preview"] for _ in range(rounds))
    return {**rows[len(rows) // 2], "preview by two": by_two[len(by_two) // 2]}


def _line(row: dict[str, float], before: dict[str, float] | None) -> str:
    def growth(key: str) -> str:
        return f"{row[key] / before[key]:.1f} x" if before else "-"

    return (
        f"{row['teams']:5}  {row['objects']:7}  {row['check']:7.2f}  {row['render']:8.2f}  {row['write']:7.2f}"
        f"  {row['preview']:9.2f}  {row['preview by two']:6.2f}"
        f"  {row['preview cpu']:5.2f}  {growth('preview cpu'):>6}  {row['peak']:4.0f}"
        f"  {row['review']:8.2f}  {row['review cpu']:5.2f}  {growth('review cpu'):>6}  {row['review peak']:4.0f}"
    )


def main() -> None:
    """Measures every size and prints a row each; growth is of processor time, for ten times the teams."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="processes for each size, of which the median counts"
    )
    given = parser.parse_args()
    if given.teams:
        print(json.dumps(measure(given.teams)))
        return
    print(
        "teams  objects  check s  render s  write s  preview s  by two  CPU s  growth   MiB"
        "  review s  CPU s  growth   MiB"
    )
    rows: list[dict[str, float]] = []
    for size in SIZES:
        row = _median(size, given.rounds)
        print(_line(row, rows[-1] if rows else None), flush=True)
        rows.append(row)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    write(given.json, {"measured": measured, "machine": machine, "rows": rows})


if __name__ == "__main__":
    main()
