"""The Helm releases of a program."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from gpu_tenancy.base.json import Json, at, int_at, map_at, text_at
from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.engine.files import write_texts
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue.releases import pinned

RELEASE: Final = "kubernetes:helm.sh/v3:Release"


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """One Helm release: chart, version, and values for output (without secrets).

    Attributes:
        digest: of an `oci://` chart; empty without one.
        timeout: of its installation, in seconds; 0 for the default.
        skip_crds: whether the definitions of its chart are left out.
    """

    urn: str
    name: str
    namespace: str
    chart: str
    repository: str
    version: str
    values: Mapping[str, Json] = field(repr=False)
    digest: str = ""
    timeout: int = 0
    skip_crds: bool = False

    @property
    def reference(self) -> str:
        """The chart as an argument of Helm, with its digest."""
        return pinned(self.chart, self.digest)

    @property
    def content(self) -> dict[str, Json]:
        """The release as plain data, without empty fields."""
        fields: dict[str, Json] = {
            "name": self.name,
            "namespace": self.namespace,
            "chart": self.chart,
            "repository": self.repository,
            "version": self.version,
            "digest": self.digest,
            "values": dict(self.values),
        }
        return {key: value for key, value in fields.items() if value}


def helm_releases(rendered: Rendered) -> tuple[HelmRelease, ...]:
    """Returns the releases that a stack declares, in the order of their URNs."""
    return tuple(
        _release(registration.urn, registration.shown)
        for registration in rendered.registrations
        if registration.type == RELEASE and not registration.external_id
    )


def _release(urn: str, inputs: Mapping[str, Json]) -> HelmRelease:
    chart = text_at(inputs, "chart")
    chart, _, digest = chart.partition("@") if chart.startswith("oci://") else (chart, "", "")
    return HelmRelease(
        urn=urn,
        name=text_at(inputs, "name"),
        namespace=text_at(inputs, "namespace"),
        chart=chart,
        repository=text_at(inputs, "repositoryOpts", "repo"),
        version=text_at(inputs, "version"),
        values=map_at(inputs, "values"),
        digest=digest,
        timeout=int_at(inputs, "timeout"),
        skip_crds=at(inputs, "skipCrds") is True,
    )


def write_releases(rendered: Rendered, folder: Path) -> list[Path]:
    """Writes each release to `<namespace>/<name>.yaml`; existing files are handled as by `files.write`."""
    releases = {PurePosixPath(item.namespace, f"{item.name}.yaml"): item for item in helm_releases(rendered)}
    return write_texts({path: as_yaml(release.content) for path, release in releases.items()}, folder)
