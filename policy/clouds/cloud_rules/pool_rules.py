"""Rules for node pools: taints, numbers of nodes, owners, machines, costs, and credentials of nodes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from cloud_rules.coverage import AKS_POOLS, GKE_POOLS, MACHINE_SOURCES, NODES, POOLS, SCALERS, SERVERS, TAGGED
from cloud_rules.gcp import GkePool
from cloud_rules.pools import REPELLING_EFFECTS, Machines, MachineSource, NodePool, Nodes, Prices, matches
from cloud_rules.tags import plain, tag, tags, where
from rule_engine import Part, Resource, Settings, Stack, View, format_number, rule


class _Taints(Machines):
    taints: list[str] = Field(["*gpu*", "sku"])
    """Keys of taints that keep workloads without GPUs off, as patterns; `sku` is the key in Azure's documentation."""


@rule("gpu-pool-tainted", POOLS)
def gpu_pool_tainted(pool: NodePool, settings: _Taints, stack: Stack) -> Iterator[str]:
    """A GPU node pool must have a taint that keeps pods without GPUs off."""
    if pool.gpus(settings, stack) == 0:
        return
    keys = [taint.key for taint in pool.all_taints(stack) if taint.effect in REPELLING_EFFECTS]
    if not any(fnmatchcase(key, pattern) for key in keys for pattern in settings.taints):
        yield f"its GPU nodes have no taint that keeps other pods off; set {pool.taint_fix(settings, stack)}"


@rule("system-off-gpu-pools", POOLS)
def system_off_gpu_pools(pool: NodePool, settings: Machines, stack: Stack) -> Iterator[str]:
    """A GPU node pool must not run the cluster's system pods."""
    if pool.for_system and pool.gpus(settings, stack) != 0:
        yield "has GPUs and runs AKS system pods (mode System); set mode: User, and add a system pool without GPUs"


# Numbers of nodes.


class _Caps(Machines):
    nodes: int = Field(0, ge=0)
    """Maximum number of nodes of a pool; 0 means no limit."""
    gpus: int = Field(0, ge=0)
    """Maximum number of GPUs of a pool; 0 means no limit."""


@rule("pool-maximum", POOLS)
def pool_maximum(pool: NodePool, settings: _Caps, stack: Stack) -> Iterator[str]:
    """A node pool must have a maximum number of nodes or resources, within this environment's limits."""
    field = pool.writes["maximum"]
    if not pool.bounded:
        yield f"has no maximum number of nodes; set {field}"
        return
    nodes = pool.maximum if settings.nodes else None
    if nodes is not None and nodes > settings.nodes:
        yield (
            f"maximum of {format_number(nodes)} nodes exceeds the limit of {settings.nodes} nodes for a pool in this"
            f" environment; lower {field}"
        )
    if not settings.gpus:
        return
    gpus = pool.maximum_gpus(settings, stack)
    if gpus is None:
        yield f"has no maximum number of GPUs; set {field}"
    elif gpus > settings.gpus:
        yield (
            f"maximum of {format_number(gpus)} GPUs exceeds the limit of {settings.gpus} GPUs for a pool in this"
            f" environment; lower {field}"
        )


class _MinimumSettings(Machines):
    required: bool = False
    """Whether idle pools must be empty; set true outside production."""


@rule("pool-minimum-zero", POOLS)
def pool_minimum_zero(pool: NodePool, settings: _MinimumSettings, stack: Stack) -> Iterator[str]:
    """A GPU node pool must scale to zero when it is idle; one with a server that always runs is not."""
    if not settings.required or pool.gpus(settings, stack) == 0:
        return
    if (minimum := pool.minimum) and not stack.first(SERVERS, lambda server: _stays_on(pool, server.view, stack)):
        field = pool.writes["minimum"]
        count = format_number(minimum)
        yield f"minimum {pool.counted} is {count}, so idle nodes are kept; set {field}: 0, with an autoscaler"


def _stays_on(pool: NodePool, server: View, stack: Stack) -> bool:
    """Whether a server has replicas at all times, on nodes with labels of the pool."""
    template = ("template",) if server.has("spec", "template") else ("leaderWorkerTemplate", "workerTemplate")
    wanted = server.string_map("spec", *template, "spec", "nodeSelector")
    if not (wanted and wanted.items() <= pool.labels.items()) or server.number("spec", "replicas") == 0:
        return False
    name = server.text("metadata", "name")

    def ends(scaler: Part) -> bool:
        spec = scaler.view.at("spec")
        return spec.text("scaleTargetRef", "name") == name and not spec.number("minReplicaCount")

    return server.has("spec", "replicas") or not stack.first(SCALERS, ends)


@rule("size-left-to-autoscaler", POOLS)
def size_left_to_autoscaler(pool: NodePool, _: Settings) -> Iterator[str]:
    """If an autoscaler manages the number of nodes, a deployment must not set it."""
    if path := pool.fixed_size:
        yield f"{path} resets the number of nodes at each deployment; remove it, or add it to ignoreChanges"


# What the clouds accept, and what then does not work.


@rule("fabric-in-one-zone", POOLS)
def fabric_in_one_zone(pool: NodePool, settings: Machines, stack: Stack) -> Iterator[str]:
    """A GPU node pool with EFA, GPUDirect or InfiniBand must be in one zone."""
    if pool.gpus(settings, stack) == 0 or not (fabric := pool.fabric(stack)):
        return
    if (zones := pool.zones(stack)) > 1:
        yield f"{fabric} connects only nodes of one zone, but they can be in {zones}; set {pool.writes['zone']}"


@rule("reserved-pool-without-surge", POOLS)
def reserved_pool_without_surge(pool: NodePool, settings: Machines, stack: Stack) -> Iterator[str]:
    """An update of a reserved GPU node pool must not add nodes."""
    if pool.gpus(settings, stack) != 0 and pool.surges and pool.reserved(stack):
        yield f"adds nodes in an upgrade, for which the reservation may have no machines; set {pool.writes['update']}"


@rule("queued-pool-without-reservation", GKE_POOLS)
def queued_pool_without_reservation(pool: NodePool, _: Settings) -> Iterator[str]:
    """A GKE node pool with queued provisioning must use no reservation."""
    if not isinstance(pool, GkePool) or not pool.view.flag("queuedProvisioning", "enabled"):
        return
    if pool.affinity != "NO_RESERVATION":
        yield (
            f"queued provisioning with reservationAffinity {pool.affinity or 'ANY_RESERVATION (default)'}; set"
            " nodeConfig.reservationAffinity.consumeReservationType: NO_RESERVATION"
        )


@rule("aks-driver-by-profile", AKS_POOLS)
def aks_driver_by_profile(pool: NodePool, _: Settings) -> Iterator[str]:
    """An AKS node pool must turn off the GPU driver in its GPU profile, not by a tag."""
    for tag_name in pool.view.entries("tags"):
        if tag_name.lower() == "skipgpudriverinstall":
            yield f"tag {tag_name} has no effect, so AKS installs a driver; set gpuProfile.driver: None, and remove it"


# Owners, machines and costs.


class _Owners(Settings):
    keys: list[str] = Field(["owner", "cost-center", "environment"])
    """Required tags or labels; case, `-` and `_` are ignored (`CostCenter`)."""


@rule("owner-tags", TAGGED)
def owner_tags(resource: Resource, settings: _Owners) -> Iterator[str]:
    """Clusters and node pools must have tags for their owner and cost center."""
    present = {plain(key): view for key, view in tags(resource).items()}
    missing = [key for key in settings.keys if plain(key) not in present or not present[plain(key)].text().strip()]
    if missing:
        yield f"missing tags or labels: {', '.join(missing)}; add them under {where(resource)}"


class _Allowed(Settings):
    allowed: list[str] = Field(["*"])
    """Allowed machine types, as patterns (`g6.*`)."""


@rule("machine-allowed", MACHINE_SOURCES)
def machine_allowed(part: MachineSource, settings: _Allowed) -> Iterator[str]:
    """Nodes must use a machine type that is allowed in this environment."""
    if "*" in settings.allowed:
        return
    for machine in part.machines():
        if not any(matches(machine.name, pattern) for pattern in settings.allowed):
            yield f"{machine.name} is not an allowed machine type; use one of {', '.join(settings.allowed)}"


class _SpotSettings(Settings):
    spot: Literal["allowed", "forbidden"] = "allowed"
    """Whether spot machines are `allowed` or `forbidden`; set `forbidden` in production."""


@rule("spot-outside-production", MACHINE_SOURCES)
def spot_outside_production(part: MachineSource, settings: _SpotSettings) -> Iterator[str]:
    """Spot and preemptible machines must be used only in environments that allow them."""
    if settings.spot == "forbidden" and part.spot:
        yield f"can use spot machines, which are not allowed in this environment; set {part.writes['spot']}"


class _Budget(Prices):
    monthly: float = Field(0, ge=0)
    """Monthly cap in USD for all node pools of a stack; 0 means no cap."""
    centers: dict[str, float] = Field({})
    """Monthly caps in USD for the node pools of a cost center, by its name."""
    keys: list[str] = Field(["cost-center"])
    """Tag or label that names the cost center; case, `-` and `_` are ignored."""


@dataclass(frozen=True, slots=True)
class _Cap:
    """A monthly cost cap in USD for the pools that are within; messages show the title."""

    title: str
    limit: float
    within: Callable[[NodePool], bool]


def _over(pool: NodePool, stack: Stack, prices: Prices, cap: _Cap) -> Iterator[str]:
    """The excess over a cap, reported on the first of its pools; pools with unknown cost report this themselves."""
    pool.monthly(prices, stack)
    known_costs = stack.known_values(POOLS, lambda other: other.monthly(prices, stack) if cap.within(other) else None)
    costs = ((other, cost) for other, cost in known_costs if cost is not None)
    first = next(costs)
    if first[0] is not pool:
        return
    pool_costs = [first, *costs]
    total = sum((cost for _, cost in pool_costs), Decimal(0))
    if total > Decimal(str(cap.limit)):
        most_expensive = sorted(pool_costs, key=lambda pair: -pair[1])[:3]
        listed = ", ".join(f"{other.place} {cost:,.0f}" for other, cost in most_expensive)
        yield (
            f"{cap.title} cost up to {total:,.0f} USD a month, which exceeds the cap of {cap.limit:,.0f} USD; lower"
            f" maximums (most expensive: {listed})"
        )


@rule("pool-budget", POOLS)
def pool_budget(pool: NodePool, settings: _Budget, stack: Stack) -> Iterator[str]:
    """The monthly cost of node pools at their maximum (730 hours) must not exceed the cap."""
    if settings.monthly:
        yield from _over(pool, stack, settings, _Cap("all node pools", settings.monthly, lambda _: True))
    if not settings.centers:
        return
    center = tag(pool.resource, settings.keys)
    if center in settings.centers:
        title = f"node pools of cost center {center}"
        cap = _Cap(title, settings.centers[center], lambda other: tag(other.resource, settings.keys) == center)
        yield from _over(pool, stack, settings, cap)


class _Metadata(Settings):
    hops: int = Field(1, ge=1)
    """Maximum number of hops of a metadata response on AWS; pods are two hops away."""


@rule("imds-v2", NODES)
def imds_v2(nodes: Nodes, settings: _Metadata) -> Iterator[str]:
    """Pods must not reach the credentials of their node through the cloud's metadata service."""
    return nodes.metadata(settings.hops)
