"""The operators that a stack needs, and who installs them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.plan.fabric import wired
from gpu_tenancy.model.plan.gpus import gpu_resource, machine_of, nvlink_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.operators import Install, Operators
from gpu_tenancy.model.spec.roles import KINDS, Framework

AMD: Final = "amd.com/"
INTEL: Final = "gpu.intel.com/"
NVIDIA: Final = "nvidia.com/"
"""Domains of the GPU resources of each vendor."""
OF_JOBS: Final = ("trainer", "kuberay", "lws")
"""Operators, by field, that run kinds of jobs."""
OF_GROUPS: Final = "lws"
"""Operator, by field, that runs servers of several nodes."""
CERTIFIED: Final = ("amd_gpu_operator", "intel_device_plugin")
"""Operators, by field, whose charts create a Certificate and an Issuer of cert-manager for their webhooks:
https://github.com/ROCm/gpu-operator/tree/v1.5.1/helm-charts-k8s/charts/kmm/templates (a subchart of AMD's),
https://github.com/intel/helm-charts/blob/main/charts/device-plugin-operator/templates/operator.yaml."""


CLAIMS: Final = (1, 34)
"""Kubernetes from which ResourceClaims are generally available (`resource.k8s.io/v1`), which Kueue 0.19 reads:
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/"""


def gpu_pools(stack: Stack, vendor: str = "") -> Iterator[str]:
    """Names of the pools with GPUs, of one vendor or of all, in the stack's order."""
    for name, pool in stack.pools.items():
        machine = machine_of(stack, pool)
        if (machine.gpus if machine else pool.gpus_per_node) and gpu_resource(stack, pool).startswith(vendor):
            yield name


def infiniband_pools(stack: Stack) -> Iterator[str]:
    """Names of the pools whose InfiniBand the Network Operator advertises to pods, in the stack's order."""
    by_operator = rules_of(service_of(stack.cluster)).fabric_operator
    return (name for name, _, fabric in wired(stack) if by_operator and fabric == "infiniband")


def nvlink_pools(stack: Stack) -> Iterator[str]:
    """Names of the pools whose machines NVLink connects with each other, in the stack's order."""
    return (name for name, pool in stack.pools.items() if nvlink_of(stack, pool))


def predates(stack: Stack, version: tuple[int, int]) -> bool:
    """Whether the cluster's Kubernetes is older than a version; False where its version is unknown."""
    creation = stack.cluster.creation
    return creation is not None and tuple(int(part) for part in creation.version.split(".")) < version


def has_claims(stack: Stack) -> bool:
    """Whether the API of device claims is in the cluster, as far as its version is known."""
    return not predates(stack, CLAIMS)


def has_gangs(stack: Stack) -> bool:
    """Whether Volcano schedules anything: gangs, or Jobs with `gang`."""
    return any(
        team.gangs or any(job.scheduler == "volcano" or job.gang for job in team.training.values())
        for team in stack.teams.values()
    )


def measured_by(stack: Stack) -> str | None:
    """The operator that provides the latency histogram to autoscalers; None without a histogram."""
    if stack.metrics.histogram is None:
        return None
    return "prometheus_adapter" if stack.metrics.by == "adapter" else "keda"


def framework_used(stack: Stack, *frameworks: Framework) -> bool:
    """Whether a job has one of these frameworks."""
    return any(job.framework in frameworks for team in stack.teams.values() for job in team.training.values())


def needs_for_jobs(stack: Stack, operator: str) -> bool:
    """Whether an operator runs a job or server of the stack. Kubeflow Trainer's chart installs JobSet, too."""
    frameworks: tuple[Framework, ...] = tuple(name for name, kind in KINDS.items() if kind.operator == operator)
    return framework_used(stack, *frameworks) or (operator == OF_GROUPS and next(groups(stack), None) is not None)


def groups(stack: Stack) -> Iterator[tuple[str, str]]:
    """Team and name of the servers of several nodes, which LeaderWorkerSet runs."""
    for team, spec in stack.teams.items():
        yield from ((team, name) for name, server in spec.serving.items() if server.grouped)


def copies_secrets(stack: Stack) -> bool:
    """Whether a team has a secret from a cloud's secret manager; a MultiKueue manager copies none."""
    secrets = (secret for team in stack.teams.values() for secret in team.secrets.values())
    return not stack.dispatches and any(secret.from_ for secret in secrets)


def needed(stack: Stack, name: str) -> bool:
    """Whether a stack needs an operator, if it does not set who installs it."""
    vendors = {"gpu_operator": NVIDIA, "amd_gpu_operator": AMD, "intel_device_plugin": INTEL}
    if name in vendors:
        return next(gpu_pools(stack, vendors[name]), None) is not None
    if name == "keda":
        return measured_by(stack) == "keda" or not there(stack, "prometheus_adapter")
    needs: dict[str, Callable[[], bool]] = {
        "network_operator": lambda: next(infiniband_pools(stack), None) is not None,
        "dra_driver": lambda: has_claims(stack) and next(nvlink_pools(stack), None) is not None,
        "cert_manager": lambda: next(certified(stack), None) is not None,
        "prometheus_adapter": lambda: measured_by(stack) == "prometheus_adapter",
        "kueue": lambda: True,
        "prometheus": lambda: True,
        "volcano": lambda: has_gangs(stack),
        **{operator: partial(needs_for_jobs, stack, operator) for operator in OF_JOBS},
        "external_secrets": lambda: copies_secrets(stack),
        "fluid": lambda: any(dataset.accelerate for dataset in stack.datasets.values()),
    }
    return name in needs and needs[name]()


def certified(stack: Stack) -> Iterator[str]:
    """The operators installed here that need certificates of cert-manager, by field."""
    return (name for name in CERTIFIED if installed_by(stack, name) == "here")


def installed_by(stack: Stack, name: str) -> Install:
    """Who installs an operator (by its field in `Operators`): as set in the stack, or by default.

    In an existing cluster, operators count as installed by default. cert-manager is installed here by default if an
    operator that needs it is installed here.
    """
    operators: Operators = stack.operators
    install: Install | None = getattr(operators, name).install
    if install is not None:
        return install
    if not needed(stack, name):
        return "off"
    return "here" if stack.cluster.NODES_MADE or name == "cert_manager" else "installed"


def there(stack: Stack, name: str) -> bool:
    """Whether an operator runs in the cluster, whoever installs it."""
    return installed_by(stack, name) != "off"
