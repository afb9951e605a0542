"""A namespace's container bounds: what they fill into a pod, and whether they let it pass.

The order and the rules are those of the LimitRanger admission plugin
(https://kubernetes.io/docs/concepts/policy/limit-range/): a limit without a request is a request; then defaults; then
least, most and the ratio of limit to request, for each container and for the pod as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from gpu_tenancy.console.live.amounts import amount, amounts, ordered, said
from gpu_tenancy.console.live.answers import Answer
from gpu_tenancy.console.live.pods import Manifest, asked, limits, requests
from gpu_tenancy.console.offline.wire import Json, at, maps_at, text_at
from gpu_tenancy.model.quantity import parse_quantity

ABOUT: Final = "container bounds"


@dataclass(frozen=True, slots=True)
class Bounded:
    """A pod as the namespace would take it, and what is said to it."""

    spec: Mapping[str, Json]
    answer: Answer


def bound(ranges: Iterable[Manifest], spec: Manifest) -> Bounded:
    """Fills a pod in by the defaults of a namespace's LimitRanges, and judges it."""
    rules = [rule for each in ranges for rule in maps_at(each, "spec", "limits")]
    filled: list[str] = []
    for rule in (each for each in rules if text_at(each, "type") == "Container"):
        spec = {
            **spec,
            **{key: _each(spec, key, rule, filled) for key in ("initContainers", "containers") if key in spec},
        }
    broken = [words for rule in rules for words in _broken(rule, spec)]
    if not rules:
        words: tuple[str, ...] = ("the namespace has none",)
    elif broken:
        words = tuple(dict.fromkeys(broken))
    else:
        words = (f"each container is within them; {'; '.join(filled) or 'nothing is filled in'}",)
    return Bounded(spec, Answer(ABOUT, "never" if broken else "now", words))


def _each(spec: Manifest, key: str, rule: Manifest, filled: list[str]) -> list[Json]:
    return [_filled(container, rule, filled) for container in maps_at(spec, key)]


def _filled(container: Mapping[str, Json], rule: Manifest, filled: list[str]) -> dict[str, Json]:
    """A container with the defaults; what was filled in is noted in words."""
    own_limits, own_requests = (_map(container, "resources", which) for which in ("limits", "requests"))
    own_requests = {**own_limits, **own_requests}
    new_limits = {name: each for name, each in _map(rule, "default").items() if name not in own_limits}
    new_requests = {name: each for name, each in _map(rule, "defaultRequest").items() if name not in own_requests}
    given = [
        f"{which} {', '.join(f'{name} {found[name]}' for name in ordered(found))}"
        for which, found in (("requests", _some(new_requests)), ("limits", _some(new_limits)))
        if found
    ]
    if given:
        filled.append(f"{text_at(container, 'name')} gets by default {' and '.join(given)}")
    resources: dict[str, Json] = {
        **_map(container, "resources"),
        "requests": {**own_requests, **new_requests},
        "limits": {**own_limits, **new_limits},
    }
    return {**container, "resources": resources}


def _map(manifest: Manifest, *keys: str) -> dict[str, Json]:
    found = at(manifest, *keys)
    return found if isinstance(found, dict) else {}


def _some(found: Mapping[str, Json]) -> dict[str, Json]:
    return {name: each for name, each in found.items() if amount(name, each)}


def _broken(rule: Manifest, spec: Manifest) -> Iterator[str]:
    match text_at(rule, "type"):
        case "Container":
            for container in (*maps_at(spec, "initContainers"), *maps_at(spec, "containers")):
                own = (asked(container, "requests"), amounts(at(container, "resources", "limits")))
                yield from _judged(rule, f"container {text_at(container, 'name')}", *own)
        case "Pod":
            yield from _judged(rule, "the pod", requests(spec), limits(spec))
        case _:
            return


def _judged(rule: Manifest, whose: str, request: Mapping[str, int], limit: Mapping[str, int]) -> Iterator[str]:
    for name, least in amounts(at(rule, "min")).items():
        if name not in request:
            yield f"{whose} requests no {name}, at least {said(name, least)} is asked of each; say how much"
        elif min(request[name], limit.get(name, request[name])) < least:
            got = min(request[name], limit.get(name, request[name]))
            yield f"{whose} asks for {said(name, got)} {name}, less than the least, {said(name, least)}"
    for name, most in amounts(at(rule, "max")).items():
        if name not in limit:
            yield f"{whose} has no limit of {name}, at most {said(name, most)} is let through; say how much"
        elif max(limit[name], request.get(name, 0)) > most:
            got = max(limit[name], request.get(name, 0))
            yield f"{whose} asks for {said(name, got)} {name}, more than the most, {said(name, most)}"
    for name, written in cast("dict[str, str]", _map(rule, "maxLimitRequestRatio")).items():
        ratio, low, high = parse_quantity(written), request.get(name, 0), limit.get(name, 0)
        if not low or not high:
            yield f"{whose} lacks a request or a limit of {name}, whose ratio may be at most {written}; say both"
        elif high > ratio * low:
            yield (
                f"{whose} limits {name} to {said(name, high)} and requests {said(name, low)}: {high / low:g} times,"
                f" more than the {written} that are allowed"
            )
