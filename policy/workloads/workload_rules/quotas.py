"""Rules for ResourceQuotas and LimitRanges."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from pydantic import Field

from rule_engine import Resource, Stack, format_number, located_at, rule
from workload_rules.objects import CLUSTER_QUEUES, LIMIT_RANGES, LOCAL_QUEUES, QUOTAS, always, matches_any, name, scopes
from workload_rules.pods import TenantGpus, Tenants, namespace_of
from workload_rules.priorities import ClassSettings, is_missing_class

_PODS: Final = frozenset({"pods", "count/pods"})
_COMPUTE: Final = frozenset(
    {f"{side}{resource}" for side in ("", "requests.", "limits.") for resource in ("cpu", "memory")}
)
_CLAIMS: Final = frozenset({"persistentvolumeclaims", "requests.storage"})


def _extended(resource: str) -> bool:
    """Whether a resource is an extended resource: https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/."""
    domain = resource.partition("/")[0]
    return "/" in resource and domain != "count" and not domain.endswith(("kubernetes.io", "k8s.io"))


def gpu_lines(quota: Resource, settings: TenantGpus) -> dict[str, Decimal]:
    """The GPUs of a quota, by resource name."""
    lines = quota.props.entries("spec", "hard")
    names = {line.removeprefix("requests."): line for line in lines if line.startswith("requests.")}
    return {
        resource: lines[line].number() or Decimal(0)
        for resource, line in sorted(names.items())
        if settings.is_gpu(resource)
    }


@rule("quota-requests-prefix", QUOTAS)
def quota_requests_prefix(quota: Resource, settings: Tenants) -> Iterator[str]:
    """A ResourceQuota must name GPUs and other extended resources with the prefix `requests.` only."""
    if not settings.tenant(namespace_of(quota)):
        return
    for line in quota.props.entries("spec", "hard"):
        resource = line.removeprefix("limits.")
        if not line.startswith("requests.") and _extended(resource):
            yield f"{line} is not counted; use requests.{resource}"


def _counts(scope: str, line: str) -> bool:
    """Whether a quota with this scope accepts and counts a key of `hard`.

    Scopes match pods or claims only, so other objects are never counted, and of `count/…` keys only `count/pods` is.
    """
    if scope == "VolumeAttributesClass":
        return line in {*_CLAIMS, "count/persistentvolumeclaims"} or ".storageclass.storage.k8s.io/" in line
    if scope == "BestEffort":
        return line in _PODS
    return line in _PODS | _COMPUTE or (line.startswith("requests.") and _extended(line.removeprefix("requests.")))


@rule("quota-scopes", QUOTAS)
def quota_scopes(quota: Resource, settings: Tenants) -> Iterator[str]:
    """A ResourceQuota with a scope must limit only what that scope counts."""
    if not settings.tenant(namespace_of(quota)):
        return
    lines = list(quota.props.entries("spec", "hard"))
    for scope in sorted({scope for scope, _, _ in scopes(quota)}):
        wrong = [line for line in lines if not _counts(scope, line)]
        if wrong:
            counted = {"BestEffort": "pods", "VolumeAttributesClass": "claims and storage"}.get(
                scope, "pods, cpu, memory and requests of GPUs"
            )
            yield (
                f"scope {scope} counts {counted}, not {', '.join(wrong)}; move {'it' if len(wrong) == 1 else 'them'}"
                " to a separate quota"
            )


@rule("quota-scope-classes", QUOTAS)
def quota_scope_classes(quota: Resource, settings: ClassSettings, stack: Stack) -> Iterator[str]:
    """The priority classes in a quota's scope must exist."""
    if not settings.tenant(namespace_of(quota)):
        return
    for scope, _, view in scopes(quota):
        for value in view.items("values") if scope == "PriorityClass" and isinstance(view.value, dict) else ():
            if is_missing_class(value.text(), settings, stack):
                yield (
                    f"scope references PriorityClass {value.text()}, which does not exist in this stack; correct the"
                    " name or create it"
                )


@rule("limit-range-gpus", LIMIT_RANGES)
def limit_range_gpus(limits: Resource, settings: TenantGpus) -> Iterator[str]:
    """A LimitRange that limits GPUs must set the default to 0."""
    if not settings.tenant(namespace_of(limits)):
        return
    items = limits.props.items("spec", "limits")
    for item in items:
        kind = item.text("type")
        if kind not in {"Container", "Pod"}:
            continue
        sides = ("default", "defaultRequest", "max", "min")
        names = {resource for side in sides for resource in item.entries(side) if settings.is_gpu(resource)}
        for resource in sorted(names):
            amounts = {side: item.number(side, resource) for side in sides}
            if amounts["min"]:
                yield (
                    f"a minimum of {format_number(amounts['min'])} {resource} rejects every {kind} that requests none;"
                    " remove the minimum"
                )
            defaults_above_zero = [
                f"{side} {format_number(count)}" for side, count in amounts.items() if "default" in side and count
            ]
            bound = "max" if amounts["max"] is not None else "min"
            # Only containers have defaults, and the API server accepts no default request above the default.
            defaults = [item] if kind == "Container" else items
            zero = any(default.number("default", resource) == 0 for default in defaults)
            if defaults_above_zero:
                listed = " and ".join(defaults_above_zero)
                yield f"{listed} of {resource} applies to containers that request none; set 0"
            elif not zero:
                effect = "rejects pods that request none; add a Container item with"
                if kind == "Container":
                    effect = "is the default for containers that request none; add"
                yield f"{bound} of {resource} {effect} default and defaultRequest {{{resource}: 0}}"


class QueueQuota(TenantGpus):
    """Namespaces whose quota is compared with their queues."""

    shared: list[str] = Field([])
    """Namespaces, as patterns, whose quota may be lower than what their queue admits, because they share the queue."""


def _admits(queue: Resource, resource: str) -> Decimal | None:
    """The maximum of a resource that a ClusterQueue admits, over its flavors; None if it is unlimited."""
    total = Decimal(0)
    cohort = queue.props.text("spec", "cohortName") or queue.props.text("spec", "cohort")
    for group in queue.props.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            for resource_quota in flavor.items("resources"):
                if resource_quota.text("name") != resource:
                    continue
                total += resource_quota.number("nominalQuota") or 0
                limit = resource_quota.number("borrowingLimit") if cohort else Decimal(0)
                if limit is None:
                    return None
                total += limit
    return total


def _cluster_queues(namespace: str, stack: Stack) -> list[Resource]:
    """The ClusterQueues of a namespace's LocalQueues, each once; those created outside this stack are left out."""
    queues: dict[str, Resource | None] = {}
    for local_queue in stack.matching(LOCAL_QUEUES, always, (namespace_of, namespace)):
        with located_at(local_queue):
            queue_name = local_queue.props.text("spec", "clusterQueue")
        queues[queue_name] = stack.first(CLUSTER_QUEUES, always, (name, queue_name))
    return [queue for queue in queues.values() if queue is not None]


@rule("quota-not-below-queue", QUOTAS)
def quota_not_below_queue(quota: Resource, settings: QueueQuota, stack: Stack) -> Iterator[str]:
    """A namespace's GPU quota must not be lower than what its queues admit."""
    namespace = namespace_of(quota)
    if not settings.tenant(namespace) or any(scopes(quota)) or matches_any(namespace, settings.shared):
        return
    for resource, hard in gpu_lines(quota, settings).items():
        line = f"requests.{resource}"
        total, names = Decimal(0), list[str]()
        for queue in _cluster_queues(namespace, stack):
            with located_at(queue):
                admits = _admits(queue, resource)
            if admits is None:
                yield (
                    f"{line} is {format_number(hard)}, but ClusterQueue {name(queue)} can borrow {resource} without a"
                    " limit; set borrowingLimit in each of its flavors"
                )
                break
            total += admits
            names.append(name(queue))
        else:
            if total > hard:
                yield (
                    f"{line} is {format_number(hard)}, but ClusterQueue {', '.join(names)} admits up to"
                    f" {format_number(total)}; raise the quota, or lower nominalQuota and borrowingLimit"
                )
