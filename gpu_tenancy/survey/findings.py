"""What a rule of a survey finds, and how rules are described."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.cluster.supply import Facts

Level: TypeAlias = Literal["wrong", "risk"]
"""`wrong`: a promise that cannot be kept, or something that can never work. `risk`: it works until somebody uses it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction in a cluster.

    Attributes:
        place: kind and name of the object.
        value: what it has.
        problem: why this is a problem.
        fix: what to do, in the imperative.
    """

    place: str
    value: str
    problem: str
    fix: str

    @property
    def text(self) -> str:
        """The finding as a line."""
        return f"{self.place}: {self.value} {self.problem}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a survey.

    Attributes:
        name: for programs, such as `promised-beyond-nodes`.
        needs: kinds without which the rule is not evaluated.
        find: what breaks it.
        own: whether it is evaluated for the reader's own namespace where only that one may be read.
    """

    name: str
    level: Level
    needs: tuple[Kind, ...]
    find: Callable[[Facts], Iterator[Finding]]
    own: bool = False
