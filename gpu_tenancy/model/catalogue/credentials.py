"""What credentials look like, from `credentials.yaml`, so that none is written in clear text.

A malformed table raises `pydantic.ValidationError`.
"""

import datetime as dt
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

from gpu_tenancy.base.tables import Url, read_table

TABLE: Final = Path(__file__).with_name("credentials.yaml")


def _compiles(pattern: str) -> str:
    re.compile(pattern)
    return pattern


class _Form(BaseModel):
    """The form of one service's credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    pattern: Annotated[str, AfterValidator(_compiles)]
    source: Url
    date: dt.date


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    texts: tuple[_Form, ...]
    names: Annotated[str, AfterValidator(_compiles)]
    secretive: Annotated[str, AfterValidator(_compiles)]


@cache
def _table() -> _Table:
    return _Table.model_validate(read_table(TABLE))


def credential(text: str, variable: str = "") -> str | None:
    """What kind of credential a text is, such as "AWS access key"; None if it does not look like one.

    Args:
        text: of a variable or an argument.
        variable: name of the variable; empty for an argument.
    """
    for form in _table().texts:
        if re.search(form.pattern, text):
            return form.what
    named = variable and re.search(_table().names, variable) and re.fullmatch(_table().secretive, text)
    return f"value of {variable}" if named else None
