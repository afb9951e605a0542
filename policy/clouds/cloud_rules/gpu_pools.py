"""Rules for workloads without GPUs on GPU nodes."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from cloud_rules.machines import Machines
from cloud_rules.pools import REPELLING_EFFECTS, Cluster, NodePool
from cloud_rules.subjects import CLUSTERS, POOLS
from rule_engine import ADVICE, MUST, Severity, Stack, Subject, rule, typed


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
