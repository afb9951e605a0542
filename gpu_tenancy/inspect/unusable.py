"""Guaranteed GPUs that no pod can have now: their nodes are not ready, cordoned or gone, or their devices unhealthy."""

from collections.abc import Collection, Iterator

from gpu_tenancy.base.json import at
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.inspect.pods import name_of
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.inspect.survey.facts import GpuNode
from gpu_tenancy.inspect.survey.supply import Facts, Pool


def unusable(state: State, flavors: Collection[str] | None = None, *, gone: bool = False) -> Iterator[str]:
    """A text for each pool of nodes whose queues are guaranteed more GPUs than can be used there.

    Args:
        state: of the cluster.
        flavors: those that matter; None for all.
        gone: whether nodes that do not exist are a reason, of which an autoscaler can add some.
    """
    if not (state.knows("Node") and state.knows("ClusterQueue")):
        return
    facts = Facts(state)
    for pool in facts.pools:
        if flavors is None or set(flavors) & set(pool.flavors):
            parts = [*_broken(facts, pool), *(_gone(facts, pool) if gone else ())]
            if pool.promised > pool.ready and parts:
                counted = f"queues are guaranteed {pool.promised} {pool.resource} of flavor {', '.join(pool.flavors)}"
                yield f"{counted}, {pool.ready} can be used: {'; '.join(parts)}"


def _broken(facts: Facts, pool: Pool) -> Iterator[str]:
    own = _nodes(facts, pool)
    cordoned = {name_of(node) for node in facts.state.of("Node") if at(node, "spec", "unschedulable") is True}
    for what, chosen in (
        ("cordoned", [node for node in own if not node.ready and node.name in cordoned]),
        ("not ready", [node for node in own if not node.ready and node.name not in cordoned]),
    ):
        if amount := sum(node.gpus.get(pool.resource, 0) for node in chosen):
            yield f"{amount} on nodes that are {what} ({_names(chosen)})"
    broken = [node for node in own if node.broken.get(pool.resource)]
    if broken:
        lost = sum(node.broken[pool.resource] for node in broken)
        yield f"{lost} that nodes do not offer: devices are unhealthy or have no plugin ({_names(broken)})"


def _gone(facts: Facts, pool: Pool) -> Iterator[str]:
    own = _nodes(facts, pool)
    gone = pool.promised - sum(node.gpus.get(pool.resource, 0) + node.broken.get(pool.resource, 0) for node in own)
    if own and gone > 0:
        yield f"{gone} on nodes that do not exist: they are gone, or an autoscaler has not added them"


def _nodes(facts: Facts, pool: Pool) -> list[GpuNode]:
    inside = frozenset[str]().union(*(facts.flavors.get(flavor, frozenset()) for flavor in pool.flavors))
    return [node for node in facts.nodes if node.name in inside]


def _names(nodes: Collection[GpuNode]) -> str:
    return first_names(sorted(node.name for node in nodes), 3)
