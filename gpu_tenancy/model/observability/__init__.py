"""Dashboards, recording rules and alerts of a stack: the tables beside this file, filled in from the stack."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from zlib import crc32

from jinja2 import Template

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.observability.expressions import JINJA, expressions
from gpu_tenancy.model.observability.levels import levels, promises, quantile, rate, series
from gpu_tenancy.model.observability.panels import Dashboard, Panel, Target, Variable, to_json
from gpu_tenancy.model.spec.serving import NO_METRICS
from gpu_tenancy.model.yaml import read_table

if TYPE_CHECKING:  # The plan imports this package, so importing it at run time would be a cycle.
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.model.plan.workloads import ServerPlan
    from gpu_tenancy.model.spec import Stack

_SIZES: Final = {"stat": (4, 4), "row": (24, 1)}
_SIZE: Final = (12, 8)  # of panels of any other kind
_LONGEST_UID: Final = 40  # of a dashboard in Grafana: `MaxUIDLength` of pkg/util in grafana/grafana
_NARROWEST: Final = 6  # width of the panels of a server with many: four beside each other


@dataclass(frozen=True, slots=True)
class ObservabilityPlan:
    """Dashboards, and alerts as a PrometheusRule of monitoring.coreos.com/v1, of one environment."""

    dashboards: tuple[tuple[str, str], ...] = ()  # name, JSON; without GPUs of quotas and servers; none without teams
    rules: tuple[Mapping[str, Any], ...] = ()  # groups; empty without teams and GPUs
    folders: Mapping[str, str] = field(default_factory=dict[str, str])  # Grafana's folder, by dashboard's file name
    opencost: tuple[str, str] | None = None  # namespace of an OpenCost, and prices of nodes in its format; None without


def observability(
    tree: "Tree", servers: "Sequence[ServerPlan]", prices: Mapping[str, float | None]
) -> ObservabilityPlan:
    """The dashboards and alerts of a stack, with US dollars per GPU-hour by flavor."""
    resources = tuple(sorted({flavor.resource for flavor in tree.flavors.values() if flavor.resource}))
    teams = tuple(tree.stack.teams)
    if not resources and not teams:
        return ObservabilityPlan()
    measured = {f"{server.team}/{server.name}": server for server in servers if server.metrics != NO_METRICS}
    promised = levels(tree.stack.metrics.service_levels)
    names: dict[str, Any] = {
        "levels": promised,
        "guarantee": promised[""],
        "waiting": {name: level for name, level in promised.items() if name},
        "alone": False,
        "on": expressions(resources or (CPU,), teams),
        "cpus": expressions((CPU,), teams),
        "bytes": expressions((MEMORY,), teams),
        "gpus": bool(resources),
        "flavors": [name for name, flavor in tree.flavors.items() if flavor.resource or not resources],
        "servers": servers,
        "measured": measured,
        "promises": promises(measured.values()),
        "waiting_servers": {name: one for name, one in measured.items() if one.metrics.waiting and one.metrics.running},
        "cached_servers": {name: one for name, one in measured.items() if one.metrics.cache},
        "series": series,
        "rate": rate,
        "quantile": quantile,
        "guards": bool(teams),
        "prices": {flavor: price for flavor, price in prices.items() if price is not None},
        "idle": _idle(tree.stack),
        "budgets": {name: team.monthly_budget for name, team in tree.stack.teams.items() if team.monthly_budget},
    }
    boards = [(row["folder"], _dashboard(row, names)) for row in _boards(names)]
    for team in teams if tree.stack.metrics.team_dashboards else ():
        boards += [(team, board) for board in _of_team(team, names)]
    return ObservabilityPlan(
        tuple((f"{board.uid}.json", to_json(board)) for _, board in boards),
        tuple(
            _group(group, names)
            for group in (*_table("recordings.yaml"), *_table("alerts.yaml"))
            if _applies(group, names)
        ),
        {f"{board.uid}.json": folder for folder, board in boards},
    )


def _idle(stack: "Stack") -> Mapping[str, Any]:
    """The different `idle` of teams, each by a regular expression for the namespaces of its teams."""
    found = stack.idle_teams
    teams = grouped((idle.model_dump_json(), team) for team, idle in found.items())
    return {"|".join(names): found[names[0]] for names in teams.values()}


def _boards(names: Mapping[str, Any]) -> list[Any]:
    return [row for row in _table("dashboards.yaml") if _applies(row, names)]


def _of_team(team: str, names: Mapping[str, Any]) -> Iterator[Dashboard]:
    """The dashboards of one team, without the platform team's."""
    servers = [server for server in names["servers"] if server.team == team]
    own = {**names, "on": expressions(names["on"]["resources"], (team,)), "servers": servers, "alone": True}
    for row in _boards(own):
        if row["folder"] != "Platform" and (servers or "each_server" not in row):
            board = _dashboard(row, own)
            uid = f"{board.uid}-{team}"
            if len(uid) > _LONGEST_UID:
                uid = f"{board.uid}-{crc32(team.encode()):08x}"
            yield replace(board, uid=uid, title=f"{board.title}: {team}", tag=f"{board.tag}-{team}")


def _group(row: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """A group of rules; a rule with `each` is repeated for each item of a mapping."""
    rules = [
        _filled({key: value for key, value in rule.items() if key != "each"}, {**names, "name": name, "value": value})
        for rule in row["rules"]
        for name, value in (names[rule["each"]].items() if "each" in rule else [("", None)])
    ]
    return _filled({key: value for key, value in row.items() if key not in {"when", "rules"}}, names) | {"rules": rules}


def _dashboard(row: Mapping[str, Any], names: Mapping[str, Any]) -> Dashboard:
    own = _names(row, names)
    panels = list(_panels(row, own))
    for server in own["servers"] if "each_server" in row else ():
        panels += _panels(row["each_server"], _names(row["each_server"], {**own, "server": server}))
    variables = tuple(Variable(**_filled(variable, own)) for variable in row.get("variables", ()))
    return Dashboard(row["uid"], _filled(row["title"], own), tuple(panels), variables)


def _names(row: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Names around a row, and its own names; each of its own can use the earlier ones."""
    own = dict(names)
    for name, text in row.get("with", {}).items():
        own[name] = _filled(text, own)
    return own


def _panels(row: Mapping[str, Any], names: Mapping[str, Any]) -> Iterator[Panel]:
    shown = [_filled(panel, names) for panel in row["panels"] if _applies(panel, names)]
    for panel in map(_without_when, shown):
        expr, legend = panel.pop("expr", None), panel.pop("legend", panel["title"])
        targets = [{"expr": expr, "legend": legend}] if expr else panel.pop("targets", ())
        kept = [_without_when(target) for target in targets if _applies(target, names)]
        wide, high = panel.pop("size", None) or _SIZES.get(panel.get("kind"), _SIZE)
        if "server" in names and panel.get("kind") != "row":
            wide, high = max(_NARROWEST, 24 // (len(shown) - 1)), 8
        yield Panel(**panel, targets=tuple(Target(**target) for target in kept), size=(int(wide), int(high)))


def _without_when(row: Mapping[str, Any]) -> Any:
    return {key: value for key, value in row.items() if key != "when"}


def _applies(row: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    return "when" not in row or bool(_condition(row["when"])(**names))


def _filled(value: Any, names: Mapping[str, Any]) -> Any:
    """A value of a table with the text between << and >> replaced."""
    if isinstance(value, str):
        return _template(value).render(names) if "<<" in value else value
    if isinstance(value, list):
        return [_filled(item, names) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in cast("dict[str, Any]", value).items()}
    return value


@cache
def _template(text: str) -> Template:
    return JINJA.from_string(text)


@cache
def _condition(text: str) -> Any:
    return JINJA.compile_expression(text)


@cache
def _table(file: str) -> Any:
    return read_table(Path(__file__).with_name(file))
