"""The monthly bill of a stack: what is always billed, and what is billed when guarantees and when limits are used."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from gpu_tenancy.base.usd import NONE, Usd
from gpu_tenancy.model.catalogue import Machine, find_machine
from gpu_tenancy.model.catalogue.clouds import boot_disk, rules_of
from gpu_tenancy.model.outlook.shares import HOURS
from gpu_tenancy.model.plan.costs import OWN, PriceOf, counted_on_demand, fixed_costs, pool_costs, storage_price
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.shares import Measure, Tree
from gpu_tenancy.model.plan.storage import service_of
from gpu_tenancy.model.spec.clouds.azure import AzureCluster

Need: TypeAlias = tuple[Measure, int, int]  # guarantees and limits of a resource of a flavor
_FIGURES: Final = range(3)
_GIB: Final = 2**30
_EVERYWHERE: Final = frozenset({"", "all"})


@dataclass(frozen=True, slots=True)
class BillLine:
    """A part of the bill in US dollars per month; numbers and costs are in the order of `Bill.figures`."""

    part: str  # such as `GPU nodes`, `boot disks`, `control plane`
    title: str
    numbers: tuple[int, ...]  # of nodes, of GiB, or of the part itself
    costs: tuple[Usd, ...]
    source: str
    region: str  # of the price; empty for a price of the stack

    @classmethod
    def of(cls, part: str, title: str, numbers: Iterable[int], month: float, price: PriceOf) -> Self:
        """A line of parts that cost `price` each, for `month` units of time."""
        usd, amounts = None if price.usd is None else price.usd * month, tuple(numbers)
        costs = tuple(Usd.of(number, usd, re.split(r"[,(]", title)[0].strip()) for number in amounts)
        return cls(part, title, amounts, costs, price.source, price.region)

    @property
    def number(self) -> str:
        """`2`, or `0, 1, 4` if the figures have different numbers."""
        return ", ".join(map("{:,}".format, self.numbers if len(set(self.numbers)) > 1 else self.numbers[:1]))


@dataclass(frozen=True, slots=True)
class BillFigure:
    """One of the three figures of a bill, in US dollars per month."""

    label: str
    usd: Usd
    means: str

    @property
    def about(self) -> str:
        """What it has, and which prices it lacks."""
        return "; ".join([*([f"no price: {', '.join(self.usd.unpriced)}"] if self.usd.unpriced else []), self.means])

    @property
    def line(self) -> str:
        """`monthly cost, guarantees: at least $98,112; no price: h200; with the nodes of all guarantees`."""
        return f"{self.label}: {self.usd}; {self.about}"


@dataclass(frozen=True, slots=True)
class Bill:
    """The parts of the bill, and sentences about what is in none of them and about the prices."""

    lines: tuple[BillLine, ...]
    figures: tuple[BillFigure, ...]  # always billed, guarantees and limits; each includes the one before
    notes: tuple[str, ...]


def bill(tree: Tree, needs: Iterable[Need]) -> Bill:
    """The bill of a stack whose flavors have these guarantees and limits."""
    lines = tuple(line for line in _lines(tree, tuple(needs)) if any(line.numbers))
    kinds = {pool.pool.capacity.kind for pool in tree.pools.values() if pool.grows}
    whole = ", reserved ones whole" if "reserved" in kinds else ""
    always, guaranteed, limit = (sum((line.costs[index] for line in lines), NONE) for index in _FIGURES)
    parts = ", ".join(dict.fromkeys(line.part for line in lines)) or "nothing"
    figures = (
        BillFigure("monthly cost, always billed", always, f"pools at their minimum{whole}: {parts}"),
        BillFigure("monthly cost, guarantees", guaranteed, "with the nodes of all guarantees"),
        BillFigure("monthly cost, limits", limit, "with the nodes of all limits, at most those of the pools"),
    )
    return Bill(lines, figures, tuple(_notes(tree, lines)))


def _lines(tree: Tree, needs: tuple[Need, ...]) -> Iterator[BillLine]:
    costs = {cost.pool: cost for cost in pool_costs(tree)}
    always = {name: cost.always for name, cost in costs.items()}
    disks: dict[str, list[int]] = {}  # GiB by kind
    for flavor in tree.flavors.values():
        nodes = _nodes(flavor, [need for need in needs if need[0].flavor == flavor.name], always)
        for pool in (tree.pools[name] for name in nodes if name in tree.pools):
            part = "GPU nodes" if flavor.resource else "CPU nodes"
            title = f"{pool.name} ({pool.machine.name if pool.machine else 'custom nodes'})"
            yield BillLine.of(part, title, nodes[pool.name], HOURS, costs[pool.name].price)
            _add_disks(disks, tree, pool.machine, pool.pool.disk.size, nodes[pool.name])
    for fixed in fixed_costs(tree.stack):
        yield BillLine.of(fixed.title.partition(",")[0], fixed.title, [fixed.number] * 3, HOURS, fixed.price)
    if creation := tree.stack.cluster.creation:
        machine = find_machine(creation.system.machine, tree.stack.cluster.cloud)
        _add_disks(disks, tree, machine, boot_disk(tree.stack.cluster.cloud).system, [creation.system.nodes.min] * 3)
    for kind, gib in disks.items():
        price = storage_price(tree.stack.cluster.cloud, tree.stack.prices, kind)
        yield BillLine.of("boot disks", f"boot disks ({kind}), GiB", gib, 1, price)
    yield from _storage(tree)


def _add_disks(
    disks: dict[str, list[int]], tree: Tree, machine: Machine | None, size: int, nodes: Iterable[int]
) -> None:
    disk = rules_of(tree.stack.cluster.cloud).boot_disk
    if tree.stack.cluster.NODES_MADE and machine and disk:
        kind = disk.kind_of(machine.type)
        more = (number * -(-size // _GIB) for number in nodes)
        disks[kind] = [gib + added for gib, added in zip(disks.get(kind, [0] * 3), more, strict=True)]


def _storage(tree: Tree) -> Iterator[BillLine]:
    """The claims of teams, by their class."""
    stack, sizes = tree.stack, Counter[tuple[str, str]]()
    for storage in (storage for team in stack.teams.values() for storage in team.storage.values()):
        kind, service = service_of(stack.cluster, storage)
        sizes[storage.storage_class or kind, stack.cluster.cloud if service else ""] += -(-storage.size // _GIB)
    for (kind, cloud), gib in sizes.items():
        price = storage_price(cloud, stack.prices, kind)
        yield BillLine.of("storage", f"storage ({kind or 'default StorageClass'}), GiB", [gib] * 3, 1, price)


def _nodes(flavor: Flavor, needs: Sequence[Need], always: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Nodes of each pool for the three figures: the minimum, and more in the order of the pools until the needs fit.

    Reserved nodes are billed whether they run or not. Of a flavor without needs, limits are all nodes: teams with GPUs
    may use CPU nodes without a quota of their own.
    """
    found: dict[str, list[int]] = {}
    for figure in _FIGURES:
        missing = {
            measure.resource: (0, *amounts)[figure] + flavor.caches.total.get(measure.resource, 0)
            for measure, *amounts in needs
        }
        for pool in flavor.pools:
            nodes = always[pool.name]
            missing = {name: amount - nodes * pool.node.get(name, 0) for name, amount in missing.items()}
            found.setdefault(pool.name, []).append(nodes)
        for pool in flavor.pools if figure else ():
            wanted = [-(-amount // pool.node[name]) for name, amount in missing.items() if pool.node.get(name)]
            more = max(wanted, default=pool.max_nodes if figure == _FIGURES[-1] and not needs else 0)
            more = max(0, min(more, pool.max_nodes - found[pool.name][figure]))
            found[pool.name][figure] += more
            missing = {name: amount - more * pool.node.get(name, 0) for name, amount in missing.items()}
    return {name: tuple(numbers) for name, numbers in found.items()}


def _not_counted(tree: Tree) -> Iterator[str]:
    cluster = tree.stack.cluster
    if cluster.creation:
        yield "audit logs"
    else:
        yield "control plane and system nodes of the existing cluster"
    if not cluster.NODES_MADE:
        yield "boot disks"
    if tree.stack.elsewhere:
        yield "nodes of worker clusters"
    homes = ["homes of notebooks"] if any(team.notebooks for team in tree.stack.teams.values()) else []
    yield from ("volumes of operators", *homes, "datasets", "snapshots", "traffic")


def _notes(tree: Tree, lines: Iterable[BillLine]) -> Iterator[str]:
    """Whose region prices are of if it is not the stack's, what is not counted, and the sources of the prices."""
    cluster = tree.stack.cluster
    own = cluster.location if isinstance(cluster, AzureCluster) else getattr(cluster, "region", "")
    parts: dict[str, dict[str, None]] = {}
    sources: dict[str, None] = {}
    for line in lines:
        if line.region not in {own, *_EVERYWHERE}:
            parts.setdefault(line.region, {})[line.part] = None
        if line.source:
            sources["the stack" if line.source == OWN else f"{line.region}, {line.source}"] = None
    if parts:
        where = " and ".join(f"{region} ({', '.join(named)})" for region, named in parts.items())
        stack = f"the stack is in {own}" if own else "the region of the cluster is unknown"
        yield f"Prices are of {where}, {stack}; set your own under gpu-tenancy:prices"
    yield f"Not counted: {', '.join(_not_counted(tree))}"
    if spot := [name for name, pool in tree.pools.items() if counted_on_demand(tree.stack, pool)]:
        yield f"Spot nodes of {', '.join(spot)} at the price on demand, the most that they cost"
    if sources:
        yield f"Prices: {'; '.join(sources)}"
