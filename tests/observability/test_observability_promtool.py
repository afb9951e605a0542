"""Every expression through Prometheus' own promtool, on made-up series whose answers were worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from builders import Data, pool, stack, team
from observability_builders import asks, budgeted, firing, observed, panels, series, tried, watched
from observability_world import ANSWERS, CHOSEN, RECORDED, WORLD

pytestmark = pytest.mark.process

_QUEUE = 'cluster_queue="a", flavor="h100", resource="nvidia.com/gpu"'
_QUOTA: dict[str, Any] = {
    f"kueue_cluster_queue_nominal_quota{{{_QUEUE}}}": 8,
    f"kueue_cluster_queue_borrowing_limit{{{_QUEUE}}}": 4,
    f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 4,
    f"kueue_cluster_queue_resource_usage{{{_QUEUE}}}": 4,
    'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="nvidia.com/gpu"}': 4,
    'kueue_pending_workloads{cluster_queue="a", status="inadmissible"}': 1,
    'kueue_admitted_active_workloads{cluster_queue="a"}': 1,
    'kueue_admitted_workloads_total{cluster_queue="a"}': 7,
}
_OTHER = 'cluster_queue="a", flavor="a100", resource="nvidia.com/gpu"'


def _two_flavors(reserved: int) -> dict[str, Any]:
    """A queue with four A100s more, of which so many are reserved; and a flavor that it may not use."""
    quota = {
        f"kueue_cluster_queue_{name}{{{of}}}": value
        for of, values in ((_OTHER, (4, 0, 4)), (_OTHER.replace("a100", "cpu"), (0, 0, 0)))
        for name, value in zip(("nominal_quota", "borrowing_limit", "resource_usage"), values, strict=True)
    }
    unused = {f"kueue_cluster_queue_resource_reservation{{{_OTHER.replace('a100', 'cpu')}}}": 0}
    return {**_QUOTA, **quota, **unused, f"kueue_cluster_queue_resource_reservation{{{_OTHER}}}": reserved}


_STUCK = {**_QUOTA, 'kueue_admitted_active_workloads{cluster_queue="a"}': 0}
_FULL = {**_QUOTA, f"kueue_cluster_queue_resource_usage{{{_QUEUE}}}": 12}
_SCALED = {
    'kube_horizontalpodautoscaler_status_current_replicas{namespace="b", horizontalpodautoscaler="api"}': 4,
    'kube_horizontalpodautoscaler_spec_max_replicas{namespace="b", horizontalpodautoscaler="api"}': 4,
}


def _progressing(status: str, condition: str = "Progressing", namespace: str = "b") -> str:
    """The series of a condition: kube-state-metrics has one for each status, of which one is 1."""
    return (
        f'kube_deployment_status_condition{{namespace="{namespace}", deployment="api", condition="{condition}",'
        f' status="{status}", reason="any"}}'
    )


def _requests(verb: str = "DELETE", code: str = "200", subresource: str = "", dry_run: str = "") -> str:
    return (
        'apiserver_request_total{group="admissionregistration.k8s.io", resource="validatingadmissionpolicybindings",'
        f' verb="{verb}", code="{code}", subresource="{subresource}", dry_run="{dry_run}"}}'
    )


_SPENT: dict[str, Any] = {
    f"gpu_tenancy:gpus_used{{{_QUEUE}}}": 8,
    'gpu_tenancy:gpus_used{cluster_queue="b", flavor="h100", resource="nvidia.com/gpu"}': 8,
    'gpu_tenancy:usd_per_gpu_hour{flavor="h100"}': 4,
    'gpu_tenancy:usd_monthly_budget{cluster_queue="a"}': 20,
}
"""At a sample a minute, a twelfth of these GPUs: 8 x 4 / 12 dollars a sample, more than 20 with the eighth."""

_ADMITTED = 'gpu_tenancy:admissions{level="guarantee", cluster_queue="a"}'
_TOO_LATE = 'gpu_tenancy:admissions_late{level="guarantee", cluster_queue="a"}'
_LATE: dict[str, Any] = {_ADMITTED: 1, _TOO_LATE: "0x199 1x400"}
"""At a sample a minute: all from 200 minutes on, which are 30 % after 287 minutes and 5 % after 211."""


# What there is, what fires, when it does not yet, and when it does: labels beside the alert's own.
ALARMS: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "GpuNodeUnhealthy": (WORLD, "9m", "11m", ['node="n2"', 'node="n3"']),
    "GpuXidError": (WORLD, "", "1m", ['node="n1", gpu="0", UUID="GPU-n1-0"']),
    "GuaranteeNotHonoured": (_QUOTA, "9m", "11m", [_QUEUE]),
    "GuaranteeNotHonoured, of neither flavor": (_two_flavors(0), "9m", "11m", [_QUEUE, _OTHER]),
    "GuaranteeInDoubt": (_two_flavors(4), "29m", "31m", [_QUEUE]),
    "GuaranteeInDoubt, too little is left of the other": (_two_flavors(1), "29m", "31m", [_QUEUE]),
    "QueueStuck": (_STUCK, "29m", "91m", ['cluster_queue="a"']),
    "GuaranteeReclaimSlow": (_LATE, "284m", "287m", ['level="guarantee", cluster_queue="a"']),
    "GuaranteeReclaimDegraded": (_LATE, "209m", "212m", ['level="guarantee", cluster_queue="a"']),
    "WaitingTooLong": (
        {name.replace('"guarantee"', '"waiting", priority_class="production"'): value for name, value in _LATE.items()},
        "220m",
        "224m",
        ['level="waiting", priority_class="production", cluster_queue="a"'],
    ),
    "TeamAtLimit": (_FULL, "23h", "25h", [_QUEUE]),
    "AdmissionPolicyChanged": (
        {_requests("WATCH"): 3, _requests(): "_x89 1x100", _requests("APPLY"): "7x89 8x100"},
        "88m",
        "95m",
        [f'verb="{verb}", resource="validatingadmissionpolicybindings"' for verb in ("DELETE", "APPLY")],
    ),
    "MonthlyBudgetExceeded": (_SPENT, "66m", "68m", ['cluster_queue="a"']),
    "AutoscalerAtMaximum": (_SCALED, "14m", "16m", ['namespace="b", horizontalpodautoscaler="api"']),
    "RolloutStuck": (
        {_progressing("false"): "0x19 1x40", _progressing("true"): "1x19 0x40"},
        "23m",
        "26m",
        ['namespace="b", deployment="api"'],
    ),
}
_ASKED = 'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="nvidia.com/gpu"}'
QUIET: dict[str, dict[str, Any]] = {
    "AdmissionPolicyChanged, but Prometheus has just begun": {
        _requests("WATCH"): "_x60 3x100",
        _requests(): "_x60 1x100",
    },
    "AdmissionPolicyChanged": {
        _requests("APPLY"): "7x200",
        _requests("WATCH"): 3,
        _requests("APPLY", code="201"): "_x89 1x100",
        _requests("APPLY", dry_run="All"): "_x89 1x100",
        _requests("APPLY", subresource="status"): "_x89 1x100",
        _requests("DELETE", code="403"): "_x89 1x100",
    },
    "GuaranteeNotHonoured": {**_QUOTA, f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 8},
    "GuaranteeNotHonoured, what waits asks for no GPU": {**_QUOTA, _ASKED: 0},
    "GuaranteeNotHonoured, what waits may want the other flavor": _two_flavors(4),
    "GuaranteeNotHonoured, what waits is larger than what is left": {**_QUOTA, _ASKED: 5},
    "GuaranteeInDoubt": _QUOTA,
    "GuaranteeInDoubt, of neither flavor": _two_flavors(0),
    "GuaranteeInDoubt, what waits asks for no GPU": {**_two_flavors(4), _ASKED: 0},
    "QueueStuck": {**_STUCK, 'kueue_admitted_workloads_total{cluster_queue="a"}': "0+1x1600"},
    "QueueStuck, yet one runs": {**_STUCK, 'kueue_admitted_active_workloads{cluster_queue="a"}': 1},
    "GuaranteeReclaimSlow, but not lately": {_ADMITTED: 1, _TOO_LATE: "1x255 0x400"},
    "GuaranteeReclaimSlow, yet a single one": {_ADMITTED: "0x279 1 0x400", _TOO_LATE: "0x279 1 0x400"},
    "GuaranteeReclaimDegraded, within the budget": {_ADMITTED: 100, _TOO_LATE: 5},
    "WaitingTooLong, of guarantees": _LATE,
    "TeamAtLimit": {**_FULL, f"kueue_cluster_queue_borrowing_limit{{{_QUEUE}}}": "Inf"},
    "MonthlyBudgetExceeded": {**_SPENT, 'gpu_tenancy:usd_monthly_budget{cluster_queue="a"}': 20_000},
    "RolloutStuck": {
        _progressing("false"): 0,
        _progressing("true"): 1,
        _progressing("unknown"): 1,
        _progressing("false", "Available"): 1,
        _progressing("false", namespace="elsewhere"): 1,
    },
    "AutoscalerAtMaximum": {key: 3 if "current" in key else value for key, value in _SCALED.items()},
}


def _rule(alert: str) -> Data:
    """The one alert that a case asks about; promtool evaluates every rule that it is given, minute by minute."""
    rules = [rule for group in observed(budgeted()).rules for rule in group["rules"] if rule.get("alert") == alert]
    return {"groups": [{"name": "tried", "rules": rules}]}


def _minutes(at: str) -> int:
    return int(at[:-1]) * {"m": 1, "h": 60}[at[-1]]


def _chosen(expr: str) -> str:
    for variable, value in CHOSEN.items():
        expr = expr.replace(variable, value)
    return expr


def _board(world: dict[str, Any]) -> list[Data]:
    expressions = {name.removeprefix("gpu-tenancy-"): _chosen(expr) for name, expr, _ in panels(observed(watched()))}
    assert set(expressions) == set(ANSWERS)
    checks = [asks(expr, "90m", ANSWERS[name]) for name, expr in expressions.items()]
    return [{"interval": "1m", "input_series": series(world, 120), "promql_expr_test": checks}]


def test_every_expression_of_a_dashboard_gives_the_answer_worked_out_by_hand(tmp_path: Path) -> None:
    passed, said = tried(_board(WORLD), {"groups": []}, tmp_path)
    assert passed, said


def test_latency_of_a_histogram_is_that_of_the_slowest_pod_in_seconds(tmp_path: Path) -> None:
    sections = watched() | {"metrics": {"histogram": "latency_seconds"}}
    name = "gpu-tenancy-serving/Latency/A"
    (expr,) = (expr for panel, expr, _ in panels(observed(sections)) if panel == name)
    world = {
        f'latency_seconds_{kind}{{namespace="b", service="api", pod="api-5f-{pod}"{le}}}': f"0+{step}x120"
        for pod, below in (("x1", 100), ("x2", 0))
        for kind, le, step in (
            ("bucket", ', le="0.1"', below),
            ("bucket", ', le="0.2"', 100),
            ("bucket", ', le="+Inf"', 100),
            ("count", "", 100),
        )
    }
    check = asks(f"round(1000 * ({expr}))", "90m", {"{}": 199})
    case = {"interval": "1m", "input_series": series(world, 120), "promql_expr_test": [check]}
    passed, said = tried([case], {"groups": []}, tmp_path)
    assert passed, said


@pytest.mark.parametrize("wrong", [("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USE"), ("cluster_queue=", "clusterqueue=")])
def test_another_name_of_a_metric_or_label_is_noticed(tmp_path: Path, wrong: tuple[str, str]) -> None:
    passed, said = tried(_board({key.replace(*wrong): value for key, value in WORLD.items()}), {"groups": []}, tmp_path)
    assert not passed
    assert "nil" in said or "got" in said


@pytest.mark.parametrize("name", ALARMS)
def test_an_alert_fires_after_its_duration(tmp_path: Path, name: str) -> None:
    world, early, late, labels = ALARMS[name]
    alert = name.partition(",")[0]
    checks = [asks(firing(alert), late, {f"{{{label}}}": 1 for label in labels})]
    checks += [asks(firing(alert), early, {})] if early else []
    tests = [{"interval": "1m", "input_series": series(world, _minutes(late)), "promql_expr_test": checks}]
    passed, said = tried(tests, _rule(alert), tmp_path)
    assert passed, said


@pytest.mark.parametrize("name", QUIET)
def test_an_alert_does_not_fire_while_guarantees_hold(tmp_path: Path, name: str) -> None:
    alert = name.partition(",")[0]
    _, _, late, _ = ALARMS[alert]  # when it fires where the promise does not hold
    tests = [
        {
            "interval": "1m",
            "input_series": series(QUIET[name], _minutes(late)),
            "promql_expr_test": [asks(firing(alert), late, {})],
        }
    ]
    passed, said = tried(tests, _rule(alert), tmp_path)
    assert passed, said


def test_every_alert_is_tried() -> None:
    assert {rule["alert"] for group in observed(budgeted()).rules for rule in group["rules"] if "alert" in rule} == {
        name.partition(",")[0] for name in ALARMS
    }


def test_every_recording_rule_gives_the_answer_worked_out_by_hand(tmp_path: Path) -> None:
    (group,) = (group for group in observed(watched()).rules if group["name"] == "gpu-tenancy-usage")
    names = [rule["record"].removeprefix("gpu_tenancy:gpus_") for rule in group["rules"]]
    assert names == list(RECORDED)
    quiet = {key: 3 if "GPU_UTIL" in key and "api-5f-x1" in key else value for key, value in WORLD.items()}
    checks = [
        asks(
            f"gpu_tenancy:gpus_{name}",
            "90m",
            {f"gpu_tenancy:gpus_{name}{labels}": value for labels, value in answers.items()},
        )
        for name, answers in RECORDED.items()
    ]
    # Each failed pod counts once, whatever the moments of the evaluations.
    checks.append(asks("sum(sum_over_time(gpu_tenancy:gpus_failed[2h]) * 300 / 3600)", "119m", {"{}": 8}))
    case = {"interval": "1m", "input_series": series(quiet, 120), "promql_expr_test": checks}
    passed, said = tried([case], {"groups": [group]}, tmp_path, every=group["interval"])
    assert passed, said


def test_without_gpus_the_panels_show_cpus(tmp_path: Path) -> None:
    """10 CPUs guaranteed, 6 of them used, and pending workloads that ask for 5."""
    found = observed(stack(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={"a": team()}))
    cpus = 'cluster_queue="a", flavor="cpu", resource="cpu"'
    world = {
        f"kueue_cluster_queue_nominal_quota{{{cpus}}}": 10,
        f"kueue_cluster_queue_borrowing_limit{{{cpus}}}": 10,
        f"kueue_cluster_queue_resource_reservation{{{cpus}}}": 6,
        f"kueue_cluster_queue_resource_usage{{{cpus}}}": 6,
        'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="cpu"}': 5,
        'kueue_pending_workloads{cluster_queue="a", status="inadmissible"}': 2,
    }
    shown = {
        name: expr.replace("$team", "a").replace("$flavor", "cpu")
        for name, expr, _ in panels(found)
        if "/CPUs now/" in name
    }
    answers = [10, 20, 6, 0, 4, 14]
    checks = [asks(f"sum({expr})", "20m", {"{}": answer}) for expr, answer in zip(shown.values(), answers, strict=True)]
    checks.append(asks(firing("GuaranteeNotHonoured"), "20m", {f"{{{cpus}}}": 1}))
    rules = {"groups": list(found.rules)}
    case = {"interval": "1m", "input_series": series(world, 20), "promql_expr_test": checks}
    passed, said = tried([case], rules, tmp_path)
    assert passed, said
