"""The manager's teams, cohorts and pools, with the sum of the workers' quotas."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.plan.pools import PoolSupply
from gpu_tenancy.model.plan.shares import NodeShares
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.workers.reading import TEAM, Data, Worker

_Amounts: TypeAlias = dict[str, dict[str, tuple[int, int | None]]]
"""Guarantee and limit by flavor and resource."""


def pools(workers: list[Worker]) -> dict[str, tuple[Worker, Data]]:
    """The workers' pools by the names that they have in the manager, such as `west-h100`."""
    return {f"{worker.name}-{pool.name}": (worker, _pool(pool)) for worker in workers for pool in _supplies(worker)}


def _supplies(worker: Worker) -> Iterator[PoolSupply]:
    return (pool for flavor in worker.tree.flavors.values() for pool in flavor.pools)


def _pool(supply: PoolSupply) -> Data:
    """A worker's pool as a description of its nodes, whatever its cloud."""
    gpus = {"gpu": supply.product or "gpu", "gpusPerNode": supply.gpus_per_node, "resource": supply.resource}
    return {
        "flavor": supply.flavor,
        "cpu": f"{supply.node[CPU]}m",
        "memory": supply.node[MEMORY],
        "nodes": supply.max_nodes,
        "labels": dict(supply.labels),
        "taints": [{"key": one.key, "value": one.value, "effect": one.effect} for one in supply.taints],
        **(gpus if supply.resource else {}),
        **({"topology": _topology(supply)} if supply.levels else {}),
    }


def _topology(supply: PoolSupply) -> Data:
    """The levels that jobs can ask for, by their labels: the clouds of manager and worker can differ."""
    labels = {one.level: one.label for one in supply.levels if one.level in {"block", "rack"}}
    return labels or {"source": "node"}


def teams(workers: list[Worker], own: Mapping[str, Any]) -> Data:
    """The teams with the sum of their quotas, and what the manager's file adds."""
    first = workers[0]
    kept = {Team.model_fields[field].alias for field in TEAM} | {"members"}
    made: Data = {}
    for name, written in first.section("teams").items():
        shares = [worker.tree.team_shares.get(name, {}) for worker in workers]
        quota = _summed([_amounts(share, team=True) for share in shares])
        shared = {key: value for key, value in written.items() if key in kept}
        lends = {"lends": first.tree.lends(name)} if first.tree.stack.teams[name].queue is None else {}
        made[name] = {**shared, **lends, **({"quota": quota} if quota else {}), **(own.get(name) or {})}
    return made


def cohorts(workers: list[Worker]) -> Data:
    """The cohorts with the sum of their quotas; a cohort without a limit in one worker has none."""
    made: Data = {}
    sections: dict[str, Data] = {name: written or {} for name, written in workers[0].section("cohorts").items()}
    for name, written in sections.items():
        shares = [_amounts(worker.tree.stated.get(name, {}), team=False) for worker in workers]
        quota = _summed(shares)
        rest: Data = {key: value for key, value in written.items() if key not in {"gpus", "quota"}}
        made[name] = {**rest, **({"quota": quota} if quota else {})}
    return made


def _amounts(shares: NodeShares, *, team: bool) -> _Amounts:
    return {
        flavor: {
            resource: (share.guaranteed, share.effective_limit if team else share.limit)
            for resource, share in by_resource.items()
        }
        for flavor, by_resource in shares.items()
    }


def _summed(shares: list[_Amounts]) -> Data:
    """Quotas as a stack writes them, the sum over the workers."""
    quota: Data = {}
    for flavor in dict.fromkeys(flavor for amounts in shares for flavor in amounts):
        of_flavor = [amounts[flavor] for amounts in shares if flavor in amounts]
        for resource in dict.fromkeys(resource for by_resource in of_flavor for resource in by_resource):
            held = [by_resource[resource] for by_resource in of_flavor if resource in by_resource]
            limits = [limit for _, limit in held]
            total: Data = {"guaranteed": sum(guaranteed for guaranteed, _ in held)}
            if None not in limits:
                total["limit"] = sum(limit or 0 for limit in limits)
            entry = quota.setdefault(flavor, {})
            if resource == CPU:
                entry["cpu"] = {key: f"{amount}m" for key, amount in total.items()}
            elif resource == MEMORY:
                entry["memory"] = total
            else:
                entry.update(total)
    return quota
