"""Who gets which alert, by Alertmanager's own amtool, and that no address is in a stack."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import Data, team
from observability_builders import watched
from operators_builders import made_here, release
from prometheus_tool import amtool
from starts import GUARD

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
