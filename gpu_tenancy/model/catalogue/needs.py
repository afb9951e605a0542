"""What objects of a stack need besides the API server, and what provides it: the table `needs.yaml`."""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from gpu_tenancy.base.tables import Url, read_table
from gpu_tenancy.model.catalogue.reserved import Row


class Provider(Row):
    """A resource of this program.

    Attributes:
        by: its name, for people.
        type: of the Pulumi resource.
        inputs: texts that its inputs contain.
    """

    by: str
    type: str
    inputs: tuple[str, ...]


class Need(Row):
    """Something that objects need to work.

    Attributes:
        kinds: rendered kinds that need it.
        of: who needs it, in the plural.
        without: what happens without a provider.
        means: what provides it in any cluster.
        made: by cloud, what provides it in a cluster that this program creates.
        cloud: by cloud, what provides it in every cluster of the cloud's Kubernetes service.
        source: URL of the fact.
        date: when it was read.
    """

    kinds: tuple[str, ...]
    of: str = Field(alias="for")
    without: str
    means: str
    made: Mapping[str, Provider] = {}
    cloud: Mapping[str, str] = {}
    source: Url
    date: dt.date


@cache
def needs() -> Mapping[str, Need]:
    """The needs by name; the names are the values of `cluster.provides`."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("needs.yaml"))
    return {name: Need.model_validate(row, strict=False) for name, row in rows.items()}
