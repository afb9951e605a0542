"""Values of the charts that bring GPUs to pods: NVIDIA's two, AMD's, Intel's."""

from collections.abc import Iterable
from typing import Any, Final

from gpu_tenancy.model.plan.gpu_operator import Values, merged, operator_values
from gpu_tenancy.model.plan.operators.needs import AMD, INTEL, NVIDIA, gpu_pools, there
from gpu_tenancy.model.plan.supply import pool_supply
from gpu_tenancy.model.spec import Stack

INTEL_LABEL: Final = ("intel.feature.node.kubernetes.io/gpu", "true")
"""Label of the nodes that Intel's chart puts its plugin on:
https://github.com/intel/helm-charts/blob/main/charts/gpu-device-plugin/values.yaml"""
_DRIVER_ROOT: Final = "/run/nvidia/driver"
"""Where the GPU Operator's own driver container keeps the driver; one that the node's image has is at /.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/deployments/helm/dra-driver-nvidia-gpu/values.yaml"""


def nvidia_values(stack: Stack) -> Values:
    """The GPU Operator's: the pools' half, and metrics where something collects them.

    `dcgmExporter.serviceMonitor.enabled` is always said: its default changed between 26.3 and 26.7.
    """
    values = merged(
        operator_values(stack), {"dcgmExporter": {"serviceMonitor": {"enabled": there(stack, "prometheus")}}}
    )
    if there(stack, "amd_gpu_operator"):
        # One node feature discovery for both vendors, so it runs on the nodes of both.
        workers = {"tolerations": _tolerations(stack, gpu_pools(stack))}
        values = merged(values, {"node-feature-discovery": {"worker": workers}})
    return values


def dra_values(stack: Stack) -> Values:
    """The DRA driver's. Its chart wants it confirmed that no device plugin offers the same GPUs."""
    operator = operator_values(stack)
    root = operator.get("hostPaths", {}).get("driverInstallDir")
    own_driver = operator.get("driver", {}).get("enabled", True)
    return {
        "gpuResourcesEnabledOverride": True,
        "nvidiaDriverRoot": root or (_DRIVER_ROOT if own_driver else "/"),
        "kubeletPlugin": {"tolerations": _tolerations(stack, gpu_pools(stack, NVIDIA))},
    }


def amd_values(stack: Stack) -> Values:
    """AMD's operator: its pods run on tainted nodes, its driver is the node image's."""
    tolerations = _tolerations(stack, gpu_pools(stack, AMD))
    monitor = {"serviceMonitor": {"enable": there(stack, "prometheus")}}
    return {
        "node-feature-discovery": {
            "enabled": not there(stack, "gpu_operator"),
            "worker": {"tolerations": tolerations},
        },
        "deviceConfig": {
            "spec": {
                "driver": {"enable": False},
                "devicePlugin": {"devicePluginTolerations": tolerations, "nodeLabellerTolerations": tolerations},
                "metricsExporter": {"tolerations": tolerations, "prometheus": monitor},
            }
        },
    }


def intel_operator_values(stack: Stack) -> Values:
    """Intel's operator, which makes a DaemonSet of the plugin below: of GPUs alone."""
    del stack
    return {"manager": {"devices": {"gpu": True}}}


def intel_values(stack: Stack) -> Values:
    """Intel's plugin: on nodes that the pools' own labels mark, so that no node feature discovery is needed."""
    return {
        "name": "gpu-tenancy",
        "nodeFeatureRule": False,
        "nodeSelector": dict([INTEL_LABEL]),
        "tolerations": _tolerations(stack, gpu_pools(stack, INTEL)),
    }


def _tolerations(stack: Stack, pools: Iterable[str]) -> list[dict[str, Any]]:
    supplies = [supply for name in pools if (supply := pool_supply(stack, name))]
    taints = dict.fromkeys((taint.key, taint.effect) for supply in supplies for taint in supply.taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]
