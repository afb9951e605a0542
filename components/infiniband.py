"""InfiniBand in the cluster: its driver and its device plugin."""

from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.catalogue.fabrics import Image
from gpu_tenancy.model.plan.operators.network import InfinibandPlan

from .pods import on_pools, tolerations
from .wire import wire


class Infiniband(pulumi.ComponentResource):
    """The NicClusterPolicy of NVIDIA's Network Operator: driver and device plugin on the nodes with InfiniBand.

    A cluster has one such object. Driver pods are never replaced automatically, because that would drain the nodes: to
    update them, delete the pods while the nodes are empty. The operator itself is not installed here.

    https://azure.github.io/aks-rdma-infiniband/configurations/network-operator

    Example:
        >>> Infiniband("infiniband", plan(stack).infiniband)
    """

    def __init__(self, name: str, plan: InfinibandPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:operators:Infiniband", name, {}, opts)
        spec: dict[str, Any] = {
            "nodeAffinity": wire(on_pools(plan.pools)),
            "tolerations": wire(tolerations(plan.taints)),
            "ofedDriver": {**_image(plan.driver), "upgradePolicy": {"autoUpgrade": False}},
            "sriovDevicePlugin": {**_image(plan.plugin), "config": plan.config},
        }
        self.policy = CustomResource(
            f"{name}-policy",
            api_version="mellanox.com/v1alpha1",
            kind="NicClusterPolicy",
            metadata={"name": "nic-cluster-policy"},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _image(image: Image) -> dict[str, str]:
    return {"repository": image.repository, "image": image.image, "version": image.version}
