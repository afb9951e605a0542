"""Priority classes; Kueue's topologies, flavors, cohorts and cluster queues; Volcano's queues."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.scheduling.v1 import PriorityClass

from gpu_tenancy.base.quantity import format_amount, format_amounts
from gpu_tenancy.kueue import Cohort, Quota, ResourceGroup
from gpu_tenancy.model.names import STACK
from gpu_tenancy.model.plan import PriorityPlan, QueuesPlan
from gpu_tenancy.model.plan.environment import TENANCY
from gpu_tenancy.model.plan.multikueue import CHECK
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.queues import ClusterQueue, GangQueue, ProvisioningCheck, ResourceFlavor

from .conventions import KUEUE, PlainObject, admission_check, fair_sharing, kueue_object
from .multikueue import WorkerClusters


class Priorities(pulumi.ComponentResource):
    """A PriorityClass and a WorkloadPriorityClass of the same name and value for each priority.

    The first orders pods on nodes, the second workloads in queues; with one name for both, neither can contradict the
    other. Kueue itself is not installed here.

    Example:
        >>> Priorities("priorities", (PriorityPlan("ml-low", 1000, preempts=False, default=False, description=""),))
    """

    def __init__(
        self, name: str, priorities: tuple[PriorityPlan, ...], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:Priorities", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        self.classes = {priority.name: _pods(f"{name}-{priority.name}", priority, own) for priority in priorities}
        self.workload_classes = {
            priority.name: _workloads(f"{name}-{priority.name}-workloads", priority, own) for priority in priorities
        }
        self.register_outputs({"classes": list(self.classes)})


def _pods(name: str, priority: PriorityPlan, opts: pulumi.ResourceOptions) -> PriorityClass:
    return PriorityClass(
        name,
        metadata={"name": priority.name},
        value=priority.value,
        preemption_policy="PreemptLowerPriority" if priority.preempts else "Never",
        # The provider leaves out what is false or empty, so that the state would differ from the program.
        global_default=priority.default or None,
        description=priority.description or None,
        opts=opts,
    )


def _workloads(name: str, priority: PriorityPlan, opts: pulumi.ResourceOptions) -> PlainObject:
    fields = {"metadata": {"name": priority.name}, "value": priority.value, "description": priority.description}
    return PlainObject(name, KUEUE, "WorkloadPriorityClass", fields, opts)


class Queues(pulumi.ComponentResource):
    """Topologies, ResourceFlavors, AdmissionChecks, Cohorts, ClusterQueues and Volcano Queues of all teams.

    Kueue and Volcano are not installed here. Kueue removes the finalizers of its objects, so it must be uninstalled
    after them: make this component depend on its release.

    Example:
        >>> Queues("queues", plan(stack).queues)
    """

    def __init__(self, name: str, queues: QueuesPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Queues", name, {}, opts)
        self.flavors = {flavor.name: self._flavor(f"{name}-flavor-{flavor.name}", flavor) for flavor in queues.flavors}
        self.checks = {check.name: self._check(f"{name}-check-{check.flavor}", check) for check in queues.checks}
        if queues.workers:
            clusters = WorkerClusters(f"{name}-workers", queues.workers, pulumi.ResourceOptions(parent=self))
            self.checks[CHECK] = clusters.check
        self.cohorts: dict[str, CustomResource] = {}
        for cohort in queues.cohorts:
            self.cohorts[cohort.name] = self._cohort(f"{name}-cohort-{cohort.name}", cohort)
        self.cluster_queues = {
            queue.name: self._queue(f"{name}-{queue.name}", queue) for queue in queues.cluster_queues
        }
        self.gang_queues = {
            queue.name: self._gangs(f"{name}-gangs-{queue.name}", queue) for queue in queues.gang_queues
        }
        self.register_outputs({"clusterQueues": list(self.cluster_queues), "gangQueues": list(self.gang_queues)})

    def _flavor(self, name: str, flavor: ResourceFlavor) -> CustomResource:
        spec: dict[str, Any] = {
            "nodeLabels": flavor.node_labels,
            "nodeTaints": [_taint(taint) for taint in flavor.taints],
            "tolerations": [{**_taint(taint), "operator": "Equal"} for taint in flavor.tolerated],
            "topologyName": flavor.name if flavor.topology else None,
        }
        topology = [self._topology(f"{name}-topology", flavor)] if flavor.topology else []
        after = pulumi.ResourceOptions(parent=self, depends_on=topology)
        written = {key: value for key, value in spec.items() if value}
        return kueue_object(name, "ResourceFlavor", flavor.name, written, after)

    def _topology(self, name: str, flavor: ResourceFlavor) -> CustomResource:
        spec = {"levels": [{"nodeLabel": label} for label in flavor.topology]}
        return kueue_object(name, "Topology", flavor.name, spec, pulumi.ResourceOptions(parent=self))

    def _check(self, name: str, check: ProvisioningCheck) -> CustomResource:
        request = check.provisioning
        selected = [
            {"key": key, "valueFromProvisioningClassDetail": detail} for key, detail in request.node_selector.items()
        ]
        spec = {
            "provisioningClassName": request.provisioning_class,
            **({} if request.seconds is None else {"parameters": {"maxRunDurationSeconds": str(request.seconds)}}),
            "managedResources": [check.resource],
            **({"podSetUpdates": {"nodeSelector": selected}} if selected else {}),
        }
        kind, own = "ProvisioningRequestConfig", pulumi.ResourceOptions(parent=self)
        config = kueue_object(f"{name}-config", kind, check.name, spec, own)
        after = pulumi.ResourceOptions(parent=self, depends_on=[config])
        return admission_check(name, check.name, "kueue.x-k8s.io/provisioning-request", kind, after)

    def _cohort(self, name: str, cohort: Cohort) -> CustomResource:
        spec = {
            **({"parentName": cohort.parent} if cohort.parent else {}),
            **_resource_groups(cohort.groups),
            **fair_sharing(cohort.weight),
        }
        above = [self.cohorts[cohort.parent]] if cohort.parent else []
        after = pulumi.ResourceOptions(parent=self, depends_on=[*self.flavors.values(), *above])
        # Without the name of the part, if the environment is several Pulumi stacks.
        stack = None if cohort.parent else {STACK: pulumi.get_stack().removesuffix(f".{TENANCY}")}
        return kueue_object(name, "Cohort", cohort.name, spec, after, annotations=stack)

    def _queue(self, name: str, queue: ClusterQueue) -> CustomResource:
        spec = queue.spec
        body: dict[str, Any] = {
            **({"cohortName": spec.cohort} if spec.cohort else {}),
            "namespaceSelector": {
                "matchExpressions": [
                    {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(queue.namespaces)}
                ]
            },
            "queueingStrategy": str(spec.strategy),
            "preemption": {
                "reclaimWithinCohort": str(spec.preemption.reclaim),
                "withinClusterQueue": str(spec.preemption.within),
                "borrowWithinCohort": {"policy": "LowerPriority" if spec.preemption.borrow else "Never"},
            },
            **_resource_groups(spec.groups, queue.claimed),
            **_checks(queue),
            **({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if queue.by_usage else {}),
            **fair_sharing(spec.weight),
        }
        # What another Pulumi stack has was deployed before.
        cohort = self.cohorts.get(spec.cohort) if spec.cohort else None
        named = [*(check.name for check in queue.checks), *([CHECK] if queue.dispatches else [])]
        checks = [self.checks[check] for check in named if check in self.checks]
        above = [*([cohort] if cohort else []), *checks]
        after = pulumi.ResourceOptions(parent=self, depends_on=[*self.flavors.values(), *above])
        return kueue_object(name, "ClusterQueue", queue.name, body, after)

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


def _checks(queue: ClusterQueue) -> dict[str, Any]:
    strategy_rules: list[dict[str, Any]] = [{"name": check.name, "onFlavors": [check.flavor]} for check in queue.checks]
    if queue.dispatches:  # Kueue rejects a MultiKueue check for some flavors only.
        strategy_rules.append({"name": CHECK})
    return {"admissionChecksStrategy": {"admissionChecks": strategy_rules}} if strategy_rules else {}


_ENOUGH: Final = 1_000_000
"""Quota for claims that never binds: a pod claims one channel or the interfaces of its node, and a cluster has at most
150,000 pods
(https://kubernetes.io/docs/setup/best-practices/cluster-large/)."""


def _resource_groups(
    groups: tuple[ResourceGroup, ...], claimed: Mapping[str, Collection[str]] = {}
) -> Mapping[str, Any]:
    """The quotas; those of what pods claim are no limit on the flavors that have it.

    Kueue requires that all flavors of a group have the same resources.
    """
    written = [
        {
            "coveredResources": [*group.flavors[0].resources, *claimed],
            "flavors": [
                {
                    "name": flavor.flavor,
                    "resources": [
                        *(_quota(resource, quota) for resource, quota in flavor.resources.items()),
                        *(
                            _quota(name, Quota(_ENOUGH if flavor.flavor in having else 0))
                            for name, having in claimed.items()
                        ),
                    ],
                }
                for flavor in group.flavors
            ],
        }
        for group in groups
    ]
    return {"resourceGroups": written} if written else {}


def _quota(resource: str, quota: Quota) -> dict[str, str]:
    amounts = {
        "nominalQuota": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
    }
    written = {key: format_amount(resource, amount) for key, amount in amounts.items() if amount is not None}
    return {"name": resource, **written}
