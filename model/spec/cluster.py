"""The cluster, and what runs in it that the tenancy relies on."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from model.spec.base import Section, refuse


class ExistingCluster(Section):
    """A cluster that somebody else made, reached through a kubeconfig."""

    cloud: Literal["existing"]
    """`existing`: the cluster is there; only what lives in it is made here."""
    kubeconfig: str | None = None
    """Path of the kubeconfig; left out, the one that kubectl would use (`KUBECONFIG`, then `~/.kube/config`)."""
    context: str | None = None
    """Context within the kubeconfig; left out, its current one."""
    autoscaler: bool = True
    """Whether something adds nodes up to `nodes.max`. Where nothing does, only `nodes.min` is promised to teams."""


Cluster: TypeAlias = Annotated[ExistingCluster, Field(description="Where the tenancy lives.")]


def _seconds_metric(name: str) -> str:
    if not name.endswith("_seconds"):
        raise refuse(
            "does not say its unit, and a latency target of 100ms is compared with whatever it counts",
            "serve it in seconds under a name that ends in _seconds, such as inference_latency_p99_seconds",
        )
    return name


class Metrics(Section):
    """The custom metrics that an adapter in the cluster serves for pods, by what a server scales on.

    An autoscaler on a metric that nothing serves is accepted by the API server and then never scales, so a server
    may scale only on what is named here.
    """

    latency_p99: Annotated[str, AfterValidator(_seconds_metric)] | None = Field(default=None, alias="latencyP99")
    """Name of the pod metric that holds the 99th percentile of a pod's request latency, in seconds."""
