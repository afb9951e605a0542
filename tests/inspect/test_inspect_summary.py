"""The summary of `up` for trees without GPUs, as read from an API server."""

import io
from typing import Any

import pytest
from builders import planned
from cpu_stacks import CPUS, MIXED
from live_builders import Data, meta, state, workload
from rich.console import Console
from test_inspect_cpus import cpu_job, queue

from gpu_tenancy.cluster.reading import State
from gpu_tenancy.local import summary as summaries
from gpu_tenancy.local.show import promises, waiting
from gpu_tenancy.local.summary import Summary, summarise
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


def summary_of(sections: Data, monkeypatch: pytest.MonkeyPatch) -> Summary:
    """What a cluster tells whose two CPU nodes are busy with jobs of team etl."""
    node: Any = {
        "metadata": meta("n1", labels={"gpu-tenancy.dev/pool": "general"}),
        "spec": {},
        "status": {"allocatable": {"cpu": "31", "memory": "116Gi"}},
    }
    pending: Any = {"metadata": meta("p", "etl"), "spec": {"containers": []}, "status": {"phase": "Pending"}}
    found = state(
        ClusterQueue=[queue("etl", cpu="30", memory="64Gi"), queue("web")],
        LocalQueue=[{"metadata": meta(name, name), "spec": {"clusterQueue": name}} for name in ("etl", "web")],
        ResourceFlavor=[{"metadata": meta("general"), "spec": {}}],
        Cohort=[],
        Node=[node, {**node, "metadata": {**node["metadata"], "name": "n2"}}],
        Workload=[workload(cpu_job("x"))],
        Pod=[pending],
    )

    def read(*_: object) -> State:
        return found

    monkeypatch.setattr(summaries, "read_settled", read)
    return summarise(None, planned(sections), Tree(load(Source(sections))))  # pyright: ignore[reportArgumentType]


def printed(found: Summary) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(promises(found))
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


def test_up_shows_cpus_and_memory_of_each_team(monkeypatch: pytest.MonkeyPatch) -> None:
    found = summary_of(CPUS, monkeypatch)
    assert {(line.team, line.flavor, line.guaranteed, line.used) for line in found.holdings} == {
        ("etl", "general CPUs", 40_000, 30_000),
        ("etl", "general memory", 64 * 2**30, 64 * 2**30),
        ("web", "general CPUs", 40_000, 0),
        ("web", "general memory", 64 * 2**30, 0),
    }
    text = printed(found)
    assert text.startswith("CPUs and memory, read from the API server")
    assert "etl   general CPUs    Kueue              40" in text
    assert "30 of 62" in text
    assert "64Gi of 232Gi" in text


def test_pods_without_a_node_wait_for_cpus_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting(summary_of(CPUS, monkeypatch)).startswith(
        "1 pod is unschedulable: no node has enough free CPUs and memory ("
    )


def test_a_mixed_tree_has_a_row_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    found = summary_of(MIXED, monkeypatch)
    assert [supply.flavor for supply in found.supply] == ["h100", "general CPUs", "general memory"]
    assert printed(found).startswith("GPUs, CPUs and memory, read from the API server")
