"""The defaults that a namespace's LimitRanges set in a pod.

The API server's dry run tells what exceeds a LimitRange. Where it rejects a pod it does not tell the defaults, which
the checks of quota, queue and nodes need. Rules: the LimitRanger admission plugin
(https://kubernetes.io/docs/concepts/policy/limit-range/); a limit without a request is a request, then come defaults.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_tenancy.base.amounts import amount, ordered
from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.inspect.pods import Manifest


@dataclass(frozen=True, slots=True)
class Defaulted:
    """A pod's spec with the namespace's defaults.

    Attributes:
        texts: the defaults of each container that gets any.
    """

    spec: Mapping[str, Json]
    texts: tuple[str, ...]


def with_defaults(ranges: Iterable[Manifest], spec: Manifest) -> Defaulted:
    """Sets the defaults of a namespace's LimitRanges in a pod."""
    texts: list[str] = []
    for rule in (rule for limit_range in ranges for rule in maps_at(limit_range, "spec", "limits")):
        if text_at(rule, "type") == "Container":
            kinds = (key for key in ("initContainers", "containers") if key in spec)
            spec = {**spec, **{key: _containers(spec, key, rule, texts) for key in kinds}}
    return Defaulted(spec, tuple(texts))


def _containers(spec: Manifest, key: str, rule: Manifest, defaults: list[str]) -> list[Json]:
    return [_with_default(container, rule, defaults) for container in maps_at(spec, key)]


def _with_default(container: Mapping[str, Json], rule: Manifest, defaults: list[str]) -> dict[str, Json]:
    """A container with the defaults, whose texts are added to a list."""
    own_limits, own_requests = (map_at(container, "resources", which) for which in ("limits", "requests"))
    own_requests = {**own_limits, **own_requests}
    new_limits = {name: value for name, value in map_at(rule, "default").items() if name not in own_limits}
    new_requests = {name: value for name, value in map_at(rule, "defaultRequest").items() if name not in own_requests}
    given = {
        which: ", ".join(f"{name} {values[name]}" for name in ordered(values))
        for which, values in (("requests", _nonzero(new_requests)), ("limits", _nonzero(new_limits)))
        if values
    }
    if given:
        listed = " and ".join(f"{kind} {amounts}" for kind, amounts in given.items())
        defaults.append(f"container {text_at(container, 'name')}: {listed}")
    resources: dict[str, Json] = {
        **map_at(container, "resources"),
        "requests": {**own_requests, **new_requests},
        "limits": {**own_limits, **new_limits},
    }
    return {**container, "resources": resources}


def _nonzero(values: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if amount(name, value)}
