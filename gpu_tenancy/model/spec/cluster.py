"""The cluster, and the metrics that its servers scale on."""

import re
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from gpu_tenancy.model.fields import PORT, Bytes, Hours, Name, Section, refuse
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.azure import AzureCluster
from gpu_tenancy.model.spec.clouds.base import ClusterSection, KubernetesVersion
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.operators import Alerts, ServiceLevels


class ExistingCluster(ClusterSection):
    """An existing cluster with existing nodes, accessed with a kubeconfig."""

    NODES_MADE: ClassVar[bool] = False

    cloud: Literal["existing"]
    """`existing`: only objects in the cluster are created here. Operators that the stack needs count as installed: a
    preview lists them and does not check them. `operators` changes who installs each."""
    kubeconfig: str | None = None
    """Path of the kubeconfig; default: as for kubectl (`KUBECONFIG`, then `~/.kube/config`)."""
    context: str | None = None
    """Context in the kubeconfig; default: its current context."""
    uid: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] | None = None
    """UID of the namespace `kube-system`; `pulumi up` refuses another cluster before any change. `kubectl get namespace
    kube-system -o jsonpath={.metadata.uid}` prints it. Default: not checked."""
    version: KubernetesVersion | None = None
    """Minor version of Kubernetes, such as `1.36`. From 1.36 on, defaults complete what members of teams submit: queue,
    tolerations, priority, requests and limits. Default: unknown, without these defaults."""
    provider: str | None = None
    """Cloud, such as `aws`, whose conventions for drivers, taints and MIG apply to nodes."""
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


Cluster: TypeAlias = Annotated[
    ExistingCluster | AwsCluster | GcpCluster | AzureCluster,
    Field(discriminator="cloud", description="The cluster: created here, or an existing one."),
]


def service_of(cluster: Cluster) -> str:
    """The cloud whose rules apply to the pools: a row of `gpu_tenancy/model/catalogue/clouds.yaml`."""
    return cluster.provider or cluster.cloud if isinstance(cluster, ExistingCluster) else cluster.cloud


_NO_UNIT: Final = "does not end in _seconds, so its unit is unknown and a latency target cannot be compared with it"


def _seconds_metric(name: str) -> str:
    if not name.endswith("_seconds"):
        raise refuse(_NO_UNIT, "serve the metric in seconds, with a name such as inference_latency_p99_seconds")
    return name


def _seconds_histogram(name: str) -> str:
    if not name.endswith("_seconds"):
        raise refuse(_NO_UNIT, "measure seconds, with a name such as inference_latency_seconds")
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", name):
        raise refuse("is not a valid metric name", "use letters, digits, '_' and ':'; do not start with a digit")
    return name


class Prometheus(Section):
    """The Prometheus that scrapes the servers, as the chart kube-prometheus-stack installs it: where it is."""

    release: Name = "kube-prometheus-stack"
    """Name of the chart's release; its Prometheus selects ServiceMonitors by the label `release` with this value."""
    namespace: Name = "monitoring"
    """Namespace of the release; the teams' network policies allow it to scrape the servers."""
    address: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*[^\s/])?$"), PORT] | None = None
    """URL of its HTTP API; default: its Service in the cluster, such as
    http://kube-prometheus-stack-prometheus.monitoring.svc:9090."""


class MetricsStorage(Section):
    """The volume of the Prometheus that this program installs. Alertmanager has one of 10Gi, of the same class."""

    size: Annotated[Bytes, Field(ge=10 * 2**30)] = 100 * 2**30
    """Size of the volume, at least 10Gi. Prometheus deletes its oldest samples at four fifths of it."""
    retention: Annotated[Hours, Field(ge=86400)] = 15 * 86400
    """Age at which samples are deleted, at least a day."""
    storage_class: Name | None = None
    """StorageClass of the volumes; default: the cluster's default class."""


class OpenCost(Section):
    """An OpenCost that somebody else installs, which gets the prices of this stack's nodes."""

    namespace: Name = "opencost"
    """Its namespace, which must exist. It gets a ConfigMap with the prices, `gpu-tenancy-prices`."""


class Metrics(Section):
    """The latency metric that servers can scale on besides CPU: the 99th percentile of a pod's request latency.

    An autoscaler on a metric that nothing serves never scales, so a server can scale only on a metric that is named
    here: one that an adapter serves already (`latencyP99` alone), or a histogram of the servers, for which the
    ServiceMonitor, the query and the autoscaler's metric are created.
    """

    latency_p99: Annotated[str, AfterValidator(_seconds_metric)] | None = Field(default=None, alias="latencyP99")
    """Name of the pod metric with the 99th percentile of a pod's request latency, in seconds; default with a
    histogram: the histogram's name with `_p99` before the unit."""
    histogram: Annotated[str, AfterValidator(_seconds_histogram)] | None = None
    """Name of the Prometheus histogram (classic, with buckets) of request latency in seconds under /metrics of each
    server's pods, such as `inference_latency_seconds`. Its largest finite bucket must be above every latency target,
    because percentiles above it are unknown."""
    by: Literal["adapter", "keda"] | None = None
    """What provides the histogram to the autoscaler. `keda` (default): a ScaledObject in place of a
    HorizontalPodAutoscaler. `adapter`: prometheus-adapter, with a rule in its chart's values."""
    prometheus: Prometheus = Prometheus()
    """The Prometheus that scrapes the histogram."""
    storage: MetricsStorage | None = None
    """The volume of the Prometheus that this program installs; default: 100Gi for 15 days, if the cluster has a default
    StorageClass, as far as the program or `cluster.provides` tells."""
    service_levels: ServiceLevels = ServiceLevels()
    """How soon workloads must be admitted; alerts say when too many are late."""
    alerts: Alerts = Alerts()
    """Receivers of alerts."""
    team_dashboards: bool = Field(default=False, alias="teamDashboards")
    """Whether each team also has a folder of its own in Grafana, whose dashboards have its namespace and queue only."""
    opencost: OpenCost | None = None
    """An OpenCost with the prices of this stack; default: none."""
