"""Checks of caches of datasets: they must fit on their nodes, and have a right to read the bucket."""

import re
from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, format_bytes
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.plan.cache_pods import accelerated, replicas_of, share, store_of
from gpu_tenancy.model.plan.caches import node_label
from gpu_tenancy.model.plan.pools import NodeDisk
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec.data import CACHES, Acceleration, Dataset

_LONGEST_LABEL: Final = 62
"""A longer label gets an ID of the Dataset: https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/label.go."""
_SERVICE: Final = re.compile(r"[a-z].*")


def cache_problems(tree: Tree) -> Iterator[Problem]:
    """Caches that Fluid cannot make, or that their nodes cannot have."""
    cached = list(accelerated(tree.stack.datasets))
    for name, dataset, acceleration in cached:
        path: Path = ("datasets", name, "accelerate")
        yield from _name(name)
        yield from _rights(path, dataset, acceleration)
        if tree.stack.dispatches:
            rule = "makes a cache in the cluster of the MultiKueue manager, but workloads run in those of its workers"
            yield Problem(path, rule, "remove it, and set accelerate in the stacks of the workers")
            continue
        known = [pool.flavor or pool_name for pool_name, pool in tree.stack.pools.items()]
        yield from known_in(acceleration.flavor, known, "flavor", (*path, "flavor"), ("pools",))
        flavor = tree.flavors.get(acceleration.flavor)
        if flavor is not None:
            yield from _nodes(path, acceleration, flavor)
            yield from _disks(path, tree, acceleration, flavor)
    for flavor in tree.flavors.values():
        yield from _fits(flavor)


def _name(name: str) -> Iterator[Problem]:
    if len(node_label(name)) > _LONGEST_LABEL:
        most = _LONGEST_LABEL - len(node_label(""))
        rule = f"is too long for a dataset with a cache, by whose name nodes are labelled (at most {most} characters)"
        yield Problem(("datasets", name), rule, "rename the dataset", name)
    if not _SERVICE.fullmatch(name):
        rule = "starts with a digit, but the Services of its cache are named by it"
        yield Problem(("datasets", name), rule, "rename the dataset", name)


def _rights(path: Path, dataset: Dataset, acceleration: Acceleration) -> Iterator[Problem]:
    store = store_of(dataset, acceleration)
    if acceleration.secret is None and not store.identity:
        keys = " and ".join(store.secret.values())
        rule = f"has no secret, which the cache needs to read {dataset.scheme}:// buckets: {store.why}"
        yield Problem((*path, "secret"), rule, f"create a Secret with {keys} in namespace {CACHES}, and name it")


def _nodes(path: Path, acceleration: Acceleration, flavor: Flavor) -> Iterator[Problem]:
    """The nodes must be there always: those that scale to 0 would stay for the cache."""
    pools = f"pools.{flavor.pools[0].name}"
    about: tuple[Path, ...] = tuple(("pools", pool.name) for pool in flavor.pools)
    if not flavor.node_labels:
        rule = f"has no node labels of its own, by which flavor {flavor.name} could place the cache"
        yield Problem((*path, "flavor"), rule, f"add a label under {pools}.labels", flavor.name, about)
    replicas = replicas_of(acceleration, flavor.always)
    if acceleration.copies > max(1, replicas):
        rule = f"exceeds the {replicas} nodes that have a part of the cache"
        yield Problem((*path, "copies"), rule, f"lower it to {replicas}", str(acceleration.copies), about)
    if replicas > flavor.always or not replicas:
        rule = (
            f"exceeds the {flavor.always} nodes that flavor {flavor.name} always has, so the cache would keep more"
            " of them running"
            if replicas
            else f"has no nodes: flavor {flavor.name} always has 0"
        )
        key = "replicas" if acceleration.replicas else "flavor"
        shown = str(acceleration.replicas or flavor.name)
        least = f"raise {pools}.nodes.min to {max(1, replicas)}"
        yield Problem(
            (*path, key),
            rule,
            f"{least}, or {'lower it' if acceleration.replicas else 'use another flavor'}",
            shown,
            about,
        )


def _disks(path: Path, tree: Tree, acceleration: Acceleration, flavor: Flavor) -> Iterator[Problem]:
    """A part of the cache on a node's disk, where the disk is known: of the nodes that are created here."""
    if acceleration.medium != "ssd" or not tree.stack.cluster.NODES_MADE:
        return
    part = share(acceleration, replicas_of(acceleration, flavor.always))
    for supply in flavor.pools:
        pool = tree.pools[supply.name]
        # The folder of JuiceFS is on the boot disk, and the volumes of Alluxio where the pods' ephemeral storage is.
        boot = NodeDisk(pool.pool.disk.size, local=False)
        disk = boot if acceleration.runtime == "juicefs" else pool.disk
        if part > disk.size:
            has = format_bytes(disk.size)
            rule = f"needs {format_bytes(part)} on each node, but those of pool {supply.name} have {has}"
            where = "use more replicas" if disk.local else f"raise pools.{supply.name}.disk.size"
            yield Problem(
                (*path, "cache"),
                rule,
                f"lower it, or {where}",
                format_bytes(acceleration.cache),
                (("pools", supply.name),),
            )
            return


def _fits(flavor: Flavor) -> Iterator[Problem]:
    """The pods of all caches must fit on one node, since they can be on the same one."""
    for resource in (CPU, MEMORY):
        needed = flavor.caches.node.get(resource, 0)
        has, pool = min((pool.node.get(resource, 0), pool.name) for pool in flavor.pools)
        if needed > has:
            names = list(flavor.caches.by_dataset)
            place: Path = ("datasets", names[0], "accelerate")
            others = f" of {', '.join(names)}" if len(names) > 1 else ""
            rule = (
                f"the caches{others} can need {format_amount(resource, needed)} {resource} on one node of flavor"
                f" {flavor.name}, but those of pool {pool} have {format_amount(resource, has)}"
            )
            fix = "use more replicas, a smaller cache, medium: ssd or another flavor"
            yield Problem(place, rule, fix, about=(("pools", pool),))
            return
