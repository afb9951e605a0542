"""The result of one check of a workload, and the verdict of several results together."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Self

Verdict = Literal["now", "later", "never", "unknown"]
"""`later`: it passes when something ends or is released. `unknown`: the user may not read what the check needs."""

_SEVERITY: Final[tuple[Verdict, ...]] = ("now", "unknown", "later", "never")


class Check(Enum):
    """What a workload is checked against; the value is its title."""

    CONTAINER_DEFAULTS = "container defaults"
    NAMESPACE_QUOTA = "namespace quota"
    QUEUE = "queue"
    VOLCANO_QUEUE = "Volcano queue"
    VOLUMES = "volumes"
    REFERENCES = "Secrets and ConfigMaps"
    CLAIMS = "claims of devices"
    NODES = "nodes"
    PRIORITY = "priority"
    API_SERVER = "API server"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one check, with the numbers in `lines`, of which the first is the most important.

    `name` is that of the queue or the pod set; empty where there is only one.
    """

    check: Check
    verdict: Verdict
    lines: tuple[str, ...]
    name: str = ""

    @classmethod
    def of(cls, check: Check, results: Iterable[tuple[Verdict, str]]) -> Self:
        """The result of a check of several things: the most severe verdict, and all texts, its own first."""
        found = tuple(results)
        verdict = worst(result for result, _ in found)
        return cls(check, verdict, tuple(text for _, text in sorted(found, key=lambda result: result[0] != verdict)))

    @property
    def about(self) -> str:
        """Title, such as `queue ml-research` or `nodes of worker`."""
        if not self.name:
            return self.check.value
        of = "" if self.check in {Check.QUEUE, Check.VOLCANO_QUEUE} else "of "
        return f"{self.check.value} {of}{self.name}"


def decisive(results: Iterable[tuple[Verdict, str]]) -> tuple[Verdict, tuple[str, ...]]:
    """The most severe verdict of several results, and the texts of those that have it."""
    found = tuple(results)
    verdict = worst(result for result, _ in found)
    return verdict, tuple(text for result, text in found if result == verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe of several verdicts; `now` for none."""
    return _SEVERITY[max((_SEVERITY.index(verdict) for verdict in verdicts), default=0)]
