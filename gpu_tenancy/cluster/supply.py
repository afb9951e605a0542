"""GPUs of a cluster: how many exist, are promised, used, idle, and held by pods that are on no node."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amounts
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cluster.facts import ClusterFacts, GpuNode
from gpu_tenancy.cluster.pods import name_of, namespace_of
from gpu_tenancy.cluster.reading import State


@dataclass(frozen=True, slots=True)
class Pool:
    """GPU nodes that the same flavors of Kueue count, or nodes of one model that no flavor counts.

    Attributes:
        flavors: several where their nodes overlap; empty for none.
        model: of the GPUs; empty where no label tells.
        nodes: names.
        exist: GPUs that the nodes offer.
        ready: of these, those of nodes that are ready and schedulable.
        promised: nominal quota of all ClusterQueues and Cohorts.
        used: requested by pods on the nodes.
        taints: that keep pods away from any of the nodes, as texts.
    """

    flavors: tuple[str, ...]
    model: str
    resource: str
    nodes: tuple[str, ...]
    exist: int
    ready: int
    promised: int
    used: int
    taints: tuple[str, ...] = ()

    @property
    def idle(self) -> int:
        """GPUs that no pod requests."""
        return max(0, self.exist - self.used)


@dataclass(frozen=True, slots=True)
class Total:
    """All GPUs of one resource name.

    Attributes:
        queues: nominal quota of Kueue.
        gangs: guaranteed by queues of Volcano.
        quotas: sum of the ResourceQuotas of all namespaces.
        held: requested by pods on no node that Kueue does not hold back.
    """

    resource: str
    exist: int
    ready: int
    queues: int
    gangs: int
    quotas: int
    used: int
    held: int

    @property
    def idle(self) -> int:
        """GPUs that no pod requests."""
        return max(0, self.exist - self.used)


@dataclass(frozen=True)
class Facts(ClusterFacts):
    """A cluster with the sums of its GPUs."""

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The GPU nodes of each flavor, then those without a flavor, by model."""
        return tuple(pool for resource in self.resources for pool in _pools(self, resource))

    @cached_property
    def totals(self) -> tuple[Total, ...]:
        """The sums of each GPU resource."""
        return tuple(_totals(self))


def _pools(facts: ClusterFacts, resource: str) -> Iterator[Pool]:
    nominal = {flavor: amount for (flavor, name), amount in facts.promised.items() if name == resource}
    offering = frozenset(node.name for node in facts.nodes if node.gpus.get(resource))
    counted = {flavor: facts.flavors.get(flavor, frozenset[str]()) & offering for flavor in sorted(nominal)}
    for flavors, nodes in _overlapping(counted):
        if nodes or any(nominal[flavor] for flavor in flavors):
            yield _pool(facts, resource, nodes, flavors, sum(nominal[flavor] for flavor in flavors))
    models: dict[str, set[str]] = defaultdict(set)
    for node in facts.nodes:
        if node.name in offering and not any(node.name in nodes for nodes in counted.values()):
            models[node.model].add(node.name)
    for _, names in sorted(models.items()):
        yield _pool(facts, resource, frozenset(names), (), 0)


def _overlapping(nodes: Mapping[str, frozenset[str]]) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    """Flavors with the nodes that they share, together."""
    groups: list[tuple[tuple[str, ...], frozenset[str]]] = []
    for flavor, own in nodes.items():
        same = [group for group in groups if group[1] & own]
        groups = [group for group in groups if group not in same]
        names = (*(name for group in same for name in group[0]), flavor)
        groups.append((names, own.union(*(group[1] for group in same))))
    return groups


def _pool(facts: ClusterFacts, resource: str, nodes: frozenset[str], flavors: tuple[str, ...], nominal: int) -> Pool:
    own = [node for node in facts.nodes if node.name in nodes]
    models = sorted({node.model for node in own} - {""})
    return Pool(
        flavors=flavors,
        model=", ".join(models),
        resource=resource,
        nodes=tuple(sorted(nodes)),
        exist=facts.total(resource, nodes=nodes),
        ready=facts.total(resource, nodes=nodes, ready=True),
        promised=nominal,
        used=sum(facts.used.get((node, resource), 0) for node in nodes),
        taints=tuple(sorted({facts.name.taint(taint) for node in own for taint in node.taints})),
    )


def unplaced(facts: ClusterFacts) -> Iterator[tuple[dict[str, int], bool, str, str]]:
    """What pods on no node request: GPUs, whether gates hold them back, namespace and name.

    Pods that Kueue gates until it admits them are not among them.
    """
    for pod, wanted in facts.gpu_pods:
        gates = {text_at(gate, "name") for gate in maps_at(pod, "spec", "schedulingGates")}
        if not text_at(pod, "spec", "nodeName") and not any(gate.startswith("kueue.x-k8s.io/") for gate in gates):
            yield wanted, bool(gates), namespace_of(pod), name_of(pod)


def _totals(facts: ClusterFacts) -> Iterator[Total]:
    nominal, by_node = facts.promised, facts.used
    guaranteed = add(*(queue.guarantee for queue in facts.gangs))
    quotas = add(*(amounts(at(quota, "spec", "hard")) for quota in facts.state.of("ResourceQuota")))
    held = add(*(wanted for wanted, _, _, _ in unplaced(facts)))
    return (
        Total(
            resource=resource,
            exist=facts.total(resource),
            ready=facts.total(resource, ready=True),
            queues=sum(amount for (_, name), amount in nominal.items() if name == resource),
            gangs=guaranteed.get(resource, 0),
            quotas=quotas.get(f"requests.{resource}", 0),
            used=sum(amount for (_, name), amount in by_node.items() if name == resource),
            held=held.get(resource, 0),
        )
        for resource in facts.resources
    )


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
