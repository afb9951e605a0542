"""LeaderWorkerSets of servers: groups of a leader and workers, each of which works as one."""

from collections.abc import Mapping
from typing import Any, Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.manifests.jobs import group_template
from gpu_tenancy.model.manifests.labels import COMPONENT, NAME, queued
from gpu_tenancy.model.plan.workloads import ServerPlan
from gpu_tenancy.model.spec.roles import LEADER, LEADER_WORKER_SET

OF_LEADERS: Final = {COMPONENT: LEADER}
"""Label of leaders."""

_COUNTED: Final = ("nodeSelector", "affinity", "tolerations", "initContainers")
_OF_CONTAINER: Final = ("resources", "ports")
_TEMPLATES: Final = ("leaderTemplate", "workerTemplate")
REPLACED: Final = (
    "spec.leaderWorkerTemplate.size",
    *(f"spec.leaderWorkerTemplate.{template}.spec.{field}" for template in _TEMPLATES for field in _COUNTED),
    *(
        f"spec.leaderWorkerTemplate.{template}.spec.containers[0].{field}"
        for template in _TEMPLATES
        for field in _OF_CONTAINER
    ),
)
"""What Kueue's webhook does not let change, because its Workload has counted it. All else is rolled out.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/leaderworkerset/leaderworkerset_webhook.go,
`SpecShape` in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/pod/pod.go"""


def server_groups(
    name: str, server: ServerPlan, templates: Mapping[str, dict[str, Any]], parent: pulumi.Resource
) -> CustomResource:
    """A server whose replicas are groups of nodes.

    Each group has a headless Service of its own, named as its leader: with one for all groups, LeaderWorkerSet would
    name it as the server, whose own Service has that name. An autoscaler owns the number of groups, as it does for
    Deployments.
    """
    leader, worker = templates.values()
    rollout = {"maxSurge": server.rollout.surge, "maxUnavailable": server.rollout.unavailable}
    return CustomResource(
        name,
        api_version=LEADER_WORKER_SET[0],
        kind=LEADER_WORKER_SET[1],
        metadata={
            "name": server.name,
            "namespace": server.team,
            "labels": {NAME: server.name, **queued(server.queue, server.pod.priority)},
        },
        spec={
            **({} if server.replicas is None else {"replicas": server.replicas}),
            "leaderWorkerTemplate": group_template(server.nodes, leader, worker),
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
            "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rollout},
        },
        opts=pulumi.ResourceOptions(parent=parent, replace_on_changes=list(REPLACED), delete_before_replace=True),
    )
