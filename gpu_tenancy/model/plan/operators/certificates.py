"""Values of the chart that brings certificates for other operators' webhooks: cert-manager's."""

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.spec import Stack


def cert_manager_values(stack: Stack) -> Values:
    """cert-manager's: its definitions, which outlive the release as its certificates do, and metrics where wanted.

    They are templates of the chart and off by default:
    https://github.com/cert-manager/cert-manager/blob/v1.21.1/deploy/charts/cert-manager/values.yaml
    """
    return {
        "crds": {"enabled": True, "keep": True},
        "prometheus": {"servicemonitor": {"enabled": there(stack, "prometheus")}},
    }
