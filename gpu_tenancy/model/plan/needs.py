"""The operators that a stack needs, and their installers."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, dotted
from gpu_tenancy.model.catalogue.clouds import DriverMode
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import Need, needs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.resolve import ResolvedStack
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.operators import Install
from gpu_tenancy.model.spec.roles import Framework

Reason: TypeAlias = tuple[Path, str]  # a place of the stack that needs an operator, and the reason
_Condition: TypeAlias = Callable[[Environment, str], Reason | None]
"""The first reason why a stack needs an operator, by its field; None without one."""

AMD, INTEL, NVIDIA = (operators()[name].gpus for name in ("amd_gpu_operator", "intel_device_plugin", "gpu_operator"))
"""Domains of the GPU resources of each vendor."""
OF_JOBS: Final = tuple(name for name, operator in operators().items() if operator.needed == "jobs")
"""Operators, by field, that run kinds of jobs."""
_OF_GROUPS: Final = "lws"  # operator, by field, of servers of several nodes
_NO_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
"""Label of nodes whose image has a device plugin, so that the GPU Operator runs none."""
CLAIMS: Final = (1, 34)
"""Kubernetes from which ResourceClaims are generally available (`resource.k8s.io/v1`), which Kueue 0.19 reads:
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/"""


def infiniband_pools(environment: Environment) -> list[ResolvedPool]:
    """The pools whose InfiniBand the Network Operator advertises to pods, in the stack's order."""
    return [pool for pool in environment.pools.values() if pool.rules.fabric_operator and pool.fabric == "infiniband"]


def nvlink_pool(environment: Environment) -> str | None:
    """The first pool whose machines NVLink connects with each other."""
    return next((pool.name for pool in environment.pools.values() if pool.nvlink), None)


def provider_of(stack: Stack, need: Need) -> str | None:
    """The cloud's part, or this program's resource in a created cluster, that provides a need; None without one."""
    service = stack.cluster.cloud
    made = need.made.get(service) if stack.cluster.creation is not None else None
    return need.cloud.get(service) or (made.by if made else None)


def has(stack: Stack, name: str) -> bool:
    """Whether a cluster has a need of `gpu_tenancy/model/catalogue/needs.yaml`, as far as is known."""
    return name in set[str](stack.cluster.provides) or provider_of(stack, needs()[name]) is not None


def predates(cluster: Cluster, version: tuple[int, int]) -> bool:
    """Whether the cluster's Kubernetes is older than a version; False if its version is unknown."""
    return cluster.kubernetes is not None and tuple(map(int, cluster.kubernetes.split("."))) < version


def has_claims(cluster: Cluster) -> bool:
    """Whether the API of device claims is in the cluster, as far as its version is known."""
    return not predates(cluster, CLAIMS)


def measured_by(stack: ResolvedStack) -> str | None:
    """The operator that provides histograms of latency to autoscalers; None without a histogram."""
    without = (
        key != "latency_p99" or server.metrics.latency for server in stack.servers for key in server.scale_on.measured
    )
    if stack.metrics.histogram is None and not any(without):
        return None
    return "prometheus_adapter" if stack.metrics.by == "adapter" else "keda"


def framework_used(stack: Stack, framework: Framework) -> bool:
    """Whether a job has this framework."""
    return any(job.framework == framework for team in stack.teams.values() for job in team.training.values())


def is_enabled(values: Mapping[str, Any], *section: str) -> bool:
    """Whether a section of values is enabled, which is the default of the charts."""
    value: Any = values
    for key in (*section, "enabled"):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    return value is not False


def has_plugin(mode: DriverMode) -> bool:
    """Whether the nodes have a device plugin that is not the GPU Operator's."""
    return not is_enabled(mode.operator, "devicePlugin") or _NO_PLUGIN in mode.labels


def installed_by(environment: Environment, name: str) -> Install:
    """Installer of an operator (by its field in `Operators`): as set in the stack, or by default.

    In an existing cluster, operators count as installed by default, except operators that one installed here needs.
    """
    if name not in environment.installs:
        environment.installs[name] = environment.stack.operators.of(name).install or _by_default(environment, name)
    return environment.installs[name]


def _by_default(environment: Environment, name: str) -> Install:
    needed = operators()[name].needed
    if CONDITIONS[needed](environment, name) is None:
        return "off"
    return "here" if environment.stack.cluster.NODES_MADE or needed == "operators" else "installed"


def there(environment: Environment, name: str) -> bool:
    """Whether an operator runs in the cluster, by any installer."""
    return installed_by(environment, name) != "off"


def reason(environment: Environment, name: str) -> Reason | None:
    """Why a stack does not work without an operator, by its field; None if it does."""
    operator = operators()[name]
    return CONDITIONS[operator.required or operator.needed](environment, name)


def _of_pool(pool: str | None, why: str) -> Reason | None:
    return (("pools", pool), f"{why} of pool {pool}") if pool else None


def _gpus(environment: Environment, name: str) -> Reason | None:
    pools = environment.gpu_pools(operators()[name].gpus)
    return _of_pool(next((pool.name for pool in pools), None), "nothing else advertises the GPUs")


def _device_plugin(environment: Environment, name: str) -> Reason | None:
    """A pool that this program creates with a driver mode without a device plugin."""
    if not environment.stack.cluster.NODES_MADE or there(environment, "dra_driver"):
        return None
    for pool in environment.gpu_pools(operators()[name].gpus):
        if pool.mode and not has_plugin(pool.mode):
            return ("pools", pool.name), f"it provides the device plugin of pool {pool.name} ({pool.mode.means})"
    return None


def _infiniband(environment: Environment, _: str) -> Reason | None:
    pool = next((pool.name for pool in infiniband_pools(environment)), None)
    return _of_pool(pool, "it advertises the InfiniBand interfaces")


def _nvlink(environment: Environment, _: str) -> Reason | None:
    pool = nvlink_pool(environment) if has_claims(environment.stack.cluster) else None
    return _of_pool(pool, "it serves the NVLink domains")


def _compute_domains(environment: Environment, _: str) -> Reason | None:
    for team, spec in environment.stack.teams.items():
        for name, job in spec.training.items():
            if job.compute_domain:
                place = ("teams", team, "training", name, "computeDomain")
                return place, f"job {name} of team {team} has a ComputeDomain"
    return None


def _operators(environment: Environment, name: str) -> Reason | None:
    for other, operator in operators().items():
        if name in operator.requires and installed_by(environment, other) == "here":
            return ("operators", to_camel(other)), operator.requires[name]
    return None


def _gangs(environment: Environment, _: str) -> Reason | None:
    for team in environment.stack.teams.values():
        if team.gangs or any(job.scheduler == "volcano" or job.gang for job in team.training.values()):
            return ("teams",), "teams have gangs"
    return None


def _histogram(environment: Environment, name: str) -> Reason | None:
    return (("metrics", "histogram"), "autoscalers need it") if measured_by(environment.stack) == name else None


def _no_adapter(environment: Environment, name: str) -> Reason | None:
    if there(environment, "prometheus_adapter"):
        return _histogram(environment, name)
    return ("operators", "prometheusAdapter"), "prometheus-adapter is off"


def _latency(environment: Environment, name: str) -> Reason | None:
    """A server that scales on a metric, which this operator provides, or Prometheus to it."""
    measured = measured_by(environment.stack)
    if measured is None or name not in {measured, "prometheus"}:
        return None
    for server in environment.stack.servers:
        if keys := server.scale_on.measured:
            place = server.written_at("scaleOn", "latencyP99" if keys[0] == "latency_p99" else keys[0])
            return place, f"{dotted(place)} needs the metric"
    return None


def _jobs(environment: Environment, name: str) -> Reason | None:
    for team in environment.stack.teams.values():
        for job in team.training.values():
            if job.kind.operator == name:
                return ("teams",), f"jobs with framework: {job.framework} are {job.kind.api[1]}s"
    for server in environment.stack.servers if name == _OF_GROUPS else ():
        if server.grouped:
            return (*server.path, "nodes"), f"server {server.name} of team {server.team} is a LeaderWorkerSet"
    return None


def _secrets(environment: Environment, _: str) -> Reason | None:
    """A secret from a cloud's secret manager; a MultiKueue manager copies none."""
    for team, spec in environment.stack.teams.items():
        for name, secret in spec.secrets.items():
            if secret.from_ and not environment.stack.dispatches:
                return ("teams", team, "secrets", name), f"it copies secret {name} of team {team}"
    return None


def _caches(environment: Environment, _: str) -> Reason | None:
    name = next((name for name, dataset in environment.stack.datasets.items() if dataset.accelerate), None)
    return (("datasets", name, "accelerate"), f"it makes the cache of dataset {name}") if name else None


CONDITIONS: Final[Mapping[str, _Condition]] = {
    "always": lambda _, name: (("operators", to_camel(name)), "every stack needs it"),
    "metrics": lambda tree, name: CONDITIONS["always" if tree.stack.cluster.NODES_MADE else "latency"](tree, name),
    "teams": lambda environment, _: (("teams",), "teams need queues") if environment.stack.teams else None,
    "gpus": _gpus,
    "advertisedGpus": lambda environment, name: (
        _gpus(environment, name) if environment.stack.cluster.NODES_MADE else None
    ),
    "devicePlugin": _device_plugin,
    "infiniband": _infiniband,
    "nvlink": _nvlink,
    "computeDomains": _compute_domains,
    "operators": _operators,
    "gangs": _gangs,
    "noAdapter": _no_adapter,
    "histogram": _histogram,
    "latency": _latency,
    "jobs": _jobs,
    "secrets": _secrets,
    "caches": _caches,
}  # conditions by their names in the descriptions of operators
