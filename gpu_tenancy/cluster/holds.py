"""Holds of queues and flavors for maintenance, as their annotation records them."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.model.names import HOLD


@dataclass(frozen=True, slots=True)
class Hold:
    """A ClusterQueue or ResourceFlavor that admits nothing new, and the user who holds it.

    Times are in the form of RFC 3339; `until` is empty if it does not end by itself. `before` is the field that was
    changed, as it was, None if it was not set; `after` the field as the hold set it.
    """

    name: str
    kind: str
    by: str
    since: str
    until: str = ""
    before: Json = None
    after: Json = None

    @classmethod
    def of(cls, manifest: Manifest) -> Self | None:
        """Reads it from the annotation; None if the object is not held, or the annotation is not one of `hold`."""
        name, kind = name_of(manifest), text_at(manifest, "kind")
        try:
            written = json.loads(text_at(manifest, "metadata", "annotations", HOLD))
            by, since, until = (str(written[key]) for key in ("by", "since", "until"))
            for moment in filter(None, (since, until)):
                datetime.fromisoformat(moment)
            return cls(name, kind, by, since, until, written["before"], written["after"])
        except (ValueError, KeyError, TypeError):
            return None

    @property
    def annotation(self) -> str:
        """What the annotation says."""
        kept = {"by": self.by, "since": self.since, "until": self.until, "before": self.before, "after": self.after}
        return json.dumps(kept, sort_keys=True)

    @property
    def path(self) -> tuple[str, str]:
        """The field by which the object is held."""
        return ("spec", "stopPolicy") if self.kind == "ClusterQueue" else ("spec", "nodeTaints")

    @property
    def text(self) -> str:
        """Such as `held by ada since 2026-11-24 18:00 UTC until 2026-11-24 20:00 UTC`."""
        end = f" until {moment_text(self.until)}" if self.until else ""
        return f"held by {self.by} since {moment_text(self.since)}{end}"

    @property
    def fix(self) -> str:
        """How it ends."""
        release = f"ask the platform team for `tenancy cluster release {self.name}`"
        return f"wait until then, or {release}" if self.until else release

    def due(self, now: datetime) -> bool:
        """Whether it should have ended."""
        return bool(self.until) and datetime.fromisoformat(self.until) <= now


def holds_of(manifests: Iterable[Manifest]) -> Sequence[Hold]:
    """All holds of some objects."""
    return [hold for manifest in manifests if (hold := Hold.of(manifest))]


_RESOURCE: Final = re.compile(r":(?P<kind>\w+): \([\w -]+\)\s*\[id=(?P<name>[^]]+)\]")
_RECORDED: Final = re.compile(
    r"\bby\W{1,12}(?P<by>[^\"\\]+)\W+since\W{1,12}(?P<since>\d[^\"\\]+)\W+until\W{1,12}(?P<until>\d[^\"\\]+)?"
)
_TAINT: Final = re.compile(rf'key\W+{re.escape(HOLD)}"\W+value\W+(?P<until>\d[^"]+|held)"')


def holds_in(drift: str) -> Sequence[str]:
    """Lines on the holds in what `pulumi refresh --diff` and `pulumi preview --diff` show, one for each object.

    The annotation is a text or, since Pulumi shows JSON in texts as such, lines; else the taint tells until when.
    """
    held: dict[str, str] = {}
    starts = [*_RESOURCE.finditer(drift)]
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        shown = drift[start.end() : following.start() if following else len(drift)]
        place = f"{start['kind']} {start['name']}"
        if HOLD in shown and (found := _RECORDED.search(shown)):
            hold = Hold(start["name"], start["kind"], found["by"], found["since"], found["until"] or "")
            held[place] = hold.text
        elif found := _TAINT.search(shown):
            until = found["until"].replace(".", ":")
            held.setdefault(place, f"held until {moment_text(until + 'Z')}" if until != "held" else "held")
    return [f"{place}: {text}: no drift; it ends with the hold" for place, text in held.items()]


def moment_text(moment: str) -> str:
    """A time in the form of RFC 3339 for people, in UTC."""
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
