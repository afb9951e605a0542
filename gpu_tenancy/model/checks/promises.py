"""Checks of guarantees against supply and cohorts, and of servers at their peak against limits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.plan.environment import Flavor, gang_amounts
from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size
from gpu_tenancy.model.plan.pools import PoolSupply
from gpu_tenancy.model.plan.queues import potential_available
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer


def promise_problems(tree: Tree) -> Iterator[Problem]:
    """Guarantees that exceed the supply or the guarantee of their group, and limits below guarantees."""
    for flavor in tree.flavors.values():
        # GPUs first: if they are overcommitted, so are the CPU and memory that are derived from them.
        for resource in sorted(flavor.capacity, key=lambda resource: resource != flavor.resource):
            problems = list(_root(tree, flavor, resource))
            for group in tree.stated:
                problems += _group(tree, group, flavor, resource)
            yield from problems
            if problems and resource == flavor.resource:
                break


def _root(tree: Tree, flavor: Flavor, resource: str) -> Iterator[Problem]:
    supply = flavor.capacity[resource] - flavor.caches.total.get(resource, 0)
    gangs = flavor.gangs.get(resource, 0)
    if gangs and gangs > supply:
        yield _too_much_for_gangs(tree, flavor, resource)
        return
    teams = {
        team: shares[flavor.name][resource].guaranteed
        for team, shares in tree.team_shares.items()
        if flavor.name in shares and resource in shares[flavor.name]
    }
    excessive = {team: amount for team, amount in teams.items() if amount > supply - gangs}
    for team in excessive:
        yield _too_much_for_one(tree, team, flavor, resource)
    if not excessive and tree.cohort_nominal(tree.root, flavor.name, resource) < 0:
        yield _too_much_together(tree, flavor, resource)


def what(flavor: Flavor, resource: str) -> str:
    """The noun of an amount: `h100 GPUs`, `cpu of h100`."""
    return f"{flavor.name} GPUs" if resource == flavor.resource else f"{resource} of {flavor.name}"


def _about(flavor: Flavor) -> tuple[Path, ...]:
    of_caches = (("datasets", name, "accelerate") for name in flavor.caches.by_dataset)
    return (*(("pools", pool.name) for pool in flavor.pools), ("cluster", "autoscaler"), *of_caches)


def _supply(flavor: Flavor, resource: str, *, less_gangs: bool = True) -> str:
    """The supply with its calculation: `16 h100 GPUs of the pools (2 nodes with 8 each)`."""
    gangs = flavor.gangs.get(resource, 0) if less_gangs else 0
    parts = " + ".join(_nodes(pool, resource) for pool in flavor.pools)
    caches = flavor.caches.total.get(resource, 0)
    less = f", minus {format_amount(resource, gangs)} for Volcano gangs" if gangs else ""
    less += f", minus {format_amount(resource, caches)} for caches of datasets" if caches else ""
    supply = format_amount(resource, flavor.capacity[resource] - gangs - caches)
    return f"{supply} {what(flavor, resource)} of the pools ({parts}{less})"


def _nodes(pool: PoolSupply, resource: str) -> str:
    amount = format_amount(resource, pool.node.get(resource, 0))
    return f"1 node with {amount}" if pool.max_nodes == 1 else f"{pool.max_nodes} nodes with {amount} each"


def _key(tree: Tree, team: str, flavor: Flavor, resource: str) -> Path:
    section = "gpus" if flavor.name in tree.stack.teams[team].gpus else "quota"
    if resource == flavor.resource:
        return ("teams", team, section, flavor.name, "guaranteed")
    quota = tree.stack.teams[team].quota.get(flavor.name)
    if quota and getattr(quota, resource) is not None:
        return ("teams", team, "quota", flavor.name, resource, "guaranteed")
    return ("teams", team, section, flavor.name)


def _more(tree: Tree, flavor: Flavor) -> str:
    pool = f"pools.{flavor.pools[0].name}.nodes"
    if tree.stack.cluster.grows:
        return f"{pool}.max"
    return f"{pool}.min (without an autoscaler, only the minimum number of nodes can be guaranteed)"


def _too_much_for_one(tree: Tree, team: str, flavor: Flavor, resource: str) -> Problem:
    amount = tree.team_shares[team][flavor.name][resource].guaranteed
    return Problem(
        _key(tree, team, flavor, resource),
        f"exceeds the {_supply(flavor, resource)}",
        f"lower it, or raise {_more(tree, flavor)}",
        format_amount(resource, amount),
        about=_about(flavor),
    )


def _too_much_for_gangs(tree: Tree, flavor: Flavor, resource: str) -> Problem:
    amounts = {
        name: gang_amounts(flavor, team.gangs[flavor.name]).get(resource, 0)
        for name, team in tree.stack.teams.items()
        if flavor.name in team.gangs
    }
    return Problem(
        ("teams", next(iter(amounts)), "gangs", flavor.name),
        f"gangs with {format_amount(resource, sum(amounts.values()))} in total exceed the"
        f" {_supply(flavor, resource, less_gangs=False)}: {_by_name(amounts, resource)}",
        f"lower them, or raise {_more(tree, flavor)}",
        about=(*_about(flavor), ("teams",)),
    )


def _too_much_together(tree: Tree, flavor: Flavor, resource: str) -> Problem:
    promised = tree.children_guaranteed(tree.root, flavor.name, resource)
    total = format_amount(resource, sum(promised.values()))
    return Problem(
        ("pools", flavor.pools[0].name, "nodes"),
        f"guarantees of {total} in total exceed the {_supply(flavor, resource)}: {_by_name(promised, resource)}",
        f"lower a guarantee, or raise {_more(tree, flavor)}",
        about=(*_about(flavor), ("teams",), ("cohorts",)),
    )


def _by_name(amounts: Mapping[str, int], resource: str) -> str:
    return ", ".join(f"{name} {format_amount(resource, amount)}" for name, amount in amounts.items())


def group_key(tree: Tree, group: str, flavor: str, resource: str) -> Path:
    """The section of a group's share of a resource."""
    cohort = tree.stack.cohorts[group]
    if resource in {CPU, MEMORY} and tree.is_stated(group, flavor, resource):
        return ("cohorts", group, "quota", flavor, resource)
    return ("cohorts", group, "gpus" if flavor in cohort.gpus else "quota", flavor)


def _group(tree: Tree, group: str, flavor: Flavor, resource: str) -> Iterator[Problem]:
    own = tree.cohort_nominal(group, flavor.name, resource)
    if own < 0:
        promised = tree.children_guaranteed(group, flavor.name, resource)
        total = sum(promised.values())
        yield Problem(
            (*group_key(tree, group, flavor.name, resource), "guaranteed"),
            f"is less than the {format_amount(resource, total)} {what(flavor, resource)} guaranteed to its children:"
            f" {_by_name(promised, resource)}",
            f"raise it to {format_amount(resource, total)}, or lower one of them",
            format_amount(resource, total + own),
            about=(("cohorts",), ("teams",)),
        )
    limit = tree.cohort_limit(group, flavor.name, resource)
    guaranteed = tree.guaranteed(group, flavor.name, resource)
    if limit is not None and limit < guaranteed and own >= 0:
        yield Problem(
            (*group_key(tree, group, flavor.name, resource), "limit"),
            f"is less than the {format_amount(resource, guaranteed)} {what(flavor, resource)} guaranteed in it",
            f"raise it to {format_amount(resource, guaranteed)}, or lower a guarantee",
            format_amount(resource, limit),
            about=(("cohorts",), ("teams",)),
        )


@dataclass(frozen=True, slots=True)
class _Running:
    server: ResolvedServer
    size: PodSize

    def peak(self, resource: str) -> int:
        return self.server.most_pods * self.size.amounts.get(resource, 0)

    def text(self, resource: str) -> str:
        """`model-server: 50 + 1 surge pods with 2 each`, or `chat: 3 groups of 2 pods with 8 each`."""
        surge = f" + {self.server.surge} surge" if self.server.surge else ""
        per_pod = format_amount(resource, self.size.amounts.get(resource, 0))
        groups = f" groups of {self.server.nodes}" if self.server.grouped else ""
        return f"{self.server.name}: {self.server.replicas.max}{surge}{groups} pods with {per_pod} each"


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
        for server in tree.stack.teams[team].serving.values():
            if size := pod_size(tree, team, server):
                yield _Running(server, size)


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
    path, maximum = (servers[0].server.written_at(*keys) for keys in (("replicas",), ("replicas", "max")))
    lower = dotted(maximum[4:]) + (" or surge" if any(one.server.surge for one in servers) else "")
    if sums[0] > sums[1]:
        pods = ", ".join(server.text(resource) for server in servers)
        teams = dict.fromkeys([owner, *(one.server.team for one in servers)])
        return Problem(
            path,
            f"{needs} ({pods}), which exceeds the team's limit of {limit}: the last pods would stay pending",
            f"lower {lower}, or raise teams.{owner}.gpus.{flavor}.limit",
            about=(*(("teams", team) for team in teams), ("pools",)),
        )
    return Problem(
        path,
        f"{needs}, but the team can never get more than {reach}: the last pods would stay pending",
        f"lower {lower}, or add nodes of flavor {flavor}",
        about=(("teams",), ("cohorts",), ("pools",)),
    )
