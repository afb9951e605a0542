"""Guaranteed GPUs that no pod can have now, as `usage` and `why` say it."""

from typing import Any

import pytest
from live_builders import GPU, Data, cluster_queue, flavor, job, local_queue, node, only_gpus, workload

from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.cluster.target import target_of
from gpu_tenancy.explain.usage import measure
from gpu_tenancy.explain.why import why

JOB = only_gpus(job())


def whole(name: str) -> Data:
    found = node(name)
    found["status"]["capacity"] = {**found["status"]["allocatable"]}
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return found


def state(nodes: list[Data], missing: Any = None) -> State:
    found: Any = {
        "ClusterQueue": [cluster_queue("research", nominalQuota=24, used=16)],
        "LocalQueue": [local_queue("research")],
        "ResourceFlavor": [flavor()],
        "Node": nodes,
        "Workload": [workload(JOB)],
    }
    return State({kind: tuple(items) for kind, items in found.items()}, missing or {})


def cordoned(nodes: list[Data]) -> None:
    nodes[0]["spec"]["unschedulable"] = True


def not_ready(nodes: list[Data]) -> None:
    nodes[0]["status"]["conditions"][0]["status"] = "Unknown"


def unhealthy(nodes: list[Data]) -> None:
    nodes[0]["status"]["allocatable"][GPU] = "5"


def without_plugin(nodes: list[Data]) -> None:
    nodes[0]["status"]["allocatable"][GPU] = "0"


def gone(nodes: list[Data]) -> None:
    del nodes[0]


@pytest.mark.parametrize(
    ("harm", "usable", "reason"),
    [
        (cordoned, 16, "8 on nodes that are cordoned (n1)"),
        (not_ready, 16, "8 on nodes that are not ready (n1)"),
        (unhealthy, 21, "3 that nodes do not offer: devices are unhealthy or have no plugin (n1)"),
        (without_plugin, 16, "8 that nodes do not offer: devices are unhealthy or have no plugin (n1)"),
        (gone, 16, "8 on nodes that do not exist: they are gone, or an autoscaler has not added them"),
    ],
)
def test_a_broken_node_is_said_where_its_gpus_are_counted(harm: Any, usable: int, reason: str) -> None:
    nodes = [whole(f"n{number}") for number in (1, 2, 3)]
    assert not measure(state(nodes)).unusable
    harm(nodes)
    text = f"queues are guaranteed 24 {GPU} of flavor a100, {usable} can be used: {reason}"
    assert measure(state(nodes)).remarks[0] == text
    assert measure(state(nodes), "research").unusable == (text,)
    found = state(nodes)
    assert (text in why(target_of(JOB, found), found).lines) == (harm is not gone)


def test_broken_nodes_that_nobody_is_promised_are_not_said() -> None:
    nodes = [whole(f"n{number}") for number in (1, 2, 3, 4)]
    cordoned(nodes)
    assert not measure(state(nodes)).unusable


def test_who_may_not_read_nodes_is_not_told_that_there_are_none() -> None:
    hidden = Missing("Node", "free capacity", "you may not list nodes", "an admin")
    assert not measure(state([], {"Node": hidden})).unusable
