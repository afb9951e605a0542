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
            raise ValueError("set either an oci:// reference as chart, or a chart name and a repository")
        return self

    @property
    def reference(self) -> str:
        """The chart for Helm, with its digest if Helm checks one."""
        return pinned(self.chart, self.digest)


def pinned(chart: str, digest: str | None) -> str:
    """A chart for Helm: `oci://` references with their digest, which Helm checks (3.18 and later).

    Helm takes no digest for a chart of an HTTP repository: https://github.com/helm/helm/issues/3723. `tenancy cluster
    doctor STACK --charts` compares the archive of such a chart.
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


class ExtendedSupport(Fact):
    """Longer support of a version, in US dollars an hour for each cluster, besides the control plane's price."""

    title: str
    months: int
    hour: float


class VersionTable(Fact):
    """Minor versions of Kubernetes that a cloud offers, with the last day of standard support of each."""

    versions: Mapping[str, dt.date]
    then: str  # what the cloud does after standard support
    minimum: bool = False  # whether a stack's version is the minimum, because the cloud upgrades clusters by itself
    extended: ExtendedSupport


def kubernetes_versions() -> Mapping[str, VersionTable]:
    """The versions of each cloud, by the value of `cluster.cloud`."""
    return read_rows("kubernetes", dict[str, VersionTable])


def minor_of(version: str) -> int:
    """The minor version as a number: 36 of `1.36` and of `v1.36.3-eks-1`."""
    return int(version.split(".")[1])


def running_version(service: str, version: str | None, runs: str) -> str:
    """The version of a cluster (`runs`) that a stack's must fit; empty if the cloud has upgraded beyond a minimum."""
    table = kubernetes_versions().get(service)
    beyond = version and runs and table and table.minimum and minor_of(runs) > minor_of(version)
    return "" if beyond else runs


def support_note(service: str, version: str | None, today: dt.date, *, extended: bool = False) -> str:
    """The end of a version's support, with its consequence and price; empty if it is 60 days away, or if unknown.

    `extended` is whether the stack chose extended support.
    """
    table = kubernetes_versions().get(service)
    if version is None or table is None:
        return ""
    oldest, *_, newest = sorted(table.versions, key=minor_of)
    if minor_of(version) > minor_of(newest):
        known = f"Kubernetes {version} is newer than the catalogue's versions ({newest}, {table.date})"
        return f"{known}; check that the cloud offers it"
    end, longer = table.versions.get(version), table.extended
    if end and end - today > SOON:
        return ""
    ends = f"{'ended' if end < today else 'ends'} on {end}" if end else f"ended before {table.versions[oldest]}"
    cost = f"{longer.title} costs {longer.hour:.2f} USD more per cluster-hour, for {longer.months} months"
    then = cost if extended else f"then {table.then} ({cost})"
    return f"Kubernetes {version}: standard support {ends}; {then}; set cluster.create.version to a later one"


def aging(service: str, charts: Iterable[str], today: dt.date) -> list[str]:
    """Facts of a stack older than half a year, as of `today`.

    `service` is the cloud of its machine types, `charts` its releases.
    """
    names = set(charts)
    used = (fact for fact in dated_facts() if fact.table == f"machines/{service}" or names & set(fact.name.split()[1:]))
    return [f"{fact.name} ({fact.date})" for fact in used if fact.is_old(today)]
