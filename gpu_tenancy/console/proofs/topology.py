"""Checks that Kueue places all pods of a job in one part of the network, where the job requires it."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.offline.wire import text_at
from gpu_tenancy.console.proofs.proof import Proof
from gpu_tenancy.console.texts import plural
from gpu_tenancy.model.kueue.topology import REQUIRED
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import JobPlan
from gpu_tenancy.model.spec.roles import KINDS

_OF_JOB: Final = "app.kubernetes.io/name"
_OF_JOB_SET: Final = "jobset.sigs.k8s.io/jobset-name"
"""Label of pods whose value is the name of the job, or of the JobSet, also of a TrainJob's."""
_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
"""Label of the pods of a LeaderWorkerSet; each group has a part of its own."""


def prove_topology(cluster: Cluster, plan: Plan) -> Iterator[Proof]:
    """Compares the nodes of the pods of each job that requires one part of the network.

    Args:
        cluster: with the stack, and Kueue running.
        plan: of the stack.
    """
    for job in (job for team in plan.teams for job in team.jobs):
        for label in dict.fromkeys(role.pod.topology.get(REQUIRED) for role in job.roles):
            if label:
                yield _in_one_part(cluster, job, label)


def _in_one_part(cluster: Cluster, job: JobPlan, label: str) -> Proof:
    selector = _OF_JOB_SET if KINDS[job.framework].operator == "trainer" else _OF_JOB
    pods = [
        pod
        for pod in cluster.list("v1", "Pod", namespace=job.team, labels=f"{selector}={job.name}")
        if text_at(pod, "metadata", "annotations", REQUIRED) == label
    ]
    expected = sum(role.pods for role in job.roles if role.pod.topology.get(REQUIRED) == label) * job.groups
    placed = [(name, text_at(pod, "metadata", "labels", _GROUP)) for pod in pods if (name := _node(pod))]
    nodes = {name: cluster.get("v1", "Node", name) or {} for name, _ in placed}
    parts = sorted({(group, text_at(nodes[name], "metadata", "labels", label)) for name, group in placed})
    where = ", ".join(dict.fromkeys(part for _, part in parts))
    return Proof(
        f"all pods of {job.team}/{job.name} run on nodes with one {label}{' per group' if job.groups > 1 else ''}",
        f"{plural(len(placed), 'pod')} on {', '.join(sorted(nodes))}: {where}" if placed else "pending",
        holds=(len(placed) == expected and len(parts) == job.groups) if placed else None,
    )


def _node(pod: Manifest) -> str:
    return text_at(pod, "spec", "nodeName")
