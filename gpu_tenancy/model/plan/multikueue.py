"""MultiKueue: the objects of a manager, and the rights that a worker gives to it.

https://kueue.sigs.k8s.io/docs/tasks/manage/setup_multikueue/
"""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.catalogue.access import Rule, Verb
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.operators.kueue import integrations
from gpu_tenancy.model.plan.people import PREFIX, Subject
from gpu_tenancy.model.spec.tenancy import MultiKueue

CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""Controller of the AdmissionCheck, and `spec.managedBy` of jobs that run in a worker."""
CHECK: Final = f"{PREFIX}multikueue"
"""Name of the MultiKueueConfig and the AdmissionCheck of a manager; in a worker, of the account of its manager."""
KUBECONFIG_KEY: Final = "kubeconfig"
"""Key of the Secret that Kueue reads (`apis/kueue/v1beta2/multikueue_types.go` of v0.19.2)."""

_READ: Final[tuple[Verb, ...]] = ("get", "list", "watch")
_KINDS: Final = {
    kind.integration: (kind.group, kind.plural)
    for kind in kinds().values()
    if kind.integration and kind.queue != "either"
}
"""API group and resource of the kinds that MultiKueue creates in a worker, by Kueue's integration. The pods of a
Deployment are dispatched one by one. `pkg/controller/jobs/*/*_multikueue_adapter.go` of v0.19.2."""


@dataclass(frozen=True, slots=True)
class WorkerCluster:
    """A MultiKueueCluster.

    Attributes:
        name: of the worker, in the stack of the manager.
        secret: Secret in Kueue's namespace with the worker's kubeconfig.
    """

    name: str
    secret: str


@dataclass(frozen=True, slots=True)
class WorkerAccess:
    """What the manager may do in the cluster of a worker.

    Attributes:
        account: a ServiceAccount in Kueue's namespace.
        reads: rules in the whole cluster: Kueue lists and watches without a namespace.
        writes: rules in the namespaces of teams only.
        of_others: whether Kueue, and so its namespace, is not installed by this stack.
    """

    account: Subject
    reads: tuple[Rule, ...]
    writes: tuple[Rule, ...]
    of_others: bool


def worker_clusters(section: MultiKueue | None) -> tuple[WorkerCluster, ...]:
    """The workers of a manager, in the order of its stack; none for any other stack."""
    return tuple(WorkerCluster(worker.name, worker.secret) for worker in (section.workers if section else ()))


def kueue_namespace() -> str:
    """The namespace of Kueue, with the Secrets of a manager and the account of a worker."""
    return operators()["kueue"].charts["kueue"].namespace


def worker_access(environment: Environment) -> WorkerAccess | None:
    """The rights of the manager in a worker; None if the stack is no worker.

    Kueue's own script also gives rights for kinds that the stack has not, and to write in all namespaces:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/site/static/examples/multikueue/create-multikueue-kubeconfig.sh
    """
    section = environment.stack.multikueue
    if section is None or section.manager is None:
        return None
    kinds = [_KINDS[name] for name in integrations(environment)["frameworks"] if name in _KINDS]
    kueue = ("kueue.x-k8s.io",)
    reads = [
        Rule(groups=kueue, resources=("workloads",), verbs=_READ, reason="admission and end of workloads"),
        Rule(groups=kueue, resources=("clusterqueues", "localqueues"), verbs=_READ, reason="queues of the worker"),
    ]
    writes = [
        Rule(
            groups=kueue,
            resources=("workloads",),
            verbs=("create", "update", "patch", "delete"),
            reason="copies of the manager's workloads",
        ),
        Rule(
            groups=kueue,
            resources=("workloads/status",),
            verbs=("get", "update", "patch"),
            reason="eviction of a copy",
        ),
    ]
    for group, resource in kinds:
        reads.append(Rule(groups=(group,), resources=(resource,), verbs=_READ, reason="status of copied jobs"))
        if group:
            status = f"{resource}/status"
            reads.append(Rule(groups=(group,), resources=(status,), verbs=("get",), reason="status of copied jobs"))
        writes.append(Rule(groups=(group,), resources=(resource,), verbs=("create", "delete"), reason="copies of jobs"))
    account = Subject("ServiceAccount", CHECK, kueue_namespace())
    return WorkerAccess(account, tuple(reads), tuple(writes), of_others=installed_by(environment, "kueue") != "here")
