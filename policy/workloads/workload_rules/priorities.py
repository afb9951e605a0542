"""Rules for priority classes."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from pydantic import Field

from rule_engine import Resource, Stack, Subject, format_number, located_at, rule
from workload_rules.objects import (
    BATCH,
    CLASSES,
    GANGS,
    QUEUE_CLASS,
    QUEUE_CLASSES,
    RUNTIMES,
    SERVING,
    always,
    is_missing,
    matches_any,
    name,
)
from workload_rules.pods import POD_PARTS, PODS, Pod, TenantGpus, Tenants, holds_pods, namespace_of

_SYSTEM: Final = ("system-cluster-critical", "system-node-critical")


class ClassSettings(Tenants):
    """PriorityClasses created outside this stack."""

    classes: list[str] = Field([])
    """PriorityClasses created outside this stack, as patterns. If this list is empty and the stack has none, names are
    not checked."""


def is_missing_class(class_name: str, settings: ClassSettings, stack: Stack) -> bool:
    """Whether a PriorityClass exists neither in the stack nor in the settings."""
    return class_name not in _SYSTEM and is_missing(stack, CLASSES, (name, class_name), settings.classes)


def class_of(pod: Pod) -> str:
    """The name of a pod's priority class, or else of its Volcano Job's, which applies to all its pods; else empty."""
    own = pod.spec.text("priorityClassName")
    if own or pod.kind not in GANGS:
        return own
    return pod.resource.props.text(*GANGS[pod.kind].split("."), "priorityClassName")


class _SetSettings(TenantGpus):
    all_pods: bool = False
    """Whether all tenant pods are checked, not only those with GPUs."""


@rule("priority-class-set", PODS)
def priority_class_set(pod: Pod, settings: _SetSettings) -> Iterator[str]:
    """A pod that requests GPUs must set a priority class."""
    if not settings.tenant(namespace_of(pod)) or pod.kind in RUNTIMES or not (settings.all_pods or pod.gpus(settings)):
        return
    if not class_of(pod):
        yield "has no priority class; set priorityClassName"


class _SystemSettings(Tenants):
    daemonsets: bool = False
    """Whether DaemonSets are checked too. Node agents often need a system priority class."""


@rule("priority-not-system", POD_PARTS)
def priority_not_system(pod: Pod, settings: _SystemSettings) -> Iterator[str]:
    """Tenant pods must not have a system priority class."""
    if not settings.tenant(namespace_of(pod)) or (pod.kind == "apps:DaemonSet" and not settings.daemonsets):
        return
    pod_class = class_of(pod)
    if pod_class.startswith("system-"):
        yield f"has the system priority class {pod_class}; set a priority class for tenants"


def _named(resource: Resource) -> Iterator[Pod | Resource]:
    """An object, whose label names a class of Kueue, and its pods."""
    yield resource
    yield from resource.parts(POD_PARTS)


NAMED: Final[Subject[Pod | Resource]] = Subject("references to priority classes", holds_pods, _named)


class _ExistSettings(ClassSettings):
    queues: list[str] = Field([])
    """Kueue WorkloadPriorityClasses created outside this stack, as patterns. If empty, as for `classes`."""


@rule("priority-exists", NAMED)
def priority_exists(part: Pod | Resource, settings: _ExistSettings, stack: Stack) -> Iterator[str]:
    """Priority classes that workloads reference must exist."""
    if isinstance(part, Pod):
        own = class_of(part)
        if own and is_missing_class(own, settings, stack):
            yield f"references PriorityClass {own}, which does not exist in this stack; correct the name or create it"
        return
    label = part.props.text("metadata", "labels", QUEUE_CLASS)
    if label and is_missing(stack, QUEUE_CLASSES, (name, label), settings.queues):
        yield (
            f"references WorkloadPriorityClass {label}, which does not exist in this stack; correct the label"
            f" {QUEUE_CLASS} or create it"
        )


def _is_default(priority_class: Resource) -> bool:
    return priority_class.props.flag("globalDefault")


class _OrderSettings(TenantGpus):
    training: list[str] = Field(["*"])
    """Namespaces, as patterns, in which batch work counts as training."""
    serving: list[str] = Field(["*"])
    """Namespaces, as patterns, in which long-running work counts as serving."""
    values: dict[str, int] = Field({})
    """Values of PriorityClasses created outside this stack, by name. Classes with unknown values are not compared."""


def _value(pod: Pod, settings: _OrderSettings, stack: Stack) -> tuple[str, Decimal] | None:
    """Name and value of a pod's class; the cluster's default, else 0, if it names none; None if unknown."""
    class_name = class_of(pod)
    priority_class = stack.first(CLASSES, always, (name, class_name) if class_name else (_is_default, True))
    if priority_class is not None:
        with located_at(priority_class):
            return name(priority_class), priority_class.props.number("value") or Decimal(0)
    if class_name:
        return (class_name, Decimal(settings.values[class_name])) if class_name in settings.values else None
    return "no class", Decimal(0)


def _lowest_server(settings: _OrderSettings, stack: Stack) -> tuple[Pod, str, Decimal] | None:
    """The serving pod with GPUs that has the lowest priority, with the name and value of its class."""

    def serves(pod: Pod) -> bool:
        is_serving = pod.kind in SERVING and matches_any(namespace_of(pod), settings.serving)
        return is_serving and settings.tenant(namespace_of(pod)) and bool(pod.gpus(settings))

    candidates: list[tuple[Pod, str, Decimal]] = []
    for pod in stack.matching(PODS, serves):
        with located_at(pod):
            value = _value(pod, settings, stack)
        if value is not None:
            candidates.append((pod, *value))
    return min(candidates, key=lambda candidate: candidate[2], default=None)


@rule("training-not-above-serving", PODS)
def training_not_above_serving(pod: Pod, settings: _OrderSettings, stack: Stack) -> Iterator[str]:
    """GPU training must not have a higher priority than GPU serving."""
    is_training = pod.kind in BATCH and matches_any(namespace_of(pod), settings.training)
    if not is_training or not settings.tenant(namespace_of(pod)) or not pod.gpus(settings):
        return
    own = _value(pod, settings, stack)
    lowest = stack.once((_lowest_server, id(settings)), lambda: _lowest_server(settings, stack))
    if own is not None and lowest is not None and lowest[2] < own[1]:
        yield (
            f"has {own[0]} ({format_number(own[1])}), which is higher than {lowest[1]} ({format_number(lowest[2])}) of"
            f" {lowest[0].place}, a serving workload; set a lower class, or a higher one for serving"
        )
