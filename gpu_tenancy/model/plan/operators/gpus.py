"""Helm values of the operators and drivers for GPUs of NVIDIA, AMD and Intel."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.model.plan import needs
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import NVIDIA, ResolvedPool
from gpu_tenancy.model.spec.pools import Sharing

Values: TypeAlias = dict[str, Any]

PLUGIN_CONFIG: Final = "gpu-tenancy-device-plugin"  # name of the ConfigMap with the device plugin's configurations
_PLAIN: Final = "whole"  # the device plugin's default configuration, for nodes without a configuration label
INTEL_LABEL: Final = ("intel.feature.node.kubernetes.io/gpu", "true")
"""Node label that Intel's chart selects nodes by:
https://github.com/intel/helm-charts/blob/main/charts/gpu-device-plugin/values.yaml"""
JOB_PODS: Final = "kueue.x-k8s.io/podset,kueue.x-k8s.io/managed!=true"
"""Selector of the pods that end: Kueue labels all pods that it admits, and also labels as managed the pods that it
manages one by one, such as a Deployment's."""
_DRIVER_ROOT: Final = "/run/nvidia/driver"
"""Path of the driver if the GPU Operator's driver container installs it; a driver of the node image is at /.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/deployments/helm/dra-driver-nvidia-gpu/values.yaml"""


def operator_values(environment: Environment) -> Values:
    """Values of the GPU Operator by the pools' driver modes; empty without NVIDIA GPUs.

    Pools whose driver modes need different values cannot be in one cluster; see `clashes`.
    https://github.com/NVIDIA/gpu-operator/blob/main/deployments/gpu-operator/values.yaml
    """
    pools = environment.nvidia_pools
    if not pools:
        return {}
    values: Values = {}
    for mode in (pool.mode for pool in pools if pool.mode):
        values = merged(values, mode.operator)
    tolerations = tolerations_for(pools)
    workers = {"worker": {"tolerations": tolerations}}
    values = merged(values, {"daemonsets": {"tolerations": tolerations}, "node-feature-discovery": workers})
    return merged(values, _sharing(pools))


def clashes(environment: Environment) -> Iterator[tuple[ResolvedPool, ResolvedPool]]:
    """Pairs of pools whose driver modes need different values: the first pool, and another one."""
    pools = environment.nvidia_pools
    for pool in pools[1:]:
        first = pools[0].mode
        if first and pool.mode and first.operator != pool.mode.operator:
            yield pools[0], pool


def merged(values: Mapping[str, Any], more: Mapping[str, Any], *, append: bool = False) -> Values:
    """Merges values as Helm does: mappings are merged, other values replaced; with `append`, lists are appended."""
    out: Values = dict(values)
    for key, value in more.items():
        before = out.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            out[key] = merged(cast("Values", before), cast("Values", value), append=append)
        else:
            out[key] = [*before, *value] if append and isinstance(before, list) and isinstance(value, list) else value
    return out


def tolerations_for(pools: Iterable[ResolvedPool]) -> list[dict[str, str]]:
    """Tolerations for pods of operators, which must run on every node of these pools."""
    taints = dict.fromkeys((taint.key, taint.effect) for pool in pools if pool.supply for taint in pool.supply.taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]


def _sharing(pools: list[ResolvedPool]) -> Values:
    """MIG partitions have separate resource names (`mixed`); other ways are a plugin configuration per pool."""
    values: Values = {}
    shared: dict[str, Sharing] = {}
    for pool in pools:
        sharing, rule = pool.pool.sharing, pool.sharing_rule
        if sharing is None or rule is None:
            continue
        if sharing.mig:
            values = merged(values, {"mig": {"strategy": "mixed"}, "migManager": {"enabled": rule.by == "operator"}})
        elif rule.by == "operator":
            shared[pool.name] = sharing
    if shared:
        strategy = "mixed" if "mig" in values else "none"
        own = {name: _plugin_config(strategy, sharing) for name, sharing in shared.items()}
        data = {_PLAIN: _plugin_config(strategy), **own}
        config = {"create": True, "name": PLUGIN_CONFIG, "default": _PLAIN, "data": data}
        values = merged(values, {"devicePlugin": {"config": config}})
    return values


def _plugin_config(strategy: str, sharing: Sharing | None = None) -> str:
    """A configuration file of the device plugin: https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus."""
    lines = ["version: v1", "flags:", f"  migStrategy: {strategy}"]
    if sharing:
        lines += ["sharing:", f"  {sharing.way}:", "    resources:"]
        lines += [f"      - name: {NVIDIA}", f"        replicas: {sharing.pods}"]
    return "\n".join(lines) + "\n"


def _driver_upgrades(environment: Environment) -> Values:
    """Upgrades the driver on one node at a time, which is cordoned, when its jobs have ended.

    Without a selector, the operator evicts every pod that has GPUs. Pods of servers never end: they are evicted, within
    their PodDisruptionBudgets, and their emptyDir volumes are lost. Volcano's pods share no label with Kueue's, so a
    Volcano pod with such a volume stops the upgrade of its node.
    https://github.com/NVIDIA/gpu-operator/blob/v26.3.3/vendor/github.com/NVIDIA/k8s-operator-libs/pkg/upgrade/pod_manager.go
    """
    return {
        "autoUpgrade": True,
        "maxParallelUpgrades": 1,
        "waitForCompletion": {"podSelector": JOB_PODS, "timeoutSeconds": 0},
        "gpuPodDeletion": {"force": False, "deleteEmptyDir": not needs.there(environment, "volcano")},
        "drain": {"enable": False},
    }


def nvidia_values(environment: Environment) -> Values:
    """Values of the GPU Operator for the pools' driver modes, and metrics if there is a Prometheus.

    `dcgmExporter.serviceMonitor.enabled` is always set: its default changed between 26.3 and 26.7.
    """
    values = operator_values(environment)
    more: Values = {"dcgmExporter": {"serviceMonitor": {"enabled": needs.there(environment, "prometheus")}}}
    if values.get("driver", {}).get("enabled", False):
        more["driver"] = {"upgradePolicy": _driver_upgrades(environment)}
        if needs.infiniband_pools(environment):
            # GPUDirect RDMA: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html
            more["driver"]["rdma"] = {"enabled": True}
    if needs.there(environment, "amd_gpu_operator"):
        # Both vendors share one node feature discovery, so its workers must run on the nodes of both.
        more["node-feature-discovery"] = {"worker": {"tolerations": tolerations_for(environment.gpu_pools())}}
    return merged(values, more)


def dra_values(environment: Environment) -> Values:
    """Values of NVIDIA's DRA driver; its chart requires confirmation that no plugin advertises the same GPUs."""
    operator = operator_values(environment)
    root = operator.get("hostPaths", {}).get("driverInstallDir")
    own_driver = operator.get("driver", {}).get("enabled", True)
    alone = _domains_alone(environment)
    return {
        **({"resources": {"gpus": {"enabled": False}}} if alone else {"gpuResourcesEnabledOverride": True}),
        "nvidiaDriverRoot": root or (_DRIVER_ROOT if own_driver else "/"),
        "kubeletPlugin": {"tolerations": tolerations_for(environment.gpu_pools(needs.NVIDIA))},
    }


def _domains_alone(environment: Environment) -> bool:
    """Whether the DRA driver is installed for compute domains alone, unless its own values say otherwise.

    It is if machines with NVLink need it by default, or if their GPUs have a device plugin, of the GPU Operator or of
    nodes.
    """
    if needs.nvlink_pool(environment) is None:
        return False
    plugged = (pool.mode and needs.has_plugin(pool.mode) for pool in environment.nvidia_pools)
    return environment.stack.operators.of("dra_driver").install is None or runs_plugin(environment) or any(plugged)


def runs_plugin(environment: Environment) -> bool:
    """Whether the GPU Operator is installed here with its device plugin."""
    values = merged(nvidia_values(environment), environment.stack.operators.of("gpu_operator").values)
    return needs.installed_by(environment, "gpu_operator") == "here" and needs.is_enabled(values, "devicePlugin")


def allocates_gpus(environment: Environment) -> bool:
    """Whether the DRA driver is installed here and allocates GPUs, not only compute domains."""
    values = merged(dra_values(environment), environment.stack.operators.of("dra_driver").values)
    return needs.installed_by(environment, "dra_driver") == "here" and needs.is_enabled(values, "resources", "gpus")


def amd_values(environment: Environment) -> Values:
    """Values of AMD's GPU operator: tolerations for the pools' taints, and no driver, which is in the node image.

    So it needs no kernel module management (KMM), whose images are `latest`:
    https://github.com/ROCm/gpu-operator/blob/v1.5.1/docs/installation/kubernetes-helm.md.
    """
    tolerations = tolerations_for(environment.gpu_pools(needs.AMD))
    monitor = {"serviceMonitor": {"enable": needs.there(environment, "prometheus")}}
    discovers = not needs.there(environment, "gpu_operator")
    return {
        "node-feature-discovery": {"enabled": discovers, "worker": {"tolerations": tolerations}},
        "kmm": {"enabled": False, "watch": False},
        "deviceConfig": {
            "spec": {
                "driver": {"enable": False},
                "devicePlugin": {"devicePluginTolerations": tolerations, "nodeLabellerTolerations": tolerations},
                "metricsExporter": {"tolerations": tolerations, "prometheus": monitor},
            }
        },
    }


def intel_values(environment: Environment) -> Values:
    """Values of Intel's GPU plugin: it selects nodes by a label of the pools, without node feature discovery."""
    return {
        "name": "gpu-tenancy",
        "nodeFeatureRule": False,
        "nodeSelector": dict([INTEL_LABEL]),
        "tolerations": tolerations_for(environment.gpu_pools(needs.INTEL)),
    }
