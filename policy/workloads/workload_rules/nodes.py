"""Onto which nodes a pod may go, as far as its own labels say."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

from judge import View
from workload_rules.pods import TRAIN_JOB, Pod, views_at

Values = Mapping[str, frozenset[str]]
"""Labels that a node must have, each with the values that do."""

_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PATCHES: Final = (
    "spec.runtimePatches.*.trainingRuntimeSpec.template.spec.replicatedJobs.*.template.spec.template.spec",
    "spec.podTemplateOverrides.*.spec",
    "spec.podSpecOverrides.*",
)
"""Where a TrainJob says where its pods go, one after the other in the versions of its API (kubeflow/trainer)."""


def tolerations(pod: Pod) -> list[dict[str, str]]:
    """Its tolerations."""
    return [each.words() for each in pod.spec.items("tolerations")]


def tolerates(tolerations: list[dict[str, str]], key: str, effect: str = "NoSchedule") -> bool:
    """Whether one of these tolerations lets a pod onto a node with a taint of this key, whatever its value.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    return any(each.get("key", "") in {key, ""} and each.get("effect", "") in {effect, ""} for each in tolerations)


def labels(pod: Pod) -> dict[str, list[View]]:
    """Labels that it wants of its node, each with the values that do; these may be unknown.

    Terms of an affinity are alternatives: a label counts if each of them wants it.
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    """
    return pod.resource.once((pod, "node labels"), lambda: _labels(pod))


def values(pod: Pod) -> Values:
    """The same, with the values read."""
    return pod.resource.once(
        (pod, "values of node labels"),
        lambda: {key: frozenset(value.text() for value in each) for key, each in labels(pod).items()},
    )


def may_meet(one: Values, other: Values) -> bool:
    """Whether a node can have what both want."""
    return all(one[key] & other[key] for key in one.keys() & other.keys())


def _labels(pod: Pod) -> dict[str, list[View]]:
    found: dict[str, list[View]] = {}
    for spec in _specs(pod):
        terms = [dict(_wanted(term)) for term in spec.items(*_REQUIRED)]
        if terms:
            for key in reduce(lambda one, other: one & other, (set(term) for term in terms)):
                found[key] = [value for term in terms for value in term[key]]
        found |= {key: [value] for key, value in spec.entries("nodeSelector").items()}
    return found


def _specs(pod: Pod) -> list[View]:
    if pod.kind != TRAIN_JOB:
        return [pod.spec]
    return [view for path in _PATCHES for _, view in views_at(pod.resource.props, path)]


def _wanted(term: View) -> Iterator[tuple[str, list[View]]]:
    for expression in term.items("matchExpressions"):
        if expression.text("operator") == "In":
            yield expression.text("key"), expression.items("values")
