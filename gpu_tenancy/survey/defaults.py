"""Rules about defaults of namespaces and of the cluster that contradict each other."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import amount, amount_text
from gpu_tenancy.cluster.pods import Manifest, name_of, namespace_of
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.survey.findings import Finding, Rule

_BELOW: Final = (
    ("defaultRequest", "default", "the default request is above the default limit"),
    ("default", "max", "the default limit is above the maximum"),
    ("defaultRequest", "max", "the default request is above the maximum"),
    ("min", "default", "the default limit is below the minimum"),
    ("min", "defaultRequest", "the default request is below the minimum"),
    ("min", "max", "the minimum is above the maximum"),
)
"""Fields of LimitRanges of which the first must not be above the second. An API server compares them within one object
only; several objects of a namespace are in force together."""


def limit_ranges(facts: Facts) -> Iterator[Finding]:
    """LimitRanges of a namespace by which pods without own values are rejected."""
    by_namespace: dict[str, list[Manifest]] = {}
    for limits in facts.state.of("LimitRange"):
        by_namespace.setdefault(namespace_of(limits), []).append(limits)
    for namespace, all_ in sorted(by_namespace.items()):
        rules = [(name_of(one), rule) for one in all_ for rule in maps_at(one, "spec", "limits")]
        rules = [(name, rule) for name, rule in rules if text_at(rule, "type") == "Container"]
        for (one, lower), (other, upper) in product(rules, rules):
            for low, high, problem in _BELOW:
                yield from _compared(facts, namespace, (one, low, lower), (other, high, upper), problem)


def _compared(
    facts: Facts,
    namespace: str,
    lower: tuple[str, str, dict[str, Json]],
    upper: tuple[str, str, dict[str, Json]],
    problem: str,
) -> Iterator[Finding]:
    (one, low, rule), (other, high, bound) = lower, upper
    ceiling = map_at(bound, high)
    for resource, value in map_at(rule, low).items():
        if resource in ceiling and amount(resource, value) > amount(resource, ceiling[resource]):
            mine, its = (amount_text(resource, amount(resource, each)) for each in (value, ceiling[resource]))
            where = "" if one == other else f" of {facts.name(other)}"
            yield Finding(
                f"LimitRange {facts.name(f'{namespace}/{one}')}",
                f"{low} {resource} {mine}",
                f"against {high} {its}{where}: {problem}, so pods without own values are rejected",
                f"set {low} to at most {its}",
            )


def default_priorities(facts: Facts) -> Iterator[Finding]:
    """More than one default PriorityClass: the lowest value of them applies."""
    defaults = [name_of(each) for each in facts.state.of("PriorityClass") if at(each, "globalDefault") is True]
    if len(defaults) > 1:
        yield Finding(
            f"PriorityClasses {facts.name.listed(sorted(defaults))}",
            "globalDefault",
            "set on several: pods without a class get the one with the lowest value",
            "keep it on one of them",
        )


RULES: Final = (
    Rule("limit-ranges-contradict", "wrong", ("LimitRange",), limit_ranges, own=True),
    Rule("default-priorities", "wrong", ("PriorityClass",), default_priorities),
)
