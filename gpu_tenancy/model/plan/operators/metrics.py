"""Values of the charts that collect and serve metrics."""

from typing import Final
from urllib.parse import urlsplit

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.latency import adapter_rules, prometheus_address
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Prometheus

DASHBOARD_LABEL: Final = "grafana_dashboard"
"""Label of ConfigMaps that Grafana's sidecar takes for dashboards, with the value `1`."""


def prometheus_values(stack: Stack) -> Values:
    """Prometheus takes everybody's monitors and rules, not only those of its own release; Grafana everybody's pages.

    Its objects are named as the release that `metrics.prometheus` speaks of would name them, so its address is the one
    that queries are sent to.
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
    """KEDA's own metrics, where something collects them; its definitions outlive the release, and so do its objects."""
    monitored = there(stack, "prometheus")
    return {
        "crds": {"additionalAnnotations": {"helm.sh/resource-policy": "keep"}},
        "prometheus": {
            part: {"enabled": monitored, "serviceMonitor": {"enabled": monitored}}
            for part in ("metricServer", "operator", "webhooks")
        },
    }


def adapter_values(stack: Stack) -> Values:
    """prometheus-adapter asks the Prometheus that `metrics.prometheus` speaks of, for what servers scale on alone.

    Its default rules serve every series of the cluster, which nobody asked for.
    """
    address = urlsplit(prometheus_address(stack.metrics.prometheus))
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    return {
        "prometheus": {"url": f"{address.scheme}://{address.hostname}", "port": port, "path": address.path},
        "rules": {"default": False, "custom": adapter_rules(stack)},
    }
