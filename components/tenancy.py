"""The whole tenancy on one cluster."""

import pulumi

from gpu_tenancy.model.plan import Plan, TeamPlan

from .datasets import DatasetVolume
from .guards import Guards
from .namespace import TeamNamespace
from .priorities import Priorities
from .queues import Queues
from .serving import ModelServer
from .training import GangJob, TrainingJob


class Team(pulumi.ComponentResource):
    """One team: its namespace, then its datasets, then what it runs.

    Example:
        >>> Team("ml-research", plan(stack).teams[0])
    """

    def __init__(self, name: str, team: TeamPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Team", name, {}, opts)
        self.space = TeamNamespace(f"{name}-space", team.namespace, pulumi.ResourceOptions(parent=self))
        # A dot, which no name has: of "ml" and "a-b" and of "ml-a" and "b" a hyphen would make the same.
        inside = pulumi.ResourceOptions(parent=self, depends_on=[self.space.namespace, *self.space.bounds])
        self.datasets = [DatasetVolume(f"{name}.{each.dataset}", each, inside) for each in team.volumes]
        self.servers = [ModelServer(f"{name}.{each.name}", each, inside) for each in team.servers]
        self.jobs = [TrainingJob(f"{name}.{each.name}", each, inside) for each in team.jobs]
        self.gangs = [GangJob(f"{name}.{each.name}", each, inside) for each in team.gangs]
        self.register_outputs({"namespace": team.namespace.name})


class Tenancy(pulumi.ComponentResource):
    """Priorities, the queues that all share, and every team: the Kubernetes half of a stack.

    Takes its cluster from the provider in `opts`. Clusters, node pools and operators are not managed here.

    Attributes:
        teams: by name.

    Example:
        >>> Tenancy("tenancy", plan(stack), pulumi.ResourceOptions(providers=[provider]))
    """

    def __init__(self, name: str, plan: Plan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Tenancy", name, {}, opts)
        own = pulumi.ResourceOptions(parent=self)
        self.priorities = Priorities("priorities", plan.priorities, own)
        self.queues = Queues("queues", plan.queues, own)
        self.guards = Guards("guards", plan.guards, own)
        self.teams = {team.namespace.name: self._team(team) for team in plan.teams}
        self.register_outputs({"teams": list(self.teams)})

    def _team(self, team: TeamPlan) -> Team:
        # Its own queues and no others: with all of them, a thousand teams would make a million dependencies.
        gangs = [self.queues.gang_queues[gang.queue] for gang in team.gangs]
        own = [self.queues.cluster_queues[team.namespace.queue], *gangs]
        options = pulumi.ResourceOptions(parent=self, depends_on=[self.priorities, self.guards, *own])
        return Team(team.namespace.name, team, options)
