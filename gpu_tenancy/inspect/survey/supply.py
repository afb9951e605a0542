"""GPUs of a cluster: how many exist, are promised, used, idle, and held by pods that are on no node."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpu_tenancy.base.amounts import amounts
from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.quantity import add
from gpu_tenancy.inspect.pods import name_of, namespace_of
from gpu_tenancy.inspect.survey.facts import ClusterFacts


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
