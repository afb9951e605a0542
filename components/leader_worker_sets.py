"""LeaderWorkerSets: groups of a leader and workers, each of which works as one."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import LEADER_WORKER_SET

from .conventions import NAME, labels_of
from .pods import container, pod_spec, template_metadata
from .wire import wire


def leader_worker_set(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A LeaderWorkerSet. Kueue makes a Workload for each group, and all pods of a group restart together.

    https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go
    """
    leader, worker = job.roles
    return CustomResource(
        name,
        api_version=LEADER_WORKER_SET[0],
        kind=LEADER_WORKER_SET[1],
        metadata={"name": job.name, "namespace": job.team, "labels": labels_of(job)},
        spec={
            "replicas": job.groups,
            "leaderWorkerTemplate": {
                "size": leader.pods + worker.pods,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(job, leader),
                "workerTemplate": _template(job, worker),
            },
        },
        opts=opts,
    )


def _template(job: JobPlan, role: RolePlan) -> dict[str, Any]:
    return {
        "metadata": wire(template_metadata(role.pod, {NAME: job.name})),
        "spec": wire(pod_spec(role.pod, container(role.pod, "train"))),
    }
