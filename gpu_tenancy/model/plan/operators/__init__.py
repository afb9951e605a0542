"""The operators that this program installs: charts, versions, values and order."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gpu_tenancy.model.catalogue.releases import Chart, charts, pinned
from gpu_tenancy.model.plan.gpu_operator import Values, merged
from gpu_tenancy.model.plan.operators.certificates import cert_manager_values
from gpu_tenancy.model.plan.operators.gpus import (
    amd_values,
    dra_values,
    intel_operator_values,
    intel_values,
    nvidia_values,
)
from gpu_tenancy.model.plan.operators.jobs import kuberay_values, lws_values, trainer_values, volcano_values
from gpu_tenancy.model.plan.operators.kueue import kueue_reads, kueue_values
from gpu_tenancy.model.plan.operators.metrics import adapter_values, keda_values, prometheus_values
from gpu_tenancy.model.plan.operators.needs import installed_by, there
from gpu_tenancy.model.plan.operators.network import network_values
from gpu_tenancy.model.plan.operators.probes import PROBES, Probe
from gpu_tenancy.model.plan.operators.secrets import external_secrets_values
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.operators import Operator

_Make: TypeAlias = Callable[[Stack], Values]


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """One Helm release of an operator.

    Attributes:
        name: of the release, and of its row in the catalogue.
        chart: its name in the repository, or the whole `oci://` reference, with the digest if it is known.
        repository: None for an OCI reference.
        version: one release of the chart.
        digest: of the chart; None if it is unknown.
        values: derived from the stack, overridden by the stack's own values.
        serves: API groups of this operator: their objects depend on its webhooks, and are deleted before it.
        privileged: whether its pods need privileged access to the node.
        definitions_go: whether uninstalling it deletes its CRDs, and so all of their objects.
        probe: dry run that succeeds when its webhooks are ready; None without relevant webhooks.
        reads: permissions (get, list, watch) that its chart does not grant: API group and resource.
    """

    name: str
    chart: str
    repository: str | None
    version: str
    namespace: str
    values: Mapping[str, Any]
    serves: tuple[str, ...]
    privileged: bool = False
    definitions_go: bool = False
    probe: Probe | None = None
    reads: tuple[tuple[str, str], ...] = ()
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A chart of an operator: its row in the catalogue, its values and its API groups."""

    row: str
    values: _Make
    serves: tuple[str, ...] = ()


_PARTS: Final[Mapping[str, tuple[_Part, ...]]] = {
    # First, because the others create ServiceMonitors, whose CRD is in this chart.
    "prometheus": (_Part("kube-prometheus-stack", prometheus_values, ("monitoring.coreos.com",)),),
    # Before AMD's and Intel's operators, whose charts create Certificates.
    "cert_manager": (_Part("cert-manager", cert_manager_values, ("cert-manager.io", "acme.cert-manager.io")),),
    "gpu_operator": (_Part("gpu-operator", nvidia_values, ("nvidia.com",)),),
    # After the GPU Operator, whose node feature discovery it uses.
    "network_operator": (_Part("network-operator", network_values, ("mellanox.com",)),),
    "dra_driver": (_Part("dra-driver-nvidia-gpu", dra_values, ("resource.nvidia.com",)),),
    "amd_gpu_operator": (_Part("gpu-operator-charts", amd_values, ("amd.com",)),),
    "intel_device_plugin": (
        _Part("intel-device-plugins-operator", intel_operator_values, ("deviceplugin.intel.com",)),
        _Part("intel-device-plugins-gpu", intel_values),
    ),
    "kueue": (_Part("kueue", kueue_values, ("kueue.x-k8s.io",)),),
    "volcano": (_Part("volcano", volcano_values, ("scheduling.volcano.sh", "batch.volcano.sh")),),
    "keda": (_Part("keda", keda_values, ("keda.sh",)),),
    "prometheus_adapter": (_Part("prometheus-adapter", adapter_values),),
    "trainer": (_Part("kubeflow-trainer", trainer_values, ("trainer.kubeflow.org", "jobset.x-k8s.io")),),
    "kuberay": (_Part("kuberay-operator", kuberay_values, ("ray.io",)),),
    "lws": (_Part("lws", lws_values, ("leaderworkerset.x-k8s.io",)),),
    "external_secrets": (
        _Part("external-secrets", external_secrets_values, ("external-secrets.io", "generators.external-secrets.io")),
    ),
    "fluid": (_Part("fluid", lambda _: {}, ("data.fluid.io",)),),
}
"""Each operator's charts by its field in `Operators`, in the order of installation. The stack's own values apply to
the last chart of an operator."""

OPERATORS: Final = tuple(_PARTS)
"""Every operator, by its field in `Operators`."""


def chart_of(name: str) -> str:
    """The chart that the stack's values of an operator apply to, by its row in the catalogue."""
    return _PARTS[name][-1].row


def operator_of(stack: Stack, name: str) -> Operator:
    """The stack's section of an operator, by its field."""
    return getattr(stack.operators, name)


def releases(stack: Stack) -> tuple[ReleasePlan, ...]:
    """The releases that this program installs, in order.

    Args:
        stack: a stack that passed `gpu_tenancy.model.checks`.
    """
    return tuple(
        release for name in OPERATORS if installed_by(stack, name) == "here" for release in _releases(stack, name)
    )


def running(stack: Stack) -> Mapping[str, tuple[ReleasePlan, ...]]:
    """The releases of each operator that runs in the cluster, whoever installs it, as this program would install them.

    Args:
        stack: a stack that passed `gpu_tenancy.model.checks`.
    """
    return {name: tuple(_releases(stack, name)) for name in OPERATORS if there(stack, name)}


def _releases(stack: Stack, name: str) -> Iterator[ReleasePlan]:
    operator = operator_of(stack, name)
    for part in _PARTS[name]:
        row, own = charts()[part.row], part.row == chart_of(name)
        if row.namespace is None:
            msg = f"{part.row} has no namespace in gpu_tenancy/model/catalogue/releases.yaml; add one"
            raise ValueError(msg)
        digest = _digest(row, operator, own=own)
        yield ReleasePlan(
            name=part.row,
            chart=pinned(row.chart, digest),
            repository=row.repository,
            version=operator.version or row.version,
            # One Prometheus: the one that scrapes the servers.
            namespace=stack.metrics.prometheus.namespace if name == "prometheus" else row.namespace,
            values=merged(part.values(stack), operator.values if own else {}),
            serves=part.serves,
            privileged=row.privileged,
            definitions_go=row.definitions == "nobody",
            probe=PROBES.get(part.row),
            reads=kueue_reads(stack) if name == "kueue" else (),
            digest=digest,
        )


def _digest(row: Chart, operator: Operator, *, own: bool) -> str | None:
    """The digest of a chart: the stack's, or the catalogue's for the version of the catalogue."""
    if own and operator.digest:
        return operator.digest
    return row.digest if operator.version in {None, row.version} else None
