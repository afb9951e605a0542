"""Helm values of kube-prometheus-stack, KEDA and prometheus-adapter."""

from typing import Final
from urllib.parse import urlsplit

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.latency import adapter_rules, prometheus_address
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Prometheus

DASHBOARD_LABEL: Final = "grafana_dashboard"
"""Label, with value `1`, of the ConfigMaps that Grafana's sidecar loads as dashboards."""


def prometheus_values(stack: Stack) -> Values:
    """Values of kube-prometheus-stack: monitors, rules and dashboards of other releases count too.

    The objects have the names that `metrics.prometheus` describes, so that queries reach this Prometheus.
    """
    kinds = ("serviceMonitor", "podMonitor", "rule", "probe", "scrapeConfig")
    return {
        "fullnameOverride": _full_name(stack.metrics.prometheus),
        "prometheus": {"prometheusSpec": {f"{kind}SelectorNilUsesHelmValues": False for kind in kinds}},
        "grafana": {
            "enabled": True,
            "sidecar": {
                "dashboards": {
                    "enabled": True,
                    "label": DASHBOARD_LABEL,
                    "labelValue": "1",
                    "searchNamespace": "ALL",
                }
            },
        },
    }


def _full_name(prometheus: Prometheus) -> str:
    service = urlsplit(prometheus_address(prometheus.model_copy(update={"address": None}))).hostname or ""
    return service.partition(".")[0].removesuffix("-prometheus")


def keda_values(stack: Stack) -> Values:
    """Values of KEDA: metrics if there is a Prometheus; CRDs and their objects stay if the release is uninstalled."""
    monitored = there(stack, "prometheus")
    return {
        "crds": {"additionalAnnotations": {"helm.sh/resource-policy": "keep"}},
        "prometheus": {
            part: {"enabled": monitored, "serviceMonitor": {"enabled": monitored}}
            for part in ("metricServer", "operator", "webhooks")
        },
    }


def adapter_values(stack: Stack) -> Values:
    """Values of prometheus-adapter: it queries the Prometheus of `metrics.prometheus`, for the servers' metrics only.

    The default rules are off, because they serve every series of the cluster.
    """
    address = urlsplit(prometheus_address(stack.metrics.prometheus))
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    return {
        "prometheus": {"url": f"{address.scheme}://{address.hostname}", "port": port, "path": address.path},
        "rules": {"default": False, "custom": adapter_rules(stack)},
    }
