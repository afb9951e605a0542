"""How many objects of each kind a team's namespace can have, so that one team cannot fill the cluster's store."""

from collections import Counter
from typing import Final

from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.pods import is_gang
from gpu_tenancy.model.spec.teams import Team

DEFAULTS: Final = {
    "pods": 3000,
    "jobs": 500,
    "services": 1000,
    "secrets": 1000,
    "configmaps": 1000,
    "persistentvolumeclaims": 500,
}
"""Counts of a team that sets none. Pods: the number of pods of a namespace up to which Kubernetes is tested
(https://github.com/kubernetes/community/blob/master/sig-scalability/configs-and-limits/thresholds.md). A JobSet, a
server and the head of a Ray cluster have a Service each, and an MPI job has a ConfigMap and a Secret."""
_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
"""API groups with pods that Kubernetes itself serves."""
WORKLOADS: Final = "count/workloads.kueue.x-k8s.io"


def needed(environment: Environment, team: Team) -> dict[str, int]:
    """What the stack itself creates in a team's namespace, by key of `objects`.

    Servers and hosts of notebooks have a Service each, and so have gangs and all jobs but Jobs, so that their pods find
    each other. Of a server of several nodes, each group has one, too. Pods are those of all servers at their peak, and
    of the largest job.
    """
    servers, jobs = team.serving.values(), team.training.values()
    of_kinds = Counter(
        [*("LeaderWorkerSet" if server.grouped else "Deployment" for server in servers)]
        + ["gang" if is_gang(job) else job.kind.api[1] for job in jobs]
    )
    connected = [job for job in jobs if is_gang(job) or job.framework != "job"]
    hosts = len(team.notebooks.expose.names) if team.notebooks and team.notebooks.expose else 0
    groups = sum(server.most_replicas for server in servers if server.grouped)
    return {
        "pods": sum(server.most_pods for server in servers) + max((job.most_pods for job in jobs), default=0),
        "jobs": max(of_kinds.values(), default=0),
        "services": sum(not server.burst_of for server in servers) + groups + len(connected) + hosts,
        "secrets": len(team.secrets),
        "persistentvolumeclaims": len(team.storage) + len(environment.stack.datasets),
    }


def counts(environment: Environment, team: Team) -> dict[str, int]:
    """The maximum number of objects of each kind, by its name in a ResourceQuota.

    The kinds with pods are those that Kubernetes and the stack's operators serve. Kueue creates one Workload for each
    object of them, or for each of its pods.
    """
    own = {key: amount for key, amount in team.objects.model_dump(exclude_none=True).items() if key != "storage"}
    least = needed(environment, team)
    amounts = {key: own.get(key, max(amount, 2 * least.get(key, 0))) for key, amount in DEFAULTS.items()}
    jobs, pods = amounts.pop("jobs"), amounts["pods"]
    counted = [
        kind
        for kind in kinds().values()
        if kind.guarded
        and kind.plural != "pods"
        and (there(environment, kind.operator) if kind.operator else kind.group in _OWN_GROUPS)
    ]
    of_kinds = {f"count/{kind.resource}": jobs + pods * kind.made for kind in counted}
    return {**amounts, **of_kinds, WORKLOADS: pods + jobs * len(counted)}
