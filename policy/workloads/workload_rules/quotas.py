"""Rules for ResourceQuotas and LimitRanges, and for Kueue's queues, cohorts, flavors, borrowing and API version."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from rule_engine import Part, Resource, Settings, Stack, Subject, View, format_number, kubernetes, located_at, rule
from workload_rules import objects
from workload_rules.jobs import Work
from workload_rules.objects import name
from workload_rules.pods import PODS, Gpus, TenantGpus, Tenants, holds_pods, namespace_of
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


@rule("quota-requests-prefix", objects.QUOTAS)
def quota_requests_prefix(quota: Resource, settings: Tenants) -> Iterator[str]:
    """A ResourceQuota must name GPUs and other extended resources with the prefix `requests.` only."""
    if not settings.tenant(namespace_of(quota)):
        return
    for line in quota.props.entries("spec", "hard"):
        resource = line.removeprefix("limits.")
        if not line.startswith("requests.") and _extended(resource):
            yield f"{line} is not counted; use requests.{resource}"


def _counts(scope: str, line: str) -> bool:
    """Whether a quota with this scope accepts and counts a key of `hard`."""
    # Scopes match pods or claims only, so other objects are never counted, and of `count/…` keys only `count/pods` is.
    if scope == "VolumeAttributesClass":
        return line in {*_CLAIMS, "count/persistentvolumeclaims"} or ".storageclass.storage.k8s.io/" in line
    if scope == "BestEffort":
        return line in _PODS
    return line in _PODS | _COMPUTE or (line.startswith("requests.") and _extended(line.removeprefix("requests.")))


@rule("quota-scopes", objects.QUOTAS)
def quota_scopes(quota: Resource, settings: Tenants) -> Iterator[str]:
    """A ResourceQuota with a scope must limit only what that scope counts."""
    if not settings.tenant(namespace_of(quota)):
        return
    lines = list(quota.props.entries("spec", "hard"))
    for scope in sorted({scope for scope, _, _ in objects.scopes(quota)}):
        wrong = [line for line in lines if not _counts(scope, line)]
        if wrong:
            counted = {"BestEffort": "pods", "VolumeAttributesClass": "claims and storage"}.get(
                scope, "pods, cpu, memory and requests of GPUs"
            )
            yield (
                f"scope {scope} counts {counted}, not {', '.join(wrong)}; move {'it' if len(wrong) == 1 else 'them'}"
                " to a separate quota"
            )


@rule("quota-scope-classes", objects.QUOTAS)
def quota_scope_classes(quota: Resource, settings: ClassSettings, stack: Stack) -> Iterator[str]:
    """The priority classes in a quota's scope must exist."""
    if not settings.tenant(namespace_of(quota)):
        return
    for scope, _, view in objects.scopes(quota):
        for value in view.items("values") if scope == "PriorityClass" and isinstance(view.value, dict) else ():
            if is_missing_class(value.text(), settings, stack):
                yield (
                    f"scope references PriorityClass {value.text()}, which does not exist in this stack; correct the"
                    " name or create it"
                )


@rule("limit-range-gpus", objects.LIMIT_RANGES)
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


class _QueueQuota(TenantGpus):
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
    """The ClusterQueues of a namespace's LocalQueues, each once, without queues created outside this stack."""
    queues: dict[str, Resource | None] = {}
    for local_queue in stack.matching(objects.LOCAL_QUEUES, objects.always, (namespace_of, namespace)):
        with located_at(local_queue):
            queue_name = local_queue.props.text("spec", "clusterQueue")
        queues[queue_name] = stack.first(objects.CLUSTER_QUEUES, objects.always, (name, queue_name))
    return [queue for queue in queues.values() if queue is not None]


@rule("quota-not-below-queue", objects.QUOTAS)
def quota_not_below_queue(quota: Resource, settings: _QueueQuota, stack: Stack) -> Iterator[str]:
    """A namespace's GPU quota must not be lower than what its queues admit."""
    namespace = namespace_of(quota)
    if not settings.tenant(namespace) or any(objects.scopes(quota)) or objects.matches_any(namespace, settings.shared):
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


# Kueue's queues, cohorts and flavors.


def cohort_of(resource: Resource) -> str:
    """The cohort of a ClusterQueue (`cohort` in v1beta1), or the parent of a Cohort; empty without."""
    spec = resource.props.at("spec")
    return spec.text("parentName") if resource.kind == "Cohort" else spec.text("cohortName") or spec.text("cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Reference(Part):
    """A reference from one Kueue object to another of kind `to`, by the name under a `key` of a map of it."""

    key: str = ""
    to: str = ""


def _references(resource: Resource) -> Iterator[Reference]:
    spec = resource.props.at("spec")
    if resource.kind == "LocalQueue":
        yield Reference(resource, spec, key="clusterQueue", to="ClusterQueue")
        return
    for key in ("parentName",) if resource.kind == "Cohort" else ("cohortName", "cohort"):
        if spec.has(key):
            yield Reference(resource, spec, key=key, to="Cohort")
    for group in spec.items("resourceGroups"):
        for flavor in group.items("flavors"):
            yield Reference(resource, flavor, key="name", to="ResourceFlavor")


REFERENCES: Final = Subject(
    "references of Kueue objects",
    kubernetes(*(f"kueue.x-k8s.io:{kind}" for kind in ("LocalQueue", "ClusterQueue", "Cohort"))),
    _references,
)
_KINDS: Final = {"ClusterQueue": objects.CLUSTER_QUEUES, "Cohort": objects.COHORTS, "ResourceFlavor": objects.FLAVORS}


class ReferenceSettings(Settings):
    """Kueue objects created outside this stack; kinds that the stack does not contain are not checked."""

    queues: list[str] = Field([])
    """ClusterQueues created outside this stack, as patterns."""
    cohorts: list[str] = Field([])
    """Cohorts created outside this stack, as patterns."""
    flavors: list[str] = Field([])
    """ResourceFlavors created outside this stack, as patterns."""


@rule("queue-references", REFERENCES)
def queue_references(reference: Reference, settings: ReferenceSettings, stack: Stack) -> Iterator[str]:
    """Queues must reference ClusterQueues, Cohorts and ResourceFlavors that exist."""
    referenced = reference.view.text(reference.key)
    external = {"ClusterQueue": settings.queues, "Cohort": settings.cohorts, "ResourceFlavor": settings.flavors}
    if referenced and objects.is_missing(stack, _KINDS[reference.to], (name, referenced), external[reference.to]):
        path = ".".join((*reference.view.path, reference.key))
        yield (
            f"{path} references {reference.to} {referenced}, which does not exist in this stack; correct the name or"
            " create it"
        )


class _LocalSettings(Tenants):
    queues: list[str] = Field([])
    """LocalQueues created outside this stack, `namespace/name`, as patterns. If this list is empty and the stack has
    none, names are not checked."""


def _full_name(queue: Resource) -> str:
    return f"{namespace_of(queue)}/{name(queue)}"


@rule("queue-exists", Subject("workloads", holds_pods, lambda resource: (resource,)))
def queue_exists(workload: Resource, settings: _LocalSettings, stack: Stack) -> Iterator[str]:
    """The queue that a workload names must exist in its namespace."""
    namespace = namespace_of(workload)
    pods = workload.parts(PODS)
    names = {Work(workload, workload.props).queue, *(pod.meta.text("labels", objects.QUEUE_NAME) for pod in pods)} - {
        ""
    }
    for queue_name in sorted(names):
        if objects.is_missing(stack, objects.LOCAL_QUEUES, (_full_name, f"{namespace}/{queue_name}"), settings.queues):
            yield (
                f"references queue {queue_name}, but namespace {namespace} has no LocalQueue with that name; correct"
                f" {objects.QUEUE_NAME} or create the LocalQueue"
            )


BORROWERS: Final = objects.objects("ClusterQueues and Cohorts", "kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """The quota of one resource in one flavor, of a ClusterQueue or a Cohort; `view` is the resource in the flavor."""

    resource: Resource
    flavor: View
    view: View

    @property
    def place(self) -> str:
        """The object and the flavor."""
        return f"{self.resource.place}, flavor {self.flavor.text('name')}"


def _quotas(resource: Resource) -> Iterator[Quota]:
    for key in ("cohortName", "cohort", "parentName"):  # A patch of it is about the quotas of the object.
        resource.props.as_part().has("spec", key)
    for group in resource.props.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            yield from (Quota(resource, flavor, resource_quota) for resource_quota in flavor.items("resources"))


QUEUE_QUOTAS: Final = Subject("ClusterQueue and Cohort quotas", BORROWERS.selects, _quotas)


class _BorrowSettings(Gpus):
    maximum: dict[str, int] = Field({})
    """Maximum borrowingLimit per flavor, keyed by resource name or pattern (`nvidia.com/*`)."""


@rule("borrowing-bounded", QUEUE_QUOTAS)
def borrowing_bounded(quota: Quota, settings: _BorrowSettings) -> Iterator[str]:
    """A ClusterQueue or Cohort that can borrow GPUs must set a borrowingLimit."""
    resource = quota.view.text("name")
    if not settings.is_gpu(resource) or not cohort_of(quota.resource):
        return
    limit = quota.view.number("borrowingLimit")
    if limit is None:
        yield f"no borrowingLimit for {resource}, so borrowing is unlimited; set borrowingLimit (0 disables borrowing)"
        return
    caps = [limit for pattern, limit in settings.maximum.items() if fnmatchcase(resource, pattern)]
    if caps and limit > max(caps):
        yield (
            f"borrowingLimit {format_number(limit)} for {resource} exceeds the maximum ({max(caps)}); lower"
            " borrowingLimit"
        )


@rule("gpu-quota-with-cpu", objects.CLUSTER_QUEUES)
def gpu_quota_with_cpu(queue: Resource, settings: Gpus) -> Iterator[str]:
    """A ClusterQueue with a quota of GPUs must have CPU and memory for their pods."""
    quotas = queue.parts(QUEUE_QUOTAS)
    with_gpus = (quota for quota in quotas if settings.is_gpu(quota.view.text("name")))
    flavors = {quota.flavor.text("name") for quota in with_gpus if quota.view.number("nominalQuota")}
    for flavor, resource in ((flavor, resource) for flavor in sorted(flavors) for resource in ("cpu", "memory")):
        every = [quota for quota in quotas if quota.view.text("name") == resource]
        # A resource of another group has other flavors.
        own = [quota for quota in every if quota.flavor.text("name") == flavor] or every
        if own and not any(quota.view.number("nominalQuota") or _can_borrow(quota) for quota in own):
            yield (
                f"flavor {flavor} has GPUs, but {resource} is 0 and cannot be borrowed, so no workload with GPUs is"
                f" admitted; set nominalQuota of {resource} to what their pods request"
            )


def _can_borrow(quota: Quota) -> bool:
    return bool(cohort_of(quota.resource)) and quota.view.number("borrowingLimit") != 0


@rule("cohort-named", BORROWERS)
def cohort_named(resource: Resource, _: Gpus) -> Iterator[str]:
    """A queue that borrows, lends or reclaims must belong to a cohort."""
    if cohort_of(resource):
        return
    fix = "set parentName" if resource.kind == "Cohort" else "set cohortName"
    quotas = resource.parts(QUEUE_QUOTAS)
    for key in ("borrowingLimit", "lendingLimit"):
        if any(quota.view.has(key) for quota in quotas):
            yield f"{key} is set without a cohort; {fix}, or remove {key}"
    preemption = resource.props.at("spec", "preemption")
    for key, policy in {
        "reclaimWithinCohort": preemption.text("reclaimWithinCohort"),
        "borrowWithinCohort": preemption.text("borrowWithinCohort", "policy"),
    }.items():
        if policy not in {"", "Never"}:
            yield f"{key} is {policy} without a cohort; {fix}, or set {key} to Never"


class _VersionSettings(Settings):
    versions: list[str] = Field(["v1beta2"])
    """Allowed versions of the `kueue.x-k8s.io` API."""


@rule(
    "kueue-version",
    Subject("Kueue objects", lambda resource: resource.group == "kueue.x-k8s.io", lambda resource: (resource,)),
)
def kueue_version(resource: Resource, settings: _VersionSettings) -> Iterator[str]:
    """Kueue objects must use a supported version of the Kueue API."""
    version = resource.props.text("apiVersion", default=resource.type.split(":")[1])
    if version.rpartition("/")[2] not in settings.versions:
        yield f"apiVersion is {version}; use {', '.join(settings.versions)}"
