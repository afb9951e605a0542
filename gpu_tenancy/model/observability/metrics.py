"""The metrics that expressions may name, from the table beside this module.

Raises `pydantic.ValidationError` at the first look where the table is malformed.
"""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpu_tenancy.model.tables import read_table


class Metric(BaseModel):
    """One metric.

    Attributes:
        origin: the program that serves it.
        labels: that it has, as Prometheus stores them.
        source: where name and labels were read, and `date` when.
        scrape: where it was read what a scrape makes of labels that its target has too; None where there is none such.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    origin: Annotated[str, Field(alias="from", min_length=1)]
    labels: list[str]
    source: Annotated[str, Field(pattern=r"^https://\S+$")]
    date: dt.date
    scrape: Annotated[str | None, Field(pattern=r"^https://\S+$")] = None


@cache
def metrics() -> Mapping[str, Metric]:
    """Every metric by its name."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("metrics.yaml"))
    return {name: Metric.model_validate(row) for name, row in rows.items()}
