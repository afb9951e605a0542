"""The values that a Helm chart supports, from the second document of each operator's file in the folder `operators`.

Helm ignores unknown values silently.

A file has a row for each chart and subchart: facts alone, no defaults, no descriptions. `described` generates the row
of a chart from its `values.yaml`; a test compares the two. The keys of subcharts are
checked too, against the version that the parent chart pins. Keys below a free key are not checked. If a stack sets
another version of a chart, the keys of the catalogue's version apply.
A malformed table raises `pydantic.ValidationError`, or `KeyError` if a subchart has no row.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.base.problems import listed
from gpu_tenancy.model.catalogue.operators import accepted_values
from gpu_tenancy.model.catalogue.rows import Fact

Keys: TypeAlias = tuple[str, ...]
"""Path of a key in a chart's values."""

FREE: Final = "*"
"""Suffix of a key in the table: any keys are allowed below it."""
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
"""Maps that Kubernetes defines: the keys in a chart's defaults are examples, not a complete list."""
_Sections: TypeAlias = dict[Keys, dict[str, bool]]
"""Keys of each section, and whether any keys are allowed below them."""


class ChartValues(Fact):
    """The values that one chart supports; the source is its `values.yaml`.

    Attributes:
        version: of the chart; None if the row is not compared with the file (`tests/originals.py`).
        sha256: of the file, in hexadecimal; None like `version`.
        contains: subcharts, by their rows in this or another file; each has the section of its name.
        keys: keys of each section, separated by spaces, by the section's dotted path (`.` for the top level); with `*`
            behind a key under which anything may stand.
        also: further keys that the chart's schema or templates know, and its `values.yaml` has in comments at most.
    """

    version: str | None = None
    sha256: str | None = None
    contains: tuple[str, ...] = ()
    keys: Mapping[str, str]
    also: Mapping[str, str] = {}

    def unknown(self, values: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
        """Paths of unknown keys, each with a fix, such as the nearest key."""
        if not values:
            return
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
        elif value is not None:  # In Helm, null removes a section.
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
    """The `keys` of a chart's row, generated from its default values."""
    keys: dict[str, str] = {}
    _describe(values, (), keys)
    return keys


def _describe(values: Mapping[str, Any], place: Keys, keys: dict[str, str]) -> None:
    ends: list[str] = []
    deeper: list[str] = []
    for key, value in values.items():
        is_map = isinstance(value, Mapping)
        if is_map and value and key not in _FREE_MAPS and "." not in key:
            deeper.append(key)
        else:
            ends.append(f"{key}{FREE}" if is_map or value is None else key)
    if ends:
        keys[".".join(place) or "."] = " ".join(ends)
    for key in deeper:
        _describe(values[key], (*place, key), keys)


def chart_values() -> Mapping[str, ChartValues]:
    """The supported values of each chart, by the name of its release."""
    return _rows()[0]


def contained_values() -> Mapping[str, ChartValues]:
    """The supported values of each subchart, by its name, which is also the name of its section."""
    return _rows()[1]


@cache
def _rows() -> tuple[Mapping[str, ChartValues], Mapping[str, ChartValues]]:
    """The rows of charts and those of subcharts; LeaderWorkerSet is a chart, and a subchart of Trainer."""
    of_charts: dict[str, ChartValues] = {}
    contained: dict[str, ChartValues] = {}
    for operator, rows in accepted_values():
        for name, row in rows.items():
            (of_charts if name in operator.charts else contained)[name] = ChartValues.model_validate(row)
    return of_charts, contained
