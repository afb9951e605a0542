"""What the objects of all kinds of jobs with a custom resource have in common."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.multikueue import CONTROLLER
from gpu_tenancy.model.plan.workloads import JobPlan, RolePlan
from gpu_tenancy.model.spec.roles import KINDS

from .conventions import NAME, labels_of
from .pods import container, pod_spec, template_metadata
from .wire import wire


def job_object(name: str, job: JobPlan, spec: dict[str, Any], opts: pulumi.ResourceOptions) -> CustomResource:
    """The object of a job's kind, in the team's queue. A manager of MultiKueue leaves it to a worker."""
    api_version, kind = KINDS[job.framework].api
    return CustomResource(
        name,
        api_version=api_version,
        kind=kind,
        metadata={"name": job.name, "namespace": job.team, "labels": labels_of(job)},
        spec={**spec, "managedBy": CONTROLLER} if job.dispatched else spec,
        opts=opts,
    )


def deadline_of(job: JobPlan) -> dict[str, int]:
    """The field of a spec with the maximum run time; empty without one."""
    return {} if job.deadline is None else {"activeDeadlineSeconds": job.deadline}


def pod_template(job: JobPlan, role: RolePlan, container_name: str) -> dict[str, Any]:
    """The pods of a role."""
    return {
        "metadata": wire(template_metadata(role.pod, {NAME: job.name})),
        "spec": wire(pod_spec(role.pod, container(role.pod, container_name))),
    }
