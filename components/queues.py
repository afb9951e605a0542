"""Priority classes; Kueue's topologies, flavors, cohorts, cluster queues and worker clusters; Volcano's queues."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Namespace, ServiceAccount
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.scheduling.v1 import PriorityClass

from gpu_tenancy.base.quantity import format_amount, format_amounts
from gpu_tenancy.kueue import Cohort, Quota, ResourceGroup
from gpu_tenancy.model.names import KUEUE, STACK, VOLCANO
from gpu_tenancy.model.plan import QueuesPlan
from gpu_tenancy.model.plan.environment import TENANCY
from gpu_tenancy.model.plan.operators.kueue import CHECK, CONTROLLER, WorkerAccess
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.queues import ClusterQueue, GangQueue, ProvisioningCheck, ResourceFlavor
from gpu_tenancy.model.spec.tenancy import Priority, Worker

from . import objects
from .objects import LABELS, Component, Options, PlainObject, admission_check, kueue_object


class Priorities(Component):
    """A PriorityClass, for pods on nodes, and a WorkloadPriorityClass, for queues, of the same name for each priority.

    Their values are equal, so that neither can contradict the other, and only Kueue preempts unless the stack says
    otherwise. Kueue is not installed here.
    """

    def __init__(self, name: str, priorities: Mapping[str, Priority], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Priorities", name, opts)
        self.classes: dict[str, PriorityClass] = {}
        self.workload_classes: dict[str, PlainObject] = {}
        for called, priority in priorities.items():
            self.classes[called] = PriorityClass(
                f"{name}-{called}",
                metadata={"name": called},
                value=priority.value,
                preemption_policy="PreemptLowerPriority" if priority.preempts else "Never",
                # The provider leaves out what is false or empty, so that the state would differ from the program.
                global_default=priority.default or None,
                description=priority.description or None,
                # The API server refuses changes of these; pods that run keep what they had.
                opts=pulumi.ResourceOptions(
                    parent=self, replace_on_changes=["value", "preemptionPolicy"], delete_before_replace=True
                ),
            )
            fields = {"metadata": {"name": called}, "value": priority.value, "description": priority.description}
            self.workload_classes[called] = PlainObject(
                f"{name}-{called}-workloads", KUEUE, "WorkloadPriorityClass", fields, self.own
            )


class Queues(Component):
    """Topologies, ResourceFlavors, AdmissionChecks, Cohorts, ClusterQueues and Volcano Queues of all teams.

    Kueue and Volcano are not installed here. Kueue, which removes its objects' finalizers, must be uninstalled after
    them: make this component depend on its release.
    """

    def __init__(self, name: str, queues: QueuesPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Queues", name, opts)
        self.flavors = {flavor.name: self._flavor(f"{name}-flavor-{flavor.name}", flavor) for flavor in queues.flavors}
        self.checks = {check.name: self._check(f"{name}-check-{check.flavor}", check) for check in queues.checks}
        if queues.workers:
            self.checks[CHECK] = WorkerClusters(f"{name}-workers", queues.workers, self.own).check
        self.cohorts: dict[str, CustomResource] = {}
        for cohort in queues.cohorts:
            self.cohorts[cohort.name] = self._cohort(f"{name}-cohort-{cohort.name}", cohort)
        self.cluster_queues = {
            queue.name: self._queue(f"{name}-{queue.name}", queue) for queue in queues.cluster_queues
        }
        self.gang_queues = {
            queue.name: self._gangs(f"{name}-gangs-{queue.name}", queue) for queue in queues.gang_queues
        }

    def _flavor(self, name: str, flavor: ResourceFlavor) -> CustomResource:
        spec: dict[str, Any] = {
            "nodeLabels": flavor.node_labels,
            "nodeTaints": [_taint(taint) for taint in flavor.taints],
            "tolerations": [{**_taint(taint), "operator": "Equal"} for taint in flavor.tolerated],
            "topologyName": flavor.name if flavor.topology else None,
        }
        after = self.own
        if flavor.topology:
            levels = {"levels": [{"nodeLabel": label} for label in flavor.topology]}
            after = self.after(kueue_object(f"{name}-topology", "Topology", {"name": flavor.name}, levels, self.own))
        written = {key: value for key, value in spec.items() if value}
        return kueue_object(name, "ResourceFlavor", {"name": flavor.name}, written, after)

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
        kind = "ProvisioningRequestConfig"
        config = kueue_object(f"{name}-config", kind, {"name": check.name}, spec, self.own)
        return admission_check(name, check.name, "kueue.x-k8s.io/provisioning-request", kind, self.after(config))

    def _cohort(self, name: str, cohort: Cohort) -> CustomResource:
        spec = {
            **({"parentName": cohort.parent} if cohort.parent else {}),
            **_resource_groups(cohort.groups),
            **objects.fair_sharing(cohort.weight),
        }
        metadata: ObjectMetaArgsDict = {"name": cohort.name}
        if not cohort.parent:  # Without the name of the part, if the environment is several Pulumi stacks.
            metadata["annotations"] = {STACK: pulumi.get_stack().removesuffix(f".{TENANCY}")}
        parents = [self.cohorts[cohort.parent]] if cohort.parent else []
        return kueue_object(name, "Cohort", metadata, spec, self.after(*self.flavors.values(), *parents))

    def _queue(self, name: str, queue: ClusterQueue) -> CustomResource:
        spec = queue.spec
        rules: list[dict[str, Any]] = [{"name": check.name, "onFlavors": [check.flavor]} for check in queue.checks]
        if queue.dispatches:  # Kueue rejects a MultiKueue check for some flavors only.
            rules.append({"name": CHECK})
        namespaces = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(queue.namespaces)}
        body: dict[str, Any] = {
            **({"cohortName": spec.cohort} if spec.cohort else {}),
            "namespaceSelector": {"matchExpressions": [namespaces]},
            "queueingStrategy": str(spec.strategy),
            "preemption": {
                "reclaimWithinCohort": str(spec.preemption.reclaim),
                "withinClusterQueue": str(spec.preemption.within),
                "borrowWithinCohort": {"policy": "LowerPriority" if spec.preemption.borrow else "Never"},
            },
            **_resource_groups(spec.groups, queue.claimed),
            **({"admissionChecksStrategy": {"admissionChecks": rules}} if rules else {}),
            **({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if queue.by_usage else {}),
            **objects.fair_sharing(spec.weight),
        }
        # What another Pulumi stack has was deployed before.
        cohort = self.cohorts.get(spec.cohort) if spec.cohort else None
        checks = [self.checks[rule["name"]] for rule in rules if rule["name"] in self.checks]
        after = self.after(*self.flavors.values(), *([cohort] if cohort else []), *checks)
        return kueue_object(name, "ClusterQueue", {"name": queue.name}, body, after)

    def _gangs(self, name: str, queue: GangQueue) -> CustomResource:
        guarantee, capability = format_amounts(queue.guarantee), format_amounts(queue.capability)
        spec = {
            "reclaimable": False,
            "guarantee": {"resource": guarantee},
            "deserved": guarantee,
            "capability": capability,
        }
        return CustomResource(name, VOLCANO, "Queue", metadata={"name": queue.name}, spec=spec, opts=self.own)


def _taint(taint: NodeTaint) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}


_ENOUGH: Final = 1_000_000
"""Quota for claims that never binds: a pod claims one channel or its node's interfaces, and a cluster has at most
150,000 pods (https://kubernetes.io/docs/setup/best-practices/cluster-large/)."""


def _resource_groups(
    groups: tuple[ResourceGroup, ...], claimed: Mapping[str, Collection[str]] = {}
) -> Mapping[str, Any]:
    """The quotas; quotas of claims do not limit flavors. All flavors of a group must have the same resources."""
    written: list[dict[str, Any]] = []
    for group in groups:
        flavors: list[dict[str, Any]] = []
        for flavor in group.flavors:
            claims = {name: Quota(_ENOUGH if flavor.flavor in having else 0) for name, having in claimed.items()}
            quotas = [_quota(resource, quota) for resource, quota in {**flavor.resources, **claims}.items()]
            flavors.append({"name": flavor.flavor, "resources": quotas})
        written.append({"coveredResources": [*group.flavors[0].resources, *claimed], "flavors": flavors})
    return {"resourceGroups": written} if written else {}


def _quota(resource: str, quota: Quota) -> dict[str, str]:
    amounts = {
        "nominalQuota": quota.nominal,
        "borrowingLimit": quota.borrowing_limit,
        "lendingLimit": quota.lending_limit,
    }
    written = {key: format_amount(resource, amount) for key, amount in amounts.items() if amount is not None}
    return {"name": resource, **written}


class WorkerClusters(Component):
    """The MultiKueueClusters of a manager, and the AdmissionCheck that sends workloads to them.

    A kubeconfig is a Secret in Kueue's namespace, neither read nor created here.
    """

    def __init__(self, name: str, workers: Sequence[Worker], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:WorkerClusters", name, opts)
        clusters: dict[str, CustomResource] = {}
        for worker in workers:
            source = {"kubeConfig": {"locationType": "Secret", "location": worker.secret}}
            clusters[worker.name] = kueue_object(
                f"{name}-{worker.name}", "MultiKueueCluster", {"name": worker.name}, {"clusterSource": source}, self.own
            )
        kind, spec = "MultiKueueConfig", {"clusters": list(clusters)}
        config = kueue_object(f"{name}-config", kind, {"name": CHECK}, spec, self.after(*clusters.values()))
        self.check = admission_check(f"{name}-check", CHECK, CONTROLLER, kind, self.after(config))


WRITES: Final = f"{CHECK}-team"  # the ClusterRole and the RoleBindings by which a manager creates workloads


class ManagerAccess(Component):
    """The ServiceAccount of a manager in a worker, its read rights, and its role in each team's namespace.

    It has no token until a user asks for one: `tenancy access worker-kubeconfig`.
    """

    def __init__(self, name: str, access: WorkerAccess, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:ManagerAccess", name, opts)
        manager = access.account
        if access.of_others:  # read only, so that a missing namespace is an error before anything is changed
            Namespace.get(f"{name}-namespace", manager.namespace, opts=self.own)
        account = ServiceAccount(
            f"{name}-account",
            metadata={"name": manager.name, "namespace": manager.namespace, "labels": LABELS},
            automount_service_account_token=False,
            opts=self.own,
        )
        reads = objects.cluster_role(f"{name}-reads", CHECK, access.reads, self.own)
        objects.cluster_role(f"{name}-writes", WRITES, access.writes, self.own)
        after = self.after(account, reads)
        objects.cluster_role_binding(f"{name}-binding", {"name": CHECK, "labels": LABELS}, CHECK, [manager], after)
