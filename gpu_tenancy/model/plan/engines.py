"""What an engine makes of a server: its command, arguments and variables."""

from typing import Final

from gpu_tenancy.model.catalogue.engines import Argument, Engine, engines
from gpu_tenancy.model.spec.roles import WORKER
from gpu_tenancy.model.spec.secrets import Variable
from gpu_tenancy.model.spec.workloads import Server, Workload

DEREGISTERED_AFTER: Final = 15
"""Seconds until no proxy sends requests to a pod that is being deleted: it answers them meanwhile.
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow."""
_TORN_DOWN_AFTER: Final = 15
"""Seconds in which a server ends after its last request: it frees the memory of its GPUs."""


def engine_of(workload: Workload) -> Engine | None:
    """The engine of a server; None for custom ones, and for jobs."""
    return engines().get(workload.engine) if isinstance(workload, Server) else None


def with_engine(server: Server) -> dict[str, Server]:
    """The roles of a server, with the command, arguments and variables of its engine; arguments of the stack follow."""
    roles, engine = server.parts, engine_of(server)
    return {name: _run(engine, part, worker=name == WORKER) for name, part in roles.items()} if engine else roles


def grace_period(server: Server) -> int | None:
    """Termination grace period of its pods in seconds; None for the default."""
    return None if server.drain is None else DEREGISTERED_AFTER + int(server.drain) + _TORN_DOWN_AFTER


def of_server(argument: Argument, server: Server) -> str | None:
    """What the stack sets for an argument; None for a switch, and for one that it never sets."""
    return argument.value and argument.value.format(
        port=server.port,
        name=server.model.served if server.model else "",
        gpus=server.gpus,
        nodes=server.nodes,
        drain=int(server.drain or 0),
    )


def _run(engine: Engine, server: Server, *, worker: bool) -> Server:
    used = {"all", *(("groups",) if server.grouped else ()), *(("workers",) if worker else ())}
    args = [server.model_path]
    for argument in engine.arguments:
        if argument.of in used:
            value = of_server(argument, server)
            args += [argument.name] if value is None else [argument.name, value]
    env = {**{name: Variable(value=text) for name, text in engine.env.items()}, **server.env}
    if server.expose and (own := server.expose.api_key) and not worker:
        env[engine.api_key.env] = Variable(secret=own.secret, key=own.key)
    return server.model_copy(update={"command": list(engine.command), "args": [*args, *server.args], "env": env})
