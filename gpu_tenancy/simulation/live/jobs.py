"""The Job of a simulated workload: the same object as that of a stack's job."""

from typing import Any, Final

from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kueue import Workload
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, PodPlan, RolePlan
from gpu_tenancy.simulation.live.copies import Place

PLAYED: Final = "gpu-tenancy.dev/played"
"""Label of played jobs; its value numbers them."""
_IMAGE: Final = "registry.example.com/rehearsal:1"
_NOWHERE: Final = "tenancy-rehearsal"
"""A scheduler that does not exist, so that pods of copies take no node from the stack's own."""
_DAY: Final = 86_400


def job_name(number: int) -> str:
    """The name of a played job."""
    return f"played-{number}"


def job_of(tree: Tree, workload: Workload, place: Place, number: int) -> Manifest:
    """A Job that requests what a workload of one pod set does.

    Args:
        tree: of the stack.
        workload: with one pod set.
        place: where it is submitted.
        number: of the job.
    """
    (pods,) = workload.pod_sets
    flavor = tree.flavors[next(iter(pods.flavors))] if pods.flavors and len(pods.flavors) == 1 else None
    with_gpus = any(is_extended(resource) for resource in pods.requests)
    pod = PodPlan(
        image=_IMAGE,
        command=(),
        args=(),
        env={},
        amounts=pods.requests,
        node_labels=dict(flavor.node_labels) if flavor else {},
        tolerated=flavor.taints if flavor and with_gpus else (),
        priority=_class(tree, workload.priority),
        non_root=True,
    )
    job = job_of_pods(job_name(number), place, pod, pods.count)
    metadata, template = job["metadata"], job["spec"]["template"]
    metadata["labels"][PLAYED] = str(number)
    template["metadata"]["labels"][PLAYED] = str(number)
    if not place.runs:
        template["spec"]["schedulerName"] = _NOWHERE
    return job


def job_of_pods(name: str, place: Place, pod: PodPlan, pods: int, *, gang: bool = False) -> dict[str, Any]:
    """A Job of pods that are alike, as a stack has it.

    Args:
        name: of the job.
        place: where it is submitted.
        pod: each pod.
        pods: their number.
        gang: whether Volcano starts all of them at once or none.
    """
    role = RolePlan("worker", pods, pod)
    return job_manifest(
        JobPlan(
            name, place.namespace, place.local_queue, "job", (role,), gang=gang, retries=0, deadline=None, keep=_DAY
        )
    )


def _class(tree: Tree, value: int) -> str | None:
    """The priority class with a value; None for the value that pods have without a class."""
    classes = ((name, priority.value) for name, priority in tree.stack.priorities.items())
    return next((name for name, found in classes if found == value), None) if value else None
