"""Grafana's dashboards as data: panels in rows of a grid of 24, each with its expressions.

The model of the JSON: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
Everything is in a fixed order under fixed ids, so the same stack gives the same text.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

_SCHEMA: Final = 41
"""Grafana 12's; newer ones migrate it as they load it."""
_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a panel, with the legend of its series (`{{label}}` stands for a label)."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture.

    Attributes:
        unit: Grafana's name: `short`, `percent`, `mbytes` (of 2^20), `s`.
        help: what the picture means, where its title does not say it.
    """

    title: str
    targets: tuple[Target, ...]
    kind: Literal["stat", "timeseries"] = "timeseries"
    unit: str = "short"
    help: str = ""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the grid."""
        return (4, 4) if self.kind == "stat" else (12, 8)


@dataclass(frozen=True, slots=True)
class Variable:
    """What a reader may choose.

    Attributes:
        values: to choose from; empty where `query` finds them.
        query: `label_values(…)` of the data source.
    """

    name: str
    label: str
    values: tuple[str, ...] = ()
    query: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. Its `uid` stays, whatever its title: links to it hold."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


def to_json(dashboard: Dashboard) -> str:
    """The text that Grafana's sidecar loads."""
    data: dict[str, Any] = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["gpu-tenancy"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_data_source(), *(_variable(each) for each in dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps(data, indent=1) + "\n"


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """The panels from left to right, a new row where one has no room or another height."""
    x, y, height = 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        wide, high = panel.size
        if x + wide > _COLUMNS or high != height:
            x, y, height = 0, y + height, high
        yield _panel(number, panel, {"x": x, "y": y, "w": wide, "h": high})
        x += wide


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    stat = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    graph = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"], "showLegend": True}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": stat if panel.kind == "stat" else graph,
        "targets": [
            {
                "refId": chr(ord("A") + position) if position < 26 else f"A{position}",  # noqa: PLR2004 - letters
                "datasource": _SOURCE,
                "expr": target.expr,
                "legendFormat": target.legend,
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for position, target in enumerate(panel.targets)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    shown = {
        "name": variable.name,
        "label": variable.label,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "hide": 0,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
    if variable.values:
        return {**shown, "type": "custom", "query": ",".join(variable.values)}
    query = {"query": variable.query, "refId": variable.name}
    return {**shown, "type": "query", "datasource": _SOURCE, "definition": variable.query, "query": query, "refresh": 2}
