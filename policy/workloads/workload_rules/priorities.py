"""Rules for priority classes."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Resource, Rule, Severity, Stack, Subject, elsewhere, kubernetes, shown
from workload_rules.objects import CLASSES, QUEUE_CLASS, QUEUE_CLASSES, always, like, missing, name
from workload_rules.pods import BATCH, PODS, PODS_IN, SERVING, Gpus, Pod, TenantGpus, Tenants

_PRIORITY: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/"
_SYSTEM: Final = ("system-cluster-critical", "system-node-critical")
_RUNTIMES: Final = frozenset({"trainer.kubeflow.org:TrainingRuntime", "trainer.kubeflow.org:ClusterTrainingRuntime"})
_VOLCANO: Final = frozenset({"batch.volcano.sh:Job", "batch.volcano.sh:CronJob"})


class ClassSettings(Tenants):
    """Which PriorityClasses there are beside those of the stack."""

    classes: list[str] = Field(
        [],
        description="PriorityClasses made elsewhere, as patterns. With none here and none in the stack, no name is"
        " judged.",
    )


def no_class(wanted: str, settings: ClassSettings, stack: Stack) -> bool:
    """Whether a PriorityClass exists neither in the stack nor elsewhere."""
    return wanted not in _SYSTEM and missing(stack, CLASSES, (name, wanted), settings.classes)


def class_of(pod: Pod) -> str:
    """The name of a pod's priority class, or else of its Volcano Job's, which holds for all its pods; else empty."""
    own = pod.spec.text("priorityClassName")
    if own or pod.kind not in _VOLCANO:
        return own
    above = ("spec", "jobTemplate", "spec") if pod.kind.endswith("CronJob") else ("spec",)
    return pod.resource.props.text(*above, "priorityClassName")


class SetSettings(TenantGpus):
    """Which pods name a priority class."""

    every: bool = Field(default=False, description="All pods of tenants, not those with GPUs alone.")


def _is_set(pod: Pod, settings: SetSettings) -> Iterator[str]:
    if not settings.tenant(pod.namespace) or pod.kind in _RUNTIMES or not (settings.every or pod.gpus(settings)):
        return
    if not class_of(pod):
        yield "names no priority class; write priorityClassName"


SET: Final = Rule(
    name="priority-class-set",
    says="A pod that asks for GPUs names its priority class.",
    why="Whoever says nothing gets the cluster's default, and training may then push serving off its GPUs.",
    mend="Write `priorityClassName`.",
    link=_PRIORITY,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
    judge=_is_set,
    settings=SetSettings,
)


class SystemSettings(Tenants):
    """Whose pods may have a class of the system."""

    agents: bool = Field(
        default=False, description="Judge DaemonSets too; agents of nodes have such a class for good reasons."
    )


def _not_system(pod: Pod, settings: SystemSettings) -> Iterator[str]:
    if not settings.tenant(pod.namespace) or (pod.kind == "apps:DaemonSet" and not settings.agents):
        return
    found = class_of(pod)
    if found.startswith("system-"):
        yield f"has the priority class {found}, which is the system's; write one of the tenants' classes"


NOT_SYSTEM: Final = Rule(
    name="priority-not-system",
    says="Tenants' pods have no priority class of the system.",
    why="They would push everything else off a node, what keeps the node alive included.",
    mend="Write one of the tenants' priority classes.",
    link=f"{_PRIORITY}#how-to-use-priority-and-preemption",
    severity=Severity.CRITICAL,
    level=MUST,
    on=PODS,
    judge=_not_system,
    settings=SystemSettings,
)


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A place where an object names a priority class.

    Attributes:
        part: what the place belongs to.
        queue: whether it is Kueue's WorkloadPriorityClass that is named.
    """

    part: Pod | Resource
    queue: bool

    @property
    def place(self) -> str:
        """The pod's, or the object's."""
        return self.part.place

    @property
    def name(self) -> str:
        """The class that is named; empty where none is."""
        if isinstance(self.part, Pod):
            return class_of(self.part)
        return self.part.props.text("metadata", "labels", QUEUE_CLASS)


def _named(resource: Resource) -> Iterator[Named]:
    yield Named(resource, queue=True)
    if f"{resource.group}:{resource.kind}" in PODS_IN:
        for pod in resource.parts(PODS):
            yield Named(pod, queue=False)


NAMED: Final = Subject("priority classes that are named", kubernetes(*PODS_IN, *BATCH), _named)


class ExistSettings(ClassSettings):
    """Which classes there are beside those of the stack."""

    queues: list[str] = Field(
        [],
        description="WorkloadPriorityClasses of Kueue made elsewhere, as patterns; as with `classes`.",
    )


def _exists(named: Named, settings: ExistSettings, stack: Stack) -> Iterator[str]:
    found = named.name
    if not found:
        return
    if not named.queue:
        if no_class(found, settings, stack):
            yield f"names PriorityClass {found}, which nothing makes; mend the name or make it"
    elif missing(stack, QUEUE_CLASSES, (name, found), settings.queues):
        yield f"names WorkloadPriorityClass {found}, which nothing makes; mend the label {QUEUE_CLASS} or make it"


EXISTS: Final = Rule(
    name="priority-exists",
    says="The priority classes that workloads name exist.",
    why="The API server refuses a pod whose PriorityClass is not there, and Kueue's work waits without a word.",
    mend="Mend the name, make the class, or list it under `classes` or `queues` if it is made elsewhere.",
    link=_PRIORITY,
    severity=Severity.HIGH,
    level=MUST,
    on=NAMED,
    judge=_exists,
    settings=ExistSettings,
    whole=True,
)


def _is_default(found: Resource) -> bool:
    return found.props.flag("globalDefault")


def _one_default(found: Resource, _: Gpus, stack: Stack) -> Iterator[str]:
    if not _is_default(found):
        return
    others = stack.matching(CLASSES, lambda each: each is not found and _is_default(each))
    if others:
        yield (
            f"is the default for all pods, and so is {', '.join(sorted(each.place for each in others))}; leave"
            " globalDefault to one of them"
        )


ONE_DEFAULT: Final = Rule(
    name="one-global-default",
    says="At most one priority class is the cluster's default.",
    why="The API server refuses the second, or, where both came at once, takes the lower one for all pods.",
    mend="Write `globalDefault: true` in one class at most.",
    link=f"{_PRIORITY}#priorityclass",
    severity=Severity.HIGH,
    level=MUST,
    on=CLASSES,
    judge=_one_default,
    settings=Gpus,
    whole=True,
)


class OrderSettings(TenantGpus):
    """Which work is training, and which serves."""

    training: list[str] = Field(["*"], description="Namespaces, as patterns, in which work that ends is training.")
    serving: list[str] = Field(["*"], description="Namespaces, as patterns, in which work that goes on serves.")
    values: dict[str, int] = Field(
        {}, description="Values of PriorityClasses made elsewhere, by name; one that is nowhere is not compared."
    )


def _value(pod: Pod, settings: OrderSettings, stack: Stack) -> tuple[str, Decimal] | None:
    """Name and value of a pod's class; the cluster's default, else 0, where it names none; None where nobody knows."""
    wanted = class_of(pod)
    made = stack.first(CLASSES, always, (name, wanted) if wanted else (_is_default, True))
    if made is not None:
        with elsewhere(made):
            return name(made), made.props.number("value") or Decimal(0)
    if wanted:
        return (wanted, Decimal(settings.values[wanted])) if wanted in settings.values else None
    return "no class", Decimal(0)


def _lowest_server(settings: OrderSettings, stack: Stack) -> tuple[Pod, str, Decimal] | None:
    """The server with GPUs of the lowest priority, and the name and value of its class."""
    found: list[tuple[Pod, str, Decimal]] = []
    servers = stack.matching(
        PODS,
        lambda pod: (
            pod.kind in SERVING
            and like(pod.namespace, settings.serving)
            and settings.tenant(pod.namespace)
            and bool(pod.gpus(settings))
        ),
    )
    for pod in servers:
        with elsewhere(pod):
            value = _value(pod, settings, stack)
        if value is not None:
            found.append((pod, *value))
    return min(found, key=lambda each: each[2], default=None)


def _below(pod: Pod, settings: OrderSettings, stack: Stack) -> Iterator[str]:
    where = pod.namespace
    if pod.kind not in BATCH or not (like(where, settings.training) and settings.tenant(where) and pod.gpus(settings)):
        return
    mine = _value(pod, settings, stack)
    lowest = stack.once((_lowest_server, id(settings)), lambda: _lowest_server(settings, stack))
    if mine is not None and lowest is not None and lowest[2] < mine[1]:
        yield (
            f"has {mine[0]} ({shown(mine[1])}), above {lowest[1]} ({shown(lowest[2])}) of {lowest[0].place}, which"
            " serves; give it a lower class, or the server a higher one"
        )


BELOW: Final = Rule(
    name="training-not-above-serving",
    says="Training with GPUs has no higher priority than serving with GPUs.",
    why="Where GPUs are short, the scheduler ends servers to make room for training.",
    mend="Give training a lower priority class, or serving a higher one.",
    link=_PRIORITY,
    severity=Severity.HIGH,
    level=ADVICE,
    on=PODS,
    judge=_below,
    settings=OrderSettings,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (SET, NOT_SYSTEM, EXISTS, ONE_DEFAULT, BELOW)
