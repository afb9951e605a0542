"""Grafana dashboards as JSON: panels on a grid of 24 columns, and template variables.

The JSON model: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.
Order and ids are fixed, so the same stack gives the same text.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.model.observability.panels import SOURCE, Panel, to_data

_SCHEMA: Final = 42
"""Of Grafana 13.2, which kube-prometheus-stack installs (`defaultDashboard.schemaVersion` of `@grafana/schema` 13.2.2
on npm, read 2026-11-21). Versions 41 and 42 changed `time_options` and `hideFrom`, which these dashboards do not use
(apps/dashboard/pkg/migration/schemaversion in grafana/grafana)."""
_COLUMNS: Final = 24


@dataclass(frozen=True, slots=True)
class Variable:
    """A template variable with one or several selected values.

    Attributes:
        values: the options, separated by commas; empty if `query` returns them. `All` selects them all.
        query: `label_values(…)` of the data source; `All` then matches any value.
    """

    name: str
    label: str
    values: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard. Its `uid` must not change, because links contain it. It links to those with the same tag."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()
    tag: str = "gpu-tenancy"


def to_json(dashboard: Dashboard) -> str:
    """The JSON that Grafana's sidecar loads from a ConfigMap."""
    data: dict[str, Any] = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": [dashboard.tag],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "timezone": "",
        "annotations": {"list": []},
        "links": [_to_the_others(dashboard.tag)],
        "templating": {"list": [_data_source(), *(_variable(variable) for variable in dashboard.variables)]},
        "panels": list(_placed(dashboard.panels)),
    }
    return json.dumps(data, indent=1) + "\n"


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """The panels from left to right; a panel that does not fit, or has another height, starts a new row."""
    x, y, height = 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        wide, high = panel.size
        if x + wide > _COLUMNS or high != height:
            x, y, height = 0, y + height, high
        yield to_data(panel, number, {"x": x, "y": y, "w": wide, "h": high})
        x = _COLUMNS if panel.repeat else x + wide


def _to_the_others(tag: str) -> dict[str, Any]:
    """A link to each dashboard with a tag, which keeps the time range and the variables."""
    return {
        "type": "dashboards",
        "title": "Tenancy pages",
        "tags": [tag],
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
        return {**shown, "type": "custom", "query": variable.values}
    query = {"query": variable.query, "refId": variable.name}
    from_query = {"datasource": SOURCE, "query": query, "refresh": 2, "sort": 1}
    return {**shown, "type": "query", "allValue": ".*", **from_query}
