"""Checks of operators: missing and conflicting ones, and values that a chart would ignore."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.model.catalogue.chart_values import chart_values
from gpu_tenancy.model.catalogue.clouds import driver_mode
from gpu_tenancy.model.plan.operators import OPERATORS, chart_of, operator_of
from gpu_tenancy.model.plan.operators.gpus import INTEL_LABEL, allocates_gpus, has_plugin, runs_plugin
from gpu_tenancy.model.plan.operators.needs import (
    AMD,
    INTEL,
    NVIDIA,
    OF_GROUPS,
    OF_JOBS,
    certified,
    copies_secrets,
    gpu_pools,
    groups,
    has_gangs,
    infiniband_pools,
    installed_by,
    measured_by,
)
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of


def operator_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of a stack's operators."""
    stack = tree.stack
    for name in OPERATORS:
        yield from _not_installed_here(stack, name)
        yield from _values(stack, name)
        if operator_of(stack, name).install == "off" and (lacking := _LACKING.get(name)):
            yield from _lacking(name, lacking(stack))
    yield from _one_metrics_server(stack)
    yield from _served(stack)
    yield from _one_advertiser(stack)
    yield from _intel_labels(stack)


def _place(name: str) -> Path:
    return ("operators", to_camel(name))


def _served(stack: Stack) -> Iterator[Problem]:
    """A pod metric without a histogram, where this program installs the operators and so nothing serves it."""
    named = stack.metrics.latency_p99 is not None and stack.metrics.histogram is None
    if not named or not stack.cluster.NODES_MADE or installed_by(stack, "prometheus_adapter") == "installed":
        return
    rule = "is a metric that nothing serves, so the autoscaler would never scale"
    fix = "set metrics.histogram instead, or set operators.prometheusAdapter: installed if an adapter serves it"
    yield Problem(("metrics", "latencyP99"), rule, fix, stack.metrics.latency_p99, (("operators",),))


def _not_installed_here(stack: Stack, name: str) -> Iterator[Problem]:
    """A version, digest or values of an operator that this program does not install."""
    operator, by = operator_of(stack, name), installed_by(stack, name)
    if by == "here":
        return
    rule = f"has no effect: {to_camel(name)} is {by}" + ("" if operator.install else " by default")
    for key, value in (
        ("version", operator.version),
        ("digest", operator.digest),
        ("values", operator.values or None),
    ):
        if value is not None:
            shown = value if isinstance(value, str) else None
            yield Problem((*_place(name), key), rule, "set install: here, or remove it", shown)


def _values(stack: Stack, name: str) -> Iterator[Problem]:
    chart = chart_of(name)
    for keys, hint in chart_values()[chart].unknown(operator_of(stack, name).values):
        rule = f"unknown value of chart {chart}, which Helm would ignore silently"
        yield Problem((*_place(name), "values", *keys), rule, hint)


def _lacking(name: str, why: tuple[Path, str] | None) -> Iterator[Problem]:
    if why is None:
        return
    about, reason = why
    fix = f"set here (or installed, if it is installed already), or remove {to_camel(name)}"
    yield Problem(_place(name), f"is not possible because the stack needs the operator: {reason}", fix, "off", (about,))


def _kueue(stack: Stack) -> tuple[Path, str] | None:
    return (("teams",), "teams need queues") if stack.teams else None


def _volcano(stack: Stack) -> tuple[Path, str] | None:
    return (("teams",), "teams have gangs") if has_gangs(stack) else None


def _network_operator(stack: Stack) -> tuple[Path, str] | None:
    pool = next(infiniband_pools(stack), None)
    return (("pools", pool), f"it advertises the InfiniBand interfaces of pool {pool}") if pool else None


def _of_jobs(operator: str) -> Callable[[Stack], tuple[Path, str] | None]:
    def lacking(stack: Stack) -> tuple[Path, str] | None:
        jobs = (job for team in stack.teams.values() for job in team.training.values())
        if job := next((job for job in jobs if job.kind.operator == operator), None):
            return ("teams",), f"jobs with framework: {job.framework} are {job.kind.api[1]}s"
        group = next(groups(stack), None) if operator == OF_GROUPS else None
        if group is None:
            return None
        team, name = group
        return ("teams", team, "serving", name, "nodes"), f"server {name} of team {team} is a LeaderWorkerSet"

    return lacking


def _external_secrets(stack: Stack) -> tuple[Path, str] | None:
    if not copies_secrets(stack):
        return None
    named = ((team, name) for team, spec in stack.teams.items() for name, one in spec.secrets.items() if one.from_)
    team, name = next(named)
    return ("teams", team, "secrets", name), f"it copies secret {name} of team {team}"


def _dra_driver(stack: Stack) -> tuple[Path, str] | None:
    for team, spec in stack.teams.items():
        name = next((name for name, job in spec.training.items() if job.compute_domain), None)
        if name:
            place = ("teams", team, "training", name, "computeDomain")
            return place, f"job {name} of team {team} has a ComputeDomain"
    return None


def _fluid(stack: Stack) -> tuple[Path, str] | None:
    name = next((name for name, dataset in stack.datasets.items() if dataset.accelerate), None)
    return (("datasets", name, "accelerate"), f"it makes the cache of dataset {name}") if name else None


def _gpu_operator(stack: Stack) -> tuple[Path, str] | None:
    """A pool that this program creates with a driver mode without a device plugin."""
    if not stack.cluster.NODES_MADE or installed_by(stack, "dra_driver") != "off":
        return None
    for name in gpu_pools(stack, NVIDIA):
        mode = driver_mode(service_of(stack.cluster), stack.pools[name].driver)
        if mode and not has_plugin(mode):
            return ("pools", name), f"it provides the device plugin of pool {name} ({mode.means})"
    return None


def _vendor(vendor: str) -> Callable[[Stack], tuple[Path, str] | None]:
    def lacking(stack: Stack) -> tuple[Path, str] | None:
        pool = next(gpu_pools(stack, vendor), None) if stack.cluster.NODES_MADE else None
        return (("pools", pool), f"nothing else advertises the GPUs of pool {pool}") if pool else None

    return lacking


def _cert_manager(stack: Stack) -> tuple[Path, str] | None:
    name = next(certified(stack), None)
    return (_place(name), f"it issues the webhook certificates of {to_camel(name)}") if name else None


def _measuring(*operators: str) -> Callable[[Stack], tuple[Path, str] | None]:
    """Operators that provide the latency histogram to autoscalers, if a server scales on it."""

    def lacking(stack: Stack) -> tuple[Path, str] | None:
        if measured_by(stack) not in operators:
            return None
        for team, spec in stack.teams.items():
            for name, server in spec.serving.items():
                if server.scale_on and server.scale_on.latency_p99 is not None:
                    place = ("teams", team, "serving", name, "scaleOn", "latencyP99")
                    return place, f"{dotted(place)} needs the metric"
        return None

    return lacking


_LACKING: Final[Mapping[str, Callable[[Stack], tuple[Path, str] | None]]] = {
    "kueue": _kueue,
    "network_operator": _network_operator,
    "volcano": _volcano,
    **{operator: _of_jobs(operator) for operator in OF_JOBS},
    "fluid": _fluid,
    "cert_manager": _cert_manager,
    "external_secrets": _external_secrets,
    "dra_driver": _dra_driver,
    "gpu_operator": _gpu_operator,
    "amd_gpu_operator": _vendor(AMD),
    "intel_device_plugin": _vendor(INTEL),
    "prometheus": _measuring("keda", "prometheus_adapter"),
    "keda": _measuring("keda"),
    "prometheus_adapter": _measuring("prometheus_adapter"),
}
"""Why the stack needs an operator, with the place that needs it; None where it does not."""


def _one_metrics_server(stack: Stack) -> Iterator[Problem]:
    if installed_by(stack, "keda") == installed_by(stack, "prometheus_adapter") == "here":
        rule = "conflicts with keda: both would serve the same metric"
        fix = "install only the one that metrics.by names"
        yield Problem(_place("prometheus_adapter"), rule, fix, "here", (_place("keda"),))


def _one_advertiser(stack: Stack) -> Iterator[Problem]:
    """Only one of device plugin and DRA driver may advertise a node's GPUs."""
    if runs_plugin(stack) and allocates_gpus(stack):
        rule = "conflicts with the device plugin of gpuOperator: both would allocate the same GPUs"
        fix = (
            "set operators.gpuOperator.values.devicePlugin.enabled: false, or, if you need only compute domains, set"
            " operators.draDriver.values.resources.gpus.enabled: false"
        )
        yield Problem(_place("dra_driver"), rule, fix, "here", (_place("gpu_operator"),))


def _intel_labels(stack: Stack) -> Iterator[Problem]:
    if installed_by(stack, "intel_device_plugin") != "here":
        return
    key, value = INTEL_LABEL
    for name in gpu_pools(stack, INTEL):
        if stack.pools[name].labels.get(key) != value:
            rule = f"does not have the node label {key}, by which Intel's device plugin selects its nodes"
            yield Problem(
                ("pools", name, "labels"), rule, f'add {key}: "{value}"', about=(_place("intel_device_plugin"),)
            )
