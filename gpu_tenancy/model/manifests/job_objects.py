"""What the objects of all kinds of jobs have in common."""

from typing import Any, Final

from gpu_tenancy.model.manifests.labels import labels_of, pod_labels
from gpu_tenancy.model.manifests.pods import container, pod_spec, template_metadata
from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import KINDS

EVICTED: Final = ({"type": "DisruptionTarget", "status": "True"},)
"""Condition of pods that are preempted or evicted, and did not fail by themselves:
https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions."""


def job_object(job: JobPlan, spec: dict[str, Any]) -> dict[str, Any]:
    """The object of a job's kind, in the team's queue. A manager of MultiKueue leaves it to a worker."""
    api_version, kind = KINDS[job.framework].api
    name = {"name": job.name} if job.name else {"generateName": "train-"}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {**name, "namespace": job.team, "labels": labels_of(job)},
        "spec": {**spec, "managedBy": CONTROLLER} if job.dispatched else spec,
    }


def deadline_of(job: JobPlan) -> dict[str, int]:
    """The field of a spec with the maximum run time; empty without one."""
    return {} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}


def pod_template(job: JobPlan, role: RolePlan, container_name: str) -> dict[str, Any]:
    """The pods of a role."""
    return {
        "metadata": template_metadata(role.pod, pod_labels(job)),
        "spec": pod_spec(role.pod, container(role.pod, container_name)),
    }


def policy_of_failures(action: str) -> dict[str, Any]:
    """What a Job does about an evicted pod, which is no failure of its own."""
    return {"rules": [{"action": action, "onPodConditions": [dict(condition) for condition in EVICTED]}]}
