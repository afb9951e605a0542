"""Reads the YAML files that are kept beside the code that uses them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import yaml
from pydantic import Field

Url: TypeAlias = Annotated[str, Field(pattern=r"^https://\S+$")]
"""A source of facts."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML was built with it: ten times as fast, and these files are read at each start."""


def read_table(file: Path) -> Any:
    """The content of a YAML file of ours, as plain data; its reader validates the rows.

    Raises:
        OSError: the file cannot be read.
        yaml.YAMLError: the file is not YAML.
    """
    return parse(file.read_bytes())


def parse(content: bytes) -> Any:
    """The plain data of a YAML text that is not a user's: without lines and without bounds.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    return yaml.load(content, _LOADER)  # noqa: S506 - both loaders are safe ones


def parse_all(content: bytes) -> Iterator[Any]:
    """The plain data of each document of such a text, without empty documents.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    return (document for document in yaml.load_all(content, _LOADER) if document is not None)
