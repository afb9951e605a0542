"""Checks that Kueue places all pods of a job in one part of the network, where the job requires it."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.offline.wire import text_at
from gpu_tenancy.console.proofs.proof import Proof
from gpu_tenancy.console.texts import plural
from gpu_tenancy.model.kueue.topology import REQUIRED
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import JobPlan

_POD_LABEL: Final = {"job": "app.kubernetes.io/name", "pytorch": "jobset.sigs.k8s.io/jobset-name"}
"""Label of a job's pods whose value is the job's name."""


def prove_topology(cluster: Cluster, plan: Plan) -> Iterator[Proof]:
    """Compares the nodes of the pods of each job that requires one part of the network.

    Args:
        cluster: with the stack, and Kueue running.
        plan: of the stack.
    """
    for job in (job for team in plan.teams for job in team.jobs if REQUIRED in job.pod.topology):
        yield _in_one_part(cluster, job, job.pod.topology[REQUIRED])


def _in_one_part(cluster: Cluster, job: JobPlan, label: str) -> Proof:
    pods = cluster.list("v1", "Pod", namespace=job.team, labels=f"{_POD_LABEL[job.framework]}={job.name}")
    names = [name for pod in pods if (name := text_at(pod, "spec", "nodeName"))]
    nodes = {name: cluster.get("v1", "Node", name) or {} for name in dict.fromkeys(names)}
    parts = sorted({text_at(node, "metadata", "labels", label) for node in nodes.values()})
    return Proof(
        f"all pods of {job.team}/{job.name} run on nodes with one {label}",
        f"{plural(len(names), 'pod')} on {', '.join(sorted(nodes))}: {', '.join(parts)}" if names else "pending",
        holds=(len(names) == job.workers and len(parts) == 1) if names else None,
    )
