"""Checks that quotas, flavors and priorities work, by sample pods for the cluster's own admission and scheduling."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.quantity import CPU, MEMORY, amount, amount_text, format_amounts
from gpu_tenancy.embedded.nodes import add_node
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.local.checks.check import CHECK, IMAGE, Check, on_temporary_nodes, temporary_node
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.namespaces import NamespacePlan, gpu_resources
from gpu_tenancy.model.plan.shares import Tree

NAMESPACE: Final = "tenancy-check"
PATIENCE: Final = 20.0  # seconds to schedule one pod; about 1 s is usual

_EXCEEDED: Final = "exceeded quota"

_SMALL: Final = {CPU: 100, MEMORY: 128 * 2**20}


def check_placement(cluster: Cluster, plan: Plan, tree: Tree) -> tuple[Check, ...]:
    """Checks quotas, and on temporary nodes flavors, and that the scheduler preempts no pod."""
    default = next((name for name, priority in plan.priorities.items() if priority.default), None)

    def quota(team: NamespacePlan) -> tuple[Check, ...]:
        return tuple(_quota(cluster, team, tree, tree.stack.teams[team.name].priority or default))

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        quotas = [check for checks in pool.map(quota, (team.namespace for team in plan.teams)) for check in checks]
    flavors = [tree.flavors[flavor.name] for flavor in plan.queues.flavors if flavor.taints]
    by_value = sorted(plan.priorities, key=lambda name: plan.priorities[name].value)
    with _place(cluster):
        checks = [*quotas, *_models(cluster, flavors)]
        if flavors and len(by_value) > 1 and not plan.priorities[by_value[-1]].preempts:
            checks.append(_waits(cluster, flavors[0], by_value[0], by_value[-1]))
        return tuple(checks)


def _quota(cluster: Cluster, team: NamespacePlan, tree: Tree, priority: str | None) -> Iterator[Check]:
    """Checks that a pod with one GPU (or CPU) more than the team's free quota is rejected by the ResourceQuota."""
    hard = team.quotas[0].hard
    gpus = [resource for resource in gpu_resources(tree) if hard.get(f"requests.{resource}")]
    for resource in gpus or ([CPU] if hard.get(f"requests.{CPU}") else []):
        maximum = team.limits.max.get(resource) or max(flavor.node.get(resource, 0) for flavor in tree.flavors.values())
        unit = 1000 if resource == CPU else 1

        def rejected(requested: int, resource: str = resource, maximum: int = maximum) -> str | None:
            try:
                cluster.create(_sample(team, resource, requested, maximum, priority), dry_run=True)
            except ApiError as error:
                return str(error)
            return None

        bound, used, refused, rejection = quota_tried(cluster, team, f"requests.{resource}", unit, rejected)
        free, fits = bound - used, refused is None
        result = "is rejected" if rejection else "is admitted"
        hard_text, used_text, free_text, more = (
            amount_text(resource, value) for value in (bound, used, free, free + unit)
        )
        admitted = f"a pod with {free_text} is {'admitted' if fits else 'rejected'}, " if free else ""
        does = "request" if tree.stack.teams[team.name].compute.waiting else "use"
        yield Check(
            f"{team.name} cannot {does} more than its {hard_text} {'CPUs' if resource == CPU else resource}",
            f"{used_text} used; {admitted}a pod with {more} {result}",
            holds=fits and rejection is not None and _EXCEEDED in rejection,
            message=rejection or "",
        )


def quota_tried(
    cluster: Cluster, team: NamespacePlan, field: str, unit: int, rejected: Callable[[int], str | None]
) -> tuple[int, int, str | None, str | None]:
    """Bound and usage of a quota, and why pods with the free amount and with one unit more are rejected.

    Tried again while the controller has not counted a new bound, pods of the team start or end meanwhile, or the API
    server answers by an earlier usage: its own copy of a quota may be older than the one that it returns.
    """

    def counted() -> tuple[bool, int, int]:
        quota = cluster.get("v1", "ResourceQuota", team.quotas[0].name, team.name) or {}
        current = at(quota, "spec", "hard", field) == at(quota, "status", "hard", field)
        return current, _count(quota, "hard", field), _count(quota, "used", field)

    tried: list[tuple[int, int, str | None, str | None]] = []

    def settled() -> bool:
        current, hard, used = before = counted()
        free = hard - used
        tried.append((hard, used, rejected(free) if free else None, rejected(free + unit)))
        *_, refused, rejection = tried[-1]
        stale = _EXCEEDED in (refused or "") or rejection is None
        return current and counted() == before and not stale

    with suppress(ConsoleError):
        cluster.wait_for(settled, what=f"the usage of quota {team.quotas[0].name} of {team.name}", timeout=PATIENCE)
    return tried[-1]


def _count(quota: Mapping[str, Json], field: str, resource: str) -> int:
    written = at(quota, "status", field, resource)
    return amount(resource, written) if isinstance(written, str) else 0


def _sample(team: NamespacePlan, resource: str, requested: int, maximum: int, priority: str | None) -> Manifest:
    """A pod that requests GPUs or CPUs, in containers within the team's LimitRange."""
    minimum = {name: max(value, team.limits.min.get(name, 0)) for name, value in _SMALL.items()}
    sizes = [min(maximum, requested - start) for start in range(0, requested, maximum)]
    containers: list[Json] = [_container(f"c{i}", {**minimum, resource: size}) for i, size in enumerate(sizes)]
    return _pod("tenancy-check", team.name, containers, priority, terminationGracePeriodSeconds=0)


def _container(name: str, amounts: Mapping[str, int]) -> Json:
    written: Json = dict(format_amounts(amounts))
    return {"name": name, "image": IMAGE, "resources": {"requests": written, "limits": written}}


def _pod(name: str, namespace: str, containers: list[Json], priority: str | None, **more: Json) -> Manifest:
    spec: Json = {"containers": containers, **more, **({"priorityClassName": priority} if priority else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@contextmanager
def _place(cluster: Cluster) -> Generator[None]:
    _clear(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    # A pod needs the namespace's ServiceAccount, which a controller creates.
    account = f"ServiceAccount {NAMESPACE}/default"
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", NAMESPACE), what=account)
    try:
        yield
    finally:
        # Deleting a namespace takes about 5 s; only the next checks have to wait for it.
        _clear(cluster, wait=0)


def _clear(cluster: Cluster, *, wait: float = 60) -> None:
    cluster.delete(Reference("v1", "Namespace", NAMESPACE), wait=wait)
    for node in cluster.list("v1", "Node", labels=CHECK):
        cluster.delete(Reference.of(node))


def _models(cluster: Cluster, flavors: Sequence[Flavor]) -> Iterator[Check]:
    """Checks with one node of each model that pods run on the requested model, and only with a toleration."""
    nodes = {flavor.name: temporary_node(flavor, flavor.name, flavor.node) for flavor in flavors}
    for node in nodes.values():
        add_node(cluster, node)
    for flavor in flavors:
        cluster.create(_on(flavor, f"on-{flavor.name}", 1))
    for name, node in nodes.items():
        scheduled_on = _scheduled_on(cluster, f"on-{name}")
        yield Check(
            f"pods that request {name} run on {name} nodes only",
            f"{f'scheduled on {scheduled_on}' if scheduled_on else 'not scheduled'};"
            f" nodes of {', '.join(nodes)} were available",
            holds=scheduled_on == node.name,
        )
    if flavors:
        yield _without_toleration(cluster, flavors[0])


def _without_toleration(cluster: Cluster, flavor: Flavor) -> Check:
    # Without GPUs: API servers of clouds add the toleration to pods that request them (ExtendedResourceToleration).
    spec = on_temporary_nodes(flavor, tolerate=False)
    cluster.create(_pod("no-toleration", NAMESPACE, [_container("c", _SMALL)], None, **spec))
    message = _unscheduled(cluster, "no-toleration")
    return Check(
        f"pods without a toleration for the GPU taint do not run on {flavor.name} nodes",
        "a pod without it is pending" if (tainted := "untolerated taint" in message) else "a pod without it was tried",
        holds=tainted,
        message=message,
    )


def _unscheduled(cluster: Cluster, name: str) -> str:
    """The scheduler's message about a pod."""

    def message() -> str | None:
        scheduled = condition(cluster.get("v1", "Pod", name, NAMESPACE) or {}, "PodScheduled")
        return (text_at(scheduled, "message") or "the pod was scheduled") if scheduled else None

    return cluster.wait_for(message, what=f"condition PodScheduled of pod {name}", timeout=PATIENCE)


def _on(flavor: Flavor, name: str, gpus: int, priority: str | None = None) -> Manifest:
    """A pod for the temporary node of a flavor, with some of its GPUs, or its CPU if the flavor has no GPUs."""
    containers = [_container("c", {**_SMALL, flavor.resource or CPU: gpus})]
    return _pod(name, NAMESPACE, containers, priority, **on_temporary_nodes(flavor))


def _scheduled_on(cluster: Cluster, name: str) -> str | None:
    """The node on which a pod runs; None if it does not run within the timeout."""

    def node() -> str | None:
        pod = cluster.get("v1", "Pod", name, NAMESPACE) or {}
        return (text_at(pod, "spec", "nodeName") or None) if text_at(pod, "status", "phase") == "Running" else None

    with suppress(ConsoleError):
        return cluster.wait_for(node, what=f"pod {name} to run", timeout=PATIENCE)
    return None


def _waits(cluster: Cluster, flavor: Flavor, low: str, high: str) -> Check:
    all_of_node = flavor.node[flavor.resource or CPU]
    cluster.delete(Reference("v1", "Pod", f"on-{flavor.name}", NAMESPACE), grace=0)
    cluster.create(_on(flavor, "first", all_of_node, low))
    first = _scheduled_on(cluster, "first")
    cluster.create(_on(flavor, "second", all_of_node, high))
    message = _unscheduled(cluster, "second")
    waits = "preemptionPolicy=Never" in message
    gpus = all_of_node if flavor.resource else 0
    return Check(
        f"on a full node, {high} waits for {low}: only Kueue preempts",
        f"{low} used all {gpus} GPUs of {first}; {high} requested {gpus} and"
        f" {'is pending, and may end no pod' if waits else 'is not kept from ending pods'}",
        holds=first is not None and waits,
        message=message,
    )
