"""Maintenance holds of ClusterQueues and ResourceFlavors, recorded in annotations."""

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
    """A hold for maintenance: the object admits no new workloads. Times are in RFC 3339."""

    name: str
    kind: str
    by: str  # user
    since: str
    until: str = ""  # empty for no end
    before: Json = None  # the field before the hold; None if unset
    after: Json = None  # the field as the hold set it

    @classmethod
    def of(cls, manifest: Manifest) -> Self | None:
        """Reads the annotation; None if there is none or it was not written by `hold`."""
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
        """Value of the annotation, in JSON."""
        kept = {"by": self.by, "since": self.since, "until": self.until, "before": self.before, "after": self.after}
        return json.dumps(kept, sort_keys=True)

    @property
    def path(self) -> tuple[str, str]:
        """The field that the hold changes."""
        return ("spec", "stopPolicy") if self.kind == "ClusterQueue" else ("spec", "nodeTaints")

    @property
    def text(self) -> str:
        """Such as `held by ada since 2026-11-24 18:00 UTC until 2026-11-24 20:00 UTC`."""
        end = f" until {moment_text(self.until)}" if self.until else ""
        return f"held by {self.by} since {moment_text(self.since)}{end}"

    @property
    def fix(self) -> str:
        """How to end the hold."""
        release = f"ask the platform team for `tenancy cluster release {self.name}`"
        return f"wait until then, or {release}" if self.until else release

    def due(self, now: datetime) -> bool:
        """Whether the hold should have ended."""
        return bool(self.until) and datetime.fromisoformat(self.until) <= now


def holds_of(manifests: Iterable[Manifest]) -> Sequence[Hold]:
    """Reads the holds of objects."""
    return [hold for manifest in manifests if (hold := Hold.of(manifest))]


_RESOURCE: Final = re.compile(r":(?P<kind>\w+): \([\w -]+\)\s*\[id=(?P<name>[^]]+)\]")
_RECORDED: Final = re.compile(
    r"\bby\W{1,12}(?P<by>[^\"\\]+)\W+since\W{1,12}(?P<since>\d[^\"\\]+)\W+until\W{1,12}(?P<until>\d[^\"\\]+)?"
)
_TAINT: Final = re.compile(rf'key\W+{re.escape(HOLD)}"\W+value\W+(?P<until>\d[^"]+|held)"')


def holds_in(drift: str) -> Sequence[str]:
    """One line for each held object in the output of `pulumi refresh --diff` or `pulumi preview --diff`.

    Pulumi shows the annotation as a text or, since it expands JSON, in lines. Without it, the taint has the end.
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
    """An RFC 3339 time in UTC for people."""
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
