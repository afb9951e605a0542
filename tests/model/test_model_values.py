"""Values that no stack may contain, and quantities."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any, cast

import pytest
from builders import Data, errors, pool, stack, team
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import CoreSchema

from gpu_tenancy.base import quantity
from gpu_tenancy.base.bounds import DEEPEST, LARGEST
from gpu_tenancy.base.problems import ANY, Path, StackError
from gpu_tenancy.base.texts import hidden, shortened, visible
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, read_config, read_file
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import Places

FILE = "stacks/Pulumi.x.yaml"
HEAD = """config:
  gpu-tenancy:cluster: {cloud: existing, provides: [networkPolicies]}
  gpu-tenancy:pools:
    h100: {machine: p5.48xlarge, nodes: 2}
"""
TEAM = """  gpu-tenancy:teams:
    a:
      owner: %s
      costCenter: rd-001
      gpus: {h100: {guaranteed: 8, limit: %s}}
      training: {nightly: {image: "registry.example.com/train:1.0", env: {NOTE: %s}}}
"""


def written(owner: str = "research", limit: str = "16", note: str = "none", head: str = HEAD) -> str:
    """The text of a stack with these values at line 7, 9 and 10."""
    return head + TEAM % (owner, limit, note)


def read(folder: FilePath, text: str) -> Stack:
    file = folder / "Pulumi.x.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return load(read_file(file, FILE))


def refused(folder: FilePath, text: str) -> list[str]:
    with pytest.raises(StackError) as caught:
        read(folder, text)
    return [str(problem) for problem in caught.value.problems]


def bomb(levels: int, width: int) -> str:
    """Lists of aliases of lists: `width ** levels` values in a few lines."""
    anchors = "".join(
        f"  x:l{level}: &l{level} [{', '.join([f'*l{level - 1}' if level else 'v'] * width)}]\n"
        for level in range(levels)
    )
    return written().replace("config:\n", f"config:\n{anchors}")


def merged(levels: int, width: int) -> str:
    """The same by mappings that merge a mapping several times."""
    anchors = "".join(
        f"  x:m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * width)}], k{level}: v}}\n"
        if level
        else "  x:m0: &m0 {k: v}\n"
        for level in range(levels)
    )
    return written().replace("config:\n", f"config:\n{anchors}")


DEEP = DEEPEST * 40

NOTE = "teams.a.training.nightly.env.NOTE"
LIMIT = "teams.a.gpus.h100.limit"
MEANING = "Maximum number of GPUs, including borrowed ones"
DEEPER = "config: is nested deeper than 50 levels; remove levels"
ALIAS = "config: alias *c is inside the value of its anchor &c; remove the alias"
CHAIN = "".join(f"  x:c{n}: &c{n} [*c{n - 1}]\n" if n else "  x:c0: &c0 [v]\n" for n in range(99))
OUT_OF_BOUNDS: dict[str, tuple[str, int, str]] = {  # the text of a stack, the line of the problem, and the problem
    "aliases": (bomb(9, 10), 2, "config: has more than 200,000 values with those of aliases; use fewer aliases"),
    "self-reference": (written().replace("config:", "config: &c\n  x:self: *c"), 2, ALIAS),
    "self-merge": (written().replace("config:", "config: &c\n  <<: *c"), 2, ALIAS),
    "lists in lists": (written(note="[" * DEEP + "]" * DEEP), 10, DEEPER),
    "mappings in mappings": (written(note="{a: " * DEEP + "}" * DEEP), 10, DEEPER),
    "lists in lists by aliases": (written() + CHAIN, 11, DEEPER),
    "digits": (written(limit="9" * 5000), 9, f"{LIMIT}: {'9' * 79}… is a number of 5,000 characters; use at most 100"),
    "hexadecimal digits": (written(limit="0x" + "f" * 5000), 9,
        f"{LIMIT}: 0x{'f' * 77}… is a number of 5,002 characters; use at most 100"),
    "beyond 64 bits": (written(limit="99999999999999999999999"), 9,
        f"{LIMIT}: 99999999999999999999999 is a number beyond 64 bits; set at most 9223372036854775807"),
    "beyond any cluster": (written(limit="99999999999"), 9,
        f"{LIMIT}: 99999999999 must be at most 1000000; change it: {MEANING}"),
    "workflow command": (written(owner=r'"o\n::error::boo"'), 7,
        "teams.a.owner: o\\n::error::boo is not a valid label value; use at most 63"),
    "terminal escape": (written(owner=r'"\e[31mred"'), 7,
        "teams.a.owner: \\x1b[31mred contains the invisible character U+001B; remove it"),
    "bidirectional text": (written(note=r'"pay\u202eeht"'), 10,
        f"{NOTE}: pay\\u202eeht contains the invisible character U+202E;"),
    "half a character": (written(note=r'"\ud800"'), 10, f"{NOTE}: \\ud800 contains the invisible character U+D800;"),
    "zero width in a key": (written() + '    "b\\u200b": {owner: x}\n', 11,
        "teams.b\\u200b: is a key with the invisible character U+200B; remove it"),
    "raw control character": (written(owner="re\x1bsearch"), 7,
        "config: contains the invisible character U+001B; remove it"),
    "wrong tag": (written(note="!!int many"), 10, f"{NOTE}: many is not an integer, as its tag says; remove the tag"),
    "bytes": (written(note="!!binary aGk="), 10, f"{NOTE}: aGk= has the tag tag:yaml.org,2002:binary, which is not"),
    "a list as key": (written(note="{[a]: b}"), 10,
        "config: has a key that is a mapping or a list; use a string as key"),
    "a long key": (written(note=f"{{? {'k' * 2000} : b}}"), 10,
        "config: has a key of 2,000 characters; use at most 1,024"),
    "large file": (written() + "#" * LARGEST, 0, "config: is larger than 4 MiB; split it"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS.keys())
def test_an_input_out_of_bounds_is_refused_with_its_place(
    tmp_path: FilePath, text: str, line: int, message: str
) -> None:
    problems = refused(tmp_path, text)
    assert len(problems) == 1
    assert f"{FILE}:{line}: {message}" in problems[0] if line else f"{FILE}: {message}" in problems[0]
    assert not hidden(problems[0], "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(bomb(3, 10), id="a few aliases"),
        pytest.param(merged(12, 10), id="merged twelve times"),
        pytest.param(written(limit="0x10"), id="a number in hexadecimal"),
        pytest.param(written(note=r'"line\n\tline \U0001F469‍\U0001F4BB"'), id="lines and emoji"),
        pytest.param(written(note='"[red]"'), id="markup"),
        pytest.param("\ufeff" + written(), id="byte order mark"),
    ],
)
def test_its_innocent_twin_is_read(tmp_path: FilePath, text: str) -> None:
    assert read(tmp_path, text).teams["a"].owner == "research"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param("[" * 200_000, "pools: is not valid: is nested too deeply; change it", id="open lists"),
        pytest.param("[" * 900 + "]" * 900, "is nested deeper than 50 levels; remove levels", id="lists"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "pools: is not valid: a number has 5,000 characters", id="digits"),
        pytest.param('{"a": NaN}', "pools: is not valid: NaN is not a JSON number; change it", id="not a number"),
        pytest.param('{"a": 1e999}', "pools.a: inf is not a finite number; set a number", id="infinite"),
        pytest.param('{"a": "\\u001b[2J"}', "pools.a: \\x1b[2J contains the invisible character", id="escape"),
    ],
)
def test_values_of_pulumis_config_have_the_same_bounds(value: str, message: str) -> None:
    with pytest.raises(StackError, match="pools") as caught:
        load(read_config({"gpu-tenancy:pools": value}))
    assert message in str(caught.value)


def test_data_of_another_program_has_the_same_bounds() -> None:
    deep: Data = {}
    for _ in range(2000):
        deep = {"values": deep}
    [problem] = errors(stack(operators={"kueue": {"install": "here", "values": deep}}))
    assert problem.endswith("is nested deeper than 50 levels; remove levels")
    assert len(problem) < 1000


def test_a_stack_that_is_read_again_is_not_checked_again() -> None:
    content = stack(priorities={"low": 1})
    assert load(Source(content)) is load(Source(stack(priorities={"low": 1})))
    content["priorities"]["low"] = True  # equal for Python
    assert errors(content)


def test_a_long_value_is_compared_and_shown_in_part() -> None:
    [problem] = errors(stack(pools={"h100": pool("p5" * 50_000)}))
    assert problem.startswith("pools.h100.machine: unknown machine type 'p5p5")
    assert len(problem) < 1000


def test_an_argument_too_long_for_a_process_is_refused() -> None:
    training = {"nightly": {"image": "registry.example.com/train:1.0", "args": ["a" * 200_000]}}
    [problem] = errors(stack(teams={"a": team(training=training)}))
    assert problem.startswith("teams.a.training.nightly.args[0]: aaa")
    assert "must have at most 131072 characters" in problem
    assert len(problem) < 1000


def _numbers(schema: object, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each integer and float in pydantic's schema, with the names of the fields around it."""
    if isinstance(schema, list | tuple):
        for item in cast("list[object]", schema):
            yield from _numbers(item, place)
    elif isinstance(schema, dict):
        node = cast("dict[str, Any]", schema)
        if node.get("type") in ("int", "float"):  # a tuple: of a field named type, it is a mapping
            yield place, node
        name = getattr(node.get("cls"), "__name__", "")
        for key, inner in node.items():
            if key not in {"cls", "metadata", "function"}:
                yield from _numbers(inner, f"{name}." if name else f"{place}{key}." if key not in _FORM else place)


_FORM = {"schema", "fields", "choices", "definitions", "items_schema", "values_schema", "keys_schema", "config"}


def test_each_number_of_a_stack_has_both_bounds() -> None:
    core: CoreSchema = TypeAdapter(Stack).core_schema
    numbers = list(_numbers(core))
    unbounded = [place for place, node in numbers if not ({"ge", "gt"} & node.keys() and {"le", "lt"} & node.keys())]
    assert unbounded == []
    assert len(numbers) > 50


def test_ordinary_mistakes_are_not_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # A file of 800 kB with 10,000 of them took a minute, and one of 4 MiB half an hour.
    def compared(*_: object) -> bool:
        pytest.fail("each mistake is compared with each other one")

    monkeypatch.setattr("gpu_tenancy.model.yaml._match", compared)
    teams = {f"team-{number}": {"ownr": "research", "costCenter": -1} for number in range(300)}
    problems = errors(stack(teams=teams))
    assert len([problem for problem in problems if "unknown key 'ownr'" in problem]) == 300
    assert len([problem for problem in problems if ".costCenter: -1 is not a string" in problem]) == 300


_PLACES = st.lists(st.sampled_from(["a", "b", 0, ANY]), max_size=3).map(tuple)


@given(st.lists(_PLACES, max_size=4), _PLACES)
def test_a_set_of_places_touches_what_one_of_them_touches(several: list[Path], place: Path) -> None:
    def touches(one: Path) -> bool:
        return all(a == b or ANY in {a, b} for a, b in zip(one, place, strict=False))

    assert Places(several).touch(place) == any(touches(one) for one in several)


# Any text.

_TOKENS = [
    *("config:", "gpu-tenancy:teams:", "gpu-tenancy:pools:", "gpu-tenancy:cluster:", "h100:", "a:", "<<:", "secure:"),
    *("{", "}", "[", "]", ",", "\n", "\n  ", "\n    ", "- ", "? ", ": ", "#", "|\n", ">-\n", "---\n", "%YAML 1.2\n"),
    *("&x ", "*x", "&y ", "*y ", "!!int ", "!!float ", "!!binary ", "!!set ", "!!timestamp ", "!t ", "~", "''"),
    *('"\\e"', '"\\ud800"', '"\\u202e"', '"\\n::error::"', "0x1F", "-0", ".nan", "1e999", "9" * 5000, "machine: "),
    *("p5.48xlarge", "nodes: ", "owner: ", "limit: ", "é", "\u200b", "\x85", "\t"),
]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(_TOKENS), st.text(max_size=3)), max_size=40))
def test_any_text_is_a_stack_or_an_error(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "Pulumi.any.yaml"
    file.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    assert not any(hidden(problem, "") for problem in problems_of(lambda: read_file(file, FILE)))


def problems_of(source: Callable[[], Source]) -> list[str]:
    """The problems of a source; any other error fails the test."""
    try:
        load(source())
    except StackError as error:
        return [str(problem) for problem in error.problems]
    return []


_SECTIONS = ("cluster", "pools", "teams", "machines", "prices", "operators", "priorities", "metrics", "guards")
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8), st.just("9" * 9)
)
_KEYS = st.one_of(
    st.sampled_from(("a", "h100", "gpus", "nodes", "machine", "limit", "owner", "network", "compute", "requests")),
    st.text(max_size=3),
)
_DATA = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=12
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(_SECTIONS), _DATA, max_size=4))
def test_any_values_of_a_section_are_a_stack_or_an_error(sections: Data) -> None:
    valid: Data = {"cluster": {"cloud": "existing"}, "pools": {"h100": pool()}, "teams": {"a": team()}}
    assert not any(hidden(problem, "") for problem in problems_of(lambda: Source({**valid, **sections})))


# How text is shown.


@given(st.text(st.characters()))
def test_shown_text_has_no_character_that_a_reader_cannot_see(text: str) -> None:
    assert not hidden(visible(text), "\u200c\u200d")
    assert not hidden(shortened(text), "")
    assert len(shortened(text)) <= 80
    assert json.loads(json.dumps(shortened(text))) == shortened(text)


@pytest.mark.parametrize("text", ["plain", "[red]", "größe", "日本語", "a::b", "{x: y}"])
def test_visible_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert shortened(text) == text


# Quantities.

AMOUNTS = st.integers(0, 2**62)


@given(AMOUNTS)
def test_amounts_survive_being_written_and_read(amount: int) -> None:
    assert quantity.parse_bytes(quantity.format_bytes(amount)) == amount
    assert quantity.parse_cpu(quantity.format_cpu(amount)) == amount
    assert quantity.parse_quantity(quantity.format_amount("pods", amount)) == amount


@given(st.integers(1, 10**6), st.sampled_from(["", "k", "M", "Gi", "Ti"]))
def test_formatted_quantities_are_canonical(number: int, suffix: str) -> None:
    once = quantity.format_bytes(quantity.parse_bytes(f"{number}{suffix}"))
    assert quantity.format_bytes(quantity.parse_bytes(once)) == once


@pytest.mark.parametrize(
    ("resource", "written", "canonical"),
    [
        ("cpu", "2", "2"),
        ("cpu", "2000m", "2"),
        ("cpu", "1.5", "1500m"),
        ("cpu", "0.1", "100m"),
        ("requests.cpu", "1000", "1k"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1.5Gi", "1536Mi"),
        ("memory", "0", "0"),
        ("limits.memory", "4096Gi", "4Ti"),
        ("memory", "500M", "500M"),
        ("memory", "1000", "1k"),
        ("requests.storage", "2Ti", "2Ti"),
    ],
)
def test_amounts_are_written_as_the_api_server_writes_them(resource: str, written: str, canonical: str) -> None:
    parse = quantity.parse_cpu if resource.endswith("cpu") else quantity.parse_bytes
    assert quantity.format_amount(resource, parse(written)) == canonical


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [("nvidia.com/gpu", 8, "8"), ("requests.nvidia.com/gpu", 1500, "1500"), ("pods", 2000, "2k"), ("pods", 0, "0")],
)
def test_other_resources_are_counts(resource: str, amount: int, written: str) -> None:
    assert quantity.format_amount(resource, amount) == written


NOT_QUANTITIES = ["", "1.2.3", ".", "4gb", "1/2", "five", "1 Gi", "Gi", "1K", "1ki", "1mi", "1kk", "inf", "nan", "1_0"]
NOT_EXPONENTS = ["e3", "1e", "1e+", "1e1.5", "1e3k", "1e3Gi", "1Ee3", "1e999", "--1", "+-1", "+", "٣"]


@pytest.mark.parametrize("text", [*NOT_QUANTITIES, *NOT_EXPONENTS])
def test_an_invalid_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse_quantity(text)
    assert not re.search(quantity.CPU_PATTERN, text)


SUFFIXES: dict[str, Fraction] = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", *"kMGTPE"), -3)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


@pytest.mark.parametrize(("suffix", "factor"), SUFFIXES.items())
def test_each_suffix_of_the_api_is_read_with_and_without_a_sign(suffix: str, factor: Fraction | int) -> None:
    assert quantity.parse_quantity(f"3{suffix}") == quantity.parse_quantity(f"+3{suffix}") == 3 * factor
    assert quantity.parse_quantity(f"-3{suffix}") == -3 * factor
    assert quantity.parse_quantity(f".5{suffix}") == quantity.parse_quantity(f"0.5{suffix}") == Fraction(1, 2) * factor
    assert quantity.parse_quantity(f"3.{suffix}") == 3 * factor
    assert re.search(quantity.CPU_PATTERN, f"3{suffix}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1e003", 1000),
        ("12e6", 12_000_000),
        ("1.5e3", 1500),
        ("1.e1", 10),
        ("-2e2", -200),
        ("5e-1", Fraction(1, 2)),
        ("25E-2", Fraction(1, 4)),
        ("1E", 10**18),
        ("1k", 1000),
        (" 8 ", 8),
        ("0.1", Fraction(1, 10)),
        (1e-05, Fraction(1, 10**5)),
        (1e22, 10**22),
    ],
)
def test_decimal_exponents_are_not_the_suffix_e(text: str | float, value: Fraction) -> None:
    assert quantity.parse_quantity(text) == value


def test_parts_of_millicores_and_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a whole number of millicores"):
        quantity.parse_cpu("0.0001")
    with pytest.raises(ValueError, match="'100u' is not a whole number of millicores"):
        quantity.parse_cpu("100u")
    with pytest.raises(ValueError, match="is not a whole number of bytes"):
        quantity.parse_bytes("1.5")
    assert quantity.parse_cpu("2000u") == quantity.parse_cpu("2e-3") == 2
    assert quantity.parse_bytes("2000m") == 2


@pytest.mark.parametrize("text", ["-1", "-1e3", "-500m"])
def test_a_negative_amount_of_cpu_or_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is negative"):
        quantity.parse_cpu(text)
    with pytest.raises(ValueError, match="is negative"):
        quantity.parse_bytes(text)
    assert not re.search(quantity.CPU_PATTERN, text)


def test_sums_and_multiples_go_resource_by_resource() -> None:
    assert quantity.add({"cpu": 1, "gpu": 2}, {}, {"gpu": 3}) == {"cpu": 1, "gpu": 5}
    assert quantity.times({"cpu": 2}, 3) == {"cpu": 6}
    assert quantity.is_extended("nvidia.com/gpu")
    assert not quantity.is_extended("memory")
