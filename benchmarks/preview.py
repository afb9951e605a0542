"""The offline preview of 1, 10, 100 and 1,000 teams: time, memory and growth, each in a process of its own.

`python -m benchmarks.preview` prints a table; `--teams 100` measures one size in this process, as JSON.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SIZES = (1, 10, 100, 1000)
ROUNDS = 3


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
    """Seconds of each stage and the peak of memory in MiB, for one preview in this process."""
    from gpu_tenancy.console.offline.objects import kubernetes_objects, problems, write  # noqa: PLC0415 - imports are a stage
    from gpu_tenancy.console.offline.render import render  # noqa: PLC0415
    from gpu_tenancy.console.project import project_folder  # noqa: PLC0415
    from gpu_tenancy.model.load import load  # noqa: PLC0415
    from gpu_tenancy.model.source import Source, to_config  # noqa: PLC0415

    began = time.perf_counter()
    source = Source(stack(teams))
    load(source)
    loaded = time.perf_counter()
    rendered = render(project_folder(), project="gpu-tenancy", stack="benchmark", config=to_config(source))
    done = time.perf_counter()
    if found := problems(rendered):
        raise SystemExit("\n".join(found))
    with TemporaryDirectory() as folder:
        objects = len(write(kubernetes_objects(rendered), Path(folder) / "objects"))
    written = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
    return {
        "objects": objects,
        "check": loaded - began,
        "render": done - loaded,
        "write": written - done,
        "peak": peak,
    }


def _in_process_of_its_own(teams: int) -> dict[str, float]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.preview", "--teams", str(teams)], capture_output=True, text=True, check=True
    )
    return {**json.loads(done.stdout), "whole": time.perf_counter() - began}


def _median(teams: int) -> dict[str, float]:
    rounds = sorted((_in_process_of_its_own(teams) for _ in range(ROUNDS)), key=lambda each: each["whole"])
    return rounds[len(rounds) // 2]


def main() -> None:
    """Measures every size and prints a row each, the last column being growth for ten times the teams."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--teams", type=int, help="measure one size in this process")
    teams = arguments.parse_args().teams
    if teams:
        print(json.dumps(measure(teams)))
        return
    print("teams  objects  whole s  check s  render s  write s  peak MiB  growth")
    before: float | None = None
    for size in SIZES:
        row = _median(size)
        growth = f"{row['whole'] / before:.1f} x" if before else "-"
        before = row["whole"]
        print(
            f"{size:5}  {row['objects']:7.0f}  {row['whole']:7.2f}  {row['check']:7.2f}  {row['render']:8.2f}"
            f"  {row['write']:7.2f}  {row['peak']:8.0f}  {growth:>6}",
            flush=True,
        )


if __name__ == "__main__":
    main()
