"""Dashboards, alerts and the table of metrics: consistent, and derived from the stack."""

import csv
import json
import os
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from builders import pool, server, stack, team
from jsonschema import Draft7Validator
from observability_builders import LATENCY, amd, budgeted, observed, panels, two_vendors, watched
from repository import ROOT
from stand_ins import definition

from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.observability import ObservabilityPlan
from gpu_tenancy.model.plan.pools import POOL_LABEL
from gpu_tenancy.model.source import Source, to_config

RULES = "prometheus-operator/monitoring.coreos.com_prometheusrules.yaml"
WORDS = {"and", "or", "on", "by", "unless", "group_left", "time", "vector", "sum", "max", "avg", "count", "increase"}
RECORDED = ("gpu_tenancy:",)
METRICS: dict[str, list[str]] = {
    name: labels
    for group in yaml.safe_load((Path(__file__).parent / "metrics.yaml").read_text(encoding="utf-8"))
    for name, labels in group["metrics"].items()
}
PROGRAM = """
import csv
import json
import pulumi
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.source import read_config
from components.operators import Observability
from gpu_tenancy.model.observability import observability
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.shares import Tree
config = pulumi.Config("gpu-tenancy")
stack = load(read_config({"gpu-tenancy:" + key: config.get(key) for key in json.loads(config.require("keys"))}))
tree = Tree(stack)
servers = tuple(each for team in plan(stack).teams for each in team.servers)
Observability("observability", observability(tree, servers, gpu_prices(tree)), namespace="monitoring")
"""


def _expressions(plan: ObservabilityPlan) -> list[str]:
    boards = [json.loads(text) for _, text in plan.dashboards]
    queries = [
        variable["query"]["query"]
        for board in boards
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ]
    shown = [expr for _, expr, _ in panels(plan)]
    return [*shown, *queries, *(rule["expr"] for group in plan.rules for rule in group["rules"])]


def _selectors(expr: str) -> list[tuple[str, list[str]]]:
    """Every metric of an expression, with its selected labels."""
    matches = re.findall(
        r"\b((?:apiserver|kube|kueue|volcano|keda|DCGM|inference)_\w+|gpu_tenancy:\w+)(?:\{([^}]*)\})?", expr
    )
    return [(name, re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", labels)) for name, labels in matches]


def _selected() -> list[tuple[str, list[str]]]:
    every = [selector for expr in _expressions(observed(watched())) for selector in _selectors(expr)]
    # Parts of label names, such as kube_…_resource, are in quotes or lists of labels and never before a brace.
    mine = (LATENCY, *RECORDED)
    return [(name, labels) for name, labels in every if not name.startswith(mine) and name not in WORDS]


def test_metrics_of_expressions_are_those_of_the_table() -> None:
    assert {name for name, _ in _selected()} == set(METRICS)


def test_recorded_metrics_are_defined_and_used() -> None:
    plan = observed(budgeted())
    rules = {rule["record"] for group in plan.rules for rule in group["rules"] if "record" in rule}
    asked = {name for expr in _expressions(plan) for name, _ in _selectors(expr) if name.startswith(RECORDED)}
    assert asked <= rules
    by_costs = {"gpus_existing", "gpus_lent", "gpus_unused", "gpus_failed", "gpus_of_job", "pod_gpu_utilization"}
    assert rules - asked == {f"gpu_tenancy:{name}" for name in by_costs}


def test_every_metric_is_picked_by_labels_that_it_has() -> None:
    strangers = [(name, label) for name, labels in _selected() for label in labels if label not in METRICS[name]]
    assert strangers == []


def _asking(board: Any) -> list[Any]:
    return [panel for panel in board["panels"] if panel["type"] not in {"row", "text"}]


@pytest.fixture(params=range(5))
def board(request: pytest.FixtureRequest) -> Any:
    number: int = request.param
    return json.loads(observed(watched()).dashboards[number][1])


def test_no_two_panels_share_an_id_or_a_place(board: Any) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in combinations([panel["gridPos"] for panel in board["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


def test_every_target_has_expression_letter_and_data_source(board: Any) -> None:
    assert board["templating"]["list"][0]["type"] == "datasource"
    for panel in _asking(board):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters)
        assert all(target["expr"] for target in panel["targets"])
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_every_variable_of_an_expression_is_one_of_its_page(board: Any) -> None:
    there = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$([a-z]+)", json.dumps(board["panels"])))
    assert used <= there


def test_the_teams_of_a_page_are_those_of_the_stack(board: Any) -> None:
    named = [variable for variable in board["templating"]["list"] if variable["type"] == "custom"]
    assert all("allValue" not in variable for variable in named)
    assert [variable["query"] for variable in named if variable["name"] == "team"] in ([], ["a,b"])


def test_no_number_is_coloured_by_default_thresholds(board: Any) -> None:
    fields = [panel["fieldConfig"]["defaults"] for panel in _asking(board) if panel["type"] != "timeseries"]
    assert all(field["thresholds"]["steps"][0]["value"] is None for field in fields)
    red = [panel["title"] for panel in _asking(board) if "red" in json.dumps(panel["fieldConfig"]["defaults"])]
    assert set(red) <= {"Unhealthy GPU nodes"}


def test_a_table_names_and_places_each_column(board: Any) -> None:
    for panel in (panel for panel in board["panels"] if panel["type"] == "table"):
        merged, organised = panel["transformations"]
        assert merged == {"id": "merge", "options": {}}
        names, places = organised["options"]["renameByName"], organised["options"]["indexByName"]
        letters = [target["refId"] for target in panel["targets"]]
        assert [name for name in names if name.startswith("Value")] == [f"Value #{letter}" for letter in letters]
        assert list(places) == list(names)
        assert list(places.values()) == list(range(len(names)))
        assert len(set(names.values())) == len(names)
        styled = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert styled <= set(names.values())
        assert all(target["format"] == "table" and target["instant"] for target in panel["targets"])


def test_resources_have_a_column_where_there_are_several() -> None:
    def columns(sections: Any) -> list[str]:
        (quota,) = (json.loads(text) for name, text in observed(sections).dashboards if "quota" in name)
        (table,) = (panel for panel in quota["panels"] if panel["title"] == "GPUs now")
        return list(table["transformations"][1]["options"]["renameByName"].values())[:3]

    assert columns(watched()) == ["Team", "GPU model", "Guaranteed"]
    assert columns(two_vendors()) == ["Team", "GPU model", "Resource"]


def test_a_server_without_autoscaler_has_no_panel_of_replicas() -> None:
    def titles(served: Any) -> list[str]:
        sections = watched() | {"teams": {"b": team(gpus={"h100": {"guaranteed": 4}}, serving={"api": served})}}
        (page,) = (json.loads(text) for name, text in observed(sections).dashboards if "serving" in name)
        return [panel["title"] for panel in page["panels"]][2:]

    assert titles(server(replicas=2)) == ["b/api", "GPUs", "GPU utilisation"]
    scaled = server(replicas={"min": 1, "max": 4}, scaleOn={"cpu": 70})
    assert titles(scaled) == ["b/api", "Replicas", "GPUs", "GPU utilisation"]


def test_the_same_stack_gives_the_same_text_and_five_pages() -> None:
    assert observed(watched()) == observed(watched())
    names = [name for name, _ in observed(watched()).dashboards]
    assert names == [f"gpu-tenancy-{page}.json" for page in ("cluster", "nodes", "training", "quota", "serving")]


def test_gpus_of_other_vendors_use_their_resource_name() -> None:
    text = " ".join(_expressions(observed(amd())))
    assert 'resource=~"amd_com_gpu"' in text
    assert 'resource=~"amd[.]com/gpu"' in text
    assert "nvidia" not in text


def test_a_cluster_without_gpus_or_teams_has_no_dashboards() -> None:
    assert observed(stack(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={})) == ObservabilityPlan()


def without_gpus(**sections: Any) -> Any:
    return stack(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={"a": team(**sections)})


def test_a_stack_without_gpus_has_the_quotas_and_alerts_of_cpus() -> None:
    found = observed(without_gpus())
    assert [name for name, _ in found.dashboards] == ["gpu-tenancy-quota.json"]
    board = json.loads(found.dashboards[0][1])
    assert (board["title"], board["panels"][1]["title"]) == ("CPU quota", "CPUs now")
    assert [group["name"].removeprefix("gpu-tenancy-") for group in found.rules] == [
        "demand",
        "promises",
        "teams",
        "guards",
    ]
    assert "GPU" not in found.dashboards[0][1] + json.dumps(found.rules)
    assert "Gangs" not in [panel["title"] for panel in board["panels"]]
    selected = [selector for expr in _expressions(found) for selector in _selectors(expr)]
    assert {name for name, _ in selected if not name.startswith(RECORDED)} <= set(METRICS)
    assert 'resource=~"cpu"' in found.dashboards[0][1].replace('\\"', '"')


def test_servers_without_gpus_have_no_gpu_utilisation() -> None:
    served = server(gpus=0, replicas={"min": 1, "max": 4}, scaleOn={"cpu": 70})
    (_, page) = (json.loads(text) for _, text in observed(without_gpus(serving={"api": served})).dashboards)
    assert [panel["title"] for panel in page["panels"]][2:] == ["a/api", "Replicas", "CPUs"]


def test_every_alert_has_severity_and_action() -> None:
    rules = [rule for group in observed(watched()).rules for rule in group["rules"] if "alert" in rule]
    assert all(rule["labels"]["severity"] in {"critical", "warning", "info"} for rule in rules)
    assert all(len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"]) for rule in rules)


def test_the_component_declares_pages_and_one_rule(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(PROGRAM)
    config = {**to_config(Source(watched())), "gpu-tenancy:keys": json.dumps(list(watched()))}
    rendered = render(tmp_path, project="other", stack="x", config=config)
    objects = kubernetes_objects(rendered)
    assert sorted(resource.kind for resource in objects) == ["ConfigMap"] * 5 + ["PrometheusRule"]
    assert {resource.namespace for resource in objects} == {"monitoring"}
    labels = [
        cast("Any", resource.manifest)["metadata"].get("labels") for resource in objects if resource.kind == "ConfigMap"
    ]
    assert labels == [{"grafana_dashboard": "1"}] * 5
    folders = {
        cast("Any", resource.manifest)["metadata"].get("annotations", {}).get("grafana_folder")
        for resource in objects
        if resource.kind == "ConfigMap"
    }
    assert folders == {"Platform", "Teams", "People"}
    (component,) = (
        registration
        for registration in rendered.registrations
        if registration.type == "gpu-tenancy:tenancy:Observability"
    )
    assert len([registration for registration in rendered.registrations if registration.parent == component.urn]) == 6


@pytest.mark.process
def test_prometheus_operator_accepts_the_rules() -> None:
    rules = yaml.safe_load(definition(RULES, Platform(Path(os.devnull)).cache))
    schema = rules["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rule = json.loads(json.dumps({"groups": list(observed(watched()).rules)}))
    validator = cast("Any", Draft7Validator(schema))
    assert list(validator.iter_errors(rule)) == []
    rule["groups"][-1]["rules"][0]["for"] = "ten minutes"
    assert list(validator.iter_errors(rule))


def test_panels_of_the_docs_exist_and_have_their_metrics() -> None:
    page = (Path(__file__).parents[2] / "docs" / "dashboards.md").read_text(encoding="utf-8")
    part = page.partition("## Each panel and its metrics")[2].partition("## Alerts")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:2] == "| "][1:]
    assert len(rows) > 20
    shown: dict[str, set[str]] = {}
    with_idle = watched(operators={"prometheus": "installed"}) | {"idle": "notify"}
    for name, expr, _ in panels(observed(with_idle)):
        panel = name.removeprefix("gpu-tenancy-").rpartition("/")[0]
        shown.setdefault(panel, set()).update(metric for metric, _ in _selectors(expr))
    for _, board, titles, metrics in rows:
        found = [shown[f"{board}/{title}"] for title in titles.split(", ")]
        assert set(metrics.replace("`", "").split(", ")) <= set().union(*found), f"{board}: {titles}"


def test_dashboards_are_in_the_folder_of_those_who_look_at_them() -> None:
    folders = observed(watched()).folders
    assert {file.removeprefix("gpu-tenancy-").removesuffix(".json"): folder for file, folder in folders.items()} == {
        "cluster": "Platform",
        "nodes": "Platform",
        "training": "People",
        "quota": "Teams",
        "serving": "People",
    }


def test_opencost_gets_the_prices_of_the_nodes_of_each_pool() -> None:
    sections = budgeted()
    sections["metrics"]["opencost"] = {"namespace": "costs"}
    sections["pools"] |= {"unknown": {"gpu": "mi300x", "gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 2}}
    rendered = render(ROOT, project="gpu-tenancy", stack="x", config=to_config(Source(sections)))
    (prices,) = [resource for resource in kubernetes_objects(rendered) if resource.name == "gpu-tenancy-prices"]
    assert prices.namespace == "costs"
    listed = csv.DictReader(cast("Any", prices.manifest)["data"]["prices.csv"].splitlines())
    pools = {line["InstanceID"]: line for line in listed}
    assert "unknown" not in pools
    line = pools["h100"]
    assert (line["AssetClass"], line["MarketPriceHourly"]) == ("node", "32.0")
    assert line["InstanceIDField"] == f"metadata.labels.{POOL_LABEL}"


def _of_teams() -> ObservabilityPlan:
    sections = watched(operators={"prometheus": "installed"})
    sections["metrics"]["teamDashboards"] = True
    return observed(sections)


def test_a_team_has_a_folder_with_its_own_pages() -> None:
    plan, without = _of_teams(), observed(watched())
    assert plan.dashboards[:5] == without.dashboards
    own = {file: folder for file, folder in plan.folders.items() if file not in without.folders}
    assert {file.removeprefix("gpu-tenancy-").removesuffix(".json"): folder for file, folder in own.items()} == {
        "training-a": "a",
        "quota-a": "a",
        "training-b": "b",
        "quota-b": "b",
        "serving-b": "b",
    }
    boards = {file: json.loads(text) for file, text in plan.dashboards if file in own}
    for file, board in boards.items():
        team = own[file]
        assert board["uid"] == file.removesuffix(".json")
        assert board["tags"] == board["links"][0]["tags"] == [f"gpu-tenancy-{team}"]
        chosen = [one["query"] for one in board["templating"]["list"] if one["name"] == "team"]
        assert chosen in ([], [team])
        titles = {panel["title"] for panel in board["panels"]}
        assert not titles & {"Cohorts", "Gangs", "b/api" if team == "a" else ""}
    assert "b/api" in {panel["title"] for panel in boards["gpu-tenancy-serving-b.json"]["panels"]}


def test_each_expression_of_a_teams_dashboard_picks_the_team() -> None:
    plan = _of_teams()
    own = replace(plan, dashboards=tuple(one for one in plan.dashboards if one[0].endswith("-b.json")))
    unlimited = [name for name, expr, _ in panels(own) if not re.search(r'\$team|namespace=~?"b"', expr)]
    assert unlimited == ["gpu-tenancy-serving-b/Latency/B"], "the target, which is no metric"


def test_a_long_name_of_a_team_gives_a_uid_that_grafana_takes() -> None:
    name = "a-team-with-a-name-that-is-quite-long"
    sections = watched(operators={"prometheus": "installed"})
    sections["teams"] = {name: team(gpus={"h100": {"guaranteed": 8}})}
    sections["metrics"]["teamDashboards"] = True
    uids = [json.loads(text)["uid"] for _, text in observed(sections).dashboards]
    assert len(set(uids)) == len(uids) == 7
    assert max(map(len, uids)) <= 40
