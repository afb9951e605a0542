"""LeaderWorkerSets: groups of a leader and workers, each of which works as one."""

from typing import Any

from gpu_tenancy.model.manifests.job_objects import job_object, pod_template
from gpu_tenancy.model.plan.workloads import JobPlan


def leader_worker_set(job: JobPlan) -> dict[str, Any]:
    """A LeaderWorkerSet. Kueue makes a Workload for each group, and all pods of a group restart together.

    https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go
    """
    leader, worker = job.roles
    leader_pods, worker_pods = pod_template(job, leader, "train"), pod_template(job, worker, "train")
    spec = {
        "replicas": job.groups,
        "leaderWorkerTemplate": group_template(leader.pods + worker.pods, leader_pods, worker_pods),
    }
    return job_object(job, spec)


def group_template(size: int, leader: dict[str, Any], worker: dict[str, Any]) -> dict[str, Any]:
    """The pods of each group: if one fails, all restart, because they wait for each other."""
    return {
        "size": size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }
