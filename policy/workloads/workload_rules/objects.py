"""Kubernetes objects: kinds that contain pods, and kinds that rules look up in a stack.

Kinds are from `kinds.yaml`, which `make facts` generates. In its paths, `*` is each item of a list or entry of a map.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from rule_engine import Resource, Stack, Subject, UnknownValueError, View, kubernetes, read_table

FACTS: Final[Mapping[str, Any]] = read_table(Path(__file__).with_name("facts.yaml"))
"""Facts of Kubernetes, clouds and operators, by the names in `facts.yaml`."""
_ROWS: Final[Mapping[str, Mapping[str, Any]]] = read_table(Path(__file__).with_name("kinds.yaml"))


def _facts(name: str) -> Mapping[str, Any]:
    return {kind: row[name] for kind, row in _ROWS.items() if name in row}


PODS_IN: Final[Mapping[str, list[str]]] = _facts("pods")
"""Paths of pod templates, by API group and kind; all other pods are found by their shape, with longer places."""
COUNTED: Final = frozenset(_facts("counted"))
"""Kinds whose pod template Kueue counts before Kubernetes sets defaults of pods."""
DEADLINES: Final[Mapping[str, str]] = _facts("deadline")
"""Paths of the maximum run time in seconds. Volcano Jobs have one on pods only."""
GANGS: Final[Mapping[str, str]] = _facts("gang")  # paths of the specs that name a Volcano queue
RUNTIMES: Final = frozenset({"trainer.kubeflow.org:TrainingRuntime", "trainer.kubeflow.org:ClusterTrainingRuntime"})
"""Have the pods of TrainJobs, without their GPUs."""
TRAIN_JOB: Final = "trainer.kubeflow.org:TrainJob"
"""Has its own GPU request; its pods are in a runtime, usually of another stack."""
PATCHES: Final[list[str]] = _facts("patches")[TRAIN_JOB]  # paths of a TrainJob's pod specs, in the versions of its API
BATCH: Final = frozenset(kind for kind, work in _facts("work").items() if work == "batch")  # kinds of batch workloads
SERVING: Final = frozenset(kind for kind, work in _facts("work").items() if work == "serving").union(FACTS["servers"])
"""Kinds of long-running serving workloads."""

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
QUEUE_CLASS: Final = "kueue.x-k8s.io/priority-class"


def objects(name: str, *kinds: str) -> Subject[Resource]:
    """The subject of all Kubernetes objects of these kinds, each `group:Kind`; documentation shows the name."""
    return Subject(name, kubernetes(*kinds), lambda resource: (resource,))


QUOTAS: Final = objects("ResourceQuotas", "core:ResourceQuota")
LIMIT_RANGES: Final = objects("LimitRanges", "core:LimitRange")
CLASSES: Final = objects("PriorityClasses", "scheduling.k8s.io:PriorityClass")
QUEUE_CLASSES: Final = objects("WorkloadPriorityClasses", "kueue.x-k8s.io:WorkloadPriorityClass")
CLUSTER_QUEUES: Final = objects("ClusterQueues", "kueue.x-k8s.io:ClusterQueue")
LOCAL_QUEUES: Final = objects("LocalQueues", "kueue.x-k8s.io:LocalQueue")
COHORTS: Final = objects("cohorts", "kueue.x-k8s.io:Cohort")
FLAVORS: Final = objects("ResourceFlavors", "kueue.x-k8s.io:ResourceFlavor")


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
    stack: Stack, subject: Subject[Resource], key: tuple[Callable[[Resource], str], str], external: list[str]
) -> bool:
    """Whether an object is neither in the stack nor listed in `external`: patterns of objects created outside it.

    If the stack has no object of this kind and none is listed, this is unknown, and nothing is missing. `key` is a
    function that returns an object's name, and the name to look up.
    """
    if matches_any(key[1], external) or not (external or stack.has(subject)):
        return False
    return stack.first(subject, always, key) is None


def selects(selector: View, labels: dict[str, str]) -> bool:
    """Whether a label selector selects these labels; a missing selector selects nothing.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    if selector.value is None:
        return False
    return selector.string_map("matchLabels").items() <= labels.items() and all(
        meets(labels.get(one.text("key")), one.text("operator"), one.texts("values"))
        for one in selector.items("matchExpressions")
    )


def meets(value: str | None, operator: str, values: list[str]) -> bool:
    """Whether a value, or None without one, meets a requirement of a label selector or of a scope of a quota."""
    met = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return met.get(operator, False)


def number_or_percentage(value: View, total: Decimal, *, down: bool = False) -> Decimal | None:
    """A number, or a percentage (`25%`) of a total, rounded up or down; None if it is not set."""
    text = value.text()
    if not text.endswith("%"):
        return value.number()
    try:
        percent = int(text.removesuffix("%"))
    except ValueError:
        raise UnknownValueError(value.path, "is not a number or a percentage") from None
    return Decimal(int(total) * percent // 100 if down else -(-int(total) * percent // 100))


def scopes(quota: Resource) -> Iterator[tuple[str, str, View]]:
    """Scopes of a ResourceQuota: name, operator and view; of a patch, only the scopes that it sets."""
    props = quota.props.as_part()
    yield from ((scope.text(), "Exists", scope) for scope in props.items("spec", "scopes"))
    for scope in props.items("spec", "scopeSelector", "matchExpressions"):
        yield scope.text("scopeName"), scope.text("operator"), scope
