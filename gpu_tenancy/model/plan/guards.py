"""What a tenant with every right in its own namespace may still not do, as the API server will judge it.

The facts that differ by namespace go into the policies' own text and not into an object that they read: nobody but
whoever may write the policies can change them, none can be missing, and none arrives later than its policy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.model.catalogue.releases import charts
from gpu_tenancy.model.plan.fleet import PROTECTED
from gpu_tenancy.model.plan.gpus import gpu_resource
from gpu_tenancy.model.plan.namespaces import NamespacePlan
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.operators.needs import AMD, INTEL, NVIDIA, gpu_pools, there
from gpu_tenancy.model.plan.queues import gang_queue_name
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.quantity import is_extended
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Team

SYSTEM: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""Kubernetes' own namespaces."""
_VENDORS: Final = (f"{NVIDIA}gpu", f"{NVIDIA}mig-", f"{AMD}gpu", INTEL)
"""Beginnings of the names under which vendors' device plugins offer GPUs, whole or in parts."""
_ABOVE: Final = ("system:masters", "system:nodes")
"""Groups that are never judged: the first may do everything, these policies' removal too; kubelets make only the
mirrors of their own static pods."""
_MAKERS: Final = ("volcano", "kueue", "fluid")
"""Operators that make pods in the teams' namespaces for owners of theirs, or change what they have admitted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a namespace's pods may ask for, and name.

    Attributes:
        classes: priority classes that its pods may name.
        must_name: whether a pod without a class is refused by the namespace's quota.
        gangs: Volcano's queues of the team.
        volcano: whether Volcano may schedule its pods.
        gpus: the most of each GPU resource that one container may have; what is not there has no bound of its own.
        ratios: how many times its request a container's limit of a resource may be.
        defaults: the limit of a container that states none, in base units.
    """

    classes: tuple[str, ...]
    must_name: bool
    gangs: tuple[str, ...]
    volcano: bool
    gpus: Mapping[str, int]
    ratios: Mapping[str, float]
    defaults: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class GuardsPlan:
    """What is judged, of whom, and what follows.

    Attributes:
        action: what becomes of what breaks a rule.
        label: label, key and value, of the namespaces in which it is judged.
        spared: namespaces in which it never is, whatever their labels.
        exempt: users and groups that are not judged.
        makers: groups whose pods are made for owners that were judged before.
        trainer: group that makes JobSets out of what a TrainJob and its runtime say together; None without it.
        taints: keys of the taints that keep other work off GPU nodes.
        names: beginnings of the names under which GPUs are asked for.
        most: the most of each GPU resource that any node of the stack has.
        teams: by namespace.
        gpu_defaults: namespaces whose containers get 0 GPUs by default, which a maximum of GPUs needs.
    """

    action: Literal["deny", "warn", "audit", "off"]
    label: tuple[str, str]
    spared: tuple[str, ...]
    exempt: tuple[str, ...]
    makers: tuple[str, ...]
    trainer: str | None
    taints: tuple[str, ...]
    names: tuple[str, ...]
    most: Mapping[str, int]
    teams: Mapping[str, Bounds]
    gpu_defaults: tuple[str, ...]


def guards(tree: Tree, namespaces: tuple[NamespacePlan, ...]) -> GuardsPlan:
    """The guards of a coherent stack, over its teams' namespaces."""
    stack = tree.stack
    by_default = "deny" if stack.environment == PROTECTED else "warn"
    most: dict[str, int] = {}
    for flavor in tree.flavors.values():
        if flavor.resource:
            most[flavor.resource] = max(most.get(flavor.resource, 0), flavor.node.get(flavor.resource, 0))
    operators = {row.namespace for row in charts().values() if row.namespace}
    own = (resource for resource in most if not resource.startswith(_VENDORS))
    return GuardsPlan(
        action=stack.guards.action or by_default,
        label=TEAM_LABEL,
        spared=tuple(sorted({*SYSTEM, stack.metrics.prometheus.namespace, *operators} - stack.teams.keys())),
        exempt=tuple(dict.fromkeys((*_ABOVE, *stack.guards.exempt))),
        makers=("system:kube-controller-manager", accounts("kube-system"), *_makers(stack)),
        trainer=next(_accounts_of(stack, "trainer", "kubeflow-trainer"), None),
        taints=tuple(dict.fromkeys(gpu_resource(stack, stack.pools[name]) for name in gpu_pools(stack))),
        names=(*_VENDORS, *own),
        most=dict(sorted(most.items())),
        teams={each.name: _bounds(stack, each) for each in namespaces},
        gpu_defaults=tuple(sorted(each.name for each in namespaces if each.limits.gives_gpus)),
    )


def accounts(namespace: str | None) -> str:
    """The group of all service accounts of a namespace."""
    return f"system:serviceaccounts:{namespace}"


def _makers(stack: Stack) -> tuple[str, ...]:
    return tuple(group for name in _MAKERS for group in _accounts_of(stack, name, name))


def _accounts_of(stack: Stack, operator: str, chart: str) -> Iterator[str]:
    """The accounts of an operator, if it is there and no team has its namespace."""
    namespace = charts()[chart].namespace
    if there(stack, operator) and namespace not in stack.teams:
        yield accounts(namespace)


def _bounds(stack: Stack, namespace: NamespacePlan) -> Bounds:
    team: Team = stack.teams[namespace.name]
    default = next((name for name, each in stack.priorities.items() if each.default), None)
    own = team.compute.priorities
    together = any(job.together for job in team.training.values())
    return Bounds(
        classes=tuple(sorted(own or stack.priorities)),
        must_name=bool(own) and default not in own,
        gangs=tuple(gang_queue_name(namespace.name, flavor) for flavor in team.gangs),
        volcano=bool(team.gangs) or together,
        gpus={resource: amount for resource, amount in namespace.limits.max.items() if is_extended(resource)},
        ratios={resource: float(ratio) for resource, ratio in namespace.limits.ratio.items()},
        defaults={resource: namespace.limits.default[resource] for resource in namespace.limits.ratio},
    )
