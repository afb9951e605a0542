"""`tenancy replay`: its input, sums, and output."""

import json
from math import ceil
from pathlib import Path

import pytest
from builders import Data
from cli_builders import Project, git, tenancy
from cli_builders import small as two_teams
from page_reader import well_formed
from whatif_played import NASTY, replayed_twice, small, tree

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.simulation.outcome import BINS, Curve, Durations, Outcome, compare
from gpu_tenancy.simulation.records import JobRecord, Part, Trace
from gpu_tenancy.simulation.replay import replay
from gpu_tenancy.whatif.page import replay_page
from gpu_tenancy.whatif.replay import headline, teams_table

HOUR = 3600.0


def job(at: float, hours: float, team: str | None, gpus: int = 1, **rest: object) -> JobRecord:
    part = Part(gpus=gpus, flavor=None, **{key: rest.pop(key) for key in ("pods", "cpu", "memory") if key in rest})  # pyright: ignore[reportArgumentType]
    return JobRecord(f"job-{at:.0f}", at, hours * HOUR, team, (part,), **rest)  # pyright: ignore[reportArgumentType]


def written(folder: Path, name: str, text: str) -> Trace:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return Trace(file)


def test_json_lines_and_csv_are_read_alike(tmp_path: Path) -> None:
    lines = (
        '{"at": "2026-10-01T08:00:00Z", "duration": "90m", "team": "vision", "gpus": 2, "pods": 3}\n\n'
        '{"at": "2026-10-01T10:00:00+02:00", "duration": "30s", "name": "b", "flavor": "h100", "priority": "high"}\n'
        '{"at": "2026-10-01T08:00:01", "duration": "1d", "team": "speech", "gpus": 0, "cpu": "500m", "memory": "1Gi"}\n'
    )
    columns = (
        "at,duration,team,gpus,pods,name,flavor,priority,cpu,memory\n"
        "2026-10-01T08:00:00Z,90m,vision,2,3,,,,,\n"
        "2026-10-01T10:00:00+02:00,30s,,,,b,h100,high,,\n"
        "2026-10-01T08:00:01,1d,speech,0,,,,,500m,1Gi\n"
    )
    at = 1_790_841_600.0
    expected = [
        (at, 5400.0, "vision", (Part(3, 2),), None),
        (at, 30.0, None, (Part(1, 1, "h100"),), "high"),
        (at + 1, 86_400.0, "speech", (Part(1, 0, None, 500, 2**30),), None),
    ]
    for trace in (written(tmp_path, "jobs.jsonl", lines), written(tmp_path, "jobs.csv", columns)):
        assert [(one.at, one.duration, one.team, one.parts, one.priority) for one in trace] == expected
        assert len(list(trace)) == 3, "it can be read again"


WORKLOAD: Data = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "job-train-1a2b3", "namespace": "vision", "creationTimestamp": "2026-10-01T08:00:00Z"},
    "spec": {"queueName": "vision", "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "high"}},
    "status": {
        "admission": {
            "podSetAssignments": [
                {
                    "name": "workers",
                    "count": 2,
                    "flavors": {"cpu": "h100", "memory": "h100", "nvidia.com/gpu": "h100"},
                    "resourceUsage": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
                },
                {"name": "head", "count": 1, "flavors": {"cpu": "cpu"}, "resourceUsage": {"cpu": "1"}},
            ]
        },
        "conditions": [
            {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-10-01T09:00:00Z"},
            {"type": "Finished", "status": "True", "lastTransitionTime": "2026-10-01T09:30:00Z"},
        ],
    },
}


def test_finished_workloads_of_a_cluster_are_jobs(tmp_path: Path) -> None:
    waiting: Data = {**WORKLOAD, "status": {}}
    earlier: Data = {**WORKLOAD, "metadata": {**WORKLOAD["metadata"], "creationTimestamp": "2026-10-01T07:00:00Z"}}
    items: list[Data] = [WORKLOAD, waiting, earlier]
    for trace in (
        written(tmp_path, "workloads.json", json.dumps({"kind": "List", "items": items})),
        written(tmp_path, "workloads.jsonl", "\n".join(map(json.dumps, items))),
    ):
        first, second = trace
        assert second.at - first.at == HOUR
        assert (second.duration, second.team, second.priority) == (1800, "vision", "high")
        assert second.parts == (Part(2, 2, "h100", 4000, 16 * 2**30), Part(1, 0, "cpu", 1000, None))
        assert trace.left_out == {"not admitted, or not finished": 1}


def test_pods_of_alibabas_trace_are_jobs_without_a_team(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        "openb_pod_list_default.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "later,12000,16384,1,1000,,LS,Running,50,12537496,60\n"
        "sooner,6000,12288,1,460,,BE,Running,0,100,5\n"
        "never,6000,12288,8,1000,V100M32,LS,Pending,7,9,\n",
    )
    sooner, later = trace
    assert (sooner.name, sooner.at, sooner.duration, sooner.team) == ("sooner", 0, 95, None)
    assert sooner.parts == (Part(1, 1, None, 6000, 12 * 2**30),)
    assert (later.name, later.duration) == ("later", 12_537_436)
    assert trace.left_out == {"no start or no end": 1}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"at": 5, "duration": "1s"}\n{"at": 4, "duration": "1s"}\n', "a.jsonl:2: at: earlier than"),
        ("a.jsonl", '{"at": 5, "duration": "1s"}\n{"at":\n', "a.jsonl:2: not valid JSON"),
        ("a.jsonl", '{"at": 5, "duraton": "1s"}\n', "a.jsonl:1: duraton: unknown key"),
        ("a.jsonl", '{"at": 5, "duration": "soon"}\n', "a.jsonl:1: duration: 'soon'"),
        ("a.jsonl", '{"at": "yesterday", "duration": "1s"}\n', "a.jsonl:1: cannot be read"),
        ("a.jsonl", '{"at": 5, "duration": "1s", "gpus": -1}\n', "a.jsonl:1: gpus: -1"),
        ("a.csv", "at,duration\n5,1s\n6,\n", "a.csv:3: duration"),
        ("a.json", '{"kind": "Pod"}', "a.json: is not a list of Workloads"),
        ("a.jsonl", '{"metadata": {}}\n', "a.jsonl:1: cannot be read: 'spec'"),
    ],
)
def test_unreadable_lines_are_named_with_a_fix(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConsoleError) as raised:
        list(written(tmp_path, name, text))
    assert message in raised.value.what
    assert raised.value.fix


def test_gpu_hours_are_the_sum_of_run_and_lost_hours() -> None:
    records = [
        job(0, 4, "speech", 6),
        job(600, 2, "vision", 4),
        job(1200, 1, "vision", 8, priority="high"),
        job(1300, 1, "search", 1),
        job(1400, 1, "speech", 0),
    ]
    found = replay(tree(small()), records)
    total = found.total
    assert total.preemptions > 0
    assert total.lost_gpu_hours > 0
    assert total.gpu_hours == pytest.approx(6 * 4 + 4 * 2 + 8 + 1 + total.lost_gpu_hours)
    held = 0.0
    for flavor in found.flavors.values():
        means = flavor.held.means(60 * HOUR)
        assert max(means) <= flavor.gpus
        held += sum(means) * flavor.held.span / HOUR
    assert held == pytest.approx(total.gpu_hours)
    assert total.jobs == 5 == total.waits.count
    assert sum(found.preempted_by.values()) == total.preemptions


def test_jobs_that_do_not_fit_the_stack_are_left_out() -> None:
    records = [
        job(0, 1, "nobody"),
        JobRecord("other", 0, 1, "vision", (Part(flavor="b200"),)),
        JobRecord("wrong", 0, 1, "vision", (Part(flavor="cpu"),)),
        job(1, 1, "vision", 80),
    ]
    found = replay(tree(small()), records)
    assert dict(found.left_out) == {
        "team nobody is not in the stack": 1,
        "flavor b200 is not in the stack": 1,
        "flavor cpu has no GPUs": 1,
    }
    assert (found.jobs, found.total.never) == (1, 1)


def test_jobs_without_a_team_are_dealt_by_guarantees() -> None:
    records = [JobRecord(f"pod-{number}", number, 1, None, (Part(),)) for number in range(400)]
    found = replay(tree(small()), records)
    assert found.dealt == 400
    jobs = {team: group.jobs for team, group in found.teams.items()}
    # Guaranteed are 4, 2 and 2 GPUs.
    assert 150 < jobs["vision"] < 250
    assert 60 < jobs["speech"] < 140
    assert {team: group.jobs for team, group in replay(tree(small()), records).teams.items()} == jobs


def test_compare_finds_losing_and_gaining_teams() -> None:
    records = [job(600 * number, 3, ("vision", "speech")[number % 2], 4) for number in range(40)]
    taken = small()
    taken["teams"]["vision"]["gpus"]["h100"]["guaranteed"] = 0
    taken["teams"]["speech"]["gpus"]["h100"]["guaranteed"] = 8
    before, after = replay(tree(small()), records), replay(tree(taken), records)
    found = compare("main", before, after)
    assert found.verdicts["vision"] in {"loses", "both"}
    assert next(iter(compare("main", before, before).verdicts.values())) == "same"
    assert {*compare("main", before, Outcome()).verdicts.values()} == {"gone"}


def test_quantiles_are_exact_to_two_percent() -> None:
    found = Durations()
    for seconds in range(1, 1001):
        found.add(seconds)
    assert found.quantile(0.5) == pytest.approx(500, rel=0.02)
    assert found.quantile(0.95) == pytest.approx(950, rel=0.02)
    assert (found.quantile(1), found.count, found.mean) == (pytest.approx(1000, rel=0.02), 1000, 500.5)
    assert (Durations().quantile(0.5), Durations().mean) == (0, 0)


def test_curve_keeps_its_area_when_it_is_compressed() -> None:
    found = Curve()
    for number in range(4999):
        found.change(97.0 * number, 2 if number % 3 == 0 else -1)
    # From each third change on the level is 2, then 1, then 0.
    found.change(97.0 * 4999, -2)
    spans = ceil(97.0 * 4999 / found.span)
    means = found.means(spans * found.span)
    assert len(means) == spans <= BINS
    assert sum(means) * found.span == pytest.approx(sum((2, 1, 0)[number % 3] * 97.0 for number in range(4999)))


def test_page_names_gains_losses_and_jobs_left_out() -> None:
    replayed = replayed_twice()
    text = replay_page(replayed)
    well_formed(text)
    assert "<script" not in text
    assert NASTY not in text
    assert headline(replayed) in text
    heads = [column.title for column in teams_table(replayed).columns]
    assert heads[-1] == "change"
    assert "Dashed: at main." in text


@pytest.mark.process
def test_replay_writes_page_and_names_losers_since_ref(tmp_path: Path) -> None:
    project = Project.at(tmp_path / "project")
    sections = two_teams()
    project.write("dev", sections)
    git(project.folder, "init", "--quiet", "--initial-branch", "main")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "--quiet", "--message", "first")
    sections["teams"]["vision"]["gpus"]["h100"]["guaranteed"] = 2
    sections["teams"]["vision"]["training"] = {}
    project.write("dev", sections)
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(
        "".join(f'{{"at": {at}, "duration": "1h", "gpus": 2, "team": "vision"}}\n' for at in range(3)), encoding="utf-8"
    )
    words = ("replay", "dev", "--used", jobs, "--base", "main", "--out", tmp_path / "out")
    done = tenancy(*words, project=project.folder)
    assert done.exit_code == 0, done.output
    assert "vision lose" in done.output
    assert (tmp_path / "out" / "replay.html").is_file()
    data = json.loads(tenancy(*words, "-o", "json", project=project.folder).stdout)
    assert data["groups"][0] | {"wait95": 0, "waitMedian": 0} == {
        "team": "vision",
        "priority": "high",
        "jobs": 3,
        "waitMedian": 0,
        "wait95": 0,
        "waitLongest": 7200,
        "never": 0,
        "gpuHours": 6,
        "preemptions": 0,
        "lostGpuHours": 0,
    }
    assert data["against"]["teams"] == {"vision": "loses"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--checkpoint", "often"], "--checkpoint often: is not a duration"),
        (["--checkpoint", "0s"], "--checkpoint: must be more than 0"),
        (["--used", "none.csv"], "--used: none.csv is not a file"),
        (["--used", "/dev/null"], "no job can be played: the file is empty"),
    ],
)
def test_replay_refuses_invalid_options_with_a_fix(tmp_path: Path, options: list[str], message: str) -> None:
    project = Project.at(tmp_path / "project")
    project.write("dev", two_teams())
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text('{"at": 0, "duration": "1h", "gpus": 1}\n', encoding="utf-8")
    done = tenancy("replay", "dev", "--used", jobs, *options, project=project.folder)
    assert done.exit_code == 1
    assert message in done.output
