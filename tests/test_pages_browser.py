"""Pages of the report, of `tenancy whatif` and of costs in a browser: no errors, no requests, accessible."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_tool import Scheme, browser, check_accessible, check_quiet, check_width, emptied, opened
from builders import GPU
from cost_month import OCTOBER, arrivals, lab, played, terms
from playwright.sync_api import Browser, Page
from rendered_stacks import stack_of_repository
from review_pages import bare, full, many, outlook_of, reviewed
from whatif_played import everyone, replayed_twice, sixty, small, small_scenario, tree

from gpu_tenancy.cluster.budgets import Budget
from gpu_tenancy.cost import tables
from gpu_tenancy.cost.workloads import of_workloads
from gpu_tenancy.explain.usage import TeamBudget
from gpu_tenancy.local.checks import Check
from gpu_tenancy.local.report import running
from gpu_tenancy.local.summary import Composition, Holding, Summary, Supply
from gpu_tenancy.local.up import Outcome
from gpu_tenancy.review.changes import Change, FieldChange
from gpu_tenancy.review.page import page
from gpu_tenancy.review.review import Review
from gpu_tenancy.simulation.records import Trace
from gpu_tenancy.whatif.page import replay_page, timeline_page

pytestmark = [pytest.mark.process, pytest.mark.slow]

TEAMS = 200
LARGEST = 2_000_000
WIDTHS = (1280, 390)
SCHEMES: tuple[Scheme, Scheme] = ("light", "dark")


def large(teams: int = TEAMS) -> Review:
    now, earlier = many(teams), many(teams)
    for team in earlier["teams"].values():
        team["gpus"]["h100"]["limit"] = 12
    changed = tuple(
        Change(
            "update" if kind == "ResourceQuota" else "create",
            f"team {name}",
            kind,
            f"{name}/{kind.lower()}",
            f"urn:{name}:{kind}",
            (FieldChange("spec.hard.requests.nvidia.com/gpu", "12", "16"),) if kind == "ResourceQuota" else (),
        )
        for name in now["teams"]
        for kind in ("Namespace", "ResourceQuota", "NetworkPolicy", "LimitRange", "ClusterQueue", "LocalQueue")
    )
    where = {f"team {name}": f"stacks/Pulumi.test.yaml:{line}" for line, name in enumerate(now["teams"])}
    return reviewed(outlook_of(now), before=outlook_of(earlier), changed=changed, where=where)


def outcome() -> Outcome:
    found = stack_of_repository("local")
    summary = Summary(
        holdings=(Holding("ml-research", "a100", "Kueue", guaranteed=8, limit=32, used=28, lends=True, resource=GPU),),
        budgets=(TeamBudget("ml-research", Budget("budget", "requests.memory", 237 * 2**30, 258 * 2**30)),),
        supply=(Supply("a100", "NVIDIA-A100-SXM4-80GB", 4, 32, 28, GPU),),
        waiting=1,
        astray=(),
    )
    return Outcome(
        preview=found,
        engine="server-side apply",
        changes={"created": 71},
        nodes={},
        objects=71,
        kubeconfig=Path("kubeconfig"),
        server="https://127.0.0.1:1",
        summary=summary,
        checks=(Check("ml-research cannot use more than its 36", "refused", holds=True), Check("b", "c", holds=False)),
        composition=Composition(("API server 1.36.3", "Kueue 0.19.2"), ("nodes and their GPUs (kwok)",)),
    )


def costs(trace: Path) -> str:
    items = list(played(lab(), arrivals(3, 60)).workloads())
    trace.write_text(json.dumps({"items": items}), encoding="utf-8")
    return tables.page(of_workloads("test", terms(lab()), Trace(trace), OCTOBER))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "full": page(full()),
        "bare": page(bare()),
        "large": page(large()),
        "eight": page(large(8)),
        "up": page(reviewed(outlook_of(many(3))), running(outcome())),
        "busy": timeline_page(everyone(tree(small()), first="speech")),
        "scenario": timeline_page(small_scenario(folder)),
        "sixty": timeline_page(sixty(folder)),
        "replay": replay_page(replayed_twice()),
        "cost": costs(folder / "october.json"),
    }
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def started(pages: dict[str, Path]) -> Iterator[Browser]:
    # Pages first: Playwright keeps an event loop running in this thread, in which no program can be rendered.
    assert pages
    with browser() as found:
        yield found


@pytest.fixture
def chromium(started: Browser) -> Iterator[Browser]:
    with emptied(started) as found:
        yield found


REVIEWS = ("full", "bare", "large", "up")
NAMES = (*REVIEWS, "busy", "scenario", "sixty", "replay", "cost")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_no_errors_and_no_requests(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    check_quiet(chromium, pages[name])


# axe takes 20 s for the rows of the large page.
@pytest.mark.parametrize("name", [{"large": "eight"}.get(name, name) for name in NAMES])
def test_axe_finds_no_violations_with_open_details(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    check_accessible(chromium, pages[name])


@pytest.mark.parametrize("name", REVIEWS)
def test_the_scheme_of_the_reader_is_that_of_the_page(chromium: Browser, pages: dict[str, Path], name: str) -> None:
    grounds = [
        opened(chromium, pages[name], scheme).page.evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in SCHEMES
    ]
    assert grounds == ["rgb(250, 250, 247)", "rgb(19, 22, 27)"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_the_window(chromium: Browser, pages: dict[str, Path], name: str, width: int) -> None:
    check_width(chromium, pages[name], width)


def test_page_of_200_teams_is_small_and_starts_folded(chromium: Browser, pages: dict[str, Path]) -> None:
    assert pages["large"].stat().st_size < LARGEST
    found = opened(chromium, pages["large"]).page
    assert found.locator("#promises > .tree").is_visible()
    assert found.locator("main [data-team]:visible").count() == 0
    assert found.evaluate("document.documentElement.scrollHeight") < 4000


def visible(page_: Page) -> set[str]:
    return {line.get_attribute("data-team") or "" for line in page_.locator("main [data-team]:visible").all()}


def test_the_search_box_filters_teams_in_every_table(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["large"])
    box = found.page.get_by_role("searchbox", name="Find a team")
    box.fill("team-042")
    assert visible(found.page) == {"team-042"}
    assert found.page.locator("form.find output").inner_text() == "1 of 200 teams"
    places = ["#promises", "#teams", "#cost-by-team", "#access", "#changes"]
    assert [found.page.locator(f"{place} [data-team]:visible").count() > 0 for place in places] == [True] * len(places)
    assert found.page.locator("#promises li.group:visible").count() == 2  # the root and the team's division
    box.fill("DIVISION-3 people-6")
    assert visible(found.page) == {f"team-{number:03}" for number in range(3, TEAMS, 10) if number % 17 == 6}
    box.fill("nobody of that name")
    assert visible(found.page) == set()
    assert found.page.locator("form.find output").inner_text() == "0 of 200 teams"
    box.fill("")
    assert visible(found.page) == set()
    assert found.page.locator("#promises li.group:visible").count() == 11
    assert found.page.locator("form.find output").inner_text() == ""
    assert found.complaints == []


def test_the_box_is_reached_and_used_by_keyboard_alone(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["large"]).page
    links = found.locator("nav a").count()
    for _ in range(links + 1):
        found.keyboard.press("Tab")
    found.keyboard.type("cc-039 h100")
    assert visible(found) == {f"team-{number:03}" for number in range(39, TEAMS, 40)}
    found.keyboard.press("Enter")  # which sends the form nowhere
    assert visible(found) == {f"team-{number:03}" for number in range(39, TEAMS, 40)}


def test_the_box_stays_in_sight(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["large"]).page
    found.locator("#access").scroll_into_view_if_needed()
    top = found.locator("form.find").evaluate("(form) => form.getBoundingClientRect().top")
    assert found.evaluate("scrollY") > 500
    assert top == 0


def test_without_scripts_the_page_is_whole(chromium: Browser, pages: dict[str, Path]) -> None:
    found = chromium.new_context(java_script_enabled=False).new_page()
    found.goto(pages["large"].as_uri())
    assert not found.locator("form.find").is_visible()
    found.locator("#promises summary", has_text="division-4").click()
    assert found.locator("#promises [data-team]:visible").count() == TEAMS // 10


def test_the_length_of_a_bar_is_proportional(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["full"]).page
    picture = found.get_by_role("img", name="vision, h100: 4 guaranteed; limit 8 of 16; never lent")
    lengths: dict[str, float] = picture.evaluate(
        "(svg) => Object.fromEntries([...svg.querySelectorAll('rect')].map((rect) =>"
        " [rect.getAttribute('class'), rect.getBoundingClientRect().width / svg.getBoundingClientRect().width]))"
    )
    assert {name: lengths[name] for name in ("rail", "own", "may")} == {
        "rail": pytest.approx(1, abs=0.01),
        "own": pytest.approx(4 / 16, abs=0.01),
        "may": pytest.approx(4 / 16, abs=0.02),  # its outline is outside
    }


@pytest.mark.slow
def test_print_opens_details_and_hides_controls(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["large"]).page
    found.emulate_media(media="print", color_scheme="dark")
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not found.locator("nav").is_visible()
    assert not found.locator("form.find").is_visible()
    shown = found.evaluate(
        "[...document.querySelectorAll('#teams tr[data-team]')].filter((line) => line.checkVisibility()"
        " && line.getBoundingClientRect().height > 0).length"
    )
    assert shown == 2 * TEAMS


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["scenario", "sixty"])
def test_job_names_are_beside_their_lanes_without_overlap(
    chromium: Browser, pages: dict[str, Path], name: str, width: int
) -> None:
    found = opened(chromium, pages[name], width=width).page
    names = found.evaluate(
        "[...document.querySelectorAll('.time .job')].map((each) => { const box = each.getBoundingClientRect();"
        " return [box.top, box.bottom]; })"
    )
    bars = found.evaluate(
        "[...document.querySelectorAll('svg.lanes > g[class^=h]')].map((each) => {"
        " const box = each.firstElementChild.getBoundingClientRect(); return [box.top, box.bottom]; })"
    )
    assert len(names) == len(bars) > 0
    assert all(top <= above and below <= bottom for (top, bottom), (above, below) in zip(names, bars, strict=True))
    texts = found.evaluate(
        "[...document.querySelectorAll('.sums div, .time .names span, .time .steps b, .time .label')]"
        ".filter((each) => each.checkVisibility()).map((each) => each.getBoundingClientRect())"
        ".map((box) => [box.left, box.top, box.right, box.bottom])"
    )
    overlapping = [
        (one, other)
        for at, one in enumerate(texts)
        for other in texts[at + 1 :]
        if one[0] < other[2] - 1 and other[0] < one[2] - 1 and one[1] < other[3] - 4 and other[1] < one[3] - 4
    ]
    assert overlapping == []


def test_on_paper_all_that_scrolls_on_a_screen_is_there(chromium: Browser, pages: dict[str, Path]) -> None:
    found = opened(chromium, pages["sixty"]).page
    found.emulate_media(media="print", color_scheme="dark")
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not found.locator("nav").is_visible()
    assert found.locator(".time .job").count() == 60
