"""Alertmanager's configuration: who gets which alert. Addresses are files of mounted Secrets.

Source of the keys: https://prometheus.io/docs/alerting/latest/configuration/ (2026-11-26); of the alerts Watchdog and
InfoInhibitor, which is for inhibitions only: kube-prometheus-stack 88.5.3.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu_tenancy.model.plan.operators.gpus import Values
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.alerts import Receiver, SecretKey

_FILES: Final = {
    "slack": ("slack_configs", "api_url_file"),
    "pagerduty": ("pagerduty_configs", "routing_key_file"),
    "webhook": ("webhook_configs", "url_file"),
}
NOBODY: Final = "null"
"""The chart's receiver, which sends nothing."""
_PLATFORM: Final = "platform"
_SWITCH: Final = "dead-mans-switch"
OF_CLOUD: Final = ("KubeAPIErrorBudgetBurn", "KubeAPITerminatedRequests")
"""Alerts of the chart on API servers: nobody but the cloud can act on them where it runs the control plane."""


def alertmanager_values(stack: Stack) -> Values:
    """Values of the chart; none if the stack names no receiver."""
    receivers = dict(_receivers(stack))
    if not receivers:
        return {}
    secrets = sorted({receiver.secret for receiver in receivers.values()})
    config = {
        "route": {
            "receiver": NOBODY,
            "group_by": ["alertname", "namespace", "cluster_queue"],
            "routes": list(_routes(stack)),
        },
        "receivers": [{"name": NOBODY}, *(_receiver(name, one) for name, one in receivers.items())],
    }
    return {"alertmanager": {"config": config, "alertmanagerSpec": {"secrets": secrets}}}


def team_receiver(team: str) -> str:
    """Name of a team's receiver."""
    return f"team-{team}"


def _receivers(stack: Stack) -> Iterator[tuple[str, SecretKey]]:
    alerts = stack.metrics.alerts
    if alerts.receiver:
        yield _PLATFORM, alerts.receiver
    if alerts.dead_mans_switch:
        yield _SWITCH, alerts.dead_mans_switch
    for name, team in stack.teams.items():
        if team.alerts:
            yield team_receiver(name), team.alerts


def _receiver(name: str, spec: SecretKey) -> Mapping[str, Any]:
    section, key = _FILES[spec.kind if isinstance(spec, Receiver) else "webhook"]
    resolved = {"send_resolved": False} if name == _SWITCH else {}
    return {"name": name, section: [{key: f"/etc/alertmanager/secrets/{spec.secret}/{spec.key}", **resolved}]}


def _routes(stack: Stack) -> Iterator[Values]:
    """In order: the first that matches gets an alert, and with `continue` later ones too.

    An alert on a team's queue is for the team and for the platform team, which can give it quota or nodes. An alert on
    objects in the team's namespace is for the team alone.
    """
    alerts = stack.metrics.alerts
    yield {"matchers": ['alertname = "InfoInhibitor"'], "receiver": NOBODY}
    often = {"group_wait": "0s", "group_interval": "1m", "repeat_interval": "5m"} if alerts.dead_mans_switch else {}
    switch = _SWITCH if alerts.dead_mans_switch else NOBODY
    yield {"matchers": ['alertname = "Watchdog"'], "receiver": switch, **often}
    for name, team in stack.teams.items():
        if team.alerts:
            receiver = team_receiver(name)
            yield {"matchers": [f'cluster_queue = "{name}"'], "receiver": receiver, "continue": True}
            yield {"matchers": [f'namespace = "{name}"'], "receiver": receiver}
    if alerts.receiver:
        yield {"receiver": _PLATFORM}
