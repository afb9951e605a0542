"""CEL expressions that several rules use.

https://kubernetes.io/docs/reference/using-api/cel/
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from ..conventions import QUEUE, QUEUE_PRIORITY, VOLCANO

TRAIN_JOB: Final = "object.kind == 'TrainJob'"
CRON_JOB: Final = "object.kind == 'CronJob'"
_VOLCANO_JOB: Final = "object.apiVersion.startsWith('batch.volcano.sh/')"
IS_VOLCANO: Final = "object.apiVersion.split('/')[0] in ['batch.volcano.sh', 'scheduling.volcano.sh']"
"""Whether an object is a Job or a PodGroup of Volcano, which names its queue in its spec."""
GANG_QUEUE: Final = "scheduling.volcano.sh/queue-name"
"""Annotation by which a bare pod names its Volcano queue; without it the pod is in the queue `default`."""


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


def by_namespace(values: Mapping[str, object], default: object) -> str:
    """The value for the object's namespace; namespaces that are not listed have the default."""
    specific = {name: value for name, value in values.items() if value != default}
    return f"{literal(specific)}[?request.namespace].orValue({literal(default)})" if specific else literal(default)


def _pods(of: str) -> str:
    """The pod specs in an object of any validated kind: its own, or those of its templates.

    A TrainJob contains only the resources of its pods. The rest is in a runtime, and is validated in the JobSet that
    Trainer creates from both.
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


_OTHER_FIELDS: Final = (
    "metadata.?ownerReferences",
    f"metadata.?annotations[?'{GANG_QUEUE}']",
    "spec.?queue",
    "spec.?schedulerName",
    "spec.?priorityClassName",
)
"""Fields that rules check in addition to pods and labels."""

SHARED: Final[Mapping[str, str]] = {
    "pods": _pods("object"),
    # Objects that are older than the rule can be scaled, completed and deleted, but their pods cannot be changed.
    "touched": (
        f"oldObject == null || variables.pods != ({_pods('oldObject')})"
        f" || {_labels('object')} != {_labels('oldObject')}"
        f" || !({' && '.join(_same(field) for field in _OTHER_FIELDS)})"
    ),
}
"""Variables that every rule has."""

CONTAINERS: Final = "(p.containers + p.?initContainers.orValue([]))"
"""All containers of the pod `p`."""

LIMITS: Final = "c.?resources.?limits.orValue({})"
REQUESTS: Final = "c.?resources.?requests.orValue({})"
"""Requests of the container `c`. Use `in` and `[r]` to look up amounts: the API server's `string()` does not accept
values from `[?r]` (seen with 1.36.3)."""


def is_gpu(names: Iterable[str]) -> str:
    """Whether the resource `r` is a GPU or a GPU partition."""
    return "(" + " || ".join(f"r.startsWith({literal(name)})" for name in names) + ")"


def requests_gpus(names: Iterable[str]) -> str:
    """Whether the pod `p` requests GPUs, as a resource (0 does not count) or by a resource claim."""
    return (
        f"(has(p.resourceClaims) || {CONTAINERS}.exists(c, [{LIMITS}, {REQUESTS}].exists(m,"
        f" m.exists(r, {is_gpu(names)} && {number('m[r]')} > 0.0))))"
    )


def number(quantity: str) -> str:
    """A quantity as a number; kinds have it as a string or as a number."""
    return f"quantity(string({quantity})).asApproximateFloat()"


QUEUE_OF: Final = (
    f"{CRON_JOB} ? object.spec.jobTemplate.?metadata.?labels[?'{QUEUE}'].orValue('')"
    f" : object.kind in ['DaemonSet', 'ReplicaSet', 'ReplicationController']"
    f" ? object.spec.template.?metadata.?labels[?'{QUEUE}'].orValue('')"
    f" : object.metadata.?labels[?'{QUEUE}'].or(object.kind == 'Deployment'"
    f" ? object.spec.template.?metadata.?labels[?'{QUEUE}'] : optional.none()).orValue('')"
)
"""The Kueue queue of an object, from the label that Kueue reads: for a Deployment that of the object or of its pods;
for a ReplicaSet or a DaemonSet that of the pods, which are queued one by one; for a CronJob that of its Jobs."""

GANG_OF: Final = (
    f"{IS_VOLCANO} ? object.spec.?queue.orValue('default')"
    f" : object.kind == 'Pod' && variables.queue == '' && object.spec.?schedulerName.orValue('') == '{VOLCANO}'"
    f" ? object.metadata.?annotations[?'{GANG_QUEUE}'].orValue('default') : ''"
)
"""The Volcano queue of an object that has no Kueue queue; empty for all others."""

PLACES: Final = f"variables.pods + ({_VOLCANO_JOB} ? [object.spec] : [])"
"""All specs in which an object names a scheduler or a priority class."""

CLASS_LABELS: Final = f"{_labels('object')}.filter(l, '{QUEUE_PRIORITY}' in l).map(l, l['{QUEUE_PRIORITY}'])"
"""WorkloadPriorityClasses that an object names."""
