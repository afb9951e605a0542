"""The page of `tenancy whatif`: its words, tables and lengths match the simulation."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from page_reader import Html, Page, well_formed, without_style
from repository import ROOT
from syrupy.assertion import SnapshotAssertion
from whatif_played import (
    NASTY,
    STACKS,
    everyone,
    load_timeline,
    only,
    replayed_twice,
    sixty,
    small,
    small_scenario,
    told,
    tree,
    tree_of,
)

from gpu_tenancy.base.quantity import MEMORY, amount
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.shares import Measure, Tree, measures_of, supply_of
from gpu_tenancy.pages.bars import Bar, Branch
from gpu_tenancy.review.charts import Drawing, tanks
from gpu_tenancy.simulation.stage import every_measure
from gpu_tenancy.whatif.charts import HEIGHT, OTHERS, flavor_hues, job_lanes, shades, usage_charts
from gpu_tenancy.whatif.narrative import headline, sentences
from gpu_tenancy.whatif.page import replay_page, timeline_page
from gpu_tenancy.whatif.timeline import Timeline


def test_page_of_scenario_matches_snapshot(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    assert without_style(timeline_page(small_scenario(tmp_path))) == snapshot(extension_class=Html)


def test_page_includes_both_style_sheets() -> None:
    text = timeline_page(everyone(tree(small())))
    for file in ("pages/templates/style.css", "whatif/templates/page.css"):
        assert (ROOT / "gpu_tenancy" / file).read_text(encoding="utf-8").strip() in text


def nobody() -> Tree:
    sections = small()
    for settings in sections["teams"].values():
        del settings["gpus"]
    sections["teams"]["search"].pop("gangs")
    return tree(sections)


PAGES: dict[str, Callable[[Path], str]] = {
    "busy": lambda _: timeline_page(everyone(tree(small()))),
    "alone": lambda _: timeline_page(only(tree(small()), "vision")),
    "scenario": lambda folder: timeline_page(small_scenario(folder)),
    "sixty jobs": lambda folder: timeline_page(sixty(folder)),
    "scenario without steps": lambda folder: timeline_page(told(tree(small()), "steps: []", folder)),
    "no team has GPUs": lambda _: timeline_page(everyone(nobody())),
    "replay": lambda _: replay_page(replayed_twice()),
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_well_formed_and_deterministic(name: str, tmp_path: Path) -> None:
    text = PAGES[name](tmp_path)
    well_formed(text)
    assert "<script" not in text
    assert NASTY not in text
    assert PAGES[name](tmp_path) == text


def test_page_shows_user_text_verbatim(tmp_path: Path) -> None:
    assert f"the day begins, {NASTY}" in Page(timeline_page(small_scenario(tmp_path))).texts


# Every number, against the simulation's own states.


def same(measure: Measure, one: int, other: int) -> bool:
    """Whether amounts of a page are equal; memory is shown in tenths of a GiB, of which up to three are added."""
    return abs(one - other) <= (2**30 // 5 if measure.resource == MEMORY else 0)


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_usage_table_agrees_with_simulation(file: Path) -> None:
    found = tree_of(file)
    timeline = everyone(found)
    seen = Page(timeline_page(timeline)).tables["Usage by team"]
    measures = {measure.label: measure for measure in every_measure(found)}
    rows = {(row[0], row[1]): [amount(measures[row[1]].resource, cell) for cell in row[2:7]] for row in seen[1:]}
    for (team, flavor), (sure, limit, runs, borrowed, waits) in rows.items():
        measure = measures[flavor]
        share = found.team_shares[team][measure.flavor][measure.resource]
        assert (sure, limit) == (share.guaranteed, share.effective_limit)
        assert same(measure, runs, timeline.last.amount(team, measure))
        if measure.resource == MEMORY:
            assert runs + waits <= limit + 2**30 // 5, "memory follows the CPUs"
        else:
            assert same(measure, runs + waits, limit), "everyone requests the limit"
        assert same(measure, borrowed, max(0, runs - sure))
    assert {(team, measure.label) for team in found.queue_owners for measure in measures_of(found, team)} <= rows.keys()


def bars(branch: Branch) -> list[Bar]:
    return [*(bar for _, own in branch.teams for bar in own), *(bar for group in branch.groups for bar in bars(group))]


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_bars_show_the_usage_of_the_simulation(file: Path) -> None:
    timeline = everyone(tree_of(file))
    page = timeline_page(timeline)
    used = {(held.team, held.flavor, "Kueue"): held.runs for held in timeline.held}
    drawing = Drawing(outlook(timeline.tree.stack), used=used)
    for bar in bars(drawing.tree):
        runs = used.get((bar.name, bar.flavor, bar.scheduler))
        assert bar.used == (None if runs is None else drawing.scale.percent(bar.flavor, runs))
        assert (f'aria-label="{bar.says}"' if bar.flavor else f">{bar.remark}<") in page


def ran(timeline: Timeline, at: int, flavor: str) -> int:
    return sum(job.gpus for job in timeline.moments[at].running if job.flavor == flavor)


def test_pictures_and_tables_agree_after_each_step(tmp_path: Path) -> None:
    timeline = sixty(tmp_path)
    drawn, seen = job_lanes(timeline), Page(timeline_page(timeline)).tables
    lanes = {lane.name: lane for lane in drawn.lanes if lane.spells}
    assert len(lanes) == 60
    rows = {row[0]: row[3:] for row in seen["Jobs by step"][1:]}
    (chart,) = usage_charts(timeline)
    assert chart.capacity == chart.top == supply_of(timeline.tree, Measure("h100", "nvidia.com/gpu"))
    for at, moment in enumerate(timeline.moments):
        middle = 100 * (at + 0.5) / len(timeline.moments)
        states = {
            name: "running" if spell.runs else "pending"
            for name, lane in lanes.items()
            for spell in lane.spells
            if spell.left < middle < spell.left + spell.width
        }
        expected = {job.workload: "running" for job in moment.running}
        expected |= {job.workload: "pending" for job in moment.waiting}
        assert states == expected
        assert {name: cells[at] for name, cells in rows.items() if cells[at] in {"running", "pending"}} == expected
        assert sum(band.amounts[at] for band in chart.bands) == ran(timeline, at, "h100")
        assert sum(int(row[2 + at]) for row in seen["GPUs in use by step"][1:]) == ran(timeline, at, "h100")
    gone = [(job.workload, job.by) for _, job in timeline.preempted()]
    assert gone
    assert [(row[0], row[4]) for row in seen["Preempted jobs"][1:]] == gone
    assert len(drawn.arrows) == len({(step.label, job.workload, job.by) for step, job in timeline.preempted()})
    assert [row[0] for row in seen["Pending jobs"][1:]] == [job.workload for job in timeline.last.waiting]


def test_bands_of_a_chart_lie_on_one_another(tmp_path: Path) -> None:
    h100, *_ = usage_charts(small_scenario(tmp_path))
    assert [(band.who, band.amounts) for band in h100.bands] == [
        ("search", [0, 0, 0, 0]),
        ("speech", [6, 0, 0, 0]),
        ("vision", [0, 8, 8, 8]),
    ]
    assert list(h100.outlines)[-1][1] == (
        "M0 27.5 V27.5H250.0 V0.0H500.0 V0.0H750.0 V0.0H1000.0 V110.0H750.0 V110.0H500.0 V110.0H250.0 V27.5H0.0Z"
    )
    assert (h100.limit, h100.sums) == (0.0, ["6", "8", "8", "8"])
    assert replace(h100, before=[16, 4]).earlier == f"M0 0.0 V0.0H500.0 V{HEIGHT * 3 / 4}H1000.0"


def test_lanes_do_not_overlap_and_arrows_join_lanes(tmp_path: Path) -> None:
    drawn = job_lanes(sixty(tmp_path))
    tops = [lane.top for lane in drawn.lanes]
    assert tops == [sum(lane.height for lane in drawn.lanes[:at]) for at in range(len(tops))]
    assert drawn.height == sum(lane.height for lane in drawn.lanes)
    middles = {lane.top + lane.height // 2 for lane in drawn.lanes if lane.spells}
    for arrow in drawn.arrows:
        assert arrow.start in middles
        assert min(abs(arrow.end - middle) for middle in middles) == 6


# In words.


def test_scenario_is_described_in_words(tmp_path: Path) -> None:
    timeline = small_scenario(tmp_path)
    assert headline(timeline) == "At the end: 8 of 15 GPUs in use, 3 jobs pending"
    assert list(sentences(timeline)) == [
        "8 of 8 h100 GPUs in use: speech uses 0 (14 pending); vision uses 8 (4 borrowed, 4 pending).",
        "0 of 7 l4 GPUs in use.",
        "1 of 31 CPUs in use: speech uses 1 (1 borrowed).",
        "4Gi of 116Gi memory in use: speech uses 4Gi (4Gi borrowed).",
    ]


def test_page_lists_the_events_of_each_step(tmp_path: Path) -> None:
    texts = Page(timeline_page(small_scenario(tmp_path))).texts
    events = [text for text in texts if " admitted: " in text or " preempted by " in text or " finished" in text]
    events = [text for text in events if not text.startswith("step ")]
    assert events[:5] == [
        "sweep admitted: speech uses 6 h100 GPUs, 4 borrowed",
        "api admitted: search uses 2 l4 GPUs",
        "etl admitted: speech uses 1 CPU, 1 borrowed",
        "sweep (speech) preempted by train (vision), InCohortReclamation: reclamation within the cohort",
        "train admitted: vision uses 4 h100 GPUs",
    ]
    assert events[-1] == "api (search) finished"


def test_load_is_described_in_words() -> None:
    timeline = everyone(tree(small()), first="speech")
    assert headline(timeline) == "14 of 15 GPUs in use, 2 teams with pending jobs"
    assert list(sentences(timeline)) == [
        "8 of 8 h100 GPUs in use: speech uses 4 (2 borrowed, 4 pending); vision uses 4 (4 pending).",
        "6 of 7 l4 GPUs in use: search uses 6 (4 borrowed).",
    ]
    (speech,) = [row for row in Page(timeline_page(timeline)).tables["Usage by team"] if row[0] == "speech"]
    assert speech[-1] == "4 jobs by vision (InCohortReclamation)"
    assert headline(only(tree(small()), "vision")) == "8 of 8 GPUs in use, no jobs pending"


def test_page_reports_livelocks_and_unmodelled_features() -> None:
    calm = everyone(tree(small()))
    moment = replace(calm.last, restless=("speech", "vision"))
    timeline = replace(load_timeline(calm.tree, moment), left_out=("admission checks: words",))
    words = Page(timeline_page(timeline)).words
    assert headline(timeline) == "Some queues end in a livelock"
    assert "everyone busy: Jobs of speech, vision preempt one another endlessly" in words
    assert "so Kueue may decide otherwise: admission checks: words" in words
    assert "All features that this stack uses are simulated." in Page(timeline_page(calm)).words


def test_flavors_have_the_colours_of_the_report() -> None:
    found = tree(small())
    report = {tank.flavor: tank.hue for tank in tanks(outlook(found.stack))}
    assert flavor_hues(everyone(found)) == report == {"h100": 0, "l4": 1}


@pytest.mark.slow
def test_teams_with_least_usage_share_one_shade(tmp_path: Path) -> None:
    timeline = sixty(tmp_path)
    assert sorted(shades(timeline).values()) == ["s0", "s1", "s2", "s3", "s4", "s5", OTHERS, OTHERS]
    assert "other teams" in Page(timeline_page(timeline)).words
    few = shades(everyone(tree(small())))
    assert few == {"search": "s0", "speech": "s1", "vision": "s2"}
