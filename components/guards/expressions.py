"""CEL, the language in which the API server judges, and what several rules look at.

https://kubernetes.io/docs/reference/using-api/cel/
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from ..conventions import QUEUE, QUEUE_PRIORITY, VOLCANO

TRAIN_JOB: Final = "object.kind == 'TrainJob'"
CRON_JOB: Final = "object.kind == 'CronJob'"
_VOLCANO_JOB: Final = "object.apiVersion.startsWith('batch.volcano.sh/')"
IS_VOLCANOS: Final = "object.apiVersion.split('/')[0] in ['batch.volcano.sh', 'scheduling.volcano.sh']"
"""Whether an object is a Job or a PodGroup of Volcano's, which says its queue in its spec."""
GANG_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""Annotation by which a bare pod names its Volcano queue; without it the pod is in Volcano's own `default`."""


def literal(value: object) -> str:
    """A plain value as CEL writes it: text, number, truth, or a list or map of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(each) for each in cast("Iterable[object]", value)) + "]"
    return repr(value)


def by_namespace(values: Mapping[str, object], otherwise: object) -> str:
    """What holds in the object's namespace; namespaces of which nothing else is said share one value."""
    said = {name: value for name, value in values.items() if value != otherwise}
    return f"{literal(said)}[?request.namespace].orValue({literal(otherwise)})" if said else literal(otherwise)


def _pods(of: str) -> str:
    """The pod specs in an object of any kind that is judged: its own, or its templates'.

    A TrainJob states no pod but what one takes; the rest is in a runtime, and is judged in the JobSet made of both.
    """
    return (
        f"{of}.kind == 'Pod' ? [{of}.spec]"
        f" : {of}.kind == 'PodGroup' ? []"
        f" : {of}.kind == 'CronJob' ? [{of}.spec.jobTemplate.spec.template.spec]"
        f" : {of}.kind == 'JobSet' ? {of}.spec.?replicatedJobs.orValue([]).map(j, j.template.spec.template.spec)"
        f" : {of}.kind == 'TrainJob'"
        f" ? [dyn({{'containers': [{{'resources': {of}.spec.?trainer.?resourcesPerNode.orValue({{}})}}]}})]"
        f" : {of}.apiVersion.startsWith('batch.volcano.sh/')"
        f" ? {of}.spec.?tasks.orValue([]).filter(t, has(t.template.spec)).map(t, t.template.spec)"
        f" : [{of}.spec.template.spec]"
    )


def _labels(of: str) -> str:
    return (
        f"[{of}.metadata.?labels.orValue({{}}), {of}.spec.?template.?metadata.?labels.orValue({{}}),"
        f" {of}.spec.?jobTemplate.?metadata.?labels.orValue({{}})]"
    )


def _same(field: str) -> str:
    return f"object.{field} == oldObject.{field}"


_BESIDE: Final = (
    "metadata.?ownerReferences",
    f"metadata.?annotations[?'{GANG_QUEUE}']",
    "spec.?queue",
    "spec.?schedulerName",
    "spec.?priorityClassName",
)
"""What is judged beside pods and labels."""

SHARED: Final[Mapping[str, str]] = {
    "pods": _pods("object"),
    # What was there before the rule may be scaled, finished and deleted; its pods may not be changed.
    "touched": (
        f"oldObject == null || variables.pods != ({_pods('oldObject')})"
        f" || {_labels('object')} != {_labels('oldObject')}"
        f" || !({' && '.join(_same(field) for field in _BESIDE)})"
    ),
}
"""Variables that every rule has."""

CONTAINERS: Final = "(p.containers + p.?initContainers.orValue([]))"
"""All containers of the pod `p`."""

LIMITS: Final = "c.?resources.?limits.orValue({})"
REQUESTS: Final = "c.?resources.?requests.orValue({})"
"""Of the container `c`. Amounts are looked up by `in` and `[r]`: those that `[?r]` finds, the API server's `string()`
does not take (seen with 1.36.3)."""


def is_gpu(names: Iterable[str]) -> str:
    """Whether the resource `r` is a GPU, whole or in part."""
    return "(" + " || ".join(f"r.startsWith({literal(name)})" for name in names) + ")"


def asks(names: Iterable[str]) -> str:
    """Whether the pod `p` asks for GPUs: as a resource, of which 0 counts as none, or by a claim."""
    return (
        f"(has(p.resourceClaims) || {CONTAINERS}.exists(c, [{LIMITS}, {REQUESTS}].exists(m,"
        f" m.exists(r, {is_gpu(names)} && {number('m[r]')} > 0.0))))"
    )


def number(quantity: str) -> str:
    """A quantity, text or number as kinds have it, as a number."""
    return f"quantity(string({quantity})).asApproximateFloat()"


QUEUE_OF: Final = (
    f"{CRON_JOB} ? object.spec.jobTemplate.?metadata.?labels[?'{QUEUE}'].orValue('')"
    f" : object.kind in ['DaemonSet', 'ReplicaSet', 'ReplicationController']"
    f" ? object.spec.template.?metadata.?labels[?'{QUEUE}'].orValue('')"
    f" : object.metadata.?labels[?'{QUEUE}'].or(object.kind == 'Deployment'"
    f" ? object.spec.template.?metadata.?labels[?'{QUEUE}'] : optional.none()).orValue('')"
)
"""The Kueue queue of an object, by the label where Kueue reads it: a Deployment's pods have theirs from either label, a
ReplicaSet's and a DaemonSet's are queued each for itself, a CronJob's jobs likewise."""

GANG_OF: Final = (
    f"{IS_VOLCANOS} ? object.spec.?queue.orValue('default')"
    f" : object.kind == 'Pod' && variables.queue == '' && object.spec.?schedulerName.orValue('') == '{VOLCANO}'"
    f" ? object.metadata.?annotations[?'{GANG_QUEUE}'].orValue('default') : ''"
)
"""The Volcano queue of an object that no queue of Kueue's counts; empty for all others."""

PLACES: Final = f"variables.pods + ({_VOLCANO_JOB} ? [object.spec] : [])"
"""Wherever an object names a scheduler or a priority class."""

CLASS_LABELS: Final = f"{_labels('object')}.filter(l, '{QUEUE_PRIORITY}' in l).map(l, l['{QUEUE_PRIORITY}'])"
"""Priority classes that an object names for the queue."""
