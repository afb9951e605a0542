"""State of a tenancy as read from its API server: guarantees, limits and usage."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.errors import WaitTimeoutError
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.queues import GangQueue
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.quantity import parse_quantity

KUEUE = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs of one flavor that one team may use.

    Attributes:
        queue: `Kueue`, or `Volcano` for gangs.
        guaranteed: nominal quota.
        limit: nominal quota and borrowing limit.
        used: GPUs of its scheduled pods.
        lends: whether other teams may borrow its idle guarantee.
    """

    team: str
    flavor: str
    queue: str
    guaranteed: int
    limit: int
    used: int
    lends: bool


@dataclass(frozen=True, slots=True)
class Budget:
    """One resource of a ResourceQuota, as in its status."""

    team: str
    quota: str
    resource: str
    used: str
    hard: str


@dataclass(frozen=True, slots=True)
class Supply:
    """A flavor's nodes, allocatable GPUs and GPUs in use."""

    flavor: str
    product: str
    nodes: int
    gpus: int
    used: int


@dataclass(frozen=True, slots=True)
class Summary:
    """State of the whole tenancy at one moment."""

    holdings: tuple[Holding, ...]
    budgets: tuple[Budget, ...]
    supply: tuple[Supply, ...]
    waiting: int
    astray: tuple[str, ...]
    """Pods on nodes with a different GPU model than requested; empty if the scheduler works."""


def summarise(cluster: Cluster, plan: Plan, tree: Tree) -> Summary:
    """Reads queues, quotas, nodes and pods from the API server."""
    nodes = {text_at(node, "metadata", "name"): node for node in cluster.list("v1", "Node")}
    teams = [team.namespace.name for team in plan.teams]
    pods = [pod for team in teams for pod in cluster.list("v1", "Pod", namespace=team) if not _ended(pod)]
    used = _used(pods, nodes, tree)
    return Summary(
        holdings=tuple(_holdings(cluster, plan, tree, used)),
        budgets=tuple(budget for team in teams for budget in _budgets(cluster, team)),
        supply=tuple(_supply(flavor, nodes, used, tree) for flavor in tree.flavors if tree.flavors[flavor].resource),
        waiting=sum(1 for pod in pods if not text_at(pod, "spec", "nodeName")),
        astray=tuple(_astray(pods, nodes)),
    )


def settle(cluster: Cluster, plan: Plan) -> None:
    """Waits until pods stop changing, up to 30 s; unschedulable pods stay pending."""
    teams = [team.namespace.name for team in plan.teams]
    last: tuple[float, list[tuple[str, str]]] = (time.monotonic(), [])

    def steady() -> bool:
        nonlocal last
        pods = [pod for team in teams for pod in cluster.list("v1", "Pod", namespace=team)]
        now = sorted((text_at(pod, "metadata", "uid"), text_at(pod, "spec", "nodeName")) for pod in pods)
        if now != last[1]:
            last = (time.monotonic(), now)
        return time.monotonic() - last[0] > _QUIET

    with suppress(WaitTimeoutError):  # If pods keep changing, the summary shows the state at that moment.
        cluster.wait_for(steady, timeout=30, what="pods to become stable")


_QUIET = 3.0
"""Seconds without a change before pods count as stable; longer than the period of the embedded autoscaler."""


def _ended(pod: Mapping[str, Json]) -> bool:
    return text_at(pod, "status", "phase") in {"Succeeded", "Failed"}


def _used(pods: list[Manifest], nodes: Mapping[str, Manifest], tree: Tree) -> dict[tuple[str, str, str], int]:
    """GPUs of scheduled pods, by namespace, flavor and the scheduler that placed them."""
    used: dict[tuple[str, str, str], int] = {}
    for pod in pods:
        node = nodes.get(text_at(pod, "spec", "nodeName"))
        flavor = _flavor_of(node, tree) if node else None
        if flavor is None:
            continue
        scheduler = "Volcano" if text_at(pod, "spec", "schedulerName") == "volcano" else "Kueue"
        key = (text_at(pod, "metadata", "namespace"), flavor, scheduler)
        used[key] = used.get(key, 0) + _gpus(pod, tree.flavors[flavor].resource or "")
    return used


def _flavor_of(node: Mapping[str, Json], tree: Tree) -> str | None:
    """The flavor whose node labels the node has."""
    labels = at(node, "metadata", "labels")
    present = labels if isinstance(labels, dict) else {}
    for name, flavor in tree.flavors.items():
        if flavor.resource and all(present.get(key) == value for key, value in flavor.node_labels.items()):
            return name
    return None


def _gpus(pod: Mapping[str, Json], resource: str) -> int:
    amounts = (
        text_at(container, "resources", "requests", resource) for container in maps_at(pod, "spec", "containers")
    )
    return sum(int(parse_quantity(amount)) for amount in amounts if amount)


def _holdings(cluster: Cluster, plan: Plan, tree: Tree, used: Mapping[tuple[str, str, str], int]) -> Iterator[Holding]:
    for queue in plan.queues.cluster_queues:
        cluster_queue = cluster.get(KUEUE, "ClusterQueue", queue.name) or {}
        for flavor, line in _lines(cluster_queue):
            if line["name"] != tree.flavors[flavor].resource:
                continue
            nominal, borrowing = _amount(line, "nominalQuota"), _amount(line, "borrowingLimit")
            if nominal + borrowing:
                taken = sum(used.get((namespace, flavor, "Kueue"), 0) for namespace in queue.namespaces)
                lends = line.get("lendingLimit") != "0"
                yield Holding(queue.name, flavor, "Kueue", nominal, nominal + borrowing, taken, lends)
    for gangs in plan.queues.gang_queues:
        yield _gangs(cluster, gangs, tree, used)


def _gangs(cluster: Cluster, gangs: GangQueue, tree: Tree, used: Mapping[tuple[str, str, str], int]) -> Holding:
    queue = cluster.get("scheduling.volcano.sh/v1beta1", "Queue", gangs.name) or {}
    resource = tree.flavors[gangs.flavor].resource or ""
    guaranteed, limit = (
        int(text_at(queue, *path, resource) or 0)
        for path in (("spec", "guarantee", "resource"), ("spec", "capability"))
    )
    taken = used.get((gangs.team, gangs.flavor, "Volcano"), 0)
    return Holding(gangs.team, gangs.flavor, "Volcano", guaranteed, limit, taken, lends=False)


def _lines(queue: Mapping[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    for group in maps_at(queue, "spec", "resourceGroups"):
        for flavor in maps_at(group, "flavors"):
            for line in maps_at(flavor, "resources"):
                yield text_at(flavor, "name"), line


def _amount(line: Mapping[str, Json], key: str) -> int:
    return int(parse_quantity(text_at(line, key) or "0"))


def _budgets(cluster: Cluster, team: str) -> Iterator[Budget]:
    for quota in cluster.list("v1", "ResourceQuota", namespace=team):
        hard = at(quota, "status", "hard")
        for resource in sorted(hard if isinstance(hard, dict) else ()):
            used = text_at(quota, "status", "used", resource)
            yield Budget(
                team, text_at(quota, "metadata", "name"), resource, used, text_at(quota, "status", "hard", resource)
            )


def _supply(name: str, nodes: Mapping[str, Manifest], used: Mapping[tuple[str, str, str], int], tree: Tree) -> Supply:
    flavor = tree.flavors[name]
    own = [node for node in nodes.values() if _flavor_of(node, tree) == name]
    gpus = sum(int(text_at(node, "status", "allocatable", flavor.resource or "") or 0) for node in own)
    taken = sum(amount for (_, of, _), amount in used.items() if of == name)
    return Supply(name, flavor.product or "", len(own), gpus, taken)


def _astray(pods: list[Manifest], nodes: Mapping[str, Manifest]) -> Iterator[str]:
    for pod in pods:
        node = nodes.get(text_at(pod, "spec", "nodeName"))
        selector = at(pod, "spec", "nodeSelector")
        for label, value in (selector if isinstance(selector, dict) else {}).items():
            if node and text_at(node, "metadata", "labels", label) != value:
                yield f"{text_at(pod, 'metadata', 'namespace')}/{text_at(pod, 'metadata', 'name')}"
