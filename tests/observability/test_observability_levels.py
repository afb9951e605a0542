"""Waiting times of Kueue's histograms through Prometheus' own promtool: what counts as a guarantee given back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import Data
from observability_builders import asks, budgeted, observed, series, tried

pytestmark = pytest.mark.process

_BOUNDS: tuple[float | str, ...] = (*(2.5 * 2.0**power for power in range(7, 11)), "+Inf")
"""320 to 2560 seconds: the buckets that this test needs."""
_SHARE = 'flavor="h100", resource="nvidia.com/gpu"'


def _group(name: str) -> Data:
    (group,) = (group for group in observed(budgeted()).rules if group["name"] == f"gpu-tenancy-{name}")
    return {"groups": [{"name": name, "rules": group["rules"]}]}


def _queue(name: str, reserved: int, pending: int, workloads: int) -> dict[str, Any]:
    """A queue that is guaranteed 8 GPUs and may use 12; 8 others of a flavor that it has, but may not use."""
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


def test_demand_is_within_the_guarantee_if_all_that_is_pending_fits_into_what_is_left(tmp_path: Path) -> None:
    queues = {"fits": (4, 4, 1), "idle": (0, 0, 0), "exceeds": (4, 5, 1), "borrows": (9, 0, 0), "no-gpus": (4, 0, 1)}
    world = {key: value for name, state in queues.items() for key, value in _queue(name, *state).items()}
    world |= {key: 0 if "nominal" in key else value for key, value in _queue("unguaranteed", 0, 0, 0).items()}
    found = "gpu_tenancy:demand_within_guarantee"
    expected = {f'{found}{{cluster_queue="{name}"}}': 1.0 for name in ("fits", "idle")}
    case = {"interval": "1m", "input_series": series(world, 5), "promql_expr_test": [asks(found, "5m", expected)]}
    passed, said = tried([case], _group("demand"), tmp_path)
    assert passed, said


def _histogram(queue: str, steps: Mapping[float | str, str], pod: str = "1") -> dict[str, Any]:
    name = "kueue_admission_wait_time_seconds_bucket"
    of = f'cluster_queue="{queue}", priority_class="production", pod="{pod}"'
    return {
        f'{name}{{{of}, le="{bound:g}"}}' if bound != "+Inf" else f'{name}{{{of}, le="+Inf"}}': values
        for bound, values in steps.items()
    }


def _ask(recorded: str, at: str, expected: dict[str, float]) -> Data:
    return asks(recorded, at, {f"{recorded.partition('{')[0]}{labels}": value for labels, value in expected.items()})


def test_admissions_count_once_and_those_after_the_time_are_late(tmp_path: Path) -> None:
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
    for rule in rules["groups"][0]["rules"]:  # One evaluation every 5 minutes here, 15 samples of a minute there.
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
    case = {"interval": "5m", "input_series": series(world, 10), "promql_expr_test": checks}
    passed, said = tried([case], rules, tmp_path, every="5m")
    assert passed, said


def test_a_restart_of_kueue_is_no_loss_and_one_of_prometheus_no_gain(tmp_path: Path) -> None:
    world: dict[str, Any] = {
        **_histogram("a", {"+Inf": "9 9 2 2 3 3"}),  # reset, and two since
        **_histogram("b", {"+Inf": "_ _ _ 1 1 1"}, pod="2"),  # a series begins with 1
        f'kueue_cluster_queue_nominal_quota{{cluster_queue="a", {_SHARE}}}': 8,
    }
    found = 'sum by (cluster_queue) (sum_over_time(gpu_tenancy:wait_seconds_bucket{le="+Inf"}[1h]))'
    checks = [asks(found, "25m", {'{cluster_queue="a"}': 3.0, '{cluster_queue="b"}': 1.0})]
    case = {"interval": "5m", "input_series": series(world, 5), "promql_expr_test": checks}
    passed, said = tried([case], _group("promises"), tmp_path, every="5m")
    assert passed, said
