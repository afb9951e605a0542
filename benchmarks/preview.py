"""One offline preview and one review of a stack of many teams: `python -m benchmarks.preview 100` prints JSON.

`benchmarks.bench` starts a process of its own for each size. Imports are not measured.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpu_tenancy.engine import files, relaxed_collector
from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import project_folder
from gpu_tenancy.model.source import Source, to_config


def stack(teams: int) -> dict[str, Any]:
    """A stack of `teams` teams, each with a guarantee, a server, a job and budgets; a group for every ten."""
    groups = {f"group-{n}": {"parent": "org"} for n in range((teams + 9) // 10)}
    return {
        "environment": "benchmark",
        "cluster": {"cloud": "existing", "provides": ["networkPolicies", "resourceMetrics"]},
        "pools": {
            "cpu": {"machine": "m7i.8xlarge", "nodes": teams},
            "h100": {"machine": "p5.48xlarge", "nodes": 2 * teams},
        },
        "priorities": {"high": 1000, "low": 10},
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


@relaxed_collector()  # as the command does
def measure(teams: int) -> dict[str, float]:
    """Seconds of a preview, processor seconds of it and a review (report, comment, both packs), peak memory in MiB."""
    folder = project_folder()
    render(folder, project="gpu-tenancy", stack="imports", config=to_config(Source(stack(1))))
    began, before = time.perf_counter(), _processor()
    source = Source(stack(teams))
    loaded = load(source)
    rendered = render(folder, project="gpu-tenancy", stack="benchmark", config=to_config(source))
    if found := problems(rendered):
        raise SystemExit("\n".join(found))
    objects = kubernetes_objects(rendered)
    with TemporaryDirectory() as out:
        files.write(objects, Path(out) / "objects")
        seconds, previewed = time.perf_counter() - began, _processor()
    memory = _peak()

    from gpu_tenancy.review.build import review  # noqa: PLC0415 - no memory of the preview
    from gpu_tenancy.review.comment import comment  # noqa: PLC0415
    from gpu_tenancy.review.page import page  # noqa: PLC0415

    began_review = _processor()
    done = review(Preview("benchmark", loaded, rendered, objects, loaded), folder, policies=("workloads", "clouds"))
    comment(done)
    page(done)
    reviewed = _processor() - began_review
    return {"seconds": seconds, "preview": previewed - before, "review": reviewed, "memory": memory}


def _peak() -> float:
    """Peak memory in MiB. On Linux, `ru_maxrss` also counts the peak of the process that started this one."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _processor() -> float:
    """Seconds of processor time of this process and of child processes that it waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
