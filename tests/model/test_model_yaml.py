"""libyaml parses YAML if PyYAML has it, with the errors of PyYAML's own parser; no table has a key twice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml as pyyaml
from repository import ROOT

from gpu_tenancy.model import yaml
from gpu_tenancy.model.yaml import UnreadableError, parse, read_yaml

STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


@pytest.mark.slow
def test_stacks_are_read_the_same_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = [read_yaml(file, file.name, instead="") for file in STACKS]
    monkeypatch.setattr(yaml, "_FAST", vars(yaml)["_Loader"])
    assert [read_yaml(file, file.name, instead="") for file in STACKS] == fast


def twice(node: pyyaml.Node) -> Iterator[str]:
    """Keys that a mapping has more than once, of which YAML keeps the last."""
    if isinstance(node, pyyaml.MappingNode):
        keys = [str(key.value) for key, _ in node.value if key.value != "<<"]
        yield from (key for key in {*keys} if keys.count(key) > 1)
        yield from (key for _, value in node.value for key in twice(value))
    elif isinstance(node, pyyaml.SequenceNode):
        yield from (key for item in node.value for key in twice(item))


def test_no_table_has_a_key_twice() -> None:
    for room in ("gpu_tenancy", "components", "policy", "tests"):
        for file in (ROOT / room).rglob("*.yaml"):
            for root in pyyaml.compose_all(file.read_text(encoding="utf-8"), pyyaml.CSafeLoader):
                assert not list(twice(root)), file


@pytest.mark.skipif(not pyyaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_stacks_of_this_project_are_read_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("yaml.scanner.Scanner.fetch_more_tokens", unused)
    for file in STACKS:
        read_yaml(file, file.name, instead="")


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        pytest.param("a: 1\nb: %x", 2, "invalid YAML: found character '%' that cannot start any token", id="character"),
        pytest.param("a: [1,\n", 2, "invalid YAML: expected the node content, but found", id="open list"),
        pytest.param("é: 1\na: \x01", 2, "contains the invisible character U+0001", id="invisible"),
        pytest.param("a: !!int many", None, "invalid YAML: invalid literal for int()", id="wrong tag"),
        pytest.param("a: &x [*x]", 1, "alias *x is inside the value of its anchor &x", id="alias in its anchor"),
        pytest.param("[" * 60 + "]" * 60, 1, "is nested deeper than 50 levels", id="depth"),
        pytest.param(b"a: \xff", None, "is not valid UTF-8", id="encoding"),
    ],
)
def test_unreadable_text_is_refused_with_its_line(text: str | bytes, line: int | None, rule: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        parse(text)
    assert caught.value.line == line
    assert caught.value.rule.startswith(rule)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("10:30", "10:30"),
        ("2026-11-22", "2026-11-22"),
        ("0644", "0644"),
        ("true", True),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("~", None),
    ],
)
def test_plain_scalars_have_the_types_of_pulumi(tmp_path: Path, text: str, value: object) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(f"a: {text}\n", encoding="utf-8")
    assert read_yaml(file, "stack.yaml", instead="").data == parse(f"a: {text}") == {"a": value}
