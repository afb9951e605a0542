"""All Kubernetes objects of a stack on one cluster, except operators and dashboards; roles and flows of people."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pulumi
from pulumi import ResourceOptions
from pulumi.runtime.settings import get_monitor
from pulumi_kubernetes.flowcontrol import v1 as flowcontrol
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.model.plan import Plan, TeamPlan, people
from gpu_tenancy.model.plan.secrets import NO_SECRETS
from gpu_tenancy.model.plan.workloads import PodPlan

from .caches import CachedVolume, Caches
from .guards import Guards
from .idle import IdleGpus, UncountedPods
from .namespace import TeamNamespace
from .notebooks import NotebookStops, TeamNotebooks
from .objects import LABELS, Component, Options, bind_job, cluster_role, cluster_role_binding
from .queues import ManagerAccess, Priorities, Queues
from .secrets import NamespaceSecrets
from .serving import ModelServer
from .storage import DatasetVolume, Snapshots, StorageClasses, TeamSnapshots, TeamStorage
from .training import GangJob, TrainingJob, TrainingRuntime

AT_ONCE: Final = 10  # teams of a `GradualTenancy` whose namespaces are registered at the same time


class Team(Component):
    """One team: its namespace, then its Secrets, data and snapshots, servers, runtimes of TrainJobs, jobs and gangs.

    Its components register no outputs, because a file backend would write the whole state again for each.
    """

    def __init__(self, name: str, team: TeamPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Team", name, opts)
        namespace = team.namespace.name
        self.space = TeamNamespace(f"{name}-space", team.namespace, self.own)
        # Names contain no dots, so a dot keeps them apart: with a hyphen, "ml" + "a-b" would equal "ml-a" + "b".
        inside = self.after(self.space.namespace, *self.space.bounds)
        if team.secrets != NO_SECRETS:
            inside = _later(inside, NamespaceSecrets(f"{name}-secrets", namespace, team.secrets, inside).made)
        self.datasets = [DatasetVolume(f"{name}.{volume.dataset}", volume, inside) for volume in team.volumes]
        self.storage = [TeamStorage(f"{name}.{claim.name}", claim, inside) for claim in team.claims]
        if team.snapshots:
            TeamSnapshots(f"{name}.snapshots", namespace, team.snapshots, _later(inside, self.storage))
        if team.notebooks:
            TeamNotebooks(f"{name}.notebooks", namespace, team.notebooks, team.notebook_routes, inside)
        for account in team.cron_jobs:
            bind_job(f"{name}-{account.namespace}", namespace, account, inside)
        self.cached = [CachedVolume(f"{name}.{cached.dataset}", cached, inside) for cached in team.cached]
        names = [*(volume.dataset for volume in team.volumes), *(claim.name for claim in team.claims)]
        volumes = dict(zip(names, [*self.datasets, *self.storage], strict=True))

        def mounting(pod: PodPlan, first: ResourceOptions) -> ResourceOptions:
            return _later(first, [volumes[mount.claim] for mount in pod.volumes.mounts if mount.claim in volumes])

        self.servers = [ModelServer(f"{name}.{each.name}", each, mounting(each.pod, inside)) for each in team.servers]
        self.runtimes = [TrainingRuntime(f"{name}.{runtime.name}", runtime, inside) for runtime in team.runtimes]
        after = _later(inside, self.runtimes)
        self.jobs = [TrainingJob(f"{name}.{job.name}", job, mounting(job.pod, after)) for job in team.jobs]
        self.gangs = [GangJob(f"{name}.{gang.name}", gang, mounting(gang.pod, inside)) for gang in team.gangs]
        self.register_outputs({"namespace": namespace})


def _later(inside: ResourceOptions, others: Sequence[pulumi.Resource]) -> ResourceOptions:
    return ResourceOptions.merge(inside, ResourceOptions(depends_on=[*others])) if others else inside


class Access(Component):
    """ClusterRoles, and the bindings of administrators, auditors and members in the whole cluster.

    Roles have no wildcards, and only people of the stack are bound. RoleBindings of teams are in their namespaces.
    """

    def __init__(self, name: str, access: people.AccessPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Access", name, opts)
        self.roles = {
            role: cluster_role(f"{name}-{role}", f"{people.PREFIX}{role}", rules, self.own)
            for role, rules in access.roles.items()
        }
        bound = (
            # Not `gpu-tenancy-admins`: that binds the administrators that GKE's section has.
            ("people-admins", people.ADMIN, access.admins),
            ("auditors", people.AUDITOR, access.auditors),
            ("members", people.MEMBER, access.members),
        )
        with_roles = self.after(*self.roles.values())
        for who, role, subjects in bound:
            if subjects:
                metadata: ObjectMetaArgsDict = {"name": f"{people.PREFIX}{who}", "labels": LABELS}
                cluster_role_binding(f"{name}-{who}", metadata, role, subjects, with_roles)


class FlowControl(Component):
    """One priority level for the requests of all teams, with a flow for each user (API Priority and Fairness).

    So requests of one team do not delay others. Operators and the control plane have Kubernetes' levels and flows.
    """

    def __init__(self, name: str, flows: tuple[people.Subject, ...], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:FlowControl", name, opts)
        limited: flowcontrol.LimitedPriorityLevelConfigurationArgsDict = {
            "nominal_concurrency_shares": people.FLOW_SHARES,
            "lendable_percent": people.FLOW_LENDABLE,
            "borrowing_limit_percent": people.FLOW_BORROWED,
            "limit_response": {
                "type": "Queue",
                "queuing": {
                    "queues": people.FLOW_QUEUES,
                    "hand_size": people.FLOW_HAND,
                    "queue_length_limit": people.FLOW_LENGTH,
                },
            },
        }
        level = flowcontrol.PriorityLevelConfiguration(
            f"{name}-level",
            metadata={"name": people.FLOW_NAME},
            spec={"type": "Limited", "limited": limited},
            opts=self.own,
        )
        resources = {key: ["*"] for key in ("verbs", "api_groups", "resources", "namespaces")}
        spec: Any = {
            "priority_level_configuration": {"name": people.FLOW_NAME},
            "matching_precedence": people.FLOW_PRECEDENCE,
            "distinguisher_method": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [_of_flow(subject) for subject in flows],
                    "resource_rules": [{**resources, "cluster_scope": True}],
                    "non_resource_rules": [{"verbs": ["*"], "non_resource_urls": ["*"]}],
                }
            ],
        }
        flowcontrol.FlowSchema(f"{name}-schema", metadata={"name": people.FLOW_NAME}, spec=spec, opts=self.after(level))


def _of_flow(subject: people.Subject) -> dict[str, Any]:
    match subject.kind:
        case "Group":
            return {"kind": subject.kind, "group": {"name": subject.name}}
        case "User":
            return {"kind": subject.kind, "user": {"name": subject.name}}
        case "ServiceAccount":
            return {"kind": subject.kind, "service_account": {"namespace": subject.namespace, "name": subject.name}}


class Tenancy(Component):
    """Priorities, queues, guards and teams of a stack, on the cluster of the provider in `opts`.

    Clusters, node pools and operators are not managed here. Programs in other languages have their own `kind` of
    component. With several tenancies, `prefix` starts their children's names; it ends in a dot, which team names lack.

    Example:
        >>> Tenancy("tenancy", plan(stack), pulumi.ResourceOptions(providers=[provider]))
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        opts: Options = None,
        *,
        kind: str = "gpu-tenancy:tenancy:Tenancy",
        prefix: str = "",
    ) -> None:
        super().__init__(kind, name, opts)
        self._prefix = prefix
        self.queues = Queues(f"{prefix}queues", plan.queues, self.own)
        priorities = Priorities(f"{prefix}priorities", plan.priorities, self.own)
        # A binding depends on its policy. The SDK stores each dependency with each team.
        self._shared: list[pulumi.Resource] = [priorities, *Guards(f"{prefix}guards", plan.guards, self.own).bindings]
        if plan.storage_classes:
            self._shared.append(StorageClasses(f"{prefix}storage", plan.storage_classes, self.own))
        if plan.access:
            self._shared.append(Access(f"{prefix}access", plan.access, self.own))
        if plan.caches:
            self._shared.append(Caches(f"{prefix}caches", plan.environment, plan.caches, self.own))
        if plan.snapshot_classes is not None:
            self._shared.append(Snapshots(f"{prefix}snapshots", plan.environment, plan.snapshot_classes, self.own))
        if plan.notebooks:
            # No team waits for it: what depends on a CronJob counts as work, which GitOps applies last.
            NotebookStops(f"{prefix}notebooks", plan.environment, plan.notebooks, self.own)
        if plan.idle:
            IdleGpus(f"{prefix}idle-gpus", plan.environment, plan.idle, self.own)
        if plan.guards.deletes_uncounted:
            UncountedPods(f"{prefix}uncounted-pods", plan.environment, plan.guards, self.own)
        if plan.flows:
            FlowControl(f"{prefix}flow-control", plan.flows, self.own)
        if plan.manager:
            self._shared.append(ManagerAccess(f"{prefix}manager", plan.manager, self.own))
        self.teams: dict[str, Team] = {}
        self._begin(plan.teams)
        self.register_outputs({"teams": [team.namespace.name for team in plan.teams]})

    def _begin(self, teams: Iterable[TeamPlan]) -> None:
        for team in teams:
            self._register(team)

    def _register(self, team: TeamPlan) -> Team:
        name = team.namespace.name
        # Only the team's own queues: with all queues, 1,000 teams would have a million dependencies.
        queues = [self.queues.cluster_queues[team.namespace.queue]]
        queues += [self.queues.gang_queues[gang.queue] for gang in team.gangs]
        made = self.teams[name] = Team(f"{self._prefix}{name}", team, self.after(*self._shared, *queues))
        return made


class GradualTenancy(Tenancy):
    """A tenancy whose teams are registered a few at a time, by `register_teams`.

    With all teams at once, Pulumi's SDK has thousands of open calls and walks all of them each time that one ends.
    """

    def _begin(self, teams: Iterable[TeamPlan]) -> None:
        self._waiting = tuple(teams)

    async def register_teams(self) -> None:
        """Registers the teams in their order; at most `AT_ONCE` namespaces are not yet complete."""
        # Servers and jobs of a team are not awaited, because they can need minutes until they are ready.
        free = asyncio.Semaphore(AT_ONCE)

        async def register(team: TeamPlan) -> None:
            async with free:
                space = self._register(team).space
                await asyncio.gather(*(resource.urn.future() for resource in (space.namespace, *space.bounds)))

        # An engine that runs the program in several processes has each of them register a share of the teams.
        share: Callable[[Sequence[TeamPlan]], Sequence[TeamPlan]] | None = getattr(get_monitor(), "share", None)
        await asyncio.gather(*(register(team) for team in (share(self._waiting) if share else self._waiting)))
