"""Rows of the YAML tables in this folder; reading a malformed table raises `pydantic.ValidationError`."""

import datetime as dt
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.yaml import read_table

HERE: Final = Path(__file__).parent
Architecture: TypeAlias = Literal["amd64", "arm64"]  # of CPUs, as in the node label `kubernetes.io/arch`
Url: TypeAlias = Annotated[str, Field(pattern=r"^https://\S+$")]


class Row(BaseModel):
    """A part of a YAML table: frozen, with keys in camelCase; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class Fact(Row):
    """A row with its source, and the source's date; if it has none, the date of reading."""

    source: Url
    date: dt.date


_T = TypeVar("_T")
_READ: Final[dict[str, Any]] = {}


def read_rows(table: str, form: type[_T]) -> _T:
    """The rows of a table (without `.yaml`) of this folder, read once, in a form such as `dict[str, Gpu]`."""
    if table not in _READ:
        _READ[table] = TypeAdapter(form).validate_python(read_table(HERE / f"{table}.yaml"))
    return _READ[table]


def known(value: object) -> object:
    """The value of a row; None for `unknown`."""
    return None if value == "unknown" else value


def known_price(value: object) -> object:
    """The price of a row; None for `unknown`. Raises ValueError if the row has no price."""
    if value is None:
        raise ValueError("no price; set a price or 'unknown'")
    return known(value)
