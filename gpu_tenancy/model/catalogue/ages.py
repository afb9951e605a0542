"""How old the facts of the catalogue are, and when clouds end their support of Kubernetes versions."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from gpu_tenancy.model.catalogue.rows import HERE, Fact, read_rows
from gpu_tenancy.model.yaml import parse_all

OLD: Final = dt.timedelta(days=183)
"""The age from which a fact is reported: half a year."""
SOON: Final = dt.timedelta(days=60)
"""How long before its end the support of a version is reported."""


@dataclass(frozen=True, slots=True)
class DatedFact:
    """A part of a table with a source.

    Attributes:
        name: file and keys, such as `machines/aws prices`.
        table: the file, such as `machines/aws`.
        date: of its source, or when it was read.
    """

    name: str
    table: str
    date: dt.date

    def is_old(self, today: dt.date) -> bool:
        """Whether it is older than half a year."""
        return today - self.date > OLD


@cache
def dated_facts() -> tuple[DatedFact, ...]:
    """Every part of the catalogue's tables that has a source and a date, the oldest first."""
    found = (
        fact
        for file in sorted(HERE.glob("**/*.yaml"))
        for document in parse_all(file.read_bytes())
        for fact in _dated(document, str(file.relative_to(HERE).with_suffix("")), ())
    )
    return tuple(sorted(found, key=lambda fact: (fact.date, fact.name)))


def _dated(part: object, table: str, keys: tuple[str, ...]) -> Iterator[DatedFact]:
    if isinstance(part, list):
        for item in cast("list[Any]", part):
            yield from _dated(item, table, keys)
    if not isinstance(part, dict):
        return
    row = cast("dict[str, Any]", part)
    if isinstance(date := row.get("date"), str) and isinstance(row.get("source"), str):
        yield DatedFact(" ".join((table, *keys)), table, dt.date.fromisoformat(date))
    for key, inner in row.items():
        yield from _dated(inner, table, (*keys, str(key)))


class VersionTable(Fact):
    """Minor versions of Kubernetes that a cloud offers.

    Attributes:
        versions: the end of standard support of each.
    """

    versions: Mapping[str, dt.date]


@cache
def kubernetes_versions() -> Mapping[str, VersionTable]:
    """The versions of each cloud, by the value of `cluster.cloud`."""
    return read_rows("kubernetes", dict[str, VersionTable])


def aging(service: str, version: str | None, charts: Iterable[str], today: dt.date) -> list[str]:
    """What a stack uses and is older than half a year, and the end of support of its Kubernetes version, in words.

    Args:
        service: the cloud whose machine types it uses.
        version: minor version of Kubernetes; None if it is unknown.
        charts: names of the releases that it installs.
        today: the day to compare with.
    """
    names = set(charts)
    used = (fact for fact in dated_facts() if fact.table == f"machines/{service}" or names & set(fact.name.split()[1:]))
    notes = [f"{fact.name} ({fact.date})" for fact in used if fact.is_old(today)]
    table = kubernetes_versions().get(service)
    end = table.versions.get(version) if version and table else None
    if end and end - today <= SOON:
        notes.append(f"Kubernetes {version}, whose standard support {'ended' if end < today else 'ends'} on {end}")
    return notes
