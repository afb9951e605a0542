"""An environment: a stack whose pools and operators are resolved, and the Pulumi stacks into which it is divided."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from gpu_tenancy.model.plan.pools import ResolvedPool, resolved
from gpu_tenancy.model.plan.supply import Flavor, flavors
from gpu_tenancy.model.resolve import ResolvedStack, resolve
from gpu_tenancy.model.spec import NAMESPACE, Stack
from gpu_tenancy.model.spec.cluster import ExistingCluster
from gpu_tenancy.model.spec.operators import Install


@dataclass(frozen=True, eq=False)
class Environment:
    """A stack with what follows from it and the catalogue alone; `shares.Tree` adds the shares of its teams.

    Attributes:
        written: the stack as the user wrote it. Unknown references are ignored; `checks` reports them.
        installs: who installs each operator, as `needs.installed_by` decided it.
    """

    written: Stack
    installs: dict[str, Install] = field(default_factory=dict[str, Install], init=False, repr=False)

    @cached_property
    def stack(self) -> ResolvedStack:
        """The resolved stack."""
        return resolve(self.written)

    @cached_property
    def pools(self) -> Mapping[str, ResolvedPool]:
        """The pools of the cluster, in the stack's order."""
        return {name: resolved(self.stack, name, pool) for name, pool in self.stack.pools.items()}

    @cached_property
    def all_pools(self) -> Mapping[str, ResolvedPool]:
        """The pools of the cluster, then those of its workers."""
        elsewhere = {name: resolved(self.stack, name, pool) for name, pool in self.stack.elsewhere.items()}
        return {**self.pools, **{name: pool for name, pool in elsewhere.items() if name not in self.pools}}

    def pools_of(self, flavor: str) -> list[ResolvedPool]:
        """The pools of the cluster whose nodes are of a flavor."""
        return [pool for pool in self.pools.values() if pool.flavor == flavor]

    def gpu_pools(self, vendor: str = "") -> Iterator[ResolvedPool]:
        """The pools of the cluster with GPUs, of one vendor or of all."""
        return (pool for pool in self.pools.values() if pool.gpus and pool.resource.startswith(vendor))

    @property
    def nvidia_pools(self) -> list[ResolvedPool]:
        """The pools of the cluster with GPUs of NVIDIA."""
        return [pool for pool in self.pools.values() if pool.of_nvidia]

    @cached_property
    def flavors(self) -> dict[str, Flavor]:
        """The flavors by name, CPU flavors first."""
        return flavors(self.stack, (pool.supply for pool in self.all_pools.values() if pool.supply))


KEY: Final = f"{NAMESPACE}:part"
"""Config key of the Pulumi stacks into which an environment is divided; its value is the name of the part."""
CLUSTER: Final = "cluster"
OPERATORS: Final = "operators"
TENANCY: Final = "tenancy"


def is_part(name: str) -> bool:
    """Whether a part of any environment can have this name, now or in an earlier version."""
    return name in {CLUSTER, OPERATORS, TENANCY} or name.startswith("cohort.")


def parts(stack: Stack, *, operators: bool) -> tuple[str, ...]:
    """The names of a stack's parts, in the order of their deployment; empty if it is not divided.

    The name of a part's Pulumi stack is the environment's, a dot and that of the part.

    Args:
        stack: the environment.
        operators: whether it installs operators or dashboards.
    """
    if stack.split is None:
        return ()
    on_cloud = not isinstance(stack.cluster, ExistingCluster)
    return (*([CLUSTER] if on_cloud else ()), *([OPERATORS] if operators else ()), TENANCY)
