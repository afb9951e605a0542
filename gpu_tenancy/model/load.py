"""From a stack's source to a typed stack, with everything that is wrong in its shape."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpu_tenancy.model.checks import coherence_problems
from gpu_tenancy.model.problems import ANY, Path, Problem, StackError, dotted, nearest
from gpu_tenancy.model.schema import known_keys, meaning
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.base import UNREAD

_MISSING: Final = object()


@dataclass(frozen=True)
class Draft:
    """A stack as far as it could be read.

    Attributes:
        stack: what is well formed; None where not even the rest makes a stack.
        problems: what is not, each once.
        unsure: places left out of `stack`, about which nothing can be concluded.
    """

    stack: Stack | None
    problems: tuple[Problem, ...]
    unsure: frozenset[Path]

    def sure(self, problem: Problem) -> bool:
        """Whether none of what the problem is about was left out."""
        return not any(_touch(place, left) for place in (problem.path, *problem.about) for left in self.unsure)


def draft(source: Source) -> Draft:
    """Reads what can be read: what is malformed is reported, left out, and the rest read again.

    So one misspelt key does not hide that another team is promised too much.
    """
    data = _in_order(source.sections)
    problems: list[Problem] = []
    unsure: set[Path] = set()
    while True:
        try:
            return Draft(Stack.model_validate(data), tuple(problems), frozenset(unsure))
        except ValidationError as error:
            details = error.errors()
        # All places first: taking one out would move the ground under the next.
        places = [_place(detail, data) for detail in details]
        for detail, place in zip(details, places, strict=True):
            if not any(_touch(place, left) for left in unsure) and not _is_unread(place, source):
                problems.append(_located(_problem(detail, place), source))
        left_out = [_leave_out(place, data) for place in places]
        if () in left_out:
            return Draft(None, tuple(problems), frozenset({()}))
        unsure.update(
            places,
            left_out,
            (meant for detail, place in zip(details, places, strict=True) for meant in _meant(detail, place)),
        )


def _in_order(data: Any) -> Any:
    """A copy with all keys sorted: Pulumi's engine hands them over so, and a stack must mean the same either way."""
    if isinstance(data, dict):
        found = cast("dict[str, Any]", data)
        return {key: _in_order(found[key]) for key in sorted(found)}
    return [_in_order(each) for each in cast("list[Any]", data)] if isinstance(data, list) else data


def _touch(one: Path, other: Path) -> bool:
    """Whether one place is the other, or around it; `ANY` stands for each key."""
    return all(a == b or ANY in {a, b} for a, b in zip(one, other, strict=False))


def _meant(detail: ErrorDetails, place: Path) -> list[Path]:
    """The key that a misspelt one may stand for: what it says is as unknown as what a malformed one says."""
    if detail["type"] != "extra_forbidden":
        return []
    return [(*place[:-1], key) for key in get_close_matches(str(place[-1]), known_keys(place[:-1]), n=1)]


def _located(problem: Problem, source: Source) -> Problem:
    return replace(problem, file=source.file, line=source.line(problem.path))


def _is_unread(place: Path, source: Source) -> bool:
    return any(_touch(place, unread) for unread in source.unread)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        if isinstance(data, list) and isinstance(part, int):
            entries = cast("list[Any]", data)
            data = entries[part] if part < len(entries) else _MISSING
        elif isinstance(data, dict):
            data = cast("dict[str | int, Any]", data).get(part, _MISSING)
        else:
            return _MISSING
    return data


def _place(detail: ErrorDetails, data: Mapping[str, Any]) -> Path:
    """The error's place in the data: without pydantic's names for the branches of a choice and for keys."""
    place: Path = ()
    for part in detail["loc"]:
        if part == "[key]":
            break
        if _at(data, (*place, part)) is not _MISSING:
            place = (*place, part)
    return (*place, detail["loc"][-1]) if detail["type"] == "missing" else place


def _leave_out(place: Path, data: Any) -> Path:
    """Takes the place out of the data so that the rest can be read; returns what went, `()` for all of it.

    A missing text gets a stand-in, so that what stands beside it is still judged. Where that does not fit either,
    the section around it goes.
    """
    if not place:
        return ()
    around, key = _at(data, place[:-1]), place[-1]
    if not isinstance(around, list | dict):
        return place  # It went with what was around it.
    is_section = len(place) == 1
    if isinstance(around, list) or (_at(data, place) == UNREAD and not is_section):
        # The neighbours in a list keep their positions, so the whole list goes.
        return _leave_out(place[:-1], data)
    section = cast("dict[str | int, Any]", around)
    if key in section:
        del section[key]
    else:
        section[key] = {} if is_section else UNREAD
    return place


_TYPES: Final = {
    "int_type": "is no whole number",
    "float_type": "is no number",
    "string_type": "is no text",
    "bool_type": "is neither true nor false",
    "list_type": "is no list",
    "dict_type": "is no mapping of keys",
    "model_type": "is no mapping of keys",
    "model_attributes_type": "is no mapping of keys",
    "int_from_float": "is no whole number",
}
_SPECIAL: Final = {
    "limits.nvidia.com/gpu": (
        "is counted by no quota: extended resources take only the prefix requests., and limits. is ignored in silence",
        "leave it out: requests.nvidia.com/gpu follows from the team's GPUs",
    ),
}


def _problem(detail: ErrorDetails, place: Path) -> Problem:
    rule, mend = _rule_and_mend(detail, place)
    nothing_there = detail["type"] in {"missing", "extra_forbidden"}
    return Problem(place, rule, mend, None if nothing_there else _short(detail["input"]))


def _rule_and_mend(detail: ErrorDetails, place: Path) -> tuple[str, str]:
    context = detail.get("ctx", {})
    what = meaning(place)
    if detail["type"] == "stack":
        return context["rule"], context["mend"]
    if detail["type"] == "extra_forbidden":
        key = str(place[-1])
        return _SPECIAL.get(key) or ("is no key here", nearest(key, known_keys(place[:-1])))
    if detail["type"] == "missing":
        return "is missing", f"write it: {what}" if what else "write it"
    if detail["type"] == "literal_error":
        return f"is none of {context['expected']}", nearest(str(detail["input"]), _options(context["expected"]))
    rule = _TYPES.get(detail["type"]) or f"is not right: {_lower(detail['msg'])}"
    return rule, f"it says: {what}" if what else "write one"


def _options(expected: str) -> list[str]:
    return [word.strip().strip("'") for word in expected.replace(" or ", ",").split(",")]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].removesuffix(".")


def _short(value: Any) -> str | None:
    if isinstance(value, Mapping | list):
        return None
    text = "(secret)" if value == UNREAD else str(value)
    return text if len(text) <= 60 else text[:57] + "…"  # noqa: PLR2004 - what a terminal's line takes


def load(source: Source) -> Stack:
    """The stack that a source says.

    Raises:
        StackError: with everything that is wrong, in its shape and between its parts.
    """
    read = draft(source)
    problems = list(read.problems)
    if read.stack is not None:
        coherence = (problem for problem in coherence_problems(read.stack) if read.sure(problem))
        problems += [_located(problem, source) for problem in coherence]
    if problems or read.stack is None:
        ordered = sorted(problems, key=lambda problem: (problem.line or 0, dotted(problem.path)))
        raise StackError(dict.fromkeys(ordered))
    return read.stack
