"""Values of the GPU Operator's chart, derived from the pools' driver modes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.model.catalogue.clouds import DriverMode, driver_mode
from gpu_tenancy.model.plan.gpus import NVIDIA, gpu_resource, machine_of, sharing_rule
from gpu_tenancy.model.plan.supply import PoolSupply, pool_supply
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Sharing

Values: TypeAlias = dict[str, Any]

PLUGIN_CONFIG: Final = "gpu-tenancy-device-plugin"
"""Name of the ConfigMap with the device plugin's configurations."""
_PLAIN: Final = "whole"
"""The device plugin's default configuration, for nodes without a configuration label."""


def nvidia_pools(stack: Stack) -> Iterator[str]:
    """Names of the pools with NVIDIA GPUs, in the stack's order."""
    for name, pool in stack.pools.items():
        machine = machine_of(stack, pool)
        if (machine.gpus if machine else pool.gpus_per_node) and gpu_resource(stack, pool) == NVIDIA:
            yield name


def operator_values(stack: Stack) -> Values:
    """The values; empty without NVIDIA GPUs.

    Pools whose driver modes need different values cannot be in one cluster; see `clashes`.
    https://github.com/NVIDIA/gpu-operator/blob/main/deployments/gpu-operator/values.yaml
    """
    pools = list(nvidia_pools(stack))
    values: Values = {}
    for name in pools:
        mode = _mode(stack, name)
        values = merged(values, mode.operator) if mode else values
    if not pools:
        return values
    tolerations = _tolerations([supply for name in pools if (supply := pool_supply(stack, name))])
    values = merged(
        values,
        {
            "daemonsets": {"tolerations": tolerations},
            "node-feature-discovery": {"worker": {"tolerations": tolerations}},
        },
    )
    return merged(values, _sharing(stack, pools))


def clashes(stack: Stack) -> Iterator[tuple[str, str]]:
    """Pairs of pools whose driver modes need different values: the first pool, and another one."""
    pools = list(nvidia_pools(stack))
    for name in pools[1:]:
        first, other = _mode(stack, pools[0]), _mode(stack, name)
        if first and other and first.operator != other.operator:
            yield pools[0], name


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> Values:
    """One set of values over another, as in Helm: mappings are merged, other values replaced."""
    out: Values = dict(values)
    for key, value in more.items():
        before = out.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        out[key] = merged(cast("Values", before), cast("Values", value)) if both else value
    return out


def _mode(stack: Stack, pool: str) -> DriverMode | None:
    return driver_mode(service_of(stack.cluster), stack.pools[pool].driver)


def _tolerations(pools: list[PoolSupply]) -> list[dict[str, str]]:
    """Tolerations for the operator's own pods, which must run on every GPU node."""
    taints = dict.fromkeys((taint.key, taint.effect) for pool in pools for taint in pool.taints)
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints]


def _sharing(stack: Stack, pools: list[str]) -> Values:
    """MIG partitions have separate resource names (`mixed`); other ways are a plugin configuration per pool."""
    values: Values = {}
    shared: dict[str, Sharing] = {}
    for name in pools:
        sharing = stack.pools[name].sharing
        rule = sharing_rule(stack, stack.pools[name])
        if sharing is None or rule is None:
            continue
        if sharing.mig:
            values = merged(values, {"mig": {"strategy": "mixed"}, "migManager": {"enabled": rule.by == "operator"}})
        elif rule.by == "operator":
            shared[name] = sharing
    if shared:
        strategy = "mixed" if "mig" in values else "none"
        data = {
            _PLAIN: _plugin_config(strategy),
            **{name: _plugin_config(strategy, one) for name, one in shared.items()},
        }
        config = {"create": True, "name": PLUGIN_CONFIG, "default": _PLAIN, "data": data}
        values = merged(values, {"devicePlugin": {"config": config}})
    return values


def _plugin_config(strategy: str, sharing: Sharing | None = None) -> str:
    """A configuration file of the device plugin: https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus."""
    lines = ["version: v1", "flags:", f"  migStrategy: {strategy}"]
    if sharing:
        lines += [
            "sharing:",
            f"  {sharing.way}:",
            "    resources:",
            f"      - name: {NVIDIA}",
            f"        replicas: {sharing.pods}",
        ]
    return "\n".join(lines) + "\n"
