"""What a change does to the workloads of a running cluster, as reasons of the verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.explain.proposal import Affected, Effect
from gpu_tenancy.review.reasons import LISTED

_LATER: Final = "to avoid it, deploy after they end, or lower the other team's guarantee in a later change"


def losses(effect: Effect) -> Iterator[str]:
    """Reasons for which a change needs a review: running workloads that it ends."""
    for team, ended in _by_team(effect.preempted).items():
        restarted = sum(one.again for one in ended)
        more = f"; {restarted} of them will be admitted again at once" if restarted else ""
        preempting = sorted({one.by.partition("/")[0] for one in ended} - {""})
        by = f" for {first_names(preempting, LISTED)}" if preempting else ""
        yield f"{_running(ended)} of {team} will be preempted{by} ({_size(ended)}){more}; {_LATER}"
    for team, ended in _by_team(effect.deleted).items():
        yield f"Namespace {team} will be deleted with {_running(ended)} ({_size(ended)})"
    for flavor, pods in effect.pods_on_removed_flavors.items():
        yield f"{plural(len(pods), 'running pod')} on nodes of removed flavor {flavor}: {first_names(pods, LISTED)}"
    for pool in effect.smaller_pools:
        ends = f"the pods of at least {plural(pool.busy - pool.nodes, 'node')} end"
        yield (
            f"Pool {pool.name} will have at most {plural(pool.nodes, 'node')}, and {pool.busy} run pods with GPUs"
            f" ({first_names(pool.pods, LISTED)}): {ends}; to avoid it, run"
            f" `tenancy cluster hold {pool.name}` and deploy when they have ended"
        )
    for one in effect.exceeded:
        yield f"{one.place}: {one.used} {one.what} in use, {one.bound} allowed; nothing is stopped, new pods wait"
    for one in effect.refused:
        pods = f"{plural(len(one.pods), 'pod')} of {one.team} will be refused if created again"
        yield f"{pods}: {one.why} ({first_names(one.pods, LISTED)})"
    if effect.claims_unread:
        yield "Claims in namespaces that are deleted are unknown: you may not list PersistentVolumeClaims"
    yield from (f"Running workloads not simulated: {reason}" for reason in effect.not_simulated)


def gains(effect: Effect) -> Iterator[str]:
    """What else changes for running and pending workloads."""
    ended = effect.preempted or effect.deleted
    if not ended:
        yield f"No running workload will be preempted ({effect.running} running)"
    for part, what in (
        (effect.admitted, "will be admitted"),
        (effect.delayed, "will stay pending because of the change"),
    ):
        for team, pending in _by_team(part).items():
            yield f"{plural(len(pending), 'pending workload')} of {team} {what} ({plural(_gpus(pending), 'GPU')})"
    for team, later in _by_team(effect.later).items():
        waits = f"{plural(len(later), 'pending workload')} of {team} will wait longer ({plural(_gpus(later), 'GPU')})"
        yield f"{waits}: {later[0].label}: {later[0].why}; how long is unknown, since Kueue knows no durations"


def _by_team(affected: Iterable[Affected]) -> Mapping[str, list[Affected]]:
    teams: dict[str, list[Affected]] = defaultdict(list)
    for one in affected:
        teams[one.team].append(one)
    return dict(sorted(teams.items()))


def _running(ended: list[Affected]) -> str:
    return plural(len(ended), "running workload")


def _size(ended: list[Affected]) -> str:
    return f"{plural(_gpus(ended), 'GPU')}, oldest {max(one.hours for one in ended)} h"


def _gpus(affected: list[Affected]) -> int:
    return sum(one.amount for one in affected)
