"""CronJobs of the platform itself, in namespaces that belong to no team."""

from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi_kubernetes.batch.v1 import CronJob
from pulumi_kubernetes.core.v1 import ContainerArgsDict, Namespace, PodTemplateSpecArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.networking.v1 import NetworkPolicy

from .pods import kubectl_pod

KUBECTL_AND_SHELL: Final = (
    "docker.io/alpine/k8s:1.34.1@sha256:ec714df3813b5405292860f8a1c55c5727bf8c33c88992f1e981efad8065547f"
)
"""Image with kubectl, a shell and awk; that of Kubernetes has kubectl alone. The digest is in files of several public
repositories, which agree (read on 2026-11-23)."""
_MINUTES: Final = 60


def namespace_of_jobs(
    name: str, namespace: str, environment: str, parent: pulumi.Resource
) -> tuple[Namespace, pulumi.ResourceOptions]:
    """A namespace of no team, for CronJobs, to which nothing can connect; and options for what is in it.

    In the namespace of a team, whoever may create a pod could run it with the ServiceAccount of a CronJob, the team's
    quota could refuse their pods, and its NetworkPolicies deny the API server.

    Args:
        name: of the resource.
        namespace: its name.
        environment: of the stack.
        parent: the component.
    """
    labels = {
        "app.kubernetes.io/part-of": "gpu-tenancy",
        "environment": environment,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    made = Namespace(
        f"{name}-namespace",
        metadata={"name": namespace, "labels": labels},
        opts=pulumi.ResourceOptions(parent=parent),
    )
    inside = pulumi.ResourceOptions(parent=parent, depends_on=[made])
    NetworkPolicy(
        f"{name}-default-deny",
        metadata={"name": "default-deny", "namespace": namespace},
        spec={"pod_selector": {}, "policy_types": ["Ingress"]},
        opts=inside,
    )
    return made, inside


def cron_job(  # noqa: PLR0913 - what a CronJob has
    name: str,
    place: tuple[str, str],
    schedule: str,
    *,
    account: str,
    own: ContainerArgsDict,
    opts: pulumi.ResourceOptions,
    labels: Mapping[str, str] | None = None,
) -> CronJob:
    """A CronJob that runs kubectl in a shell.

    Args:
        name: of the resource.
        place: namespace and name.
        schedule: as five fields of cron, in UTC.
        account: its ServiceAccount.
        own: name, command and variables of the container.
        opts: of the resource.
        labels: of the CronJob and its pods.
    """
    (namespace, called), pod = place, kubectl_pod(account, "Never", {**own, "image": KUBECTL_AND_SHELL}, "256Mi")
    metadata: ObjectMetaArgsDict = {"labels": dict(labels)} if labels else {}
    template: PodTemplateSpecArgsDict = {"spec": pod}
    if metadata:
        template["metadata"] = metadata
    return CronJob(
        name,
        metadata={"name": called, "namespace": namespace, **metadata},
        spec={
            "schedule": schedule,
            "time_zone": "Etc/UTC",
            "concurrency_policy": "Forbid",
            "starting_deadline_seconds": 10 * _MINUTES,
            "successful_jobs_history_limit": 1,
            "failed_jobs_history_limit": 3,
            "job_template": {
                "spec": {
                    "backoff_limit": 2,
                    "active_deadline_seconds": 10 * _MINUTES,
                    "template": template,
                }
            },
        },
        opts=opts,
    )
