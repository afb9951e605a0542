"""Stack files: both parsers."""

import json
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from repository import ROOT

from gpu_tenancy.base.problems import StackError
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.notebooks import notebooks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import read_stack
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
        ("- a", "stacks/Pulumi.x.yaml: config: is not a mapping; add the sections under config"),
        ("config: [a]", "stacks/Pulumi.x.yaml: config: is not a mapping"),
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


def test_the_program_under_the_engine_reads_the_same_file(tmp_path: Path) -> None:
    source = read_file(beside(tmp_path, PEOPLE), "stacks/Pulumi.x.yaml")
    given = to_config(source) | {"gpu-tenancy:people": "people.yaml"}
    for known in (source, None):  # The engine can keep a stack's config elsewhere.
        assert load(with_files(read_config(given, known), tmp_path)) == load(source)


@pytest.mark.parametrize(
    ("name", "people", "problem"),
    [
        (
            "people.yaml",
            PEOPLE.replace("- rosa", "- rosie"),
            "stacks/people.yaml:4: people.auditors[0]: unknown name 'rosie'",
        ),
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
