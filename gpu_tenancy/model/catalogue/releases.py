"""Pinned Helm charts, and the age of the catalogue's facts."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Self, TypeAlias, cast

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gpu_tenancy.model.catalogue.rows import HERE, Architecture, Fact, Url, known, read_rows
from gpu_tenancy.model.yaml import parse_all

Version: TypeAlias = Annotated[str, Field(pattern=r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$")]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_OCI: Final = "oci://"


class Images(Fact):
    """CPU architectures of all images of a chart, with hooks and pods of its program; None if they are unknown."""

    architectures: Annotated[tuple[Architecture, ...] | None, BeforeValidator(known)]


class Chart(Fact):
    """A Helm chart, pinned to one version and, if it is known, to its digest."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    chart: Annotated[str, Field(min_length=1)]  # name in the repository, or the complete `oci://` reference
    repository: Url | None = None  # None for an OCI reference
    version: Version  # one version, never a range
    digest: Digest | None  # of the archive in an HTTP repository, of the manifest in an OCI registry; None if unknown
    digest_source: Annotated[str, Field(min_length=1)]  # where the digest was read, or why it is unknown
    images: Images | None = None  # None if it has no pods

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.chart.startswith(_OCI) == (self.repository is not None):
            msg = "set either an oci:// reference as chart, or a chart name and a repository"
            raise ValueError(msg)
        return self

    @property
    def reference(self) -> str:
        """The chart for Helm, with its digest if Helm checks one."""
        return pinned(self.chart, self.digest)


def pinned(chart: str, digest: str | None) -> str:
    """A chart for Helm: `oci://` references with their digest, which Helm checks (3.18 and later).

    Helm takes no digest for a chart of an HTTP repository: https://github.com/helm/helm/issues/3723. `tenancy cluster
    charts` compares the archive of such a chart.
    """
    return f"{chart}@{digest}" if digest and chart.startswith(_OCI) else chart


def cloud_charts() -> Mapping[str, Chart]:
    """The charts of clouds, by release."""
    return read_rows("releases", dict[str, Chart])


OLD: Final = dt.timedelta(days=183)  # age from which a fact is reported: half a year
SOON: Final = dt.timedelta(days=60)  # time before the end of a version's support from which it is reported


@dataclass(frozen=True, slots=True)
class DatedFact:
    """A dated part of a table, such as `machines/aws prices` of the table `machines/aws`."""

    name: str
    table: str
    date: dt.date

    def is_old(self, today: dt.date) -> bool:
        """Whether it is older than half a year."""
        return today - self.date > OLD


@cache
def dated_facts() -> tuple[DatedFact, ...]:
    """Every dated part of the catalogue's tables, the oldest first."""
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
    """Minor versions of Kubernetes that a cloud offers, with the end of standard support of each."""

    versions: Mapping[str, dt.date]


def kubernetes_versions() -> Mapping[str, VersionTable]:
    """The versions of each cloud, by the value of `cluster.cloud`."""
    return read_rows("kubernetes", dict[str, VersionTable])


def aging(service: str, version: str | None, charts: Iterable[str], today: dt.date) -> list[str]:
    """Facts of a stack older than half a year, and its Kubernetes version's end of support, as of `today`.

    `service` is the cloud of its machine types, `version` its minor version of Kubernetes, `charts` its releases.
    """
    names = set(charts)
    used = (fact for fact in dated_facts() if fact.table == f"machines/{service}" or names & set(fact.name.split()[1:]))
    notes = [f"{fact.name} ({fact.date})" for fact in used if fact.is_old(today)]
    table = kubernetes_versions().get(service)
    end = table.versions.get(version) if version and table else None
    if end and end - today <= SOON:
        notes.append(f"Kubernetes {version}, whose standard support {'ended' if end < today else 'ends'} on {end}")
    return notes
