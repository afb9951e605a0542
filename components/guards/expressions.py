"""CEL expressions that several rules use.

https://kubernetes.io/docs/reference/using-api/cel/
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, cast

from gpu_tenancy.model.plan.guards import FACTS

from ..conventions import QUEUE, QUEUE_PRIORITY, VOLCANO
from .kinds import KINDS, Kind, Queued

GANG_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""Annotation by which a pod names its Volcano queue; without it the pod is in the queue `default`."""
KUEUE_PREFIX: Final = "kueue.x-k8s.io/"
"""Prefix of Kueue's labels, annotations and scheduling gates."""
_READ_BY_SCHEDULERS: Final = (KUEUE_PREFIX, "scheduling.volcano.sh/", "scheduling.k8s.io/group-name", "cdi.k8s.io/")
"""Prefixes of the labels and annotations that rules check."""


def literal(value: object) -> str:
    """The CEL literal of a string, number, boolean, or a list or map of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in cast("Iterable[object]", value)) + "]"
    return repr(value)


def fact(name: str) -> str:
    """A fact about the team, from an annotation of its Namespace: a list of strings."""
    text = f"namespaceObject.metadata.?annotations[?{literal(FACTS + name)}].orValue('')"
    return f"{text}.split(',').filter(f, f != '')"


def amounts(name: str) -> str:
    """A fact that has an amount by resource: a list of pairs `[resource, amount]`, both as strings."""
    return f"{fact(name)}.map(f, f.split('='))"


def starts_with(text: str, prefixes: Iterable[str]) -> str:
    """Whether a string starts with one of some prefixes."""
    return "(" + " || ".join(f"{text}.startsWith({literal(prefix)})" for prefix in prefixes) + ")"


def kind_of(typed: str) -> str:
    """Group and kind of an object or of an owner reference, as `Kind.key`."""
    return f"({typed}.apiVersion.contains('/') ? {typed}.apiVersion.split('/')[0] : '') + '/' + {typed}.kind"


def is_kind(*keys: str) -> str:
    """Whether the object has one of these kinds, each `group/Kind`."""
    return f"variables.kind in {literal(keys)}"


def first_of_each(lists: str) -> str:
    """The first item of each list of a list; empty lists have none."""
    return f"{lists}.filter(f, size(f) > 0).map(f, f[0])"


def _by_kind(choices: Iterable[tuple[Kind, str]], otherwise: str) -> str:
    """The expression that belongs to the object's kind."""
    kinds: dict[str, list[str]] = {}
    for kind, expression in choices:
        kinds.setdefault(expression, []).append(kind.key)
    parts = [f"{is_kind(*keys)} ? {expression}" for expression, keys in kinds.items()]
    return " : ".join([*parts, otherwise])


def _templates(of: str) -> str:
    return _by_kind(((kind, f"({kind.templates.replace('{of}', of)})") for kind in KINDS), "[]")


def _gangs(of: str) -> str:
    return _by_kind(((kind, kind.gang.replace("{of}", of)) for kind in KINDS if kind.gang), "[]")


def _read(metadata: str, field: str) -> str:
    """The labels or annotations that rules check, as a list of `key=value`."""
    return (
        f"{metadata}.?{field}.orValue({{}}).filter(k, {starts_with('k', _READ_BY_SCHEDULERS)})"
        f".map(k, k + '=' + {metadata}.{field}[k])"
    )


def _differ(expression: str) -> str:
    """Whether two lists of the object and the old object differ, in whatever order."""
    return f"!sets.equivalent({expression.replace('{of}', 'object')}, {expression.replace('{of}', 'oldObject')})"


_JOB_LABELS: Final = f"{{of}}.spec.?jobTemplate.?metadata.?labels[?'{QUEUE}']"

SHARED: Final[Mapping[str, str]] = {
    "kind": kind_of("object"),
    "templates": _templates("object"),
    "pods": "variables.templates.filter(t, has(t.spec)).map(t, t.spec)",
    "gangSpecs": _gangs("object"),
    "respecified": (
        "oldObject == null"
        f" || ({is_kind('/Pod')} ? object.spec != oldObject.spec : variables.templates != ({_templates('oldObject')}))"
    ),
    # Objects that are older than the rule can be scaled, labelled and completed, but their pods cannot be changed.
    "touched": (
        "variables.respecified"
        f" || variables.gangSpecs.map(g, [g.?queue, g.?schedulerName, g.?priorityClassName])"
        f" != ({_gangs('oldObject')}).map(g, [g.?queue, g.?schedulerName, g.?priorityClassName])"
        f" || {_differ(_read('{of}.metadata', 'labels'))} || {_differ(_read('{of}.metadata', 'annotations'))}"
        f" || {_JOB_LABELS.replace('{of}', 'object')} != {_JOB_LABELS.replace('{of}', 'oldObject')}"
        " || object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences"
    ),
}
"""Variables of the rules about pods."""

DELETABLE: Final[Mapping[str, str]] = {
    "subject": "object == null ? oldObject : object",
    "kind": kind_of("variables.subject"),
    "templates": _templates("variables.subject"),
    "pods": SHARED["pods"],
}
"""Variables of rules that are evaluated for deletions too."""

CONTAINERS: Final = "(p.?containers.orValue([]) + p.?initContainers.orValue([]))"
"""All containers of the pod `p`."""
LIMITS: Final = "c.?resources.?limits.orValue({})"
REQUESTS: Final = "c.?resources.?requests.orValue({})"
"""Requests of the container `c`. Use `in` and `[r]` to look up amounts: the API server's `string()` does not accept
values from `[?r]` (seen with 1.36.3)."""
CLAIMS: Final = "size(p.?resourceClaims.orValue([])) > 0"
"""Whether the pod `p` claims devices."""


def is_gpu(names: Iterable[str]) -> str:
    """Whether the resource `r` is a GPU or a GPU partition."""
    return starts_with("r", names)


def number(quantity: str) -> str:
    """A quantity as a number; kinds have it as a string or as a number."""
    return f"quantity(string({quantity})).asApproximateFloat()"


def container_has_gpus(names: Iterable[str]) -> str:
    """Whether the container `c` requests GPUs; 0 does not count."""
    return f"[{LIMITS}, {REQUESTS}].exists(m, m.exists(r, {is_gpu(names)} && {number('m[r]')} > 0.0))"


def requests_gpus(names: Iterable[str]) -> str:
    """Whether the pod `p` requests GPUs, as a resource or by a resource claim."""
    return f"({CLAIMS} || {containers_have_gpus(names)})"


def containers_have_gpus(names: Iterable[str]) -> str:
    """Whether a container of the pod `p` requests GPUs as a resource."""
    return f"{CONTAINERS}.exists(c, {container_has_gpus(names)})"


def _queue_of(template: str) -> str:
    return f"{template}.?metadata.?labels[?'{QUEUE}'].orValue('')"


def queues(frameworks: Collection[str], asks: str) -> str:
    """The queues of an object, one for each workload that Kueue makes of it: a list of names, empty for none.

    Args:
        frameworks: Kueue's integrations.
        asks: whether the pod `p` requests GPUs; pods without do not need a queue.
    """
    templates = f"variables.templates.filter(t, has(t.spec) && [t.spec].exists(p, {asks}))"
    label = f".?metadata.?labels[?'{QUEUE}']"
    expressions: Mapping[Queued, str] = {
        "jobs": f"[{_queue_of('object.spec.jobTemplate')}]",
        "templates": f"{templates}.map(t, {_queue_of('t')})",
        "either": f"[object{label}.or(object.spec.template{label}).orValue('')]",
    }
    places = ((kind, kind.queue_place(frameworks)) for kind in KINDS)
    choices = ((kind, expressions[place]) for kind, place in places if place in expressions)
    return _by_kind(choices, f"[{_queue_of('object')}]")


GANG: Final = (
    "size(variables.gangSpecs) > 0 ? variables.gangSpecs[0].?queue.orValue('default')"
    f" : {is_kind('/Pod')} && variables.queues.all(q, q == '') && object.spec.?schedulerName.orValue('') == '{VOLCANO}'"
    f" ? object.metadata.?annotations[?'{GANG_QUEUE}'].orValue('default') : ''"
)
"""The Volcano queue of an object that has no Kueue queue; empty for all others."""

METADATA: Final = (
    f"([object.metadata] + ({is_kind('/Pod')} ? []"
    " : variables.templates.filter(t, has(t.metadata)).map(t, t.metadata))"
    " + (object.?spec.?jobTemplate.?metadata.hasValue() ? [object.spec.jobTemplate.metadata] : []))"
)
"""The metadata of an object, of its pod templates, and of the Jobs of a CronJob."""

PLACES: Final = "variables.pods + variables.gangSpecs"
"""All specs in which an object names a scheduler or a priority class."""

CLASS_LABELS: Final = f"{METADATA}.map(m, m.?labels[?'{QUEUE_PRIORITY}'].orValue(''))"
"""WorkloadPriorityClasses that an object names."""
