"""Stack files are read by libyaml where it reads the same as PyYAML's own parser; both are compared here."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import ROOT

from gpu_tenancy.model import written
from gpu_tenancy.model.written import UnreadableError, Written, read_yaml

STACKS = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))]
SIGNS = "{}[]:,-#&*!|>'\"%@`?~ \t\n<=\\\x85\u2028\ufeffé0."


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Some lines of a stack's file, with a few signs inserted or replaced."""
    lines = draw(st.sampled_from(STACKS)).split("\n")
    begin = draw(st.integers(0, len(lines) - 1))
    text = "\n".join(lines[begin : begin + draw(st.integers(1, 20))])
    for _ in range(draw(st.integers(0, 3))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 2))
        text = text[:at] + draw(st.text(SIGNS, max_size=2)) + text[at + length :]
    return text


def outcome(text: str) -> Written | tuple[int | None, str, str]:
    """What a text is read as, or its error."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "stack.yaml"
        file.write_text(text, encoding="utf-8", newline="")
        try:
            return read_yaml(file, "stack.yaml", instead="")
        except UnreadableError as error:
            return error.line, error.rule, error.fix


def slowly(text: str) -> Written | tuple[int | None, str, str]:
    """The same by PyYAML's own parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(written, "_FAST", written.__dict__["_Loader"])
        return outcome(text)


@pytest.mark.slow
@given(mutated())
@settings(max_examples=300, deadline=None)
def test_both_parsers_read_the_same_or_report_the_same_error(text: str) -> None:
    assert repr(outcome(text)) == repr(slowly(text))  # NaN is not equal to itself


@pytest.mark.parametrize(
    "text", ["a: b\tc: d", "{a? b: c}", "!", "a: 1\n\ufeff# b\n", "a: b\x85\ufeffc", ">#", "a: |2-#\n"]
)
def test_texts_that_libyaml_reads_differently_are_left_to_pyyaml(text: str) -> None:
    assert repr(outcome(text)) == repr(slowly(text))


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_stacks_of_this_project_are_read_by_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("yaml.scanner.Scanner.fetch_more_tokens", unused)
    for text in STACKS:
        if not set(text) & set("\t!?"):
            assert isinstance(outcome(text), Written)
