"""Checks of CPU architectures: images of operators and caches that do not run on nodes of the stack.

A container whose image is for another architecture ends with "exec format error", or its image cannot be pulled.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.model.catalogue import find_machine
from gpu_tenancy.model.catalogue.caches import caches
from gpu_tenancy.model.catalogue.operators import OperatorChart, operators
from gpu_tenancy.model.catalogue.rows import Architecture
from gpu_tenancy.model.plan.cache_pods import accelerated
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.cluster import service_of

_EVERYWHERE: Final[Architecture] = "amd64"
"""The architecture that every image has; a described node without a machine type counts as one."""


def architecture_problems(tree: Tree) -> Iterator[Problem]:
    """Images that are known not to run where the stack would run them."""
    yield from dict.fromkeys(
        problem for name, chart, has in _installed(tree) if has is not None for problem in _pods(tree, name, chart, has)
    )
    for dataset, _, acceleration in accelerated(tree.stack.datasets):
        has = caches()[acceleration.runtime].architectures
        place = ("datasets", dataset, "accelerate", "runtime")
        for pool in _lacking(tree.pools.values(), has):
            if dataset in tree.flavors[pool.flavor].caches.by_dataset:
                rule = f"has images for {', '.join(has)} only, but pods of its cache run in pool {pool.name}"
                rule += f" ({_architecture(pool)})"
                others = [other for other, row in caches().items() if _architecture(pool) in row.architectures]
                fix = f"set {' or '.join(others)}, or remove accelerate"
                yield Problem(place, rule, fix, acceleration.runtime, (("pools", pool.name),))


def unknown_architectures(tree: Tree) -> list[str]:
    """What nobody has checked for Arm nodes of a stack, in words; empty without Arm nodes."""
    pools = _lacking(tree.pools.values(), (_EVERYWHERE,))
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
    for pool in dict.fromkeys([*_lacking(_pools(tree, name, chart), has), *_lacking(open_to_all, has)]):
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


def _lacking(pools: Iterable[ResolvedPool], has: tuple[Architecture, ...]) -> list[ResolvedPool]:
    return [pool for pool in pools if _architecture(pool) not in has]


def _architecture(pool: ResolvedPool) -> Architecture:
    return pool.machine.architecture if pool.machine else _EVERYWHERE


def _repels(pool: ResolvedPool) -> bool:
    """Whether the nodes of a pool have a taint that keeps pods off."""
    return any(taint.effect != "PreferNoSchedule" for taint in pool.pool.taints)
