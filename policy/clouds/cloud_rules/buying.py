"""Rules for which machines are bought, how, and for how much."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final, Literal

from pydantic import Field

from cloud_rules.machines import HOURS, Prices
from cloud_rules.pools import Bought, NodePool
from cloud_rules.subjects import BOUGHT, POOLS
from cloud_rules.tags import tag
from judge import MUST, AnyRule, Rule, Settings, Severity, Stack


class Allowed(Settings):
    """Machines of this environment."""

    allowed: list[str] = Field(["*"], description="Types of machine that pools may have, as patterns (`g6.*`).")


def _allowed(part: Bought, settings: Allowed) -> Iterator[str]:
    if "*" in settings.allowed:
        return
    for machine in part.machines():
        if not any(fnmatchcase(machine.name, pattern) for pattern in settings.allowed):
            yield f"{machine.name} is none of the machines of this environment ({', '.join(settings.allowed)})"


MACHINE_ALLOWED: Final = Rule(
    name="machine-allowed",
    says="Nodes are of the types of machine that this environment has.",
    why="A typing error, or a copied example, buys a machine of a hundred dollars an hour.",
    mend="Choose a machine of the list, or have the list changed.",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.HIGH,
    level=MUST,
    on=BOUGHT,
    judge=_allowed,
    settings=Allowed,
)


class SpotSettings(Settings):
    """Whether machines may be taken away."""

    spot: Literal["allowed", "forbidden"] = Field("allowed", description="`forbidden` in production.")


def _spot(part: Bought, settings: SpotSettings) -> Iterator[str]:
    if settings.spot == "forbidden" and part.spot:
        yield f"may have spot machines, which this environment does not allow; write {part.writes['spot']}"


SPOT_OUTSIDE_PRODUCTION: Final = Rule(
    name="spot-outside-production",
    says="Machines that the cloud may take away at any time are for environments that allow it.",
    why="The cloud takes them when demand is high, which is when your users are many too.",
    mend="Buy the machines on demand or by a reservation.",
    link="https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=BOUGHT,
    judge=_spot,
    settings=SpotSettings,
)


class Budget(Prices):
    """What node pools may cost."""

    monthly: float = Field(0, ge=0, description="USD a month for all node pools of a stack; 0 is no cap.")
    centers: dict[str, float] = Field({}, description="USD a month for the node pools of a cost center, by its name.")
    keys: list[str] = Field(
        ["cost-center"],
        description="Tag or label that names the cost center; capitals, `-` and `_` do not matter.",
    )


def _budget(pool: NodePool, settings: Budget, stack: Stack) -> Iterator[str]:
    if settings.monthly:
        yield from _over(pool, stack, settings, _Cap("all node pools", settings.monthly, lambda _: True))
    if not settings.centers:
        return
    center = tag(pool.resource, settings.keys)
    if center in settings.centers:
        words = f"node pools of cost center {center}"
        cap = _Cap(words, settings.centers[center], lambda each: tag(each.resource, settings.keys) == center)
        yield from _over(pool, stack, settings, cap)


@dataclass(frozen=True, slots=True)
class _Cap:
    """USD a month for some pools together."""

    words: str
    most: float
    within: Callable[[NodePool], bool]


def _over(pool: NodePool, stack: Stack, prices: Prices, cap: _Cap) -> Iterator[str]:
    """What is over a cap, said of the first of its pools; a pool whose cost cannot be told says so itself."""
    pool.monthly(prices, stack)
    asked = stack.told(POOLS, lambda each: each.monthly(prices, stack) if cap.within(each) else None)
    costs = ((each, cost) for each, cost in asked if cost is not None)
    first = next(costs, None)
    if first is None or first[0] is not pool:
        return
    found = [first, *costs]
    total = sum((cost for _, cost in found), Decimal(0))
    if total > Decimal(str(cap.most)):
        dearest = sorted(found, key=lambda each: -each[1])[:3]
        shown = ", ".join(f"{each.place} {cost:,.0f}" for each, cost in dearest)
        yield (
            f"{cap.words} cost up to {total:,.0f} USD a month, and {cap.most:,.0f} are allowed; lower maximums"
            f" (the dearest: {shown})"
        )


POOL_BUDGET: Final = Rule(
    name="pool-budget",
    says=f"What node pools cost at their maximum, for {HOURS} hours, is within the cap of the month.",
    why="Autoscalers buy up to their maximum: that is what a bad month costs.",
    mend="Lower maximums, choose cheaper machines, or have the cap raised.",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.HIGH,
    level=MUST,
    on=POOLS,
    judge=_budget,
    settings=Budget,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (MACHINE_ALLOWED, SPOT_OUTSIDE_PRODUCTION, POOL_BUDGET)
