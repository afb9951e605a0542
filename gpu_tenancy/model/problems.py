"""What is wrong with a stack, said so that the reader can mend it: place, value, rule, mend."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Where in a stack: keys and list positions, from the section down."""

ANY: Final = "*"
"""Stands for each key of a place that a problem is about; no key of a stack is spelt so."""


def dotted(path: Path) -> str:
    """`("teams", "a", "containers", 0)` as `teams.a.containers[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: the key to change first.
        rule: what must hold, with the numbers that show it does not; reads on after the value.
        mend: what to write instead.
        value: what the stack says there; None where it says nothing.
        about: other places that the rule looked at. Where one of them could not be read, the problem may be
            false and is left out until it can be.
        file: the stack's file, as the reader would type it.
        line: counted from 1; None where the stack has no file, as under the Pulumi engine.
    """

    path: Path
    rule: str
    mend: str
    value: str | None = None
    about: tuple[Path, ...] = ()
    file: str = field(default="")
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        value = "" if self.value is None else f"{self.value} "
        return f"{place}{dotted(self.path)}: {value}{self.rule}; {self.mend}"


class StackError(Exception):
    """A stack that must not be deployed, with everything that is wrong in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the nearest one, and all there are.

    `did you mean 'a100'? Known: a100, h100` or `known: a100, h100` or `there are none yet`.
    """
    names = sorted(set(known))
    if not names:
        return "there are none yet"
    match = get_close_matches(name, names, n=1, cutoff=0.6)
    listed = ", ".join(names)
    return f"did you mean '{match[0]}'? Known: {listed}" if match else f"known: {listed}"
