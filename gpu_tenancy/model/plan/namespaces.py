"""A team's namespace: labels, ResourceQuotas, LimitRange, network rules.

Each class rejects what the API server would reject, or accept but ignore.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, is_extended, times
from gpu_tenancy.model.catalogue.clouds import NodeEndpoint, rules_of
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.plan.counts import counts
from gpu_tenancy.model.plan.exposure import Origins, notebook_origins, origins
from gpu_tenancy.model.plan.fabric import claiming_flavors
from gpu_tenancy.model.plan.latency import Monitor, monitor
from gpu_tenancy.model.plan.limits import container_defaults, ratios
from gpu_tenancy.model.plan.multikueue import WorkerAccess, worker_access
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.people import TeamBinding, bindings
from gpu_tenancy.model.plan.rollouts import waiting_in_rollouts
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.plan.sidecars import egress_of_datasets, sidecars
from gpu_tenancy.model.plan.storage import stored
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.teams import Team

_COMPUTE: Final = frozenset({"pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


@dataclass(frozen=True, slots=True)
class PriorityScope:
    """The pods that a quota counts: those with these priority classes, or all others."""

    operator: Literal["In", "NotIn"]
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """A ResourceQuota, in the resources' base units.

    Raises:
        ValueError: an extended resource with another prefix than `requests.`, which the API server accepts but never
            counts (https://kubernetes.io/docs/concepts/policy/resource-quotas/), or objects with a PriorityClass
            scope, which supports only pods and compute resources.
    """

    name: str
    hard: Amounts
    scope: PriorityScope | None = None

    def __post_init__(self) -> None:
        for resource in self.hard:
            prefix, _, rest = resource.partition(".")
            extended = is_extended(resource) and not resource.startswith("count/")
            if extended and (prefix != "requests" or not is_extended(rest)):
                bare = rest if prefix == "limits" else resource
                msg = f"ResourceQuota {self.name}: {resource} is never counted; use requests.{bare}"
                raise ValueError(msg)
            scoped = resource in _COMPUTE or resource.startswith("count/") or extended
            if self.scope and not scoped:
                msg = (
                    f"ResourceQuota {self.name}: {resource} is not supported with a PriorityClass scope; use only pods,"
                    " cpu and memory"
                )
                raise ValueError(msg)


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
class NetworkRules:
    """Traffic that the default-deny NetworkPolicy allows.

    Attributes:
        ports: servers' ports by server.
        grouped: servers of several nodes, of which only the leaders answer requests.
        gateways: where requests of clients outside of the cluster come from, by server that they reach.
        notebooks: where requests of browsers outside of the cluster come from, by the notebook that they reach.
        from_cluster: whether all namespaces may call the servers, or only the team's own pods.
        egress: CIDRs that the team's pods may reach over HTTPS.
        data: CIDRs that the sidecars of the team's datasets must reach over HTTPS.
        monitors: how Prometheus scrapes servers, by server; without servers that are not scraped.
        node_endpoints: link-local addresses of the cloud's nodes that the team's pods may call: DNS, and credentials.
        kuberay: namespace of KubeRay, which calls the dashboards of Ray's heads; None without.
    """

    ports: dict[str, int]
    from_cluster: bool
    egress: tuple[str, ...]
    monitors: dict[str, Monitor] = field(default_factory=dict[str, Monitor])
    node_endpoints: tuple[NodeEndpoint, ...] = ()
    kuberay: str | None = None
    data: tuple[str, ...] = ()
    grouped: frozenset[str] = frozenset()
    gateways: dict[str, Origins] = field(default_factory=dict[str, Origins])
    notebooks: dict[str, Origins] = field(default_factory=dict[str, Origins])


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """A team's namespace and its bounds.

    Attributes:
        queue: the team's ClusterQueue.
        usage_weight: weight of the team's past usage in this queue; None if usage does not count.
        annotations: facts about the team that the guards need.
        bindings: who may do what in the namespace.
        service_accounts: names of the ServiceAccounts for the team's CI jobs.
        manager: the MultiKueue manager that creates workloads here; None if the stack is not one of its workers.
        pull_secrets: Secrets with which pods of the team's workloads pull their images.
        interfaces: numbers of RDMA interfaces for which it has a ResourceClaimTemplate.
        protect: whether Pulumi refuses to delete it: in production, while the stack declares claims in it.
    """

    name: str
    labels: dict[str, str]
    quotas: tuple[ResourceQuota, ...]
    limits: LimitRange
    network: NetworkRules
    queue: str
    usage_weight: float | None = None
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    bindings: tuple[TeamBinding, ...] = ()
    service_accounts: tuple[str, ...] = ()
    manager: WorkerAccess | None = None
    pull_secrets: tuple[str, ...] = ()
    interfaces: tuple[int, ...] = ()
    protect: bool = False


def namespace(tree: Tree, name: str) -> NamespacePlan:
    """The namespace of a team of the stack."""
    team = tree.stack.teams[name]
    return NamespacePlan(
        name=name,
        labels={
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
        network=NetworkRules(
            ports={server: spec.port for server, spec in team.serving.items()},
            from_cluster=team.network.clients == "cluster",
            egress=tuple(team.network.egress),
            monitors={name: scrape for name, spec in team.serving.items() if (scrape := monitor(tree, spec))},
            node_endpoints=_node_endpoints(tree),
            kuberay=charts()["kuberay-operator"].namespace if there(tree, "kuberay") else None,
            data=egress_of_datasets(tree.stack.datasets.values(), name),
            grouped=frozenset(server for server, spec in team.serving.items() if spec.grouped),
            gateways={server: of for server, spec in team.serving.items() if (of := origins(spec))},
            notebooks=notebook_origins(team.notebooks),
        ),
        queue=tree.queue_of(name),
        usage_weight=tree.usage_weight(name),
        bindings=bindings(tree, name),
        service_accounts=tuple(team.service_accounts),
        manager=worker_access(tree),
        pull_secrets=tuple(dict.fromkeys(team.image_pull_secrets)),
        interfaces=_interfaces(tree, name),
        protect=tree.stack.is_production and any(stored(team)),
    )


def _interfaces(tree: Tree, name: str) -> tuple[int, ...]:
    on = claiming_flavors(tree)
    return tuple(sorted({on[flavor] for flavor in tree.shares_of(name) if flavor in on}))


def _node_endpoints(tree: Tree) -> tuple[NodeEndpoint, ...]:
    cluster = tree.stack.cluster
    endpoints = rules_of(service_of(cluster)).node_endpoints
    return tuple(endpoint for endpoint in endpoints if cluster.NODES_MADE or not endpoint.of_nodes)


def gpu_resources(tree: Tree) -> list[str]:
    """The extended resources of the stack's GPUs."""
    return list(dict.fromkeys(flavor.resource for flavor in tree.flavors.values() if flavor.resource))


def _quotas(tree: Tree, name: str, team: Team) -> tuple[ResourceQuota, ...]:
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
        ResourceQuota("budget-compute", compute, PriorityScope("In", classes)),
        # The scoped quota alone would not limit pods of other classes.
        ResourceQuota("budget-no-other-priority", {"pods": 0}, PriorityScope("NotIn", classes)),
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
