"""A team's namespace: labels, ResourceQuotas, LimitRange, network rules.

Each class rejects values that the API server would reject, or accept but ignore.
"""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, is_extended, times
from gpu_tenancy.model.catalogue.clouds import NodeEndpoint, rules_of
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claiming_flavors
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.object_storage import egress_of_datasets, sidecars
from gpu_tenancy.model.plan.operators.kueue import WorkerAccess, worker_access
from gpu_tenancy.model.plan.people import TeamBinding, bindings
from gpu_tenancy.model.plan.pods import is_gang
from gpu_tenancy.model.plan.rollouts import waiting_in_rollouts
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.plan.signals import Monitor, monitor
from gpu_tenancy.model.plan.storage import stored
from gpu_tenancy.model.resolve import ResolvedTeam
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.serving import NotebooksExpose
from gpu_tenancy.model.spec.teams import Team

_COMPUTE: Final = frozenset({"pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """A ResourceQuota in base units; `scope` selects pods `In` or `NotIn` priority classes, None for all.

    Raises:
        ValueError: an extended resource with another prefix than `requests.`, which the API server accepts but never
            counts (https://kubernetes.io/docs/concepts/policy/resource-quotas/), or objects with a PriorityClass
            scope, which supports only pods and compute resources.
    """

    name: str
    hard: Amounts
    scope: tuple[Literal["In", "NotIn"], tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        for resource in self.hard:
            prefix, _, rest = resource.partition(".")
            extended = is_extended(resource) and not resource.startswith("count/")
            if extended and (prefix != "requests" or not is_extended(rest)):
                bare = rest if prefix == "limits" else resource
                raise ValueError(f"ResourceQuota {self.name}: {resource} is never counted; use requests.{bare}")
            scoped = resource in _COMPUTE or resource.startswith("count/") or extended
            if self.scope and not scoped:
                rule = "is not supported with a PriorityClass scope; use only pods, cpu and memory"
                raise ValueError(f"ResourceQuota {self.name}: {resource} {rule}")


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Defaults and bounds of one container, and bounds of one PersistentVolumeClaim.

    Raises:
        ValueError: a bound of GPUs without defaults of 0, which adds GPUs to pods that request none; or a bound of CPU
            or memory without defaults, which gives each pod the maximum.
    """

    default: Amounts
    default_request: Amounts
    min: Amounts = field(default_factory=dict[str, int])
    max: Amounts = field(default_factory=dict[str, int])
    ratio: dict[str, Fraction] = field(default_factory=dict[str, Fraction])
    claim_min: int | None = None
    claim_max: int | None = None

    @property
    def gives_gpus(self) -> bool:
        """Whether it sets GPUs, even 0, for containers that request none."""
        return any(is_extended(resource) for resource in self.default_request)

    def __post_init__(self) -> None:
        for resource in dict.fromkeys((*self.max, *self.min, *self.default)):
            defaults = self.default.get(resource), self.default_request.get(resource)
            if is_extended(resource) and defaults != (0, 0):
                msg = f"LimitRange: {resource} would be added to pods without it; set default and defaultRequest to 0"
                raise ValueError(msg)
            if resource in self.max and None in defaults:
                msg = f"LimitRange: pods without {resource} would get its max; set default and defaultRequest"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """A team's namespace, its bounds, and traffic that its default-deny NetworkPolicy allows besides its own keys."""

    name: str
    team: ResolvedTeam
    labels: dict[str, str]
    quotas: tuple[ResourceQuota, ...]
    limits: LimitRange
    monitors: dict[str, Monitor]  # scraping by Prometheus, by server
    node_endpoints: tuple[NodeEndpoint, ...]  # link-local addresses that its pods may call: DNS, credentials
    kuberay: str | None  # namespace of KubeRay, which calls the dashboards of Ray's heads; None without
    data: tuple[str, ...]  # CIDRs that the sidecars of the team's datasets must reach over HTTPS
    notebooks: dict[str, NotebooksExpose]  # exposure outside of the cluster, by notebook
    queue: str  # the team's ClusterQueue
    usage_weight: float | None  # weight of the team's past usage in this queue; None if usage does not count
    bindings: tuple[TeamBinding, ...]
    manager: WorkerAccess | None  # the MultiKueue manager; None if the stack is not one of its workers
    pull_secrets: tuple[str, ...]  # Secrets for the images of the team's workloads
    sizes: dict[str, int]  # maximum numbers of children and pods of one object
    interfaces: tuple[int, ...]  # numbers of RDMA interfaces with a ResourceClaimTemplate
    protect: bool  # whether Pulumi refuses to delete it: in production, while the stack declares claims in it
    annotations: dict[str, str] = field(default_factory=dict[str, str])  # the stack's, and facts for the guards


def namespace(tree: Tree, name: str) -> NamespacePlan:
    """The namespace of a team of the stack."""
    team, cluster, claiming = tree.stack.teams[name], tree.stack.cluster, claiming_flavors(tree)
    expose = team.notebooks.expose if team.notebooks else None
    endpoints = rules_of(service_of(cluster)).node_endpoints
    return NamespacePlan(
        name=name,
        team=team,
        labels={
            **team.labels,
            "app.kubernetes.io/managed-by": "gpu-tenancy",
            "cost-center": team.cost_center,
            "environment": tree.stack.environment,
            "gpu-tier": team.tier,
            "owner": team.owner,
            "pod-security.kubernetes.io/enforce": team.pod_security,
            "pod-security.kubernetes.io/warn": "restricted",
        },
        quotas=_quotas(tree, name, team),
        limits=_limits(tree, name, team),
        monitors={name: scrape for name, spec in team.serving.items() if (scrape := monitor(tree, spec))},
        node_endpoints=tuple(one for one in endpoints if cluster.NODES_MADE or not one.of_nodes),
        kuberay=charts()["kuberay-operator"].namespace if there(tree, "kuberay") else None,
        data=egress_of_datasets(tree.stack.datasets.values(), name),
        notebooks=dict.fromkeys(expose.names, expose) if expose else {},
        queue=tree.queue_of(name),
        usage_weight=tree.usage_weight(name),
        bindings=bindings(tree, name),
        manager=worker_access(tree),
        pull_secrets=tuple(dict.fromkeys(team.image_pull_secrets)),
        sizes={key: amount for key, amount in amounts(tree, team).items() if key in {"children", "pods"}},
        interfaces=tuple(sorted({claiming[flavor] for flavor in tree.shares_of(name) if flavor in claiming})),
        protect=tree.stack.is_production and any(stored(team)),
        annotations=team.annotations,
    )


def gpu_resources(tree: Tree) -> list[str]:
    """The extended resources of the stack's GPUs."""
    return list(dict.fromkeys(flavor.resource for flavor in tree.flavors.values() if flavor.resource))


def _quotas(tree: Tree, name: str, team: ResolvedTeam) -> tuple[ResourceQuota, ...]:
    queued = admitted(tree.shares_of(name), gangs_of(team, tree.flavors))
    admissible = add(queued, sidecars(tree.stack.datasets, team), waiting_in_rollouts(tree, name))
    # Every GPU resource is listed, even with 0: a quota does not limit resources that it does not list.
    gpus = times({f"requests.{one}": admissible.get(one, 0) for one in gpu_resources(tree)}, 1 + team.compute.waiting)
    compute = times(_compute(team, admissible), 1 + team.compute.waiting)
    objects = counts(tree, team) | ({} if team.objects.storage is None else {"requests.storage": team.objects.storage})
    if not team.compute.priorities:
        return (ResourceQuota("budget", compute | gpus | objects),)
    classes = tuple(sorted(team.compute.priorities))
    return (
        ResourceQuota("budget", gpus | objects),
        ResourceQuota("budget-compute", compute, ("In", classes)),
        # The scoped quota alone would not limit pods of other classes.
        ResourceQuota("budget-no-other-priority", {"pods": 0}, ("NotIn", classes)),
    )


def _compute(team: Team, admissible: Amounts) -> dict[str, int]:
    """CPU and memory of the stack; default requests: everything that the queues can admit."""
    hard: dict[str, int] = {}
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        hard[f"requests.{resource}"] = admissible.get(resource, 0) if requests is None else requests
        if limits is not None:
            hard[f"limits.{resource}"] = limits
    return hard


def _limits(tree: Tree, name: str, team: Team) -> LimitRange:
    defaults, bounds = container_defaults(team), team.containers
    shares = tree.shares_of(name)
    maximum = {r: amount for r in (CPU, MEMORY) if (amount := getattr(bounds.max, r)) is not None}
    # Without a maximum GPUs stay out of it: a node is bound enough, and a maximum needs a default of 0, which Kueue
    # 0.19 takes for the request of a job that states its GPUs as limits alone
    # (https://github.com/kubernetes-sigs/kueue/issues/15020).
    own = dict.fromkeys(tree.flavors[flavor].resource for flavor in (*shares, *team.gangs))
    maximum |= {gpu: bounds.max.gpu for gpu in own if gpu and bounds.max.gpu is not None}
    none = dict.fromkeys(gpu_resources(tree), 0) if bounds.max.gpu is not None else {}
    return LimitRange(
        default=dict(defaults.limits) | none,
        default_request=dict(defaults.requests) | none,
        min={r: amount for r in (CPU, MEMORY) if (amount := getattr(bounds.min, r)) is not None},
        max=maximum,
        ratio=ratios(team),
        claim_min=team.claims.min,
        claim_max=team.claims.max,
    )


_CLAIMS: Final = "persistentvolumeclaims"
DEFAULTS: Final = {
    "pods": 3000, "children": 50, "jobs": 500, "cronjobs": 20, "services": 1000, "secrets": 1000,
    "configmaps": 1000, _CLAIMS: 500, "others": 1000,
}  # fmt: skip
"""Counts of a team that sets none. Pods: the number of pods of a namespace up to which Kubernetes is tested
(https://github.com/kubernetes/community/blob/master/sig-scalability/configs-and-limits/thresholds.md). A JobSet, a
server and the head of a Ray cluster have a Service each, and an MPI job has a ConfigMap and a Secret."""
_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})  # API groups with pods that Kubernetes itself serves
OTHERS: Final = {
    **dict.fromkeys(
        ("count/controllerrevisions.apps", "count/horizontalpodautoscalers.autoscaling",
         "count/ingresses.networking.k8s.io", "count/leases.coordination.k8s.io",
         "count/networkpolicies.networking.k8s.io", "count/poddisruptionbudgets.policy",
         "count/resourceclaimtemplates.resource.k8s.io",
         "count/rolebindings.rbac.authorization.k8s.io", "count/roles.rbac.authorization.k8s.io",
         "count/serviceaccounts"), 0),
    "count/resourceclaims.resource.k8s.io": 8,
}  # fmt: skip
"""Counts of kinds without pods, with the number that Kubernetes creates for a pod at most. It counts no Events."""
WORKLOADS: Final = "count/workloads.kueue.x-k8s.io"


def needed(environment: Environment, team: ResolvedTeam) -> dict[str, int]:
    """Objects of the stack itself in a team's namespace, by key of `objects`.

    Servers, hosts of notebooks, gangs and all jobs but Jobs have a Service each; so has each group of a server of
    several nodes. Pods count all servers at their peak, and the largest job.
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
        "services": sum(server.has_service for server in servers) + groups + len(connected) + hosts,
        "secrets": len(team.secrets),
        _CLAIMS: len(team.storage) + len(environment.stack.datasets),
        "children": max(
            [server.most_replicas for server in servers if server.grouped]
            + [job.most_pods for job in jobs if job.framework == "ray"]
            + [job.groups for job in jobs if job.kind.endless],
            default=0,
        ),
    }


def amounts(environment: Environment, team: ResolvedTeam) -> dict[str, int]:
    """The value of each key of `objects`, with its default."""
    own, least = team.objects.model_dump(exclude_none=True), needed(environment, team)
    return {key: own.get(key, max(amount, 2 * least.get(key, 0))) for key, amount in DEFAULTS.items()}


def counts(environment: Environment, team: ResolvedTeam) -> dict[str, int]:
    """The maximum number of objects of each kind, by its name in a ResourceQuota.

    Kueue creates one Workload for each object of a kind with pods (Kubernetes', the operators'), or for each pod.
    """
    most = amounts(environment, team)
    jobs, crons, others, _ = (most.pop(key) for key in ("jobs", "cronjobs", "others", "children"))
    pods = most["pods"]
    counted = [
        kind
        for kind in kinds().values()
        if kind.guarded
        and kind.plural != "pods"
        and (there(environment, kind.operator) if kind.operator else kind.group in _OWN_GROUPS)
    ]
    of_kinds = {
        f"count/{kind.resource}": crons if kind.kind == "CronJob" else jobs + pods * kind.made for kind in counted
    }
    of_others = {name: others + pods * of_pod for name, of_pod in OTHERS.items()}
    return {**most, **of_kinds, **of_others, WORKLOADS: pods + jobs * len(counted)}


class Defaults(NamedTuple):
    """Requests and limits of a container without them."""

    requests: Amounts
    limits: Amounts


def ratios(team: Team) -> dict[str, Fraction]:
    """The maximum ratio of a container's limit to its request, by resource, if the budget sets both.

    The queue admits by requests only. The ratio keeps the sum of all limits within the budget.
    """
    maximum: dict[str, Fraction] = {}
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests and limits and limits >= requests:
            # Quantities have at most three decimals here; rounding down is safe.
            maximum[resource] = Fraction(limits * 1000 // requests, 1000)
            lowest, highest = getattr(team.containers.min, resource), getattr(team.containers.max, resource)
            if lowest and highest and maximum[resource] >= Fraction(highest, lowest):
                del maximum[resource]  # min and max imply it already, and the API server rejects a larger ratio.
    return maximum


def container_defaults(team: Team) -> Defaults:
    """The stack's defaults; limits that are not set are within the budget's ratio."""
    containers, ratio_of = team.containers, ratios(team)
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for resource in (CPU, MEMORY):
        default: int | None = getattr(containers.default, resource)
        default_request: int | None = getattr(containers.default_request, resource)
        at_least, at_most = getattr(containers.min, resource) or 0, getattr(containers.max, resource)
        fallback = min([_DEFAULT_REQUEST[resource], *(bound for bound in (default, at_most) if bound)])
        request = default_request or max(at_least, fallback)
        ceilings = [int(request * ratio_of[resource])] if resource in ratio_of else []
        stated = "default" in containers.model_fields_set and default is not None
        ceilings += [at_most] if at_most else []
        limits[resource] = default if stated and default else max(request, min([default or 2 * request, *ceilings]))
        requests[resource] = request
    return Defaults(requests, limits)


_DEFAULT_REQUEST = {CPU: 1000, MEMORY: 4 * 2**30}
