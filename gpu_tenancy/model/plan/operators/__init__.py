"""The operators that this program installs: charts, versions, values and order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from gpu_tenancy.model.catalogue.operators import CRITICAL, Probe, operators
from gpu_tenancy.model.catalogue.releases import pinned
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import installed_by, there
from gpu_tenancy.model.plan.operators.gpus import merged
from gpu_tenancy.model.plan.operators.kueue import kueue_reads
from gpu_tenancy.model.plan.operators.values import values_of


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """One Helm release of an operator, with the name of its row in the catalogue."""

    name: str
    chart: str  # name in the repository, or the whole `oci://` reference, with the digest if it is known
    repository: str | None  # None for an OCI reference
    version: str
    namespace: str
    values: Mapping[str, Any]  # derived from the stack, overridden by the stack's own values
    serves: tuple[str, ...]  # API groups, whose objects depend on its webhooks and are deleted before it
    privileged: bool = False  # whether its pods need privileged access to the node
    critical: bool = False  # whether its pods can have a priority class of the system; also if that is unknown
    definitions_go: bool = False  # whether uninstalling it deletes its CRDs, and so all of their objects
    probe: Probe | None = None  # dry run that succeeds when its webhooks are ready; None without relevant webhooks
    reads: tuple[tuple[str, str], ...] = ()  # group and resource to get, list, watch beyond its chart's rights
    digest: str | None = None  # the stack's, else the catalogue's for the catalogue's version; None if it is unknown


def releases(environment: Environment) -> tuple[ReleasePlan, ...]:
    """The releases that this program installs, in order; the stack must pass `gpu_tenancy.model.checks`."""
    return tuple(
        release
        for name in operators()
        if installed_by(environment, name) == "here"
        for release in _releases(environment, name)
    )


def running(environment: Environment) -> Mapping[str, tuple[ReleasePlan, ...]]:
    """The operators in the cluster with their releases, for a stack that passes `gpu_tenancy.model.checks`."""
    return {name: tuple(_releases(environment, name)) for name in operators() if there(environment, name)}


def _releases(environment: Environment, name: str) -> Iterator[ReleasePlan]:
    entry, described = environment.stack.operators.of(name), operators()[name]
    for release, row in described.charts.items():
        own, usual = release == described.release, entry.version in {None, row.version}
        digest = (entry.digest if own else None) or (row.digest if usual else None)
        values = merged(values_of(environment, release, row), entry.values if own else {})
        yield ReleasePlan(
            name=release,
            chart=pinned(row.chart, digest),
            repository=row.repository,
            version=entry.version or row.version,
            # One Prometheus: the one that scrapes the servers.
            namespace=environment.stack.metrics.prometheus.namespace if name == "prometheus" else row.namespace,
            values=values,
            serves=row.serves,
            privileged=row.privileged,
            critical=not usual or not {*row.priority_classes, *_texts(values)}.isdisjoint(CRITICAL),
            definitions_go=row.definitions == "nobody",
            probe=row.probe,
            reads=kueue_reads(environment) if name == "kueue" else (),
            digest=digest,
        )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value):
            yield from _texts(item)
