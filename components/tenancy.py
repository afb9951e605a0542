"""All Kubernetes objects of a stack on one cluster, except operators and dashboards."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pulumi
from pulumi.runtime.settings import get_monitor

from gpu_tenancy.model.plan import Plan, TeamPlan
from gpu_tenancy.model.plan.secrets import NO_SECRETS

from .caches import CachedVolume, Caches
from .flow_control import FlowControl
from .guards import Guards
from .multikueue import ManagerAccess
from .namespace import TeamNamespace
from .notebooks import NotebookStops, TeamNotebooks
from .people import Access
from .queues import Priorities, Queues
from .secrets import NamespaceSecrets
from .serving import ModelServer
from .snapshots import Snapshots, TeamSnapshots
from .storage import DatasetVolume, StorageClasses, TeamStorage
from .training import GangJob, TrainingJob, TrainingRuntime

AT_ONCE: Final = 10
"""Teams of a `GradualTenancy` whose namespaces are registered at the same time."""


class Team(pulumi.ComponentResource):
    """One team: its namespace, then its Secrets, data and snapshots, servers, runtimes of TrainJobs, jobs and gangs.

    Its own components register no outputs: on a file backend, that would write the whole state once more for each.

    Example:
        >>> Team("ml-research", plan(stack).teams[0])
    """

    def __init__(self, name: str, team: TeamPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Team", name, {}, opts)
        self.space = TeamNamespace(f"{name}-space", team.namespace, pulumi.ResourceOptions(parent=self))
        # Names contain no dots, so a dot keeps them apart: with a hyphen, "ml" + "a-b" would equal "ml-a" + "b".
        inside = pulumi.ResourceOptions(parent=self, depends_on=[self.space.namespace, *self.space.bounds])
        if team.secrets != NO_SECRETS:
            secrets = NamespaceSecrets(f"{name}-secrets", team.namespace.name, team.secrets, inside)
            inside = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[*secrets.made]))
        self.datasets = [DatasetVolume(f"{name}.{volume.dataset}", volume, inside) for volume in team.volumes]
        self.storage = [TeamStorage(f"{name}.{claim.name}", claim, inside) for claim in team.claims]
        if team.snapshots:
            after_storage = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[*self.storage]))
            TeamSnapshots(f"{name}.snapshots", team.namespace.name, team.snapshots, after_storage)
        if team.notebooks:
            TeamNotebooks(f"{name}.notebooks", team.namespace.name, team.notebooks, team.notebook_routes, inside)
        self.cached = [CachedVolume(f"{name}.{cached.dataset}", cached, inside) for cached in team.cached]
        self.servers = [ModelServer(f"{name}.{server.name}", server, inside) for server in team.servers]
        self.runtimes = [TrainingRuntime(f"{name}.{runtime.name}", runtime, inside) for runtime in team.runtimes]
        after = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[*self.runtimes]))
        self.jobs = [TrainingJob(f"{name}.{job.name}", job, after) for job in team.jobs]
        self.gangs = [GangJob(f"{name}.{gang.name}", gang, inside) for gang in team.gangs]
        self.register_outputs({"namespace": team.namespace.name})


class Tenancy(pulumi.ComponentResource):
    """Priorities, queues, guards and teams of a stack.

    The provider in `opts` selects the cluster. Clusters, node pools and operators are not managed here.

    Args:
        name: of the component.
        plan: of one environment.
        opts: parent, provider and dependencies.
        kind: type of the component; programs in other languages have their own.
        prefix: start of the children's names, for programs with several tenancies: it ends in a dot, which no team's
            name contains.

    Example:
        >>> Tenancy("tenancy", plan(stack), pulumi.ResourceOptions(providers=[provider]))
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        opts: pulumi.ResourceOptions | None = None,
        *,
        kind: str = "gpu-tenancy:tenancy:Tenancy",
        prefix: str = "",
    ) -> None:
        super().__init__(kind, name, {}, opts)
        self._prefix = prefix
        own = pulumi.ResourceOptions(parent=self)
        self.queues = Queues(f"{prefix}queues", plan.queues, own)
        priorities = Priorities(f"{prefix}priorities", plan.priorities, own)
        # A binding depends on its policy. The SDK stores each dependency with each team.
        self._shared: list[pulumi.Resource] = [priorities, *Guards(f"{prefix}guards", plan.guards, own).bindings]
        if plan.storage_classes:
            self._shared.append(StorageClasses(f"{prefix}storage", plan.storage_classes, own))
        if plan.access:
            self._shared.append(Access(f"{prefix}access", plan.access, own))
        if plan.caches:
            self._shared.append(Caches(f"{prefix}caches", plan.caches, own))
        if plan.snapshots:
            self._shared.append(Snapshots(f"{prefix}snapshots", plan.snapshots, own))
        if plan.notebooks:
            # No team waits for it: what depends on a CronJob counts as work, which GitOps applies last.
            NotebookStops(f"{prefix}notebooks", plan.environment, plan.notebooks, own)
        if plan.flows:
            FlowControl(f"{prefix}flow-control", plan.flows, own)
        if plan.manager:
            self._shared.append(ManagerAccess(f"{prefix}manager", plan.manager, own))
        self.teams: dict[str, Team] = {}
        self._begin(plan.teams)
        self.register_outputs({"teams": [team.namespace.name for team in plan.teams]})

    def _begin(self, teams: Iterable[TeamPlan]) -> None:
        for team in teams:
            self._register(team)

    def _register(self, team: TeamPlan) -> Team:
        made = self.teams[team.namespace.name] = self._team(team)
        return made

    def _team(self, team: TeamPlan) -> Team:
        # Only the team's own queues: with all queues, 1,000 teams would have a million dependencies.
        gangs = [self.queues.gang_queues[gang.queue] for gang in team.gangs]
        own = [self.queues.cluster_queues[team.namespace.queue], *gangs]
        options = pulumi.ResourceOptions(parent=self, depends_on=[*self._shared, *own])
        return Team(f"{self._prefix}{team.namespace.name}", team, options)


class GradualTenancy(Tenancy):
    """A tenancy whose teams are registered a few at a time, by `register_teams`.

    With all teams at once, Pulumi's SDK has thousands of open calls and walks all of them each time that one ends.
    """

    def _begin(self, teams: Iterable[TeamPlan]) -> None:
        self._waiting = tuple(teams)

    async def register_teams(self) -> None:
        """Registers the teams in their order; at most `AT_ONCE` namespaces are not yet complete.

        Servers and jobs of a team are not awaited, because they can need minutes until they are ready.
        """
        free = asyncio.Semaphore(AT_ONCE)

        async def register(team: TeamPlan) -> None:
            async with free:
                space = self._register(team).space
                await asyncio.gather(*(resource.urn.future() for resource in (space.namespace, *space.bounds)))

        await asyncio.gather(*(register(team) for team in _own_share(self._waiting)))


def _own_share(teams: Sequence[TeamPlan]) -> Sequence[TeamPlan]:
    """The teams that this process registers: all, except in an engine that runs the program in several processes."""
    share: Callable[[Sequence[TeamPlan]], Sequence[TeamPlan]] | None = getattr(get_monitor(), "share", None)
    return share(teams) if share else teams
