"""Helm values that follow from the stack, in addition to the values in the operators' descriptions."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

import yaml

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.catalogue.operators import OperatorChart, operators
from gpu_tenancy.model.catalogue.pods import Image, fabrics
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import framework_used, has, infiniband_pools, installed_by, there
from gpu_tenancy.model.plan.operators.gpus import Values, amd_values, dra_values, intel_values, merged, nvidia_values
from gpu_tenancy.model.plan.operators.kueue import TABLE, kueue_values
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.signals import adapter_rules, prometheus_address, signal_rules
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import MetricsStorage, service_of
from gpu_tenancy.model.spec.operators import Receiver, SecretKey

_MELLANOX: Final = "15b3"  # PCI vendor ID


@dataclass(frozen=True, slots=True)
class InfinibandPlan:
    """The NicClusterPolicy, of which a cluster has one, for the nodes of `pools`; `config` is the plugin's, as JSON."""

    pools: tuple[str, ...]
    taints: tuple[NodeTaint, ...]
    driver: Image
    plugin: Image
    config: str


def network_values(environment: Environment) -> Values:
    """Values of the Network Operator, with node feature discovery only if the GPU Operator's is not there.

    Two of them would replace each other's labels. The GPU Operator's also labels nodes by PCI vendor, as required:
    https://github.com/NVIDIA/gpu-operator/blob/v26.3.3/deployments/gpu-operator/values.yaml.
    """
    own = not there(environment, "gpu_operator")
    return {"nfd": {"enabled": own, "deployNodeFeatureRules": own}}


def infiniband(environment: Environment) -> InfinibandPlan | None:
    """The NicClusterPolicy of an environment; None if this program does not install the operator."""
    pools = infiniband_pools(environment)
    row = fabrics()["infiniband"]
    if not pools or row.driver is None or row.plugin is None or installed_by(environment, "network_operator") != "here":
        return None
    prefix, _, name = (row.resource or "").partition("/")
    selectors = {"vendors": [_MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    resources = [{"resourcePrefix": prefix, "resourceName": name, "selectors": selectors}]
    return InfinibandPlan(
        pools=tuple(pool.name for pool in pools),
        taints=tuple(dict.fromkeys(taint for pool in pools if pool.supply for taint in pool.supply.taints)),
        driver=row.driver,
        plugin=row.plugin,
        config=json.dumps({"resourceList": resources}, indent=2),
    )


_HOUR: Final = 3600
_OF_ALERTMANAGER: Final = 10 * 2**30
"""Bytes for silences and notifications: the smallest disk of GKE's default class (`catalogue/storage.yaml`)."""


def values_of(environment: Environment, name: str, chart: OperatorChart) -> Values:
    """The Helm values of a release, by its name, without the stack's own."""
    described = _filled(environment, chart.values)
    return merged(described, _VALUES[name](environment)) if name in _VALUES else described


def _filled(environment: Environment, values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _filled(environment, value) for key, value in cast("Values", values).items()}
    if isinstance(values, str) and values[1:-1] in operators() and values == f"{{{values[1:-1]}}}":
        return there(environment, values[1:-1])
    return values


def _volcano(environment: Environment) -> Values:
    if not any(gang.guaranteed for team in environment.stack.teams.values() for gang in team.gangs.values()):
        return {}
    return {"custom": {"scheduler_config_override": yaml.safe_dump(TABLE["volcano"], sort_keys=False)}}


def _trainer(environment: Environment) -> Values:
    return {"runtimes": {"jaxDistributed": {"enabled": True}}} if framework_used(environment.stack, "jax") else {}


def _lws(environment: Environment) -> Values:
    """The image of its version, in place of the moving tag `main`."""
    version = environment.stack.operators.of("lws").version or operators()["lws"].charts["lws"].version
    return {"image": {"manager": {"tag": f"v{version.removeprefix('v')}", "pullPolicy": "IfNotPresent"}}}


def _prometheus(environment: Environment) -> Values:
    """Objects have the names that `metrics.prometheus` describes, so that queries reach this Prometheus.

    The chart makes no rules for disabled components, nor for alerts on components that a cloud runs.
    """
    hidden = rules_of(service_of(environment.stack.cluster)).hidden
    own = environment.stack.metrics.prometheus.model_copy(update={"address": None})
    service = urlsplit(prometheus_address(own)).hostname or ""
    return {
        "fullnameOverride": service.partition(".")[0].removesuffix("-prometheus"),
        **({component: {"enabled": False} for component in hidden.components} if hidden else {}),
        **({"defaultRules": {"disabled": dict.fromkeys(OF_CLOUD, True)}} if hidden else {}),
        **merged(_volumes(environment.stack), alertmanager_values(environment.stack)),
    }


def _volumes(stack: Stack) -> Values:
    """Volumes of Prometheus and Alertmanager; none if they would stay pending without a class."""
    storage = stack.metrics.storage or MetricsStorage()
    if storage.storage_class is None and not has(stack, "defaultStorageClass"):
        return {}

    def claim(size: int) -> Values:
        of_class = {"storageClassName": storage.storage_class} if storage.storage_class else {}
        requests = {"storage": format_bytes(size)}
        spec = {**of_class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}
        return {"volumeClaimTemplate": {"spec": spec}}

    limits = {
        "retention": f"{storage.retention // _HOUR}h",
        "retentionSize": f"{storage.size * 4 // 5 // 2**20}MB",  # MB is 2^20 bytes to Prometheus.
    }
    return {
        "prometheus": {"prometheusSpec": {**limits, "storageSpec": claim(storage.size)}},
        "alertmanager": {"alertmanagerSpec": {"storage": claim(_OF_ALERTMANAGER)}},
    }


def _adapter(environment: Environment) -> Values:
    """It queries the Prometheus of `metrics.prometheus`, for the servers' metrics only."""
    address = urlsplit(prometheus_address(environment.stack.metrics.prometheus))
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    return {
        "prometheus": {"url": f"{address.scheme}://{address.hostname}", "port": port, "path": address.path},
        "rules": {"custom": [*adapter_rules(environment), *signal_rules(environment)]},
    }


_VALUES: Final[Mapping[str, Callable[[Environment], Values]]] = {
    "kube-prometheus-stack": _prometheus,
    "gpu-operator": nvidia_values,
    "network-operator": network_values,
    "dra-driver-nvidia-gpu": dra_values,
    "gpu-operator-charts": amd_values,
    "intel-device-plugins-gpu": intel_values,
    "kueue": kueue_values,
    "volcano": _volcano,
    "prometheus-adapter": _adapter,
    "kubeflow-trainer": _trainer,
    "lws": _lws,
}

_FILES: Final = {
    "slack": ("slack_configs", "api_url_file"),
    "pagerduty": ("pagerduty_configs", "routing_key_file"),
    "webhook": ("webhook_configs", "url_file"),
}
NOBODY: Final = "null"  # the chart's receiver, which sends nothing
_PLATFORM: Final = "platform"
_SWITCH: Final = "dead-mans-switch"
OF_CLOUD: Final = ("KubeAPIErrorBudgetBurn", "KubeAPITerminatedRequests")
"""Alerts of the chart on API servers: only the cloud can act on them if it runs the control plane."""


def alertmanager_values(stack: Stack) -> Values:
    """Values of the chart; none if the stack names no receiver.

    Keys: https://prometheus.io/docs/alerting/latest/configuration/ (2026-11-26); alerts Watchdog and InfoInhibitor,
    which is for inhibitions only: kube-prometheus-stack 88.5.3.
    """
    alerts = stack.metrics.alerts
    named: dict[str, SecretKey | None] = {_PLATFORM: alerts.receiver, _SWITCH: alerts.dead_mans_switch}
    named |= {f"team-{name}": team.alerts for name, team in stack.teams.items()}
    receivers = {name: receiver for name, receiver in named.items() if receiver}
    if not receivers:
        return {}
    secrets = sorted({receiver.secret for receiver in receivers.values()})
    grouped = ["alertname", "namespace", "cluster_queue"]
    config = {
        "route": {"receiver": NOBODY, "group_by": grouped, "routes": list(_routes(stack))},
        "receivers": [{"name": NOBODY}, *(_receiver(name, one) for name, one in receivers.items())],
    }
    return {"alertmanager": {"config": config, "alertmanagerSpec": {"secrets": secrets}}}


def _receiver(name: str, spec: SecretKey) -> Mapping[str, Any]:
    section, key = _FILES[spec.kind if isinstance(spec, Receiver) else "webhook"]
    resolved = {"send_resolved": False} if name == _SWITCH else {}
    return {"name": name, section: [{key: f"/etc/alertmanager/secrets/{spec.secret}/{spec.key}", **resolved}]}


def _routes(stack: Stack) -> Iterator[Values]:
    """In order: an alert takes the first match, and with `continue` later ones too.

    An alert on a team's queue is for the team and for the platform team, which can give it quota or nodes. An alert on
    objects in the team's namespace is for the team alone.
    """
    alerts = stack.metrics.alerts
    yield {"matchers": ['alertname = "InfoInhibitor"'], "receiver": NOBODY}
    often = {"group_wait": "0s", "group_interval": "1m", "repeat_interval": "5m"}
    switch = {"receiver": _SWITCH, **often} if alerts.dead_mans_switch else {"receiver": NOBODY}
    yield {"matchers": ['alertname = "Watchdog"'], **switch}
    for name, team in stack.teams.items():
        if team.alerts:
            yield {"matchers": [f'cluster_queue = "{name}"'], "receiver": f"team-{name}", "continue": True}
            yield {"matchers": [f'namespace = "{name}"'], "receiver": f"team-{name}"}
    if alerts.receiver:
        yield {"receiver": _PLATFORM}
