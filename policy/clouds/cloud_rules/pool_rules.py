"""Rules for node pools and clusters: pods without GPUs on GPU nodes, numbers of nodes, protection and owner tags."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from cloud_rules.machines import Machines
from cloud_rules.pools import REPELLING_EFFECTS, Cluster, NodePool
from cloud_rules.subjects import CLUSTERS, POOLS, PROTECTABLE, TAGGED
from cloud_rules.tags import plain, tags, where
from rule_engine import ADVICE, MUST, Resource, Settings, Severity, Stack, Subject, format_number, rule, typed

_AUTOSCALING: Final = "https://kubernetes.io/docs/concepts/cluster-administration/node-autoscaling/"


class Taints(Machines):
    """The taint of GPU nodes."""

    taints: list[str] = Field(
        ["*gpu*", "sku"],
        description=(
            "Keys of taints that keep workloads without GPUs off, as patterns; `sku` is the key in Azure's"
            " documentation."
        ),
    )


@rule(
    "gpu-pool-tainted",
    rationale="Otherwise pods without GPUs fill the most expensive nodes, and GPU jobs wait for them.",
    fix="Add a taint with the GPU's resource name and the effect NoSchedule.",
    link="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#example-use-cases",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POOLS,
)
def gpu_pool_tainted(pool: NodePool, settings: Taints, stack: Stack) -> Iterator[str]:
    """A GPU node pool must have a taint that keeps pods without GPUs off."""
    if pool.gpus(settings, stack) == 0:
        return
    keys = [taint.key for taint in pool.all_taints(stack) if taint.effect in REPELLING_EFFECTS]
    if not any(fnmatchcase(key, pattern) for key in keys for pattern in settings.taints):
        yield f"its GPU nodes have no taint that keeps other pods off; set {pool.taint_fix(settings, stack)}"


@rule(
    "system-off-gpu-pools",
    rationale="DNS and metrics run there, so its nodes are never removed, and system pods use them too.",
    fix="Add a pool without GPUs for the cluster's system pods.",
    link="https://learn.microsoft.com/azure/aks/use-system-pools",
    severity=Severity.MEDIUM,
    level=MUST,
    on=POOLS,
)
def system_off_gpu_pools(pool: NodePool, settings: Machines, stack: Stack) -> Iterator[str]:
    """A GPU node pool must not run the cluster's system pods."""
    if pool.for_system and pool.gpus(settings, stack) != 0:
        yield "has GPUs and runs AKS system pods (mode System); set mode: User, and add a system pool without GPUs"


_FARGATE: Final = Subject(
    "Fargate profiles",
    typed("aws:eks/fargateProfile:FargateProfile", "aws-native:eks:FargateProfile"),
    lambda resource: [resource],
)


@rule(
    "cluster-has-cpu-pool",
    rationale="Otherwise DNS, metrics and operators run on GPU nodes or, if these are tainted, stay pending.",
    fix="Add a small node pool without GPUs and without taints.",
    link="https://cloud.google.com/kubernetes-engine/docs/how-to/gpus",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
)
def cluster_has_cpu_pool(cluster: Cluster, settings: Machines, stack: Stack) -> Iterator[str]:
    """A cluster created together with node pools must have one without GPUs."""
    if cluster.own_nodes or (cluster.cloud == "aws" and stack.has(_FARGATE)):
        return
    pools = [pool for pool in stack.all(POOLS) if pool.cloud == cluster.cloud]
    if not pools:
        return  # they are created outside this stack
    if stack.first(POOLS, lambda pool: pool.cloud == cluster.cloud and pool.has_cpu_nodes(settings, stack)) is None:
        yield "all node pools have GPUs; add one without GPUs for the cluster's system pods"


# Numbers of nodes.


class Caps(Machines):
    """Maximum size of a pool in this environment."""

    nodes: int = Field(0, ge=0, description="Maximum number of nodes of a pool; 0 means no limit.")
    gpus: int = Field(0, ge=0, description="Maximum number of GPUs of a pool; 0 means no limit.")


@rule(
    "pool-maximum",
    rationale="Without a maximum, a mistake in one job can buy nodes up to the account's quota.",
    fix="Set the maximum that the workloads need.",
    link=_AUTOSCALING,
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
    link=_AUTOSCALING,
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


# Protection and owners.


class Protection(Settings):
    """Requirement to protect clusters and pools."""

    required: bool = Field(default=False, description="Whether protection is required; set true in production.")


@rule(
    "deletion-protected",
    rationale="Renaming a resource deletes it, together with all jobs that run on it.",
    fix="Set the resource option `protect`.",
    link="https://www.pulumi.com/docs/iac/concepts/options/protect/",
    severity=Severity.HIGH,
    level=MUST,
    on=PROTECTABLE,
)
def deletion_protected(resource: Resource, settings: Protection) -> Iterator[str]:
    """Clusters and node pools must be protected from deletion."""
    if settings.required and not resource.protect:
        yield "is not protected: Pulumi can delete or replace it; set the resource option protect: true"


class Owners(Settings):
    """Required tags for owner and cost center."""

    keys: list[str] = Field(
        ["owner", "cost-center", "environment"],
        description="Required tags or labels; case, `-` and `_` are ignored (`CostCenter`).",
    )


@rule(
    "owner-tags",
    rationale="Resources without an owner are not cleaned up, and their cost cannot be attributed.",
    fix="Add the tags (labels on GCP).",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.LOW,
    level=ADVICE,
    on=TAGGED,
)
def owner_tags(resource: Resource, settings: Owners) -> Iterator[str]:
    """Clusters and node pools must have tags for their owner and cost center."""
    present = {plain(key): view for key, view in tags(resource).items()}
    missing = [key for key in settings.keys if plain(key) not in present or not present[plain(key)].text().strip()]
    if missing:
        yield f"missing tags or labels: {', '.join(missing)}; add them under {where(resource)}"
