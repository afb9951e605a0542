"""Proofs that a tenancy's promises hold: sample pods, judged by the cluster's own admission and scheduler.

They leave nothing behind: the quota's samples are dry runs, the scheduler's run on nodes and in a namespace of their
own.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.errors import ApiError
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.cluster.waiting import condition
from gpu_tenancy.console.embedded.nodes import NodeShape, add_node
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.offline.wire import Json, at, text_at
from gpu_tenancy.model.plan import Plan, PriorityPlan
from gpu_tenancy.model.plan.namespaces import NamespacePlan, gpu_resources
from gpu_tenancy.model.plan.queues import ResourceFlavor
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import NodeTaint
from gpu_tenancy.model.quantity import CPU, MEMORY, format_amounts

NAMESPACE: Final = "tenancy-proof"
PROOF: Final = "gpu-tenancy.dev/proof"
"""Label and taint of the proofs' own nodes, which no other pod lands on."""

PATIENCE: Final = 20.0
"""Seconds that the scheduler has for one pod; one is usual."""

_IMAGE: Final = "registry.example.com/proof:1"
_SMALL: Final = {CPU: 100, MEMORY: 128 * 2**20}


@dataclass(frozen=True, slots=True)
class Proof:
    """One promise, and what the cluster said when it was put to the test.

    Attributes:
        promise: what must hold.
        seen: what was seen, with the cluster's own words where it refused.
        holds: whether that is what was promised.
    """

    promise: str
    seen: str
    holds: bool


def prove(cluster: Cluster, plan: Plan, tree: Tree) -> tuple[Proof, ...]:
    """Puts the promises to the test, on a cluster whose nodes kwok plays."""
    quotas = tuple(
        proof
        for team in plan.teams
        for proof in _quota(cluster, team.namespace, tree, _default(plan, tree, team.namespace.name))
    )
    with _place(cluster):
        return (*quotas, *_models(cluster, plan, tree), *_preemption(cluster, plan, tree))


def _default(plan: Plan, tree: Tree, team: str) -> str | None:
    return tree.stack.teams[team].priority or next((each.name for each in plan.priorities if each.default), None)


def _quota(cluster: Cluster, team: NamespacePlan, tree: Tree, priority: str | None) -> Iterator[Proof]:
    """A pod that asks for one GPU more than the team has left is refused, by the name of the quota."""
    budget = cluster.get("v1", "ResourceQuota", team.quotas[0].name, team.name)
    for resource in gpu_resources(tree):
        if not team.quotas[0].hard.get(f"requests.{resource}"):
            continue
        most = team.limits.max.get(resource) or max(each.node.get(resource, 0) for each in tree.flavors.values())
        hard, used = (_count(budget, field, f"requests.{resource}") for field in ("hard", "used"))
        left = hard - used
        refused = _refusal(cluster, _sample(team, resource, left + 1, most, priority))
        fits = left == 0 or _refusal(cluster, _sample(team, resource, left, most, priority)) is None
        yield Proof(
            f"{team.name} gets no more than its {hard} {resource}",
            f"{used} used; {_asking(left, fits=fits)}one of {left + 1}: {refused or 'was admitted'}",
            holds=fits and refused is not None and "exceeded quota" in refused,
        )


def _asking(left: int, *, fits: bool) -> str:
    return f"a pod of the {left} left {'is admitted' if fits else 'is refused'}, " if left else ""


def _count(quota: Mapping[str, Json] | None, field: str, resource: str) -> int:
    amount = at(quota or {}, "status", field, resource)
    return int(amount) if isinstance(amount, str) else 0


def _refusal(cluster: Cluster, pod: Manifest) -> str | None:
    """The API server's words where it refuses a pod; nothing is kept either way."""
    try:
        cluster.create(pod, dry_run=True)
    except ApiError as error:
        return str(error)
    return None


def _sample(team: NamespacePlan, resource: str, gpus: int, most: int, priority: str | None) -> Manifest:
    """A pod that asks for GPUs, in containers that are no larger than the team's may be."""
    least = {name: max(amount, team.limits.min.get(name, 0)) for name, amount in _SMALL.items()}
    sizes = [min(most, gpus - start) for start in range(0, gpus, most)]
    containers: list[Json] = [_container(f"c{i}", {**least, resource: size}) for i, size in enumerate(sizes)]
    return _pod("tenancy-proof", team.name, containers, priority)


def _container(name: str, amounts: Mapping[str, int]) -> Json:
    written: Json = dict(format_amounts(amounts))
    return {"name": name, "image": _IMAGE, "resources": {"requests": written, "limits": written}}


def _pod(name: str, namespace: str, containers: list[Json], priority: str | None) -> Manifest:
    spec: dict[str, Json] = {"containers": containers, "terminationGracePeriodSeconds": 0}
    if priority:
        spec["priorityClassName"] = priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


@contextmanager
def _place(cluster: Cluster) -> Generator[None]:
    """The proofs' own namespace, and afterwards neither it nor its nodes."""
    _clear(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # A pod needs its namespace's account, which a controller makes.
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", NAMESPACE), what="the account")
    try:
        yield
    finally:
        # A namespace takes five seconds to go, for which nobody but the next proofs need wait.
        _clear(cluster, wait=0)


def _clear(cluster: Cluster, *, wait: float = 60) -> None:
    cluster.delete(Reference("v1", "Namespace", NAMESPACE), wait=wait)
    for node in cluster.list("v1", "Node", labels=PROOF):
        cluster.delete(Reference("v1", "Node", text_at(node, "metadata", "name")))


def _models(cluster: Cluster, plan: Plan, tree: Tree) -> Iterator[Proof]:
    """A node of each model beside one another: a pod that asks for one lands there, and only with a toleration."""
    flavors = [flavor for flavor in plan.queues.flavors if flavor.taints]
    for flavor in flavors:
        _node(cluster, flavor, tree)
    for flavor in flavors:
        cluster.create(_asking_for(flavor, tree, f"on-{flavor.name}"))
    for flavor in flavors:
        landed = _lands(cluster, f"on-{flavor.name}")
        node = _name(flavor)
        yield Proof(
            f"a pod that asks for {flavor.name} lands on a node of that model",
            f"beside nodes of {', '.join(f.name for f in flavors)} it landed on {landed or 'no node'}",
            holds=landed == node,
        )
    if flavors:
        yield _without_toleration(cluster, flavors[0], tree)


def _without_toleration(cluster: Cluster, flavor: ResourceFlavor, tree: Tree) -> Proof:
    pod = _asking_for(flavor, tree, "no-toleration", tolerate=False)
    cluster.create(pod)
    words = cluster.wait_for(
        lambda: _unscheduled(cluster, "no-toleration"), what="the scheduler's word", timeout=PATIENCE
    )
    return Proof(
        f"a pod that does not tolerate the GPU's taint stays off {flavor.name}",
        words,
        holds="untolerated taint" in words,
    )


def _unscheduled(cluster: Cluster, name: str) -> str | None:
    scheduled = condition(cluster.get("v1", "Pod", name, NAMESPACE) or {}, "PodScheduled")
    return (text_at(scheduled, "message") or "it was scheduled") if scheduled else None


def _name(flavor: ResourceFlavor) -> str:
    return f"proof-{flavor.name}"


def _node(cluster: Cluster, flavor: ResourceFlavor, tree: Tree) -> None:
    """One more node of the flavor, for the proofs alone."""
    capacity = {**format_amounts(tree.flavors[flavor.name].node), "pods": "10"}
    taints = (*flavor.taints, NodeTaint(PROOF, "", "NoSchedule"))
    add_node(cluster, NodeShape(_name(flavor), {**flavor.node_labels, PROOF: "true"}, taints, capacity))


def _asking_for(flavor: ResourceFlavor, tree: Tree, name: str, *, tolerate: bool = True) -> Manifest:
    """A pod that asks for one GPU of a model."""
    return _on(flavor, name, {tree.flavors[flavor.name].resource or CPU: 1}, tolerate=tolerate)


def _on(flavor: ResourceFlavor, name: str, gpus: Mapping[str, int], *, tolerate: bool = True) -> Manifest:
    """A pod for the proofs' nodes of a flavor."""
    pod = _pod(name, NAMESPACE, [_container("c", {**_SMALL, **gpus})], None)
    tolerated = [PROOF, *(taint.key for taint in flavor.taints)] if tolerate else [PROOF]
    tolerations: list[Json] = [{"key": key, "operator": "Exists"} for key in tolerated]
    selector: dict[str, Json] = {**flavor.node_labels, PROOF: "true"}
    spec = pod["spec"]
    if isinstance(spec, dict):
        spec |= {"nodeSelector": selector, "tolerations": tolerations}
    return pod


def _filling(flavor: ResourceFlavor, tree: Tree, name: str, priority: str) -> Manifest:
    """A pod that asks for all GPUs of a node."""
    resource = tree.flavors[flavor.name].resource or CPU
    pod = _on(flavor, name, {resource: tree.flavors[flavor.name].node[resource]})
    spec = pod["spec"]
    if isinstance(spec, dict):
        spec["priorityClassName"] = priority
    return pod


def _lands(cluster: Cluster, name: str) -> str | None:
    """The node on which a pod runs; None where it does not within a while."""
    try:
        return cluster.wait_for(lambda: _node_of(cluster, name) or None, what=f"{name} to run", timeout=PATIENCE)
    except ConsoleError:
        return None


def _node_of(cluster: Cluster, name: str) -> str:
    pod = cluster.get("v1", "Pod", name, NAMESPACE) or {}
    return text_at(pod, "spec", "nodeName") if text_at(pod, "status", "phase") == "Running" else ""


def _preemption(cluster: Cluster, plan: Plan, tree: Tree) -> Iterator[Proof]:
    """On a node that the lowest priority has filled, the highest that preempts gets in and the other goes."""
    flavor = next((flavor for flavor in plan.queues.flavors if flavor.taints), None)
    ordered = sorted(plan.priorities, key=lambda priority: priority.value)
    high = next((priority for priority in reversed(ordered) if priority.preempts), None)
    if flavor is None or high is None or ordered[0].value >= high.value:
        return
    yield _pushes_off(cluster, flavor, tree, ordered[0], high)


def _pushes_off(cluster: Cluster, flavor: ResourceFlavor, tree: Tree, low: PriorityPlan, high: PriorityPlan) -> Proof:
    cluster.delete(Reference("v1", "Pod", f"on-{flavor.name}", NAMESPACE), grace=0)
    cluster.create(_filling(flavor, tree, "first", low.name))
    first = _lands(cluster, "first")
    cluster.create(_filling(flavor, tree, "second", high.name))
    second = _lands(cluster, "second")
    left = cluster.get("v1", "Pod", "first", NAMESPACE)
    gpus = tree.flavors[flavor.name].node.get(tree.flavors[flavor.name].resource or "", 0)
    return Proof(
        f"{high.name} pushes {low.name} off a full node",
        f"{low.name} held all {gpus} GPUs of {first}; then {high.name} asked for {gpus} and"
        f" {'runs on ' + second if second else 'got none'}, {low.name} {'is gone' if left is None else 'still runs'}",
        holds=first is not None and first == second and left is None,
    )
