"""`tenancy cost` asks a real Prometheus, which has a day of the recording rules' metrics."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from cli_builders import Project, tenancy
from cost_month import OCTOBER, lab, terms, use
from prometheus_tool import recorded

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cost.idle import freed
from gpu_tenancy.cost.prometheus import Prometheus, of_prometheus, recorded_jobs
from gpu_tenancy.cost.statement import Period
from gpu_tenancy.cost.tables import idle_table, losses_table, notes, teams_table
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.simulation.records import JobRecord, Part

pytestmark = pytest.mark.process

DAY = 86_400
AUGUST = Period.of("2026-08", datetime(2026, 11, 26, tzinfo=UTC))  # a month of idle jobs
_VISION = 'cluster_queue="vision",flavor="h100",resource="nvidia.com/gpu"'
_SPEECH = 'cluster_queue="speech",flavor="h100",resource="nvidia.com/gpu"'
# GPUs all day, by recording rule and labels.
SERIES = {
    "existing{}": 16,
    f"guaranteed{{{_VISION}}}": 8,
    f"used{{{_VISION}}}": 10,
    f"idle{{{_VISION}}}": 0,
    f"borrowed{{{_VISION}}}": 2,
    f"guaranteed{{{_SPEECH}}}": 4,
    f"used{{{_SPEECH}}}": 1,
    f"idle{{{_SPEECH}}}": 3,
    f"borrowed{{{_SPEECH}}}": 0,
    f"lent{{{_SPEECH}}}": 0.5,
    'unused{namespace="students"}': 2,
    'failed{namespace="vision"}': 0.25,
    'of_job{namespace="vision",created_by_kind="Job",created_by_name="train"}': 10,
    'of_job{namespace="speech",created_by_kind="Job",created_by_name="tts"}': 1,
}

_LATE = OCTOBER.start + 1.5 * DAY
# Of kube-state-metrics: a JobSet of two Jobs, a Job that has not ended, one of another month, and one of no team.
JOBS = {
    "created": {"train": _LATE, "leader": _LATE + 60, "worker": _LATE + 61, "runs": _LATE, "old": OCTOBER.start - 60},
    "status_start_time": {"train": _LATE + 600, "leader": _LATE + 90, "worker": _LATE + 95, "runs": _LATE, "old": 9},
    "status_completion_time": {"train": _LATE + 7800, "leader": _LATE + 990, "worker": _LATE + 980, "old": 10},
    "spec_parallelism": {"train": 5, "leader": 1, "worker": 3},
}
KUBE = {
    'kube_job_created{namespace="default",job_name="other"}': _LATE,
    **{
        f'kube_job_{metric}{{namespace="vision",job_name="{job}"}}': value
        for metric, values in JOBS.items()
        for job, value in values.items()
    },
    **{
        f'kube_job_owner{{namespace="vision",job_name="{job}",owner_kind="JobSet",owner_name="set"}}': 1
        for job in ("leader", "worker")
    },
}


def _samples() -> Iterator[str]:
    """Samples of the second day of October, and of idle jobs in August.

    A sample at the end of the day belongs to it, one at its start does not.
    """
    for series, value in {**{f"gpu_tenancy:gpus_{series}": value for series, value in SERIES.items()}, **KUBE}.items():
        for at in range(DAY + RECORDED_EVERY, 2 * DAY + 1, RECORDED_EVERY):
            yield f"{series} {value} {OCTOBER.start + at:.0f}"
    began = AUGUST.start + DAY - 4 * 3600  # over midnight
    vision = partial(use, "vision", began)
    yield from vision("idle", [(1, 90), (9, 0)])
    yield from vision("slow", [(10, 3)])
    yield from vision("wakes", [(1, 90), (3, 0), (1, 90)])
    yield from vision("gaps", [(0.7, 0), (1, None), (0.7, 0), (1, None), (0.7, 0)])
    yield from vision("busy", [(10, 90)])
    yield from vision("nightly", [(10, 0)])
    yield from vision("server", [(10, 0)], kind="ReplicaSet")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with recorded(_samples(), tmp_path_factory.mktemp("prometheus")) as url:
        yield Prometheus(url)


def test_hours_are_the_samples_of_the_rules_by_their_interval(server: Prometheus) -> None:
    found = of_prometheus("test", terms(lab()), server, OCTOBER)
    hours = {line.team: line.hours for line in found.lines}
    vision, speech = hours["vision"], hours["speech"]
    assert (vision.guaranteed, vision.used, vision.idle, vision.borrowed, vision.lent) == (192, 240, 0, 48, 0)
    assert (speech.guaranteed, speech.used, speech.idle, speech.borrowed, speech.lent) == (96, 24, 72, 0, 12)
    (supply,) = found.supply
    assert (supply.existed, supply.used, supply.unused) == (16 * 24, 264, 120)
    assert found.covered == 24
    assert next(notes(found)).startswith(f"{server.url} has 24 of 744 hours: all figures are of these")


def test_losses_follow_the_queue_and_prices_the_flavor(server: Prometheus) -> None:
    found = of_prometheus("test", terms(lab()), server, OCTOBER)
    assert [(loss.team, loss.unused, loss.preempted, loss.failed) for loss in found.losses] == [("vision", 48, None, 6)]
    assert [cell.text for cell in losses_table(found).rows[0].cells] == ["vision", "48", "unknown", "6.0"]
    assert {(job.job, job.gpu_hours, job.price) for job in found.jobs} == {("train", 240, 10), ("tts", 24, 10)}
    assert [cell.text for cell in teams_table(found).rows[-1].cells][2:] == ["288", "264", "72", "48", "12"]


def test_thresholds_show_what_idle_would_free(server: Prometheus) -> None:
    own = terms(lab(idle={"except": ["nightly"]}, operators={"prometheus": "installed", "gpuOperator": "installed"}))
    found = {(one.below, one.after / 3600): one for one in freed(own, server, AUGUST)}
    assert {one.team for one in found.values()} == {"vision"}
    # `idle` from 1 h on, `wakes` from 1 to 4 h; `slow` counts from 0.5 h on, below 5 % alone; 8 GPUs each.
    hours = {key: round(one.gpu_hours / 8, 1) for key, one in found.items()}
    expected = {(5, 0.5): 20.3, (5, 2): 15.5, (5, 6): 6.5, (1, 0.5): 11, (1, 2): 8, (1, 6): 3}
    assert hours == pytest.approx(expected, abs=0.5)
    assert {key: one.again for key, one in found.items()} == {key: ("wakes",) if key[1] <= 2 else () for key in found}
    assert {key: one.stops for key, one in found.items()} == {
        (5, 0.5): 3, (5, 2): 3, (5, 6): 2, (1, 0.5): 2, (1, 2): 2, (1, 6): 1,
    }  # fmt: skip
    rows = idle_table(replace(of_prometheus("test", own, server, OCTOBER), freed=tuple(found.values()))).rows
    assert [cell.text for cell in rows[0].cells][:3] == ["vision", "5 %", "30m"]


def test_the_command_asks_it_and_writes_page_and_csv(server: Prometheus, tmp_path: Path) -> None:
    project = Project.at(tmp_path / "project")
    project.write("dev", lab())
    words = ("cost", "dev", "--month", "2026-10", "--prometheus", server.url, "--out", tmp_path / "out")
    done = tenancy(*words, project=project.folder)
    assert done.exit_code == 0, done.output
    assert "2026-10: 264 GPU-hours used, $2,640; of 288 guaranteed, 75% used" in done.output
    assert (tmp_path / "out" / "cost.html").is_file()
    assert "rd-002,speech,h100,,,96,24,72,0,12,10" in (tmp_path / "out" / "cost.csv").read_text(encoding="utf-8")
    found = json.loads(tenancy(*words, "--team", "speech", "-o", "json", project=project.folder).stdout)
    assert [(line["team"], line["used"]) for line in found["teams"]] == [("speech", 24)]
    assert [job["job"] for job in found["jobs"]] == ["tts"]
    refused = tenancy(*words, "--team", "sppech", project=project.folder)
    assert refused.exit_code == 1
    assert "--team sppech: has no GPU-hours; did you mean 'speech'?" in refused.output


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{url}/graph", "status 404; check that it is the address of Prometheus"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1: is not reachable"),
        ("127.0.0.1:9090", "127.0.0.1:9090: is not an address; set one such as http://127.0.0.1:9090"),
    ],
)
def test_another_address_is_refused_with_a_fix(server: Prometheus, address: str, message: str) -> None:
    with pytest.raises(ConsoleError) as raised:
        of_prometheus("test", terms(lab()), Prometheus(address.format(url=server.url)), OCTOBER)
    assert message in str(raised.value)


def test_a_month_without_samples_is_no_month_without_use(server: Prometheus) -> None:
    before = OCTOBER.__class__("2026-09", OCTOBER.start - 30 * DAY, OCTOBER.start)
    with pytest.raises(ConsoleError) as raised:
        of_prometheus("test", terms(lab()), server, before)
    assert "has no samples of gpu_tenancy:gpus_used in 2026-09; deploy the stack" in str(raised.value)


def test_what_prometheus_does_not_compute_is_its_own_message(server: Prometheus) -> None:
    with pytest.raises(ConsoleError) as raised:
        list(server.query("sum(", 0))
    assert "status 400" in str(raised.value)
    assert "parse error" in str(raised.value)


def test_jobs_of_a_month_are_played_again(server: Prometheus, tmp_path: Path) -> None:
    records, left_out = recorded_jobs(server, OCTOBER, ("vision", "speech"))
    assert records == [
        JobRecord("train", _LATE, 7200, "vision", (Part(5, 2),)),
        JobRecord("set", _LATE + 60, 900, "vision", (Part(1, 0), Part(3, 0))),
    ]
    assert left_out == {"no start or no end": 1, "submitted before 2026-10": 1}
    project = Project.at(tmp_path / "project")
    project.write("dev", lab())
    words = ("replay", "dev", "--prometheus", server.url, "--month", "2026-10")
    found = json.loads(tenancy(*words, "-o", "json", project=project.folder).stdout)
    assert found["jobs"] == 2
    assert found["leftOut"] == left_out
    assert sum(group["gpuHours"] for group in found["groups"]) == 20
    for more, code, message in (
        (("--used", "jobs.jsonl"), 2, "specify one of --used and --prometheus"),
        (("--month", "2026-09"), 1, "has no samples of kube_job_created in 2026-09 of a team of the stack"),
    ):
        refused = tenancy(*words, *more, project=project.folder)
        assert refused.exit_code == code
        assert message in " ".join(refused.output.split())


def test_jobs_that_idle_stops_end_sooner_when_replayed(server: Prometheus, tmp_path: Path) -> None:
    project = Project.at(tmp_path / "project")
    operators = {"prometheus": "installed", "gpuOperator": "installed"}
    project.write("dev", lab())
    project.write("idle", lab(idle={"for": "2h", "except": ["nightly"]}, operators=operators))
    words = ("--prometheus", server.url, "--month", "2026-08")
    found = json.loads(tenancy("replay", "idle", *words, "-o", "json", project=project.folder).stdout)
    ((before,), (after,)) = found["against"]["groups"], found["groups"]
    # 8 GPUs each: `idle` ends 7 h sooner, `slow` 7.5 h; `wakes` was busy again an hour after its stop.
    assert before["gpuHours"] - after["gpuHours"] == pytest.approx((7 + 7.5 + 1) * 8, abs=3)
    assert after["wait95"] < before["wait95"]
    assert found["against"]["teams"] == {"vision": "gains"}
    shown = tenancy("replay", "idle", *words, "--out", tmp_path / "out", project=project.folder).output
    assert "vision gains" in shown
    assert "Dashed: without idle." in (tmp_path / "out" / "replay.html").read_text(encoding="utf-8")
    plain = json.loads(tenancy("replay", "dev", *words, "-o", "json", project=project.folder).stdout)
    assert (plain["groups"], plain["against"]) == ([before], None)
