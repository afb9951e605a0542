"""The fields of an object by path, and how two objects differ in them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, text_at, texts_at
from gpu_tenancy.base.quantity import amount
from gpu_tenancy.cluster.pods import Manifest

Fields = dict[tuple[str, ...], str]
"""Values by path."""
_DEFAULTS: Final[Mapping[str, Fields]] = {
    "ClusterQueue": {
        ("spec", "queueingStrategy"): "BestEffortFIFO",
        ("spec", "stopPolicy"): "None",
        ("spec", "flavorFungibility", "whenCanBorrow"): "MayStopSearch",
        ("spec", "flavorFungibility", "whenCanPreempt"): "TryNextFlavor",
        ("spec", "preemption", "reclaimWithinCohort"): "Never",
        ("spec", "preemption", "withinClusterQueue"): "Never",
        ("spec", "preemption", "borrowWithinCohort", "policy"): "Never",
    },
    "LocalQueue": {("spec", "stopPolicy"): "None"},
    "Namespace": {("spec", "finalizers", "kubernetes"): "listed"},
    "PriorityClass": {("preemptionPolicy",): "PreemptLowerPriority", ("globalDefault",): "False"},
}
"""What the API server has where an object says nothing: https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/."""
_DERIVED: Final = frozenset({"status", "coveredResources", "apiVersion", "kind"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of an object: what the cluster has and what the stack sets; empty for nothing."""

    kind: str
    name: str
    field: str
    live: str
    planned: str


def differences(name: str, live: Manifest, planned: Manifest) -> Iterator[Difference]:
    """What a stack changes of an object. Labels of others stay, so they are no difference."""
    kind = text_at(planned, "kind")
    ours, theirs = fields_with_defaults(planned, kind), fields_with_defaults(live, kind)
    for path in dict.fromkeys((*ours, *theirs)):
        one, other = theirs.get(path, ""), ours.get(path, "")
        of_others = path[:2] == ("metadata", "labels") and not other
        if not of_others and not equal(path[-1], one, other):
            yield Difference(kind, name, ".".join(path), one, other)


def fields_with_defaults(live: Manifest, kind: str) -> Fields:
    """The fields of an object, with what the API server has where it says nothing."""
    return {**_DEFAULTS.get(kind, {}), **fields(live)}


def fields(manifest: Manifest) -> Fields:
    """What an object sets, by path; entries of lists by their name, so that their order does not count."""
    labels = texts_at(manifest, "metadata", "labels")
    rest = {key: value for key, value in manifest.items() if key != "metadata"}
    return {("metadata", "labels", key): value for key, value in labels.items()} | dict(_flat(rest, ()))


def _flat(value: Json, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _DERIVED:
                yield from _flat(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                key = next((key for key in ("name", "type", "key") if key in inner), "")
                rest = {name: each for name, each in inner.items() if name != key}
                yield from _flat(rest, (*path, str(inner[key])) if key else path)
            else:
                yield (*path, str(inner)), "listed"
    elif value is not None:
        yield path, str(value)


def equal(name: str, one: str, other: str) -> bool:
    """Whether two values of a field are the same text or amount."""
    if one == other or not (one and other):
        return one == other
    try:
        return amount(name, one) == amount(name, other)
    except ConsoleError:
        return False
