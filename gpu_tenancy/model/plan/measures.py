"""Which resources reports and simulations count in each flavor: GPUs, or CPU and memory where nodes have no GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.shares import Tree


@dataclass(frozen=True, slots=True, order=True)
class Measure:
    """One resource of one flavor that is counted.

    Attributes:
        flavor: name of the flavor.
        resource: its GPUs' resource, or `cpu` or `memory` of a flavor without GPUs.
    """

    flavor: str
    resource: str

    @property
    def label(self) -> str:
        """The flavor's name, with the resource where it has no GPUs: `a100`, `general CPUs`, `general memory`.

        Of a flavor that is named `cpu`, the resource alone: `CPUs`, `memory`.
        """
        noun = {CPU: "CPUs", MEMORY: "memory"}.get(self.resource)
        if noun is None:
            return self.flavor
        return noun if self.flavor == CPU else f"{self.flavor} {noun}"


def flavor_of(label: str, resource: str) -> str:
    """The flavor that a `Measure.label` of a resource names."""
    return label.rpartition(" ")[0] or CPU if resource in (CPU, MEMORY) else label


def measures(tree: Tree) -> tuple[Measure, ...]:
    """What is counted in a stack, in the order of its flavors, GPUs first.

    A flavor without GPUs is counted where a team's share of it matters: see `measures_of`.
    """
    used = {measure.flavor for queue in tree.team_shares for measure in measures_of(tree, queue)}
    with_gpus = [Measure(name, flavor.resource) for name, flavor in tree.flavors.items() if flavor.resource]
    without = [name for name, flavor in tree.flavors.items() if flavor.resource is None and name in used]
    return (*with_gpus, *(Measure(name, resource) for name in without for resource in (CPU, MEMORY)))


def measures_of(tree: Tree, queue: str) -> Iterator[Measure]:
    """What is counted of a queue: its GPUs, and flavors without GPUs if it has quota there or has no GPUs at all.

    Queues with GPUs may use all CPU nodes by default, so that a share of them which the stack does not set is no news.
    """
    shares, spec = tree.team_shares[queue], tree.stack.teams[queue]
    own = [
        Measure(name, resource)
        for name, resources in shares.items()
        if (resource := tree.flavors[name].resource) and resource in resources
    ]
    yield from own
    for name, resources in shares.items():
        if tree.flavors[name].resource is None and (name in spec.quota or not own):
            yield from (Measure(name, resource) for resource in (CPU, MEMORY) if resource in resources)


def supply_of(tree: Tree, measure: Measure) -> int:
    """What the queues share: the maximum of the flavor's pools, without what is reserved for Volcano's gangs."""
    return tree.supply(measure.flavor).get(measure.resource, 0)
