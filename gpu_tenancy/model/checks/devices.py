"""Checks of GPUs that NVIDIA's DRA driver allocates in place of a device plugin."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from gpu_tenancy.model.catalogue.clouds import DriverMode, driver_mode
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.gpu_operator import merged, nvidia_pools
from gpu_tenancy.model.plan.operators.gpus import dra_values
from gpu_tenancy.model.plan.operators.needs import installed_by
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.workloads import Training

_DRIVER: Final[Path] = ("operators", "draDriver")
_VERSION: Final = (1, 36)
"""Kubernetes from which the scheduler allocates devices for requests of `nvidia.com/gpu` (DRAExtendedResource is on by
default): https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/features/kube_features.go"""
_NO_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
"""Label of nodes whose image has a device plugin, so that the GPU Operator runs none."""


def device_problems(tree: Tree) -> Iterator[Problem]:
    """What does not work with GPUs of the DRA driver, which pods request as before: `nvidia.com/gpu`."""
    stack = tree.stack
    if not allocates_gpus(stack):
        return
    creation = stack.cluster.creation
    if creation and tuple(int(part) for part in creation.version.split(".")) < _VERSION:
        rule = "is older than 1.36, from which the scheduler allocates GPUs of draDriver to pods"
        fix = "set 1.36, or operators.draDriver.values.resources.gpus.enabled: false and the device plugin"
        yield Problem(("cluster", "create", "version"), rule, fix, creation.version, about=(_DRIVER,))
    for name in nvidia_pools(stack):
        yield from _pool(stack, name)
    for team, spec in stack.teams.items():
        for flavor in spec.gangs:
            if any(pool.name in nvidia_pools(stack) for pool in tree.flavors[flavor].pools):
                yield _volcano(("teams", team, "gangs", flavor))
        for path, workload in workloads(team, spec):
            if isinstance(workload, Training) and workload.gang and workload.gpus:
                yield _volcano((*path, "gang"))


def allocates_gpus(stack: Stack) -> bool:
    """Whether the DRA driver is installed here and allocates GPUs, not only compute domains."""
    if installed_by(stack, "dra_driver") != "here":
        return False
    return is_enabled(merged(dra_values(stack), stack.operators.dra_driver.values), "resources", "gpus")


def is_enabled(values: Mapping[str, Any], *section: str) -> bool:
    """Whether a section of values is enabled, which is the default of the charts."""
    value: Any = values
    for key in (*section, "enabled"):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    return value is not False


def _pool(stack: Stack, name: str) -> Iterator[Problem]:
    pool = stack.pools[name]
    mode = driver_mode(service_of(stack.cluster), pool.driver)
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


def has_plugin(mode: DriverMode) -> bool:
    """Whether the nodes have a device plugin that is not the GPU Operator's."""
    return not is_enabled(mode.operator, "devicePlugin") or _NO_PLUGIN in mode.labels


def _volcano(place: Path) -> Problem:
    rule = "is scheduled by Volcano, which does not allocate GPUs of draDriver to pods that request nvidia.com/gpu"
    return Problem(place, rule, "remove it, or use the device plugin", about=(_DRIVER,))
