"""Pinned Helm charts, and those that clusters of clouds need, from `releases.yaml`."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gpu_tenancy.model.catalogue.rows import Architecture, Fact, known, read_rows
from gpu_tenancy.model.yaml import Url

Version: TypeAlias = Annotated[str, Field(pattern=r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$")]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_OCI: Final = "oci://"


class Images(Fact):
    """The images of a chart's pods, of hooks and of what its program creates too.

    Attributes:
        architectures: of CPUs on which all of them run; None if it is unknown.
    """

    architectures: Annotated[tuple[Architecture, ...] | None, BeforeValidator(known)]


class Chart(Fact):
    """A Helm chart, pinned to one version and, if it is known, to its digest.

    Attributes:
        chart: name in the repository, or the complete `oci://` reference.
        repository: URL of an HTTP repository; None for an OCI reference.
        version: one version, never a range.
        digest: of the archive in an HTTP repository, of the manifest in an OCI registry; None if it is unknown.
        digest_source: where the digest was read, or why it is unknown.
        images: None if it has no pods.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    chart: Annotated[str, Field(min_length=1)]
    repository: Url | None = None
    version: Version
    digest: Digest | None
    digest_source: Annotated[str, Field(min_length=1)]
    images: Images | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.chart.startswith(_OCI) == (self.repository is not None):
            msg = "set either an oci:// reference as chart, or a chart name and a repository"
            raise ValueError(msg)
        return self

    @property
    def reference(self) -> str:
        """The chart for Helm, with its digest where Helm checks one."""
        return pinned(self.chart, self.digest)


def pinned(chart: str, digest: str | None) -> str:
    """A chart for Helm: `oci://` references with their digest, which Helm checks (3.18 and later).

    Helm takes no digest for a chart of an HTTP repository: https://github.com/helm/helm/issues/3723. `tenancy cluster
    charts` compares the archive of such a chart.
    """
    return f"{chart}@{digest}" if digest and chart.startswith(_OCI) else chart


@cache
def cloud_charts() -> Mapping[str, Chart]:
    """The charts of clouds, by the name of their release."""
    return read_rows("releases", dict[str, Chart])
