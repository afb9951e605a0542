"""Kubernetes objects that rules look up in a stack, by name or by label selector."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from rule_engine import Resource, Stack, Subject, UnknownValueError, View, kubernetes

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
QUEUE_CLASS: Final = "kueue.x-k8s.io/priority-class"


def objects(name: str, *kinds: str) -> Subject[Resource]:
    """The subject of all Kubernetes objects of these kinds.

    Args:
        name: its name in the documentation.
        kinds: API groups and kinds, each `group:Kind`.
    """
    return Subject(name, kubernetes(*kinds), lambda resource: (resource,))


QUOTAS: Final = objects("ResourceQuotas", "core:ResourceQuota")
LIMIT_RANGES: Final = objects("LimitRanges", "core:LimitRange")
CLASSES: Final = objects("PriorityClasses", "scheduling.k8s.io:PriorityClass")
QUEUE_CLASSES: Final = objects("WorkloadPriorityClasses", "kueue.x-k8s.io:WorkloadPriorityClass")
CLUSTER_QUEUES: Final = objects("ClusterQueues", "kueue.x-k8s.io:ClusterQueue")
LOCAL_QUEUES: Final = objects("LocalQueues", "kueue.x-k8s.io:LocalQueue")
COHORTS: Final = objects("cohorts", "kueue.x-k8s.io:Cohort")
FLAVORS: Final = objects("ResourceFlavors", "kueue.x-k8s.io:ResourceFlavor")
BUDGETS: Final = objects("PodDisruptionBudgets", "policy:PodDisruptionBudget")


def name(resource: Resource) -> str:
    """The name of an object; empty if Pulumi or the API server generates it."""
    return resource.props.text("metadata", "name")


def always(_: object) -> bool:
    """A predicate that is always true, for lookups by key."""
    return True


def matches_any(text: str, patterns: Iterable[str]) -> bool:
    """Whether a text matches one of these patterns (`ml-*`)."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def is_missing(
    stack: Stack, subject: Subject[Resource], key: tuple[Callable[[Resource], str], str], external: Iterable[str]
) -> bool:
    """Whether an object is neither in the stack nor listed as created outside it.

    If the stack has no object of this kind and the settings list none, this is unknown, and nothing is missing.

    Args:
        stack: the stack.
        subject: the kind of object.
        key: a function that returns an object's name, and the name to look up.
        external: patterns of objects created outside the stack.

    Raises:
        UnknownValueError: no known object has the name, and one with an unknown name can have it.
    """
    patterns = list(external)
    if matches_any(key[1], patterns) or not (patterns or stack.has(subject)):
        return False
    return stack.first(subject, always, key) is None


def selects(selector: View, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; a missing selector selects nothing.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    if selector.value is None:
        return False
    if any(labels.get(key) != value for key, value in selector.string_map("matchLabels").items()):
        return False
    for expression in selector.items("matchExpressions"):
        key, operator, values = expression.text("key"), expression.text("operator"), expression.texts("values")
        true = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not true.get(operator, False):
            return False
    return True


def number_or_percentage(value: View, total: Decimal, *, down: bool = False) -> Decimal | None:
    """A number, or a percentage (`25%`) of a total, rounded up or down; None if it is not set.

    Raises:
        UnknownValueError: it is neither a number nor a percentage.
    """
    text = value.text()
    if not text.endswith("%"):
        return value.number()
    try:
        percent = int(text.removesuffix("%"))
    except ValueError:
        raise UnknownValueError(value.path, "is not a number or a percentage") from None
    return Decimal(int(total) * percent // 100 if down else -(-int(total) * percent // 100))


def scopes(quota: Resource) -> Iterator[tuple[str, str, View]]:
    """Scopes of a ResourceQuota: name, operator and view; of a patch, those that it sets."""
    props = quota.props.as_part()
    for scope in props.items("spec", "scopes"):
        yield scope.text(), "Exists", scope
    for scope in props.items("spec", "scopeSelector", "matchExpressions"):
        yield scope.text("scopeName"), scope.text("operator"), scope
