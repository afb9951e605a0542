"""The plan of an environment: frozen data from which the components create resources."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gpu_tenancy.kueue import Cohort
from gpu_tenancy.model.observability import ObservabilityPlan, observability
from gpu_tenancy.model.plan import queues, storage
from gpu_tenancy.model.plan.cluster import ClusterPlan, cluster_plan
from gpu_tenancy.model.plan.costs import gpu_prices, opencost_prices
from gpu_tenancy.model.plan.datasets import CachedDataset, CachePlan, VolumePlan, cache_plans, cached_datasets, volumes
from gpu_tenancy.model.plan.environment import parts
from gpu_tenancy.model.plan.guards import UNCOUNTED, GuardsPlan, guards
from gpu_tenancy.model.plan.idle import RECLAIMER, IdlePlan, idle_gpus
from gpu_tenancy.model.plan.namespaces import NamespacePlan, namespace
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.notebooks import NotebooksOffer, notebooks
from gpu_tenancy.model.plan.operators import ReleasePlan, releases
from gpu_tenancy.model.plan.operators.kueue import WorkerAccess, worker_access
from gpu_tenancy.model.plan.operators.values import InfinibandPlan, infiniband
from gpu_tenancy.model.plan.people import AccessPlan, Subject, access, flows
from gpu_tenancy.model.plan.secrets import TeamSecrets, team_secrets
from gpu_tenancy.model.plan.servers import RoutePlan, notebook_routes
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, RuntimePlan, ServerPlan, gangs, jobs, runtimes, servers
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.tenancy import Priority, Worker


@dataclass(frozen=True, slots=True)
class TeamPlan:
    """The namespace of one team and its objects."""

    namespace: NamespacePlan
    volumes: tuple[VolumePlan, ...]
    servers: tuple[ServerPlan, ...]
    jobs: tuple[JobPlan, ...]
    gangs: tuple[JobPlan, ...]
    runtimes: tuple[RuntimePlan, ...]
    claims: tuple[storage.ClaimPlan, ...]
    secrets: TeamSecrets
    cached: tuple[CachedDataset, ...]
    snapshots: tuple[storage.SnapshotPlan, ...]
    notebooks: NotebooksOffer | None
    notebook_routes: Mapping[str, RoutePlan]
    cron_jobs: tuple[Subject, ...]  # accounts of the platform's CronJobs that have rights in it


@dataclass(frozen=True, slots=True)
class QueuesPlan:
    """The queues that all teams share."""

    flavors: tuple[queues.ResourceFlavor, ...]
    checks: tuple[queues.ProvisioningCheck, ...]
    cohorts: tuple[Cohort, ...]
    cluster_queues: tuple[queues.ClusterQueue, ...]
    gang_queues: tuple[queues.GangQueue, ...]
    workers: tuple[Worker, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one environment."""

    environment: str
    cluster: ClusterPlan
    operators: tuple[ReleasePlan, ...]  # the releases to install, in order
    observability: ObservabilityPlan | None  # None if the stack has no Prometheus
    monitoring: str  # namespace of Prometheus
    fairness: Literal["hierarchical", "even"]
    priorities: Mapping[str, Priority]  # each is a PriorityClass and a WorkloadPriorityClass of its name
    queues: QueuesPlan
    teams: tuple[TeamPlan, ...]
    guards: GuardsPlan
    infiniband: InfinibandPlan | None
    access: AccessPlan | None  # None if the stack has no people
    storage_classes: tuple[storage.StorageClassPlan, ...]
    manager: WorkerAccess | None  # rights of a MultiKueue manager; None if the stack is not one of its workers
    caches: tuple[CachePlan, ...]
    snapshot_classes: tuple[storage.StorageClassPlan, ...] | None  # made here; None without snapshots
    notebooks: Mapping[str, int]  # the teams with notebooks, and the seconds for which one may run
    idle: IdlePlan | None  # None if idle GPUs of no team have consequences
    flows: tuple[Subject, ...]  # users of teams, for API Priority and Fairness; empty without teams
    parts: tuple[str, ...]  # names of the Pulumi stacks that divide it, in the order of their deployment; empty for one
    part: str | None = None  # the part that is deployed in this run; None for the whole environment


def plan(stack: Stack) -> Plan:
    """The plan of a stack without problems in `gpu_tenancy.model.checks`, with all defaults resolved."""
    tree = Tree(stack)
    spaces = tuple(namespace(tree, name) for name in stack.teams)
    guarded = guards(tree, spaces)
    # The guards read facts about a team from its Namespace.
    teams = tuple(
        _team(tree, guarded, replace(space, annotations=space.annotations | guarded.teams[space.name].annotations))
        for space in spaces
    )
    installed = releases(tree)
    servers = tuple(server for team in teams for server in team.servers)
    observed = observability(tree, servers, gpu_prices(tree)) if there(tree, "prometheus") else None
    if observed and (opencost := stack.metrics.opencost):
        observed = replace(observed, opencost=(opencost.namespace, opencost_prices(tree)))
    wired, people = infiniband(tree), access(tree)
    return Plan(
        environment=stack.environment,
        cluster=cluster_plan(tree, people.logins if people else ()),
        operators=installed,
        observability=observed,
        monitoring=stack.metrics.prometheus.namespace,
        fairness=stack.fairness.kind,
        priorities=stack.priorities,
        queues=QueuesPlan(
            queues.resource_flavors(tree),
            queues.provisioning_checks(tree),
            queues.cohorts(tree),
            queues.cluster_queues(tree),
            queues.gang_queues(tree),
            tuple(stack.multikueue.workers) if stack.multikueue else (),
        ),
        teams=teams,
        guards=guarded,
        infiniband=wired,
        access=people,
        storage_classes=storage.storage_classes(stack.cluster, stack.teams.values()),
        manager=worker_access(tree),
        caches=cache_plans(tree),
        snapshot_classes=storage.snapshot_classes(stack),
        notebooks={name: team.notebooks.longest for name, team in stack.teams.items() if team.notebooks},
        idle=idle_gpus(stack),
        flows=flows({space.name: space.bindings for space in spaces}),
        parts=parts(stack, operators=bool(installed or observed or wired)),
    )


def _team(tree: Tree, guarded: GuardsPlan, space: NamespacePlan) -> TeamPlan:
    name, team = space.name, tree.stack.teams[space.name]
    cron_jobs = ((RECLAIMER, tree.stack.idle_of(name) is not None), (UNCOUNTED, guarded.deletes_uncounted))
    return TeamPlan(
        space,
        volumes(tree, name),
        servers(tree, name),
        jobs(tree, name),
        gangs(tree, name),
        runtimes(tree, name),
        tuple(storage.claims(tree.stack.cluster, name, team)),
        team_secrets(tree.stack, name),
        cached_datasets(tree, name),
        storage.snapshots(tree.stack.cluster, name, team),
        notebooks(tree, name),
        notebook_routes(team.notebooks),
        tuple(account for account, runs in cron_jobs if runs),
    )
