"""What is newer than the catalogue: its own age, and what publishers answer who can be asked."""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, maps_at, text_at
from gpu_tenancy.base.listing import PlainTable
from gpu_tenancy.base.tables import parse
from gpu_tenancy.base.terminal import table
from gpu_tenancy.cli.charts import download, index_address
from gpu_tenancy.model.catalogue.ages import OLD, SOON, dated_facts, kubernetes_versions
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.releases import Chart, cloud_charts

Ask: TypeAlias = Callable[[str], bytes]
"""Downloads a URL; raises ConsoleError if that fails."""
_TIMEOUT: Final = 5
_RELEASE: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact of the catalogue, and what its publisher has now.

    Attributes:
        here: as the catalogue has it; empty if it has no such fact.
        newest: as the publisher has it; empty if it was not asked or has nothing else.
        reported: whether it is old, ended, or different.
    """

    what: str
    here: str
    newest: str
    date: dt.date
    source: str
    reported: bool


@dataclass
class Answers:
    """What was asked, and what could not be.

    Attributes:
        not_asked: in words, each with the reason.
    """

    texts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    not_asked: list[str] = field(default_factory=list[str])


def ask(address: str) -> bytes:
    """Downloads a URL within five seconds.

    Raises:
        ConsoleError: it cannot be downloaded.
    """
    return download(address, _TIMEOUT)


def answers(asking: Ask | None) -> Answers:
    """The answers of all publishers, asked at the same time; nobody is asked without `asking`."""
    if asking is None:
        return Answers(not_asked=["all publishers (--offline)"])
    in_registries = [name for name, chart in _charts().items() if chart.repository is None]
    found: dict[str, bytes] = {}
    not_asked = [f"{', '.join(in_registries)} (charts in OCI registries; see their sources)"]
    addresses = [version.upstream for version in kubernetes_versions().values()]
    addresses += [index_address(chart.repository) for chart in _charts().values() if chart.repository]
    addresses = list(dict.fromkeys(addresses))

    def one(address: str) -> bytes | ConsoleError:
        try:
            return asking(address)
        except ConsoleError as error:
            return error

    with ThreadPoolExecutor(len(addresses)) as pool:
        for address, text in zip(addresses, pool.map(one, addresses), strict=True):
            if isinstance(text, bytes):
                found[address] = text
            else:
                not_asked.append(str(text).partition(";")[0])
    return Answers(found, not_asked)


def entries(known: Answers, today: dt.date) -> list[Entry]:
    """Kubernetes versions, charts and other facts of the catalogue, each with what is newer."""
    charts = list(_chart_entries(known, today))
    of_charts = {(entry.source, entry.date) for entry in charts}
    others = [
        Entry(fact.name, "", "", fact.date, fact.source, fact.is_old(today))
        for fact in dated_facts()
        if (fact.source, fact.date) not in of_charts and fact.table != "kubernetes"
    ]
    return [*_version_entries(known, today), *charts, *others]


def _charts() -> Mapping[str, Chart]:
    """All charts, by release."""
    of_operators = {name: chart for row in operators().values() for name, chart in row.charts.items()}
    return {**of_operators, **cloud_charts()}


def _chart_entries(known: Answers, today: dt.date) -> Iterator[Entry]:
    indexes = {address: _read(text, parse) for address, text in known.texts.items() if address.endswith("/index.yaml")}
    for name, chart in _charts().items():
        index = indexes.get(index_address(chart.repository)) if chart.repository else None
        versions = [
            text_at(version, "version") for version in maps_at({"index": index}, "index", "entries", chart.chart)
        ]
        newest = max((version for version in versions if _number(version)), key=_number, default="")
        newer = newest if _number(newest) > _number(chart.version) else ""
        reported = bool(newer) or today - chart.date > OLD
        yield Entry(f"chart {name}", chart.version, newer, chart.date, chart.source, reported)


def _number(version: str) -> tuple[int, ...]:
    """The parts of a released version; empty for another one, such as a release candidate."""
    match = _RELEASE.fullmatch(version)
    return tuple(map(int, match.groups())) if match else ()


def _version_entries(known: Answers, today: dt.date) -> Iterator[Entry]:
    for cloud, versions in kubernetes_versions().items():
        rows = maps_at({"rows": _read(known.texts.get(versions.upstream, b"[]"), json.loads)}, "rows")
        cycles = {str(row["cycle"]): str(row.get("eol")) for row in rows if "cycle" in row}
        first = min(map(_minor, versions.versions))
        for version in sorted({*versions.versions, *cycles}, key=_minor):
            end = versions.versions.get(version)
            told = cycles.get(version, "")
            here, newest = f"until {end}" if end else "", "" if told in {"", str(end)} else f"until {told}"
            if _minor(version) >= first:
                reported = bool(newest) or (end is not None and end - today <= SOON)
                what = f"Kubernetes {version} on {clouds()[cloud].title}"
                yield Entry(what, here, newest, versions.date, versions.source, reported)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _read(text: bytes, reader: Callable[[bytes], Any]) -> Any:
    """The data of an answer; empty if it is something else, such as a page of a proxy."""
    try:
        return reader(text)
    except Exception:  # noqa: BLE001 - of YAML and of JSON; the answer is somebody else's
        return []


def shown(listed: Sequence[Entry], today: dt.date) -> PlainTable:
    """A table for a terminal."""
    left_out = ("source", "date", "days old")
    result = table("what~", "here", "newest", "date", "days old#", "source~", drop=left_out)
    for entry in listed:
        age = f"{(today - entry.date).days:,}"
        result.add_row(entry.what, entry.here, entry.newest, str(entry.date), age, entry.source)
    return result


def as_data(listed: Sequence[Entry], today: dt.date) -> list[Json]:
    """The same for programs."""
    return [
        {
            "what": entry.what,
            "here": entry.here or None,
            "newest": entry.newest or None,
            "date": str(entry.date),
            "days_old": (today - entry.date).days,
            "source": entry.source,
            "reported": entry.reported,
        }
        for entry in listed
    ]
