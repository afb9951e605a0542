"""GPU-hours of a simulated month add up, and so does the ledger at each moment."""

import csv
import io
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import Data, pool, team
from cli_builders import Project, tenancy
from cost_month import MILLI, OCTOBER, Month, arrivals, lab, moment, played, terms
from hypothesis import given
from hypothesis import strategies as st
from page_reader import well_formed

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.texts import DASH, hours_text
from gpu_tenancy.cost.statement import HOUR, Hours, Period, Statement, of_only
from gpu_tenancy.cost.tables import (
    costs_table,
    csv_text,
    data,
    headline,
    jobs_table,
    losses_table,
    notes,
    page,
    teams_table,
)
from gpu_tenancy.cost.workloads import NO_LENT, SPREAD, Ledger, Promise, of_workloads
from gpu_tenancy.simulation.records import Trace


def read(folder: Path, items: list[Any], sections: Data | None = None, period: Period = OCTOBER) -> Statement:
    file = folder / "october.json"
    file.write_text(json.dumps({"kind": "List", "items": items}), encoding="utf-8")
    return of_workloads("test", terms(sections or lab()), Trace(file), period)


@pytest.fixture(scope="module")
def month() -> Month:
    return played(lab(), arrivals(7))


@pytest.fixture
def statement(tmp_path: Path, month: Month) -> Statement:
    return read(tmp_path, list(month.workloads()))


def test_a_played_month_adds_up_to_the_gpu_hours_that_existed(month: Month, statement: Statement) -> None:
    assert max(month.ends.values()) < (OCTOBER.end - OCTOBER.start) * MILLI, "all has happened within the month"
    total = sum((line.hours for line in statement.lines), Hours())
    assert total.used == pytest.approx(month.gpu_hours(), rel=1e-3)
    assert total.used > 3000
    (supply,) = statement.supply
    assert supply.existed == 16 * 31 * 24
    assert supply.used + supply.unused == pytest.approx(supply.existed)
    assert total.guaranteed == 14 * 31 * 24
    for line in statement.lines:
        hours = line.hours
        assert hours.used == pytest.approx(month.gpu_hours(line.team), rel=1e-3)
        assert hours.guaranteed == pytest.approx(hours.used - hours.borrowed + hours.idle)
    assert 0 < (total.lent or 0) < total.borrowed
    assert sum(job.gpu_hours for job in statement.jobs) == pytest.approx(total.used)


def test_time_before_preemption_counts_as_held_and_lost(month: Month, statement: Statement) -> None:
    past = sum(month.past[name] * held_by(month, name) for name in month.past) / MILLI / 3600
    assert past > 10
    assert sum(loss.preempted or 0 for loss in statement.losses) == pytest.approx(past, rel=1e-2)
    assert SPREAD in statement.notes
    assert [loss.failed for loss in statement.losses] == [0] * len(statement.losses)


def held_by(month: Month, name: str) -> int:
    return sum(pods.requests["nvidia.com/gpu"] for pods in month.jobs[name].arrival.workload.pod_sets)


def test_tables_csv_and_data_have_the_same_sums(statement: Statement) -> None:
    used = sum(line.hours.used for line in statement.lines)
    rows = list(csv.DictReader(io.StringIO(csv_text(statement))))
    assert sum(float(row["usedGpuHours"]) for row in rows if not row["job"]) == pytest.approx(used, abs=0.01)
    assert sum(float(row["usedGpuHours"]) for row in rows if row["job"]) == pytest.approx(used, abs=0.1)
    found: Any = data(statement)
    assert sum(job["gpuHours"] for job in found["jobs"]) == pytest.approx(used)
    assert [cell.text for cell in teams_table(statement).rows[-1].cells][:4] == ["total", "", "10,416", f"{used:,.0f}"]
    costs = [[cell.text for cell in row.cells] for row in costs_table(statement).rows]
    # 10 dollars per GPU-hour.
    assert costs[-1][:4] == ["total", "", "$104,160", f"${used * 10:,.0f}"]
    rows_of = "rd-001 serving; rd-001 vision; rd-001 all its teams; rd-002 speech; total "
    assert [" ".join(row[:2]) for row in costs] == rows_of.split("; ")
    assert headline(statement).startswith(f"2026-10: {used:,.0f} GPU-hours used, ${used * 10:,.0f};")


def test_the_page_has_every_table_and_no_script(statement: Statement) -> None:
    text = page(statement)
    well_formed(text)
    assert "<script" not in text
    for title in ("GPU-hours by team", "US dollars by cost center", "GPU-hours by job", "GPU-hours of the nodes"):
        assert title in text


def one(name: str = "train", namespace: str = "vision", gpus: int = 4, **more: Any) -> Data:
    """A Workload that was submitted at the start of October, admitted a day later, and ran for a day."""
    day = 86_400 * MILLI
    conditions = [
        {"type": "Admitted", "status": "True", "lastTransitionTime": moment(day)},
        {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": moment(2 * day)},
    ]
    assignment = {"count": 1, "flavors": {"nvidia.com/gpu": "h100"}, "resourceUsage": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": moment(0)},
        "spec": {},
        "status": {"admission": {"podSetAssignments": [assignment]}, "conditions": conditions, **more},
    }


def used(statement: Statement, team: str = "vision") -> float:
    return next(line.hours.used for line in statement.lines if line.team == team)


def test_running_workload_counts_until_the_months_end(tmp_path: Path) -> None:
    running = one()
    running["status"]["conditions"].pop()
    assert used(read(tmp_path, [running])) == 4 * 30 * 24
    tenth = Period.of("2026-10", datetime(2026, 10, 10, tzinfo=UTC))
    assert used(read(tmp_path, [running], period=tenth)) == 4 * 8 * 24


def test_a_month_has_only_its_own_part_of_a_workload(tmp_path: Path) -> None:
    early = one()
    early["status"]["conditions"][0]["lastTransitionTime"] = "2026-09-29T00:00:00Z"
    early["metadata"]["creationTimestamp"] = "2026-09-01T00:00:00Z"
    assert used(read(tmp_path, [early])) == 4 * 2 * 24


def test_a_workload_that_failed_is_lost_whole(tmp_path: Path) -> None:
    failed = one()
    failed["status"]["conditions"][1]["reason"] = "Failed"
    (loss,) = (loss for loss in read(tmp_path, [failed]).losses if loss.team == "vision")
    assert (loss.unused, loss.preempted, loss.failed) == (None, 0, 96)


def test_evictions_are_split_by_their_reasons(tmp_path: Path) -> None:
    evictions = [{"reason": "Preempted", "count": 3}, {"reason": "NodeFailures", "count": 1}]
    stats: Data = {"schedulingStats": {"evictions": evictions}, "accumulatedPastExecutionTimeSeconds": 7200}
    found = read(tmp_path, [one(**stats)])
    (loss,) = (loss for loss in found.losses if loss.team == "vision")
    assert (loss.preempted, loss.failed) == (pytest.approx(6), pytest.approx(2))
    assert used(found) == pytest.approx(96 + 8)
    assert [row.cells[2].text for row in losses_table(found).rows] == ["6.0"]


def test_team_in_a_shared_queue_has_its_own_jobs(tmp_path: Path) -> None:
    found = read(tmp_path, [one(), one("thesis", "students")])
    assert used(found) == 192
    jobs = [("vision", "vision", "train"), ("vision", "students", "thesis")]
    assert [(job.queue, job.team, job.job) for job in found.jobs] == jobs
    only = of_only(found, "vision")
    assert (len(only.jobs), len(only.lines)) == (2, 1)


def test_unknown_namespace_borrows_all_that_it_uses(tmp_path: Path) -> None:
    found = read(tmp_path, [one(), one("old", "gone")])
    (line,) = (line for line in found.lines if line.team == "gone")
    assert (line.center, line.hours.borrowed, line.hours.guaranteed) == ("", 96, 0)
    assert found.lines[-1] is line


def test_users_are_those_of_the_label(tmp_path: Path) -> None:
    named = one("mine")
    named["metadata"]["labels"] = {"gpu-tenancy.dev/user": "anna"}
    found = read(tmp_path, [one(), named])
    assert {job.user for job in found.jobs} == {"", "anna"}
    assert "GPU-hours by user" in page(found)
    assert [cell.text for cell in jobs_table(found, 1).rows[0].cells][1:] == ["vision", "h100", "96", "$960"]


def test_what_a_file_does_not_have_is_unknown_and_said(tmp_path: Path) -> None:
    alone = read(tmp_path, [one()])
    assert NO_LENT in alone.notes
    assert {line.hours.lent for line in alone.lines} == {None}
    assert any("flavor t4 with GPUs is not in the stack" in note for note in read(tmp_path, [one(), _t4()]).notes)
    waiting: Data = {**one(), "status": {}}
    assert any("1 Workloads are left out" in note for note in read(tmp_path, [one(), waiting]).notes)


def _t4() -> Data:
    other = one("other")
    other["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"nvidia.com/gpu": "t4"}
    return other


def test_an_unknown_price_is_never_a_number(tmp_path: Path) -> None:
    own: Data = {"gpu": "h100", "gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 2}
    sections = lab(prices={})
    sections["pools"]["h100"] = own
    found = read(tmp_path, [one()], sections)
    assert headline(found) == "2026-10: 96 GPU-hours used; of 10,416 guaranteed, 1% used"
    assert "h100: no price of the machine" in next(notes(found))
    assert {row.cells[2].text for row in costs_table(found).rows} == {"unknown"}
    assert csv_text(found).splitlines()[1].endswith(",")


def test_budgets_stand_beside_what_was_used(tmp_path: Path) -> None:
    sections = lab(operators={"prometheus": "installed"})
    sections["teams"]["vision"]["monthlyBudget"] = 1000
    found = read(tmp_path, [one(), one("more", gpus=1), one("talk", "speech", 1)], sections)
    table = costs_table(found)
    assert [column.title for column in table.columns][-2:] == ["budget of 30 days", "used of it"]
    rows = {(row.cells[1].text or "total"): [cell.text for cell in row.cells][3:] for row in table.rows}
    # 120 GPU-hours for 10 dollars. The others of its cost center have no budget, so neither has their sum.
    assert rows["vision"] == ["$1,200", "$58,320", "$0", "$1,000", "120%"]
    assert [rows[name][-2:] for name in ("serving", "all its teams", "total")] == [[DASH, DASH]] * 3
    budgets: Any = data(found)
    of_teams = {team["team"]: team["usdMonthlyBudget"] for team in budgets["teams"]}
    assert of_teams == {"serving": None, "speech": None, "vision": 1000}
    assert "used of it" not in [column.title for column in costs_table(read(tmp_path, [one()])).columns]


def test_hours_are_rounded_to_what_can_be_read() -> None:
    texts = [hours_text(hours) for hours in (None, 0, 0.04, 0.05, 9.94, 9.96, 1204.4)]
    assert texts == ["unknown", "0", "0", "0.1", "9.9", "10", "1,204"]


def test_lines_without_use_or_guarantee_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, [one()])
    assert [line.team for line in found.lines] == ["serving", "speech", "vision"]


@pytest.mark.parametrize(
    ("month", "now", "hours"), [("2026-10", 26, 744), ("2026-02", 26, 672), ("2026-11", 26, 600), (None, 26, 744)]
)
def test_a_month_is_in_utc_and_ends_now_at_the_latest(month: str | None, now: int, hours: float) -> None:
    found = Period.of(month, datetime(2026, 11, now, tzinfo=UTC))
    assert (found.hours, found.month) == (hours, month or "2026-10")


def test_last_month_of_january_is_december() -> None:
    assert Period.of(None, datetime(2026, 1, 3, tzinfo=UTC)).month == "2025-12"


@pytest.mark.parametrize(("month", "message"), [("october", "is not a month"), ("2026-12", "has not begun")])
def test_another_month_is_refused(month: str, message: str) -> None:
    with pytest.raises(ConsoleError) as raised:
        Period.of(month, datetime(2026, 11, 26, tzinfo=UTC))
    assert message in str(raised.value)


def test_the_command_reads_a_file_and_says_why_there_is_nothing(tmp_path: Path) -> None:
    project = Project.at(tmp_path / "project")
    project.write("dev", lab())
    file = tmp_path / "workloads.json"
    file.write_text(json.dumps({"items": [one()]}), encoding="utf-8")
    done = tenancy("cost", "dev", "--month", "2026-10", "--used", file, project=project.folder)
    assert done.exit_code == 0, done.output
    assert "2026-10: 96 GPU-hours used, $960; of 10,416 guaranteed" in done.output
    empty = tenancy("cost", "dev", "--month", "2026-09", "--used", file, project=project.folder)
    assert empty.exit_code == 1
    assert "no GPU-hours in 2026-09" in empty.output
    neither = tenancy("cost", "dev", "--month", "2026-10", project=project.folder)
    assert neither.exit_code == 2
    assert "specify one of --prometheus and --used; run `kubectl port-forward" in neither.output


def test_a_stack_without_gpus_has_no_gpu_hours() -> None:
    with pytest.raises(ConsoleError) as raised:
        terms(lab(pools={"cpu": pool("m7i.8xlarge", 1)}, prices={}, teams={"vision": team()}))
    assert "the stack has no GPUs" in str(raised.value)


# GPU-hours of a flavor: what is used, idle, borrowed and lent adds up at every moment, and so over time.


QUEUES: tuple[str, ...] = ("a", "b", "c", "stranger")
PROMISE = st.builds(Promise, st.integers(0, 16).map(float), st.booleans())
PROMISES = st.fixed_dictionaries(dict.fromkeys(QUEUES[:3], PROMISE))
CHANGE = st.tuples(st.integers(0, 7200), st.sampled_from(QUEUES), st.integers(-8, 8))
CHANGES = st.lists(CHANGE, max_size=20).map(lambda found: sorted(found, key=lambda change: change[0]))
END = 7200


def _by_the_second(
    promises: dict[str, Promise], unassigned: int, changes: list[tuple[int, str, int]]
) -> dict[str, list[float]]:
    """Used, borrowed and lent GPUs of each queue, by the ledger's definition at each second."""
    sums = {name: [0.0, 0.0, 0.0] for name in QUEUES}
    levels = dict.fromkeys(QUEUES, 0)
    moments = sorted({0, END, *(at for at, _, _ in changes)})
    for at, end in pairwise(moments):
        for second, name, by in changes:
            levels[name] += by if second == at else 0
        known = {name: promises.get(name, Promise(0)) for name in QUEUES}
        over = {name: max(0, levels[name] - known[name].guaranteed) for name in QUEUES}
        idle = {name: max(0, known[name].guaranteed - levels[name]) if known[name].lends else 0 for name in QUEUES}
        of_guarantees = max(0, sum(over.values()) - unassigned)
        part = min(1, of_guarantees / sum(idle.values())) if sum(idle.values()) else 0
        for name in QUEUES:
            for place, amount in enumerate((levels[name], over[name], idle[name] * part)):
                sums[name][place] += amount * (end - at) / HOUR
    return sums


@given(PROMISES, st.integers(0, 16), CHANGES)
def test_a_ledger_is_what_a_count_of_every_moment_gives(
    promises: dict[str, Promise], unassigned: int, changes: list[tuple[int, str, int]]
) -> None:
    ledger = Ledger(promises, unassigned, 0.0)
    levels = dict.fromkeys(QUEUES, 0)
    kept: list[tuple[int, str, int]] = []
    for at, name, by in changes:
        if levels[name] + by >= 0:
            levels[name] += by
            kept.append((at, name, by))
            ledger.change(at, name, by)
    found = ledger.closed(END)
    for name, (used, borrowed, lent) in _by_the_second(promises, unassigned, kept).items():
        hours = found.get(name, Hours())
        assert hours.used == pytest.approx(used, abs=1e-6)
        assert hours.borrowed == pytest.approx(borrowed, abs=1e-6)
        assert hours.lent == pytest.approx(lent, abs=1e-6)
        promised = promises.get(name, Promise(0)).guaranteed * END / HOUR
        assert hours.guaranteed == pytest.approx(promised)
        assert hours.guaranteed == pytest.approx(hours.used - hours.borrowed + hours.idle, abs=1e-6)
        assert (hours.lent or 0) <= hours.idle + 1e-6
    total = sum(found.values(), Hours())
    assert (total.lent or 0) <= total.borrowed + 1e-6


def test_unassigned_quota_is_borrowed_before_guarantees() -> None:
    ledger = Ledger({"a": Promise(0), "b": Promise(6), "c": Promise(3), "d": Promise(9, lends=False)}, 4, 0.0)
    ledger.change(0, "a", 10)
    found = ledger.closed(HOUR)
    assert (found["a"].borrowed, found["b"].lent, found["c"].lent, found["d"].lent) == (10, 4, 2, 0)


def test_lent_is_unknown_if_a_part_of_it_is() -> None:
    assert (Hours(lent=None) + Hours(lent=1)).lent is None
