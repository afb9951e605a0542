"""A webhook that a test runs, and that refuses for a while as one does that has just started."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from loopback import Handler, serving

_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to judge an object.

    Attributes:
        dry_run: nothing would have been kept of it.
        allowed: False where the webhook did not judge yet, and so the API server refused.
    """

    kind: str
    name: str
    dry_run: bool
    allowed: bool


@dataclass
class Webhook:
    """What a webhook was asked, in that order.

    Attributes:
        address: its URL.
        refusals: how many requests it does not answer at first.
    """

    address: str
    refusals: int
    asked: list[Asked] = field(default_factory=list[Asked])
    _lock: Lock = field(default_factory=Lock)

    def judge(self, request: Any) -> bool:
        """Whether a request is answered, as a review's `request` says it; whatever is judged is allowed."""
        with self._lock:
            allowed = len(self.asked) >= self.refusals
            name, kind = request.get("name", ""), request["kind"]["kind"]
            self.asked.append(Asked(kind, name, bool(request.get("dryRun")), allowed))
            return allowed


@contextmanager
def webhook(certificate: Path, key: Path, refusals: int) -> Generator[Webhook]:
    """Serves a webhook on the loopback as long as it is open."""

    class Judge(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the base class gives the name
            review = json.loads(self.body())
            allowed = found.judge(review["request"])
            answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}
            content = json.dumps(answer).encode() if allowed else b"starting"
            self.answer(_OK if allowed else _UNAVAILABLE, content, ("Content-Type", "application/json"))

    with serving(Judge, (certificate, key)) as address:
        found = Webhook(f"{address}/judge", refusals)
        yield found
