"""MultiKueue: the worker clusters of a manager, and the rights of a manager in a worker."""

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes.core.v1 import Namespace, ServiceAccount
from pulumi_kubernetes.rbac.v1 import RoleBinding

from gpu_tenancy.model.plan.multikueue import CHECK, CONTROLLER, WorkerAccess, WorkerCluster

from .conventions import admission_check, kueue_object
from .people import LABELS, cluster_role, cluster_role_binding, role_binding

_WRITES = f"{CHECK}-team"
"""Name of the ClusterRole and the RoleBindings by which a manager creates workloads."""


class WorkerClusters(pulumi.ComponentResource):
    """The MultiKueueClusters of a manager, and the AdmissionCheck that sends workloads to them.

    A kubeconfig is a Secret in Kueue's namespace, which is referenced only: it is neither read nor created here.

    Example:
        >>> WorkerClusters("queues", plan(stack).queues.workers)
    """

    def __init__(self, name: str, workers: Sequence[WorkerCluster], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:WorkerClusters", name, {}, opts)
        clusters = [
            kueue_object(
                f"{name}-{worker.name}",
                "MultiKueueCluster",
                worker.name,
                {"clusterSource": {"kubeConfig": {"locationType": "Secret", "location": worker.secret}}},
                pulumi.ResourceOptions(parent=self),
            )
            for worker in workers
        ]
        kind, names = "MultiKueueConfig", [worker.name for worker in workers]
        after = pulumi.ResourceOptions(parent=self, depends_on=[*clusters])
        config = kueue_object(f"{name}-config", kind, CHECK, {"clusters": names}, after)
        after = pulumi.ResourceOptions(parent=self, depends_on=[config])
        self.check = admission_check(f"{name}-check", CHECK, CONTROLLER, kind, after)
        self.register_outputs({"clusters": names})


class ManagerAccess(pulumi.ComponentResource):
    """The ServiceAccount of a manager in a worker, what it may read, and the role that it has in each team's namespace.

    It has no token until somebody asks for one: `tenancy access worker-kubeconfig`.

    Example:
        >>> ManagerAccess("manager", plan(stack).manager)
    """

    def __init__(self, name: str, access: WorkerAccess, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:ManagerAccess", name, {}, opts)
        within = pulumi.ResourceOptions(parent=self)
        if access.of_others:  # read only, so that a missing namespace is an error before anything is changed
            Namespace.get(f"{name}-namespace", access.account.namespace, opts=within)
        account = ServiceAccount(
            f"{name}-account",
            metadata={"name": access.account.name, "namespace": access.account.namespace, "labels": LABELS},
            automount_service_account_token=False,
            opts=within,
        )
        reads = cluster_role(f"{name}-reads", CHECK, access.reads, within)
        cluster_role(f"{name}-writes", _WRITES, access.writes, within)
        after = pulumi.ResourceOptions(parent=self, depends_on=[account, reads])
        cluster_role_binding(f"{name}-binding", CHECK, (CHECK, [access.account]), after)
        self.register_outputs({"account": access.account.name})


def manager_binding(name: str, namespace: str, access: WorkerAccess, opts: pulumi.ResourceOptions) -> RoleBinding:
    """The RoleBinding by which a manager creates workloads in a team's namespace."""
    return role_binding(name, (namespace, CHECK), (_WRITES, [access.account]), opts)
