"""Resolves a stack: adds values that follow from the user's keys, once, before checks and plan.

Servers get defaults of their engine and mounts of their model, canaries their exposure; a burst becomes a server.
"""

from collections.abc import Iterator
from typing import Any, Final

from pydantic.alias_generators import to_snake

from gpu_tenancy.base.problems import Path
from gpu_tenancy.model.catalogue.pods import engines
from gpu_tenancy.model.fields import Name, WorkloadName
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.serving import ServerExpose, ServerLevel
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import OF_BURST, ScaleOn, Server, ServerReplicas

_DRAIN: Final = 120  # seconds: default of `drain` of an engine


class ResolvedServer(Server, defer_build=True):  # never validated
    """A server with the defaults of its engine, or the burst of a server."""

    team: Name
    """Its team."""
    name: WorkloadName
    """Name of its Deployment or LeaderWorkerSet."""
    service: WorkloadName
    """Service for which its pods answer: a burst answers for the Service of its server."""
    scale_on: ScaleOn = ScaleOn()  # pyright: ignore[reportIncompatibleVariableOverride] - with its default
    """Targets of the autoscaler."""
    exposure: ServerExpose | None
    """Exposure outside of the cluster; `expose` is set only for the server with the route."""
    canaries: dict[WorkloadName, int]
    """Percent of its requests for each of its canaries."""

    @property
    def path(self) -> Path:
        """Its place in the resolved stack."""
        return ("teams", self.team, "serving", self.name)

    @property
    def has_service(self) -> bool:
        """Whether it has its own Service: a burst uses its server's."""
        return self.service == self.name

    def written_at(self, *keys: str | int) -> Path:
        """Where the user wrote one of its keys, or the whole server."""
        of_burst = not self.has_service and (not keys or keys[0] in {"flavor", "replicas"})
        below = ("burst", *(key for key in keys if key != "replicas")) if of_burst else keys
        return (*self.path[:-1], self.service, *below)


class ResolvedTeam(Team, defer_build=True):
    """A team with its resolved servers, bursts last."""

    serving: dict[WorkloadName, ResolvedServer] = {}  # pyright: ignore[reportIncompatibleVariableOverride] - resolved


class ResolvedStack(Stack, defer_build=True):
    """A stack with its resolved teams."""

    teams: dict[Name, ResolvedTeam] = {}  # pyright: ignore[reportIncompatibleVariableOverride] - resolved

    @property
    def servers(self) -> Iterator[ResolvedServer]:
        """The servers of all teams."""
        return (server for team in self.teams.values() for server in team.serving.values())

    def written_at(self, path: Path) -> Path:
        """Where the user wrote a key of the resolved stack."""
        return next((one.written_at(*path[4:]) for one in self.servers if one.path == path[:4]), path)


def resolve(stack: Stack) -> ResolvedStack:
    """Resolves a stack. Unknown references are ignored; `checks` reports them."""
    if isinstance(stack, ResolvedStack):
        return stack
    teams = {name: _team(name, team) for name, team in stack.teams.items()}
    return ResolvedStack.model_construct(stack.model_fields_set, **{**dict(stack), "teams": teams})


def _team(name: str, team: Team) -> ResolvedTeam:
    servers = {key: _server(name, key, team) for key in team.serving}
    bursts = {burst.name: burst for server in servers.values() if (burst := _burst(server))}
    return ResolvedTeam.model_construct(team.model_fields_set, **{**dict(team), "serving": {**servers, **bursts}})


def _server(team: str, name: str, spec: Team) -> ResolvedServer:
    server, datasets, volumes = spec.serving[name], *spec.serving[name].mounts
    canaries = {key: other.canary for key, other in spec.serving.items()}
    main = spec.serving.get(server.canary.of) if server.canary else server
    resolved = {
        "team": team,
        "name": name,
        "service": name,
        "scale_on": server.scale_on or ScaleOn(),
        "exposure": main.expose if main else None,
        "canaries": {key: other.weight for key, other in canaries.items() if other and other.of == name},
        "datasets": datasets,
        "volumes": volumes,
    }
    return ResolvedServer.model_construct(server.model_fields_set, **{**dict(server), **_of_engine(server), **resolved})


def _of_engine(server: Server) -> dict[str, Any]:
    if (engine := engines().get(server.engine)) is None:
        return {}
    defaults: dict[str, Any] = {"port": engine.port, "health": engine.health, "drain": _DRAIN}
    metrics = {to_snake(key): name for key, name in engine.metrics.items()}
    own = {key: getattr(server.metrics, key) for key in server.metrics.model_fields_set}
    return {
        **{key: value for key, value in defaults.items() if key not in server.model_fields_set},
        "metrics": server.metrics.model_copy(update={**metrics, **own}),
    }


def _burst(server: ResolvedServer) -> ResolvedServer | None:
    """The burst of a server, which scales on the load above the base's capacity."""
    burst, scale_on = server.burst, server.scale_on
    if burst is None:
        return None
    if scale_on.query:
        carried = f"{server.replicas.max * scale_on.query.per_replica:.10g}"
        query = scale_on.query.model_copy(update={"expr": f"clamp_min(({scale_on.query.expr}) - {carried}, 0)"})
        scale_on = scale_on.model_copy(update={"query": query})
    return server.model_copy(
        update={
            "name": f"{server.name}{OF_BURST}",
            "flavor": burst.flavor,
            "replicas": ServerReplicas(min=burst.min, max=burst.max),
            "scale_on": scale_on,
            "service_level": ServerLevel(),
            **dict.fromkeys(("expose", "canary", "load", "surge")),
            "canaries": {},
        }
    )
