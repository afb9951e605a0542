"""ComputeDomains of NVIDIA's DRA driver: jobs whose pods share memory over NVLink between machines.

The driver's controller makes a ResourceClaimTemplate for each ComputeDomain, by which each pod claims a channel of its
node: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1.
"""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.model.plan.gpus import Nvlink, nvlink_of
from gpu_tenancy.model.plan.operators.gpus import serves_domains
from gpu_tenancy.model.plan.operators.needs import has_claims
from gpu_tenancy.model.spec import Stack

GROUP: Final = "resource.nvidia.com"
"""API group of ComputeDomains."""
COMPUTE_DOMAIN: Final = (f"{GROUP}/v1beta1", "ComputeDomain")
"""API version and kind of a ComputeDomain."""
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
"""DeviceClass of the channel of a node:
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1/deployments/helm/dra-driver-nvidia-gpu/templates."""


def channels_of(job: str) -> str:
    """Name of the ResourceClaimTemplate from which the pods of a job claim their channels."""
    return f"{job}-channel"


def connected_flavors(stack: Stack) -> tuple[str, ...]:
    """The flavors on whose nodes pods can claim channels: NVLink connects the machines of all of their pools.

    Empty if the driver does not run in the cluster, or if workers of MultiKueue run the jobs.
    """
    if stack.dispatches or not serves_domains(stack) or not has_claims(stack):
        return ()
    flavors = dict.fromkeys(pool.flavor or name for name, pool in stack.pools.items())
    return tuple(flavor for flavor in flavors if is_connected(stack, flavor))


def is_connected(stack: Stack, flavor: str) -> bool:
    """Whether NVLink connects the machines of all pools of a flavor, each with others of its pool."""
    return all(_links(stack, flavor))


def most_nodes(stack: Stack, flavor: str) -> int | None:
    """The most machines of a flavor that NVLink connects; None if it is unknown for one of its pools."""
    links = list(_links(stack, flavor))
    nodes = [link.nodes for link in links if link and link.nodes]
    return max(nodes) if nodes and len(nodes) == len(links) else None


def _links(stack: Stack, flavor: str) -> Iterator[Nvlink | None]:
    return (nvlink_of(stack, pool) for name, pool in stack.pools.items() if (pool.flavor or name) == flavor)
