"""Results of the checks of a workload, and their common verdict."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Self

Verdict = Literal["now", "later", "never", "unknown"]
"""`later`: something has to end or be released first. `unknown`: an object for the check is not readable."""

_SEVERITY: Final[tuple[Verdict, ...]] = ("now", "unknown", "later", "never")


class Check(Enum):
    """The checks of a workload; each value is a title."""

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
    """Result of one check."""

    check: Check
    verdict: Verdict
    lines: tuple[str, ...]  # the most important first
    name: str = ""  # queue or pod set; empty if there is only one

    @classmethod
    def of(cls, check: Check, results: Iterable[tuple[Verdict, str]]) -> Self:
        """Combines several results: the most severe verdict, and all texts, the texts of that verdict first."""
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
    """The most severe verdict, and its texts."""
    found = tuple(results)
    verdict = worst(result for result, _ in found)
    return verdict, tuple(text for result, text in found if result == verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe verdict; `now` without verdicts."""
    return _SEVERITY[max((_SEVERITY.index(verdict) for verdict in verdicts), default=0)]
