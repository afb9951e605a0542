"""Kueue's flavors, cohorts and cluster queues, and Volcano's queues."""

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan import QueuesPlan
from gpu_tenancy.model.plan.queues import (
    ClusterQueue,
    CohortQueue,
    FlavorQuota,
    GangQueue,
    ProvisioningCheck,
    ResourceFlavor,
    ResourceLine,
)
from gpu_tenancy.model.plan.supply import NodeTaint
from gpu_tenancy.model.quantity import format_amount, format_amounts

from .conventions import KUEUE


class Queues(pulumi.ComponentResource):
    """The queues that all teams share: who is guaranteed what, who may borrow, who lends.

    The operators that act on them are not installed here. Kueue clears its finalizers itself, so its release must
    outlive this component: make this depend on it.

    Example:
        >>> Queues("queues", plan(stack).queues)
    """

    def __init__(self, name: str, queues: QueuesPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Queues", name, {}, opts)
        self.flavors = {each.name: self._flavor(f"{name}-flavor-{each.name}", each) for each in queues.flavors}
        self.checks = {each.name: self._check(f"{name}-check-{each.flavor}", each) for each in queues.checks}
        self.cohorts: dict[str, CustomResource] = {}
        for each in queues.cohorts:
            self.cohorts[each.name] = self._cohort(f"{name}-cohort-{each.name}", each)
        self.cluster_queues = {each.name: self._queue(f"{name}-{each.name}", each) for each in queues.cluster_queues}
        self.gang_queues = {each.name: self._gangs(f"{name}-gangs-{each.name}", each) for each in queues.gang_queues}
        self.register_outputs({"clusterQueues": list(self.cluster_queues), "gangQueues": list(self.gang_queues)})

    def _flavor(self, name: str, flavor: ResourceFlavor) -> CustomResource:
        spec: dict[str, Any] = {
            "nodeLabels": flavor.node_labels,
            "nodeTaints": [_taint(taint) for taint in flavor.taints],
            "tolerations": [{**_taint(taint), "operator": "Equal"} for taint in flavor.tolerated],
        }
        return CustomResource(
            name,
            api_version=KUEUE,
            kind="ResourceFlavor",
            metadata={"name": flavor.name},
            spec={key: value for key, value in spec.items() if value},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _check(self, name: str, check: ProvisioningCheck) -> CustomResource:
        asked = check.provisioning
        selected = [
            {"key": key, "valueFromProvisioningClassDetail": detail} for key, detail in asked.node_selector.items()
        ]
        config = CustomResource(
            f"{name}-config",
            api_version=KUEUE,
            kind="ProvisioningRequestConfig",
            metadata={"name": check.name},
            spec={
                "provisioningClassName": asked.provisioning_class,
                "parameters": {"maxRunDurationSeconds": str(asked.seconds)},
                "managedResources": [check.resource],
                **({"podSetUpdates": {"nodeSelector": selected}} if selected else {}),
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        return CustomResource(
            name,
            api_version=KUEUE,
            kind="AdmissionCheck",
            metadata={"name": check.name},
            spec={
                "controllerName": "kueue.x-k8s.io/provisioning-request",
                "parameters": {
                    "apiGroup": KUEUE.partition("/")[0],
                    "kind": "ProvisioningRequestConfig",
                    "name": check.name,
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[config]),
        )

    def _cohort(self, name: str, cohort: CohortQueue) -> CustomResource:
        spec = {
            **({"parentName": cohort.parent} if cohort.parent else {}),
            **_resource_groups(cohort.quotas),
            **_fair_sharing(cohort.weight),
        }
        above = [self.cohorts[cohort.parent]] if cohort.parent else []
        return CustomResource(
            name,
            api_version=KUEUE,
            kind="Cohort",
            metadata={"name": cohort.name},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.flavors.values(), *above]),
        )

    def _queue(self, name: str, queue: ClusterQueue) -> CustomResource:
        preemption: dict[str, Any] = {
            "reclaimWithinCohort": queue.preemption.reclaim_within_cohort,
            "withinClusterQueue": queue.preemption.within_cluster_queue,
            "borrowWithinCohort": {"policy": queue.preemption.borrow_within_cohort},
        }
        spec = {
            **({"cohortName": queue.cohort} if queue.cohort else {}),
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(queue.namespaces)}
                ]
            },
            "queueingStrategy": queue.strategy,
            "preemption": preemption,
            **_resource_groups(queue.quotas),
            **_checks(queue.checks),
            **_fair_sharing(queue.weight),
        }
        above = [*([self.cohorts[queue.cohort]] if queue.cohort else []), *(self.checks[c.name] for c in queue.checks)]
        return CustomResource(
            name,
            api_version=KUEUE,
            kind="ClusterQueue",
            metadata={"name": queue.name},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.flavors.values(), *above]),
        )

    def _gangs(self, name: str, queue: GangQueue) -> CustomResource:
        guarantee, capability = format_amounts(queue.guarantee), format_amounts(queue.capability)
        return CustomResource(
            name,
            api_version="scheduling.volcano.sh/v1beta1",
            kind="Queue",
            metadata={"name": queue.name},
            spec={
                "reclaimable": False,
                "guarantee": {"resource": guarantee},
                "deserved": guarantee,
                "capability": capability,
            },
            opts=pulumi.ResourceOptions(parent=self),
        )


def _taint(taint: NodeTaint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


def _checks(checks: tuple[ProvisioningCheck, ...]) -> dict[str, Any]:
    held = [{"name": check.name, "onFlavors": [check.flavor]} for check in checks]
    return {"admissionChecksStrategy": {"admissionChecks": held}} if held else {}


def _fair_sharing(weight: float | None) -> dict[str, Any]:
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


def _resource_groups(quotas: tuple[FlavorQuota, ...]) -> Mapping[str, Any]:
    """One group for all flavors: a pod's cpu, memory and GPUs then always come from the same one."""
    if not quotas:
        return {}
    covered = [line.resource for line in quotas[0].lines]
    flavors = [{"name": quota.flavor, "resources": [_line(line) for line in quota.lines]} for quota in quotas]
    return {"resourceGroups": [{"coveredResources": covered, "flavors": flavors}]}


def _line(line: ResourceLine) -> dict[str, str]:
    amounts = {"nominalQuota": line.nominal, "borrowingLimit": line.borrowing, "lendingLimit": line.lending}
    written = {key: format_amount(line.resource, amount) for key, amount in amounts.items() if amount is not None}
    return {"name": line.resource, **written}
