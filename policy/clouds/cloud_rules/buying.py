"""Rules for machine types, spot machines and costs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pydantic import Field

from cloud_rules.machines import Prices, matches
from cloud_rules.pools import MachineSource, NodePool
from cloud_rules.subjects import MACHINE_SOURCES, POOLS
from cloud_rules.tags import tag
from rule_engine import MUST, Settings, Severity, Stack, rule


class Allowed(Settings):
    """Machine types that are allowed in this environment."""

    allowed: list[str] = Field(["*"], description="Allowed machine types, as patterns (`g6.*`).")


@rule(
    "machine-allowed",
    rationale="A typing error or a copied example can buy a machine for a hundred dollars an hour.",
    fix="Choose an allowed machine type, or add it to the list.",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.HIGH,
    level=MUST,
    on=MACHINE_SOURCES,
)
def machine_allowed(part: MachineSource, settings: Allowed) -> Iterator[str]:
    """Nodes must use a machine type that is allowed in this environment."""
    if "*" in settings.allowed:
        return
    for machine in part.machines():
        if not any(matches(machine.name, pattern) for pattern in settings.allowed):
            yield f"{machine.name} is not an allowed machine type; use one of {', '.join(settings.allowed)}"


class SpotSettings(Settings):
    """Whether spot machines may be used."""

    spot: Literal["allowed", "forbidden"] = Field(
        "allowed", description=("Whether spot machines are `allowed` or `forbidden`; set `forbidden` in production.")
    )


@rule(
    "spot-outside-production",
    rationale="The cloud reclaims them when demand is high, which is often when your own load is high.",
    fix="Use on-demand machines or a reservation.",
    link="https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=MACHINE_SOURCES,
)
def spot_outside_production(part: MachineSource, settings: SpotSettings) -> Iterator[str]:
    """Spot and preemptible machines must be used only in environments that allow them."""
    if settings.spot == "forbidden" and part.spot:
        yield f"can use spot machines, which are not allowed in this environment; set {part.writes['spot']}"


class Budget(Prices):
    """Cost caps for node pools."""

    monthly: float = Field(0, ge=0, description="Monthly cap in USD for all node pools of a stack; 0 means no cap.")
    centers: dict[str, float] = Field(
        {}, description=("Monthly caps in USD for the node pools of a cost center, by its name.")
    )
    keys: list[str] = Field(
        ["cost-center"],
        description="Tag or label that names the cost center; case, `-` and `_` are ignored.",
    )


@dataclass(frozen=True, slots=True)
class _Cap:
    """A monthly cost cap in USD for several pools.

    Attributes:
        title: the pools, for messages.
        limit: USD per month.
        within: whether a pool counts.
    """

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


@rule(
    "pool-budget",
    rationale="Autoscalers can buy nodes up to the maximum, so the maximum is the cost of the worst month.",
    fix="Lower maximums, choose cheaper machines, or raise the cap.",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.HIGH,
    level=MUST,
    on=POOLS,
)
def pool_budget(pool: NodePool, settings: Budget, stack: Stack) -> Iterator[str]:
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
