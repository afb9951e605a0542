"""Engines of servers, and routes of clients outside of the cluster to servers and notebooks."""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.catalogue.pods import Argument, Engine, engines
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.roles import WORKER
from gpu_tenancy.model.spec.secrets import Variable
from gpu_tenancy.model.spec.serving import GatewayRoute, Notebooks
from gpu_tenancy.model.spec.workloads import Server, Workload

DEREGISTERED_AFTER: Final = 15
"""Seconds until no proxy sends requests to a pod that is being deleted: it answers them meanwhile.
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow."""
_TORN_DOWN_AFTER: Final = 15  # seconds in which a server ends after its last request: it frees the memory of its GPUs


def engine_of(workload: Workload) -> Engine | None:
    """The engine of a server; None for custom ones, and for jobs."""
    return engines().get(workload.engine) if isinstance(workload, Server) else None


def with_engine(server: ResolvedServer) -> dict[str, ResolvedServer]:
    """The roles of a server, with the command, arguments and variables of its engine; arguments of the stack follow."""
    roles, engine = server.parts, engine_of(server)
    return {name: _run(engine, part, worker=name == WORKER) for name, part in roles.items()} if engine else roles


def grace_period(server: ResolvedServer) -> int | None:
    """Termination grace period of its pods in seconds; None for the default."""
    return None if server.drain is None else DEREGISTERED_AFTER + server.drain + _TORN_DOWN_AFTER


def of_server(argument: Argument, server: ResolvedServer) -> str | None:
    """The stack's value of an argument; None for a switch, and for an argument that the stack never sets."""
    return argument.value and argument.value.format(
        port=server.port,
        name=server.model.served if server.model else "",
        gpus=server.gpus,
        nodes=server.nodes,
        drain=server.drain or 0,
    )


def _run(engine: Engine, server: ResolvedServer, *, worker: bool) -> ResolvedServer:
    used = {"all", *(("groups",) if server.grouped else ()), *(("workers",) if worker else ())}
    args = [server.model_path]
    for argument in engine.arguments:
        if argument.of in used:
            value = of_server(argument, server)
            args += [argument.name] if value is None else [argument.name, value]
    env = {**{name: Variable(value=text) for name, text in engine.env.items()}, **server.env}
    if server.exposure and (own := server.exposure.api_key) and not worker:
        env[engine.api_key.env] = Variable(secret=own.secret, key=own.key)
    return server.model_copy(update={"command": list(engine.command), "args": [*args, *server.args], "env": env})


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """An HTTPRoute from a host of a Gateway to the Services of servers."""

    host: str
    gateway: tuple[str, str]  # namespace and name
    listener: str
    paths: tuple[str, ...]  # prefixes of the paths
    timeout: int  # of a request, in seconds; 0 for none
    backends: tuple[tuple[str, int], ...]  # names of the Services, with their percentage of the requests


def route(server: ResolvedServer) -> RoutePlan | None:
    """The route of a server; None without one."""
    if server.expose is None:
        return None
    engine = engine_of(server)
    return RoutePlan(
        host=server.expose.host,
        gateway=_gateway(server.expose),
        listener=server.expose.listener,
        # Of an engine that asks for a key, only the paths for which it does.
        paths=engine.api_key.paths if engine and server.expose.api_key else ("/",),
        timeout=server.expose.timeout,
        backends=((server.name, 100 - sum(server.canaries.values())), *server.canaries.items()),
    )


def notebook_routes(notebooks: Notebooks | None) -> dict[str, RoutePlan]:
    """The routes of notebooks, by their names. They have no timeout: a browser keeps its connections to kernels."""
    expose = notebooks.expose if notebooks else None
    if expose is None:
        return {}
    gateway, listener = _gateway(expose), expose.listener
    return {name: RoutePlan(host, gateway, listener, ("/",), 0, ((name, 100),)) for name, host in expose.hosts.items()}


def _gateway(expose: GatewayRoute) -> tuple[str, str]:
    namespace, _, name = expose.gateway.partition("/")
    return namespace, name
