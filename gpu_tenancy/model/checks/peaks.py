"""Servers at their peak: the autoscaler's maximum and the surge of a rollout must fit what their queue can get."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size, pods_of
from gpu_tenancy.model.plan.shares import Tree, reachable
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.quantity import format_amount
from gpu_tenancy.model.spec.workloads import Server


@dataclass(frozen=True, slots=True)
class _Running:
    """One server, and what a pod of it takes."""

    team: str
    name: str
    server: Server
    size: PodSize

    def peak(self, resource: str) -> int:
        return pods_of(self.server) * self.size.amounts.get(resource, 0)

    def words(self, resource: str) -> str:
        """`model-server 50 + 1 surge pods of 2`."""
        surge = f" + {self.server.surge} surge" if self.server.surge else ""
        each = format_amount(resource, self.size.amounts.get(resource, 0))
        return f"{self.name} {self.server.replicas.max}{surge} pods of {each}"


def peak_problems(tree: Tree) -> Iterator[Problem]:
    """Servers whose last pods would never start. Teams that share a queue share its limit, so they count together."""
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
    most = limits(tree, owner, flavor, gang=False)
    # GPUs first: their cpu and memory follow from them.
    for resource in reversed(dict.fromkeys(resource for each in servers for resource in each.size.amounts)):
        peak, limit = sum(each.peak(resource) for each in servers), most.get(resource, 0)
        reach = min(limit, reachable(tree, owner, flavor, resource))
        if peak > reach:
            yield _problem(owner, servers, resource, (peak, limit, reach))
            return


def _problem(owner: str, servers: list[_Running], resource: str, sums: tuple[int, int, int]) -> Problem:
    peak, limit, reach = (format_amount(resource, amount) for amount in sums)
    flavor = servers[0].size.flavor.name
    needs = f"the servers on {flavor} need {peak} {resource} at their peak"
    path: Path = ("teams", servers[0].team, "serving", servers[0].name, "replicas")
    if sums[0] > sums[1]:
        each = ", ".join(server.words(resource) for server in servers)
        return Problem(
            path,
            f"{needs} ({each}), but the team's limit is {limit}, so the last pods would never start",
            f"lower replicas.max or surge, or raise teams.{owner}.gpus.{flavor}.limit",
            about=(*(("teams", team) for team in dict.fromkeys([owner, *(each.team for each in servers)])), ("pools",)),
        )
    return Problem(
        path,
        f"{needs}, but all that others leave the team is {reach}, so the last pods would never start",
        f"lower replicas.max or surge, or raise what there is of {flavor}",
        about=(("teams",), ("cohorts",), ("pools",)),
    )
