"""Values of the GPU Operator's chart, derived from the pools' driver modes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.pools import NVIDIA, ResolvedPool
from gpu_tenancy.model.spec.pools import Sharing

Values: TypeAlias = dict[str, Any]

PLUGIN_CONFIG: Final = "gpu-tenancy-device-plugin"
"""Name of the ConfigMap with the device plugin's configurations."""
_PLAIN: Final = "whole"
"""The device plugin's default configuration, for nodes without a configuration label."""


def operator_values(environment: Environment) -> Values:
    """The values; empty without NVIDIA GPUs.

    Pools whose driver modes need different values cannot be in one cluster; see `clashes`.
    https://github.com/NVIDIA/gpu-operator/blob/main/deployments/gpu-operator/values.yaml
    """
    pools = environment.nvidia_pools
    values: Values = {}
    for pool in pools:
        values = merged(values, pool.mode.operator) if pool.mode else values
    if not pools:
        return values
    tolerations = tolerations_for(pools)
    values = merged(
        values,
        {
            "daemonsets": {"tolerations": tolerations},
            "node-feature-discovery": {"worker": {"tolerations": tolerations}},
        },
    )
    return merged(values, _sharing(pools))


def clashes(environment: Environment) -> Iterator[tuple[ResolvedPool, ResolvedPool]]:
    """Pairs of pools whose driver modes need different values: the first pool, and another one."""
    pools = environment.nvidia_pools
    for pool in pools[1:]:
        first = pools[0].mode
        if first and pool.mode and first.operator != pool.mode.operator:
            yield pools[0], pool


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> Values:
    """One set of values over another, as in Helm: mappings are merged, other values replaced."""
    out: Values = dict(values)
    for key, value in more.items():
        before = out.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        out[key] = merged(cast("Values", before), cast("Values", value)) if both else value
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
