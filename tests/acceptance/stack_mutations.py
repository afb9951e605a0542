"""Stack files of the repository with mutations that people, tools and attackers could make.

Half of the changes keep a file near a valid one (a key of another stack, a number more, a letter less), because only
stacks that the model accepts reach the program and an API server. The others break types, structure and syntax.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any, Final, TypeAlias, cast

import yaml
from hypothesis import strategies as st
from repository import ROOT

from gpu_tenancy.model.schema import known_keys
from gpu_tenancy.model.spec import NAMESPACE

STACKS: Final = sorted(file.stem.removeprefix("Pulumi.") for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))
EXAMPLES: Final = ROOT / "gpu_tenancy/cli/documentation.yaml"
Place: TypeAlias = tuple[str | int, ...]
Change: TypeAlias = Callable[[st.DrawFn, Any, Place], None]


@cache
def text_of(stack: str) -> str:
    return (ROOT / f"stacks/Pulumi.{stack}.yaml").read_text(encoding="utf-8")


@cache
def _config(stack: str) -> Any:
    return yaml.safe_load(text_of(stack))


def inner(data: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a mapping, positions and items of a list."""
    if isinstance(data, dict):
        return list(cast("dict[Any, Any]", data).items())
    return list(enumerate(cast("list[Any]", data))) if isinstance(data, list) else []


def places(data: Any, here: Place = ()) -> Iterator[Place]:
    for key, value in inner(data):
        yield (*here, key)
        yield from places(value, (*here, key))


@cache
def _values_by_key() -> dict[str | int, list[Any]]:
    """The values of each key in all stacks, and in the examples of the reference, which has every key."""
    found: dict[str | int, list[Any]] = {}
    for data in (*(_config(stack) for stack in STACKS), yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))):
        for place in places(data):
            found.setdefault(place[-1], []).append(at(data, place))
    return found


def at(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data


def _known(place: Place) -> list[str]:
    """The keys that the model has at a place of the file."""
    if not place:
        return ["config"]
    if len(place) == 1:
        return [f"{NAMESPACE}:{key}" for key in known_keys(())]
    return known_keys((str(place[1]).removeprefix(f"{NAMESPACE}:"), *place[2:]))


# Values that people, tools and attackers put into files, and small edits of valid ones.

NUMBERS: Final = (
    *(0, -1, 1, 3, 7, 63, 64, 100, 253, 1000, 65_535, 65_536, 1_000_000, 1_000_001, 2**31 - 1, 2**31, 2**63 - 1, 2**63),
    *(-(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-9, 1e22, 1e308, float("inf"), float("-inf"), float("nan")),
)
_WORDS: Final = r"""
- -a a- A a.b a_b a/b / // .. . ~ 0 00 1e3 [red] <b> ` |
true null yes nan .nan 1_000 0x1f 1:30 2024-01-01 * & ! % @ # ' "
${x} $(PATH) %s {0} \ a,b a=b a:b a;b ::error::x << config default
kube-system kubernetes.io/x nvidia.com/gpu requests.nvidia.com/gpu x/y/z example.com/ /x
1 -1 0.5 100m 1m 0.1m 1n 1Ki 1Ei 9Ei 1E Gi 1gi +1 1e .5 5. 1e9 1s 0s -1s 1h1m 1d 100y 1.5h 999999h
10.0.0.0/8 10.0.0.1/8 0.0.0.0/0 ::/0 10.0.0.0/33 300.1.1.1 10.0.0.0
example.com EXAMPLE.com *.example.com example.com. x:0 x:99999 x:y:z x@y
image Image:1 a/b:tag a/b@sha256:0 reg:5000/a https://x/y s3://b s3:// s3:///x gs://b/c abfs://x oci://x/y
file:///etc/passwd ../../etc/passwd /etc/passwd p5.48xlarge H100 h100 cpu any none eu-west-1
system:masters cluster-admin 5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d arn:aws:iam::1:role/x 1.36 v1
"""
TEXTS: Final = (
    *_WORDS.split(),
    *("", " ", " x", "x ", "a b", "a/b c", "1Gi ", "a" * 63, "a" * 64, "a" * 253, "a" * 254, "a." * 200, "x" * 5000),
    *("é", "日本語", "👩‍💻", "ﬁ", "İ", "ß", "\u200b", "\u202e", "\u2028", "\ufeff", "\x00", "\x1b[2J", "\x7f", "\x85"),
    *("a\nb", "a\r\nb", "\t", "\n", "{{ .x }}"),
)
EMPTY: Final[tuple[Any, ...]] = (
    *(None, True, False, [], {}, [None], [[]], {"": ""}, [{}], {"secure": "AAAB"}, {"secure": 1}),
)
ODD: Final[st.SearchStrategy[Any]] = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(EMPTY), st.text(max_size=6)
)


def nested(levels: int, value: Any, *, mappings: bool) -> Any:
    for _ in range(levels):
        value = {"a": value} if mappings else [value]
    return value


@st.composite
def near(draw: st.DrawFn, value: Any) -> Any:
    """A value after a small edit, as by a typing error."""
    if isinstance(value, bool) or value is None:
        return draw(st.sampled_from([not value, str(value), None]))
    if isinstance(value, int | float):
        edited = (value + 1, value - 1, -value, value * 2, value * 10, value * 1000, value / 2, str(value), 0)
        return draw(st.sampled_from(edited))
    if not isinstance(value, str):
        return [value]
    at = draw(st.integers(0, len(value)))
    sign = draw(st.sampled_from([*"aA0-_./: ,@*é", "\u200b", "i", "m", "Gi"]))
    edited_texts = (
        *(value[:at] + sign + value[at:], value[:at] + value[at + 1 :], value[:at], value[at:], value.upper()),
        *(
            value * 2,
            value * 40,
            value + sign,
            sign + value,
            f" {value}",
            f"{value}\n",
            value.replace("-", "_"),
            [value],
        ),
    )
    return draw(st.sampled_from(edited_texts))


# Changes of data. Each gets a place that exists.


def _remove(_draw: st.DrawFn, data: Any, place: Place) -> None:
    del at(data, place[:-1])[place[-1]]


def _set_odd(draw: st.DrawFn, data: Any, place: Place) -> None:
    at(data, place[:-1])[place[-1]] = deepcopy(draw(ODD))


def _set_near(draw: st.DrawFn, data: Any, place: Place) -> None:
    at(data, place[:-1])[place[-1]] = draw(near(at(data, place)))


def _set_of_another(draw: st.DrawFn, data: Any, place: Place) -> None:
    at(data, place[:-1])[place[-1]] = deepcopy(draw(st.sampled_from(_values_by_key().get(place[-1], [None]))))


def _rename(draw: st.DrawFn, data: Any, place: Place) -> None:
    around, key = at(data, place[:-1]), place[-1]
    names = [*_known(place[:-1]), *(str(other) for other, _ in inner(around)), "x"]
    name = draw(st.one_of(near(str(key)), ODD, st.sampled_from(names)))
    if isinstance(around, list):
        cast("list[Any]", around).append(name)
    else:
        around[name if name.__hash__ else str(name)] = around.pop(key)


def _copy(draw: st.DrawFn, data: Any, place: Place) -> None:
    around, value = at(data, place[:-1]), deepcopy(at(data, place))
    if isinstance(around, list):
        cast("list[Any]", around).insert(0, value)
    else:
        around[draw(st.sampled_from([f"{place[-1]}-2", "a", "cpu", f"{place[-1]}x"]))] = value


def _add_known(draw: st.DrawFn, data: Any, place: Place) -> None:
    """Adds a key that the model has there, with a value of a stack, or an odd one."""
    around = at(data, place)
    keys = _known(place) if isinstance(around, dict) else []
    if not keys:
        return _set_near(draw, data, place)
    key = draw(st.sampled_from(keys))
    values = [st.sampled_from(_values_by_key()[key])] * 3 if key in _values_by_key() else []
    around[key] = deepcopy(draw(st.one_of(*values, ODD)))
    return None


def _swap(draw: st.DrawFn, data: Any, place: Place) -> None:
    other = draw(st.sampled_from(list(places(data))))
    one, two = deepcopy(at(data, place)), deepcopy(at(data, other))
    at(data, place[:-1])[place[-1]] = two
    try:
        at(data, other[:-1])[other[-1]] = one
    except (LookupError, TypeError):  # the other was inside the one
        return


def _nest(draw: st.DrawFn, data: Any, place: Place) -> None:
    levels, mappings = draw(st.sampled_from([1, 2, 45, 49, 51, 200])), draw(st.booleans())
    at(data, place[:-1])[place[-1]] = nested(levels, at(data, place), mappings=mappings)


def _repeat(draw: st.DrawFn, data: Any, place: Place) -> None:
    value, times = at(data, place), draw(st.sampled_from([3, 100, 2000]))
    many = {f"{place[-1]}-{index}": value for index in range(times)} if draw(st.booleans()) else [value] * times
    at(data, place[:-1])[place[-1]] = deepcopy(many)


GENTLE: Final[tuple[Change, ...]] = (_remove, _set_near, _set_of_another, _copy, _add_known, _add_known)
ROUGH: Final[tuple[Change, ...]] = (_set_odd, _set_odd, _rename, _swap, _nest, _repeat)


# Changes of text.


def _lines(draw: st.DrawFn, text: str) -> str:
    lines = text.splitlines(keepends=True) or ["\n"]
    index, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    edits: tuple[list[str], ...] = (
        [line, line],
        [],
        [f"\t{line}"],
        [f" {line}"],
        [line.lstrip()],
        [line, lines[other]],
    )
    lines[index : index + 1] = draw(st.sampled_from(edits))
    return "".join(lines)


def _characters(draw: st.DrawFn, text: str) -> str:
    index = draw(st.integers(0, len(text)))
    signs = [*"\t:{]*#'\"\r?>é", "- ", "&a ", "!x ", "!!int ", "\x00", "\ufeff"]
    return text[:index] + draw(st.sampled_from(signs)) + text[index:]


def _cut(draw: st.DrawFn, text: str) -> str:
    return text[: draw(st.integers(0, len(text)))]


def _bomb(draw: st.DrawFn, text: str) -> str:
    """Aliases of aliases, or merges of merges, beside the sections or in one of them."""
    depth, width, merges = draw(st.integers(1, 9)), draw(st.sampled_from([2, 10])), draw(st.booleans())
    lines = ["  x:l0: &l0 {k: v}" if merges else "  x:l0: &l0 [v]"]
    for level in range(1, depth):
        inner = ", ".join([f"*l{level - 1}"] * width)
        lines.append(f"  x:l{level}: &l{level} " + (f"{{<<: [{inner}], k{level}: v}}" if merges else f"[{inner}]"))
    prefix = draw(st.sampled_from(["x:", f"{NAMESPACE}:"]))
    bomb = "\n".join(lines).replace("x:", prefix)
    return text.replace("config:\n", f"config:\n{bomb}\n", 1)


def _anchors(draw: st.DrawFn, text: str) -> str:
    """One value as an anchor, and another as its alias."""
    lines = text.splitlines() or [""]
    having = [index for index, line in enumerate(lines) if ": " in line and "#" not in line] or [0]
    one, two = draw(st.sampled_from(having)), draw(st.sampled_from(having))
    lines[one] = lines[one].replace(": ", ": &n ", 1)
    key = lines[two].partition(": ")[0]
    lines[two] = draw(st.sampled_from([f"{key}: *n", f"{key}: {{<<: *n}}", f"{key}: [*n, *n]"]))
    return "\n".join(lines)


def _whole(draw: st.DrawFn, text: str) -> str:
    """Other line ends, a second document, or an empty file."""
    wholes = (
        text.replace("\n", "\r\n"),
        f"\ufeff{text}",
        f"{text}---\n{text}",
        f"%YAML 1.2\n---\n{text}",
        "",
        "~",
        "[]",
    )
    return draw(st.sampled_from([*wholes, f"- {text}", text * 2, text + "\x00", "config:\n", "config: {}\n", "a"]))


TEXTUAL: Final = (_lines, _lines, _characters, _characters, _cut, _bomb, _anchors, _anchors, _whole)


@st.composite
def stack_files(draw: st.DrawFn, stack: str) -> bytes:
    kind = draw(st.sampled_from(["gentle", "gentle", "gentle", "rough", "mixed", "text"]))
    text = text_of(stack)
    if kind != "text":
        changes = {"gentle": GENTLE, "rough": ROUGH, "mixed": (*GENTLE, *ROUGH)}[kind]
        text = _changed(draw, deepcopy(_config(stack)), changes, draw(st.integers(1, 3)))
    if kind == "text" or draw(st.integers(0, 9)) == 0:
        for _ in range(draw(st.integers(1, 2))):
            text = draw(st.sampled_from(TEXTUAL))(draw, text)
    encoding = draw(st.sampled_from(["utf-8"] * 40 + ["utf-16", "latin-1"]))
    return text.encode(encoding, "surrogatepass" if encoding != "latin-1" else "replace")


def _changed(draw: st.DrawFn, data: Any, changes: tuple[Change, ...], times: int) -> str:
    for _ in range(times):
        there = list(places(data))
        if not there:
            break
        draw(st.sampled_from(changes))(draw, data, draw(st.sampled_from(there)))
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - its signature there
        return True
