"""Dashboards and alerts, derived from the stack."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.model.observability import pages, promises
from gpu_tenancy.model.observability.alerts import Group, groups
from gpu_tenancy.model.observability.dashboards import to_json
from gpu_tenancy.model.observability.expressions import Expressions

if TYPE_CHECKING:  # The plan imports this package, so importing it at run time would be a cycle.
    from gpu_tenancy.model.plan.shares import Tree
    from gpu_tenancy.model.plan.workloads import ServerPlan


@dataclass(frozen=True, slots=True)
class ObservabilityPlan:
    """Dashboards and alerts of one environment.

    Attributes:
        dashboards: file name and JSON of each; without GPUs those of quotas and servers, empty without teams.
        rules: groups of a PrometheusRule of monitoring.coreos.com/v1; empty without teams if there are no GPUs.
    """

    dashboards: tuple[tuple[str, str], ...] = ()
    rules: tuple[Group, ...] = ()


def observability(tree: "Tree", servers: "tuple[ServerPlan, ...]") -> ObservabilityPlan:
    """The dashboards and alerts of a stack.

    Args:
        tree: has the resources of the flavors, and the teams.
        servers: the servers of all teams, with their latency targets.
    """
    resources = tuple(sorted({flavor.resource for flavor in tree.flavors.values() if flavor.resource}))
    teams = tuple(tree.stack.teams)
    services = [_service(server) for server in servers]
    if not resources:
        return _without_gpus(tree, Expressions((CPU,), teams), services) if teams else ObservabilityPlan()
    on = Expressions(resources, teams)
    with_gpus = [name for name, flavor in tree.flavors.items() if flavor.resource]
    boards = (
        pages.cluster(on),
        pages.nodes(on),
        pages.training(on),
        promises.quota(on, with_gpus),
        promises.serving(on, services),
    )
    return ObservabilityPlan(tuple((f"{board.uid}.json", to_json(board)) for board in boards), groups(on))


def _without_gpus(tree: "Tree", on: Expressions, services: list[promises.Service]) -> ObservabilityPlan:
    boards = [promises.quota(on, list(tree.flavors)), *([promises.serving(on, services)] if services else [])]
    return ObservabilityPlan(tuple((f"{board.uid}.json", to_json(board)) for board in boards), groups(on))


def _service(server: "ServerPlan") -> promises.Service:
    scaling, grouped = server.scaling, server.worker is not None
    if scaling is None:
        return promises.Service(server.team, server.name, None, scaled=False, grouped=grouped)
    return promises.Service(server.team, server.name, scaling.latency, scaling.per_pod, grouped=grouped)


__all__ = ["ObservabilityPlan", "observability"]
