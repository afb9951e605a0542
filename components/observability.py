"""Dashboards for Grafana's sidecar, alerts for Prometheus' operator, prices for OpenCost."""

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace

from gpu_tenancy.model.observability import ObservabilityPlan


class Observability(pulumi.ComponentResource):
    """A ConfigMap for each dashboard, one PrometheusRule with all alerts, and a ConfigMap with prices.

    Prometheus, its operator and Grafana are not installed here: make this depend on their release, which contains the
    definition of PrometheusRule. If they are installed outside this stack (`of_others`), so is the namespace.

    Example:
        >>> Observability("observability", observability(tree, servers, gpu_prices(tree)), namespace="monitoring")
    """

    def __init__(
        self,
        name: str,
        plan: ObservabilityPlan,
        namespace: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        of_others: bool = False,
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:Observability", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        if of_others:  # Read it, so that a preview fails if it does not exist.
            Namespace.get(f"{name}-namespace", namespace, opts=own)
        self.dashboards = {
            file: ConfigMap(
                f"{name}-{file.removesuffix('.json')}",
                metadata={
                    "name": f"dashboard-{file.removesuffix('.json')}",
                    "namespace": namespace,
                    "labels": {"grafana_dashboard": "1"},
                    "annotations": {"grafana_folder": plan.folders[file]},
                },
                data={file: text},
                opts=own,
            )
            for file, text in plan.dashboards
        }
        self.rule = self._rule(f"{name}-rule", plan, namespace) if plan.rules else None
        if plan.opencost:
            of_opencost, prices = plan.opencost
            ConfigMap(
                f"{name}-prices",
                metadata={"name": "gpu-tenancy-prices", "namespace": of_opencost},
                data={"prices.csv": prices},
                opts=own,
            )
        self.register_outputs({"dashboards": list(self.dashboards)})

    def _rule(self, name: str, plan: ObservabilityPlan, namespace: str) -> CustomResource:
        return CustomResource(
            name,
            api_version="monitoring.coreos.com/v1",
            kind="PrometheusRule",
            metadata={"name": "gpu-tenancy", "namespace": namespace},
            spec={"groups": list(plan.rules)},
            opts=pulumi.ResourceOptions(parent=self),
        )
