"""What runs in the cluster that the tenancy relies on: installed here, by somebody else, or not at all."""

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from gpu_tenancy.model.spec.base import Section, Shorthand, refuse
from gpu_tenancy.model.spec.pools import Driver


def _off(value: Any) -> Any:
    """YAML 1.1 reads a bare `off` as false, YAML 1.2 as the word."""
    return "off" if value is False else value


Install: TypeAlias = Annotated[Literal["here", "installed", "off"], BeforeValidator(_off)]
"""`here`: this program installs it. `installed`: somebody else did. `off`: it is not there."""

_RELEASE: Final = re.compile(r"v?\d+\.\d+\.\d+(-(alpha|beta|rc)[.-]?\d*)?")


def _pinned(text: str) -> str:
    if not _RELEASE.fullmatch(text):
        raise refuse(
            "is no fixed version of a chart, so two clusters of one stack may run two programs",
            "write one release whole, such as 1.2.3: no range, no 'latest', no branch",
        )
    return text


ChartVersion: TypeAlias = Annotated[
    str, AfterValidator(_pinned), WithJsonSchema({"type": "string", "pattern": f"^{_RELEASE.pattern}$"})
]
"""One release of a chart: a range or a branch would be two programs under one name."""


class Operator(Section):
    """One operator. A word alone says who installs it."""

    install: Install | None = None
    """`here`: by this program; `installed`: by somebody else; `off`: not at all. Left out, what the stack needs is
    installed here where its nodes are made here, and counts as installed in a cluster that exists."""
    version: ChartVersion | None = None
    """Version of its chart; left out, the one of the catalogue (`gpu_tenancy/model/catalogue/releases.yaml`)."""
    values: dict[str, Any] = {}
    """Further values of its chart, merged over those that follow from the stack; each must be one of the chart's."""


OperatorEntry: TypeAlias = Annotated[Operator, Shorthand(str, ("install",)), BeforeValidator(_off)]
"""An operator: a word, or spelled out."""


class Operators(Section):
    """What the tenancy relies on, by name: a word (`here`, `installed`, `off`), or `{install, version, values}`."""

    driver: Driver | None = None
    """The pools' driver mode for which the GPU Operator is set up; left out, the cloud's usual one. A second word for
    it, since a change takes the driver off nodes that run."""
    prometheus: OperatorEntry = Operator()
    """kube-prometheus-stack: Prometheus with Grafana, for all metrics and dashboards."""
    cert_manager: OperatorEntry = Operator()
    """cert-manager: certificates of other operators' webhooks. Left out, it is installed here where amdGpuOperator or
    intelDevicePlugin is; in a cluster that has one, write `installed`."""
    gpu_operator: OperatorEntry = Operator()
    """NVIDIA's GPU Operator: what the pools' drivers leave to it; needed where a pool has NVIDIA's GPUs."""
    dra_driver: OperatorEntry = Operator()
    """NVIDIA's driver for dynamic resource allocation, in place of the operator's device plugin; off if left out."""
    amd_gpu_operator: OperatorEntry = Operator()
    """AMD's GPU Operator; needed where a pool has AMD's GPUs. It wants cert-manager."""
    intel_device_plugin: OperatorEntry = Operator()
    """Intel's device plugin for GPUs; needed where a pool has Intel's. It wants cert-manager."""
    kueue: OperatorEntry = Operator()
    """Kueue: the teams' queues."""
    volcano: OperatorEntry = Operator()
    """Volcano; needed where a team has gangs."""
    keda: OperatorEntry = Operator()
    """KEDA, for servers that scale on latency; off where prometheusAdapter takes its place. Back from it to the
    adapter, or to cpu alone, a server goes by way of fixed `replicas` in an update of their own: both autoscalers have
    the server's name, and the new one would be made before KEDA's goes."""
    prometheus_adapter: OperatorEntry = Operator()
    """prometheus-adapter, in place of KEDA; off if left out."""
    trainer: OperatorEntry = Operator()
    """Kubeflow Trainer with JobSet; needed where a job's framework is pytorch."""
    fluid: OperatorEntry = Operator()
    """Fluid, which caches datasets; off if left out. Masters and workers of a cache in a team's namespace, and the jobs
    that load it once, wait in no queue: the namespace's quota alone bounds them. FUSE pods would wait there, and want
    more than pod security gives a team: keep the Dataset in a namespace of no team, and refer to it from the team's as
    `dataset://<namespace>/<name>`."""
