"""Rules for how many nodes a pool has."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from cloud_rules.machines import Machines
from cloud_rules.pools import NodePool
from cloud_rules.subjects import POOLS
from judge import ADVICE, MUST, AnyRule, Rule, Settings, Severity, Stack, shown

_DOCS: Final = "https://kubernetes.io/docs/concepts/cluster-administration/node-autoscaling/"


class Caps(Machines):
    """What a pool may reach in this environment."""

    nodes: int = Field(0, ge=0, description="Nodes that a pool may have at most; 0 is no bound.")
    gpus: int = Field(0, ge=0, description="GPUs that a pool may have at most; 0 is no bound.")


def _maximum(pool: NodePool, settings: Caps, stack: Stack) -> Iterator[str]:
    where = pool.writes["maximum"]
    if not pool.bounded:
        yield f"nothing bounds its nodes; write {where}"
        return
    nodes = pool.maximum if settings.nodes else None
    if nodes is not None and nodes > settings.nodes:
        yield f"may have {shown(nodes)} nodes, and a pool has at most {settings.nodes} here; lower {where}"
    if not settings.gpus:
        return
    gpus = pool.maximum_gpus(settings, stack)
    if gpus is None:
        yield f"nothing bounds its GPUs; write {where}"
    elif gpus > settings.gpus:
        yield f"may have {shown(gpus)} GPUs, and a pool has at most {settings.gpus} here; lower {where}"


POOL_MAXIMUM: Final = Rule(
    name="pool-maximum",
    says="A node pool has a maximum, of nodes or of what they bring, within this environment's bounds.",
    why="A mistake in one job buys nodes until the account's quota ends it.",
    mend="Write the maximum that the work needs.",
    link=_DOCS,
    severity=Severity.HIGH,
    level=MUST,
    on=POOLS,
    judge=_maximum,
    settings=Caps,
    whole=True,
)


class MinimumSettings(Machines):
    """Whether GPU nodes may be kept."""

    asked: bool = Field(default=False, description="Whether it must be so; outside production.")


def _minimum(pool: NodePool, settings: MinimumSettings, stack: Stack) -> Iterator[str]:
    if not settings.asked or pool.gpus(settings, stack) == 0:
        return
    if least := pool.minimum:
        where = pool.writes["minimum"]
        yield f"keeps {shown(least)} of its nodes while nobody asks; write {where}: 0, with an autoscaler"


POOL_MINIMUM_ZERO: Final = Rule(
    name="pool-minimum-zero",
    says="A node pool with GPUs is empty while nobody asks for them.",
    why="GPUs that nobody uses cost what used ones do, by night and at weekends too.",
    mend="Let an autoscaler own the pool, from zero.",
    link=_DOCS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=POOLS,
    judge=_minimum,
    settings=MinimumSettings,
    whole=True,
)


def _left_to_autoscaler(pool: NodePool, _: Settings) -> Iterator[str]:
    if said := pool.fixed_size:
        yield f"{said} sets its nodes against the autoscaler at each deployment; leave it out, or ignore changes of it"


SIZE_LEFT_TO_AUTOSCALER: Final = Rule(
    name="size-left-to-autoscaler",
    says="Where an autoscaler owns the number of nodes, no deployment sets it.",
    why="A deployment then ends nodes that run jobs, or buys nodes that nobody asked for.",
    mend="Leave the number out, or name it under `ignoreChanges`.",
    link="https://www.pulumi.com/docs/iac/concepts/options/ignorechanges/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POOLS,
    judge=_left_to_autoscaler,
    settings=Settings,
)

RULES: Final[tuple[AnyRule, ...]] = (POOL_MAXIMUM, POOL_MINIMUM_ZERO, SIZE_LEFT_TO_AUTOSCALER)
