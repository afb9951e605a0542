"""Gangs: Volcano Jobs."""

from typing import Any

from gpu_tenancy.model.manifests.labels import NAME, VOLCANO
from gpu_tenancy.model.manifests.pods import container, pod_spec, template_metadata
from gpu_tenancy.model.plan.workloads import GANG, GangPlan, PodPlan


def gang_manifest(gang: GangPlan) -> dict[str, Any]:
    """A Volcano Job: all pods of all of its tasks start together, or none."""
    spec: dict[str, Any] = {
        "schedulerName": VOLCANO,
        "queue": gang.queue,
        "minAvailable": sum(role.pods for role in gang.roles),
        "maxRetry": gang.retries,
        "ttlSecondsAfterFinished": gang.keep,
        # The pods address each other by host name and wait for each other, so if one is lost, all must restart.
        "plugins": {"env": [], "svc": []},
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [
            {
                "name": role.name,
                "replicas": role.pods,
                # Volcano's webhook sets the default only on create, and rejects an update without it.
                "maxRetry": gang.retries,
                "template": {
                    "metadata": template_metadata(role.pod, {NAME: gang.name}),
                    "spec": _pod(gang, role.pod),
                },
            }
            for role in gang.roles
        ],
        **({"priorityClassName": gang.pod.priority} if gang.pod.priority else {}),
    }
    return {
        "apiVersion": GANG[0],
        "kind": GANG[1],
        "metadata": {"name": gang.name, "namespace": gang.team, "labels": {NAME: gang.name}},
        "spec": spec,
    }


def _pod(gang: GangPlan, pod: PodPlan) -> dict[str, Any]:
    # A Volcano Job has no field for a deadline.
    end = {} if gang.deadline is None else {"activeDeadlineSeconds": gang.deadline}
    return {**pod_spec(pod, container(pod, "train")), "restartPolicy": "OnFailure", **end}
