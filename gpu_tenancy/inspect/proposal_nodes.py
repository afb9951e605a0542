"""Pods with GPUs on nodes that a change takes away."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.inspect.pods import ended, label, name_of, namespace_of, requests
from gpu_tenancy.inspect.queues import Queues
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.model.plan.pools import POOL_LABEL


@dataclass(frozen=True, slots=True)
class SmallerPool:
    """A pool that will have fewer nodes than now run pods with GPUs.

    Attributes:
        nodes: the most that it may have after the change.
        busy: nodes of it that run pods with GPUs now.
        pods: those pods, as namespace and name; which of them end is the cloud's choice.
    """

    name: str
    nodes: int
    busy: int
    pods: tuple[str, ...]


def smaller_pools(now: State, nodes: Mapping[str, int]) -> tuple[SmallerPool, ...]:
    """The pools of a stack's nodes that will have too few nodes for what runs.

    Args:
        now: the cluster.
        nodes: the most nodes of each pool after the change; a pool that is not in it has none.
    """
    pools = {name_of(node): label(node, POOL_LABEL) for node in now.of("Node") if label(node, POOL_LABEL)}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, pod in _with_gpus(now):
        if node in pools:
            found[pools[node]][node].append(pod)
    return tuple(
        SmallerPool(pool, nodes.get(pool, 0), len(busy), tuple(sorted(pod for pods in busy.values() for pod in pods)))
        for pool, busy in sorted(found.items())
        if len(busy) > nodes.get(pool, 0)
    )


def on_removed_flavors(now: Queues, after: Queues) -> dict[str, tuple[str, ...]]:
    """Running pods with GPUs on nodes of flavors that go."""
    gone = {name_of(one) for one in now.state.of("ResourceFlavor")}
    gone -= {name_of(one) for one in after.state.of("ResourceFlavor")}
    found: dict[str, list[str]] = {}
    for node, pod in _with_gpus(now.state):
        flavor = now.flavor_by_node.get(node, "")
        if flavor in gone:
            found.setdefault(flavor, []).append(pod)
    return {flavor: tuple(sorted(pods)) for flavor, pods in sorted(found.items())}


def _with_gpus(state: State) -> Iterator[tuple[str, str]]:
    """Node, and namespace with name, of each pod with GPUs that runs."""
    for pod in state.of("Pod"):
        node = text_at(pod, "spec", "nodeName")
        if node and not ended(pod) and any(is_extended(name) for name in requests(map_at(pod, "spec"))):
            yield node, f"{namespace_of(pod)}/{name_of(pod)}"
