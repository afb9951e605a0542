"""Objects as the scheduler and Kueue read them: names and labels, label selectors, requests and limits of a pod."""

from collections.abc import Mapping, Sequence

from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amounts
from gpu_tenancy.base.texts import first_names

Manifest = Mapping[str, Json]


def requests(spec: Manifest) -> dict[str, int]:
    """Requests of a pod: its containers together, or an init container that is larger; sidecars count throughout.

    A limit without a request is a request. Requests of the pod as a whole override those of its containers.
    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    return _total(spec, "requests")


def limits(spec: Manifest) -> dict[str, int]:
    """Limits of a pod, counted in the same way."""
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
    """One container's `requests` or `limits`; a limit without a request is a request."""
    limit = amounts(at(container, "resources", "limits"))
    own = amounts(at(container, "resources", which))
    return {**limit, **own} if which == "requests" else own


def ended(pod: Manifest) -> bool:
    """Whether a pod has ended and uses nothing."""
    return text_at(pod, "status", "phase") in {"Succeeded", "Failed"}


def named(names: Sequence[str]) -> str:
    """The first five names of a list, and how many more there are."""
    return first_names(names, 5)


def name_of(manifest: Manifest) -> str:
    """Name of an object."""
    return text_at(manifest, "metadata", "name")


def namespace_of(manifest: Manifest) -> str:
    """Namespace of an object; empty for cluster-scoped objects."""
    return text_at(manifest, "metadata", "namespace")


def label(manifest: Manifest, key: str) -> str:
    """The value of a label; empty where it is not set."""
    return text_at(manifest, "metadata", "labels", key)


def scheduler(spec: Manifest) -> str:
    """The name of the scheduler of a pod."""
    return text_at(spec, "schedulerName") or "default-scheduler"


def selects(selector: Json, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches an object: no selector matches nothing, an empty one everything."""
    if not isinstance(selector, dict):
        return False
    exact, rules = map_at(selector, "matchLabels"), maps_at(selector, "matchExpressions")
    return exact.items() <= labels.items() and all(matches(rule, labels) for rule in rules)


def matches(rule: Mapping[str, Json], labels: Mapping[str, str]) -> bool:
    """Whether one expression of a selector matches."""
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
