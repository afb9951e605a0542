"""Requests and limits of one pod, as the scheduler and Kueue count them."""

from collections.abc import Mapping

from gpu_tenancy.base.amounts import amounts
from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.quantity import add

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
    total = add(*(asked(each, which) for each in maps_at(spec, "containers")))
    beside: dict[str, int] = {}
    peak: dict[str, int] = {}
    for each in maps_at(spec, "initContainers"):
        own = asked(each, which)
        if text_at(each, "restartPolicy") == "Always":
            beside = add(beside, own)
            own = {}
        peak = _most(peak, add(beside, own))
    total = _most(add(total, beside), peak)
    return add({**total, **amounts(at(spec, "resources", which))}, amounts(at(spec, "overhead")))


def asked(container: Manifest, which: str) -> dict[str, int]:
    """One container's `requests` or `limits`; a limit without a request is a request."""
    limit = amounts(at(container, "resources", "limits"))
    own = amounts(at(container, "resources", which))
    return {**limit, **own} if which == "requests" else own


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def ended(pod: Manifest) -> bool:
    """Whether a pod has ended and uses nothing."""
    return text_at(pod, "status", "phase") in {"Succeeded", "Failed"}


def called(manifest: Manifest) -> str:
    """Name of an object."""
    return text_at(manifest, "metadata", "name")


def home(manifest: Manifest) -> str:
    """Namespace of an object; empty for cluster-scoped objects."""
    return text_at(manifest, "metadata", "namespace")


def label(manifest: Manifest, key: str) -> str:
    """The value of a label; empty where it is not set."""
    return text_at(manifest, "metadata", "labels", key)


def scheduler(spec: Manifest) -> str:
    """The name of the scheduler of a pod."""
    return text_at(spec, "schedulerName") or "default-scheduler"
