"""A made-up cluster as series, and the value of every expression of the dashboards: the tables of `world.yaml`."""

from pathlib import Path
from typing import Any, Final

import yaml

_TABLES: Final[Any] = yaml.safe_load(Path(__file__).with_name("world.yaml").read_text(encoding="utf-8"))


def _by_labels(table: str) -> dict[str, dict[str, float]]:
    """The answers of a table by name, each by its labels; a number alone has none."""
    return {name: value if isinstance(value, dict) else {"{}": value} for name, value in _TABLES[table].items()}


CHOSEN: Final[dict[str, str]] = _TABLES["chosen"]
WORLD: Final[dict[str, Any]] = _TABLES["series"]
ANSWERS: Final = _by_labels("answers")
RECORDED: Final = _by_labels("recorded")
