"""The metrics that expressions may use, from `metrics.yaml`.

The first read of a malformed table raises `pydantic.ValidationError`.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_tenancy.base.tables import Url, read_table


class Metric(BaseModel):
    """A Prometheus metric and its labels.

    Attributes:
        origin: the program that exports it.
        labels: label names as Prometheus stores them.
        source: URL where name and labels were read, on `date`.
        scrape: URL of the scrape configuration that renames labels which conflict with the target's; None without
            such labels.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    origin: Annotated[str, Field(alias="from", min_length=1)]
    labels: list[str]
    source: Url
    date: dt.date
    scrape: Url | None = None


@cache
def metrics() -> Mapping[str, Metric]:
    """All metrics by name."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("metrics.yaml"))
    return {name: Metric.model_validate(row) for name, row in rows.items()}
