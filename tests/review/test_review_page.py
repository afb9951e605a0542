"""The report's page: texts, charts and structure; and the pull request comment: valid Markdown within its limit."""

import re
import tomllib
from dataclasses import replace

import pytest
from builders import Data
from page_reader import Html, Markdown, Page, well_formed, without_style
from repository import ROOT
from review_pages import CHANGES, NASTY, RULES, bare, full, local, many, outlook_of, prod_aws, reviewed, small
from syrupy.assertion import SnapshotAssertion

from gpu_tenancy.pages.bars import Bar, Scale
from gpu_tenancy.review.changes import Change, FieldChange
from gpu_tenancy.review.charts import Drawing, tanks, text_bar
from gpu_tenancy.review.comment import LEAST, LIMIT, code, comment, mermaid, text
from gpu_tenancy.review.figures import change_groups, differences, key_figures
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.page import page
from gpu_tenancy.review.review import Real, Review


def test_a_review_is_its_golden_page(snapshot: SnapshotAssertion) -> None:
    assert without_style(page(local())) == snapshot(extension_class=Html)


def test_a_page_shows_what_the_stack_local_does_not_have() -> None:
    found = Page(page(full()))
    assert found.tables["Running and pending workloads"][1:] == [
        ["old/sweep", "deleted", "4 l4", "31", "namespace old is deleted"],
        ["vision/pretrain", "preempted", "16 h100", "31", "speech/asr"],
        ["vision/<eval>", "preempted, admitted again", "2 h100", "31", "speech/asr"],
        ["search/index", "stays pending", "4", "31", "insufficient quota in l4"],
        ["speech/asr", "admitted", "8", "31", ""],
    ]
    assert "compared with origin/main (abc1234): 1 deleted, 1 replaced, 3 created, 1 updated" in found.words
    assert "2 running workloads of vision will be preempted for speech (18 GPUs, oldest 31 h)" in found.words
    assert "stacks/Pulumi.test.yaml:4" in found.words


def test_page_of_a_cluster_shows_cost_and_autoscaled_pools() -> None:
    tables_ = Page(page(prod_aws()).replace("\N{EN DASH}", "-")).tables
    assert [row[:2] + row[-1:] for row in tables_["Monthly bill"][6:9]] == [
        ["control plane, in standard support", "1", "all"],
        ["system nodes, m7i.4xlarge", "3", "us-east-1"],
        ["boot disks (gp3), GiB", "3,200, 6,700, 9,400", "us-east-1"],
    ]
    assert tables_["Monthly bill"][-1][2:5] == ["$98,245", "$152,153", "at least $213,655"]
    assert [(row[0], *row[3:6]) for row in tables_["Node pools"][1:]] == [
        ("a100", "on-demand", "0-4", "0-32"),
        ("cpu", "on-demand", "2-3", "-"),
        ("h100", "reserved", "2", "16"),
        ("h200", "capacity-block", "0-2", "0-16"),
        ("l4", "on-demand", "4-16", "16-64"),
    ]


def test_a_page_has_the_style_sheet_of_all_pages() -> None:
    sheet = (ROOT / "gpu_tenancy/pages/templates/style.css").read_text(encoding="utf-8")
    assert f"<style>\n{sheet.strip()}" in page(bare())


@pytest.mark.parametrize(
    "review", [full(), bare(), reviewed(outlook_of(many(40)))], ids=["full", "bare", "forty teams"]
)
def test_a_page_is_well_formed_and_loads_no_resources(review: Review) -> None:
    assert well_formed(page(review)).pictures


def test_the_same_review_gives_the_same_bytes() -> None:
    assert page(full()) == page(full())


def test_user_text_is_shown_verbatim() -> None:
    text = page(full())
    assert NASTY not in text
    assert "<b>" not in text
    assert Page(text).texts.count(NASTY) == 1  # a note of the comparison
    before, code, after = NASTY.split("`")  # in a rule's message, as code
    assert [part for part in Page(text).texts if part.strip() in {before.strip(), code, after.strip()}]


def test_without_packs_the_page_shows_how_to_evaluate_them() -> None:
    words = Page(page(bare())).words
    command = "tenancy preview test --policy workloads --policy clouds"
    assert f"Policies not evaluated. To evaluate both packs, run {command} ." in words
    assert "Changes since the base" not in words


def test_an_unknown_price_is_unknown_and_never_0() -> None:
    review = full()
    shown = tables(review)
    (h100,) = (row for row in shown["pools"].rows if row.cells[0].text == "h100")
    assert [cell.text for cell in h100.cells][6:] == ["unknown"]
    costs = {row.cells[0].text: [cell.text for cell in row.cells[2:]] for row in shown["cost-by-team"].rows}
    assert costs == {
        "search": ["$1,680", "$5,039"],
        "speech": ["$0", "unknown"],
        "vision": ["unknown", "unknown"],
        "all teams": ["at least $1,680", "at least $5,039"],
    }
    found = {(figure.bound, figure.value, figure.note[:16], figure.change) for figure in key_figures(review)[2:]}
    assert found == {("at least ", "$7.9k", "no price: h100; ", "was $88,254")}
    assert "No price for node pool h100; costs that include it are lower bounds." in Page(page(review)).words


def test_a_page_begins_with_what_the_stack_is_and_needs() -> None:
    words = Page(page(bare())).words
    standing = "environment test: not production (not protected, guards warn) · 99 resources"
    assert words.startswith(f"test: GPU tenancy test {standing} Expected in the cluster, not checked: ")
    assert "kubectl api-versions must list " in words


def test_each_number_is_shown_with_its_base_value() -> None:
    review = full()
    (speech,) = (row for row in tables(review)["promises"].rows if row.team == "speech")
    assert [(cell.text, cell.was) for cell in speech.cells[4:8]] == [("0", ""), ("", ""), ("8", "4"), ("8", "4")]
    (search,) = (row for row in tables(review)["promises"].rows if row.team == "search")
    assert search.fresh
    assert [bar.was for bar in bars_of(review)] == ["was 0 → 4", "", "new"]


def bars_of(review: Review) -> list[Bar]:
    before = review.comparison.before if review.comparison else None
    tree = Drawing(review.now, before).tree
    return [bar for _, bars in (*tree.groups[0].teams, *tree.teams) for bar in bars]


def test_rows_that_went_are_named_and_come_first() -> None:
    sections = small()
    del sections["teams"]["search"]
    review = reviewed(outlook_of(sections), before=outlook_of(small()))
    found = [one for one in differences(tables(review).values()) if one.table == "Guarantees and limits"]
    assert [(one.about, one.was, one.now) for one in found] == [("search, l4, Kueue", "present", "removed")]
    assert "Removed: search, l4, Kueue." in Page(page(review)).words


def test_a_comparison_without_changes_is_reported() -> None:
    now = outlook_of(small())
    words = Page(page(reviewed(now, before=now))).words
    assert "No values changed." in words
    assert "no changes." in words
    assert [figure.change for figure in key_figures(reviewed(now, before=now))] == ["±0"] * 5
    new = reviewed(now, notes=("stack test does not exist at origin/main; all resources are new",))
    assert "No values to compare: the base has no valid version of this stack." in Page(page(new)).words


def test_cohorts_that_borrow_as_one_with_even_sharing_are_named() -> None:
    def words(*cohorts: str) -> str:
        groups: Data = {"org": {}, "lab": {"parent": "org"}}
        groups |= {name: {"parent": "org", "weight": 2} for name in cohorts}
        sections = small() | {"fairness": "even", "cohorts": groups}
        return Page(page(reviewed(outlook_of(sections)))).words

    start = "Teams borrow in proportion to their weights, across all cohorts"
    assert f"{start}." in words()
    assert f"{start} except lab, which borrows as one." in words("lab")
    assert f"{start} except lab, other, each of which borrows as one." in words("lab", "other")


def test_groups_with_losses_come_first() -> None:
    groups = change_groups(full())
    assert [(group.name, group.tally, group.loses) for group in groups] == [
        ("team vision", "1 deleted", True),
        ("pool h100", "1 replaced", True),
        ("team search", "3 created", False),
        ("team speech", "1 updated", False),
    ]
    assert [(line.kind, line.names) for line in groups[2].lines] == [
        ("Namespace", ("search",)),
        ("NetworkPolicy", ("search/allow-dns", "search/default-deny")),
    ]


def test_pulumis_preview_overrides_the_offline_comparison() -> None:
    drift = Change("update", "cluster", "Cluster", "cluster", "urn:cluster", (FieldChange("version", "1.34", "1.35"),))
    seen = Real((replace(CHANGES[5], action="replace"), drift), same=90)
    review = reviewed(outlook_of(small()), before=outlook_of(small()), changed=CHANGES[4:], real=seen)
    lines = {
        (group.name, line.action, line.names): line.remark for group in change_groups(review) for line in group.lines
    }
    assert lines == {
        ("team speech", "replace", ("speech",)): "in the files: updated",
        ("cluster", "update", ("cluster",)): "only in the Pulumi preview: the deployed state differs from the base",
        ("team search", "create", ("search/default-deny",)): "unchanged in the Pulumi preview",
    }
    assert "1 replaced, 1 updated; 90 unchanged." in Page(page(review)).words
    alone = replace(review, comparison=None, changes=())
    assert {line.remark for group in change_groups(alone) for line in group.lines} == {""}


def test_bars_are_placed_by_their_numbers() -> None:
    drawing = Drawing(outlook_of(small()), used={("vision", "h100", "Kueue"): 2})
    (lab,) = drawing.tree.groups
    (bounds,) = lab.bars
    assert (bounds.numbers, bounds.solid, bounds.hatch, bounds.tick, bounds.rail) == ("8 → 12", 50, (50, 25), 75, 100)
    assert (drawing.tree.nobody, lab.nobody, lab.guaranteed, lab.count) == ("8 h100, 6 l4", "4 h100", "8 h100", 2)
    bars = {name: bar for name, (bar,) in (*lab.teams, *drawing.tree.teams)}
    speech, vision, search = bars["speech"], bars["vision"], bars["search"]
    assert (speech.solid, speech.hatch, speech.tick) == (0, (0, 50), 50)
    assert (speech.ring, speech.kept, speech.used) == (True, None, None)
    assert (vision.solid, vision.hatch, vision.tick) == (25, (25, 25), 50)
    assert (vision.ring, vision.kept, vision.used) == (False, True, 12.5)
    assert vision.says == "vision, h100: 4 guaranteed; limit 8 of 16; never lent; 2 in use"
    assert (search.rail, search.solid, search.tick, search.kept, search.hue) == (50, 12.5, 37.5, False, 1)


def test_gangs_and_teams_of_shared_queues_are_drawn() -> None:
    sections = small()
    sections["teams"]["search"]["gangs"] = {"l4": {"guaranteed": 2}}
    sections["teams"]["guests"] = {"owner": "research", "costCenter": "rd-003", "queue": "vision"}
    drawing = Drawing(outlook_of(sections))
    (lab,) = drawing.tree.groups
    bars = {name: [(bar.scheduler, bar.numbers, bar.remark) for bar in bars] for name, bars in lab.teams}
    assert list(bars) == ["speech", "vision", "guests"]
    assert bars["guests"] == [("Kueue", "", "shares the queue of vision")]
    assert [(bar.scheduler, bar.numbers, bar.remark) for bar in dict(drawing.tree.teams)["search"]] == [
        ("Kueue", "2 → 6", "lent while idle"),
        ("Volcano", "2 → 2", "Volcano gangs, never lent"),
    ]
    rows = {
        row.cells[0].text: [cell.text for cell in row.cells]
        for row in tables(reviewed(outlook_of(sections)))["cost-by-team"].rows
    }
    assert rows["guests"][2:] == ["paid by vision", "paid by vision"]
    assert "guests shares the queue of vision" in Page(page(reviewed(outlook_of(sections)))).words


def test_guarantees_have_their_largest_job_and_warnings() -> None:
    sections = small()
    sections["teams"]["search"]["quota"] = {"l4": {"cpu": {"guaranteed": 9}, "memory": {"guaranteed": "32Gi"}}}
    sections["teams"]["speech"]["gpus"]["l4"] = {"guaranteed": 0, "limit": 2}  # it may borrow
    done = reviewed(outlook_of(sections))
    (warning,) = done.now.warnings
    guarantees, _, rest = page(done).partition('<section id="supply">')
    assert "covers jobs with up to 9 CPUs and 32Gi: 4.5 CPUs and 16Gi for each GPU" in guarantees
    assert warning in guarantees
    assert warning not in rest


def test_short_flavor_gives_each_flavor_its_own_scale() -> None:
    common = Scale({"large": 80, "small": 10})
    assert (common.common, common.percent("small", 5), common.percent("large", 80)) == (True, 6.25, 100)
    apart = Scale({"large": 81, "small": 10})
    assert (apart.common, apart.percent("small", 5), apart.percent("large", 81)) == (False, 50, 100)
    assert apart.percent("small", 99) == 100
    assert apart.beyond("small", 11)
    assert not apart.beyond("small", 10)


def test_an_oversized_flavor_is_cut_with_a_note() -> None:
    large = reviewed(outlook_of(many(40)))
    assert Drawing(large.now).cut == ("a100", "h100", "l4")
    assert "The capacity of a100, h100, l4 exceeds the chart." in Page(page(large)).words
    assert Drawing(outlook_of(small())).cut == ()


def test_supply_is_drawn_to_the_scale_of_the_longest_bar() -> None:
    sections = small()
    sections["cluster"]["autoscaler"] = True
    sections["pools"]["h100"]["nodes"] = {"min": 0, "max": 2}
    sections["teams"]["speech"]["gpus"]["h100"]["limit"] = 12
    h100, l4 = tanks(outlook_of(sections))
    assert (h100.sure, h100.rail, h100.solid, h100.tick) == (0, 80, 40, 100)
    assert h100.numbers == "8 of 0\N{EN DASH}16 · sum of limits 20"
    assert h100.remark == "8 guaranteed GPUs depend on autoscaling"
    assert (l4.sure, l4.rail, l4.solid, l4.tick, l4.remark) == (40, 40, 10, 30, "")


def test_a_text_bar_shows_small_values() -> None:
    assert text_bar(8, 32, 32) == "█████▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒"
    assert text_bar(0, 8, 32) == "▒▒▒▒▒" + "·" * 15
    assert text_bar(1, 2, 800) == "█▒" + "·" * 18
    assert text_bar(0, 0, 8) == "·" * 20
    assert text_bar(16, 16, 16) == "█" * 20
    assert {len(text_bar(sure, limit, 40)) for sure in range(41) for limit in range(sure, 41)} == {20}


def test_only_pages_of_many_teams_have_a_script() -> None:
    assert "<script" not in page(full())
    assert "script-src &#39;none&#39;" in page(full())
    large = page(reviewed(outlook_of(many(13))))
    assert large.count("<script>") == 1
    assert "script-src &#39;sha256-" in large


def test_rules_are_listed_by_their_effect() -> None:
    words = Page(page(reviewed(outlook_of(small()), rules=RULES))).words
    assert "mandatory image-pinned Job ml-research/nightly: image pytorch has no tag" in words
    assert "advisory surge-room" in words
    assert "exempted nodes-private" in words
    assert "61 rules passed · workloads 0.1.0, clouds 0.1.0" in words


def test_the_templates_are_in_the_wheel() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert "gpu_tenancy" in build["targets"]["wheel"]["only-include"]
    assert "exclude" not in build
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()  # what git ignores, hatch leaves out
    endings = {file.suffix for file in (ROOT / "gpu_tenancy").glob("*/templates/*")}
    assert endings == {".j2", ".css", ".js"}
    assert not [line for line in ignored if line.endswith((".j2", ".css", ".js", "templates/"))]


def test_a_review_is_its_golden_comment(snapshot: SnapshotAssertion) -> None:
    assert comment(local()) == snapshot(extension_class=Markdown)


def test_a_comment_shows_what_the_stack_local_does_not_have() -> None:
    found = comment(full())
    for part in (
        "\n> a\\|b \\`c\\` &lt;b&gt;&amp;amp; \\*d\\* \\_e\\_ ",
        "\n| monthly cost, guarantees | at least **$7.9k** | was $88,254 | no price: h100; with the nodes of all ",
        "\n- ✗ **mandatory** <code>image-pinned</code> Job ml-research/nightly: image pytorch has no tag; ",
        "\n<details><summary>2 advisory, 1 exempted</summary>\n",
        "\n- **team vision**: **deleted** Job <code>vision/nightly</code>\n",
        "\n| **old/sweep** | **deleted** | 4 l4 | 31 | namespace old is deleted |\n",
        "\n| **vision/pretrain** | **preempted** | 16 h100 | 31 | speech/asr |\n",
        "\n| **vision/&lt;eval&gt;** | **preempted, admitted again** | 2 h100 | 31 | speech/asr |\n",
        "\n| **search/index** | stays pending | 4 | 31 | insufficient quota in l4 |\n",
        "\n| **speech/asr** | admitted | 8 | 31 |  |\n",
        "<summary><b>team vision</b> 1 deleted · <code>stacks/Pulumi.test.yaml:12</code></summary>",
    ):
        assert part in found
    fewest = comment(bare())
    assert "\n- Guarantees fit\n" in fewest
    assert "### Changes" not in fewest
    assert "*new*" not in fewest


def test_comment_on_a_cluster_shows_principals_pools_and_cost() -> None:
    found = comment(prod_aws()).replace("&#8203;", "").replace("\N{EN DASH}", "-")
    people = "arn:aws:iam::111122223333:role/ml-research"
    for part in (
        f"\n- 1 IAM principal gains Secrets and exec in ml-experiments ({people}-lead)\n",
        f"\n- 2 IAM principals lose all access in ml-retired ({people}-lead, {people})\n",
        "\n- Team ml-retired is removed: its namespace is deleted with its workloads, and its metrics end",
        "\n- Guarantees fit, but depend on autoscaling: a100 (8 GPUs guaranteed, 0 always available), l4 (54 ",
        "environment prod: production (protected, guards deny)",
        "\n- **created** PodIdentityAssociation <code>cluster-data-team-ml-experiments-default</code>, ",
        "\n  - <code>scalingConfig.maxSize</code>: <code>11</code> → <code>16</code>\n",
        "\n| **h200** | h200 | p5en.48xlarge | capacity-block | 0-2 | 0-16 | unknown |\n",
        "\n| **h200 (p5en.48xlarge)** *new* | 0, 0, 2 | $0 | $0 | unknown | - |\n",
        "\n| **system nodes, m7i.4xlarge** | 3 | $1,766 | $1,766 | $1,766 | us-east-1 |\n",
        "| **at least $213,655** (was $203,426) |  |\n",
        "\n- Prices are of us-east-1 (CPU nodes, GPU nodes, system nodes, boot disks), the stack is in us-west-2; ",
        f"\n| **ml-experiments** *new* | lead | {people}-lead |\n",
        "\nRemoved: ml-retired, lead; ml-retired, researcher.\n",
    ):
        assert part in found


def busy(count: int) -> Review:
    now, earlier = many(count), many(count)
    for team in earlier["teams"].values():
        team["gpus"]["h100"]["limit"] = 12
    fields = (FieldChange("spec.hard.requests.nvidia.com/gpu", "12", "16"),)
    changed = tuple(
        Change("update", f"team {name}", kind, f"{name}/{kind.lower()}", f"urn:{name}:{kind}", fields)
        for name in now["teams"]
        for kind in ("ResourceQuota", "ClusterQueue", "Deployment")
    )
    return reviewed(outlook_of(now), before=outlook_of(earlier), changed=changed, rules=RULES)


def whole(found: str) -> None:
    """All rows of a table have the same number of cells, and all sections and code blocks are closed."""
    assert found.count("<details>") == found.count("</details>")
    assert found.count("```") % 2 == 0
    rows = [line for line in found.splitlines() if line.startswith("|")]
    blocks = [block for block in re.split(r"\n(?!\|)", found) if block.lstrip("\n").startswith("|")]
    assert rows
    assert blocks
    for block in blocks:
        lines = [line for line in block.splitlines() if line.startswith("|")]
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1
        assert re.fullmatch(r"(\| (---|---:) )+\|", lines[1])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [LEAST, 6_000, 10_000, 20_000, 40_000, LIMIT])
@pytest.mark.parametrize("count", [1, 30, 200])
def test_comment_fits_the_limit_in_whole_sections(count: int, limit: int) -> None:
    found = comment(busy(count), limit)
    assert len(found) <= limit
    whole(found)
    assert found.startswith(
        "## ✗ test: Blocked\n\n- Policies: 61 passed, 1 mandatory violation, 1 advisory, 1 exempted\n"
    )
    assert "| guaranteed | **" in found


def test_omitted_parts_are_named_with_their_place() -> None:
    everything = comment(full())
    assert "Omitted" not in everything
    short = comment(full(), 8_060)
    note = short.splitlines()[-1]
    assert note.startswith("*Omitted to fit the comment size: ")
    assert note.endswith(" See the full report page in the artifacts of this run.*")
    left = note.removeprefix("*Omitted to fit the comment size: ").partition(".")[0].split(", ")
    assert left == [
        "changes", "preemption", "guarantees and capacity", "GPUs available to each team", "monthly bill",
        "cost by cost center", "cost by team", "serving", "node pools", "cohort tree", "cohorts", "access",
    ]  # fmt: skip
    assert "### Deletions and replacements" in short


def test_the_most_important_sections_come_in_first() -> None:
    found = comment(busy(200))
    assert " changes," in found.splitlines()[-1]
    assert "### Policies" in found
    assert "Changed values" in found or "changed values" in found.splitlines()[-1]


def test_a_limit_too_small_for_any_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^limit: 3999 characters is too short for a comment; set at least 4000$"):
        comment(full(), LEAST - 1)


def test_a_long_verdict_shows_the_first_reasons_and_a_count() -> None:
    review = reviewed(outlook_of(small()))
    long = replace(review, verdict=replace(review.verdict, sentences=tuple(f"Reason {n}" for n in range(40))))
    lines = comment(long).splitlines()[2:16]
    assert lines[:2] == ["- Reason 0", "- Reason 1"]
    assert lines[11:] == ["- Reason 11", "- *28 more reasons in the full report*", ""]


def test_a_base_with_long_notes_leaves_the_verdict_its_place() -> None:
    found = comment(reviewed(outlook_of(many(200)), notes=(NASTY * 20,) * 9), LEAST)
    assert len(found) <= LEAST
    assert found.count("\n> ") == 2
    assert found.startswith("## ✓ test: OK\n\n- Policies not evaluated (use --policy)\n- Guarantees fit\n")


def test_user_text_is_not_markup() -> None:
    assert text(NASTY) == (
        r"a\|b \`c\` &lt;b&gt;&amp;amp; \*d\* \_e\_ \[f\](g) @&#8203;all #&#8203;12 :&#8203;tada: \~\~h\~\~"
    )
    assert text("- one\n2. two") == r"\- one 2. two"
    assert text("1. one") == r"1\. one"
    assert text("1.5 GPUs at 12:30") == "1.5 GPUs at 12:30"
    assert code("a|`b` <c> *d*\n@e") == "<code>a&#124;&#96;b&#96; &lt;c&gt; &#42;d&#42; &#64;e</code>".replace(
        "&lt;", "&#60;"
    ).replace("&gt;", "&#62;")
    assert code(" ") == ""


def test_words_of_users_stay_in_their_cell_and_fold() -> None:
    now = outlook_of(small())
    nasty = replace(now, access=tuple(replace(access, owner="a | b </details>") for access in now.access))
    found = comment(replace(reviewed(nasty), stack="a`b | c"))
    whole(found)
    assert found.startswith(r"## ✓ a\`b \| c: OK")
    assert r"a \| b &lt;/details&gt;" in found
    changed = (Change("update", "team <i>x</i>", "Job", "a`|b", "urn:x", (FieldChange("spec.`a|b`", "", "``|"),)),)
    found = comment(reviewed(now, before=now, changed=changed))
    whole(found)
    assert "<summary><b>team &lt;i&gt;x&lt;/i&gt;</b> 1 updated</summary>" in found
    assert "<code>spec.&#96;a&#124;b&#96;</code>: *none* → <code>&#96;&#96;&#124;</code>" in found


def test_tree_marks_teams_without_a_guarantee() -> None:
    assert list(mermaid(outlook_of(small()))) == [
        "```mermaid",
        "flowchart LR",
        '  g["org<br/>unassigned: 8 h100, 6 l4"]',
        '  g_0["lab<br/>h100 8 → 12<br/>own quota: 4 h100"]',
        '  g_0 -.- g_0_t0(["speech<br/>h100 0 → 8"])',
        '  g_0 --- g_0_t1(["vision<br/>h100 4 → 8"])',
        "  g --- g_0",
        '  g --- g_t0(["search<br/>l4 2 → 6"])',
        "```",
    ]


def test_the_tree_of_many_teams_shows_groups_with_their_number() -> None:
    lines = list(mermaid(outlook_of(many(200))))
    assert '  g_0["division-0<br/>20 teams"]' in lines
    assert not any("team-" in line for line in lines)
    assert len(lines) < 30


def test_names_are_not_mermaid_syntax() -> None:
    now = outlook_of(small())
    renamed = tuple(replace(group, name='a"]; b' if group.parent is None else group.name) for group in now.groups)
    (first,) = (line for line in mermaid(replace(now, groups=renamed, root='a"]; b')) if line.startswith("  g["))
    assert first == '  g["a#34;#93;#59; b<br/>unassigned: 8 h100, 6 l4"]'


def test_the_same_review_gives_the_same_comment() -> None:
    assert comment(full()) == comment(full())
