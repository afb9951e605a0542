"""Checks of data: buckets, caches, classes of storage that the cloud has, volumes, and snapshots."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, format_bytes
from gpu_tenancy.model.catalogue.storage import StorageService, storage_services
from gpu_tenancy.model.checks.references import known_in, mounted_at
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.datasets import node_label
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.identities import granted_here, made_buckets
from gpu_tenancy.model.plan.object_storage import accelerated, folder, replicas_of, share, store_of
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.pools import NodeDisk
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import service_of, stored, with_snapshots
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.data import CACHES, CLOUD_OF, Acceleration, Snapshots, Storage

_GIB: Final = 2**30
_CLUSTER: Final[tuple[Path, ...]] = (("cluster",),)
_S3_DRIVER: Final = "aws-mountpoint-s3-csi-driver"


def data_problems(tree: Tree) -> Iterator[Problem]:
    """Datasets, storage and scratch space with impossible settings."""
    yield from _buckets(tree.stack)
    yield from _driver(tree.stack)
    for name, team in tree.stack.teams.items():
        for place, storage in stored(team):
            if storage.storage_class is None:
                yield from _class(tree.stack, storage, ("teams", name, *place))
        for key in team.storage:
            if key in tree.stack.datasets and tree.stack.datasets[key].is_of(name):
                rule = f"is also the name of a dataset of team {name}, whose claim has this name"
                path = ("teams", name, "storage", key)
                yield Problem(path, rule, "rename one of them", key, about=(("datasets", key),))
    yield from _mounted(tree)
    yield from _scratch(tree)
    for team, name, storage, taken in with_snapshots(tree.stack.teams):
        yield from _snapshots(tree.stack, storage, taken, ("teams", team, "storage", name, "snapshots"))


def _buckets(stack: Stack) -> Iterator[Problem]:
    for name, dataset in stack.datasets.items():
        if dataset.create and not granted_here(stack.cluster, dataset):
            where = f"cluster.cloud {CLOUD_OF[dataset.scheme]} with cluster.create"
            rule = f"needs {where}, whose provider creates the bucket"
            fix = f"remove create, and create {folder(dataset).whole} where its cloud is managed"
            yield Problem(("datasets", name, "create"), rule, fix, "true", about=(("cluster",),))
    existing = {folder(one).whole: name for name, one in stack.datasets.items() if not (one.create or one.endpoint)}
    for made in made_buckets(stack.datasets.values()):
        if name := existing.get(str(made.bucket)):
            rule = f"is in {made.bucket}, which another dataset creates"
            yield Problem(("datasets", name), rule, "set create: true for all datasets of the bucket", name)


def _driver(stack: Stack) -> Iterator[Problem]:
    """Only version 2 of the CSI driver for S3 mounts with the role of the pod."""
    cluster = stack.cluster
    version = cluster.create.addons.get(_S3_DRIVER) if isinstance(cluster, AwsCluster) and cluster.create else None
    of_s3 = next((name for name, dataset in stack.datasets.items() if dataset.scheme == "s3"), None)
    if version and version.startswith("v1.") and of_s3:
        rule = "does not mount with the identity of a pod, which version 2 does"
        fix = "set version v2 or later, or remove it for the default"
        yield Problem(("cluster", "create", "addons", _S3_DRIVER), rule, fix, version, about=(("datasets", of_s3),))


def _class(stack: Stack, storage: Storage, path: Path) -> Iterator[Problem]:
    """In an existing cluster, StorageClasses are its owner's, and the default class is usually a disk."""
    if stack.cluster.creation is None:
        if storage.kind is not None:
            rule = "is made only in a cluster that is created here (cluster.create)"
            fix = "set storageClass to a StorageClass of the cluster, and remove class"
            yield Problem((*path, "class"), rule, fix, storage.kind, _CLUSTER)
        elif storage.mode == "shared":
            rule = "needs a StorageClass with ReadWriteMany, which the default class of a cluster usually is not"
            yield Problem((*path, "mode"), rule, "set storageClass to one of the cluster", "shared", _CLUSTER)
        return
    rows = storage_services().get(stack.cluster.cloud, {})
    if storage.kind is not None:
        yield from known_in(storage.kind, rows, "class of storage", (*path, "class"), ())
    name, service = service_of(stack.cluster, storage)
    if service is None:
        return
    place, version = (*path, "class") if storage.kind else path, stack.cluster.creation.version
    if storage.mode not in service.modes:
        others = [key for key, row in rows.items() if storage.mode in row.modes]
        rule = f"has no volumes with mode: {storage.mode}"
        yield Problem(place, rule, f"set class to one of: {', '.join(others)}; or change mode", name)
    elif service.needs:
        rule = f"needs {service.needs}, which are not made here"
        yield Problem(place, rule, "set storageClass to a StorageClass that you create for it", name)
    if service.since and _minor(version) < _minor(service.since):
        rule = f"needs Kubernetes {service.since} or later, but the cluster has {version}"
        yield Problem(place, rule, f"set cluster.create.version to {service.since} or later, or another class", name)
    yield from _size(storage, service, path)


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _size(storage: Storage, service: StorageService, path: Path) -> Iterator[Problem]:
    """The size must be valid for the service: a driver would round it up, above the budget of the team."""
    place, size = (*path, "size"), format_bytes(storage.size)
    if service.min is not None and storage.size < service.min:
        rule = f"is less than {format_bytes(service.min)}, the minimum of {service.title}"
        yield Problem(place, rule, "raise it, or set another class", size)
        return
    fitting = service.next_size(storage.size)
    if fitting is None:
        largest = max(sizes.to for sizes in service.sizes if sizes.to is not None)
        rule = f"is more than {format_bytes(largest)}, the maximum of {service.title}"
        yield Problem(place, rule, "lower it, or use several claims", size)
    elif fitting != storage.size:
        yield Problem(place, f"is not a size of {service.title}", f"set {format_bytes(fitting)}", size)


def _mounted(tree: Tree) -> Iterator[Problem]:
    """Volumes must be storage of the team; only one pod in all can mount a disk."""
    pods: Counter[tuple[str, str]] = Counter()
    for team, path, workload in workloads(tree):
        storage = tree.stack.teams[team].storage
        for volume in workload.volumes:
            place = (*path, *mounted_at(workload, "volume", volume))
            yield from known_in(volume, storage, "storage", place, ("teams", team, "storage"))
            if volume in storage and storage[volume].mode == "one-node":
                pods[team, volume] += workload.most_pods
    for (team, volume), number in pods.items():
        if number > 1:
            rule = f"is for one pod, but up to {number} pods of workloads mount it, which can be on several nodes"
            fix = "set mode: shared, or storage of its own for each pod"
            yield Problem(("teams", team, "storage", volume, "mode"), rule, fix, "one-node")


def _scratch(tree: Tree) -> Iterator[Problem]:
    """Scratch space larger than any disk of the nodes: the pod would be evicted when it writes."""
    for team, path, workload in workloads(tree) if tree.stack.cluster.NODES_MADE else ():
        flavor = flavor_of(tree, team, workload)
        disks = [tree.pools[node.name].disk for node in flavor.pools if node.name in tree.pools] if flavor else []
        largest = max(disks, key=lambda disk: disk.size, default=None)
        if flavor and largest and workload.scratch and workload.scratch.size > largest.size:
            size = format_bytes(largest.size // _GIB * _GIB)
            rule = f"is more than the {size} of the largest disk of nodes of {flavor.name}"
            fix = "lower it" if largest.local else f"lower it, or raise pools.{flavor.pools[0].name}.disk.size"
            yield Problem((*path, "scratch"), rule, fix, format_bytes(workload.scratch.size))


def _snapshots(stack: Stack, storage: Storage, taken: Snapshots, path: Path) -> Iterator[Problem]:
    """Snapshots that no class can take."""
    _, service = service_of(stack.cluster, storage)
    if service is None:
        if taken.kind is None:
            of = f"StorageClass {storage.storage_class}" if storage.storage_class else "the cluster's StorageClass"
            rule = f"has no class, and none is made for {of}, which is not made here"
            fix = "set snapshots.class to a VolumeSnapshotClass of the cluster for the same driver"
            yield Problem(path, rule, fix, taken.schedule, _CLUSTER)
    elif not service.snapshots:
        rows = storage_services()[stack.cluster.cloud]
        others = [name for name, row in rows.items() if row.snapshots and storage.mode in row.modes]
        other = f", or set class of the storage to one of: {', '.join(others)}" if others else ""
        rule = f"is set, but {service.provisioner}, the driver of {service.title}, takes no VolumeSnapshots"
        yield Problem(path, rule, f"remove snapshots{other}", taken.schedule)
    elif taken.kind is not None:
        rule = f"is set, but a VolumeSnapshotClass is made for {service.title}"
        yield Problem((*path, "class"), rule, "remove it", taken.kind)


_LONGEST_LABEL: Final = 62
"""A longer label gets an ID of the Dataset:
https://github.com/fluid-cloudnative/fluid/blob/v1.0.8/pkg/utils/label.go."""


def cache_problems(tree: Tree) -> Iterator[Problem]:
    """Caches that Fluid cannot make, or that do not fit their nodes."""
    for name, dataset, acceleration in accelerated(tree.stack.datasets):
        path: Path = ("datasets", name, "accelerate")
        if len(node_label(name)) > _LONGEST_LABEL:
            most = f"at most {_LONGEST_LABEL - len(node_label(''))} characters"
            rule = f"is too long for a dataset with a cache, by whose name nodes are labelled ({most})"
            yield Problem(("datasets", name), rule, "rename the dataset", name)
        if name[0].isdigit():
            rule = "starts with a digit, but the Services of its cache are named by it"
            yield Problem(("datasets", name), rule, "rename the dataset", name)
        store = store_of(dataset, acceleration)
        if acceleration.secret is None and not store.identity:
            keys = " and ".join(store.secret.values())
            rule = f"has no secret, which the cache needs to read {dataset.scheme}:// buckets: {store.why}"
            yield Problem((*path, "secret"), rule, f"create a Secret with {keys} in namespace {CACHES}, and name it")
        if tree.stack.dispatches:
            rule = "makes a cache in the cluster of the MultiKueue manager, but workloads run in those of its workers"
            yield Problem(path, rule, "remove it, and set accelerate in the stacks of the workers")
            continue
        known = [pool.flavor or pool_name for pool_name, pool in tree.stack.pools.items()]
        yield from known_in(acceleration.flavor, known, "flavor", (*path, "flavor"), ("pools",))
        if flavor := tree.flavors.get(acceleration.flavor):
            yield from _nodes(path, acceleration, flavor)
            yield from _disks(path, tree, acceleration, flavor)
    for flavor in tree.flavors.values():
        yield from _fits(flavor)


def _nodes(path: Path, acceleration: Acceleration, flavor: Flavor) -> Iterator[Problem]:
    """A cache needs permanent nodes: nodes that scale to 0 would stay for the cache."""
    pools, always = f"pools.{flavor.pools[0].name}", flavor.always
    about: tuple[Path, ...] = tuple(("pools", pool.name) for pool in flavor.pools)
    if not flavor.node_labels:
        rule = f"has no node labels of its own, by which flavor {flavor.name} could place the cache"
        yield Problem((*path, "flavor"), rule, f"add a label under {pools}.labels", flavor.name, about)
    replicas = replicas_of(acceleration, always)
    if acceleration.copies > max(1, replicas):
        rule = f"exceeds the {replicas} nodes that have a part of the cache"
        yield Problem((*path, "copies"), rule, f"lower it to {replicas}", str(acceleration.copies), about)
    if replicas > always or not replicas:
        rule, has = f"has no nodes: flavor {flavor.name} always has 0", f"the {always} nodes that flavor {flavor.name}"
        if replicas:
            rule = f"exceeds {has} always has, so the cache would keep more of them running"
        key, shown, other = "flavor", flavor.name, "use another flavor"
        if acceleration.replicas:
            key, shown, other = "replicas", str(acceleration.replicas), "lower it"
        yield Problem((*path, key), rule, f"raise {pools}.nodes.min to {max(1, replicas)}, or {other}", shown, about)


def _disks(path: Path, tree: Tree, acceleration: Acceleration, flavor: Flavor) -> Iterator[Problem]:
    """The cache must fit on a node's disk, if this program creates the nodes."""
    if acceleration.medium != "ssd" or not tree.stack.cluster.NODES_MADE:
        return
    part = share(acceleration, replicas_of(acceleration, flavor.always))
    for pool in (tree.pools[supply.name] for supply in flavor.pools):
        # The folder of JuiceFS is on the boot disk, and the volumes of Alluxio where the pods' ephemeral storage is.
        disk = NodeDisk(pool.pool.disk.size, local=False) if acceleration.runtime == "juicefs" else pool.disk
        if part > disk.size:
            has, whole = format_bytes(disk.size), format_bytes(acceleration.cache)
            rule = f"needs {format_bytes(part)} on each node, but those of pool {pool.name} have {has}"
            fix = "lower it, or " + ("use more replicas" if disk.local else f"raise pools.{pool.name}.disk.size")
            yield Problem((*path, "cache"), rule, fix, whole, (("pools", pool.name),))
            return


def _fits(flavor: Flavor) -> Iterator[Problem]:
    """The pods of all caches must fit on one node, because they can all run on the same node."""
    names = list(flavor.caches.by_dataset)
    others = f" of {', '.join(names)}" if len(names) > 1 else ""
    for resource in (CPU, MEMORY):
        needed = flavor.caches.node.get(resource, 0)
        has, pool = min((pool.node.get(resource, 0), pool.name) for pool in flavor.pools)
        if needed > has:
            rule = (
                f"the caches{others} can need {format_amount(resource, needed)} {resource} on one node of flavor"
                f" {flavor.name}, but those of pool {pool} have {format_amount(resource, has)}"
            )
            fix = "use more replicas, a smaller cache, medium: ssd or another flavor"
            yield Problem(("datasets", names[0], "accelerate"), rule, fix, about=(("pools", pool),))
            return
