"""Checks of operators: missing and conflicting ones, ignored values, and GPUs that the DRA driver allocates."""

from collections.abc import Iterator
from typing import Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.chart_values import chart_values
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import INTEL, has_plugin, installed_by, predates, reason
from gpu_tenancy.model.plan.operators.gpus import INTEL_LABEL, allocates_gpus, runs_plugin
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.workloads import Training


def operator_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of a stack's operators."""
    stack = tree.stack
    for name in operators():
        yield from _not_installed_here(tree, name)
        yield from _values(stack, name)
        if stack.operators.of(name).install == "off" and (why := reason(tree, name)):
            yield _lacking(name, *why)
    yield from _one_metrics_server(tree)
    yield from _served(tree)
    yield from _one_advertiser(tree)
    yield from _intel_labels(tree)
    if stack.metrics.storage and (by := installed_by(tree, "prometheus")) != "here":
        rule = f"has no effect: prometheus is {by}"
        yield Problem(("metrics", "storage"), rule, "set operators.prometheus: here, or remove it")


def _place(name: str) -> Path:
    return ("operators", to_camel(name))


def _served(environment: Environment) -> Iterator[Problem]:
    """A pod metric without a histogram, where this program installs the operators and so nothing serves it."""
    stack = environment.stack
    named = stack.metrics.latency_p99 is not None and stack.metrics.histogram is None
    if not named or not stack.cluster.NODES_MADE or installed_by(environment, "prometheus_adapter") == "installed":
        return
    rule = "is a metric that nothing serves, so the autoscaler would never scale"
    fix = "set metrics.histogram instead, or set operators.prometheusAdapter: installed if an adapter serves it"
    yield Problem(("metrics", "latencyP99"), rule, fix, stack.metrics.latency_p99, (("operators",),))


def _not_installed_here(environment: Environment, name: str) -> Iterator[Problem]:
    """A version, digest or values of an operator that this program does not install."""
    operator, by = environment.stack.operators.of(name), installed_by(environment, name)
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
    chart, values = operators()[name].release, stack.operators.of(name).values
    for keys, hint in chart_values()[chart].unknown(values) if values else ():
        rule = f"unknown value of chart {chart}, which Helm would ignore silently"
        yield Problem((*_place(name), "values", *keys), rule, hint)


def _lacking(name: str, about: Path, why: str) -> Problem:
    fix = f"set here (or installed, if it is installed already), or remove {to_camel(name)}"
    return Problem(_place(name), f"is not possible because the stack needs the operator: {why}", fix, "off", (about,))


def _one_metrics_server(environment: Environment) -> Iterator[Problem]:
    if installed_by(environment, "keda") == installed_by(environment, "prometheus_adapter") == "here":
        rule = "conflicts with keda: both would serve the same metric"
        fix = "install only the one that metrics.by names"
        yield Problem(_place("prometheus_adapter"), rule, fix, "here", (_place("keda"),))


def _one_advertiser(environment: Environment) -> Iterator[Problem]:
    """Only one of device plugin and DRA driver may advertise a node's GPUs."""
    if runs_plugin(environment) and allocates_gpus(environment):
        rule = "conflicts with the device plugin of gpuOperator: both would allocate the same GPUs"
        fix = (
            "set operators.gpuOperator.values.devicePlugin.enabled: false, or, if you need only compute domains, set"
            " operators.draDriver.values.resources.gpus.enabled: false"
        )
        yield Problem(_place("dra_driver"), rule, fix, "here", (_place("gpu_operator"),))


def _intel_labels(environment: Environment) -> Iterator[Problem]:
    if installed_by(environment, "intel_device_plugin") != "here":
        return
    key, value = INTEL_LABEL
    for pool in environment.gpu_pools(INTEL):
        if pool.pool.labels.get(key) != value:
            rule = f"does not have the node label {key}, by which Intel's device plugin selects its nodes"
            yield Problem(
                ("pools", pool.name, "labels"), rule, f'add {key}: "{value}"', about=(_place("intel_device_plugin"),)
            )


_DRIVER: Final[Path] = ("operators", "draDriver")
_VERSION: Final = (1, 36)
"""Kubernetes from which the scheduler allocates devices for requests of `nvidia.com/gpu` (DRAExtendedResource is on by
default): https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/features/kube_features.go"""


def device_problems(tree: Tree) -> Iterator[Problem]:
    """What does not work with GPUs of the DRA driver, which pods request as before: `nvidia.com/gpu`."""
    stack = tree.stack
    if not allocates_gpus(tree):
        return
    creation = stack.cluster.creation
    if creation and predates(stack.cluster, _VERSION):
        rule = "is older than 1.36, from which the scheduler allocates GPUs of draDriver to pods"
        fix = "set 1.36, or operators.draDriver.values.resources.gpus.enabled: false and the device plugin"
        yield Problem(("cluster", "create", "version"), rule, fix, creation.version, about=(_DRIVER,))
    pools = {pool.name: pool for pool in tree.nvidia_pools}
    for pool in pools.values():
        yield from _pool(pool)
    for team, spec in stack.teams.items():
        for flavor in spec.gangs:
            if any(pool.name in pools for pool in tree.flavors[flavor].pools):
                yield _volcano(("teams", team, "gangs", flavor))
        for path, workload in workloads(team, spec):
            if isinstance(workload, Training) and workload.gang and workload.gpus:
                yield _volcano((*path, "gang"))


def _pool(resolved: ResolvedPool) -> Iterator[Problem]:
    name, pool, mode = resolved.name, resolved.pool, resolved.mode
    if mode and has_plugin(mode):
        rule = f"brings a device plugin ({mode.means}), which would allocate the same GPUs as draDriver"
        fix = "set another driver mode, or operators.draDriver.values.resources.gpus.enabled: false"
        yield Problem(("pools", name, "driver"), rule, fix, pool.driver, about=(_DRIVER,))
    if pool.sharing:
        rule = "does not work with draDriver, which allocates whole GPUs to pods that request nvidia.com/gpu"
        place = ("pools", name, "sharing", pool.sharing.way)
        yield Problem(place, rule, "remove it, or use the device plugin", about=(_DRIVER,))
    if pool.topology:
        # https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/keps/2941-DRA, under non-goals.
        rule = "does not work with draDriver: Kueue 0.19 cannot place pods by topology whose GPUs are allocated by DRA"
        yield Problem(("pools", name, "topology"), rule, "remove it, or use the device plugin", about=(_DRIVER,))


def _volcano(place: Path) -> Problem:
    rule = "is scheduled by Volcano, which does not allocate GPUs of draDriver to pods that request nvidia.com/gpu"
    return Problem(place, rule, "remove it, or use the device plugin", about=(_DRIVER,))
