"""Priority classes, for pods and for workloads in the queues."""

import pulumi
from pulumi_kubernetes.scheduling.v1 import PriorityClass

from gpu_tenancy.model.plan import PriorityPlan

from .conventions import KUEUE, PlainObject


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
        global_default=priority.default,
        description=priority.description,
        opts=opts,
    )


def _workloads(name: str, priority: PriorityPlan, opts: pulumi.ResourceOptions) -> PlainObject:
    fields = {"metadata": {"name": priority.name}, "value": priority.value, "description": priority.description}
    return PlainObject(name, KUEUE, "WorkloadPriorityClass", fields, opts)
