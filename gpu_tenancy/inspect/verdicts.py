"""Results of `tenancy why`."""

from dataclasses import dataclass

from gpu_tenancy.inspect.unblock import Unblock


@dataclass(frozen=True, slots=True)
class Why:
    """Why an object is pending.

    Attributes:
        title: such as `Job ml-research/nightly`.
        lines: what was found on the way from the queue to the nodes, one text each.
        reason: what blocks it; where nothing does, that it is not pending.
        fix: what the user can do; empty where there is nothing to do.
        waits: whether something blocks it.
        unblock: the simulated ways to get it admitted, where the queue could be simulated.
    """

    title: str
    lines: tuple[str, ...]
    reason: str
    fix: str
    waits: bool = True
    unblock: Unblock | None = None

    @property
    def conclusion(self) -> str:
        """The last line: reason and fix."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why pods do not run."""

    lines: tuple[str, ...]
    reason: str
    fix: str
