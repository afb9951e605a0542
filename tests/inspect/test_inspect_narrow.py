"""Answers about a cluster on a terminal of 80 and of 60 columns: no line is longer, no name or command is broken."""

from collections.abc import Callable

import pytest
from cli_builders import Screen
from live_builders import cluster_queue, job, local_queue, meta, state, waits
from rich.console import Group

from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.explain import show
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import measure

TEAM = "language-models-research"
COMMAND = """kubectl -n research patch workload job-train-abcde --type merge -p '{"spec":{"active":true}}'"""


def usage() -> Group:
    found = state(
        ClusterQueue=[cluster_queue(TEAM, "org", used=16, borrowingLimit=24)],
        LocalQueue=[local_queue(TEAM)],
        Namespace=[{"metadata": meta(TEAM, labels={"app.kubernetes.io/managed-by": "gpu-tenancy"})}],
        Workload=[waits("train", TEAM, 24)],
    )
    return show.usage(measure(found))


def fitting() -> Group:
    return show.fitting(judge(state(), "research", demand(job("train", pods=8), "research")))


def why() -> Group:
    lines = ["Workload job-train-abcde in LocalQueue research (ClusterQueue language-models-research), priority 0"]
    reason = "its Workload is deactivated (spec.active is false)"
    return show.why(Why(lines, reason, f"run `{COMMAND}`", title="Job research/train"))


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("answer", [usage, fitting, why])
def test_no_line_is_longer_and_no_word_is_broken(answer: Callable[[], Group], width: int) -> None:
    screen, wide = Screen.of(width, answer()), Screen.of(240, answer())
    assert screen.words
    assert (screen.too_long, screen.words - wide.words) == ([], set())


@pytest.mark.parametrize("width", [100, 60, 30])
def test_a_command_in_a_text_is_in_one_line(width: int) -> None:
    assert any(COMMAND in line for line in Screen.of(width, why()).lines)


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        *((130, ""), (105, "scheduler"), (95, "scheduler, lent"), (90, "scheduler, borrowed, lent")),
        *((80, "scheduler, limit, borrowed, lent"), (70, "resource, scheduler, limit, borrowed, lent")),
    ],
)
def test_columns_of_usage_are_left_out_in_their_order(width: int, left_out: str) -> None:
    answer = " ".join(line.strip() for line in Screen.of(width, usage()).lines)
    note = f"not shown, because the terminal is narrow: {left_out} "
    assert (note in answer) if left_out else ("not shown" not in answer)


def test_where_no_columns_can_be_left_out_any_more_each_has_a_line() -> None:
    assert {"team        language-models-research", "used        16"} <= set(Screen.of(50, usage()).lines)
