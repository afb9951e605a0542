"""The values that a chart supports, from the tables beside this module; Helm ignores others silently.

`described` makes a chart's entry of its `values.yaml`; tests hold the two together. The keys of a chart within a chart
are checked too, each against the version that the chart around it pins. Not checked is what a chart takes whole: below
a free key anything may stand. A stack that names another version of a chart is held to the keys of the catalogue's.
Raises `pydantic.ValidationError`, or `KeyError` for a contained chart without a row, where a table is malformed.
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic import BaseModel, ConfigDict

from gpu_tenancy.model.problems import listed
from gpu_tenancy.model.tables import read_table

Keys: TypeAlias = tuple[str, ...]
"""A place in a chart's values."""

FREE: Final = "*"
"""Behind a key of the table: anything may stand below it."""
_FREE_MAPS: Final = frozenset(
    {
        "additionalLabels",
        "affinity",
        "annotations",
        "containerSecurityContext",
        "env",
        "labels",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "podSecurityContext",
        "resources",
        "securityContext",
        "selector",
    }
)
"""Maps of Kubernetes' own, in which a chart's defaults are examples of keys and not all of them."""
_Sections: TypeAlias = dict[Keys, dict[str, bool]]
"""Keys of each section, and whether anything may stand below them."""


class ChartValues(BaseModel):
    """The values that one chart takes.

    Attributes:
        source: the `values.yaml` that they were read in.
        date: when it was read.
        version: of the chart; None where the table is not compared with the file.
        sha256: of the file's bytes, in hexadecimal; None as well.
        contains: charts within the chart, by their rows in the table of those: each has the section of its name.
        keys: keys of each section, by its dotted path (`.` for the outermost), separated by blanks.
        also: keys that are no less the chart's, but of which its `values.yaml` has no default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: str
    date: dt.date
    version: str | None = None
    sha256: str | None = None
    contains: tuple[str, ...] = ()
    keys: Mapping[str, str]
    also: Mapping[str, str] = {}

    def unknown(self, values: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
        """Places that the chart does not have, each with a fix, such as the nearest key."""
        sections: _Sections = {}
        self._gather(sections, ())
        yield from _unknown(sections, values, ())

    def _gather(self, sections: _Sections, place: Keys) -> None:
        for table in (self.keys, self.also):
            for path, keys in table.items():
                section = sections.setdefault((*place, *_path(path)), {})
                for key in keys.split():
                    name = key.removesuffix(FREE)
                    section[name] = section.get(name, False) or key.endswith(FREE)
        for name in self.contains:
            contained_values()[name]._gather(sections, (*place, name))


def _unknown(sections: _Sections, values: Mapping[str, Any], place: Keys) -> Iterator[tuple[Keys, str]]:
    known = sections.get(place, {})
    below = {path[len(place)] for path in sections if _starts(path, place)}
    for key, value in values.items():
        here = (*place, key)
        if known.get(key):
            continue
        if isinstance(value, Mapping) and key in below:
            yield from _unknown(sections, cast("Mapping[str, Any]", value), here)
        elif key in known:
            if isinstance(value, Mapping) and value:
                yield here, "set one value: the chart has no keys below it"
        elif key not in below:
            yield here, _hint(key, sorted({*known, *below}))
        elif value is not None:  # null takes a section out, as Helm's own rule is.
            yield here, "set keys below it: it is a section of the chart's values"


def _path(dotted: str) -> Keys:
    return () if dotted == "." else tuple(dotted.split("."))


def _starts(path: Keys, place: Keys) -> bool:
    return len(path) > len(place) and path[: len(place)] == place


def _hint(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"use one of: {listed(key, known)}" if known else "remove it"


def described(values: Mapping[str, Any]) -> dict[str, str]:
    """The table's `keys` for a chart with these default values."""
    found: dict[str, str] = {}
    _describe(values, (), found)
    return found


def _describe(values: Mapping[str, Any], place: Keys, found: dict[str, str]) -> None:
    ends: list[str] = []
    deeper: list[str] = []
    for key, value in values.items():
        is_map = isinstance(value, Mapping)
        if is_map and value and key not in _FREE_MAPS and "." not in key:
            deeper.append(key)
        else:
            ends.append(f"{key}{FREE}" if is_map or value is None else key)
    if ends:
        found[".".join(place) or "."] = " ".join(ends)
    for key in deeper:
        _describe(values[key], (*place, key), found)


@cache
def chart_values() -> Mapping[str, ChartValues]:
    """What each chart takes, by the name of its row in the table of releases."""
    return _rows("chart_values.yaml")


@cache
def contained_values() -> Mapping[str, ChartValues]:
    """What each chart within another takes, by its name, which is that of its section."""
    return _rows("contained_values.yaml")


def _rows(file: str) -> Mapping[str, ChartValues]:
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name(file))
    return {name: ChartValues.model_validate(row, strict=False) for name, row in rows.items()}
