"""Names, labels, selectors, and requests and limits of pods, as the scheduler and Kueue read them."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amounts
from gpu_tenancy.base.texts import first_names

Manifest = Mapping[str, Json]

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"


def requests(spec: Manifest) -> dict[str, int]:
    """Requests of a pod: the sum of its containers or the largest init container; sidecars always count.

    A limit without a request is a request. Requests of the whole pod override requests of its containers.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    return _total(spec, "requests")


def limits(spec: Manifest) -> dict[str, int]:
    """Limits of a pod, counted like `requests`."""
    return _total(spec, "limits")


def _total(spec: Manifest, which: str) -> dict[str, int]:
    def most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
        return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}

    total = add(*(container_amounts(each, which) for each in maps_at(spec, "containers")))
    beside: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in maps_at(spec, "initContainers"):
        own = container_amounts(each, which)
        if text_at(each, "restartPolicy") == "Always":
            beside = add(beside, own)
            own = {}
        peak = most(peak, add(beside, own))
    total = most(add(total, beside), peak)
    return add({**total, **amounts(at(spec, "resources", which))}, amounts(at(spec, "overhead")))


def container_amounts(container: Manifest, which: str) -> dict[str, int]:
    """The `requests` or `limits` of one container; a limit without a request is a request."""
    limit = amounts(at(container, "resources", "limits"))
    own = amounts(at(container, "resources", which))
    return {**limit, **own} if which == "requests" else own


def ended(pod: Manifest) -> bool:
    """Whether a pod has ended and uses no resources."""
    return text_at(pod, "status", "phase") in {"Succeeded", "Failed"}


def deleted(one: Manifest) -> bool:
    """Whether an object is being deleted; a pod keeps its resources for its grace period at most."""
    return bool(text_at(one, "metadata", "deletionTimestamp"))


def named(names: Sequence[str]) -> str:
    """The first five names, and the number of further names."""
    return first_names(names, 5)


def name_of(manifest: Manifest) -> str:
    """The `metadata.name`."""
    return text_at(manifest, "metadata", "name")


def namespace_of(manifest: Manifest) -> str:
    """The `metadata.namespace`; empty for cluster-scoped objects."""
    return text_at(manifest, "metadata", "namespace")


def label(manifest: Manifest, key: str) -> str:
    """Value of a label; empty if not set."""
    return text_at(manifest, "metadata", "labels", key)


def scheduler(spec: Manifest) -> str:
    """The `schedulerName` of a pod, or its default."""
    return text_at(spec, "schedulerName") or "default-scheduler"


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; a missing selector matches nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    exact, rules = map_at(selector, "matchLabels"), maps_at(selector, "matchExpressions")
    return exact.items() <= labels.items() and all(matches(rule, labels) for rule in rules)


def matches(rule: Mapping[str, Json], labels: Mapping[str, str]) -> bool:
    """Whether one match expression matches."""
    here, values, operator = labels.get(text_at(rule, "key")), list_at(rule, "values"), text_at(rule, "operator")
    match operator:
        case "In":
            return here in values
        case "NotIn":
            return here not in values
        case "Exists" | "DoesNotExist":
            return (here is None) == (operator == "DoesNotExist")
        case "Gt" | "Lt":
            try:
                own, bound = int(here or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return own > bound if operator == "Gt" else own < bound
        case _:
            return False
