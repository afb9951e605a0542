"""Problems of a stack, as text with place, value, rule and fix."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeAlias

from gpu_tenancy.base.texts import shortened, visible

Path: TypeAlias = tuple[str | int, ...]  # keys and list positions, from the section down

ANY: Final = "*"  # each key at a place that a problem is about; no key of a stack has this name

_LISTED: Final = 8  # a list of up to this many names is shown completely
_LONGEST: Final = 200  # characters of a value that are shown and compared; names of cloud resources may be long
_NEAREST: Final = 5  # names that are shown of a longer list


def dotted(path: Path) -> str:
    """`("teams", "a", "containers", 0)` as `teams.a.containers[0]`."""
    text = ""
    for part in path:
        name = f"[{part}]" if isinstance(part, int) else shortened(part)
        text += f".{name}" if text and not isinstance(part, int) else name
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a stack."""

    path: Path  # the key to change first
    rule: str  # the broken rule with its numbers; continues the sentence after the value
    fix: str  # in the imperative
    value: str | None = None  # None where there is no value, or where the rule names it
    about: tuple[Path, ...] = ()  # places that the rule depends on: reported only if all of them could be read
    file: str = field(default="")  # as the reader would type it
    line: int | None = None  # counted from 1; None without a file, as under the Pulumi engine

    @property
    def reason(self) -> str:
        """Value, rule and fix in one line, without the place; invisible characters are escaped."""
        value = "" if self.value is None else f"{shortened(self.value, _LONGEST)} "
        return visible(f"{value}{self.rule}; {self.fix}", "")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return f"{place}{dotted(self.path)}: {self.reason}"


class StackError(Exception):
    """A stack that must not be deployed, with every problem found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: `did you mean 'a100'? Known: a100, h100`, `known: a100, h100` or `none exist`."""
    names = sorted(set(known))
    if not names:
        return "none exist"
    match = _match(name, names)
    known_names = listed(name, names)
    return f"did you mean '{match}'? Known: {known_names}" if match else f"known: {known_names}"


def unknown(kind: str, name: str, known: Iterable[str], listing: str = "") -> tuple[str, str]:
    """Rule and fix for an unknown name: `unknown flavor 'h10' (did you mean 'h100'?)` and `use one of: a100, h100`.

    `listing` is a command that lists all known names, shown if they are too many for an error.
    """
    names = sorted(set(known))
    match = _match(name, names)
    rule = f"unknown {kind} '{shortened(name, _LONGEST)}'" + (f" (did you mean '{match}'?)" if match else "")
    if not names:
        return rule, f"remove it: no {kind} is defined"
    return rule, f"use {names[0]}" if len(names) == 1 else f"use one of: {listed(name, names, listing)}"


def _match(name: str, names: list[str]) -> str | None:
    return next(iter(get_close_matches(name[:_LONGEST], names, n=1, cutoff=0.6)), None)


def listed(name: str, known: Iterable[str], listing: str = "") -> str:
    """All names of a short list; of a long one the nearest to a name, the total and the command that lists all."""
    names = sorted(set(known))
    if len(names) <= _LISTED:
        return ", ".join(names)
    some = ", ".join(get_close_matches(name[:_LONGEST], names, n=_NEAREST, cutoff=0.0))
    return f"{some}, … ({len(names)} in total{f'; list them with: `{listing}`' if listing else ''})"
