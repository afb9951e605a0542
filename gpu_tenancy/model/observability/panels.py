"""Pictures of a dashboard as Grafana takes them: numbers, graphs, tables, and the words and rows between them.

Keys and values are those of `@grafana/schema` 13.2.2 on npm (dist/types/raw), against whose types the pages were
compiled on 2026-11-21. What a picture leaves out, Grafana fills in: a number without thresholds turns red at 80.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Colours = tuple[tuple[float | None, str], ...]
"""Which colour begins at which value; the first has none to begin at."""
PLAIN: Final[Colours] = ((None, "text"),)
ALARM: Final[Colours] = ((None, "green"), (1, "red"))
"""Of what should not be there at all."""

_WIDTHS: Final = {"node": 300, "job_name": 260}
_WIDTH: Final = 180
"""Of a column of names, in pixels: a table gives its columns the same width otherwise, and cuts names off."""
_LEAST: Final = 90
"""Of the other columns, which are 150 wide otherwise, so that ten of them run out of the page."""
_DASHES: Final = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a panel.

    Attributes:
        legend: of its series (`{{label}}` stands for a label), or the title of its column in a table.
        bound: whether the line is a promise or a limit, and not what happens: it is dashed.
        unit: of a column; the panel's where it has none.
        colours: of a column's values.
        words: what a column says in place of a number.
    """

    expr: str
    legend: str
    bound: bool = False
    unit: str = ""
    colours: Colours = ()
    words: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        unit: Grafana's name: `short`, `percent`, `mbytes` (of 2^20), `s`.
        help: what the picture means, where its title does not say it; what it says, if it is of kind `text`.
        empty: what is shown where there is nothing. Not for tables with empty cells, each of which would say it.
        labels: that identify a table's rows, each with the title of its column; without one it is not shown.
        size: columns (of 24) and rows of the grid.
        repeat: the variable for each of whose values there is one such picture.
    """

    title: str
    targets: tuple[Target, ...] = ()
    kind: Literal["stat", "timeseries", "table", "text", "row"] = "timeseries"
    unit: str = "short"
    help: str = ""
    empty: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    colours: Colours = PLAIN
    size: tuple[int, int] = (12, 8)
    repeat: str = ""


def stat(title: str, expr: str, unit: str = "short", *, colours: Colours = PLAIN, explained: str = "") -> Panel:
    """One number of now."""
    return Panel(title, (Target(expr, title),), "stat", unit, explained, colours=colours, size=(4, 4))


def graph(  # noqa: PLR0913 - a picture's own parts
    title: str, expr: str, legend: str, unit: str = "short", *, explained: str = "", empty: str = ""
) -> Panel:
    """One expression over time."""
    return Panel(title, (Target(expr, legend),), "timeseries", unit, explained, empty)


def row(title: str) -> Panel:
    """A heading."""
    return Panel(title, kind="row", size=(24, 1))


def to_data(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    """A panel's JSON, under this id and at this place."""
    found: dict[str, Any] = {"id": number, "type": panel.kind, "title": panel.title, "gridPos": place}
    if panel.kind == "row":
        return {**found, "collapsed": False, "panels": []}
    if panel.kind == "text":
        return {**found, "options": {"mode": "markdown", "content": panel.help}}
    found |= {
        "description": panel.help,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        "targets": [_target(panel, letter, target) for letter, target in _lettered(panel)],
    }
    if panel.kind == "table":
        found["transformations"] = _one_table(panel)
    if panel.repeat:
        found |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 24 // panel.size[0]}
    return found


def _lettered(panel: Panel) -> list[tuple[str, Target]]:
    """A panel has fewer than 27 targets."""
    return [(chr(ord("A") + position), target) for position, target in enumerate(panel.targets)]


def _target(panel: Panel, letter: str, target: Target) -> dict[str, Any]:
    over_time = panel.kind == "timeseries"
    return {
        "refId": letter,
        "datasource": SOURCE,
        "expr": target.expr,
        "legendFormat": target.legend,
        "format": "table" if panel.kind == "table" else "time_series",
        "instant": not over_time,
        "range": over_time,
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    found: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.unit == "percent":
        found["max"] = 100
    if panel.empty:
        found["noValue"] = panel.empty
    if panel.kind == "table":
        found["custom"] = {"minWidth": _LEAST}
    if panel.kind != "timeseries":
        return found | {"color": {"mode": "thresholds"}, "thresholds": _thresholds(panel.colours)}
    counted = panel.unit == "short"  # What is counted goes up and down in steps, and there is no half of it.
    if counted:
        found["decimals"] = 0
    drawn = {"lineInterpolation": "stepAfter" if counted else "linear", "fillOpacity": 0 if _of_many(panel) else 8}
    return found | {"color": {"mode": "palette-classic"}, "custom": drawn}


def _thresholds(colours: Colours) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": start, "color": colour} for start, colour in colours]}


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if panel.kind == "table":
        names = [_name_column(label, title) for label, title in panel.labels if title]
        return names + [each for target in panel.targets if (each := _column(target))["properties"]]
    return [
        {
            "matcher": {"id": "byFrameRefID", "options": letter},
            "properties": [_DASHES, {"id": "custom.fillOpacity", "value": 0}],
        }
        for letter, target in _lettered(panel)
        if target.bound
    ]


def _by_name(title: str, properties: list[dict[str, Any]]) -> dict[str, Any]:
    return {"matcher": {"id": "byName", "options": title}, "properties": properties}


def _name_column(label: str, title: str) -> dict[str, Any]:
    return _by_name(title, [{"id": "custom.width", "value": _WIDTHS.get(label, _WIDTH)}])


def _column(target: Target) -> dict[str, Any]:
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
    return _by_name(target.legend, properties)


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "value",
        }
    if panel.kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    beside = {"displayMode": "table", "placement": "right", "sortBy": "Last *", "sortDesc": True}
    below = {"displayMode": "list", "placement": "bottom"}
    return {
        "legend": {
            "showLegend": True,
            "calcs": [] if panel.repeat else ["lastNotNull"],
            **(beside if _of_many(panel) else below),
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _of_many(panel: Panel) -> bool:
    """Whether a graph has many lines, which a list below it would cut off."""
    return not panel.repeat and any("{{" in target.legend for target in panel.targets)


def _one_table(panel: Panel) -> list[dict[str, Any]]:
    """Rows of the same labels become one; the columns are those of the labels, then the targets'."""
    values = [f"Value #{letter}" if len(panel.targets) > 1 else "Value" for letter, _ in _lettered(panel)]
    names = [label for label, title in panel.labels if title] + values
    titles = [title for _, title in panel.labels if title] + [target.legend for target in panel.targets]
    organised = {
        "excludeByName": {"Time": True} | {label: True for label, title in panel.labels if not title},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": dict(zip(names, titles, strict=True)),
    }
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organised}]
