"""Helm values of cert-manager, which issues the certificates of other operators' webhooks."""

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.spec import Stack


def cert_manager_values(stack: Stack) -> Values:
    """Values of cert-manager: CRDs, which stay if the release is uninstalled, and metrics if there is a Prometheus.

    The CRDs are templates of the chart and off by default:
    https://github.com/cert-manager/cert-manager/blob/v1.21.1/deploy/charts/cert-manager/values.yaml
    """
    return {
        "crds": {"enabled": True, "keep": True},
        "prometheus": {"servicemonitor": {"enabled": there(stack, "prometheus")}},
    }
