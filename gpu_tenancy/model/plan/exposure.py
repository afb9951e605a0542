"""Routes of clients outside of the cluster to servers and notebooks, and where their requests come from."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.plan.engines import engine_of
from gpu_tenancy.model.spec.exposure import GatewayRoute, ServerExpose
from gpu_tenancy.model.spec.notebooks import Notebooks
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """An HTTPRoute from a host of a Gateway to the Services of servers.

    Attributes:
        gateway: namespace and name.
        listener: of the Gateway.
        paths: prefixes of the paths that it opens.
        timeout: of a request, in seconds; 0 for none.
        backends: names of the Services, each with its part of the requests in percent.
    """

    host: str
    gateway: tuple[str, str]
    listener: str
    paths: tuple[str, ...]
    timeout: int
    backends: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the requests of a Gateway come from: namespaces of its pods, and CIDRs."""

    namespaces: tuple[str, ...]
    cidrs: tuple[str, ...]


def route(team: Team, name: str, server: Server) -> RoutePlan | None:
    """The route of a server; None without one, and for canaries and bursts, which are in that of their server."""
    if server.expose is None or server.canary or server.burst_of:
        return None
    return RoutePlan(
        host=server.expose.host,
        gateway=_gateway(server.expose),
        listener=server.expose.listener,
        paths=_paths(server, server.expose),
        timeout=int(server.expose.timeout),
        backends=tuple(backends(team, name)),
    )


def notebook_routes(notebooks: Notebooks | None) -> dict[str, RoutePlan]:
    """The routes of notebooks, by their names. They have no timeout: a browser keeps its connections to kernels."""
    expose = notebooks.expose if notebooks else None
    if expose is None:
        return {}
    gateway = _gateway(expose)
    return {
        name: RoutePlan(host, gateway, expose.listener, ("/",), 0, ((name, 100),))
        for name, host in expose.hosts.items()
    }


def _gateway(expose: GatewayRoute) -> tuple[str, str]:
    namespace, _, name = expose.gateway.partition("/")
    return namespace, name


def backends(team: Team, name: str) -> Iterator[tuple[str, int]]:
    """A server, then its canaries, each with its part of the requests in percent."""
    parts = {
        other: spec.canary.weight for other, spec in team.serving.items() if spec.canary and spec.canary.of == name
    }
    yield name, 100 - sum(parts.values())
    yield from parts.items()


def origins(server: Server) -> Origins | None:
    """Where requests of clients outside of the cluster come from; None for a server that they do not reach."""
    return _origins(server.expose) if server.expose else None


def notebook_origins(notebooks: Notebooks | None) -> dict[str, Origins]:
    """Where requests of browsers outside of the cluster come from, by the names of the notebooks that they reach."""
    expose = notebooks.expose if notebooks else None
    return dict.fromkeys(expose.names, _origins(expose)) if expose else {}


def _origins(expose: GatewayRoute) -> Origins:
    return Origins(expose.namespaces, tuple(expose.from_cidrs))


def _paths(server: Server, expose: ServerExpose) -> tuple[str, ...]:
    """Of an engine that asks for a key, only the paths for which it does."""
    engine = engine_of(server)
    return engine.api_key.paths if engine and expose.api_key else ("/",)
