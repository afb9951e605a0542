"""Who uses what: every number, and what is said where one is missing."""

import io
import json

import pytest
from cli_builders import Screen
from live_builders import (
    GPU,
    HIDDEN_QUEUES,
    Data,
    cluster_queue,
    job,
    local_queue,
    meta,
    node,
    only_gpus,
    pod,
    state,
    workload,
)
from rich.console import Console
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.explain import show
from gpu_tenancy.explain.usage import Note, Row, measure


def rows(found: State, team: str = "") -> list[tuple[object, ...]]:
    return [
        (each.team, each.flavor, each.guaranteed, each.limit, each.used, each.borrowed, each.lent, each.waiting)
        for each in measure(found, team).rows
        if each.resource == GPU
    ]


def shared(used: int = 12, **objects: list[Data]) -> State:
    both = [cluster_queue("research", "org", used=1, borrowingLimit=24), cluster_queue("speech", "org", used=used)]
    return state(ClusterQueue=both, Cohort=[], LocalQueue=[local_queue("research"), local_queue("speech")], **objects)


def test_each_team_shows_used_borrowed_and_lent() -> None:
    assert rows(shared()) == [
        ("research", "a100", 8, 16, 1, 0, 4, 0),
        ("speech", "a100", 8, 16, 12, 4, 0, 0),
    ]
    assert rows(shared(), "speech") == [("speech", "a100", 8, 16, 12, 4, 0, 0)]
    assert Note.LENT in measure(shared()).notes


def test_pending_workloads_are_listed_at_a_possible_flavor() -> None:
    waiting = [
        workload(only_gpus(job("a"))),
        workload(only_gpus(job("b", pods=3))),
        workload(only_gpus(job("c")), admitted=True),
    ]
    found = measure(shared(Workload=waiting))
    assert [(each.flavor, each.waiting, each.workloads) for each in found.rows if each.team == "research"] == [
        ("a100", 8, 1),
        ("-", 24, 1),
    ]
    assert found.total.text == (
        "total nvidia.com/gpu: 16 guaranteed, 13 used, 4 borrowed, 32 pending; 2 workloads pending (32 nvidia.com/gpu)"
    )
    assert Note.NO_FLAVOR in found.notes


def test_namespaces_that_share_a_queue_each_have_their_part() -> None:
    local = [local_queue("research"), local_queue("speech", "research")]
    local[1]["status"] = {"flavorsReservation": [{"name": "a100", "resources": [{"name": GPU, "total": "3"}]}]}
    found = state(LocalQueue=local, ClusterQueue=[cluster_queue("research", used=5)])
    assert rows(found, "speech") == [
        ("research", "a100", 8, 8, 5, 0, 0, 0),
        ("speech", "a100", None, None, 3, None, None, 0),
    ]
    assert (
        measure(found).total.text
        == "total nvidia.com/gpu: 8 guaranteed, 5 used, 0 borrowed, 0 pending; 0 workloads pending"
    )


def test_where_kueue_does_not_run_pods_on_the_flavors_nodes_are_counted() -> None:
    pods = [only_gpus(pod("a", on="n1")), only_gpus(pod("b", on="n2")), only_gpus(pod("c"))]
    pods[1]["spec"]["schedulerName"] = "volcano"
    found = state(
        ClusterQueue=[cluster_queue("research", used=None)], Cohort=[], Pod=pods, Node=[node("n1"), node("n2")]
    )
    assert rows(found) == [("research", "a100", 8, 8, 8, 0, 0, 0)]
    assert measure(found).notes[0] is Note.KUEUE_NOT_RUNNING


def test_a_team_without_the_right_to_read_queues_sees_its_own_use_and_who_sees_more() -> None:
    local = local_queue("research")
    local["status"] = {"flavorsReservation": [{"name": "a100", "resources": [{"name": GPU, "total": "3"}]}]}
    found = state((HIDDEN_QUEUES,), ClusterQueue=[], LocalQueue=[local])
    assert rows(found, "research") == [("research", "a100", None, None, 3, None, None, 0)]
    measured = measure(found, "research")
    assert measured.total.text.startswith("total nvidia.com/gpu: unknown guaranteed, 3 used, unknown borrowed")
    assert HIDDEN_QUEUES in measured.unreadable
    assert HIDDEN_QUEUES.text in measured.remarks


def test_a_gang_queue_belongs_to_the_team_that_it_is_named_after() -> None:
    capability = {GPU: "4"}
    queue = {
        "metadata": meta("research-l4"),
        "spec": {"capability": capability, "guarantee": {"resource": capability}},
        "status": {"allocated": {GPU: "3", "pods": "3"}},
    }
    group = {
        "metadata": meta("g", "research"),
        "spec": {"queue": "research-l4", "minResources": {GPU: "2"}},
        "status": {"phase": "Inqueue"},
    }
    found = measure(state(Queue=[queue, {"metadata": meta("root"), "spec": {}}], PodGroup=[group]), "research")
    assert [row for row in found.rows if row.scheduler == "Volcano"] == [
        Row("research", "l4", GPU, "Volcano", 4, 4, 3, 0, 0, 2, 1)
    ]


def test_all_teams_show_gpus_and_one_team_shows_everything() -> None:
    hard = {"requests.cpu": "8", "pods": "2", "count/jobs.batch": "9", f"requests.{GPU}": "8"}
    quota = {
        "metadata": meta("budget", "research"),
        "status": {"hard": hard, "used": {"pods": "2", "requests.cpu": "1"}},
    }
    everybody = measure(state(ResourceQuota=[quota])).budgets
    assert [each.budget.resource for each in everybody] == [f"requests.{GPU}", "pods"]
    assert [each.budget.resource for each in measure(state(ResourceQuota=[quota]), "research").budgets] == [
        f"requests.{GPU}",
        "requests.cpu",
        "count/jobs.batch",
        "pods",
    ]


def test_a_missing_team_suggests_the_nearest_name() -> None:
    with pytest.raises(ConsoleError, match="team reserch not found; did you mean 'research'"):
        measure(state(), "reserch")
    unseen = Missing("LocalQueue", "queues", "you may not list localqueues", "somebody")
    with pytest.raises(ConsoleError, match="teams not readable: you may not list localqueues; specify your team"):
        measure(state((unseen, HIDDEN_QUEUES), ClusterQueue=[], LocalQueue=[], Namespace=[]))


def test_a_researcher_who_asks_for_all_teams_gets_what_may_be_read() -> None:
    def hidden(kind: Kind) -> Missing:
        return Missing(kind, "queues, outside research", f"you may not list {kind}", "somebody", partly=True)

    others = cluster_queue("speech", "org", used=12)
    others["status"]["pendingWorkloads"] = 3
    queues = [cluster_queue("research", "org", used=1, borrowingLimit=24), others]
    own = workload(only_gpus(job("a")))
    missing = (hidden("LocalQueue"), hidden("Workload"))
    found = measure(state(missing, ClusterQueue=queues, Cohort=[], Namespace=[], Workload=[own]))
    assert [(row.team, row.used, row.waiting) for row in found.rows] == [("research", 1, 8), ("speech", 12, None)]
    assert "unknown pending; 4 workloads pending" in found.total.text
    assert [line for line in found.remarks if "not readable" in line] == [one.text for one in missing]
    shown = " ".join(" ".join(line.split()) for line in Screen.of(130, show.usage(found)).lines)
    assert "speech a100 nvidia.com/gpu Kueue 8 16 12 4 0 ?" in shown
    # The same without a namespace in the context: nothing of one's own is marked.
    bare = (Missing("LocalQueue", "queues", "no", "somebody"), Missing("Workload", "pending", "no", "somebody"))
    rows = measure(state(bare, ClusterQueue=queues, LocalQueue=[], Namespace=[])).rows
    assert [(row.team, row.waiting) for row in rows] == [("research", 0), ("speech", None)]


# Shown.


def console() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=240, soft_wrap=True), file


def test_without_a_terminal_there_is_neither_colour_nor_box() -> None:
    printed, file = console()
    printed.print(show.usage(measure(shared())), highlight=False)
    lines = file.getvalue().splitlines()
    assert lines[0] == "team      flavor  resource        scheduler  guaranteed  limit  used  borrowed  lent  pending"
    assert (
        lines[1].rstrip()
        == "research  a100    nvidia.com/gpu  Kueue               8     16     1         0     4        0"
    )
    assert lines[4] == "total nvidia.com/gpu: 16 guaranteed, 13 used, 4 borrowed, 0 pending; 0 workloads pending"


def test_on_a_narrow_terminal_columns_are_left_out_and_names_and_numbers_stay_whole() -> None:
    narrow = Output(width=80, terminal=True)
    narrow.file = file = io.StringIO()
    narrow.print(show.usage(measure(shared())), highlight=False)
    lines = Text.from_ansi(file.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = (line for line in lines if line.startswith("speech"))
    assert line.split() == ["speech", "a100", "nvidia.com/gpu", "8", "16", "12", "4", "0"]
    assert "not shown, because the terminal is narrow: scheduler, lent" in lines


def test_data_for_programs_has_the_same_numbers() -> None:
    found = json.loads(json.dumps(show.data(measure(shared(), "speech"))))
    assert found["rows"][0] == {
        "team": "speech",
        "flavor": "a100",
        "resource": GPU,
        "scheduler": "Kueue",
        "guaranteed": 8,
        "limit": 16,
        "used": 12,
        "borrowed": 4,
        "lent": 0,
        "pending": 0,
        "workloads": 0,
    }


def test_watching_repeats_the_query() -> None:
    asked: list[int] = []

    def ask() -> Text:
        asked.append(len(asked))
        return Text(f"look {len(asked)}")

    printed, file = console()
    show.follow(printed, ask, every=0.0, rounds=3)
    assert file.getvalue() == "look 1\n\nlook 2\n\nlook 3\n"
    terminal = Console(file=io.StringIO(), force_terminal=True)
    show.follow(terminal, ask, every=0.0, rounds=2)
    assert len(asked) == 5
