"""Checks of servers at their peak: the autoscaler's maximum plus surge must fit their queue's limit."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import format_amount
from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size, pods_of
from gpu_tenancy.model.plan.queues import potential_available
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.workloads import Server


@dataclass(frozen=True, slots=True)
class _Running:
    """A server, with the size of its pods."""

    team: str
    name: str
    server: Server
    size: PodSize

    def peak(self, resource: str) -> int:
        return pods_of(self.server) * self.size.amounts.get(resource, 0)

    def text(self, resource: str) -> str:
        """`model-server: 50 + 1 surge pods with 2 each`, or `chat: 3 groups of 2 pods with 8 each`."""
        surge = f" + {self.server.surge} surge" if self.server.surge else ""
        per_pod = format_amount(resource, self.size.amounts.get(resource, 0))
        groups = f" groups of {self.server.nodes}" if self.server.grouped else ""
        return f"{self.name}: {self.server.replicas.max}{surge}{groups} pods with {per_pod} each"


def peak_problems(tree: Tree) -> Iterator[Problem]:
    """Servers whose last pods would stay pending. Teams that share a queue share its limit, so they are added up."""
    for owner in tree.queue_owners:
        by_flavor: dict[str, list[_Running]] = {}
        for running in _servers(tree, owner):
            by_flavor.setdefault(running.size.flavor.name, []).append(running)
        for servers in by_flavor.values():
            yield from _beyond(tree, owner, servers)


def _servers(tree: Tree, owner: str) -> Iterator[_Running]:
    for team in tree.users[owner]:
        for name, server in tree.stack.teams[team].serving.items():
            size = pod_size(tree, team, server)
            if size:
                yield _Running(team, name, server, size)


def _beyond(tree: Tree, owner: str, servers: list[_Running]) -> Iterator[Problem]:
    flavor = servers[0].size.flavor
    of_team = limits(tree, owner, flavor, gang=False)
    # GPUs first: their CPU and memory are derived from them.
    for resource in reversed(dict.fromkeys(resource for server in servers for resource in server.size.amounts)):
        peak, limit = sum(server.peak(resource) for server in servers), of_team.get(resource, 0)
        reach = min(limit, potential_available(tree, owner, flavor.name, resource))
        if peak > reach:
            yield _problem(owner, servers, resource, (peak, limit, reach))
            return


def _problem(owner: str, servers: list[_Running], resource: str, sums: tuple[int, int, int]) -> Problem:
    peak, limit, reach = (format_amount(resource, amount) for amount in sums)
    flavor = servers[0].size.flavor.name
    needs = f"the servers on flavor {flavor} need {peak} {resource} at their peak"
    path: Path = ("teams", servers[0].team, "serving", servers[0].name, "replicas")
    if sums[0] > sums[1]:
        pods = ", ".join(server.text(resource) for server in servers)
        teams = dict.fromkeys([owner, *(server.team for server in servers)])
        return Problem(
            path,
            f"{needs} ({pods}), which exceeds the team's limit of {limit}: the last pods would stay pending",
            f"lower replicas.max or surge, or raise teams.{owner}.gpus.{flavor}.limit",
            about=(*(("teams", team) for team in teams), ("pools",)),
        )
    return Problem(
        path,
        f"{needs}, but the team can never get more than {reach}: the last pods would stay pending",
        f"lower replicas.max or surge, or add nodes of flavor {flavor}",
        about=(("teams",), ("cohorts",), ("pools",)),
    )
