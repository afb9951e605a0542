"""What will exist, decided to the last number: plain frozen data that the components declare."""

from dataclasses import dataclass
from typing import Literal

from gpu_tenancy.model.observability import ObservabilityPlan, observability
from gpu_tenancy.model.plan.datasets import VolumePlan, volumes
from gpu_tenancy.model.plan.fleet import Fleet, fleet
from gpu_tenancy.model.plan.guards import GuardsPlan, guards
from gpu_tenancy.model.plan.namespaces import NamespacePlan, namespace
from gpu_tenancy.model.plan.operators import ReleasePlan, operator_of, releases
from gpu_tenancy.model.plan.queues import (
    ClusterQueue,
    CohortQueue,
    GangQueue,
    ProvisioningCheck,
    ResourceFlavor,
    cluster_queues,
    cohorts,
    gang_queues,
    provisioning_checks,
    resource_flavors,
)
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import GangPlan, JobPlan, ServerPlan, gangs, jobs, servers
from gpu_tenancy.model.spec import Stack


@dataclass(frozen=True, slots=True)
class PriorityPlan:
    """A PriorityClass for pods, and its twin for workloads in the queues."""

    name: str
    value: int
    preempts: bool
    default: bool
    description: str


@dataclass(frozen=True, slots=True)
class TeamPlan:
    """All that belongs to one team."""

    namespace: NamespacePlan
    volumes: tuple[VolumePlan, ...]
    servers: tuple[ServerPlan, ...]
    jobs: tuple[JobPlan, ...]
    gangs: tuple[GangPlan, ...]


@dataclass(frozen=True, slots=True)
class QueuesPlan:
    """The queues that all teams share."""

    flavors: tuple[ResourceFlavor, ...]
    checks: tuple[ProvisioningCheck, ...]
    cohorts: tuple[CohortQueue, ...]
    cluster_queues: tuple[ClusterQueue, ...]
    gang_queues: tuple[GangQueue, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One environment, as it will be.

    Attributes:
        fleet: the cluster and its node pools.
        operators: what is installed here, in the order in which it must come.
        observability: dashboards and alerts; None where the stack says of no Prometheus that it is there.
        monitoring: namespace of Prometheus.
        guards: what the API server judges of what tenants make.
    """

    environment: str
    fleet: Fleet
    operators: tuple[ReleasePlan, ...]
    observability: ObservabilityPlan | None
    monitoring: str
    fairness: Literal["hierarchical", "even"]
    priorities: tuple[PriorityPlan, ...]
    queues: QueuesPlan
    teams: tuple[TeamPlan, ...]
    guards: GuardsPlan


def plan(stack: Stack) -> Plan:
    """Decides everything that a coherent stack leaves open.

    Args:
        stack: one that `gpu_tenancy.model.checks` finds nothing wrong with.
    """
    tree = Tree(stack)
    teams = _teams(tree)
    installed = releases(stack)
    here = any("monitoring.coreos.com" in release.serves for release in installed)
    watched = here or operator_of(stack, "prometheus").install == "installed"
    return Plan(
        environment=stack.environment,
        fleet=fleet(stack),
        operators=installed,
        observability=observability(tree, tuple(each for team in teams for each in team.servers)) if watched else None,
        monitoring=stack.metrics.prometheus.namespace,
        fairness=stack.fairness,
        priorities=tuple(
            PriorityPlan(name, each.value, each.preempts, each.default, each.description)
            for name, each in stack.priorities.items()
        ),
        queues=QueuesPlan(
            resource_flavors(tree), provisioning_checks(tree), cohorts(tree), cluster_queues(tree), gang_queues(tree)
        ),
        teams=teams,
        guards=guards(tree, tuple(each.namespace for each in teams)),
    )


def _teams(tree: Tree) -> tuple[TeamPlan, ...]:
    return tuple(
        TeamPlan(namespace(tree, name), volumes(tree, name), servers(tree, name), jobs(tree, name), gangs(tree, name))
        for name in tree.stack.teams
    )
