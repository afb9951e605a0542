"""Grafana dashboards and their panels in Grafana's JSON model."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from gpu_tenancy.model.yaml import read_table

_PARTS: Final[Any] = read_table(Path(__file__).with_name("grafana.yaml"))
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Colours: TypeAlias = Sequence[tuple[int | None, str]]
"""Thresholds: the value from which each color applies; None for the first."""

_WIDTHS: Final = {"node": 300, "job_name": 260}
_WIDTH: Final = 180
"""Width of a column of names, in pixels: by default all columns are equally wide, and names are truncated."""
_LEAST: Final = 90  # minimum width of the other columns; the default of 150 is too wide for a table of ten columns


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a panel."""

    expr: str
    legend: str  # of its series (`{{label}}` is a placeholder), or the title of its column in a table
    bound: bool = False  # whether the line is a guarantee or a limit, not a measured value; it is dashed
    unit: str = ""  # of its column; default: the unit of the panel
    colours: Colours = ()
    words: Sequence[tuple[int, str]] = ()  # texts that a column shows instead of numbers


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    targets: tuple[Target, ...] = ()
    kind: Literal["stat", "timeseries", "table", "text", "row"] = "timeseries"
    unit: str = "short"  # Grafana's name of the unit: `short`, `percent`, `mbytes` (of 2^20), `s`
    help: str = ""  # description, if the title is not enough; the content of a panel of kind `text`
    empty: str = ""  # text without data. Not for tables with empty cells, because each of them would show it
    labels: Sequence[tuple[str, str]] = ()  # labels of a table's rows, with the titles of their columns; hidden without
    colours: Colours = ((None, "text"),)
    size: tuple[int, int] = (12, 8)  # width in columns (of 24) and height in rows of the grid
    repeat: str = ""  # variable; the panel is repeated for each of its values


def to_data(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """The JSON of a panel, with its id in the dashboard and its `gridPos`."""
    data: dict[str, Any] = {"id": number, "type": panel.kind, "title": panel.title, "gridPos": place}
    if panel.kind == "row":
        return {**data, "collapsed": False, "panels": []}
    if panel.kind == "text":
        return {**data, "options": {"mode": "markdown", "content": panel.help}}
    over_time, table = panel.kind == "timeseries", panel.kind == "table"
    data |= {
        "description": panel.help,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        "targets": [
            {
                "refId": letter,
                "datasource": SOURCE,
                "expr": target.expr,
                "legendFormat": target.legend,
                "format": "table" if table else "time_series",
                "instant": not over_time,
                "range": over_time,
            }
            for letter, target in _lettered(panel)
        ],
    }
    if table:
        data["transformations"] = _one_table(panel)
    if panel.repeat:
        data |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 24 // panel.size[0]}
    return data


def _lettered(panel: Panel) -> list[tuple[str, Target]]:
    """The targets with their `refId`; a panel has at most 26 targets."""
    return [(chr(ord("A") + position), target) for position, target in enumerate(panel.targets)]


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percent":
        defaults["max"] = 100
    if panel.empty:
        defaults["noValue"] = panel.empty
    if panel.kind == "table":
        defaults["custom"] = {"minWidth": _LEAST}
    if panel.kind != "timeseries":
        return defaults | {"color": {"mode": "thresholds"}, "thresholds": _thresholds(panel.colours)}
    counted = panel.unit == "short"  # Counts are integers that change in steps.
    if counted:
        defaults["decimals"] = 0
    drawn = {"lineInterpolation": "stepAfter" if counted else "linear", "fillOpacity": 0 if _of_many(panel) else 8}
    return defaults | {"color": {"mode": "palette-classic"}, "custom": drawn}


def _thresholds(colours: Colours) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": start, "color": colour} for start, colour in colours]}


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if panel.kind != "table":
        return [
            {
                "matcher": {"id": "byFrameRefID", "options": letter},
                "properties": [_PARTS["dashes"], {"id": "custom.fillOpacity", "value": 0}],
            }
            for letter, target in _lettered(panel)
            if target.bound
        ]
    widths = [(title, _WIDTHS.get(label, _WIDTH)) for label, title in panel.labels if title]
    columns = [(title, [{"id": "custom.width", "value": width}]) for title, width in widths]
    columns += [(target.legend, properties) for target in panel.targets if (properties := _column(target))]
    return [{"matcher": {"id": "byName", "options": title}, "properties": properties} for title, properties in columns]


def _column(target: Target) -> list[dict[str, Any]]:
    properties: list[dict[str, Any]] = []
    if target.unit:
        properties.append({"id": "unit", "value": target.unit})
    if target.words:
        words = {str(value): {"text": word, "index": place} for place, (value, word) in enumerate(target.words)}
        properties.append({"id": "mappings", "value": [{"type": "value", "options": words}]})
        properties.append({"id": "custom.align", "value": "left"})
    if target.colours:
        properties.append({"id": "thresholds", "value": _thresholds(target.colours)})
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-text"}})
    return properties


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind in {"stat", "table"}:
        return _PARTS[panel.kind]
    calcs = [] if panel.repeat else ["lastNotNull"]
    return {
        "legend": {"showLegend": True, "calcs": calcs, **_PARTS["beside" if _of_many(panel) else "below"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _of_many(panel: Panel) -> bool:
    """Whether a graph has many lines."""
    return not panel.repeat and any("{{" in target.legend for target in panel.targets)


def _one_table(panel: Panel) -> list[dict[str, Any]]:
    """Merges rows with the same labels; the columns are the labels, then the targets."""
    values = [f"Value #{letter}" if len(panel.targets) > 1 else "Value" for letter, _ in _lettered(panel)]
    names = [label for label, title in panel.labels if title] + values
    titles = [title for _, title in panel.labels if title] + [target.legend for target in panel.targets]
    organised = {
        "excludeByName": {"Time": True} | {label: True for label, title in panel.labels if not title},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": dict(zip(names, titles, strict=True)),
    }
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organised}]


_COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Variable:
    """A template variable with one or several selected values."""

    name: str
    label: str
    values: str = ""  # separated by commas
    query: str = ""  # `label_values(…)`; then `All` matches any value


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard with links to dashboards of the same tag. Its `uid` must not change, because links contain it.

    The JSON model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
    Order and ids are fixed, so the same stack gives the same text.
    """

    uid: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()
    tag: str = "gpu-tenancy"


def to_json(dashboard: Dashboard) -> str:
    """The JSON that Grafana's sidecar loads from a ConfigMap."""
    shown = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": [dashboard.tag],
        "links": [{**_PARTS["link"], "tags": [dashboard.tag]}],
        "templating": {"list": [_PARTS["source"], *(_variable(variable) for variable in dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps({**_PARTS["dashboard"], **shown}, indent=1) + "\n"


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """The panels from left to right; a panel that does not fit, or has another height, starts a new row."""
    x, y, height = 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        wide, high = panel.size
        if x + wide > _COLUMNS or high != height:
            x, y, height = 0, y + height, high
        yield to_data(panel, number, {"x": x, "y": y, "w": wide, "h": high})
        x = _COLUMNS if panel.repeat else x + wide


def _variable(variable: Variable) -> dict[str, Any]:
    shown = {**_PARTS["variable"], "name": variable.name, "label": variable.label}
    if variable.values:
        return {**shown, "type": "custom", "query": variable.values}
    query = {"query": variable.query, "refId": variable.name}
    from_query = {"datasource": SOURCE, "query": query, "refresh": 2, "sort": 1}
    return {**shown, "type": "query", "allValue": ".*", **from_query}
