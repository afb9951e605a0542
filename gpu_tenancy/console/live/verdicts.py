"""What is said at the end of a `why`."""

from dataclasses import dataclass

from gpu_tenancy.console.live.entry import Entry


@dataclass(frozen=True, slots=True)
class Why:
    """Why something waits.

    Attributes:
        title: what, such as `Job ml-research/nightly`.
        words: what was seen on the way, one sentence each.
        reason: what holds it, in one sentence; where nothing does, that it does not wait.
        mend: what would change that; empty where there is nothing to mend.
        waits: whether something holds it.
        entry: what the simulation of Kueue says, where it was asked and could play the cluster.
    """

    title: str
    words: tuple[str, ...]
    reason: str
    mend: str
    waits: bool = True
    entry: Entry | None = None

    @property
    def conclusion(self) -> str:
        """The last line."""
        return f"{self.reason}; {self.mend}" if self.mend else self.reason


@dataclass(frozen=True, slots=True)
class Held:
    """Why pods do not run."""

    words: tuple[str, ...]
    reason: str
    mend: str
