"""How each cloud's directory names people: the table `people.yaml`."""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpu_tenancy.base.tables import Url, read_table
from gpu_tenancy.model.catalogue.reserved import Row


class Form(Row):
    """The form of a name.

    Attributes:
        pattern: a regular expression of the whole name.
        means: what such a name is.
    """

    pattern: str
    means: str


class Directory(Row):
    """The people that a cloud's clusters know.

    Attributes:
        group: form of a group's name; None if clusters know no groups.
        user: form of a user's name; None if clusters know no users.
        principals: whether IAM roles and users of AWS can be people.
        source: URL of the facts.
        date: when it was read.
    """

    group: Form | None = None
    user: Form | None = None
    principals: bool
    source: Url
    date: dt.date


@cache
def directories() -> Mapping[str, Directory]:
    """The directories by `cluster.cloud`."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("people.yaml"))
    return {name: Directory.model_validate(row, strict=False) for name, row in rows.items()}
