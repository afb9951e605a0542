"""`tenancy cost` asks a real Prometheus, which has a day of the recording rules' metrics."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_builders import Project, tenancy
from cost_month import OCTOBER, lab, terms
from prometheus_tool import promtool, running
from starts import GUARD

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


def _use(name: str, hours: list[tuple[float, int | None]], gpus: int = 8, kind: str = "Job") -> dict[str, list[str]]:
    """Samples of a job's pod: for each number of hours, percent or a gap."""
    pod, owner = f'namespace="vision",pod="{name}-0"', f'created_by_kind="{kind}",created_by_name="{name}"'
    series = {
        f"gpu_tenancy:pod_gpu_utilization{{{pod}}}": None,
        f"kube_pod_info{{{pod},{owner}}}": 1,
        f'gpu_tenancy:gpus_of_job{{namespace="vision",{owner}}}': gpus,
    }
    made: dict[str, list[str]] = {one: [] for one in series}
    at = AUGUST.start + DAY - 4 * 3600  # over midnight
    for length, percent in hours:
        for _ in range(round(length * 3600 / RECORDED_EVERY)):
            at += RECORDED_EVERY
            for one, value in series.items() if percent is not None else ():
                made[one].append(f"{one} {percent if value is None else value} {at:.0f}")
    return made


USED = {
    **_use("idle", [(1, 90), (9, 0)]),
    **_use("slow", [(10, 3)]),
    **_use("wakes", [(1, 90), (3, 0), (1, 90)]),
    **_use("gaps", [(0.7, 0), (1, None), (0.7, 0), (1, None), (0.7, 0)]),
    **_use("busy", [(10, 90)]),
    **_use("nightly", [(10, 0)]),
    **_use("server", [(10, 0)], kind="ReplicaSet"),
}


def _openmetrics() -> str:
    """Samples of the second day of October; a sample at its end belongs to it, one at its start does not."""
    lines: list[str] = []
    every = {**{f"gpu_tenancy:gpus_{series}": value for series, value in SERIES.items()}, **KUBE}
    for name in dict.fromkeys(series.partition("{")[0] for series in every):
        lines.append(f"# TYPE {name} gauge")
        for series, value in every.items():
            if series.startswith(f"{name}{{"):
                moments = range(DAY + RECORDED_EVERY, 2 * DAY + 1, RECORDED_EVERY)
                lines += [f"{series} {value} {OCTOBER.start + at:.0f}" for at in moments]
        lines += [line for one, own in USED.items() if one.startswith(f"{name}{{") for line in own]
    for name in ("gpu_tenancy:pod_gpu_utilization", "kube_pod_info"):
        lines += [f"# TYPE {name} gauge", *(line for one, own in USED.items() if one.startswith(name) for line in own)]
    return "\n".join([*lines, "# EOF\n"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "samples").write_text(_openmetrics(), encoding="utf-8")
    made = [str(promtool()), "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True, timeout=GUARD)
    (folder / "prometheus.yml").write_text("{}", encoding="utf-8")
    # The samples are older or newer than the clock of this machine: they are never deleted.
    with running(folder / "prometheus.yml", folder / "data", "--storage.tsdb.retention.time=100y") as url:
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
