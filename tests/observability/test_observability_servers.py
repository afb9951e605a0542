"""Panels and alerts of servers through Prometheus' own promtool: what an engine measures, and its service level."""

from pathlib import Path
from typing import Any

import pytest
from builders import Data, server, stack, team
from observability_builders import asks, observed, panels, series, tried

pytestmark = pytest.mark.process

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
    return stack(teams={"a": of_team}, datasets={"weights": "s3://ml-weights"})


def histogram(name: str, bound: str, good: int, of: int) -> Data:
    """Requests of each minute, of which so many are below a bound, and all below infinity."""
    return {
        f'vllm:{name}_bucket{{{VLLM}, le="0.3"}}': "0x5000",
        f'vllm:{name}_bucket{{{VLLM}, le="{bound}"}}': f"0+{good}x5000",
        f'vllm:{name}_bucket{{{VLLM}, le="+Inf"}}': f"0+{of}x5000",
        f"vllm:{name}_count{{{VLLM}}}": f"0+{of}x5000",
    }


def world(late: int = 0, slow: int = 0, failed: int = 0, waiting: int = 0, cache: float = 0.5) -> Data:
    """60 requests a minute, of which so many are late, slow or failed."""
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


def rule(alert: str, sections: Data) -> Data:
    rules = [one for group in observed(sections).rules for one in group["rules"] if one.get("alert") == alert]
    return {"groups": [{"name": "tried", "rules": rules}]}


def alarmed(alert: str, found: Data, at: str, folder: Path, expected: int) -> None:
    """Asserts that so many alerts of a name fire at a moment."""
    count = f'count(ALERTS{{alertname="{alert}", alertstate="firing", namespace="a", server="chat"}}) or vector(0)'
    case = {
        "interval": "1m",
        "input_series": series(found, 5000),
        "promql_expr_test": [asks(count, at, {"{}": expected})],
    }
    passed, said = tried([case], rule(alert, serving()), folder, every="5m")
    assert passed, said


ANSWERS = {
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


def test_panels_show_what_the_engine_measures(tmp_path: Path) -> None:
    shown = {name.removeprefix("gpu-tenancy-serving/"): expr for name, expr, _ in panels(observed(serving()))}
    checks = [asks(f"round({shown[name]}, 0.001)", "90m", {"{}": answer}) for name, answer in ANSWERS.items()]
    found = series(world(failed=6, waiting=3), 100)
    passed, said = tried(
        [{"interval": "1m", "input_series": found, "promql_expr_test": checks}], {"groups": []}, tmp_path
    )
    assert passed, said


@pytest.mark.parametrize("bad", ["late", "slow", "failed"])
def test_a_service_level_that_burns_fast_is_said_within_the_hour(tmp_path: Path, bad: str) -> None:
    """A quarter of the requests, where 1 % may be bad in 30 days."""
    alarmed("ServiceLevelBurnsFast", world(**{bad: 15}), "15m", tmp_path, 1)


@pytest.mark.slow
def test_a_slow_burn_is_a_warning_only(tmp_path: Path) -> None:
    """One of 30 requests: more than 3 times the budget, and less than 6 times."""
    alarmed("ServiceLevelBurnsFast", world(failed=2), "60h", tmp_path, 0)
    alarmed("ServiceLevelBurnsSlowly", world(failed=2), "60h", tmp_path, 1)


def test_a_burn_that_is_over_is_not_said_any_more(tmp_path: Path) -> None:
    failures = f'http_requests_total{{{OF}, handler="/v1/completions", method="POST", status="5xx"}}'
    ended = {**world(), failures: "0+15x60 900x5000"}
    alarmed("ServiceLevelBurnsFast", ended, "30m", tmp_path, 1)
    alarmed("ServiceLevelBurnsFast", ended, "100m", tmp_path, 0)


@pytest.mark.slow
@pytest.mark.parametrize("alert", ["ServiceLevelBurnsFast", "ServiceLevelBurnsSlowly", "RequestsWait", "KvCacheFull"])
def test_a_server_that_answers_in_time_is_quiet(tmp_path: Path, alert: str) -> None:
    alarmed(alert, world(waiting=8, cache=0.9), "60h", tmp_path, 0)


def test_more_waiting_than_running_requests_are_said(tmp_path: Path) -> None:
    alarmed("RequestsWait", world(waiting=9), "40m", tmp_path, 1)


def test_a_full_cache_is_said(tmp_path: Path) -> None:
    alarmed("KvCacheFull", world(cache=0.99), "40m", tmp_path, 1)


def test_every_alert_of_servers_is_tried_above() -> None:
    (group,) = (group for group in observed(serving()).rules if group["name"] == "gpu-tenancy-servers")
    assert {one["alert"] for one in group["rules"]} == {
        "ServiceLevelBurnsFast",
        "ServiceLevelBurnsSlowly",
        "RequestsWait",
        "KvCacheFull",
    }


def test_a_server_that_names_no_metrics_has_no_such_alerts_and_panels() -> None:
    found = observed(serving(engine="custom", model=None, serviceLevel={}))
    assert "gpu-tenancy-servers" not in {group["name"] for group in found.rules}
    titles = {name.split("/")[1] for name, _, _ in panels(found)}
    assert titles.isdisjoint(name.partition("/")[0] for name in ANSWERS)
