"""The command `size`: replicas, GPUs and cost of a server from its load."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Output, answer
from gpu_tenancy.base.errors import ConsoleError, UsageError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import format_duration, format_rate, parse_duration, parse_rate
from gpu_tenancy.base.terminal import ProjectFolder
from gpu_tenancy.cli.commands import options
from gpu_tenancy.cli.lazy import lazily

with lazily():
    from gpu_tenancy.model import outlook
    from gpu_tenancy.model.checks import servers as server_checks
    from gpu_tenancy.model.outlook import shares
    from gpu_tenancy.model.plan import environment as environments
    from gpu_tenancy.model.plan import pods, rollouts
    from gpu_tenancy.model.plan import shares as plan_shares
    from gpu_tenancy.model.spec import workloads


def size(
    stack: Annotated[str | None, typer.Argument(help="Stack whose nodes and prices count. Default: none.")] = None,
    server: Annotated[
        str | None, typer.Argument(help="A server of it, as TEAM/NAME: its GPUs, surge and `load`.")
    ] = None,
    *,
    rate: Annotated[str | None, typer.Option(metavar="N/s", help="Requests per second at the peak.")] = None,
    per_replica: Annotated[
        str | None, typer.Option(metavar="N/s", help="Requests per second of one replica, as you measured it.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="99th percentile at which you measured it, such as 100ms.")
    ] = None,
    flavor: Annotated[str | None, typer.Option(help="Flavor on which you measured it. Default: the only one.")] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of a replica.")] = 1,
    surge: Annotated[int, typer.Option(min=0, help="Replicas that a rollout adds.")] = 0,
    project: ProjectFolder = None,
    output: Output = None,
) -> None:
    """Show the replicas and GPUs for a load, with headroom for a lost node and a rollout, their cost, and what lacks.

    A stack with `load` of a server is refused by the same arithmetic.

    [dim]tenancy size local --rate 10000/s --per-replica 220/s --latency 100ms --flavor l4[/dim]
    """
    with terminal.errors(stack or ""):
        asked = _Asked(_rate("--rate", rate), _rate("--per-replica", per_replica), _seconds(latency), gpus, surge)
        sized = _of_stack(stack, server, asked, flavor, project) if stack else _Sized(*_alone(asked))
        answer(output, sized.data(), *sized.lines(), names=[str(sized.size.replicas)])


@dataclass(frozen=True, slots=True)
class _Asked:
    """The load of the command line: thousandths per second, seconds, and GPUs and replicas."""

    rate: int | None
    per_replica: int | None
    latency: float | None
    gpus: int
    surge: int


@dataclass(frozen=True, slots=True)
class _Hardware:
    """The GPUs of a flavor."""

    flavor: str
    maximum: int  # with the maximum of nodes
    promised: int  # guaranteed to others
    per_node: int
    price: float | None  # US dollars per month for one GPU; None if it is unknown


@dataclass(frozen=True, slots=True)
class _Sized:
    """The size of a server."""

    size: "rollouts.Size"
    gpus: int  # of a replica
    latency: float | None  # seconds at which a replica was measured
    hardware: _Hardware | None = None
    further: int = 0  # replicas on another flavor, those of a burst
    burst: _Hardware | None = None

    @property
    def base(self) -> int:
        """Replicas with headroom, without those of the burst."""
        return self.size.replicas - self.further

    @property
    def without_burst(self) -> int:
        """Thousandths of the requests a second that the base carries."""
        return min(self.base * self.size.per_replica, self.size.rate)

    @property
    def guaranteed(self) -> int:
        """GPUs of the replicas with headroom, which must answer while other teams are busy."""
        return self.base * self.gpus

    @property
    def limit(self) -> int:
        """GPUs of a rollout too."""
        return (self.base + self.size.surge) * self.gpus

    @property
    def missing(self) -> int:
        return max(0, self.limit - max(0, self.hardware.maximum - self.hardware.promised)) if self.hardware else 0

    def data(self) -> dict[str, object]:
        """The answer for programs; costs in US dollars per month."""
        found: dict[str, object] = {
            "rate": self.size.rate / 1000,
            "perReplica": self.size.per_replica / 1000,
            "replicas": {"needed": self.size.needed, "withHeadroom": self.size.replicas, "peak": self.size.peak},
            "gpus": {"guaranteed": self.guaranteed, "limit": self.limit},
        }
        if self.hardware:
            own = self.hardware
            found |= {
                "flavor": own.flavor,
                "hardware": {"maximum": own.maximum, "guaranteedToOthers": own.promised, "missing": self.missing},
                "monthly": None if own.price is None else own.price * self.guaranteed,
            }
        if self.burst:
            found["burst"] = {
                "flavor": self.burst.flavor,
                "replicas": self.further,
                "gpus": self.further * self.gpus,
                "rateWithout": self.without_burst / 1000,
            }
        return found

    def lines(self) -> Iterator[str]:
        """The answer for a person."""
        name = f"{self.hardware.flavor} GPUs" if self.hardware else "GPUs"
        yield f"replicas: {self.size.arithmetic()}"
        if self.latency is not None:
            within = f"{format_rate(self.size.per_replica)} within {format_duration(self.latency)}"
            at_once = f"at most {rollouts.in_flight(self.size.per_replica, self.latency)} requests at a time on average"
            yield f"a replica: {within} by your measurement, {at_once}"
        yield f"guaranteed: {self.guaranteed} {name}, limit: {self.limit}"
        if self.hardware:
            yield from self._on(self.hardware)
        else:
            yield "nodes, prices and the headroom for a lost node: specify a stack"
        if self.burst:
            gpus, price = self.further * self.gpus, self.burst.price
            cost = "cost unknown" if price is None else f"${price * gpus:,.0f} a month if they run all the time"
            which = f"{self.further} of the {self.size.replicas} replicas"
            yield f"burst: {which} on {gpus} {self.burst.flavor} GPUs, {cost}"
            carried = f"{format_rate(self.without_burst)} of the load of {format_rate(self.size.rate)}"
            yield f"without the burst: {self.base} replicas = {carried}"

    def _on(self, has: _Hardware) -> Iterator[str]:
        """The cost, and whether there are enough GPUs."""
        cost = "unknown (no price)"
        if has.price is not None:
            more = "" if self.limit == self.guaranteed else f", ${has.price * self.limit:,.0f} for the limit"
            cost = f"${has.price * self.guaranteed:,.0f} a month{more}"
        yield f"cost: {cost}"
        nodes = f"{-(-self.missing // has.per_node)} nodes with {has.per_node} GPUs"
        enough = f"{self.missing} GPUs are missing ({nodes})" if self.missing else "enough"
        most = f"{has.maximum} {has.flavor} GPUs at most, of which {has.promised} are guaranteed to others"
        yield f"hardware: {most}: {enough}"


def _of_stack(stack: str, server: str | None, asked: _Asked, flavor: str | None, project: Path | None) -> _Sized:
    tree = options.tree_of(stack, project)
    if server is not None:
        return _of_server(tree, server, asked)
    found = _flavor(tree, flavor)
    sized, gpus, latency = _alone(asked)
    sized = replace(sized, nodes=rollouts.nodes_of(found, {found.resource or "": gpus}))
    return _Sized(sized, gpus, latency, _hardware(tree, found, ""))


def _of_server(tree: "plan_shares.Tree", text: str, asked: _Asked) -> _Sized:
    """The size of a server of a stack, by its load, or by a rate of the command line."""
    servers = {
        f"{team}/{name}": (team, tree.stack.teams[team].serving[name])
        for team, spec in tree.written.teams.items()
        for name in spec.serving
    }
    if text not in servers:
        raise ConsoleError(f"unknown server '{text}'", nearest(text, servers))
    team, server = servers[text]
    pod = pods.pod_size(tree, team, server)
    if pod is None or pod.flavor.resource is None:
        raise ConsoleError(f"server {text} has no GPUs", f"specify a server with GPUs: {', '.join(servers)}")
    given = {"rate": asked.rate, "per_replica": asked.per_replica, "latency": asked.latency}
    own = {key: value for key, value in given.items() if value is not None}
    if server.load is None:
        _alone(asked)
    load = (server.load or workloads.Load.model_construct()).model_copy(update=own)
    gpus = server.gpus * server.nodes
    owner = tree.queue_of(team)
    size_ = server_checks.size_of(server, load, pod)
    own_flavor = _hardware(tree, pod.flavor, owner)
    if server.burst is None:
        return _Sized(size_, gpus, load.latency, own_flavor)
    further = min(server.burst.max, size_.replicas - 1)
    burst = _hardware(tree, tree.flavors[server.burst.flavor], owner)
    return _Sized(size_, gpus, load.latency, own_flavor, further, burst)


def _alone(asked: _Asked) -> "tuple[rollouts.Size, int, float | None]":
    if asked.rate is None or asked.per_replica is None:
        fix = "measure one replica under load, and specify --rate and --per-replica, or a server with `load`"
        raise UsageError("--rate or --per-replica is missing", fix)
    return rollouts.Size(asked.rate, asked.per_replica, asked.surge), asked.gpus, asked.latency


def _flavor(tree: "plan_shares.Tree", name: str | None) -> "environments.Flavor":
    with_gpus = {flavor.name: flavor for flavor in tree.flavors.values() if flavor.resource}
    if name is None and len(with_gpus) == 1:
        return next(iter(with_gpus.values()))
    if name is None:
        rule = "--flavor is missing: the rate of a replica is measured on one kind of GPU"
        raise UsageError(rule, f"specify one of: {', '.join(with_gpus)}")
    if name not in with_gpus:
        raise ConsoleError(f"--flavor {name}: unknown flavor with GPUs", nearest(name, with_gpus))
    return with_gpus[name]


def _hardware(tree: "plan_shares.Tree", flavor: "environments.Flavor", owner: str) -> _Hardware:
    """The GPUs of a flavor, of which those of one queue are its own."""
    row = next(row for row in outlook.outlook(tree.stack).supply if row.flavor == flavor.name)
    share = tree.team_shares.get(owner, {}).get(flavor.name, {}).get(row.resource)
    own = share.guaranteed if share else 0
    per_node = max(pool.gpus_per_node for pool in flavor.pools)
    price = None if row.price is None else row.price * shares.HOURS
    return _Hardware(flavor.name, row.capacity.maximum, row.guaranteed - own, per_node, price)


def _rate(option: str, text: str | None) -> int | None:
    try:
        rate = None if text is None else parse_rate(text)
    except ValueError:
        rate = 0
    if rate == 0:
        raise ConsoleError(f"{option} {text}: is not a rate above 0", "set requests per second, such as 220/s")
    return rate


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise ConsoleError(f"--latency {text}: is not a duration", "set one such as 100ms") from error
