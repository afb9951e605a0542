"""LeaderWorkerSets: groups of a leader and workers, each of which works as one."""

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.workloads import JobPlan

from .job_objects import job_object, pod_template


def leader_worker_set(name: str, job: JobPlan, opts: pulumi.ResourceOptions) -> CustomResource:
    """A LeaderWorkerSet. Kueue makes a Workload for each group, and all pods of a group restart together.

    https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go
    """
    leader, worker = job.roles
    spec = {
        "replicas": job.groups,
        "leaderWorkerTemplate": {
            "size": leader.pods + worker.pods,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": pod_template(job, leader, "train"),
            "workerTemplate": pod_template(job, worker, "train"),
        },
    }
    return job_object(name, job, spec, opts)
