"""Rules for what else runs on nodes with GPUs."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from cloud_rules.machines import Machines
from cloud_rules.pools import KEEPS_OFF, Cluster, NodePool
from cloud_rules.subjects import CLUSTERS, POOLS
from judge import ADVICE, MUST, AnyRule, Rule, Severity, Stack, Subject, typed


class Taints(Machines):
    """The taint of GPU nodes."""

    taints: list[str] = Field(
        ["*gpu*", "sku"],
        description="Keys of taints that keep work without GPUs off, as patterns; `sku` is that of Azure's documents.",
    )


def _tainted(pool: NodePool, settings: Taints, stack: Stack) -> Iterator[str]:
    if pool.gpus(settings, stack) == 0:
        return
    keys = [each.key for each in pool.all_taints(stack) if each.effect in KEEPS_OFF]
    if not any(fnmatchcase(key, pattern) for key in keys for pattern in settings.taints):
        yield f"has GPUs and no taint that keeps other pods off; write {pool.writes['taint']}"


GPU_POOL_TAINTED: Final = Rule(
    name="gpu-pool-tainted",
    says="A node pool with GPUs has a taint that keeps pods without GPUs off.",
    why="Pods that need no GPU fill the dearest nodes there are, and jobs wait for them.",
    mend="Write a taint of the GPU's resource name with the effect NoSchedule.",
    link="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#example-use-cases",
    severity=Severity.HIGH,
    level=ADVICE,
    on=POOLS,
    judge=_tainted,
    settings=Taints,
    whole=True,
)


def _system_off(pool: NodePool, settings: Machines, stack: Stack) -> Iterator[str]:
    if pool.for_system and pool.gpus(settings, stack) != 0:
        yield "has GPUs, and AKS puts its own pods on it (mode System); write mode: User, beside one without GPUs"


SYSTEM_OFF_GPU_POOLS: Final = Rule(
    name="system-off-gpu-pools",
    says="A node pool with GPUs is not the one for the cluster's own pods.",
    why="Its nodes can never go, since DNS and metrics run there, and the system's pods share them with the work.",
    mend="Give the cluster a pool without GPUs for its own pods.",
    link="https://learn.microsoft.com/azure/aks/use-system-pools",
    severity=Severity.MEDIUM,
    level=MUST,
    on=POOLS,
    judge=_system_off,
    settings=Machines,
    whole=True,
)

_FARGATE: Final = Subject("Fargate profiles", typed("aws:eks/fargateProfile:FargateProfile"), lambda each: [each])


def _has_cpu_pool(cluster: Cluster, settings: Machines, stack: Stack) -> Iterator[str]:
    if cluster.own_nodes or (cluster.cloud == "aws" and stack.has(_FARGATE)):
        return
    same = [pool for pool in stack.all(POOLS) if pool.cloud == cluster.cloud]
    if not same:
        return  # they are made elsewhere
    if stack.first(POOLS, lambda pool: pool.cloud == cluster.cloud and pool.gpus(settings, stack) == 0) is None:
        yield "all its node pools have GPUs; make one without, for the cluster's own pods"


CLUSTER_HAS_CPU_POOL: Final = Rule(
    name="cluster-has-cpu-pool",
    says="A cluster whose node pools are made with it has one without GPUs.",
    why="DNS, metrics and operators then run on GPU nodes, or, where these are tainted, nowhere.",
    mend="Make a small node pool without GPUs and without taints.",
    link="https://cloud.google.com/kubernetes-engine/docs/how-to/gpus",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CLUSTERS,
    judge=_has_cpu_pool,
    settings=Machines,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (GPU_POOL_TAINTED, SYSTEM_OFF_GPU_POOLS, CLUSTER_HAS_CPU_POOL)
