"""Rules for namespaces' quotas and container bounds."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Resource, Rule, Severity, Stack, elsewhere, shown
from workload_rules.objects import CLUSTER_QUEUES, LIMIT_RANGES, LOCAL_QUEUES, QUOTAS, always, like, name, scopes
from workload_rules.pods import TenantGpus, Tenants, namespace
from workload_rules.priorities import ClassSettings, no_class

_QUOTAS: Final = "https://kubernetes.io/docs/concepts/policy/resource-quotas/"
_LIMITS: Final = "https://kubernetes.io/docs/concepts/policy/limit-range/"
_PODS: Final = frozenset({"pods", "count/pods"})
_COMPUTE: Final = frozenset({f"{side}{what}" for side in ("", "requests.", "limits.") for what in ("cpu", "memory")})
_CLAIMS: Final = frozenset({"persistentvolumeclaims", "requests.storage"})


def _extended(resource: str) -> bool:
    """Whether a resource of pods is neither Kubernetes' own nor counted in objects (https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/)."""
    domain = resource.partition("/")[0]
    return "/" in resource and domain != "count" and not domain.endswith(("kubernetes.io", "k8s.io"))


def _requests_prefix(quota: Resource, settings: Tenants) -> Iterator[str]:
    if not settings.tenant(namespace(quota)):
        return
    for line in quota.props.entries("spec", "hard"):
        resource = line.removeprefix("limits.")
        if not line.startswith("requests.") and _extended(resource):
            yield f"{line} is not counted; use requests.{resource}"


PREFIX: Final = Rule(
    name="quota-requests-prefix",
    title="A ResourceQuota must name GPUs and other extended resources with the prefix `requests.` only.",
    rationale="The API server accepts any other key but never counts it: the namespace is then unlimited.",
    fix="Set `requests.nvidia.com/gpu`.",
    link=_QUOTAS,
    severity=Severity.HIGH,
    level=MUST,
    on=QUOTAS,
    check=_requests_prefix,
    settings=Tenants,
)


def _counts(scope: str, line: str) -> bool:
    """Whether a quota with this scope takes a line and counts it.

    A scope is matched by pods, or by claims, so other objects under one are never counted: `count/…` of a pod alone.
    """
    if scope == "VolumeAttributesClass":
        return line in {*_CLAIMS, "count/persistentvolumeclaims"} or ".storageclass.storage.k8s.io/" in line
    if scope == "BestEffort":
        return line in _PODS
    return line in _PODS | _COMPUTE or (line.startswith("requests.") and _extended(line.removeprefix("requests.")))


def _scopes(quota: Resource, settings: Tenants) -> Iterator[str]:
    if not settings.tenant(namespace(quota)):
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


SCOPES: Final = Rule(
    name="quota-scopes",
    title="A ResourceQuota with a scope must limit only what that scope counts.",
    rationale="The API server rejects services or storage with such a scope, and never counts `count/…` keys.",
    fix="Keep pods, CPU, memory and `requests.` of GPUs in it, and move the rest to a second quota without a scope.",
    link=f"{_QUOTAS}#quota-scopes",
    severity=Severity.HIGH,
    level=MUST,
    on=QUOTAS,
    check=_scopes,
    settings=Tenants,
)


def _scope_classes(quota: Resource, settings: ClassSettings, stack: Stack) -> Iterator[str]:
    if not settings.tenant(namespace(quota)):
        return
    for scope, _, view in scopes(quota):
        for each in view.items("values") if scope == "PriorityClass" and isinstance(view.value, dict) else ():
            if no_class(each.text(), settings, stack):
                yield (
                    f"scope references PriorityClass {each.text()}, which does not exist in this stack; correct the"
                    " name or create it"
                )


SCOPE_CLASSES: Final = Rule(
    name="quota-scope-classes",
    title="The priority classes in a quota's scope must exist.",
    rationale="A quota for an unknown class counts nothing, without an error.",
    fix="Correct the name, create the PriorityClass, or list it under `classes` if it is created elsewhere.",
    link=_QUOTAS,
    severity=Severity.MEDIUM,
    level=MUST,
    on=QUOTAS,
    check=_scope_classes,
    settings=ClassSettings,
    whole=True,
)


def _limit_range(limits: Resource, settings: TenantGpus) -> Iterator[str]:
    if not settings.tenant(namespace(limits)):
        return
    items = limits.props.items("spec", "limits")
    containers = [each for each in items if each.text("type") == "Container"]
    for item in items:
        kind = item.text("type")
        if kind not in {"Container", "Pod"}:
            continue
        sides = ("default", "defaultRequest", "max", "min")
        names = {resource for side in sides for resource in item.entries(side) if settings.is_gpu(resource)}
        for resource in sorted(names):
            given = {side: item.number(side, resource) for side in sides}
            if given["min"]:
                yield (
                    f"a minimum of {shown(given['min'])} {resource} rejects every {kind} that requests none; remove"
                    " the minimum"
                )
            gives = [f"{side} {shown(count)}" for side, count in given.items() if "default" in side and count]
            bound = "max" if given["max"] is not None else "min"
            defaults = [item] if kind == "Container" else containers
            zero = any(
                each.number("default", resource) == 0 and each.number("defaultRequest", resource) in {0, None}
                for each in defaults
            )
            if gives:
                yield f"{' and '.join(gives)} of {resource} applies to containers that request none; set 0"
            elif kind == "Container" and not zero:
                yield (
                    f"{bound} of {resource} is the default for containers that request none; add default and"
                    f" defaultRequest {{{resource}: 0}}"
                )
            elif not zero:
                yield (
                    f"{bound} of {resource} rejects pods that request none; add a Container item with default and"
                    f" defaultRequest {{{resource}: 0}}"
                )


LIMIT_RANGE: Final = Rule(
    name="limit-range-gpus",
    title="A LimitRange that limits GPUs must set the default to 0.",
    rationale="A `max` alone becomes the default: with a `max` of 8, every CPU pod gets 8 GPUs.",
    fix="Add `default` and `defaultRequest` of 0 for that resource, and remove `min`.",
    link=_LIMITS,
    severity=Severity.HIGH,
    level=MUST,
    on=LIMIT_RANGES,
    check=_limit_range,
    settings=TenantGpus,
)


def _gives(limits: Resource, side: str, resource: str) -> bool:
    """Whether containers that say nothing get a limit, or a request, of a resource.

    A limit's default is the maximum, a request's the default limit, then the minimum.
    """
    fields = ("default", "max") if side == "limits" else ("defaultRequest", "default", "max", "min")
    return any(
        item.text("type") == "Container" and any(item.has(field, resource) for field in fields)
        for item in limits.props.items("spec", "limits")
    )


def _defaults(quota: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    where = namespace(quota)
    if not settings.tenant(where):
        return
    lines = {line if "." in line else f"requests.{line}" for line in quota.props.entries("spec", "hard")}
    wanted = sorted(lines & (_COMPUTE - {"cpu", "memory"}))
    lacking: list[str] = []
    for line in wanted:
        side, resource = line.split(".")
        gives = partial(_gives, side=side, resource=resource)
        if stack.first(LIMIT_RANGES, gives, (namespace, where)) is None:
            lacking.append(f"{'default' if side == 'limits' else 'defaultRequest'}.{resource}")
    if lacking:
        yield (f"requires {', '.join(wanted)}, but no LimitRange in {where} sets {', '.join(lacking)}; add one")


DEFAULTS: Final = Rule(
    name="quota-defaults",
    title="If a quota counts CPU and memory, a LimitRange must set their defaults.",
    rationale=(
        "Otherwise the API server rejects pods without values; their Deployment or Job has no pods, and only its"
        " events show why."
    ),
    fix="Add a LimitRange with `default` and `defaultRequest` for cpu and memory.",
    link=_LIMITS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=QUOTAS,
    check=_defaults,
    settings=Tenants,
    whole=True,
)


class QueueQuota(TenantGpus):
    """Whose quotas are held against their queues."""

    shared: list[str] = Field(
        [],
        description=(
            "Namespaces, as patterns, whose quota may be lower than what their queue admits, because they share the"
            " queue."
        ),
    )


def _admits(queue: Resource, resource: str) -> Decimal | None:
    """The most of a resource that a ClusterQueue admits, over its flavors; None where it has no bound."""
    found = Decimal(0)
    cohort = queue.props.text("spec", "cohortName") or queue.props.text("spec", "cohort")
    for group in queue.props.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            for each in flavor.items("resources"):
                if each.text("name") != resource:
                    continue
                found += each.number("nominalQuota") or 0
                limit = each.number("borrowingLimit") if cohort else Decimal(0)
                if limit is None:
                    return None
                found += limit
    return found


def _not_below(quota: Resource, settings: QueueQuota, stack: Stack) -> Iterator[str]:
    where = namespace(quota)
    scoped = quota.props.has("spec", "scopes") or quota.props.has("spec", "scopeSelector")
    if not settings.tenant(where) or scoped or like(where, settings.shared):
        return
    lines = quota.props.entries("spec", "hard")
    asked = {line: line.removeprefix("requests.") for line in lines if settings.is_gpu(line.removeprefix("requests."))}
    if not asked:
        return
    local = stack.matching(LOCAL_QUEUES, always, (namespace, where))
    for line, resource in asked.items():
        if line == resource:
            continue
        hard = lines[line].number() or Decimal(0)
        total = Decimal(0)
        names: list[str] = []
        for queue in _cluster_queues(local, stack):
            with elsewhere(queue):
                admits = _admits(queue, resource)
            if admits is None:
                yield (
                    f"{line} is {shown(hard)}, but ClusterQueue {name(queue)} can borrow {resource} without a"
                    " limit; set borrowingLimit in each of its flavors"
                )
                break
            total += admits
            names.append(name(queue))
        else:
            if total > hard:
                yield (
                    f"{line} is {shown(hard)}, but ClusterQueue {', '.join(names)} admits up to {shown(total)};"
                    " raise the quota, or lower nominalQuota and borrowingLimit"
                )


def _cluster_queues(local: list[Resource], stack: Stack) -> list[Resource]:
    """The ClusterQueues of LocalQueues, each once; those created outside this stack are left out."""
    found: dict[str, Resource] = {}
    for each in local:
        with elsewhere(each):
            wanted = each.props.text("spec", "clusterQueue")
        queue = stack.first(CLUSTER_QUEUES, always, (name, wanted))
        if queue is not None:
            found[wanted] = queue
    return list(found.values())


NOT_BELOW: Final = Rule(
    name="quota-not-below-queue",
    title="A namespace's GPU quota must not be lower than what its queues admit.",
    rationale="Otherwise Kueue admits the workload and charges the queue, but the API server rejects its pods.",
    fix="Raise the quota to the sum of nominalQuota and borrowingLimit over all flavors and queues of the namespace.",
    link="https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=QUOTAS,
    check=_not_below,
    settings=QueueQuota,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (PREFIX, SCOPES, SCOPE_CLASSES, LIMIT_RANGE, DEFAULTS, NOT_BELOW)
