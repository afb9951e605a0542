"""A cluster that somebody else made, nodes included."""

from typing import ClassVar, Literal

from gpu_tenancy.model.spec.clouds.base import ClusterSection


class ExistingCluster(ClusterSection):
    """A cluster that somebody else made, with its nodes, reached through a kubeconfig."""

    NODES_MADE: ClassVar[bool] = False

    cloud: Literal["existing"]
    """`existing`: the cluster is there; only what lives in it is made here."""
    kubeconfig: str | None = None
    """Path of the kubeconfig; left out, the one that kubectl would use (`KUBECONFIG`, then `~/.kube/config`)."""
    context: str | None = None
    """Context within the kubeconfig; left out, its current one."""
    provider: str | None = None
    """Whose service it is, such as `aws`: its ways with drivers, taints and partitions are then expected of nodes."""
    autoscaler: bool = True
    """Whether something adds nodes up to `nodes.max`. Where nothing does, only `nodes.min` is promised to teams."""

    @property
    def grows(self) -> bool:
        """As the stack says: nobody here can know."""
        return self.autoscaler
