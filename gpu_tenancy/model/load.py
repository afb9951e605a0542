"""Loads a stack: from its source to typed data, with every problem found in it."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpu_tenancy.base.bounds import DEEPEST, value_problems
from gpu_tenancy.base.problems import Path, Problem, StackError, dotted, unknown
from gpu_tenancy.base.quantity import DURATION_PATTERN, format_bytes, format_duration
from gpu_tenancy.base.texts import shortened
from gpu_tenancy.model.checks import coherence_problems
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.schema import example, is_described, known_keys, meaning
from gpu_tenancy.model.source import Source, value_at
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.workers import manager_problems, with_workers
from gpu_tenancy.model.yaml import Places

_MISSING: Final = object()
_LAST: Final = dict[bytes, Stack]()  # the last valid stack by its content: a command reads it before its program does


@dataclass(frozen=True)
class Draft:
    """The valid part of a stack (None if it is not enough for a stack), and the problems of the rest."""

    stack: Stack | None
    problems: tuple[Problem, ...]
    unsure: Places  # places left out of `stack`; problems that depend on them are not reported

    def sure(self, problem: Problem) -> bool:
        """Whether the problem depends on no place that was left out."""
        return not any(self.unsure.touch(place) for place in (problem.path, *problem.about))


def draft(source: Source) -> Draft:
    """Reads the valid part and reports the rest, so that one misspelt key does not hide other problems."""
    unreadable = list(value_problems(source.sections))
    problems = [_located(problem, source) for problem in unreadable]
    if any(len(problem.path) >= DEEPEST for problem in unreadable):
        return Draft(None, tuple(problems), Places([()]))
    data = _in_order(source.sections)
    filled: set[Path] = set()
    unsure = Places(_leave_out(problem.path, data, filled) for problem in unreadable)
    unread = Places(source.unread)
    while True:  # Each round removes what the user wrote, or fills a place once: see `_leave_out`.
        try:
            return Draft(Stack.model_validate(data), tuple(problems), unsure)
        except ValidationError as error:
            details = error.errors()
        # Collect all places first: removing one may change the path of the next.
        places = [_place(detail, data) for detail in details]
        found = [pair for pair in zip(details, places, strict=True) if not unsure.touch(pair[1])]
        problems += [_located(problem, source) for problem in _problems(found, data) if not unread.touch(problem.path)]
        left_out = [_leave_out(place, data, filled) for place in places]
        if () in left_out:
            return Draft(None, tuple(problems), Places([()]))
        unsure.update((*places, *left_out))
        unsure.update(key for detail, place in zip(details, places, strict=True) for key in _intended(detail, place))


def _in_order(data: Any, within: str = "") -> Any:
    """Sorted keys, because moving a team in a file must change no object. Sizes of notebooks keep their order."""
    if isinstance(data, dict):
        mapping = cast("dict[str, Any]", data)
        keys = mapping if within == "sizes" else sorted(mapping, key=str)
        return {key: _in_order(mapping[key], key) for key in keys}
    return [_in_order(entry) for entry in cast("list[Any]", data)] if isinstance(data, list) else data


def _intended(detail: ErrorDetails, place: Path) -> list[Path]:
    """The key that a misspelt key probably stands for: its value is not known either."""
    if detail["type"] != "extra_forbidden":
        return []
    return [(*place[:-1], key) for key in get_close_matches(str(place[-1]), known_keys(place[:-1]), n=1)]


def _located(problem: Problem, source: Source) -> Problem:
    return replace(problem, file=source.file_of(problem.path), line=source.line(problem.path))


def _place(detail: ErrorDetails, data: Mapping[str, Any]) -> Path:
    """The error's place in the data, without pydantic's own names for union branches and keys."""
    place: Path = ()
    for part in detail["loc"]:
        if part == "[key]":
            break
        if value_at(data, (*place, part), _MISSING) is not _MISSING:
            place = (*place, part)
    return (*place, detail["loc"][-1]) if detail["type"] == "missing" else place


def _leave_out(place: Path, data: Any, filled: set[Path]) -> Path:
    """Removes the place from the data so that the rest can be read; returns the removed path, `()` for everything.

    A missing key gets a placeholder, once; if this is invalid too, what is around it is removed. So each call changes
    the data, unless an earlier one of the same round removed the place already.
    """
    if not place:
        return ()
    around, key = value_at(data, place[:-1], _MISSING), place[-1]
    if around is _MISSING:
        return place  # Already removed with what is around it.
    if not isinstance(around, dict) or place in filled:
        # A list, in which the other entries would get other positions; a plain value in place of a mapping.
        return _leave_out(place[:-1], data, filled)
    section = cast("dict[str | int, Any]", around)
    if key in section:
        del section[key]
    else:
        section[key] = {} if len(place) == 1 else UNREAD
        filled.add(place)
    return place


def _problems(found: Iterable[tuple[ErrorDetails, Path]], data: Any) -> Iterator[Problem]:
    """One problem for each place, also if several keys are missing there."""
    missing: dict[Path, list[tuple[str | int, ErrorDetails]]] = {}
    said: set[tuple[Path, str]] = set()  # One number may stand for two keys: nodes: -1 is a minimum and a maximum.
    for detail, place in found:
        if detail["type"] == "missing":
            missing.setdefault(place[:-1], []).append((place[-1], detail))
        else:
            kind, value = detail["type"], detail["input"]
            shown = kind not in _NAMES_ITS_VALUE and (kind in _TYPES or not isinstance(value, Mapping | list))
            rule, fix = _rule_and_fix(detail, place)
            if (place, rule) not in said:
                said.add((place, rule))
                yield Problem(place, rule, fix, _short(value) if shown else None)
    for around, keys in missing.items():
        names, (key, detail) = ", ".join(str(key) for key, _ in keys), keys[0]
        plain = value_at(data, around)
        if not isinstance(plain, dict):  # The plain value of a section, which stands for some of its keys.
            written = {**detail["input"], **{key: "…" for key, _ in keys}}
            fix = f"write {{{', '.join(f'{key}: {value}' for key, value in written.items())}}}"
            yield Problem(around, f"needs {names}", fix, _short(plain))
        elif around and len(keys) > 1:
            yield Problem(around, f"missing {names}", "add them")
        else:
            yield Problem((*around, key), *_rule_and_fix(detail, (*around, key)))


_MAPPINGS: Final = ("dict_type", "model_type", "model_attributes_type")
_TYPES: Final = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
}
_SPECIAL: Final = {
    "limits.nvidia.com/gpu": (
        "a ResourceQuota ignores this key: for extended resources it supports only requests.<resource>",
        "remove it: requests.nvidia.com/gpu is derived from the team's GPUs",
    )
}
_KEYS_LISTING: Final = "tenancy catalogue schema"
_MUST: Final = re.compile(r"^(Input|String|List|Dictionary|Set|Value) should ")
"""Start of pydantic's messages about values."""

_NAMES_ITS_VALUE: Final = (
    *("missing", "extra_forbidden", "literal_error", "union_tag_invalid", "union_tag_not_found"),
    *_MAPPINGS,
)
"""Types of errors whose rule shows the value already, or that have none."""


def _rule_and_fix(detail: ErrorDetails, place: Path) -> tuple[str, str]:
    context = detail.get("ctx", {})
    if detail["type"] == "stack":
        return context["rule"], context["fix"]
    named = detail["loc"][:-1] if detail["type"] == "extra_forbidden" else detail["loc"]
    place = detail["loc"] if is_described(named) else place
    if detail["type"] in {"extra_forbidden", "literal_error", "union_tag_invalid"}:
        return _unknown(detail, place)
    what = f": {description}" if (description := meaning(place)) else ""
    if detail["type"] in {"missing", "union_tag_not_found"}:
        key = f"key {context['discriminator']}" if context else "key"
        return f"required {key} is missing", f"add it{what}"
    if detail["type"] in _MAPPINGS:
        got = _short(detail["input"])
        return f"expected a mapping such as {example(place, got)}, got {got}", f"change it{what}"
    if expected := _TYPES.get(detail["type"]):
        return f"is not {expected}", f"set {expected}{what}"
    return _bound(detail["input"], context) or _MUST.sub("must ", detail["msg"]).removesuffix("."), f"change it{what}"


def _bound(value: Any, context: Mapping[str, Any]) -> str:
    """A bound in the unit of the value, such as `must be at most 1h`; empty without one."""
    for key, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if (bound := context.get(key)) is not None:
            written = format_duration if re.match(DURATION_PATTERN, str(value)) else format_bytes
            return f"must be {words} {written(bound) if isinstance(value, str) else bound}"
    return ""


def _unknown(detail: ErrorDetails, place: Path) -> tuple[str, str]:
    context = detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        key = str(place[-1])
        return _SPECIAL.get(key) or unknown("key", key, known_keys(place[:-1]), _KEYS_LISTING)
    if detail["type"] == "literal_error":
        return unknown("value", _short(detail["input"]), _options(context["expected"]))
    kind = context["discriminator"].strip("'")
    return unknown(kind, _short(detail["input"][kind]), _options(context["expected_tags"]))


def _options(expected: str) -> list[str]:
    return [word.strip().strip("'") for word in expected.replace(" or ", ",").split(",")]


def _short(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = shortened("(secret)" if value == UNREAD else str(value), 58)  # in quotes too, it fits a line of a terminal
    return f'"{text}"' if not text or text != text.strip() else text


def load(source: Source) -> Stack:
    """Reads and checks a stack. Raises StackError with every problem, of single values and between sections."""
    source = with_workers(source, _alone)
    stack = _alone(source)
    if problems := [_located(problem, source) for problem in manager_problems(source, stack, load)]:
        raise StackError(problems)
    return stack


def _alone(source: Source) -> Stack:
    """Reads and checks a stack without its MultiKueue manager or workers; raises as `load` does."""
    try:
        content = hashlib.sha256(repr((source.sections, source.unread)).encode(errors="surrogatepass")).digest()
    except RecursionError:  # nested deeper than `draft` accepts
        content = b""
    if (known := _LAST.get(content)) is not None:
        return known
    read = draft(source)
    problems = list(read.problems)
    if read.stack is not None:
        coherence = (problem for problem in coherence_problems(read.stack) if read.sure(problem))
        problems += [_located(problem, source) for problem in coherence]
    if problems or read.stack is None:
        ordered = sorted(problems, key=lambda problem: (problem.line or 0, dotted(problem.path)))
        raise StackError(dict.fromkeys(ordered))
    _LAST.clear()
    _LAST[content] = read.stack
    return read.stack
