"""The cluster, and what runs in it that the tenancy relies on."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from model.spec.base import Section, refuse
from model.spec.clouds.aws import AwsCluster
from model.spec.clouds.azure import AzureCluster
from model.spec.clouds.existing import ExistingCluster
from model.spec.clouds.gcp import GcpCluster

Cluster: TypeAlias = Annotated[
    ExistingCluster | AwsCluster | GcpCluster | AzureCluster,
    Field(discriminator="cloud", description="Where the tenancy lives."),
]


def service_of(cluster: Cluster) -> str:
    """Whose rules the pools of a cluster follow: a row of `model/catalogue/clouds.yaml`."""
    return cluster.provider or cluster.cloud if isinstance(cluster, ExistingCluster) else cluster.cloud


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
