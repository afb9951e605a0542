"""Objects that rules look up in a stack: their names, and which labels select whom."""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from judge import CannotTellError, Resource, Stack, Subject, View, kubernetes

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
QUEUE_CLASS: Final = "kueue.x-k8s.io/priority-class"


def objects(name: str, *kinds: str) -> Subject[Resource]:
    """Kubernetes objects of these kinds, each `group:Kind`, as they are.

    Args:
        name: what documents call them.
        kinds: API groups and kinds.
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
    """The name of an object in its namespace; empty where Pulumi or the API server makes one up."""
    return resource.props.text("metadata", "name")


def always(_: object) -> bool:
    """True of all: for what a key has chosen already."""
    return True


def like(text: str, patterns: Iterable[str]) -> bool:
    """Whether a text is one of these patterns (`ml-*`)."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def missing(
    stack: Stack, subject: Subject[Resource], key: tuple[Callable[[Resource], str], str], elsewhere: Iterable[str]
) -> bool:
    """Whether an object is neither in the stack nor listed as created outside it.

    If the stack has no object of this kind and the settings list none, this is unknown, and nothing is missing.

    Args:
        stack: the stack.
        subject: its sort.
        key: what gives an object's name, and the name that is looked for.
        elsewhere: patterns of objects created outside the stack.

    Raises:
        CannotTellError: none is it for certain, and one might be.
    """
    patterns = list(elsewhere)
    if like(key[1], patterns) or not (patterns or stack.has(subject)):
        return False
    return stack.first(subject, always, key) is None


def selects(selector: View, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; one that is not there selects nothing.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    if selector.value is None:
        return False
    if any(labels.get(key) != value for key, value in selector.words("matchLabels").items()):
        return False
    for each in selector.items("matchExpressions"):
        key, operator, values = each.text("key"), each.text("operator"), each.texts("values")
        true = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not true.get(operator, False):
            return False
    return True


def share(value: View, of: Decimal) -> Decimal | None:
    """A number, or a percentage (`25%`) of something, rounded up; None where it is not there.

    Raises:
        CannotTellError: it is neither.
    """
    text = value.text()
    if not text.endswith("%"):
        return value.number()
    try:
        part = int(text.removesuffix("%"))
    except ValueError:
        raise CannotTellError(value.path, "is not a number or a percentage") from None
    return Decimal(-(-int(of) * part // 100))


def scopes(quota: Resource) -> Iterator[tuple[str, str, View]]:
    """Scopes of a ResourceQuota: name, operator, and its place."""
    for each in quota.props.items("spec", "scopes"):
        yield each.text(), "Exists", each
    for each in quota.props.items("spec", "scopeSelector", "matchExpressions"):
        yield each.text("scopeName"), each.text("operator"), each
