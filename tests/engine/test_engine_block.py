"""Texts that are written without PyYAML have PyYAML's bytes."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine import block
from gpu_tenancy.engine.block import as_yaml, by_pyyaml
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.model.project import stack_names

NEAR_SIMPLE = st.text(st.sampled_from("aAzZ09_./-+=,():#'\" \n\t|>?%@`&*!~<[]{}\\\x85é"), max_size=12)
TEXTS = (
    NEAR_SIMPLE
    | st.text(max_size=20)
    | st.sampled_from(
        ["yes", "Off", "null", "1e3", "0x1f", "1:30", "2026-01-01", "---", "=", "<<", ".5", "-1", "+.inf"]
    )
    | st.integers(90, 140).map(lambda length: "a" * length)
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=16,
)


@settings(deadline=None)  # no timing decides a test
@given(st.dictionaries(TEXTS, JSON, max_size=5))
@example({})
@example({"a": [[], {}, [[1], {"b": "c\n\n d\n"}], "e: f", "- g"], "h": " i\n  j\n\n", "k": "l\n"})
@example({"a" * 127: 1, "b" * 128: 2, "c" * 129: 3})
def test_any_data_has_the_bytes_of_pyyaml(content: dict[str, Json]) -> None:
    assert as_yaml(content) == by_pyyaml(content)


def test_texts_that_pyyaml_breaks_into_lines_have_its_bytes() -> None:
    content: dict[str, Json] = {"a": {"b": "c " * 40_000}}
    assert (as_yaml(content) == by_pyyaml(content)) is True  # without pytest's comparison of long texts


@pytest.mark.parametrize("stack", stack_names())
def test_every_object_has_the_bytes_of_pyyaml(stack: str) -> None:
    for item in kubernetes_objects(stack_of_repository(stack).rendered):
        assert as_yaml(item.shown) == by_pyyaml(item.shown)


def test_the_usual_object_is_written_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> str:
        raise AssertionError

    monkeypatch.setattr(yaml, "dump", no)
    block.__dict__["_text"].cache_clear()
    text = as_yaml({"metadata": {"name": "a", "labels": {"x.io/y": "8"}}, "items": [{"b": 1}, ["c", True, None]]})
    assert text == (
        "metadata:\n  name: a\n  labels:\n    x.io/y: '8'\nitems:\n  - b: 1\n  - - c\n    - true\n    - null\n"
    )
