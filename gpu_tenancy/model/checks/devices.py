"""Checks of GPUs that NVIDIA's DRA driver allocates in place of a device plugin."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.needs import has_plugin, predates
from gpu_tenancy.model.plan.operators.gpus import allocates_gpus
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.workloads import Training

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
