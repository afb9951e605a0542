"""Nodes that a pod can be scheduled on, according to its node selector, affinity and tolerations."""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Final

from rule_engine import View
from workload_rules.kinds import PATCHES
from workload_rules.pods import Pod, views_at

Values = Mapping[str, frozenset[str]]
"""Required node labels with their allowed values."""

_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


def tolerations(pod: Pod) -> list[dict[str, str]]:
    """The tolerations of a pod, as maps."""
    return [toleration.string_map() for toleration in pod.spec.items("tolerations")]


def tolerates(tolerations: list[dict[str, str]], key: str, effect: str = "NoSchedule") -> bool:
    """Whether one of these tolerations matches a taint with this key, with any value.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    return any(
        toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {effect, ""}
        for toleration in tolerations
    )


def labels(pod: Pod) -> dict[str, list[View]]:
    """The required node labels of a pod with their allowed values, which can be unknown.

    The terms of an affinity are alternatives: a label is required if all of them require it.
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
    """
    return pod.resource.once((pod, "node labels"), lambda: _labels(pod))


def values(pod: Pod) -> Values:
    """The required node labels of a pod with their allowed values, as strings."""
    return pod.resource.once(
        (pod, "values of node labels"),
        lambda: {key: frozenset(value.text() for value in views) for key, views in labels(pod).items()},
    )


def may_share_node(first: Values, second: Values) -> bool:
    """Whether one node can have the labels that two pods require."""
    return all(first[key] & second[key] for key in first.keys() & second.keys())


def _labels(pod: Pod) -> dict[str, list[View]]:
    required: dict[str, list[View]] = {}
    for spec in _specs(pod):
        terms = [dict(_required_labels(term)) for term in spec.items(*_REQUIRED)]
        if terms:
            for key in reduce(lambda common, keys: common & keys, (set(term) for term in terms)):
                required[key] = [value for term in terms for value in term[key]]
        required |= {key: [value] for key, value in spec.entries("nodeSelector").items()}
    return required


def _specs(pod: Pod) -> list[View]:
    if pod.form != "trainer":
        return [pod.spec]
    return [view for path in PATCHES for _, view in views_at(pod.resource.props, path)]


def _required_labels(term: View) -> Iterator[tuple[str, list[View]]]:
    for expression in term.items("matchExpressions"):
        if expression.text("operator") == "In":
            yield expression.text("key"), expression.items("values")
