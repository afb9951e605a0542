"""Limits of the pods of a namespace: ResourceQuotas, and defaults of LimitRanges.

Quotas with scopes (a pod must match all): https://kubernetes.io/docs/concepts/policy/resource-quotas/. The dry run
reports pods that exceed a LimitRange, but returns no defaults for a rejected pod, so they are computed here:
https://kubernetes.io/docs/concepts/policy/limit-range/. A limit without a request is a request before defaults apply.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU, MEMORY, add, amount, amount_text, amounts, is_extended, ordered, times
from gpu_tenancy.cluster.pods import Manifest, limits, name_of, requests
from gpu_tenancy.cluster.reading import Answer, Check, Verdict, worst
from gpu_tenancy.cluster.workloads import Reason, at_most

_EXCEEDED: Final = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<resource>[^=]+)=(?P<requested>[^,]+),.*?"
    r"used: [^=]+=(?P<used>[^,]+),.*?limited: [^=]+=(?P<limited>[^,]+)"
)
FREED: Final = "wait until quota is free; see `tenancy usage`"
_COMPUTE: Final = (CPU, MEMORY, "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Budget:
    """One resource of a ResourceQuota, in base units."""

    quota: str
    resource: str
    used: int
    hard: int

    @property
    def left(self) -> int:
        """Unused amount."""
        return self.hard - self.used


def budgets(quota: Manifest) -> list[Budget]:
    """Resources of a ResourceQuota; usage is 0 if its controller has not reported yet."""
    hard = amounts(at(quota, "status", "hard")) or amounts(at(quota, "spec", "hard"))
    used = amounts(at(quota, "status", "used"))
    return [Budget(name_of(quota), name, used.get(name, 0), hard[name]) for name in ordered(hard)]


def judge_quota(quotas: Iterable[Manifest], pods: Sequence[tuple[Manifest, int]], priority: str) -> Answer:
    """Checks the quotas of a namespace for room for pods, now and when the namespace is empty.

    `pods`: specs with LimitRange defaults, and their number. `priority`: class of pods without one; empty for none.
    """
    results: list[tuple[Verdict, str]] = []
    for quota in quotas:
        counted = ((spec, count) for spec, count in pods if count and counts(quota, spec, priority))
        total = add(*(times({**_charged(spec), "pods": 1, "count/pods": 1}, count) for spec, count in counted))
        results += [_judge(line, total[line.resource]) for line in budgets(quota) if total.get(line.resource, 0)]
    verdict = worst(result for result, _ in results)
    lines = tuple(text for result, text in results if verdict == "now" or result != "now")
    return Answer(Check.NAMESPACE_QUOTA, verdict, lines or ("no ResourceQuota of the namespace applies to these pods",))


def _charged(spec: Manifest) -> dict[str, int]:
    """Quota resource names of a pod; extended resources have requests only."""
    request, limit = requests(spec), limits(spec)
    return {
        **{f"requests.{name}": value for name, value in request.items()},
        **{name: value for name, value in request.items() if name in _COMPUTE},
        **{f"limits.{name}": value for name, value in limit.items() if not is_extended(name)},
    }


def _judge(line: Budget, requested: int) -> tuple[Verdict, str]:
    amounts = (line.hard, line.used, line.left, requested)
    hard, used, left, amount = (amount_text(line.resource, value) for value in amounts)
    head = f"ResourceQuota {line.quota}: {line.resource} {amount} requested"
    if requested > line.hard:
        return "never", f"{head}, exceeds the quota of {hard}; {_beyond(line.resource, line.hard)}"
    if requested > line.left:
        lacking = amount_text(line.resource, requested - line.left)
        return "later", f"{head}, {used} of {hard} used; {lacking} must be released first"
    return "now", f"{head}, {left} of {hard} free"


def _beyond(resource: str, hard: int) -> str:
    return at_most(amount_text(resource, hard) if hard else "", "quota")


def counts(quota: Manifest, spec: Manifest, priority: str = "") -> bool:
    """Whether a quota counts a pod, by its scopes."""
    rules: list[Manifest] = [{"scopeName": scope} for scope in list_at(quota, "spec", "scopes")]
    rules += maps_at(quota, "spec", "scopeSelector", "matchExpressions")
    ends = at(spec, "activeDeadlineSeconds") is not None
    bounded = any({**requests(spec), **limits(spec)}.get(name) for name in (CPU, MEMORY))
    scopes = {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": not bounded,
        "NotBestEffort": bounded,
        "CrossNamespacePodAffinity": False,
    }
    own = text_at(spec, "priorityClassName") or priority

    def matches(rule: Manifest) -> bool:
        scope, operator = text_at(rule, "scopeName"), text_at(rule, "operator") or "Exists"
        if scope != "PriorityClass":
            return scopes.get(scope, True)
        named = own in list_at(rule, "values")
        return {"In": named, "NotIn": not named, "Exists": bool(own), "DoesNotExist": not own}[operator]

    return all(matches(rule) for rule in rules)


def exceeded_quota(message: str) -> Reason | None:
    """The usage in a rejection by the ResourceQuota admission plugin, and the fix; None for any other message.

    The Status has no field for the usage, so the text is parsed (`checkRequest`):
    https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
    """
    if not (match := _EXCEEDED.search(message)):
        return None
    resource = match["resource"]
    amounts = [amount(resource, match[key]) for key in ("used", "limited", "requested")]
    used, hard, requested = (amount_text(resource, value) for value in amounts)
    fix = _beyond(resource, amounts[1]) if amounts[2] > amounts[1] else FREED
    return f"ResourceQuota {match['quota']} has {used} of {hard} {resource} in use, {requested} more requested", fix


def with_defaults(ranges: Iterable[Manifest], spec: Manifest) -> tuple[Manifest, tuple[str, ...]]:
    """The pod spec with LimitRange defaults, and one text for each container that gets defaults."""
    texts: list[str] = []
    for _, rule in container_rules(ranges):
        for key in (key for key in ("initContainers", "containers") if key in spec):
            spec = {**spec, key: [_with_default(each, rule, texts) for each in maps_at(spec, key)]}
    return spec, tuple(texts)


def container_rules(ranges: Iterable[Manifest]) -> Iterator[tuple[Manifest, dict[str, Json]]]:
    """LimitRanges, each with each of its rules for containers."""
    rules = ((one, rule) for one in ranges for rule in maps_at(one, "spec", "limits"))
    return (pair for pair in rules if text_at(pair[1], "type") == "Container")


def container_defaults(rule: Manifest) -> tuple[dict[str, Json], dict[str, Json]]:
    """`default` and `defaultRequest` of a container rule of a LimitRange, as the API server fills them on a write.

    `SetDefaults_LimitRangeItem`: https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/apis/core/v1/defaults.go
    """
    default = {**map_at(rule, "max"), **map_at(rule, "default")}
    return default, {**map_at(rule, "min"), **default, **map_at(rule, "defaultRequest")}


def _with_default(container: Mapping[str, Json], rule: Manifest, defaults: list[str]) -> dict[str, Json]:
    own_limits, own_requests = (map_at(container, "resources", which) for which in ("limits", "requests"))
    own_requests = {**own_limits, **own_requests}
    default, default_request = container_defaults(rule)
    new_limits = {name: value for name, value in default.items() if name not in own_limits}
    new_requests = {name: value for name, value in default_request.items() if name not in own_requests}
    given: list[str] = []
    for kind, values in (("requests", new_requests), ("limits", new_limits)):
        if names := [name for name in ordered(values) if amount(name, values[name])]:
            given.append(f"{kind} {', '.join(f'{name} {values[name]}' for name in names)}")
    if given:
        defaults.append(f"container {text_at(container, 'name')}: {' and '.join(given)}")
    resources: dict[str, Json] = {
        **map_at(container, "resources"),
        "requests": {**own_requests, **new_requests},
        "limits": {**own_limits, **new_limits},
    }
    return {**container, "resources": resources}
