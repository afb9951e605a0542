"""Checks of operators: missing and conflicting ones, ignored values, and images without the CPUs of the nodes."""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue import find_machine
from gpu_tenancy.model.catalogue.chart_values import chart_values
from gpu_tenancy.model.catalogue.operators import OperatorChart, operators
from gpu_tenancy.model.catalogue.rows import Architecture
from gpu_tenancy.model.catalogue.storage import caches
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import INTEL, has_plugin, installed_by, predates, reason
from gpu_tenancy.model.plan.object_storage import accelerated
from gpu_tenancy.model.plan.operators.gpus import INTEL_LABEL, allocates_gpus, runs_plugin
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
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


_EVERYWHERE: Final[Architecture] = "amd64"
"""The architecture that every image has; a described node without a machine type counts as one."""


def architecture_problems(tree: Tree) -> Iterator[Problem]:
    """Images that are known not to run where the stack would run them.

    A container whose image is for another architecture ends with "exec format error", or its image cannot be pulled.
    """
    yield from dict.fromkeys(
        problem for name, chart, has in _installed(tree) if has is not None for problem in _pods(tree, name, chart, has)
    )
    for dataset, _, acceleration in accelerated(tree.stack.datasets):
        has = caches()[acceleration.runtime].architectures
        place = ("datasets", dataset, "accelerate", "runtime")
        for pool in _lacking_architecture(tree.pools.values(), has):
            if dataset in tree.flavors[pool.flavor].caches.by_dataset:
                rule = f"has images for {', '.join(has)} only, but pods of its cache run in pool {pool.name}"
                rule += f" ({_architecture(pool)})"
                others = [other for other, row in caches().items() if _architecture(pool) in row.architectures]
                fix = f"set {' or '.join(others)}, or remove accelerate"
                yield Problem(place, rule, fix, acceleration.runtime, (("pools", pool.name),))


def unknown_architectures(tree: Tree) -> list[str]:
    """What nobody has checked for Arm nodes of a stack, in words; empty without Arm nodes."""
    pools = _lacking_architecture(tree.pools.values(), (_EVERYWHERE,))
    named = [
        f"the images of {to_camel(name)} {chart.version}"
        for name, chart, has in _installed(tree)
        if has is None and any(pool in pools for pool in _pools(tree, name, chart))
    ]
    flavors = {pool.flavor for pool in pools}
    own = [
        f"{kind} {name} of team {team}"
        for team, spec in tree.stack.teams.items()
        for kind, workloads in (("job", spec.training), ("server", spec.serving))
        for name, workload in workloads.items()
        if (flavor := flavor_of(tree, team, workload)) and flavor.name in flavors
    ]
    return [*named, *(f"the image of {workload}" for workload in own)]


def _installed(environment: Environment) -> Iterator[tuple[str, OperatorChart, tuple[Architecture, ...] | None]]:
    """The charts that this program installs, with the architectures of their images.

    The images of another version than the catalogue's are unknown (None).
    """
    for name, operator in operators().items():
        if installed_by(environment, name) == "here":
            version = environment.stack.operators.of(name).version
            for chart in operator.charts.values():
                has = chart.images.architectures if chart.images and version in {None, chart.version} else None
                yield name, chart.model_copy(update={"version": version or chart.version}), has


def _pods(tree: Tree, name: str, chart: OperatorChart, has: tuple[Architecture, ...]) -> Iterator[Problem]:
    """Nodes of another architecture on which pods of an operator can run: hooks of charts select no nodes."""
    operator = ("operators", to_camel(name))
    images = f"the images of {to_camel(name)} {chart.version}"
    rule = f"CPUs, but {images} are for {', '.join(has)} only, and its pods can run"
    fix = f"use a machine type with {has[0]} CPUs"
    every = tree.pools.values()
    open_to_all = [pool for pool in every if not pool.gpus and not _repels(pool)]
    for pool in dict.fromkeys(
        [*_lacking_architecture(_pools(tree, name, chart), has), *_lacking_architecture(open_to_all, has)]
    ):
        place, why = ("pools", pool.name, "machine"), f"has {_architecture(pool)} {rule} on these nodes"
        yield Problem(place, why, fix if pool.gpus else f"{fix}, or add a taint", pool.pool.machine, (operator,))
    creation = tree.stack.cluster.creation
    machine = find_machine(creation.system.machine, service_of(tree.stack.cluster)) if creation else None
    if machine and machine.architecture not in has:
        why = f"has {machine.architecture} {rule} on system nodes"
        yield Problem(("cluster", "create", "system", "machine"), why, fix, machine.name, (operator,))


def _pools(environment: Environment, name: str, chart: OperatorChart) -> list[ResolvedPool]:
    """The pools on whose nodes a chart has DaemonSets."""
    if chart.daemons == "every":
        return list(environment.pools.values())
    return list(environment.gpu_pools(operators()[name].gpus)) if chart.daemons == "gpus" else []


def _lacking_architecture(pools: Iterable[ResolvedPool], has: tuple[Architecture, ...]) -> list[ResolvedPool]:
    return [pool for pool in pools if _architecture(pool) not in has]


def _architecture(pool: ResolvedPool) -> Architecture:
    return pool.machine.architecture if pool.machine else _EVERYWHERE


def _repels(pool: ResolvedPool) -> bool:
    """Whether the nodes of a pool have a taint that keeps pods off."""
    return any(taint.effect != "PreferNoSchedule" for taint in pool.pool.taints)
