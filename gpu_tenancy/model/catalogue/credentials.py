"""What credentials look like, from `credentials.yaml`, so that none is written in clear text."""

import re
from functools import cache
from typing import Annotated

from pydantic import AfterValidator

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows


def _compiles(pattern: str) -> str:
    re.compile(pattern)
    return pattern


class _Form(Fact):
    """The form of one service's credentials."""

    what: str
    pattern: Annotated[str, AfterValidator(_compiles)]


class _Table(Row):
    texts: tuple[_Form, ...]
    names: Annotated[str, AfterValidator(_compiles)]
    secretive: Annotated[str, AfterValidator(_compiles)]


@cache
def _table() -> _Table:
    return read_rows("credentials", _Table)


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
