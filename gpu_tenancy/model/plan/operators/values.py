"""Helm values that follow from the stack, in addition to those of the operators' descriptions."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import yaml

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.catalogue.operators import OperatorChart, operators
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.latency import adapter_rules, prometheus_address
from gpu_tenancy.model.plan.needs import framework_used, has, there
from gpu_tenancy.model.plan.operators.alerts import OF_CLOUD, alertmanager_values
from gpu_tenancy.model.plan.operators.gpus import Values, amd_values, dra_values, intel_values, merged, nvidia_values
from gpu_tenancy.model.plan.operators.kueue import kueue_values
from gpu_tenancy.model.plan.operators.network import network_values
from gpu_tenancy.model.plan.signals import signal_rules
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import MetricsStorage, service_of

_SCHEDULER: Final[dict[str, Any]] = {
    "actions": "enqueue, allocate, backfill, reclaim",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False},
                {"name": "conformance"},
            ]
        },
        {
            "plugins": [
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "capacity"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}
"""With the plugin `capacity` instead of the chart's `proportion`, which shares by weight and ignores guarantees (the
two are mutually exclusive), and with the action `reclaim`, which reclaims guaranteed quota:
https://github.com/volcano-sh/volcano/blob/v1.15.1/docs/user-guide/how_to_use_capacity_plugin.md"""


_HOUR: Final = 3600
_OF_ALERTMANAGER: Final = 10 * 2**30
"""Bytes for silences and notifications: the smallest disk of GKE's default class (`catalogue/storage.yaml`)."""


def values_of(environment: Environment, name: str, chart: OperatorChart) -> Values:
    """The Helm values of a release, by its name, without the stack's own."""
    described = _filled(environment, chart.values)
    return merged(described, _VALUES[name](environment)) if name in _VALUES else described


def _filled(environment: Environment, values: Any) -> Any:
    """Values with whether an operator runs in place of `{FIELD}`."""
    if isinstance(values, dict):
        return {key: _filled(environment, value) for key, value in cast("Values", values).items()}
    if isinstance(values, str) and values[1:-1] in operators() and values == f"{{{values[1:-1]}}}":
        return there(environment, values[1:-1])
    return values


def _volcano(environment: Environment) -> Values:
    """The chart's scheduler configuration, or `_SCHEDULER` if gangs have a guarantee."""
    guaranteed = any(gang.guaranteed for team in environment.stack.teams.values() for gang in team.gangs.values())
    if not guaranteed:
        return {}
    return {"custom": {"scheduler_config_override": yaml.safe_dump(_SCHEDULER, sort_keys=False)}}


def _trainer(environment: Environment) -> Values:
    return {"runtimes": {"jaxDistributed": {"enabled": True}}} if framework_used(environment.stack, "jax") else {}


def _lws(environment: Environment) -> Values:
    """The image of its version, in place of the moving tag `main`."""
    version = environment.stack.operators.of("lws").version or operators()["lws"].charts["lws"].version
    return {"image": {"manager": {"tag": f"v{version.removeprefix('v')}", "pullPolicy": "IfNotPresent"}}}


def _prometheus(environment: Environment) -> Values:
    """Its objects have the names that `metrics.prometheus` describes, so that queries reach this Prometheus.

    The chart makes no rules for components that are switched off, nor for alerts on what a cloud runs.
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
    """Volumes of Prometheus and Alertmanager; none where they would stay pending for want of a class."""
    storage = stack.metrics.storage or MetricsStorage()
    if storage.storage_class is None and not has(stack, "defaultStorageClass"):
        return {}

    def claim(size: int) -> Values:
        of_class = {"storageClassName": storage.storage_class} if storage.storage_class else {}
        requests = {"storage": format_bytes(size)}
        spec = {**of_class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": requests}}
        return {"volumeClaimTemplate": {"spec": spec}}

    limits = {
        "retention": f"{int(storage.retention) // _HOUR}h",
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
        "rules": {"custom": [*adapter_rules(environment.stack), *signal_rules(environment.stack)]},
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
"""By the name of the release."""
