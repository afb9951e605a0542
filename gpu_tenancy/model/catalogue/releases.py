"""Helm charts that this program installs, from the table beside this module.

Raises `pydantic.ValidationError` at the first look where the table is malformed.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpu_tenancy.model.tables import read_table

Version: TypeAlias = Annotated[str, Field(pattern=r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$")]
Url: TypeAlias = Annotated[str, Field(pattern=r"^https://\S+$")]
_OCI: Final = "oci://"


class Chart(BaseModel):
    """One Helm chart at one version.

    Attributes:
        chart: its name in the repository, or the whole `oci://` reference.
        repository: of an HTTP repository; None for an OCI reference, which holds its registry.
        version: one release, never a range.
        namespace: where it is installed; None where the caller says.
        privileged: whether its pods reach into the node: devices, drivers, the node's own metrics.
        definitions: who keeps its definitions when the release goes: Helm does with those of a chart's `crds` folder
            (`helm`) and those that a value of ours marks (`value`); others are templates and go (`nobody`).
        source: where the version was read.
        date: of the source.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    chart: Annotated[str, Field(min_length=1)]
    repository: Url | None = None
    version: Version
    namespace: Annotated[str, Field(min_length=1)] | None = None
    privileged: bool = False
    definitions: Literal["helm", "value", "nobody"] = "helm"
    source: Url
    date: dt.date

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.chart.startswith(_OCI) == (self.repository is not None):
            msg = "set either an oci:// reference as chart, or a chart name and a repository"
            raise ValueError(msg)
        return self


@cache
def charts() -> Mapping[str, Chart]:
    """Every chart by the name of its release."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("releases.yaml"))
    return {name: Chart.model_validate(row) for name, row in rows.items()}
