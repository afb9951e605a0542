"""Helm values of the operators and drivers for GPUs of NVIDIA, AMD and Intel."""

from collections.abc import Iterable
from typing import Any, Final

from gpu_tenancy.model.catalogue.clouds import driver_mode
from gpu_tenancy.model.plan.gpu_operator import Values, merged, nvidia_pools, operator_values
from gpu_tenancy.model.plan.operators.needs import (
    AMD,
    INTEL,
    NVIDIA,
    gpu_pools,
    has_plugin,
    infiniband_pools,
    installed_by,
    is_enabled,
    nvlink_pools,
    there,
)
from gpu_tenancy.model.plan.supply import pool_supply
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of

INTEL_LABEL: Final = ("intel.feature.node.kubernetes.io/gpu", "true")
"""Node label that Intel's chart selects nodes by:
https://github.com/intel/helm-charts/blob/main/charts/gpu-device-plugin/values.yaml"""
_DRIVER_ROOT: Final = "/run/nvidia/driver"
"""Path of the driver if the GPU Operator's driver container installs it; a driver of the node image is at /.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/deployments/helm/dra-driver-nvidia-gpu/values.yaml"""


def nvidia_values(stack: Stack) -> Values:
    """Values of the GPU Operator: those of the pools' driver modes, and metrics if there is a Prometheus.

    `dcgmExporter.serviceMonitor.enabled` is always set: its default changed between 26.3 and 26.7.
    """
    values = merged(
        operator_values(stack), {"dcgmExporter": {"serviceMonitor": {"enabled": there(stack, "prometheus")}}}
    )
    own_driver = values.get("driver", {}).get("enabled", False)
    if own_driver and next(infiniband_pools(stack), None):
        # GPUDirect RDMA: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html
        values = merged(values, {"driver": {"rdma": {"enabled": True}}})
    if there(stack, "amd_gpu_operator"):
        # Both vendors share one node feature discovery, so its workers must run on the nodes of both.
        workers = {"tolerations": _tolerations(stack, gpu_pools(stack))}
        values = merged(values, {"node-feature-discovery": {"worker": workers}})
    return values


def dra_values(stack: Stack) -> Values:
    """Values of NVIDIA's DRA driver: for GPUs and compute domains, or for compute domains alone.

    Its chart requires confirmation that no device plugin advertises the same GPUs.
    """
    operator = operator_values(stack)
    root = operator.get("hostPaths", {}).get("driverInstallDir")
    own_driver = operator.get("driver", {}).get("enabled", True)
    gpus = (
        {"resources": {"gpus": {"enabled": False}}} if domains_alone(stack) else {"gpuResourcesEnabledOverride": True}
    )
    return {
        **gpus,
        "nvidiaDriverRoot": root or (_DRIVER_ROOT if own_driver else "/"),
        "kubeletPlugin": {"tolerations": _tolerations(stack, gpu_pools(stack, NVIDIA))},
    }


def domains_alone(stack: Stack) -> bool:
    """Whether the DRA driver is installed for compute domains alone, unless its own values say otherwise.

    It is if machines with NVLink between them need it by default, or if such nodes have a device plugin for their GPUs.
    """
    if next(nvlink_pools(stack), None) is None:
        return False
    return stack.operators.of("dra_driver").install is None or _plugged(stack)


def _plugged(stack: Stack) -> bool:
    """Whether a device plugin of the GPU Operator installed here, or of the nodes, allocates NVIDIA's GPUs."""
    modes = (driver_mode(service_of(stack.cluster), stack.pools[name].driver) for name in nvidia_pools(stack))
    return runs_plugin(stack) or any(mode and has_plugin(mode) for mode in modes)


def runs_plugin(stack: Stack) -> bool:
    """Whether the GPU Operator is installed here with its device plugin."""
    values = merged(nvidia_values(stack), stack.operators.of("gpu_operator").values)
    return installed_by(stack, "gpu_operator") == "here" and is_enabled(values, "devicePlugin")


def allocates_gpus(stack: Stack) -> bool:
    """Whether the DRA driver is installed here and allocates GPUs, not only compute domains."""
    return installed_by(stack, "dra_driver") == "here" and is_enabled(_own_values(stack), "resources", "gpus")


def serves_domains(stack: Stack) -> bool:
    """Whether the DRA driver runs in the cluster and has compute domains, as far as its values are known."""
    by = installed_by(stack, "dra_driver")
    return by == "installed" or (by == "here" and is_enabled(_own_values(stack), "resources", "computeDomains"))


def _own_values(stack: Stack) -> Values:
    return merged(dra_values(stack), stack.operators.of("dra_driver").values)


def amd_values(stack: Stack) -> Values:
    """Values of AMD's GPU operator: tolerations for the pools' taints, and no driver, which is in the node image."""
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


def intel_values(stack: Stack) -> Values:
    """Values of Intel's GPU plugin: it selects nodes by a label of the pools, without node feature discovery."""
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
