"""An existing cluster, including its nodes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gpu_tenancy.model.spec.clouds.base import ClusterSection, KubernetesVersion


class ExistingCluster(ClusterSection):
    """An existing cluster with existing nodes, accessed with a kubeconfig."""

    NODES_MADE: ClassVar[bool] = False

    cloud: Literal["existing"]
    """`existing`: only objects in the cluster are created here."""
    kubeconfig: str | None = None
    """Path of the kubeconfig; default: as for kubectl (`KUBECONFIG`, then `~/.kube/config`)."""
    context: str | None = None
    """Context in the kubeconfig; default: its current context."""
    uid: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] | None = None
    """UID of the namespace `kube-system` of the cluster; `pulumi up` refuses another cluster before any change.

    `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` prints it. Default: not checked.
    """
    version: KubernetesVersion | None = None
    """Minor version of Kubernetes, such as `1.36`. From 1.36 on, defaults complete what members of teams submit: queue,
    tolerations, priority, requests and limits. Default: unknown, so members write these themselves."""
    provider: str | None = None
    """Cloud of the cluster, such as `aws`, whose conventions for drivers, taints and MIG then apply to nodes."""
    autoscaler: bool = True
    """Whether an autoscaler adds nodes up to `nodes.max`. If not, only `nodes.min` can be guaranteed to teams."""

    @property
    def grows(self) -> bool:
        """As set in the stack; it cannot be detected."""
        return self.autoscaler

    @property
    def kubernetes(self) -> str | None:
        """As set in the stack."""
        return self.version
