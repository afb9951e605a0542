"""NVIDIA's Network Operator: Helm values, and the object from which it makes the device plugin of InfiniBand."""

import json
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.catalogue.fabrics import Image, fabrics
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import infiniband_pools, installed_by, there
from gpu_tenancy.model.plan.operators.gpus import Values
from gpu_tenancy.model.plan.pools import NodeTaint

_MELLANOX: Final = "15b3"
"""PCI vendor ID of the interfaces."""


@dataclass(frozen=True, slots=True)
class InfinibandPlan:
    """The NicClusterPolicy, of which a cluster has one.

    Attributes:
        pools: whose nodes get the driver and the device plugin.
        taints: of these nodes.
        driver: image of the network driver.
        plugin: image of the device plugin.
        config: the plugin's configuration, as JSON.
    """

    pools: tuple[str, ...]
    taints: tuple[NodeTaint, ...]
    driver: Image
    plugin: Image
    config: str


def network_values(environment: Environment) -> Values:
    """Values of the Network Operator: the GPU Operator's node feature discovery, if it is there.

    Two of them would replace each other's labels. That of the GPU Operator labels nodes by PCI vendor, as the Network
    Operator expects:
    https://github.com/NVIDIA/gpu-operator/blob/v26.3.3/deployments/gpu-operator/values.yaml.
    """
    own = not there(environment, "gpu_operator")
    return {"nfd": {"enabled": own, "deployNodeFeatureRules": own}}


def infiniband(environment: Environment) -> InfinibandPlan | None:
    """The NicClusterPolicy of an environment; None if this program does not install the operator."""
    pools = infiniband_pools(environment)
    row = fabrics()["infiniband"]
    if not pools or row.driver is None or row.plugin is None or installed_by(environment, "network_operator") != "here":
        return None
    prefix, _, name = (row.resource or "").partition("/")
    selectors = {"vendors": [_MELLANOX], "linkTypes": ["infiniband"], "isRdma": True}
    resources = [{"resourcePrefix": prefix, "resourceName": name, "selectors": selectors}]
    return InfinibandPlan(
        pools=tuple(pool.name for pool in pools),
        taints=tuple(dict.fromkeys(taint for pool in pools if pool.supply for taint in pool.supply.taints)),
        driver=row.driver,
        plugin=row.plugin,
        config=json.dumps({"resourceList": resources}, indent=2),
    )
