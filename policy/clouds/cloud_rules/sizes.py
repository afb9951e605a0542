"""Rules for the number of nodes of a pool."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from cloud_rules.machines import Machines
from cloud_rules.pools import NodePool
from cloud_rules.subjects import POOLS
from rule_engine import ADVICE, MUST, Settings, Severity, Stack, format_number, rule

_DOCS: Final = "https://kubernetes.io/docs/concepts/cluster-administration/node-autoscaling/"


class Caps(Machines):
    """Maximum size of a pool in this environment."""

    nodes: int = Field(0, ge=0, description="Maximum number of nodes of a pool; 0 means no limit.")
    gpus: int = Field(0, ge=0, description="Maximum number of GPUs of a pool; 0 means no limit.")


@rule(
    "pool-maximum",
    rationale="Without a maximum, a mistake in one job can buy nodes up to the account's quota.",
    fix="Set the maximum that the workloads need.",
    link=_DOCS,
    severity=Severity.HIGH,
    level=MUST,
    on=POOLS,
)
def pool_maximum(pool: NodePool, settings: Caps, stack: Stack) -> Iterator[str]:
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


class MinimumSettings(Machines):
    """Whether idle GPU nodes can be kept."""

    required: bool = Field(default=False, description="Whether idle pools must be empty; set true outside production.")


@rule(
    "pool-minimum-zero",
    rationale="Idle GPU nodes cost as much as busy ones, at night and on weekends too.",
    fix="Let an autoscaler manage the pool, with a minimum of zero.",
    link=_DOCS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=POOLS,
)
def pool_minimum_zero(pool: NodePool, settings: MinimumSettings, stack: Stack) -> Iterator[str]:
    """A GPU node pool must scale to zero when it is idle."""
    if not settings.required or pool.gpus(settings, stack) == 0:
        return
    if minimum := pool.minimum:
        field = pool.writes["minimum"]
        count = format_number(minimum)
        yield f"minimum {pool.counted} is {count}, so idle nodes are kept; set {field}: 0, with an autoscaler"


@rule(
    "size-left-to-autoscaler",
    rationale="Otherwise a deployment removes nodes that run jobs, or adds nodes that are not needed.",
    fix=(
        "Remove the number, or add it to `ignoreChanges`. If the program sends the number that it read from EKS, set"
        " the tag `gpu-tenancy.dev/desired-size: live`."
    ),
    link="https://www.pulumi.com/docs/iac/concepts/options/ignorechanges/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POOLS,
)
def size_left_to_autoscaler(pool: NodePool, _: Settings) -> Iterator[str]:
    """If an autoscaler manages the number of nodes, a deployment must not set it."""
    if path := pool.fixed_size:
        yield f"{path} resets the number of nodes at each deployment; remove it, or add it to ignoreChanges"
