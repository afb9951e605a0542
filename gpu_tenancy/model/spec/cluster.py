"""The cluster, and what runs in it that the tenancy relies on."""

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from gpu_tenancy.model.spec.base import Name, Section, refuse
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

Cluster: TypeAlias = Annotated[
    ExistingCluster | AwsCluster | GcpCluster | AzureCluster,
    Field(discriminator="cloud", description="Where the tenancy lives."),
]


def service_of(cluster: Cluster) -> str:
    """Whose rules the pools of a cluster follow: a row of `gpu_tenancy/model/catalogue/clouds.yaml`."""
    return cluster.provider or cluster.cloud if isinstance(cluster, ExistingCluster) else cluster.cloud


def _seconds_metric(name: str) -> str:
    if not name.endswith("_seconds"):
        raise refuse(
            "does not say its unit, and a latency target of 100ms is compared with whatever it counts",
            "serve it in seconds under a name that ends in _seconds, such as inference_latency_p99_seconds",
        )
    return name


def _seconds_histogram(name: str) -> str:
    if not name.endswith("_seconds"):
        raise refuse(
            "does not say its unit, and a latency target of 100ms is compared with whatever it counts",
            "measure seconds under a name that ends in _seconds, such as inference_latency_seconds",
        )
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name):
        raise refuse("is no name of a Prometheus metric", "use letters, digits, '_' and ':', no digit first")
    return name


class Prometheus(Section):
    """The Prometheus that scrapes the servers, as the chart kube-prometheus-stack installs it.

    Nothing is installed by this: it says where to find what is there.
    """

    release: Name = "kube-prometheus-stack"
    """Name of the chart's release: its Prometheus takes only ServiceMonitors that carry it as the label `release`."""
    namespace: Name = "monitoring"
    """Namespace of the release, which may scrape the servers through their team's network policy."""
    address: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*[^\s/])?$")] | None = None
    """Where it answers queries; left out, its service in the cluster, such as
    http://kube-prometheus-stack-prometheus.monitoring.svc:9090."""


class Metrics(Section):
    """What a server may scale on beside cpu: the 99th percentile of its pods' request latency.

    An autoscaler on a metric that nothing serves is accepted by the API server and then never scales, so a server
    may scale only on what is named here: a metric that an adapter serves already (`latencyP99` alone), or a histogram
    of the servers' own, for which the scraping, the query and the autoscaler's metric are made.
    """

    latency_p99: Annotated[str, AfterValidator(_seconds_metric)] | None = Field(default=None, alias="latencyP99")
    """Name of the pod metric that holds the 99th percentile of a pod's request latency, in seconds; left out beside a
    histogram, the histogram's with `_p99` before its unit."""
    histogram: Annotated[str, AfterValidator(_seconds_histogram)] | None = None
    """Name of the Prometheus histogram (classic, with buckets) of request latency in seconds that the pods of each
    server expose under /metrics, such as `inference_latency_seconds`. Its largest bucket must lie above every target:
    beyond it no percentile is known."""
    by: Literal["adapter", "keda"] | None = None
    """Who brings the histogram to the autoscaler. `keda` (where left out): a ScaledObject in place of the autoscaler.
    `adapter`: prometheus-adapter serves the pod metric, by the rule that this program makes for its chart."""
    prometheus: Prometheus = Prometheus()
    """The Prometheus that scrapes the histogram."""

    @model_validator(mode="after")
    def _something_to_measure(self) -> Self:
        if self.histogram is None and self.model_fields_set & {"by", "prometheus"}:
            key = "by" if self.by else "prometheus"
            raise refuse(
                f"says {key} without a histogram, so nothing is measured",
                "name the histogram that your servers expose, such as histogram: inference_latency_seconds, or"
                f" leave {key} out",
            )
        return self
