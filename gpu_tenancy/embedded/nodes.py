"""Simulated nodes with the GPUs, labels and taints of a stack's pools."""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import NodeTaint, PoolSupply
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.pools import HOSTNAME, Level

# Annotation of a node: the digest of its shape, so that an unchanged node is not sent again.
SHAPE: Final = "gpu-tenancy.dev/embedded-shape"

OURS: Final = "gpu-tenancy.dev/embedded-node"  # label of the nodes that this module created and can delete

_PODS: Final = "110"  # the kubelet's default: https://kubernetes.io/docs/setup/best-practices/cluster-large/

_RACK: Final = 2
# Simulated nodes of a rack and of a block; real ones have more, but few nodes must show several of each.
_BLOCK: Final = 4

# Annotation by which metrics-server finds the usage of a node, because kwok answers for all nodes at one address.
_METRICS: Final = "metrics.k8s.io/resource-metrics-path"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node: its labels, taints and capacity, with Kubernetes quantities."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    capacity: Mapping[str, str]

    @property
    def manifest(self) -> Manifest:
        """The Node object, with the annotation by which kwok simulates it."""
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {**self.labels, HOSTNAME: self.name, OURS: "true"},
                "annotations": {
                    "kwok.x-k8s.io/node": "fake",
                    _METRICS: f"/metrics/nodes/{self.name}/metrics/resource",
                    SHAPE: sha256(repr(self).encode()).hexdigest()[:16],
                },
            },
            "spec": {"taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in self.taints]},
        }


def node_shapes(stack: Stack) -> tuple[NodeShape, ...]:
    """The nodes of a stack's pools, each pool at its maximum size."""
    pools = Environment(stack).pools.values()
    nodes: list[NodeShape] = []
    for pool, disk in ((pool.supply, pool.disk.size) for pool in pools if pool.supply):
        capacity = {**format_amounts(pool.node), "ephemeral-storage": format_bytes(disk), "pods": _PODS}
        for number in range(pool.max_nodes):
            labels = {**pool.node_labels, **_place(pool, number)}
            nodes.append(NodeShape(f"{pool.name}-{number}", labels, pool.taints, capacity))
    return tuple(nodes)


def _place(pool: PoolSupply, number: int) -> Mapping[str, str]:
    """The labels of a node's place in the network, as its cloud would set them."""
    sizes: dict[Level | None, int] = {"block": _BLOCK, "rack": _RACK, "node": 1}
    labels: dict[str, str] = {}
    size = max(1, pool.max_nodes)
    for level in pool.levels:
        size = sizes[level.level] if level.level else (1 if size == _RACK else size)
        labels[level.label] = f"{pool.name}-{level.level or 'part'}-{number // size}"
    labels.pop(HOSTNAME, None)
    return labels


def bring_nodes(cluster: Cluster, shapes: Sequence[NodeShape]) -> Counter[str]:
    """Creates, changes and deletes nodes (with pods) to match the shapes, and counts changes.

    Raises ConsoleError if a node is not ready in time, ApiError if the API server rejects one.
    """
    existing = {text_at(node, "metadata", "name"): node for node in cluster.list("v1", "Node", labels=OURS)}
    wanted = {shape.name for shape in shapes}
    stale = [Reference.of(node) for name, node in existing.items() if name not in wanted]

    def bring(shape: NodeShape) -> str:
        before = existing.get(shape.name)
        if before is not None and _current(before, shape):
            return "unchanged"
        after, resized = _put(cluster, shape.manifest, shape.capacity)
        if before is None:
            return "created"
        # Of the fields that we set; the resourceVersion changes with each heartbeat.
        fields = (("metadata", "labels"), ("spec", "taints"))
        return "changed" if resized or any(at(before, *field) != at(after, *field) for field in fields) else "unchanged"

    def all_ready() -> bool:
        nodes = cluster.list("v1", "Node", labels=OURS)
        return wanted <= {text_at(node, "metadata", "name") for node in nodes if _ready(node)}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cluster.delete, stale))
        changes = Counter(pool.map(bring, shapes))
    within = 60 + len(wanted) / 10  # ten times as long as kwok takes for that many on a quiet machine
    cluster.wait_for(all_ready, what=f"{len(wanted)} nodes to be ready", timeout=within)
    return changes + Counter({"pruned": len(stale)})


def add_node(cluster: Cluster, shape: NodeShape) -> None:
    """Adds a node outside of the pools, for the caller to delete; raises ConsoleError if it is not ready in time."""
    manifest = shape.manifest
    metadata = manifest["metadata"]
    if isinstance(metadata, dict) and isinstance(labels := metadata["labels"], dict):
        del labels[OURS]
    _put(cluster, manifest, shape.capacity)
    cluster.wait_for(lambda: _ready(cluster.get("v1", "Node", shape.name) or {}), what=f"node {shape.name} to be ready")


def _current(node: Mapping[str, Json], shape: NodeShape) -> bool:
    manifest, taints = shape.manifest, maps_at(node, "spec", "taints")
    return (
        all(
            map_at(manifest, "metadata", field).items() <= map_at(node, "metadata", field).items()
            for field in ("labels", "annotations")
        )
        and all(taint in taints for taint in maps_at(manifest, "spec", "taints"))
        and at(node, "status", "capacity") == dict(shape.capacity)
    )


def _put(cluster: Cluster, manifest: Manifest, capacity: Mapping[str, str]) -> tuple[Manifest, bool]:
    """Applies a node and its capacity; returns the node, and whether its capacity changed."""
    node = cluster.apply(manifest, force=True)
    amounts: Json = dict(capacity)
    if at(node, "status", "capacity") == amounts:
        return node, False
    # A merge patch keeps keys that it does not have, so those of removed resources are null.
    status: Json = {
        field: {**dict.fromkeys(map_at(node, "status", field)), **capacity} for field in ("capacity", "allocatable")
    }
    cluster.patch(Reference.of(manifest), {"status": status}, subresource="status")
    return node, True


def _ready(node: Mapping[str, Json]) -> bool:
    # On a node with the taints of new nodes no pod is scheduled.
    new = any(text_at(taint, "key").startswith("node.kubernetes.io/") for taint in maps_at(node, "spec", "taints"))
    return is_true(node, "Ready") and not new
