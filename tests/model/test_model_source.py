"""Stack files: both parsers, and changes of numbers in them."""

import difflib
import json
import re
from itertools import permutations
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, map_at
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.cli.main import app
from gpu_tenancy.model.guarantees import moved, with_changes, with_numbers
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.notebooks import notebooks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import read_stack, stack_names
from gpu_tenancy.model.source import Source, read_config, read_file, to_config, with_files

STACK = """config:
  aws:region: eu-west-1
  gpu-tenancy:cluster: {cloud: existing, provides: [networkPolicies]}
  gpu-tenancy:pools:
    h100: {machine: p5.48xlarge, nodes: 2}
  gpu-tenancy:teams:
    a:
      owner: research
      costCenter: rd-001
      gpus: {h100: {guaranteed: 8}}
"""


def stack_file(folder: Path, text: str) -> Path:
    file = folder / "Pulumi.x.yaml"
    file.write_text(dedent(text))
    return file


def read(folder: Path, text: str) -> Source:
    return read_file(stack_file(folder, text), "stacks/Pulumi.x.yaml")


def refused(folder: Path, text: str) -> str:
    with pytest.raises(StackError) as caught:
        load(read(folder, text))
    return str(caught.value)


def test_only_our_own_sections_are_read(tmp_path: Path) -> None:
    assert set(read(tmp_path, STACK).sections) == {"cluster", "pools", "teams"}


def test_every_key_and_entry_has_its_line(tmp_path: Path) -> None:
    source = read(tmp_path, STACK)
    assert source.line(("teams", "a", "costCenter")) == 9
    assert source.line(("teams", "a", "gpus", "h100", "limit")) == 10
    assert source.line(("cohorts",)) is None


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    assert refused(tmp_path, STACK.replace("guaranteed: 8", "guaranteed: 24")) == (
        "stacks/Pulumi.x.yaml:10: teams.a.gpus.h100.guaranteed: 24 exceeds the 16 h100 GPUs of the pools (2"
        " nodes with 8 each); lower it, or raise pools.h100.nodes.max"
    )


def test_a_key_written_twice_is_refused_at_its_second_line(tmp_path: Path) -> None:
    assert refused(tmp_path, STACK + "      owner: other\n") == (
        "stacks/Pulumi.x.yaml:11: teams.a.owner: duplicate key, first set on line 8 (YAML keeps the last);"
        " remove one of them"
    )


def test_a_key_that_overrides_a_merged_one_is_not_written_twice(tmp_path: Path) -> None:
    source = read(
        tmp_path,
        """
        config:
          gpu-tenancy:pools:
            a: &base {machine: p5.48xlarge, nodes: 2}
            b: {<<: *base, nodes: 3}
        """,
    )
    assert source.sections["pools"]["b"] == {"machine": "p5.48xlarge", "nodes": 3}


@pytest.mark.parametrize("plain", ["yes", "on", "2024-01-01", "10:30", "n", "0o17"])
def test_plain_words_are_text_as_they_are_to_pulumi(tmp_path: Path, plain: str) -> None:
    assert read(tmp_path, STACK + f"      tier: {plain}\n").sections["teams"]["a"]["tier"] == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("config: [", "stacks/Pulumi.x.yaml:1: config: invalid YAML: "),
        (
            "config: {a: !unknown x}",
            "stacks/Pulumi.x.yaml:1: a: x has the tag !unknown, which is not supported; remove the tag",
        ),
        ("config: *nothing", "stacks/Pulumi.x.yaml:1: config: invalid YAML: found undefined alias"),
        ("a: \x01", "stacks/Pulumi.x.yaml:1: config: contains the invisible character U+0001; remove it"),
        ("", "stacks/Pulumi.x.yaml: config: required key is missing; add the sections under config"),
        ("other: {}", "stacks/Pulumi.x.yaml: config: required key is missing"),
        ("- a", "stacks/Pulumi.x.yaml: config: required key is missing"),
    ],
)
def test_an_invalid_stack_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert refused(tmp_path, text).startswith(message)


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot read the file: No such file"):
        read_file(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(StackError, match="is not valid UTF-8; save the file as UTF-8"):
        read_file(tmp_path / "binary.yaml")


SECRETS = {
    "a text": STACK.replace("costCenter: rd-001", "costCenter: {secure: AAABAK}"),
    "a number": STACK.replace("nodes: 2", "nodes: {secure: AAABAK}"),
    "a list's entry": STACK + "      network: {egress: [{secure: AAABAK}]}\n",
    "a section": STACK + "  gpu-tenancy:datasets: {secure: AAABAK}\n",
    "the section that must be there": "config:\n  gpu-tenancy:pools: {secure: AAABAK}\n",
    "another program's value": STACK + "  other:token: {secure: AAABAK}\n",
}


@pytest.mark.parametrize("text", SECRETS.values(), ids=SECRETS.keys())
def test_unread_secrets_cause_no_failure(tmp_path: Path, text: str) -> None:
    source = read(tmp_path, text)
    load(source)
    load(read_config(to_config(source), source))
    assert "AAABAK" not in repr(source)


def test_values_beside_a_secret_are_still_checked(tmp_path: Path) -> None:
    text = SECRETS["a text"].replace("guaranteed: 8", "guaranteed: 24")
    assert refused(tmp_path, text).startswith("stacks/Pulumi.x.yaml:10: teams.a.gpus.h100.guaranteed: 24")


def test_the_place_of_a_decrypted_value_is_known(tmp_path: Path) -> None:
    source = read(tmp_path, SECRETS["a text"])
    config = to_config(source) | {"gpu-tenancy:teams": '{"a": {"owner": "o", "costCenter": "rd-001"}}'}
    found = read_config(config, source)
    assert (found.secrets, found.unread) == ((("teams", "a", "costCenter"),), ())


BOTH_WAYS = {
    "a good stack": STACK,
    "an error of shape": STACK.replace("owner:", "ownr:"),
    "an error of coherence": STACK.replace("guaranteed: 8", "guaranteed: 24"),
    "a name that looks like a number": STACK + '  gpu-tenancy:environment: "123"\n',
    "a missing section": STACK.replace("gpu-tenancy:pools", "aws:pools"),
}


@pytest.mark.parametrize("text", BOTH_WAYS.values(), ids=BOTH_WAYS.keys())
def test_engine_and_file_give_the_same_stack_or_errors(tmp_path: Path, text: str) -> None:
    source = read(tmp_path, text)
    results: list[object] = []
    for item in (source, read_config(to_config(source), source)):
        try:
            results.append(load(item))
        except StackError as error:
            results.append(str(error))
    assert results[0] == results[1]


def as_engine(source: Source) -> dict[str, str]:
    """The engine's config, in which it sorts keys."""
    return {
        key: json.dumps(json.loads(text), sort_keys=True) if text.startswith("{") else text
        for key, text in sorted(to_config(source).items())
    }


@pytest.mark.parametrize("name", ["local", "prod-aws"])
def test_engine_and_file_keep_the_order_of_the_file(name: str) -> None:
    source = read_stack(name, ROOT)
    for item in (source, read_config(as_engine(source), source)):
        assert json.dumps(item.sections) == json.dumps(source.sections)
        stack = load(item)
        assert [*stack.teams] == [*source.sections["teams"]]
        assert [*stack.pools] == [*source.sections["pools"]]


def test_first_size_of_notebooks_is_the_default() -> None:
    source = read_stack("local", ROOT)
    for item in (source, read_config(as_engine(source), source)):
        offered = notebooks(Tree(load(item)), "ml-research")
        assert offered
        assert [*offered.sizes] == ["small", "gpu"]


def test_without_the_file_the_engines_errors_have_no_place(tmp_path: Path) -> None:
    source = read(tmp_path, STACK.replace("guaranteed: 8", "guaranteed: 24"))
    with pytest.raises(StackError, match=r"^teams\.a\.gpus\.h100\.guaranteed: 24 exceeds"):
        load(read_config(to_config(source)))


PEOPLE = """names:
  rosa: user:rosa
auditors:
  - rosa
"""


def beside(folder: Path, people: str, name: str = "people.yaml") -> Path:
    (folder / "people.yaml").write_text(people)
    return stack_file(folder, f"{STACK}  gpu-tenancy:people: {name}\n")


def test_people_of_a_file_are_those_of_the_stack(tmp_path: Path) -> None:
    source = read_file(beside(tmp_path, PEOPLE), "stacks/Pulumi.x.yaml")
    assert source.files == {"people": "stacks/people.yaml"}
    inline = read(tmp_path, f"{STACK}  gpu-tenancy:people: {{names: {{rosa: user:rosa}}, auditors: [rosa]}}\n")
    assert load(source) == load(inline)
    assert load(source).people.auditors == ["rosa"]


def test_teams_of_a_file_are_those_of_the_stack(tmp_path: Path) -> None:
    """A stack of a thousand teams: Pulumi passes its config to the program in one environment variable."""
    inline = read_file(stack_file(tmp_path, STACK), "stacks/Pulumi.x.yaml")
    (tmp_path / "teams.yaml").write_text(yaml.safe_dump(inline.sections["teams"]))
    named = {**to_config(inline), "gpu-tenancy:teams": "teams.yaml"}
    assert load(with_files(read_config(named), tmp_path)) == load(inline)
    (tmp_path / "teams.yaml").write_text("vision: {}\n")
    with pytest.raises(StackError, match=r"^teams\.yaml:1: teams\.vision: missing owner, costCenter; add them"):
        load(with_files(read_config(named), tmp_path))


def test_errors_in_a_people_file_name_its_line(tmp_path: Path) -> None:
    file = beside(tmp_path, PEOPLE.replace("- rosa", "- rosie"))
    with pytest.raises(StackError) as caught:
        load(read_file(file, "stacks/Pulumi.x.yaml"))
    assert str(caught.value).startswith("stacks/people.yaml:4: people.auditors[0]: unknown name 'rosie'")


def test_the_program_under_the_engine_reads_the_same_file(tmp_path: Path) -> None:
    source = read_file(beside(tmp_path, PEOPLE), "stacks/Pulumi.x.yaml")
    given = to_config(source) | {"gpu-tenancy:people": "people.yaml"}
    for known in (source, None):  # The engine can keep a stack's config elsewhere.
        assert load(with_files(read_config(given, known), tmp_path)) == load(source)


@pytest.mark.parametrize(
    ("name", "people", "problem"),
    [
        ("../people.yaml", PEOPLE, "stacks/Pulumi.x.yaml:11: people: ../people.yaml is not a file beside"),
        ("Pulumi.x.yaml", PEOPLE, "stacks/Pulumi.x.yaml:11: people: Pulumi.x.yaml is not a file beside"),
        ("none.yaml", PEOPLE, "stacks/none.yaml: people: cannot read the file: No such file or directory; add"),
        ("people.yaml", "names: {", "stacks/people.yaml:1: people: invalid YAML"),
        ("people.yaml", "admins: []\nadmins: []\n", "stacks/people.yaml:2: people.admins: duplicate key"),
        ("people.yaml", "admins: {secure: v1:x}\n", "stacks/people.yaml:1: people.admins: is encrypted"),
        ("people.yaml", "[rosa]", "stacks/people.yaml:1: people: expected a mapping such as"),
    ],
)
def test_problems_of_a_people_file_are_reported(tmp_path: Path, name: str, people: str, problem: str) -> None:
    file = beside(tmp_path, people, name)
    with pytest.raises(StackError) as caught:
        load(read_file(file, "stacks/Pulumi.x.yaml"))
    assert str(caught.value).startswith(problem)


# GPUs moved between teams.

MOVING: Any = {
    "a": {"gpus": {"h100": {"guaranteed": 16, "limit": 16}}},
    "b": {"gpus": {"h100": {"guaranteed": 8, "limit": 12}}},
    "c": {"quota": {"h100": {"limit": 8}}},
    "d": {"gpus": {"a100": {"guaranteed": 8}}},
}


def moved_numbers(count: int, giver: str, taker: str) -> dict[str, tuple[int, int]]:
    found = moved(Source({"teams": MOVING}), count, "h100", giver, taker)
    return {f"{path[1]}.{path[-1]}": (before, after) for path, (before, after) in found.items()}


def test_limits_follow_where_they_must() -> None:
    assert moved_numbers(4, "a", "b") == {"a.guaranteed": (16, 12), "a.limit": (16, 12), "b.guaranteed": (8, 12)}
    assert moved_numbers(8, "a", "b")["b.limit"] == (12, 16)
    assert moved_numbers(8, "b", "c") == {"b.guaranteed": (8, 0), "c.guaranteed": (0, 8)}


@pytest.mark.parametrize(
    ("count", "giver", "taker", "message"),
    [
        (17, "a", "b", "teams.a.gpus.h100.guaranteed: 16 is less than the 17 h100 GPUs to move; move at most 16"),
        (1, "c", "a", "teams.c.quota.h100.guaranteed: 0 is less than the 1 h100 GPU to move; move from a team that"),
        (1, "a", "d", "teams.d.gpus: no h100; .*or add h100: {guaranteed: 0, limit: 0}"),
        (1, "a", "e", "unknown team 'e'"),
        (1, "a", "a", "the same team"),
    ],
)
def test_what_is_not_there_is_refused(count: int, giver: str, taker: str, message: str) -> None:
    with pytest.raises(ConsoleError, match=message):
        moved_numbers(count, giver, taker)


PAIRS: list[tuple[str, str, str, str]] = [
    (stack, flavor, giver, taker)
    for stack in stack_names(ROOT)
    for teams in [map_at(read_stack(stack, ROOT).sections, "teams")]
    for giver, taker in permutations(teams, 2)
    for flavor in map_at(teams, giver, "gpus")
    if at(teams, giver, "gpus", flavor, "guaranteed") and at(teams, taker, "gpus", flavor, "guaranteed") is not None
]


def copied_project(folder: Path, stack: str) -> Path:
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text((ROOT / "Pulumi.yaml").read_text())
    for file in (ROOT / "stacks").glob("*.yaml"):
        if file.stem == f"Pulumi.{stack}" or not file.name.startswith("Pulumi."):
            (folder / "stacks" / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(("stack", "flavor", "giver", "taker"), PAIRS)
def test_only_numbers_of_a_stack_file_change(stack: str, flavor: str, giver: str, taker: str, tmp_path: Path) -> None:
    folder = copied_project(tmp_path, stack)
    before = {file: file.read_text() for file in (folder / "stacks").iterdir()}
    source = read_stack(stack, folder)
    words = ("stack", "move", "1", flavor, "--from", giver, "--to", taker, "--stack", stack, "--project", str(folder))
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    if done.exit_code:  # The stack would not be valid, so that the file is as it was.
        assert {file: file.read_text() for file in before} == before
        assert "nothing was changed" in done.output
        return
    wanted = with_changes(source, moved(source, 1, flavor, giver, taker))
    assert read_stack(stack, folder).sections == wanted.sections
    for file, text in before.items():
        after = file.read_text()
        assert re.sub(r"\d+", "N", after) == re.sub(r"\d+", "N", text)
        assert sum(line.startswith("+ ") for line in difflib.ndiff(text.splitlines(), after.splitlines())) <= 2


def test_some_moves_are_made() -> None:
    assert len(PAIRS) > 4


def test_a_teams_file_beside_the_stack_is_changed(tmp_path: Path) -> None:
    folder = copied_project(tmp_path, "example-three-teams")
    stack = folder / "stacks" / "Pulumi.example-three-teams.yaml"
    head, _, teams = stack.read_text().partition("  gpu-tenancy:teams:\n")
    stack.write_text(f"{head}  gpu-tenancy:teams: teams.yaml\n")
    (folder / "stacks" / "teams.yaml").write_bytes(f"# ours\r\n{teams}".encode())
    words = ("stack", "move", "8", "h100", "--from", "team-c", "--to", "team-a", "--project", str(folder))
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, stack.read_text()) == (0, f"{head}  gpu-tenancy:teams: teams.yaml\n")
    text = (folder / "stacks" / "teams.yaml").read_bytes().decode()
    assert text == f"# ours\r\n{teams}".replace("{guaranteed: 32", "{guaranteed: 24").replace(
        "team-a: {owner: a, costCenter: a-001, gpus: {h100: {guaranteed: 16",
        "team-a: {owner: a, costCenter: a-001, gpus: {h100: {guaranteed: 24",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x {b: {c: 1}}\nd: *x\n", "a.b.c is shared by an anchor and its aliases"),
        ("x: &x {b: {c: 1}}\na: {<<: *x}\n", "a.b.c is not written there"),
        ("a: {b: {}}\n", "a.b.c is not written there"),
        ("a: 1\n", "a.b.c is not written there"),
        ("", "is empty"),
    ],
)
def test_a_number_that_is_not_of_its_own_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConsoleError, match=problem):
        with_numbers(text, {("a", "b", "c"): 2}, "teams.yaml")
