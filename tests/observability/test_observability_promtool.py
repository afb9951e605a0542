"""Expressions through Prometheus' own promtool, on made-up series with answers that were computed by hand."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from builders import Data, pool, server, stack, team
from observability_builders import asks, budgeted, firing, observed, panels, passes, watched
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
_CPU, _MEMORY = (_QUEUE.replace("nvidia.com/gpu", name) for name in ("cpu", "memory"))
_OTHER = 'cluster_queue="a", flavor="a100", resource="nvidia.com/gpu"'


def _two_flavors(reserved: int) -> dict[str, Any]:
    """A queue with four more A100s, `reserved` of which are reserved; and a flavor that it may not use."""
    quota = {
        f"kueue_cluster_queue_{name}{{{of}}}": value
        for of, values in ((_OTHER, (4, 0, 4)), (_OTHER.replace("a100", "cpu"), (0, 0, 0)))
        for name, value in zip(("nominal_quota", "borrowing_limit", "resource_usage"), values, strict=True)
    }
    unused = {f"kueue_cluster_queue_resource_reservation{{{_OTHER.replace('a100', 'cpu')}}}": 0}
    return {**_QUOTA, **quota, **unused, f"kueue_cluster_queue_resource_reservation{{{_OTHER}}}": reserved}


def _beside(name: str, left: float, asked: float, workloads: int = 1) -> dict[str, Any]:
    """A guarantee of 40 of CPU or memory of which `left` is unused, and requests of pending workloads."""
    of = _QUEUE.replace("nvidia.com/gpu", name)
    return {
        f"kueue_cluster_queue_nominal_quota{{{of}}}": 40,
        f"kueue_cluster_queue_borrowing_limit{{{of}}}": 0,
        f"kueue_cluster_queue_resource_reservation{{{of}}}": 40 - left,
        f'kueue_cluster_queue_resource_pending{{cluster_queue="a", resource="{name}"}}': asked,
        'kueue_pending_workloads{cluster_queue="a", status="inadmissible"}': workloads,
    }


def _uncovered(left: float = 0, memory: float = 40) -> dict[str, Any]:
    """4 of 8 GPUs are idle, and a workload of 4 GPUs, 16 CPUs and 16 bytes is pending."""
    return {**_QUOTA, **_beside("cpu", left, 16), **_beside("memory", memory, 16)}


def _bound(*pods: str) -> dict[str, Any]:
    """Running pods with 4 GPUs each in the namespace of a queue that counts 4 GPUs."""
    made = {
        f'{name}{{namespace="a", pod="{pod}"{more}}}': value
        for pod in pods
        for name, more, value in (
            ("kube_pod_container_resource_requests", ', node="n1", resource="nvidia_com_gpu"', 4),
            ("kube_pod_status_phase", ', phase="Running"', 1),
        )
    }
    return {**_QUOTA, **made}


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
    "GuaranteeNotHonoured, CPU is used up": (_uncovered(), "9m", "11m", [_QUEUE]),
    "GuaranteeNotCovered": (_uncovered(), "9m", "11m", [_CPU]),
    "GuaranteeNotCovered, CPU is borrowed": (_uncovered(left=-8), "9m", "11m", [_CPU]),
    "GuaranteeNotCovered, too little memory is left": (_uncovered(left=16, memory=15), "9m", "11m", [_MEMORY]),
    "GuaranteeNotCovered, CPU and memory": (_uncovered(left=15, memory=0), "9m", "11m", [_CPU, _MEMORY]),
    "GpusNotCounted": (_bound("a", "b"), "1m", "3m", ['cluster_queue="a"']),
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
    "AdmissionPolicyChanged": ({_requests("WATCH"): 3, _requests(): "_x89 1x100", _requests("APPLY"): "7x89 8x100"},
        "88m", "95m", [f'verb="{verb}", resource="validatingadmissionpolicybindings"' for verb in ("DELETE", "APPLY")]),
    "MonthlyBudgetExceeded": (_SPENT, "66m", "68m", ['cluster_queue="a"']),
    "AutoscalerAtMaximum": (_SCALED, "14m", "16m", ['namespace="b", horizontalpodautoscaler="api"']),
    "RolloutStuck": ({_progressing("false"): "0x19 1x40", _progressing("true"): "1x19 0x40"}, "23m", "26m",
        ['namespace="b", deployment="api"']),
}  # fmt: skip
_ASKED = 'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="nvidia.com/gpu"}'
QUIET: dict[str, dict[str, Any]] = {
    "AdmissionPolicyChanged, but Prometheus has just begun": {_requests("WATCH"): "_x60 3x100",
        _requests(): "_x60 1x100"},
    "AdmissionPolicyChanged": {_requests("APPLY"): "7x200", _requests("WATCH"): 3,
        _requests("APPLY", code="201"): "_x89 1x100", _requests("APPLY", dry_run="All"): "_x89 1x100",
        _requests("APPLY", subresource="status"): "_x89 1x100", _requests("DELETE", code="403"): "_x89 1x100"},
    "GpusNotCounted": _bound("a"),
    "GpusNotCounted, but a pod terminates": {
        **_bound("a", "b"),
        'kube_pod_deletion_timestamp{namespace="a", pod="b"}': 1,
    },
    "GpusNotCounted, Volcano counts the other pod": {
        **_bound("a", "b"),
        'volcano_queue_allocated_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 4000,
    },
    "GuaranteeNotHonoured": {**_QUOTA, f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 8},
    "GuaranteeNotHonoured, what waits asks for no GPU": {**_QUOTA, _ASKED: 0},
    "GuaranteeNotHonoured, what waits may want the other flavor": _two_flavors(4),
    "GuaranteeNotHonoured, what waits is larger than what is left": {**_QUOTA, _ASKED: 5},
    "GuaranteeNotCovered": _uncovered(left=16),
    "GuaranteeNotCovered, a fraction of a CPU is left": {**_QUOTA, **_beside("cpu", 15.9, 15.9)},
    "GuaranteeNotCovered, no quota of CPU and memory": _QUOTA,
    "GuaranteeNotCovered, all GPUs are used": {
        **_uncovered(),
        f"kueue_cluster_queue_resource_reservation{{{_QUEUE}}}": 8,
    },
    "GuaranteeNotCovered, pending workloads request no GPU": {**_uncovered(), _ASKED: 0},
    "GuaranteeNotCovered, pending workloads may request the other flavor": {**_two_flavors(4), **_beside("cpu", 0, 16)},
    "GuaranteeNotCovered, workloads fit one by one": {**_QUOTA, **_beside("cpu", 16, 32, workloads=2)},
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
    "RolloutStuck": {_progressing("false"): 0, _progressing("true"): 1, _progressing("unknown"): 1,
        _progressing("false", "Available"): 1, _progressing("false", namespace="elsewhere"): 1},
    "AutoscalerAtMaximum": {key: 3 if "current" in key else value for key, value in _SCALED.items()},
}  # fmt: skip


def _rule(alert: str, sections: Data | None = None) -> list[Data]:
    """The one alert of a case; promtool evaluates every given rule, minute by minute."""
    groups = observed(sections or budgeted()).rules
    return [
        {"name": "tried", "rules": [one for group in groups for one in group["rules"] if one.get("alert") == alert]}
    ]


def _chosen(expr: str) -> str:
    for variable, value in CHOSEN.items():
        expr = expr.replace(variable, value)
    return expr


def _board() -> list[Data]:
    expressions = {name.removeprefix("gpu-tenancy-"): _chosen(expr) for name, expr, _ in panels(observed(watched()))}
    assert set(expressions) == set(ANSWERS)
    return [asks(expr, "90m", ANSWERS[name]) for name, expr in expressions.items()]


def test_dashboard_expressions_give_the_expected_answers() -> None:
    passes(WORLD, _board())


def test_the_latency_of_a_histogram_is_that_of_the_slowest_pod() -> None:
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
    passes(world, [asks(f"round(1000 * ({expr}))", "90m", {"{}": 199})])


@pytest.mark.parametrize("wrong", [("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USE"), ("cluster_queue=", "clusterqueue=")])
def test_another_name_of_a_metric_or_label_is_noticed(wrong: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"nil|got"):
        passes({key.replace(*wrong): value for key, value in WORLD.items()}, _board())


@pytest.mark.parametrize("name", ALARMS)
def test_an_alert_fires_after_its_duration(name: str) -> None:
    world, early, late, labels = ALARMS[name]
    alert = name.partition(",")[0]
    checks = [asks(firing(alert), late, {f"{{{label}}}": 1 for label in labels})]
    checks += [asks(firing(alert), early, {})] if early else []
    passes(world, checks, _rule(alert))


@pytest.mark.parametrize("name", QUIET)
def test_an_alert_does_not_fire_while_guarantees_hold(name: str) -> None:
    alert = name.partition(",")[0]
    _, _, late, _ = ALARMS[alert]  # when it fires where the promise does not hold
    passes(QUIET[name], [asks(firing(alert), late, {})], _rule(alert))


@pytest.mark.parametrize(
    ("left", "resource", "said"),
    [
        (10, "cpu", "CPU. Pending workloads request more than the 10 "),
        (16, "memory", "memory. Pending workloads request more than the 8Gi "),
    ],
)
def test_not_covered_alert_names_resource_and_rest(left: float, resource: str, said: str) -> None:
    (group,) = _rule("GuaranteeNotCovered")
    (rule,) = group["rules"]
    rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    world = {**_QUOTA, **_beside("cpu", left, 16)}
    if resource == "memory":
        world |= {
            name: value * 2**30 if "workloads" not in name else value
            for name, value in _beside("memory", 8, 16).items()
        }
    expected = {
        "exp_labels": {"severity": "warning", "cluster_queue": "a", "flavor": "h100", "resource": resource},
        "exp_annotations": {"summary": f"a is not covered: {said}left of its guarantee of h100, but no more GPUs"},
    }
    passes(world, [{"eval_time": "11m", "alertname": rule["alert"], "exp_alerts": [expected]}], [group])


def test_every_alert_is_tried() -> None:
    assert {rule["alert"] for group in observed(budgeted()).rules for rule in group["rules"] if "alert" in rule} == {
        name.partition(",")[0] for name in ALARMS
    }


def test_recording_rules_give_the_expected_answers() -> None:
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
    passes(quiet, checks, [group], every=group["interval"])


def test_without_gpus_the_panels_show_cpus() -> None:
    """10 CPUs and no memory guaranteed, 6 CPUs used, and pending workloads that request 5 and memory."""
    found = observed(stack(pools={"cpu": pool("m7i.8xlarge", 3)}, teams={"a": team()}))
    cpus, memory = (f'cluster_queue="a", flavor="cpu", resource="{name}"' for name in ("cpu", "memory"))
    world = {
        f"kueue_cluster_queue_nominal_quota{{{cpus}}}": 10,
        f"kueue_cluster_queue_borrowing_limit{{{cpus}}}": 10,
        f"kueue_cluster_queue_resource_reservation{{{cpus}}}": 6,
        f"kueue_cluster_queue_resource_usage{{{cpus}}}": 6,
        'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="cpu"}': 5,
        f"kueue_cluster_queue_nominal_quota{{{memory}}}": 0,
        f"kueue_cluster_queue_borrowing_limit{{{memory}}}": "Inf",
        f"kueue_cluster_queue_resource_reservation{{{memory}}}": 0,
        'kueue_cluster_queue_resource_pending{cluster_queue="a", resource="memory"}': 2**34,
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
    checks.append(asks(firing("GuaranteeNotCovered"), "20m", {f"{{{memory}}}": 1}))
    passes(world, checks, found.rules)


# Waiting times of Kueue's histograms through Prometheus' own promtool: what counts as a guarantee given back


# 320 to 2560 seconds: the buckets that this test needs.
_BOUNDS: tuple[float | str, ...] = (*(2.5 * 2.0**power for power in range(7, 11)), "+Inf")
_SHARE = 'flavor="h100", resource="nvidia.com/gpu"'


def _group(name: str) -> Data:
    (group,) = (group for group in observed(budgeted()).rules if group["name"] == f"gpu-tenancy-{name}")
    return {"name": name, "rules": group["rules"]}


def _queue(name: str, reserved: int, pending: int, workloads: int) -> dict[str, Any]:
    """A queue that is guaranteed 8 GPUs and may use 12; 8 others are of a flavor that it may not use."""
    of = f'cluster_queue="{name}"'
    return {
        f"kueue_cluster_queue_nominal_quota{{{of}, {_SHARE}}}": 8,
        f"kueue_cluster_queue_borrowing_limit{{{of}, {_SHARE}}}": 4,
        f"kueue_cluster_queue_resource_reservation{{{of}, {_SHARE}}}": reserved,
        f'kueue_cluster_queue_nominal_quota{{{of}, flavor="cpu", resource="nvidia.com/gpu"}}': 0,
        f'kueue_cluster_queue_borrowing_limit{{{of}, flavor="cpu", resource="nvidia.com/gpu"}}': 0,
        f'kueue_cluster_queue_resource_reservation{{{of}, flavor="cpu", resource="nvidia.com/gpu"}}': 0,
        f'kueue_pending_workloads{{{of}, status="inadmissible"}}': workloads,
        **({f'kueue_cluster_queue_resource_pending{{{of}, resource="nvidia.com/gpu"}}': pending} if pending else {}),
    }


def test_demand_is_within_the_guarantee_if_all_pending_fits() -> None:
    queues = {"fits": (4, 4, 1), "idle": (0, 0, 0), "exceeds": (4, 5, 1), "borrows": (9, 0, 0), "no-gpus": (4, 0, 1)}
    world = {key: value for name, state in queues.items() for key, value in _queue(name, *state).items()}
    world |= {key: 0 if "nominal" in key else value for key, value in _queue("unguaranteed", 0, 0, 0).items()}
    found = "gpu_tenancy:demand_within_guarantee"
    expected = {f'{found}{{cluster_queue="{name}"}}': 1.0 for name in ("fits", "idle")}
    passes(world, [asks(found, "5m", expected)], [_group("demand")])


def _histogram(queue: str, steps: Mapping[float | str, str], pod: str = "1") -> dict[str, Any]:
    name = "kueue_admission_wait_time_seconds_bucket"
    of = f'cluster_queue="{queue}", priority_class="production", pod="{pod}"'
    return {
        f'{name}{{{of}, le="{bound:g}"}}' if bound != "+Inf" else f'{name}{{{of}, le="+Inf"}}': values
        for bound, values in steps.items()
    }


def _ask(recorded: str, at: str, expected: dict[str, float]) -> Data:
    return asks(recorded, at, {f"{recorded.partition('{')[0]}{labels}": value for labels, value in expected.items()})


def test_admissions_count_once_and_those_after_the_time_are_late() -> None:
    """In the interval to 20 minutes, a workload that waited 320 to 640 s, and one that waited longer, of each queue."""
    steps = dict(zip(_BOUNDS, ("7x10", "7x3 8x6", "7x3 9x6", "7x3 9x6", "7x3 9x6"), strict=True))
    world: dict[str, Any] = {
        **_histogram("clean", steps),
        **_histogram("unclean", steps),
        'gpu_tenancy:demand_within_guarantee{cluster_queue="clean"}': 1,
        'gpu_tenancy:demand_within_guarantee{cluster_queue="unclean"}': "1 1 _ 1x10",
        f'kueue_cluster_queue_nominal_quota{{cluster_queue="clean", {_SHARE}}}': 8,
    }
    rules = _group("promises")
    for rule in rules["rules"]:  # One evaluation every 5 minutes here, 15 samples of a minute there.
        rule["expr"] = rule["expr"].replace("[899s]) >= 15", "[899s]) >= 3")
    labels = 'cluster_queue="{}", level="{}"{}'
    waiting = ', priority_class="production"'
    # Within 600 s: nothing of what waited to 320, seven eighths of what waited to 640.
    guarantee = {"{" + labels.format("clean", "guarantee", "") + "}": 2.0}
    # Within 1800 s: all that waited to 1280.
    both = {"{" + labels.format(queue, "waiting", waiting) + "}": 2.0 for queue in ("clean", "unclean")}
    checks = [
        _ask('gpu_tenancy:admissions{level="guarantee"}', "20m", guarantee),
        _ask('gpu_tenancy:admissions_late{level="guarantee"}', "20m", dict.fromkeys(guarantee, 2 - 0.875)),
        _ask('gpu_tenancy:admissions{level="waiting"}', "20m", both),
        _ask('gpu_tenancy:admissions_late{level="waiting"}', "20m", dict.fromkeys(both, 0.0)),
        _ask('gpu_tenancy:admissions{level="waiting"}', "25m", dict.fromkeys(both, 0.0)),
    ]
    passes(world, checks, [rules], interval="5m", every="5m")


def test_restarts_of_kueue_and_prometheus_change_no_count() -> None:
    world: dict[str, Any] = {
        **_histogram("a", {"+Inf": "9 9 2 2 3 3"}),  # reset, and two since
        **_histogram("b", {"+Inf": "_ _ _ 1 1 1"}, pod="2"),  # a series begins with 1
        f'kueue_cluster_queue_nominal_quota{{cluster_queue="a", {_SHARE}}}': 8,
    }
    found = 'sum by (cluster_queue) (sum_over_time(gpu_tenancy:wait_seconds_bucket{le="+Inf"}[1h]))'
    checks = [asks(found, "25m", {'{cluster_queue="a"}': 3.0, '{cluster_queue="b"}': 1.0})]
    passes(world, checks, [_group("promises")], interval="5m", every="5m")


# Panels and alerts of servers through Prometheus' own promtool: what an engine measures, and its service level


OF = 'namespace="a", service="chat", pod="chat-5f-x1"'
VLLM = f'{OF}, model_name="llama", engine="0"'


def serving(**fields: Any) -> Data:
    chat = {
        "engine": "vllm",
        "model": {"dataset": "weights"},
        "serviceLevel": {"firstToken": "500ms", "latency": "10s"},
        **fields,
    }
    of_team = team(gpus={"h100": {"guaranteed": 8}}, serving={"chat": server(**chat)})
    measured = {"prometheus": "installed"}
    return stack(teams={"a": of_team}, datasets={"weights": "s3://ml-weights"}, operators=measured)


def histogram(name: str, bound: str, good: int, of: int) -> Data:
    """Requests of each minute, `good` of which are below a bound, and all below infinity."""
    return {
        f'vllm:{name}_bucket{{{VLLM}, le="0.3"}}': "0x5000",
        f'vllm:{name}_bucket{{{VLLM}, le="{bound}"}}': f"0+{good}x5000",
        f'vllm:{name}_bucket{{{VLLM}, le="+Inf"}}': f"0+{of}x5000",
        f"vllm:{name}_count{{{VLLM}}}": f"0+{of}x5000",
    }


def world(late: int = 0, slow: int = 0, failed: int = 0, waiting: int = 0, cache: float = 0.5) -> Data:
    """60 requests a minute, with these numbers of late, slow or failed ones."""
    return {
        **histogram("time_to_first_token_seconds", "0.5", 60 - late, 60),
        **histogram("e2e_request_latency_seconds", "10.0", 60 - slow, 60),
        f'http_requests_total{{{OF}, handler="/v1/completions", method="POST", status="2xx"}}': f"0+{60 - failed}x5000",
        f'http_requests_total{{{OF}, handler="/v1/completions", method="POST", status="5xx"}}': f"0+{failed}x5000",
        f"vllm:num_requests_running{{{VLLM}}}": "8x5000",
        f"vllm:num_requests_waiting{{{VLLM}}}": f"{waiting}x5000",
        f"vllm:kv_cache_usage_perc{{{VLLM}}}": f"{cache}x5000",
        f"vllm:generation_tokens_total{{{VLLM}}}": "0+6000x5000",
        # Another server's, which counts nowhere.
        'vllm:num_requests_waiting{namespace="b", service="chat", pod="x"}': "99x5000",
    }


FAILURES: Final = f'http_requests_total{{{OF}, handler="/v1/completions", method="POST", status="5xx"}}'
ENDED: Final = {**world(), FAILURES: "0+15x60 900x5000"}
ALARMS_OF_SERVERS: Final[dict[str, tuple[str, Data, str, int]]] = {
    # A quarter of the requests, where 1 % may be bad in 30 days.
    **{
        f"{bad} requests": ("ServiceLevelBurnsFast", world(**{bad: 15}), "15m", 1) for bad in ("late", "slow", "failed")
    },
    # One of 30 requests: more than 3 times the budget, and less than 6 times.
    "a slow burn is not a fast one": ("ServiceLevelBurnsFast", world(failed=2), "8h", 0),
    "a slow burn": ("ServiceLevelBurnsSlowly", world(failed=2), "8h", 1),
    "a burn that ends": ("ServiceLevelBurnsFast", ENDED, "30m", 1),
    "a burn that is over": ("ServiceLevelBurnsFast", ENDED, "100m", 0),
    "more waiting than running requests": ("RequestsWait", world(waiting=9), "40m", 1),
    "a full cache": ("KvCacheFull", world(cache=0.99), "40m", 1),
    **{
        f"a server that answers in time: {alert}": (alert, world(waiting=8, cache=0.9), "8h", 0)
        for alert in ("ServiceLevelBurnsFast", "ServiceLevelBurnsSlowly", "RequestsWait", "KvCacheFull")
    },
}
"""An alert, a world, a moment, and whether the alert fires then."""

ANSWERS_SERVERS = {
    "Time to the first token/A": 0.4,
    "Time to the first token/B": 0.498,
    "Time to the whole answer/A": 5.15,
    "Time to the whole answer/B": 9.903,
    "Requests in progress/A": 8,
    "Requests in progress/B": 3,
    "Tokens per second/A": 100,
    "KV cache/A": 50,
    "Requests per second/A": 1,
    "Requests per second/B": 0.1,
}


def test_panels_show_what_the_engine_measures() -> None:
    shown = {name.removeprefix("gpu-tenancy-serving/"): expr for name, expr, _ in panels(observed(serving()))}
    checks = [asks(f"round({shown[name]}, 0.001)", "90m", {"{}": answer}) for name, answer in ANSWERS_SERVERS.items()]
    passes(world(failed=6, waiting=3), checks)


@pytest.mark.parametrize("name", ALARMS_OF_SERVERS)
def test_an_alert_of_a_server_fires_or_not(name: str) -> None:
    alert, found, at, expected = ALARMS_OF_SERVERS[name]
    count = f'count(ALERTS{{alertname="{alert}", alertstate="firing", namespace="a", server="chat"}}) or vector(0)'
    passes(found, [asks(count, at, {"{}": expected})], _rule(alert, serving()), every="5m")


def test_every_alert_of_servers_is_tried_above() -> None:
    (group,) = (group for group in observed(serving()).rules if group["name"] == "gpu-tenancy-servers")
    assert {one["alert"] for one in group["rules"]} == {alert for alert, *_ in ALARMS_OF_SERVERS.values()}


def test_a_server_without_metrics_has_no_alerts_and_panels() -> None:
    found = observed(serving(engine="custom", model=None, serviceLevel={}))
    assert "gpu-tenancy-servers" not in {group["name"] for group in found.rules}
    titles = {name.split("/")[1] for name, _, _ in panels(found)}
    assert titles.isdisjoint(name.partition("/")[0] for name in ANSWERS_SERVERS)
