"""The size of a server from its load: the arithmetic, and what a stack with `load` may have."""

import re
from typing import Any

from builders import Data, errors, pool, server, stack, team
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT

from gpu_tenancy.base.quantity import format_rate, parse_rate
from gpu_tenancy.model.sizing import Nodes, Size, in_flight

LOAD: Data = {"rate": "10000/s", "perReplica": "220/s", "latency": "100ms"}
"""The load of the reference."""


def serving(load: Data | None = None, **fields: Any) -> Data:
    """A server with one L4 a replica, on 16 nodes with four, whose team has fifty."""
    served = server(**{"replicas": {"min": 3, "max": 50}, "load": {**LOAD, **(load or {})}, **fields})
    pools = {"cpu": pool("m7i.8xlarge", 3), "l4": pool("g6.12xlarge", 16)}
    return stack(pools=pools, teams={"a": team(gpus={"l4": {"guaranteed": 50, "limit": 50}}, serving={"m": served})})


def test_the_load_of_the_reference_needs_its_fifty_replicas() -> None:
    size = Size(parse_rate("10000/s"), parse_rate("220/s"), nodes=Nodes(each=4, always=16, most=16))
    assert (size.needed, size.replicas, size.peak) == (46, 50, 50)
    assert in_flight(size.per_replica, 0.1) == 22
    assert errors(serving()) == []
    (problem,) = errors(serving(replicas={"min": 3, "max": 49}))
    assert "replicas.max: 49 cannot carry the load: 10,000/s ÷ 220/s = 46 replicas" in problem


def test_a_rate_is_exact() -> None:
    """In floating point, 1.1 / 0.1 is more than 11."""
    assert Size(parse_rate("1.1/s"), parse_rate("0.1/s"), headroom=False).replicas == 11
    assert [format_rate(parse_rate(text)) for text in ("1.1/s", "10000/s", "0.001/s")] == [
        "1.1/s",
        "10,000/s",
        "0.001/s",
    ]


@given(
    needed=st.integers(1, 500),
    each=st.integers(1, 16),
    always=st.integers(0, 40),
    more=st.integers(0, 40),
    surge=st.integers(0, 3),
)
def test_without_what_a_node_or_a_rollout_takes_the_load_is_carried_by_no_replica_too_many(
    needed: int, each: int, always: int, more: int, surge: int
) -> None:
    nodes = Nodes(each, always, always + more)
    size = Size(needed * 1000, 1000, surge, nodes)

    def carried(replicas: int) -> bool:
        lost = nodes.lost_with_one(replicas)
        return replicas - lost >= needed and (surge > 0 or replicas - 1 >= needed)

    assert carried(size.replicas)
    assert not carried(size.replicas - 1)
    assert size.peak == size.replicas + surge


def test_the_page_of_servers_shows_the_error_of_a_stack() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(teams\.[^`]+cannot carry[^`]+?)\n```", page)
    (problem,) = errors(serving(load={"rate": "12000/s"}))
    assert " ".join(shown.split()) == problem.replace("teams.a.", "teams.ml-serving.").replace(".m.", ".model-server.")
