"""Every expression through Prometheus' own promtool, on made-up series whose answers were worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from builders import Data
from observability_builders import LATENCY, observed, panels, tried, watched

# Not ".*", which also matches a label that is not there.
CHOSEN = {"$node": ".+", "$team": ".+", "$flavor": ".+", "$job": ".+"}

# Three GPU nodes: n1 whole, n2 with one GPU withheld, n3 not ready; c1 has none. One job runs, one waits, one is
# done, one failed; b serves. In each pair of Kueue's series a second replica says the same.
WORLD = {
    **{f'kube_node_status_capacity{{node="n{n}", resource="nvidia_com_gpu", unit="integer"}}': 8 for n in (1, 2, 3)},
    'kube_node_status_capacity{node="c1", resource="cpu", unit="core"}': 32,
    'kube_node_status_allocatable{node="n1", resource="nvidia_com_gpu", unit="integer"}': 8,
    'kube_node_status_allocatable{node="n2", resource="nvidia_com_gpu", unit="integer"}': 7,
    'kube_node_status_allocatable{node="n3", resource="nvidia_com_gpu", unit="integer"}': 8,
    **{
        f'kube_node_status_condition{{node="{node}", condition="Ready", status="true"}}': ready
        for node, ready in {"n1": 1, "n2": 1, "n3": 0, "c1": 0}.items()
    },
    'kube_pod_container_resource_requests{namespace="a", pod="train-1", node="n1", resource="nvidia_com_gpu"}': 4,
    'kube_pod_container_resource_requests{namespace="a", pod="old-1", node="n1", resource="nvidia_com_gpu"}': 8,
    'kube_pod_container_resource_requests{namespace="a", pod="wait-1", node="", resource="nvidia_com_gpu"}': 8,
    'kube_pod_container_resource_requests{namespace="b", pod="api-5f-x1", node="n2", resource="nvidia_com_gpu"}': 2,
    'kube_pod_container_resource_requests{namespace="b", pod="api-5f-x1", node="n2", resource="cpu"}': 64,
    'kube_pod_status_phase{namespace="a", pod="train-1", phase="Running"}': 1,
    'kube_pod_status_phase{namespace="a", pod="train-1", phase="Pending"}': 0,
    'kube_pod_status_phase{namespace="a", pod="old-1", phase="Running"}': 0,
    'kube_pod_status_phase{namespace="a", pod="old-1", phase="Succeeded"}': 1,
    'kube_pod_status_phase{namespace="a", pod="wait-1", phase="Pending"}': 1,
    'kube_pod_status_phase{namespace="b", pod="api-5f-x1", phase="Running"}': 1,
    'kube_pod_info{namespace="a", pod="train-1", node="n1", created_by_kind="Job", created_by_name="train"}': 1,
    'kube_pod_info{namespace="a", pod="old-1", node="n1", created_by_kind="Job", created_by_name="old"}': 1,
    'kube_pod_info{namespace="b", pod="api-5f-x1", node="n2", created_by_kind="ReplicaSet"}': 1,
    **{
        f'DCGM_FI_DEV_{field}{{Hostname="n{node}", gpu="{gpu}"{pod}}}': value
        for node, gpu, pod, values in (
            (1, 0, ', exported_namespace="a", exported_pod="train-1"', (80, 30000, 50000, 79)),
            (1, 1, "", (0, 0, 80000, 31)),
            (2, 0, ', exported_namespace="b", exported_pod="api-5f-x1"', (40, 10000, 70000, 0)),
        )
        for field, value in zip(("GPU_UTIL", "FB_USED", "FB_FREE", "XID_ERRORS"), values, strict=True)
    },
    'kube_job_created{namespace="a", job_name="train"}': 0,
    'kube_job_created{namespace="a", job_name="wait"}': 600,
    'kube_job_status_active{namespace="a", job_name="train"}': 1,
    'kube_job_status_active{namespace="a", job_name="wait"}': 0,
    'kube_job_status_active{namespace="kube-system", job_name="clean"}': 1,
    'kube_job_status_suspended{namespace="a", job_name="train", condition="true"}': 0,
    'kube_job_status_suspended{namespace="a", job_name="wait", condition="true"}': 1,
    'kube_job_complete{namespace="a", job_name="old", condition="true"}': 1,
    'kube_job_failed{namespace="a", job_name="bad", condition="true"}': 1,
    'kube_job_status_failed{namespace="a", job_name="bad", reason="BackoffLimitExceeded"}': 3,
    **{
        f'kueue_cluster_queue_{name}{{cohort="org", cluster_queue="{queue}", flavor="h100",'
        f' resource="nvidia.com/gpu", replica_role="{role}"}}': value
        for role in ("leader", "follower")
        for queue, values in {"a": (8, 4, 11), "b": (4, 0, 2)}.items()
        for name, value in zip(("nominal_quota", "borrowing_limit", "resource_usage"), values, strict=True)
    },
    'kueue_cluster_queue_nominal_quota{cluster_queue="a", flavor="h100", resource="cpu", replica_role="leader"}': 99,
    'kueue_pending_workloads{cluster_queue="a", status="active", replica_role="leader"}': 2,
    'kueue_pending_workloads{cluster_queue="a", status="inadmissible", replica_role="leader"}': 1,
    'kueue_evicted_workloads_total{cluster_queue="a", reason="Preempted", replica_role="leader"}': "0+1x120",
    'kueue_cluster_queue_status{cluster_queue="a", status="active", replica_role="leader"}': 1,
    'kueue_cluster_queue_status{cluster_queue="a", status="pending", replica_role="leader"}': 0,
    'kueue_cluster_queue_status{cluster_queue="b", status="pending", replica_role="leader"}': 1,
    'kube_resourcequota{namespace="a", resource="requests.nvidia.com/gpu", type="hard"}': 12,
    'kube_resourcequota{namespace="a", resource="requests.cpu", type="hard"}': 64,
    'volcano_queue_deserved_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 4000,
    'volcano_queue_capacity_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 8000,
    'volcano_queue_allocated_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 3000,
    **{
        f'kube_horizontalpodautoscaler_{name}{{namespace="b", horizontalpodautoscaler="api"}}': value
        for name, value in {
            "status_current_replicas": 3,
            "status_desired_replicas": 4,
            "spec_min_replicas": 1,
            "spec_max_replicas": 5,
        }.items()
    },
    'keda_scaler_detail_errors_total{scaledObject="api", scaler="prometheus"}': "0+1x120",
    f'{LATENCY}{{namespace="b", pod="api-5f-x1"}}': 0.08,
    f'{LATENCY}{{namespace="b", pod="api-5f-x2"}}': 0.12,
    f'{LATENCY}{{namespace="b", pod="api-two-5f-x2"}}': 9,
}


def _share(queue: str) -> str:
    return f'{{cluster_queue="{queue}", flavor="h100", resource="nvidia.com/gpu"}}'


def _hpa(value: float) -> dict[str, float]:
    return {'{namespace="b", horizontalpodautoscaler="api"}': value}


def _gang(value: float) -> dict[str, float]:
    return {'{queue_name="a-h100", resource="nvidia.com/gpu"}': value}


ANSWERS: dict[str, dict[str, float]] = {
    "cluster/GPU nodes/A": {"{}": 3},
    "cluster/Unhealthy GPU nodes/A": {"{}": 2},
    "cluster/GPUs/A": {"{}": 23},
    "cluster/GPUs allocated/A": {"{}": 6},
    "cluster/GPU utilisation/A": {"{}": 40},
    "cluster/GPU memory/A": {"{}": 40000},
    "cluster/GPU memory/B": {"{}": 160000},
    "cluster/GPU memory/C": {"{}": 240000},
    **{f"cluster/Training jobs/{letter}": {"{}": 1} for letter in "ABCD"},
    "nodes/Unhealthy/A": {'{node="n2"}': 8, '{node="n3"}': 8},
    "nodes/GPUs/A": {'{node="n1"}': 8, '{node="n2"}': 7, '{node="n3"}': 8},
    "nodes/GPUs/B": {'{node="n1"}': 4, '{node="n2"}': 2},
    "nodes/GPU utilisation/A": {'{Hostname="n1"}': 40, '{Hostname="n2"}': 40},
    "nodes/GPU memory/A": {'{Hostname="n1"}': 30000, '{Hostname="n2"}': 10000},
    "nodes/GPU memory/B": {'{Hostname="n1"}': 80000, '{Hostname="n2"}': 80000},
    "nodes/Pods of training jobs/A": {'{node="n1"}': 1},
    "training/Active pods/A": {
        '{namespace="a", job_name="train"}': 1,
        '{namespace="a", job_name="wait"}': 0,
        '{namespace="kube-system", job_name="clean"}': 1,
    },
    "training/Failed pods/A": {'{namespace="a", job_name="bad"}': 3},
    "training/Age of what waits/A": {'{namespace="a", job_name="wait"}': 4800},
    "training/GPUs/A": {'{namespace="a", created_by_name="train"}': 4},
    "training/GPU utilisation/A": {'{namespace="a", created_by_name="train"}': 80},
    "training/GPU memory used/A": {'{namespace="a", created_by_name="train"}': 30000},
    "quota/Minimum/A": {_share("a"): 8, _share("b"): 4},
    "quota/Maximum/A": {_share("a"): 12, _share("b"): 4},
    "quota/Used/A": {_share("a"): 11, _share("b"): 2},
    "quota/Borrows/A": {_share("a"): 3},
    "quota/Left to borrowers/A": {_share("b"): 2},
    "quota/Waiting/A": {'{cluster_queue="a", status="active"}': 2, '{cluster_queue="a", status="inadmissible"}': 1},
    "quota/Pushed back within the hour/A": {'{cluster_queue="a", reason="Preempted"}': 60},
    "quota/Queues that admit nothing/A": {'{cluster_queue="b", status="pending"}': 1},
    "quota/Budget of the namespace/A": {'{namespace="a", resource="requests.nvidia.com/gpu", type="hard"}': 12},
    **{f"quota/Gangs/{letter}": _gang(value) for letter, value in {"A": 4, "B": 8, "C": 3}.items()},
    **{f"serving/Replicas/{letter}": _hpa(value) for letter, value in {"A": 3, "B": 4, "C": 1, "D": 5}.items()},
    "serving/Triggers of KEDA's that fail/A": {'{scaledObject="api"}': 60},
    "serving/b/api: latency/A": {"{}": 0.12},
    "serving/b/api: latency/B": {"{}": 0.1},
    "serving/b/api: GPU utilisation/A": {"{}": 40},
    "serving/b/api: GPUs/A": {"{}": 2},
}

_QUEUE = 'cluster_queue="a", flavor="h100", resource="nvidia.com/gpu"'
_QUOTA: dict[str, Any] = {
    f"kueue_cluster_queue_nominal_quota{{{_QUEUE}}}": 8,
    f"kueue_cluster_queue_borrowing_limit{{{_QUEUE}}}": 4,
    f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 4,
    f"kueue_cluster_queue_resource_usage{{{_QUEUE}}}": 4,
    'kueue_pending_workloads{cluster_queue="a", status="inadmissible"}': 1,
    'kueue_admitted_active_workloads{cluster_queue="a"}': 1,
    'kueue_admitted_workloads_total{cluster_queue="a"}': 7,
}
_STUCK = {**_QUOTA, 'kueue_admitted_active_workloads{cluster_queue="a"}': 0}
_FULL = {**_QUOTA, f"kueue_cluster_queue_resource_usage{{{_QUEUE}}}": 12}
_SCALED = {
    'kube_horizontalpodautoscaler_status_current_replicas{namespace="b", horizontalpodautoscaler="api"}': 4,
    'kube_horizontalpodautoscaler_spec_max_replicas{namespace="b", horizontalpodautoscaler="api"}': 4,
}

# What there is, what fires, when it does not yet, and when it does: labels beside the alert's own.
ALARMS: dict[str, tuple[dict[str, Any], str, str, list[str]]] = {
    "GpuNodeUnhealthy": (WORLD, "9m", "11m", ['node="n2"', 'node="n3"']),
    "GpuXidError": (WORLD, "", "1m", ['Hostname="n1", gpu="0"']),
    "GuaranteeNotHonoured": (_QUOTA, "9m", "11m", [_QUEUE]),
    "QueueStuck": (_STUCK, "29m", "91m", ['cluster_queue="a"']),
    "TeamAtLimit": (_FULL, "23h", "25h", [_QUEUE]),
    "AutoscalerAtMaximum": (_SCALED, "14m", "16m", ['namespace="b", horizontalpodautoscaler="api"']),
}
QUIET: dict[str, dict[str, Any]] = {
    "GuaranteeNotHonoured": {**_QUOTA, f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 8},
    "QueueStuck": {**_STUCK, 'kueue_admitted_workloads_total{cluster_queue="a"}': "0+1x1600"},
    "QueueStuck, yet one runs": {**_STUCK, 'kueue_admitted_active_workloads{cluster_queue="a"}': 1},
    "TeamAtLimit": {**_FULL, f"kueue_cluster_queue_borrowing_limit{{{_QUEUE}}}": "Inf"},
    "AutoscalerAtMaximum": {key: 3 if "current" in key else value for key, value in _SCALED.items()},
}


def _series(world: dict[str, Any], minutes: int) -> list[Data]:
    def values(value: Any) -> str:
        if value == "Inf":  # which promtool takes in a list alone
            return " ".join(["Inf"] * minutes)
        return value if isinstance(value, str) else f"{value}x{minutes}"

    return [{"series": name, "values": values(value)} for name, value in world.items()]


def _rules() -> Data:
    return {"groups": list(observed(watched()).rules)}


def _firing(name: str) -> str:
    return f'sum without (alertname, alertstate, severity) (ALERTS{{alertname="{name}", alertstate="firing"}})'


def _asks(expr: str, at: str, answer: dict[str, float]) -> Data:
    samples = [{"labels": labels, "value": value} for labels, value in answer.items()]
    return {"expr": expr, "eval_time": at, "exp_samples": samples}


def _chosen(expr: str) -> str:
    for variable, value in CHOSEN.items():
        expr = expr.replace(variable, value)
    return expr


def _board(world: dict[str, Any]) -> list[Data]:
    found = {name.removeprefix("gpu-tenancy-"): _chosen(expr) for name, expr, _ in panels(observed(watched()))}
    assert set(found) == set(ANSWERS)
    checks = [_asks(expr, "90m", ANSWERS[name]) for name, expr in found.items()]
    return [{"interval": "1m", "input_series": _series(world, 120), "promql_expr_test": checks}]


def test_every_expression_of_a_dashboard_gives_the_answer_worked_out_by_hand(tmp_path: Path) -> None:
    passed, said = tried(_board(WORLD), {"groups": []}, tmp_path)
    assert passed, said


def test_latency_of_a_histogram_is_that_of_the_slowest_pod_in_seconds(tmp_path: Path) -> None:
    sections = watched() | {"metrics": {"histogram": "latency_seconds"}}
    name = "gpu-tenancy-serving/b/api: latency/A"
    (expr,) = (expr for found, expr, _ in panels(observed(sections)) if found == name)
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
    check = _asks(f"round(1000 * ({expr}))", "90m", {"{}": 199})
    case = {"interval": "1m", "input_series": _series(world, 120), "promql_expr_test": [check]}
    passed, said = tried([case], {"groups": []}, tmp_path)
    assert passed, said


@pytest.mark.parametrize("wrong", [("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USE"), ("cluster_queue=", "clusterqueue=")])
def test_another_name_of_a_metric_or_label_is_noticed(tmp_path: Path, wrong: tuple[str, str]) -> None:
    passed, said = tried(_board({key.replace(*wrong): value for key, value in WORLD.items()}), {"groups": []}, tmp_path)
    assert not passed
    assert "nil" in said or "got" in said


@pytest.mark.parametrize("name", ALARMS)
def test_an_alert_fires_for_what_it_names_and_not_too_early(tmp_path: Path, name: str) -> None:
    world, early, late, labels = ALARMS[name]
    checks = [_asks(_firing(name), late, {f"{{{each}}}": 1 for each in labels})]
    checks += [_asks(_firing(name), early, {})] if early else []
    tests = [{"interval": "1m", "input_series": _series(world, 1600), "promql_expr_test": checks}]
    passed, said = tried(tests, _rules(), tmp_path)
    assert passed, said


@pytest.mark.parametrize("name", QUIET)
def test_an_alert_is_quiet_where_the_promise_holds(tmp_path: Path, name: str) -> None:
    checks = [_asks(_firing(name.partition(",")[0]), "25h", {})]
    tests = [{"interval": "1m", "input_series": _series(QUIET[name], 1600), "promql_expr_test": checks}]
    passed, said = tried(tests, _rules(), tmp_path)
    assert passed, said


def test_every_alert_is_tried() -> None:
    assert {rule["alert"] for group in observed(watched()).rules for rule in group["rules"]} == set(ALARMS)
