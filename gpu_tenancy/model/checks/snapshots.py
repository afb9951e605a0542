"""Checks of snapshots: only where the driver of a claim takes them, with a class that somebody makes."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.snapshots import with_snapshots
from gpu_tenancy.model.plan.storage import service_of
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.data import Snapshots, Storage


def snapshot_problems(tree: Tree) -> Iterator[Problem]:
    """Snapshots that nothing can take."""
    for team, name, storage, taken in with_snapshots(tree.stack):
        yield from _problems(tree.stack, storage, taken, ("teams", team, "storage", name, "snapshots"))


def _problems(stack: Stack, storage: Storage, taken: Snapshots, path: Path) -> Iterator[Problem]:
    _, service = service_of(stack.cluster, storage)
    if service is None:
        if taken.kind is None:
            of = f"StorageClass {storage.storage_class}" if storage.storage_class else "the cluster's StorageClass"
            rule = f"has no class, and none is made for {of}, which is not made here"
            fix = "set snapshots.class to a VolumeSnapshotClass of the cluster for the same driver"
            yield Problem(path, rule, fix, taken.schedule)
        return
    if not service.snapshots:
        rows = storage_services()[stack.cluster.cloud]
        others = [name for name, row in rows.items() if row.snapshots and storage.mode in row.modes]
        other = f", or set class of the storage to one of: {', '.join(others)}" if others else ""
        rule = f"is set, but {service.provisioner}, the driver of {service.title}, takes no VolumeSnapshots"
        yield Problem(path, rule, f"remove snapshots{other}", taken.schedule)
    elif taken.kind is not None:
        rule = f"is set, but a VolumeSnapshotClass is made for {service.title}"
        yield Problem((*path, "class"), rule, "remove it", taken.kind)
