"""ComputeDomains of NVIDIA's DRA driver: jobs whose pods share memory over NVLink between machines.

The driver's controller makes a ResourceClaimTemplate for each ComputeDomain, by which each pod claims a channel of its
node: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1.
"""

from collections.abc import Collection, Iterable

from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import has_claims, installed_by, is_enabled
from gpu_tenancy.model.plan.pools import ResolvedPool


def channels_of(job: str) -> str:
    """Name of the ResourceClaimTemplate from which the pods of a job claim their channels."""
    return f"{job}-channel"


def connected_flavors(environment: Environment) -> tuple[str, ...]:
    """The flavors on whose nodes pods can claim channels: NVLink connects the machines of all of their pools.

    Empty if the driver does not run in the cluster, or if workers of MultiKueue run the jobs.
    """
    stack = environment.stack
    if stack.dispatches or not serves_domains(environment) or not has_claims(stack.cluster):
        return ()
    flavors = dict.fromkeys(pool.flavor for pool in environment.pools.values())
    return tuple(flavor for flavor in flavors if is_connected(environment.pools_of(flavor)))


def serves_domains(environment: Environment) -> bool:
    """Whether the DRA driver runs in the cluster and has compute domains, as far as its values are known."""
    by = installed_by(environment, "dra_driver")
    own = environment.stack.operators.of("dra_driver").values
    return by == "installed" or (by == "here" and is_enabled(own, "resources", "computeDomains"))


def is_connected(pools: Iterable[ResolvedPool]) -> bool:
    """Whether NVLink connects the machines of all pools of a flavor, each with others of its pool."""
    return all(pool.nvlink for pool in pools)


def most_nodes(pools: Collection[ResolvedPool]) -> int | None:
    """The most machines of a flavor's pools that NVLink connects; None if it is unknown for one of them."""
    nodes = [pool.nvlink.nodes for pool in pools if pool.nvlink and pool.nvlink.nodes]
    return max(nodes) if nodes and len(nodes) == len(pools) else None
