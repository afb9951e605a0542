"""Pools and flavors: machines nobody knows, partitions that a GPU does not have, flavors that blur."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Final

from gpu_tenancy.model.catalogue import find_gpu, machines
from gpu_tenancy.model.plan.gpus import machine_of, sharing
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor, PoolSupply
from gpu_tenancy.model.problems import Problem, nearest
from gpu_tenancy.model.spec import Stack


def pool_problems(tree: Tree) -> Iterator[Problem]:
    """What is wrong with the pools of a stack, and with the flavors they make up."""
    for name in tree.stack.pools:
        yield from _unknown(tree.stack, name)
    for flavor in tree.flavors.values():
        yield from _one_kind(flavor)
        yield from _fits_kueue(flavor)
    yield from _told_apart(tree.flavors)


def _unknown(stack: Stack, name: str) -> Iterator[Problem]:
    pool = stack.pools[name]
    machine = machine_of(stack, pool)
    if pool.machine and machine is None:
        hint = nearest(pool.machine, (known for _, known in machines()))
        rule = "is no machine of the catalogue"
        yield Problem(("pools", name, "machine"), rule, f"{hint}; or describe it under machines", pool.machine)
        return
    gpu = machine.gpu if machine else pool.gpu
    if pool.sharing is None:
        return
    place = ("pools", name, "sharing")
    if gpu is None:
        yield Problem(place, "shares GPUs that the pool does not have", "leave sharing out")
    elif pool.sharing.mig and sharing(stack, pool) is None:
        known = find_gpu(gpu)
        rule = f"is no MIG profile that {gpu} is known to have"
        mend = nearest(pool.sharing.mig.profile, known.mig) if known else "write mig.partitions beside it"
        yield Problem((*place, "mig", "profile"), rule, mend, pool.sharing.mig.profile)


def _one_kind(flavor: Flavor) -> Iterator[Problem]:
    first = flavor.pools[0]
    for pool in flavor.pools[1:]:
        if (pool.resource, pool.product) != (first.resource, first.product):
            yield Problem(
                ("pools", pool.name, "flavor"),
                f"has {_kind(pool)}, but pool {first.name} of the same flavor has {_kind(first)}",
                "give the pools different flavors",
                flavor.name,
            )


def _kind(pool: PoolSupply) -> str:
    return f"{pool.product} ({pool.resource})" if pool.resource else "no GPUs"


def _fits_kueue(flavor: Flavor) -> Iterator[Problem]:
    """What Kueue's ResourceFlavor takes: at most 8 labels and 8 taints, each key and effect once."""
    place = ("pools", flavor.pools[0].name)
    if len(flavor.node_labels) > _MOST:
        rule = f"has {len(flavor.node_labels)} node labels, its GPU's model among them, and Kueue takes {_MOST}"
        yield Problem((*place, "labels"), rule, "leave out those that no workload chooses its nodes by")
    if len(flavor.taints) > _MOST:
        rule = f"has {len(flavor.taints)} taints, and Kueue takes {_MOST}"
        yield Problem((*place, "taints"), rule, "use fewer")
    twice = Counter((taint.key, taint.effect) for taint in flavor.taints)
    for (key, effect), count in twice.items():
        if count > 1:
            rule = f"taints flavor {flavor.name} with {key}:{effect} {count} times, and a node may have it once"
            mend = "keep one value" if key != flavor.resource else "leave it out: GPU nodes have it already"
            yield Problem((*place, "taints"), rule, mend)


_MOST: Final = 8


def _told_apart(found: Mapping[str, Flavor]) -> Iterator[Problem]:
    """A GPU flavor selects its nodes by labels, so no other flavor's nodes may have all of them."""
    on_gpus = [flavor for flavor in found.values() if flavor.resource is not None]
    for flavor, other in permutations(on_gpus, 2):
        mine, theirs = flavor.node_labels.items(), other.node_labels.items()
        if mine == theirs and on_gpus.index(flavor) < on_gpus.index(other):
            continue  # Said once, of the second.
        pool = flavor.pools[0].name
        label = f"give it a label of its own under pools.{pool}.labels"
        if mine == theirs:
            rule = f"has the same node labels as flavor {other.name}, so nothing tells their nodes apart"
            yield Problem(("pools", pool), rule, f"{label}, or the same flavor")
        elif any(mine <= pool.labels.items() for pool in other.pools):
            rule = f"has only node labels that nodes of flavor {other.name} have too, so its pods would land there"
            yield Problem(("pools", pool), rule, label)
