"""Reads the YAML files that are kept beside the code that uses them."""

from pathlib import Path
from typing import Any, Final

import yaml

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML was built with it: ten times as fast, and these files are read at each start."""


def read_table(file: Path) -> Any:
    """The content of a YAML file of ours, as plain data; its reader validates the rows.

    Raises:
        OSError: the file cannot be read.
        yaml.YAMLError: the file is not YAML.
    """
    return yaml.load(file.read_bytes(), _LOADER)  # noqa: S506 - both loaders are safe ones
