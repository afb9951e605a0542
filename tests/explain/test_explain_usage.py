"""The usage table: every number, missing numbers, unusable GPUs, CPUs, narrow terminals."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import planned
from cli_builders import Screen
from cpu_stacks import CPUS, MIXED
from live_builders import (
    ACTIVE,
    GPU,
    HIDDEN_QUEUES,
    Data,
    cluster_queue,
    flavor,
    job,
    local_queue,
    meta,
    node,
    only_gpus,
    pod,
    state,
    waits,
    with_cpu,
    workload,
)
from rich.console import Console, Group
from rich.text import Text

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output
from gpu_tenancy.base.quantity import leading_text
from gpu_tenancy.cluster.demand import demand, target_of
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.explain import show
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.usage import LENT, NO_FLAVOR, UNCOUNTED, Row, measure
from gpu_tenancy.explain.why import why
from gpu_tenancy.local import summary as summaries
from gpu_tenancy.local.show import promises, waiting
from gpu_tenancy.local.summary import Summary, summarise
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


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
    assert rows(shared()) == [("research", "a100", 8, 16, 1, 0, 4, 0), ("speech", "a100", 8, 16, 12, 4, 0, 0)]
    assert rows(shared(), "speech") == [("speech", "a100", 8, 16, 12, 4, 0, 0)]
    assert LENT in measure(shared()).notes


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
    assert NO_FLAVOR in found.notes


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


def test_without_kueue_counts_pods_on_nodes() -> None:
    pods = [only_gpus(pod("a", on="n1")), only_gpus(pod("b", on="n2")), only_gpus(pod("c"))]
    pods[1]["spec"]["schedulerName"] = "volcano"
    found = state(
        ClusterQueue=[cluster_queue("research", used=None)], Cohort=[], Pod=pods, Node=[node("n1"), node("n2")]
    )
    assert rows(found) == [("research", "a100", 8, 8, 8, 0, 0, 0)]
    assert measure(found).notes[0] == UNCOUNTED


def test_without_queue_rights_shows_own_use() -> None:
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


def test_namespace_quotas_are_listed_once_they_are_used() -> None:
    hard = {"requests.cpu": "10", "pods": "2", "count/jobs.batch": "9", f"requests.{GPU}": "0"}
    used = {"pods": "2", "requests.cpu": "8", "count/jobs.batch": "7"}
    found = measure(
        state(ResourceQuota=[{"metadata": meta("own", "research"), "status": {"hard": hard, "used": used}}])
    )
    assert [each.budget.resource for each in found.spent] == ["requests.cpu", "pods"]
    brief, whole = (Screen.of(80, show.usage(found, verbose=verbose)) for verbose in (False, True))
    assert "2 other namespace quotas below 80%; -v shows them" in brief.lines
    assert "count/jobs.batch" not in brief.words
    assert hard.keys() <= whole.words


def test_a_missing_team_suggests_the_nearest_name() -> None:
    with pytest.raises(ConsoleError, match="namespace reserch not found; did you mean 'research'"):
        measure(state(), "reserch")
    unseen = Missing("LocalQueue", "queues", "you may not list localqueues", "somebody")
    with pytest.raises(
        ConsoleError, match="quotas of speech are unknown: you may not list localqueues; check the name"
    ):
        measure(state((unseen,), LocalQueue=[]), "speech")
    with pytest.raises(ConsoleError, match="teams not readable: you may not list localqueues; specify your team"):
        measure(state((unseen, HIDDEN_QUEUES), ClusterQueue=[], LocalQueue=[], Namespace=[]))


def test_researcher_sees_what_may_be_read_of_all_teams() -> None:
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
    assert found.remarks[-1] == "read in your namespace only: LocalQueues, Workloads"
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
    assert lines[0].split()[-5:] == ["used", "borrowed", "lent", "pending", "workloads"]
    assert (
        lines[1].rstrip()
        == "research  a100    nvidia.com/gpu  Kueue               8     16     1         0     4        0"
    )
    assert lines[4] == "total nvidia.com/gpu: 16 guaranteed, 13 used, 4 borrowed, 0 pending; 0 workloads pending"


def test_narrow_terminal_leaves_out_columns() -> None:
    narrow = Output(width=80, terminal=True)
    narrow.file = file = io.StringIO()
    narrow.print(show.usage(measure(shared())), highlight=False)
    lines = Text.from_ansi(file.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = (line for line in lines if line.startswith("speech"))
    assert line.split() == ["speech", "a100", "nvidia.com/gpu", "8", "16", "12", "4", "0"]
    assert "not shown, because the terminal is narrow: scheduler, lent, workloads" in lines


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
        "largest_job": {GPU: 8},
    }


def test_shows_the_largest_job_that_a_guarantee_covers() -> None:
    queues = [with_cpu(cluster_queue("language-models", "org", used=2), 10, 4), cluster_queue("speech", nominalQuota=0)]
    cpus = with_cpu(cluster_queue("web", nominalQuota=0, borrowingLimit=0), 10)
    cpus["spec"]["resourceGroups"][0]["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "40Gi"})
    found = measure(state(ClusterQueue=[*queues, cpus], Cohort=[], LocalQueue=[]))
    assert [(row.team, row.resource, row.with_up_to) for row in found.rows if row.with_up_to] == [
        ("language-models", GPU, "10 CPUs"),
        ("web", "cpu", "40Gi"),
    ]
    jobs = [row["largest_job"] for row in json.loads(json.dumps(show.data(found)))["rows"]]
    assert [one for one in jobs if one] == [{GPU: 8, "cpu": 10000}, {"cpu": 10000, "memory": 40 * 2**30}]
    screen = Screen.of(80, show.usage(found))
    assert not screen.too_long
    assert "language-models  a100    nvidia.com/gpu           8  10 CPUs" in "\n".join(screen.lines)


def test_watching_repeats_the_query() -> None:
    asked: list[int] = []

    def ask() -> Text:
        asked.append(len(asked))
        return Text(f"look {len(asked)}")

    printed, file = console()
    show.follow(printed, ask, every=0.0, rounds=3)
    assert file.getvalue() == "look 1\n\nlook 2\n\nlook 3\n"
    show.follow(Console(file=io.StringIO(), force_terminal=True), ask, every=0.0, rounds=2)
    assert len(asked) == 5


# Guaranteed GPUs that no pod can have now, as `usage` and `why` say it.


JOB = only_gpus(job())


def whole(name: str) -> Data:
    found = node(name)
    found["status"]["capacity"] = {**found["status"]["allocatable"]}
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return found


def unusable_state(nodes: list[Data], missing: Any = None) -> State:
    found: Any = {
        "ClusterQueue": [cluster_queue("research", nominalQuota=24, used=16)],
        "LocalQueue": [local_queue("research")],
        "ResourceFlavor": [flavor()],
        "Node": nodes,
        "Workload": [workload(JOB)],
    }
    return State({kind: tuple(items) for kind, items in found.items()}, missing or {})


NOT_READY = [{"type": "Ready", "status": "Unknown"}]
CORDONED = {"spec": {"unschedulable": True}}
NO_DEVICES = "that nodes do not offer: devices are unhealthy or have no plugin (n1)"


@pytest.mark.parametrize(
    ("broken", "usable", "reason"),
    [
        (CORDONED, 16, "8 on nodes that are cordoned (n1)"),
        ({"status": {"conditions": NOT_READY}}, 16, "8 on nodes that are not ready (n1)"),
        ({"status": {"allocatable": {GPU: "5"}}}, 21, f"3 {NO_DEVICES}"),
        ({"status": {"allocatable": {GPU: "0"}}}, 16, f"8 {NO_DEVICES}"),
        (None, 16, "8 on nodes that do not exist: they are gone, or an autoscaler has not added them"),
    ],
    ids=["cordoned", "not ready", "unhealthy", "without plugin", "gone"],
)
def test_unusable_gpus_are_reported(broken: Data | None, usable: int, reason: str) -> None:
    nodes = [whole(f"n{number}") for number in (1, 2, 3)]
    assert not measure(unusable_state(nodes)).unusable
    for part, fields in (broken or {}).items():
        nodes[0][part] |= fields
    found = unusable_state(nodes if broken else nodes[1:])
    text = f"queues are guaranteed 24 {GPU} of flavor a100, {usable} can be used: {reason}"
    assert measure(found).remarks[0] == text
    assert measure(found, "research").unusable == (text,)
    assert (text in why(target_of(JOB, found), found).lines) == bool(broken)


def test_unusable_gpus_beyond_guarantees_are_not_reported() -> None:
    nodes = [whole(f"n{number}") for number in (1, 2, 3, 4)]
    nodes[0]["spec"] |= CORDONED["spec"]
    assert not measure(unusable_state(nodes)).unusable


def test_who_may_not_read_nodes_is_not_told_that_there_are_none() -> None:
    hidden = Missing("Node", "free capacity", "you may not list nodes", "an admin")
    assert not measure(unusable_state([], {"Node": hidden})).unusable


# Answers about a cluster on a terminal of 80 and of 60 columns: no line is longer, no name or command is broken.


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


def narrow_why() -> Group:
    lines = ["Workload job-train-abcde in LocalQueue research (ClusterQueue language-models-research), priority 0"]
    reason = "its Workload is deactivated (spec.active is false)"
    return show.why(Why(lines, reason, f"run `{COMMAND}`", title="Job research/train"))


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("answer", [usage, fitting, narrow_why])
def test_no_line_is_longer_and_no_word_is_broken(answer: Callable[[], Group], width: int) -> None:
    screen, wide = Screen.of(width, answer()), Screen.of(240, answer())
    assert screen.words
    assert (screen.too_long, screen.words - wide.words) == ([], set())


@pytest.mark.parametrize("width", [100, 60, 30])
def test_a_command_in_a_text_is_in_one_line(width: int) -> None:
    assert any(COMMAND in line for line in Screen.of(width, narrow_why()).lines)


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        *((130, ""), (105, "scheduler, workloads"), (95, "scheduler, lent, workloads")),
        *((90, "scheduler, borrowed, workloads"), (60, "scheduler, limit, borrowed, lent, workloads")),
    ],
)
def test_columns_of_usage_are_left_out_in_their_order(width: int, left_out: str) -> None:
    answer = " ".join(line.strip() for line in Screen.of(width, usage()).lines)
    note = f"not shown, because the terminal is narrow: {left_out} "
    assert (note in answer) if left_out else ("not shown" not in answer)


def test_one_line_for_each_row_at_60_columns() -> None:
    assert "lang…arch  a100    nvidia.com/gpu           8    16       24" in Screen.of(60, usage()).lines


def test_narrowest_terminal_shows_a_line_for_each_column() -> None:
    assert {"team        language-models-research", "used        16"} <= set(Screen.of(50, usage()).lines)


# Clusters without GPUs: usage, reasons and the summary of `up`.


def cpu_queue(name: str, flavor: str = "general", **used: str) -> Data:
    lines = [{"name": resource, "nominalQuota": amount} for resource, amount in (("cpu", "40"), ("memory", "64Gi"))]
    reserved = [{"name": resource, "total": amount} for resource, amount in used.items()]
    return {
        "metadata": meta(name),
        "spec": {
            "cohortName": "org",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": lines}]}
            ],
        },
        "status": {"conditions": [ACTIVE], "flavorsReservation": [{"name": flavor, "resources": reserved}]},
    }


def cpu_job(name: str, cpu: str = "10", memory: str = "8Gi") -> Data:
    found = job(name)
    requests = {"cpu": cpu, "memory": memory}
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": requests, "limits": requests}
    return found


def cluster(**objects: Any) -> State:
    """40 of 40 CPUs are in use, and two jobs are pending."""
    jobs = [workload(cpu_job(name), f"2026-01-0{day}T00:00:00Z") for day, name in enumerate(("first", "second"), 1)]
    return state(
        **{
            "ClusterQueue": [cpu_queue("research", cpu="40", memory="32Gi")],
            "LocalQueue": [local_queue("research")],
            "ResourceFlavor": [{"metadata": meta("general"), "spec": {}}],
            "Cohort": [],
            "Node": [],
            "Workload": jobs,
            **objects,
        }
    )


def test_total_counts_cpus_and_memory_without_gpus() -> None:
    assert measure(cluster()).total.text == (
        "total cpu: 40 guaranteed, 40 used, 0 borrowed, 20 pending; "
        "memory: 64Gi guaranteed, 32Gi used, 0 borrowed, 16Gi pending; 2 workloads pending (20 CPUs, 16Gi memory)"
    )


def test_a_mixed_cluster_adds_cpus_beside_gpus() -> None:
    gpus = cpu_queue("speech", "a100")
    (group,) = gpus["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": "8"})
    found = measure(cluster(ClusterQueue=[cpu_queue("research", cpu="40", memory="32Gi"), gpus]))
    text = found.total.text
    assert text.startswith("total nvidia.com/gpu: 8 guaranteed, 0 used, 0 borrowed, 0 pending; cpu without GPUs: 40 ")
    assert text.endswith("2 workloads pending (20 CPUs, 16Gi memory)")


def test_why_names_the_cpus_of_those_ahead() -> None:
    found = why(target_of(cpu_job("second"), cluster()), cluster())
    assert any("1 workload is ahead of it, requesting 10 CPUs, 8Gi memory: " in line for line in found.lines), found
    assert not any("no resources" in line or "GPU" in line for line in found.lines)
    assert found.waits


def test_amounts_are_gpus_where_there_are_some() -> None:
    assert leading_text({GPU: 8, "cpu": 8000}) == "8 nvidia.com/gpu"
    assert leading_text({"cpu": 1000, "memory": 2**30}) == "1 CPU, 1Gi memory"
    assert leading_text({}) == "no resources"


# The summary of `up` for trees without GPUs, as read from an API server.


def summary_of(sections: Data, monkeypatch: pytest.MonkeyPatch) -> Summary:
    """The summary of a cluster whose two CPU nodes are busy with jobs of team etl."""
    node: Any = {
        "metadata": meta("n1", labels={"gpu-tenancy.dev/pool": "general"}),
        "spec": {},
        "status": {"allocatable": {"cpu": "31", "memory": "116Gi"}},
    }
    pending: Any = {"metadata": meta("p", "etl"), "spec": {"containers": []}, "status": {"phase": "Pending"}}
    found = state(
        ClusterQueue=[cpu_queue("etl", cpu="30", memory="64Gi"), cpu_queue("web")],
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
