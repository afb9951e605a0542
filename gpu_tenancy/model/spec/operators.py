"""Operators that the tenancy depends on: installed here, installed already, or off."""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from gpu_tenancy.model.spec.base import Section, Shorthand, refuse
from gpu_tenancy.model.spec.pools import Driver


def _off(value: Any) -> Any:
    """YAML 1.1 reads an unquoted `off` as false, YAML 1.2 as a string."""
    return "off" if value is False else value


Install: TypeAlias = Annotated[Literal["here", "installed", "off"], BeforeValidator(_off)]
"""`here`: this program installs it. `installed`: it is installed already. `off`: not installed."""

_RELEASE: Final = re.compile(r"v?\d+\.\d+\.\d+(-(alpha|beta|rc)[.-]?\d*)?")


def _pinned(text: str) -> str:
    if not _RELEASE.fullmatch(text):
        raise refuse(
            "is not a fixed chart version, so clusters may run different versions",
            "set one release, such as 1.2.3 (not a range, 'latest' or a branch)",
        )
    return text


ChartVersion: TypeAlias = Annotated[
    str, AfterValidator(_pinned), WithJsonSchema({"type": "string", "pattern": f"^{_RELEASE.pattern}$"})
]
"""One release of a chart; ranges and branches are not reproducible."""


_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise refuse("is not a digest of a chart", "set sha256: and 64 hexadecimal digits; `tenancy charts` prints it")
    return text


ChartDigest: TypeAlias = Annotated[
    str, AfterValidator(_digest), WithJsonSchema({"type": "string", "pattern": f"^{_DIGEST.pattern}$"})
]
"""Digest of a chart: of its archive in an HTTP repository, of its manifest in an OCI registry."""


class Operator(Section):
    """One operator. A string sets `install`."""

    install: Install | None = None
    """`here`: installed by this program; `installed`: installed already; `off`: not installed. Default for an operator
    that the stack needs: `here` if this program creates the nodes, `installed` in an existing cluster; else `off`."""
    version: ChartVersion | None = None
    """Version of its chart; default: the catalogue's (`gpu_tenancy/model/catalogue/releases.yaml`)."""
    digest: ChartDigest | None = None
    """Digest of its chart: of the archive in an HTTP repository, of the manifest in an OCI registry. Default: the
    catalogue's, for the version of the catalogue; another version has none."""
    values: dict[str, Any] = {}
    """Helm values, merged over those derived from the stack; each key must exist in the chart."""


OperatorEntry: TypeAlias = Annotated[Operator, Shorthand(str, ("install",)), BeforeValidator(_off)]
"""An operator: a string, or a mapping."""


class Operators(Section):
    """Operators by name: `here`, `installed`, `off`, or `{install, version, values}`."""

    driver: Driver | None = None
    """The pools' driver mode that the GPU Operator is configured for; default: the cloud's default mode. It must be set
    here in addition to the pools, because a change removes the driver from running nodes."""
    prometheus: OperatorEntry = Operator()
    """kube-prometheus-stack: Prometheus and Grafana, for metrics and dashboards."""
    cert_manager: OperatorEntry = Operator()
    """cert-manager: certificates for other operators' webhooks. Default: `here` if amdGpuOperator or intelDevicePlugin
    is installed here; set `installed` in a cluster that has it already."""
    gpu_operator: OperatorEntry = Operator()
    """NVIDIA GPU Operator: the parts that the pools' driver mode does not provide; needed for NVIDIA GPUs."""
    network_operator: OperatorEntry = Operator()
    """NVIDIA Network Operator, which advertises InfiniBand interfaces to pods; needed for pools with `fabric` on AKS.
    If it is `installed`, its NicClusterPolicy must advertise them as `rdma/ib`."""
    dra_driver: OperatorEntry = Operator()
    """NVIDIA DRA driver (dynamic resource allocation), needed for ComputeDomains on machines with NVLink between them
    (GB200, GB300). Set to `here` without a device plugin, it also allocates GPUs, from Kubernetes 1.36 on; pods request
    `nvidia.com/gpu` as before."""
    amd_gpu_operator: OperatorEntry = Operator()
    """AMD GPU Operator; needed for AMD GPUs. Requires cert-manager."""
    intel_device_plugin: OperatorEntry = Operator()
    """Intel GPU device plugin; needed for Intel GPUs. Requires cert-manager."""
    kueue: OperatorEntry = Operator()
    """Kueue, for the teams' queues."""
    volcano: OperatorEntry = Operator()
    """Volcano; needed if a team has gangs."""
    keda: OperatorEntry = Operator()
    """KEDA, for servers that scale on latency; `off` if prometheusAdapter is used. To move a server from KEDA to the
    adapter or to CPU only, first deploy it with fixed `replicas`: both autoscalers have the server's name, and the new
    one would be created before KEDA's is deleted."""
    prometheus_adapter: OperatorEntry = Operator()
    """prometheus-adapter, in place of KEDA; default: `off`."""
    trainer: OperatorEntry = Operator()
    """Kubeflow Trainer with JobSet; needed for jobs with `framework` pytorch, jax, mpi, deepspeed or jobset."""
    kuberay: OperatorEntry = Operator()
    """KubeRay; needed for jobs with `framework: ray`. In each team's namespace, it may reach the dashboards of Ray's
    heads, to which it submits jobs."""
    lws: OperatorEntry = Operator()
    """LeaderWorkerSet; needed for jobs with `framework: leader-worker`, and for servers with several `nodes`."""
    external_secrets: OperatorEntry = Operator()
    """External Secrets; needed if a team has secrets from a cloud's secret manager (`from`)."""
    fluid: OperatorEntry = Operator()
    """Fluid, which caches datasets; needed for datasets with `accelerate`. Masters and workers of a cache of your own
    in a team's namespace, and its one-time load jobs, bypass the team's queue: only the namespace's ResourceQuota
    limits them. FUSE pods are queued and violate the team's pod security level: keep such a Dataset in a namespace of
    no team, and refer to it from the team's as `dataset://<namespace>/<name>`."""
