"""Checks archives of a stack's Helm charts against pinned digests.

Helm checks the digest of `oci://` charts at installation, but takes none for a chart of an HTTP repository, so these
archives are downloaded and compared here.
"""

import hashlib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.doctor.results import Row
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.operators import releases
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import UnreadableError, parse

if TYPE_CHECKING:
    from gpu_tenancy.engine.files import HelmRelease

_TIMEOUT: Final = 60
_CATALOGUE: Final = "gpu_tenancy/model/catalogue/releases.yaml"


@dataclass(frozen=True, slots=True)
class ChartPin:
    """A chart that a stack installs."""

    name: str  # of the release
    chart: str  # name in the repository, or `oci://` reference without its digest
    repository: str  # URL of an HTTP repository; empty for `oci://`
    version: str
    digest: str | None  # pinned, as `sha256:…`; None if unknown
    place: str  # key of the digest

    @property
    def subject(self) -> str:
        """Name and version, for messages."""
        return f"{self.name} {self.version}"


def chart_pins(stack: Stack, installed: "Sequence[HelmRelease]") -> tuple[ChartPin, ...]:
    """Charts of the releases of a stack's program, with pinned digests."""
    planned = {plan.name: plan.digest for plan in releases(Environment(stack))}
    places = {row.release: f"operators.{to_camel(name)}.digest" for name, row in operators().items()}
    return tuple(
        ChartPin(
            name=release.name,
            chart=release.chart,
            repository=release.repository,
            version=release.version,
            digest=planned[release.name] if release.name in planned else cloud_charts()[release.name].digest,
            place=places.get(release.name, f"{_CATALOGUE}: {release.name}.digest"),
        )
        for release in installed
    )


def chart_rows(pins: Sequence[ChartPin]) -> Iterator[Row]:
    """Compares each chart with its digest; raises ConsoleError if a repository cannot be read, or lacks the version."""
    read = cache(_index)
    for pin in pins:
        if pin.repository:
            yield _in_http(pin, _archive(pin, read(pin.repository)))
        elif pin.digest:
            yield Row("chart", pin.subject, pin.digest, "checked by Helm", "OK")
        else:
            fix = f"set {pin.place} to the digest that `helm pull {pin.chart} --version {pin.version}` prints"
            yield Row("chart", pin.subject, "a digest", "not pinned", "unknown", fix)


def _in_http(pin: ChartPin, address: str) -> Row:
    found = f"sha256:{hashlib.sha256(_download(address)).hexdigest()}"
    if pin.digest is None:
        fix = f"compare it with the publisher's digest, then set {pin.place}: {found}"
        return Row("chart", pin.subject, "a digest", f"not pinned: {address} has {found}", "unknown", fix)
    if found == pin.digest:
        return Row("chart", pin.subject, pin.digest, "the same archive", "OK")
    fix = f"do not deploy; ask the publisher why the archive changed, and if it is right, set {pin.place}: {found}"
    return Row("chart", pin.subject, pin.digest, f"another archive: {address} has {found}", "missing", fix)


def _index(repository: str) -> Mapping[str, Any]:
    # https://helm.sh/docs/topics/chart_repository/#the-index-file.
    address = f"{repository.rstrip('/')}/index.yaml"
    try:
        index: Any = parse(_download(address))
        return {name: list(versions) for name, versions in index["entries"].items()}
    except (UnreadableError, KeyError, TypeError, AttributeError) as error:
        raise ConsoleError(f"{address}: not the index of a Helm repository", "correct the repository") from error


def _archive(pin: ChartPin, index: Mapping[str, Any]) -> str:
    # The URL can be relative to the repository.
    for version in index.get(pin.chart, ()):
        if str(version.get("version")).removeprefix("v") == pin.version.removeprefix("v") and version.get("urls"):
            return urllib.parse.urljoin(f"{pin.repository.rstrip('/')}/", version["urls"][0])
    raise ConsoleError(f"{pin.repository}: no chart {pin.chart} {pin.version}", "correct the version of the chart")


def _download(address: str) -> bytes:
    """Raises ConsoleError unless it is an https URL that is downloaded within a minute."""
    if not address.startswith(("https://", "http://127.0.0.1:")):
        raise ConsoleError(f"{address}: not an https URL", "use a repository with TLS")
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme was checked
            return answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise ConsoleError(f"{address}: cannot be downloaded ({error})", "check the network and try again") from error
