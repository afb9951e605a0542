"""A namespace's container bounds (LimitRange): the defaults that they set, and whether a pod is within them.

Order and rules are those of the LimitRanger admission plugin
(https://kubernetes.io/docs/concepts/policy/limit-range/): a limit without a request is a request; then defaults; then
minimum, maximum and the ratio of limit to request, for each container and for the pod as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from gpu_tenancy.console.live import narrative
from gpu_tenancy.console.live.amounts import amount, amounts, ordered
from gpu_tenancy.console.live.answers import Answer, Check
from gpu_tenancy.console.live.pods import Manifest, asked, limits, requests
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at
from gpu_tenancy.model.quantity import parse_quantity


@dataclass(frozen=True, slots=True)
class Bounded:
    """A pod with the namespace's defaults, and the result of the check."""

    spec: Mapping[str, Json]
    answer: Answer


def bound(ranges: Iterable[Manifest], spec: Manifest) -> Bounded:
    """Sets the defaults of a namespace's LimitRanges in a pod, and checks it."""
    rules = [rule for limit_range in ranges for rule in maps_at(limit_range, "spec", "limits")]
    defaults: list[str] = []
    for rule in rules:
        if text_at(rule, "type") == "Container":
            kinds = (key for key in ("initContainers", "containers") if key in spec)
            spec = {**spec, **{key: _with_defaults(spec, key, rule, defaults) for key in kinds}}
    violations = [violation for rule in rules for violation in _violations(rule, spec)]
    if not rules:
        lines: tuple[str, ...] = (narrative.NO_BOUNDS,)
    elif violations:
        lines = tuple(dict.fromkeys(violations))
    else:
        lines = (narrative.within_bounds(defaults),)
    return Bounded(spec, Answer(Check.CONTAINER_BOUNDS, "never" if violations else "now", lines))


def _with_defaults(spec: Manifest, key: str, rule: Manifest, defaults: list[str]) -> list[Json]:
    return [_with_default(container, rule, defaults) for container in maps_at(spec, key)]


def _with_default(container: Mapping[str, Json], rule: Manifest, defaults: list[str]) -> dict[str, Json]:
    """A container with the defaults, whose texts are added to a list."""
    own_limits, own_requests = (_map(container, "resources", which) for which in ("limits", "requests"))
    own_requests = {**own_limits, **own_requests}
    new_limits = {name: value for name, value in _map(rule, "default").items() if name not in own_limits}
    new_requests = {name: value for name, value in _map(rule, "defaultRequest").items() if name not in own_requests}
    given = {
        which: ", ".join(f"{name} {values[name]}" for name in ordered(values))
        for which, values in (("requests", _nonzero(new_requests)), ("limits", _nonzero(new_limits)))
        if values
    }
    if given:
        defaults.append(narrative.default_text(text_at(container, "name"), given))
    resources: dict[str, Json] = {
        **_map(container, "resources"),
        "requests": {**own_requests, **new_requests},
        "limits": {**own_limits, **new_limits},
    }
    return {**container, "resources": resources}


def _map(manifest: Manifest, *keys: str) -> dict[str, Json]:
    value = at(manifest, *keys)
    return value if isinstance(value, dict) else {}


def _nonzero(values: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if amount(name, value)}


def _violations(rule: Manifest, spec: Manifest) -> Iterator[str]:
    match text_at(rule, "type"):
        case "Container":
            for container in (*maps_at(spec, "initContainers"), *maps_at(spec, "containers")):
                own = (asked(container, "requests"), amounts(at(container, "resources", "limits")))
                yield from _violations_of(rule, f"container {text_at(container, 'name')}", *own)
        case "Pod":
            yield from _violations_of(rule, "pod", requests(spec), limits(spec))
        case _:
            return


def _violations_of(rule: Manifest, whose: str, request: Mapping[str, int], limit: Mapping[str, int]) -> Iterator[str]:
    for name, minimum in amounts(at(rule, "min")).items():
        if name not in request:
            yield narrative.unset_text(whose, name, "minimum", minimum)
        elif (got := min(request[name], limit.get(name, request[name]))) < minimum:
            yield narrative.out_of_bounds(whose, name, got, "minimum", minimum)
    for name, maximum in amounts(at(rule, "max")).items():
        if name not in limit:
            yield narrative.unset_text(whose, name, "maximum", maximum)
        elif (got := max(limit[name], request.get(name, 0))) > maximum:
            yield narrative.out_of_bounds(whose, name, got, "maximum", maximum)
    for name, ratio in cast("dict[str, str]", _map(rule, "maxLimitRequestRatio")).items():
        low, high = request.get(name, 0), limit.get(name, 0)
        if not low or not high:
            yield narrative.no_ratio(whose, name, ratio)
        elif high > parse_quantity(ratio) * low:
            yield narrative.ratio_exceeded(whose, name, high, low, ratio)
