"""`tenancy size`: replicas, GPUs, cost and missing nodes for a load."""

import json
from pathlib import Path

import pytest
from builders import server
from cli_builders import Project, small, tenancy
from repository import ROOT

LOAD = ("--rate", "10000/s", "--per-replica", "220/s", "--latency", "100ms")


def lines(*words: str) -> list[str]:
    done = tenancy("size", *words, project=ROOT)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_without_a_stack_replicas_and_gpus_are_calculated() -> None:
    assert lines(*LOAD, "--gpus", "2", "--surge", "3") == [
        "replicas: 10,000/s ÷ 220/s = 46 replicas",
        "a replica: 220/s within 100ms by your measurement, at most 22 requests at a time on average",
        "guaranteed: 92 GPUs, limit: 98",
        "nodes, prices and the headroom for a lost node: specify a stack",
    ]


def test_nodes_that_are_missing_are_counted_beside_what_others_are_guaranteed() -> None:
    replicas, _, promised, cost, hardware = lines("local", *LOAD, "--flavor", "l4", "--surge", "2")
    assert replicas.endswith("+ 4 for the loss of a node = 50")
    assert promised == "guaranteed: 50 l4 GPUs, limit: 52"
    # 4.6016 US dollars an hour for four L4s, 730 hours.
    assert cost == "cost: $41,990 a month, $43,669 for the limit"
    assert hardware.endswith("54 are guaranteed to others: 42 GPUs are missing (11 nodes with 4 GPUs)")


def test_a_server_of_a_stack_has_its_own_guarantee() -> None:
    shown = lines("local", "ml-serving/model-server", *LOAD)
    assert shown[-1] == "hardware: 64 l4 GPUs at most, of which 4 are guaranteed to others: enough"


def test_the_load_of_a_server_is_used_and_options_replace_parts_of_it(tmp_path: Path) -> None:
    project = Project.at(tmp_path)
    sections = small()
    load = {"rate": "200/s", "perReplica": "100/s"}
    sections["teams"]["vision"]["serving"] = {"api": server(replicas=3, load=load)}
    project.write("good", sections)
    words = ("size", "good", "vision/api", "-o", "json")
    first, more = (json.loads(tenancy(*words, *own, project=tmp_path).stdout) for own in ((), ("--rate", "900/s")))
    assert first["replicas"] == {"needed": 2, "withHeadroom": 3, "peak": 3}
    assert (more["rate"], more["replicas"]["needed"]) == (900, 9)
    assert more["hardware"] == {"maximum": 8, "guaranteedToOthers": 0, "missing": 2}
    assert more["monthly"] == pytest.approx(10 * 6.88 * 730, rel=0.1)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--rate", "10/s"], "--rate or --per-replica is missing; measure one replica under load"),
        (["--rate", "10", "--per-replica", "1/s"], "--rate 10: is not a rate above 0; set requests per second"),
        (["--rate", "10/s", "--per-replica", "0/s"], "--per-replica 0/s: is not a rate above 0"),
        ([*LOAD[:4], "--latency", "100"], "--latency 100: is not a duration; set one such as 100ms"),
        (
            ["local", *LOAD],
            "is measured on one kind of GPU; specify one of: a100, h100, l4",
        ),
        (["local", *LOAD, "--flavor", "l40"], "--flavor l40: unknown flavor with GPUs; did you mean 'l4'?"),
        (["local", "ml-serving/model"], "unknown server 'ml-serving/model'; did you mean 'ml-serving/model-server'?"),
        (["local", "ml-production/rank-server"], "--rate or --per-replica is missing; measure"),
    ],
)
def test_what_cannot_be_calculated_is_refused_with_its_fix(words: list[str], error: str) -> None:
    done = tenancy("size", *words, project=ROOT)
    assert done.exit_code == 1
    assert error in " ".join(done.stderr.split())
