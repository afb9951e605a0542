"""Waits until the pods of a stack stop changing, and reports servers that are not ready, with reasons."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

from gpu_tenancy.base.json import int_at, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import belongs
from gpu_tenancy.cluster.pods import name_of, namespace_of
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import WaitTimeoutError
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.model.kinds import kind_at
from gpu_tenancy.model.names import QUEUE_LABEL
from gpu_tenancy.model.plan import Plan

# Seconds without a change before pods count as stable; longer than the embedded autoscaler's period.
_QUIET: Final = 3.0
_WITHIN: Final = 30.0  # seconds in which pods must become stable; otherwise the summary shows the state at that moment
_INTERVAL: Final = 5.0  # seconds between two lines of progress
_LISTED: Final = 10  # number of servers that are named; the others are counted


def settle(cluster: Cluster, plan: Plan, report: Report = lambda _: None) -> tuple[str, ...]:
    """Waits until pods stop changing, up to 30 s, and reports the number of scheduled pods; others stay pending.

    Returns a line for each server that is not ready, with the reason.
    """
    teams = frozenset(team.namespace.name for team in plan.teams)
    began = time.monotonic()
    last: tuple[float, list[tuple[str, str]]] = (began, [])
    reported = began

    def steady() -> bool:
        nonlocal last, reported
        now = sorted(
            (text_at(pod, "metadata", "uid"), text_at(pod, "spec", "nodeName"))
            for pod in _of(cluster, "v1", "Pod", teams)
        )
        moment = time.monotonic()
        if now != last[1]:
            last = (moment, now)
        if moment - reported >= _INTERVAL:
            reported = moment
            report(f"{sum(1 for _, node in now if node)} of {plural(len(now), 'pod')} scheduled")
        return moment - last[0] > _QUIET

    with suppress(WaitTimeoutError):
        cluster.wait_for(steady, timeout=_WITHIN, what="pods to become stable")
    servers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for server in (server for team in plan.teams for server in team.servers):
        servers.setdefault(server.api, set()).add((server.team, server.name))
    lines = [line for api, names in sorted(servers.items()) for line in _not_ready(cluster, api, names, teams)]
    more = [f"{plural(len(lines) - _LISTED, 'more server')}"] if len(lines) > _LISTED else []
    return (*lines[:_LISTED], *more)


def _of(cluster: Cluster, api_version: str, kind: str, teams: frozenset[str]) -> list[Manifest]:
    """The objects of a kind in the namespaces of teams, by one list of all namespaces."""
    return [item for item in cluster.list(api_version, kind) if text_at(item, "metadata", "namespace") in teams]


def _not_ready(
    cluster: Cluster, api: tuple[str, str], servers: AbstractSet[tuple[str, str]], teams: frozenset[str]
) -> Iterator[str]:
    kind = kind_at(api)
    pods: list[Manifest] | None = None
    for server in _of(cluster, *api, teams):
        ready, wanted = int_at(server, "status", kind.ready), int_at(server, "spec", "replicas")
        if (namespace_of(server), name_of(server)) in servers and ready < wanted:
            pods = _of(cluster, "v1", "Pod", teams) if pods is None else pods
            own = [pod for pod in pods if namespace_of(pod) == namespace_of(server) and belongs(pod, server)]
            title = f"{kind.kind} {namespace_of(server)}/{name_of(server)}"
            yield f"{title}: {ready} of {plural(wanted, 'replica')}: {_why(server, own)}"


def _why(server: Manifest, pods: Sequence[Manifest]) -> str:
    """The reason: pods that are rejected by a quota or a policy, else pods that are pending or do not start."""
    if is_true(server, "ReplicaFailure"):
        return text_at(condition(server, "ReplicaFailure"), "message")
    reasons = [reason for pod in pods if not is_true(pod, "Ready") and (reason := _of_pod(pod))]
    return reasons[0] if reasons else "its pods are starting"


def _of_pod(pod: Manifest) -> str:
    for status in (*maps_at(pod, "status", "initContainerStatuses"), *maps_at(pod, "status", "containerStatuses")):
        waiting = map_at(status, "state", "waiting")
        if reason := text_at(waiting, "reason"):
            return f"container {text_at(status, 'name')}: {reason}: {text_at(waiting, 'message')}".removesuffix(": ")
    scheduled = condition(pod, "PodScheduled")
    if text_at(scheduled, "reason") == "SchedulingGated":
        return "pending in its queue; see `tenancy why`"
    return text_at(scheduled, "message")


def in_turns(waves: Iterable[Iterable[KubernetesObject]]) -> Iterator[list[KubernetesObject]]:
    """Splits waves: workloads of one queue are created one after another, workloads of different queues together.

    Kueue admits workloads of the same priority in the order in which they were created, and objects of a wave are
    created at the same time.
    """
    for wave in waves:
        before = Counter[tuple[str, str]]()
        turns = defaultdict[int, list[KubernetesObject]](list)
        for item in wave:
            queue = item.namespace, text_at(item.manifest, "metadata", "labels", QUEUE_LABEL)
            turns[before[queue]].append(item)
            before[queue] += bool(queue[1])
        yield from turns.values()
