"""GPU-hours of one flavor by queue, computed from the changes of what each queue uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HOUR: Final = 3600.0
_NOTHING: Final = 1e-9
"""Of GPUs: what rounding leaves."""


@dataclass(frozen=True, slots=True)
class Hours:
    """GPU-hours of a queue in a flavor.

    Attributes:
        idle: of the guarantee, while the queue did not use it.
        borrowed: used beyond the guarantee.
        lent: of the idle guarantee, what others borrowed; None where the use of others is not known.
    """

    guaranteed: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    borrowed: float = 0.0
    lent: float | None = 0.0

    def __add__(self, other: "Hours") -> "Hours":
        lent = None if self.lent is None or other.lent is None else self.lent + other.lent
        return Hours(
            self.guaranteed + other.guaranteed,
            self.used + other.used,
            self.idle + other.idle,
            self.borrowed + other.borrowed,
            lent,
        )


@dataclass(frozen=True, slots=True)
class Promise:
    """What a queue is guaranteed of a flavor, in GPUs, and whether others may borrow it while it is idle."""

    guaranteed: float
    lends: bool = True


@dataclass(slots=True)
class _Account:
    """A queue up to a moment, in GPU-seconds; `rates` is the ledger's sum at that moment."""

    promise: Promise
    since: float
    level: float = 0.0
    used: float = 0.0
    borrowed: float = 0.0
    lent: float = 0.0
    rates: float = 0.0

    @property
    def over(self) -> float:
        """GPUs that are borrowed now."""
        return max(0.0, self.level - self.promise.guaranteed)

    @property
    def lendable(self) -> float:
        """GPUs of the guarantee that others may borrow now."""
        return max(0.0, self.promise.guaranteed - self.level) if self.promise.lends else 0.0

    def settle(self, now: float, rates: float) -> None:
        """Adds what was used since the last change."""
        span = now - self.since
        self.used += self.level * span
        self.borrowed += self.over * span
        self.lent += self.lendable * (rates - self.rates)
        self.since, self.rates = now, rates


class Ledger:
    """The queues that share a flavor.

    Kueue records who borrows, not from whom. Here, the quota that nobody is guaranteed is borrowed first. The rest
    comes from the queues with idle guarantees, in proportion to them. A change takes the same time with any number of
    queues.

    Args:
        promises: by queue. A queue that is not there is guaranteed nothing.
        unassigned: GPUs that nobody is guaranteed.
        start: of the period, in seconds.
    """

    def __init__(self, promises: Mapping[str, Promise], unassigned: float, start: float) -> None:
        self._accounts = {queue: _Account(promise, start) for queue, promise in promises.items()}
        self._unassigned, self._start, self._now = unassigned, start, start
        self._over = 0.0
        self._lendable = sum(account.lendable for account in self._accounts.values())
        self._rates = 0.0

    def change(self, now: float, queue: str, by: float) -> None:
        """A queue uses more or fewer GPUs from a moment on, which is not before the last one."""
        self._advance(now)
        account = self._accounts.setdefault(queue, _Account(Promise(0.0), now, rates=self._rates))
        account.settle(now, self._rates)
        over, lendable = account.over, account.lendable
        account.level += by
        self._over += account.over - over
        self._lendable += account.lendable - lendable

    def closed(self, end: float) -> dict[str, Hours]:
        """The GPU-hours of each queue from the start to a moment that is not before the last change."""
        self._advance(end)
        found: dict[str, Hours] = {}
        for queue, account in self._accounts.items():
            account.settle(end, self._rates)
            guaranteed = account.promise.guaranteed * (end - self._start)
            idle = max(0.0, guaranteed - (account.used - account.borrowed))
            amounts = (guaranteed, account.used, idle, account.borrowed, account.lent)
            found[queue] = Hours(*(amount / HOUR for amount in amounts))
        return found

    def _advance(self, now: float) -> None:
        lent = max(0.0, self._over - self._unassigned)
        if lent > _NOTHING and self._lendable > _NOTHING:
            self._rates += min(1.0, lent / self._lendable) * (now - self._now)
        self._now = now
