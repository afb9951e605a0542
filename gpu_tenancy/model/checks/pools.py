"""Checks of pools and flavors: unknown machine types and MIG profiles, and ambiguous flavors."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Final

from gpu_tenancy.base.problems import Problem, unknown
from gpu_tenancy.model.catalogue import cloud_tables, find_gpu, machines
from gpu_tenancy.model.plan.pools import PoolSupply, ResolvedPool
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.cluster import service_of


def pool_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of a stack's pools, and of the flavors that they form."""
    for pool in tree.pools.values():
        yield from _unknown_parts(pool, tree.stack.machines)
    for flavor in tree.flavors.values():
        yield from _one_kind(flavor)
        yield from _fits_kueue(flavor)
    yield from _distinct(tree.flavors)


def machines_command(service: str) -> str:
    """The command that lists the machine types of a cloud, or of all clouds."""
    return f"tenancy machines --cloud {service}" if service in cloud_tables() else "tenancy machines"


def _unknown_parts(resolved: ResolvedPool, own: Iterable[str]) -> Iterator[Problem]:
    name, pool = resolved.name, resolved.pool
    if pool.machine and resolved.machine is None:
        service = service_of(resolved.cluster)
        known = [
            *own,
            *(known for of, known in machines() if of == service or service not in cloud_tables()),
        ]
        rule, fix = unknown("machine type", pool.machine, known, machines_command(service))
        yield Problem(("pools", name, "machine"), rule, f"{fix}, or add it under machines")
        return
    gpu = resolved.gpu
    if pool.sharing is None:
        return
    place = ("pools", name, "sharing")
    if gpu is None:
        yield Problem(place, "is set, but the pool has no GPUs", "remove sharing")
    elif pool.sharing.mig and resolved.cut is None:
        known = find_gpu(gpu)
        profile = pool.sharing.mig.profile
        if known and known.mig:
            yield Problem((*place, "mig", "profile"), *unknown(f"{gpu} MIG profile", profile, known.mig))
            return
        rule = f"has an unknown number of partitions: the catalogue has no MIG profiles of {gpu}"
        yield Problem((*place, "mig", "profile"), rule, "set mig.partitions", profile)


def _one_kind(flavor: Flavor) -> Iterator[Problem]:
    first = flavor.pools[0]
    for pool in flavor.pools[1:]:
        if (pool.resource, pool.product) != (first.resource, first.product):
            yield Problem(
                ("pools", pool.name, "flavor"),
                f"has {_kind(pool)}, but pool {first.name} of the same flavor has {_kind(first)}",
                "set different flavors for the pools",
                flavor.name,
            )


def _kind(pool: PoolSupply) -> str:
    return f"{pool.product} ({pool.resource})" if pool.resource else "no GPUs"


def _fits_kueue(flavor: Flavor) -> Iterator[Problem]:
    """Limits of a ResourceFlavor: 8 labels and 8 taints, and each taint key and effect only once."""
    place = ("pools", flavor.pools[0].name)
    if len(flavor.node_labels) > _MOST:
        rule = f"has {len(flavor.node_labels)} node labels (with the GPU model's), but Kueue supports {_MOST}"
        yield Problem((*place, "labels"), rule, "remove labels that no workload selects nodes by")
    if len(flavor.taints) > _MOST:
        rule = f"has {len(flavor.taints)} taints, but Kueue supports {_MOST}"
        yield Problem((*place, "taints"), rule, f"remove {len(flavor.taints) - _MOST} or more")
    twice = Counter((taint.key, taint.effect) for taint in flavor.taints)
    for (key, effect), count in twice.items():
        if count > 1:
            rule = f"flavor {flavor.name} has taint {key}:{effect} {count} times, but a node can have it only once"
            fix = "keep one value" if key != flavor.resource else "remove it: GPU nodes have this taint already"
            yield Problem((*place, "taints"), rule, fix)


_MOST: Final = 8


def _distinct(flavors: Mapping[str, Flavor]) -> Iterator[Problem]:
    """A GPU flavor selects its nodes by labels, so nodes of other flavors must not have all of them."""
    on_gpus = [flavor for flavor in flavors.values() if flavor.resource is not None]
    for flavor, other in permutations(on_gpus, 2):
        mine, theirs = flavor.node_labels.items(), other.node_labels.items()
        if mine == theirs and on_gpus.index(flavor) < on_gpus.index(other):
            continue  # Reported once, for the second flavor.
        pool = flavor.pools[0].name
        label = f"add a distinct label under pools.{pool}.labels"
        if mine == theirs:
            rule = f"has the same node labels as flavor {other.name}, so their nodes cannot be distinguished"
            yield Problem(("pools", pool), rule, f"{label}, or set the same flavor for both")
        elif any(mine <= pool.labels.items() for pool in other.pools):
            rule = f"has only node labels that nodes of flavor {other.name} have too, so its pods could run there"
            yield Problem(("pools", pool), rule, label)
