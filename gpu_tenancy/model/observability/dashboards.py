"""Grafana's dashboards as data: panels in rows of a grid of 24, each with its expressions.

The model of the JSON: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
Everything is in a fixed order under fixed ids, so the same stack gives the same text.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.model.observability.panels import SOURCE, Panel, to_data

_SCHEMA: Final = 42
"""Grafana 13.2's (`defaultDashboard.schemaVersion` of `@grafana/schema` 13.2.2 on npm, read 2026-11-21), which
kube-prometheus-stack brings. What 41 and 42 changed, `time_options` and `hideFrom`, no page of ours has
(apps/dashboard/pkg/migration/schemaversion in grafana/grafana)."""
_COLUMNS: Final = 24
_TAG: Final = "gpu-tenancy"


@dataclass(frozen=True, slots=True)
class Variable:
    """What a reader may choose, one or several.

    Attributes:
        values: to choose from, all of which `All` stands for; empty where `query` finds them.
        query: `label_values(…)` of the data source; `All` stands for whatever there is.
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
        "tags": [_TAG],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "timezone": "",
        "annotations": {"list": []},
        "links": [_to_the_others()],
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
        yield to_data(panel, number, {"x": x, "y": y, "w": wide, "h": high})
        x = _COLUMNS if panel.repeat else x + wide


def _to_the_others() -> dict[str, Any]:
    """A link to each page of the same tag, at the same time and with the same choice."""
    return {
        "type": "dashboards",
        "title": "GPU pages",
        "tags": [_TAG],
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    shown = {
        "name": variable.name,
        "label": variable.label,
        "includeAll": True,
        "multi": True,
        "hide": 0,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }
    if variable.values:
        return {**shown, "type": "custom", "query": ",".join(variable.values)}
    query = {"query": variable.query, "refId": variable.name}
    found = {"datasource": SOURCE, "query": query, "refresh": 2, "sort": 1}
    return {**shown, "type": "query", "allValue": ".*", **found}
