"""The pull request comment: valid Markdown, within the size limit, with escaped user text."""

import re
from dataclasses import replace

import pytest
from page_reader import Markdown
from review_pages import NASTY, RULES, bare, full, local, many, outlook_of, prod_aws, reviewed, small
from syrupy.assertion import SnapshotAssertion

from gpu_tenancy.review.changes import Change, FieldChange
from gpu_tenancy.review.comment import LEAST, LIMIT, code, comment, mermaid, text
from gpu_tenancy.review.review import Review


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
    assert "\n- Guarantees exceed capacity: h100 (19 GPUs guaranteed, 16 available), l4 (11" in fewest
    assert "\n| guaranteed | **30** of 24 | GPUs; capacity exceeded: h100, l4 |\n" in fewest
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
        "changes",
        "preemption",
        "guarantees and capacity",
        "GPUs available to each team",
        "monthly bill",
        "cost by cost center",
        "cost by team",
        "serving",
        "node pools",
        "cohort tree",
        "cohorts",
        "access",
    ]
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
    noted = reviewed(outlook_of(many(200)), notes=(NASTY * 20,) * 9)
    found = comment(noted, LEAST)
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
