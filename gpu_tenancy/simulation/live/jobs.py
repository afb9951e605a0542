"""The Job of a simulated workload."""

from typing import Final

from gpu_tenancy.base.quantity import format_amounts, is_extended
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kueue import Workload
from gpu_tenancy.model.names import QUEUE_LABEL
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.live.copies import Place

PLAYED: Final = "gpu-tenancy.dev/played"
"""Label of played jobs; its value numbers them."""
_IMAGE: Final = "registry.example.com/rehearsal:1"
_NOWHERE: Final = "tenancy-rehearsal"
"""A scheduler that does not exist, so that pods of copies take no node from the stack's own."""


def job_name(number: int) -> str:
    """The name of a played job."""
    return f"played-{number}"


def job_of(tree: Tree, workload: Workload, place: Place, number: int) -> Manifest:
    """A suspended Job that requests what a workload of one pod set does.

    Args:
        tree: of the stack.
        workload: with one pod set.
        place: where it is submitted.
        number: of the job.
    """
    (pods,) = workload.pod_sets
    amounts = dict(format_amounts(pods.requests))
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "played",
                "image": _IMAGE,
                "resources": {"requests": {**amounts}, "limits": {**amounts}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    if pods.flavors and len(pods.flavors) == 1:
        flavor = tree.flavors[next(iter(pods.flavors))]
        spec["nodeSelector"] = {**flavor.node_labels}
        if any(is_extended(resource) for resource in pods.requests):
            spec["tolerations"] = [{"key": taint.key, "operator": "Exists"} for taint in flavor.taints]
    if priority := _class(tree, workload.priority):
        spec["priorityClassName"] = priority
    if not place.runs:
        spec["schedulerName"] = _NOWHERE
    labels = {QUEUE_LABEL: place.local_queue, PLAYED: str(number)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(number), "namespace": place.namespace, "labels": {**labels}},
        "spec": {
            "suspend": True,
            "parallelism": pods.count,
            "completions": pods.count,
            "template": {"metadata": {"labels": {PLAYED: str(number)}}, "spec": spec},
        },
    }


def _class(tree: Tree, value: int) -> str | None:
    """The priority class with a value; None for the value that pods have without a class."""
    classes = ((name, priority.value) for name, priority in tree.stack.priorities.items())
    return next((name for name, found in classes if found == value), None) if value else None
