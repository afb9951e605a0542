"""Signals for servers besides CPU and latency, and receivers of alerts."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Data, planned, server, stack, team
from components_builders import tenancy
from observability_builders import asks, passes, watched
from operators_builders import made_here, release
from prometheus_tool import amtool
from starts import GUARD

from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.signals import KINDS, Signal, cold_starts, signal_rules
from gpu_tenancy.model.plan.workloads import Scaling
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.workloads import ScaleOn

TARGETS: Data = {"queue": 5, "concurrency": 16, "rate": "20/s", "cache": 80, "gpu": 70}
ASKED = {"expr": 'sum(rate(asked_total{model="llama"}[2m]))', "perReplica": 5}


def sections(metrics: Data | None = None, replicas: Data | None = None, **scale_on: Any) -> Data:
    chat = {
        "engine": "vllm",
        "model": {"dataset": "weights", "size": "18Gi"},
        "replicas": replicas or {"min": 1, "max": 4},
        "scaleOn": {"cpu": None, **scale_on},
    }
    of_team = team(gpus={"h100": {"guaranteed": 8}}, serving={"chat": server(**chat)})
    return stack(teams={"a": of_team}, datasets={"weights": "s3://ml-weights"}, metrics=metrics or {})


def scaling(found: Data) -> Scaling:
    (plan,) = planned(found).teams[0].servers
    assert plan.scaling
    return plan.scaling


def signals(found: Data) -> dict[str, Signal]:
    return {signal.name.rpartition("_")[2]: signal for signal in scaling(found).signals}


# Two pods: one with 8 requests and 4 that wait, one with 2. Of another server and another team, the same.
WORLD: Data = {
    f"{name}{{{labels}}}": value
    for team_name, service in (("a", "chat"), ("a", "other"), ("b", "chat"))
    for pod, (running, waiting, used, gpu) in {"x1": (8, 4, 0.9, 95), "x2": (2, 0, 0.3, 45)}.items()
    for labels, values in (
        (
            f'namespace="{team_name}", service="{service}", pod="{service}-5f-{pod}", model_name="llama"',
            {
                "vllm:num_requests_running": running,
                "vllm:num_requests_waiting": waiting,
                "vllm:kv_cache_usage_perc": used,
            },
        ),
        (
            f'namespace="{team_name}", service="{service}", pod="{service}-5f-{pod}", status="2xx"',
            {"http_requests_total": "0+600x60"},
        ),
        (
            f'namespace="gpu-operator", exported_namespace="{team_name}", exported_pod="{service}-5f-{pod}"',
            {"DCGM_FI_DEV_GPU_UTIL": gpu},
        ),
    )
    for name, value in values.items()
}
ANSWERS = {"queue": 2, "concurrency": 7, "rate": 10, "cache": 60, "gpu": 70}
OF_POD = {"queue": 4, "concurrency": 12, "rate": 10, "cache": 90, "gpu": 95}


@pytest.mark.process
def test_keda_asks_for_the_average_of_the_pods() -> None:
    asked = signals(sections(**TARGETS))
    assert set(asked) == set(ANSWERS)
    queries = {key: signal.query.expression for key, signal in asked.items() if signal.query}
    passes(WORLD, [asks(queries[key], "30m", {"{}": answer}) for key, answer in ANSWERS.items()])


@pytest.mark.process
def test_an_adapter_asks_for_each_pod() -> None:
    """It fills in the labels of an autoscaler's pods: https://pkg.go.dev/sigs.k8s.io/prometheus-adapter."""
    rules: list[Any] = signal_rules(Environment(load(Source(sections({"by": "adapter"}, **TARGETS)))))
    names = {rule["name"]["as"].rpartition("_")[2]: rule for rule in rules}
    assert set(names) == set(OF_POD)
    checks: list[Data] = []
    for key, answer in OF_POD.items():
        labels = {resource["resource"]: label for label, resource in names[key]["resources"]["overrides"].items()}
        matchers = f'{labels["namespace"]}="a", {labels["pod"]}=~"chat-5f-x1"'
        query = names[key]["metricsQuery"].replace("<<.LabelMatchers>>", matchers)
        checks.append(
            asks(query.replace("<<.GroupBy>>", labels["pod"]), "30m", {f'{{{labels["pod"]}="chat-5f-x1"}}': answer})
        )
    passes(WORLD, checks)


def test_the_autoscaler_has_the_names_that_the_adapter_serves() -> None:
    found = sections({"by": "adapter"}, **TARGETS)
    program = tenancy(found)
    pods = [one["pods"] for one in program.spec("HorizontalPodAutoscaler")["metrics"]]
    served = {rule["name"]["as"] for rule in signal_rules(Environment(load(Source(found))))}  # type: ignore[index]
    assert {pod["metric"]["name"] for pod in pods} == served
    values = {pod["metric"]["name"].rpartition("_")[2]: pod["target"]["averageValue"] for pod in pods}
    assert values == {"queue": "5000m", "concurrency": "16000m", "rate": "20000m", "cache": "80000m", "gpu": "70000m"}
    assert not program.every("ScaledObject")


def test_cold_starts_are_those_of_servers_without_replicas() -> None:
    assert cold_starts(Environment(load(Source(sections(replicas={"min": 0, "max": 4}, query=ASKED))))) == [
        "a/chat up to 784s"
    ]
    assert cold_starts(Environment(load(Source(sections(query=ASKED))))) == []


def test_every_target_that_prometheus_measures_is_a_signal() -> None:
    every = ScaleOn.model_validate({"latencyP99": "1s", "query": ASKED, **TARGETS})
    assert set(every.measured) == {"latency_p99", "query", *KINDS}


# Who gets which alert, by Alertmanager's own amtool, and that no address is in a stack


_GPUS: Data = {"h100": {"guaranteed": 4}}


def _sent(*, platform: bool = True) -> Data:
    """Team `a` has a receiver, `b` has none."""
    alerts: Data = {"deadMansSwitch": {"secret": "alerts", "key": "alive"}}
    if platform:
        alerts["receiver"] = {"kind": "pagerduty", "secret": "on-call", "key": "routing"}
    teams = {"a": team(gpus=_GPUS, alerts={"kind": "slack", "secret": "alerts", "key": "a"}), "b": team(gpus=_GPUS)}
    return made_here(metrics={"alerts": alerts}, teams=teams, pools=watched()["pools"])


def _alertmanager(sections: Data) -> Any:
    return release(sections, "kube-prometheus-stack").values["alertmanager"]


def test_addresses_are_files_of_mounted_secrets() -> None:
    values = _alertmanager(_sent())
    assert values["alertmanagerSpec"]["secrets"] == ["alerts", "on-call"]
    folder = "/etc/alertmanager/secrets"
    assert values["config"]["receivers"] == [
        {"name": "null"},
        {"name": "platform", "pagerduty_configs": [{"routing_key_file": f"{folder}/on-call/routing"}]},
        {
            "name": "dead-mans-switch",
            "webhook_configs": [{"url_file": f"{folder}/alerts/alive", "send_resolved": False}],
        },
        {"name": "team-a", "slack_configs": [{"api_url_file": f"{folder}/alerts/a"}]},
    ]


def test_without_a_receiver_the_chart_has_its_own_configuration() -> None:
    assert "config" not in release(made_here(), "kube-prometheus-stack").values.get("alertmanager", {})


_ALERTS = {
    "on a team's queue": ({"alertname": "TeamAtLimit", "cluster_queue": "a"}, "team-a,platform"),
    "on a team's object": ({"alertname": "AutoscalerAtMaximum", "namespace": "a"}, "team-a"),
    "on the queue of a team without a receiver": ({"alertname": "TeamAtLimit", "cluster_queue": "b"}, "platform"),
    "on a node": ({"alertname": "GpuNodeUnhealthy", "node": "n1"}, "platform"),
    "that always fires": ({"alertname": "Watchdog", "severity": "none"}, "dead-mans-switch"),
    "for inhibitions, in a team's namespace": ({"alertname": "InfoInhibitor", "namespace": "a"}, "null"),
}


def _receivers(sections: Data, labels: dict[str, str], folder: Path) -> str:
    """By amtool, whose older versions do not know `url_file`."""
    file = folder / "alertmanager.yaml"
    config = _alertmanager(sections)["config"]
    for receiver in config["receivers"]:
        for webhook in receiver.get("webhook_configs", ()):
            webhook["url"] = f"file://{webhook.pop('url_file')}"
    file.write_text(yaml.safe_dump(config).replace("file://", "http://file"), encoding="utf-8")
    asked = [f"{name}={value}" for name, value in labels.items()]
    command = [str(amtool()), "config", "routes", "test", f"--config.file={file}", *asked]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD).stdout.strip()


@pytest.mark.process
@pytest.mark.parametrize("alert", _ALERTS)
def test_an_alert_goes_to_those_who_can_act_on_it(tmp_path: Path, alert: str) -> None:
    labels, receivers = _ALERTS[alert]
    assert _receivers(_sent(), labels, tmp_path) == receivers


@pytest.mark.process
def test_without_a_platform_receiver_only_teams_get_theirs(tmp_path: Path) -> None:
    sections = _sent(platform=False)
    found = [_receivers(sections, {"alertname": "TeamAtLimit", "cluster_queue": queue}, tmp_path) for queue in "ab"]
    assert found == ["team-a", "null"]
