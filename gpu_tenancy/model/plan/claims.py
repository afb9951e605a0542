"""Devices that pods claim and that Kueue counts: channels of ComputeDomains, and interfaces of GKE's DRANET."""

from collections.abc import Collection

from gpu_tenancy.base.quantity import CHANNELS, INTERFACES
from gpu_tenancy.model.plan.compute_domains import connected_flavors
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claiming_flavors


def claimed_on(environment: Environment) -> dict[str, Collection[str]]:
    """Resources that pods can claim, each with the flavors on whose nodes they can; only those that there are."""
    flavors: dict[str, Collection[str]] = {
        CHANNELS: connected_flavors(environment),
        INTERFACES: claiming_flavors(environment),
    }
    return {resource: names for resource, names in flavors.items() if names}
