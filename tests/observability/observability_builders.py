"""A stack's dashboards and alerts, and Prometheus' own promtool to try them."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders import Data, planned, pool, server, stack, team

from console.embedded.platform import Platform
from model.load import load
from model.observability import ObservabilityPlan, observability
from model.plan.shares import Tree
from model.source import Source

LATENCY = "inference_latency_p99_seconds"


def watched(**sections: Any) -> Data:
    """A team that trains and one that serves, on H100s."""
    served = team(
        gpus={"h100": {"guaranteed": 4}},
        serving={"api": server(replicas={"min": 1, "max": 4}, scaleOn={"latencyP99": "100ms"})},
    )
    return stack(
        metrics={"latencyP99": LATENCY},
        teams={"a": team(gpus={"h100": {"guaranteed": 8, "limit": 12}}), "b": served},
        **sections,
    )


def amd(**sections: Any) -> Data:
    """A pool of another vendor's GPUs."""
    mi = {"gpu": "mi300x", "gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 2, "resource": "amd.com/gpu"}
    return stack(
        pools={"mi": mi, "cpu": pool("m7i.8xlarge", 3)}, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections
    )


def observed(sections: Data) -> ObservabilityPlan:
    """The dashboards and alerts of a stack."""
    servers = tuple(each for one in planned(sections).teams for each in one.servers)
    return observability(Tree(load(Source(sections))), servers)


def panels(plan: ObservabilityPlan) -> Iterator[tuple[str, str, Any]]:
    """Every target with its dashboard and panel: `(uid/panel/refId, expr, target)`."""
    for _, text in plan.dashboards:
        board = json.loads(text)
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{board['uid']}/{panel['title']}/{target['refId']}", target["expr"], target


def promtool() -> Path:
    """Prometheus' promtool: on the path, kept in the cache, or out of Debian's package.

    Raises:
        RuntimeError: on a Debian machine whose package cannot be had. Elsewhere, the test is skipped.
    """
    found = shutil.which("promtool")
    kept = Platform(Path(os.devnull)).cache / "promtool" / platform.machine() / "promtool"
    if found or kept.is_file():
        return Path(found) if found else kept
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("promtool is not on the PATH, and there is no apt-get to fetch it with")
    with TemporaryDirectory() as folder:
        said = subprocess.run(
            ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        packages = list(Path(folder).glob("prometheus_*.deb"))
        if not packages:
            msg = f"promtool cannot be had: apt-get download prometheus: {said.stderr}; install Prometheus"
            raise RuntimeError(msg)
        subprocess.run(["dpkg-deb", "-x", str(packages[0]), f"{folder}/all"], check=True, timeout=300)
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        shutil.copy2(f"{folder}/all/usr/bin/promtool", unfinished)
        unfinished.replace(kept)
    return kept


def tried(tests: list[Data], rules: Data, folder: Path) -> tuple[bool, str]:
    """Runs tests of expressions and alerts: whether all pass, and what promtool says."""
    (folder / "rules.json").write_text(json.dumps(rules))
    whole = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.json").write_text(json.dumps(whole))
    done = subprocess.run(
        [str(promtool()), "test", "rules", "tests.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr
