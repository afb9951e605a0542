"""AWS' descriptions of its own APIs, by botocore's service models.

A resource of Pulumi's becomes one API call or more. A walk along the call's shapes finds unknown names, values outside
an enumeration, a pattern or a length; botocore's own validator adds types, ranges and missing values.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from cloud_descriptions import Description, Inputs, Place
from eks_shapes import CALLS, WHOLE, Call, Shape, Steps, big, input_of, refusals, shape_of

from gpu_tenancy.engine.recording import UNKNOWN

RENAMES: Final[Mapping[tuple[str, str], str]] = {
    ("LaunchTemplateInstanceNetworkInterfaceSpecificationRequest", "securityGroups"): "Groups",
    ("ServerSideEncryptionByDefault", "kmsMasterKeyId"): "KMSMasterKeyID",
    ("ServerSideEncryptionByDefault", "sseAlgorithm"): "SSEAlgorithm",
}
"""Nested inputs whose member has a different name, by shape. All others differ in a capital only."""

DOCUMENTED: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("LaunchTemplateInstanceNetworkInterfaceSpecificationRequest", "InterfaceType"): frozenset(
        {"interface", "efa", "efa-only"}
    ),
    ("CreateAccessEntryRequest", "type"): frozenset({"STANDARD", "EC2_LINUX", "FARGATE_LINUX", "HYBRID_LINUX"}),
    ("Tag", "ResourceType"): frozenset({"auto-scaling-group"}),
}
"""Members whose enumeration is only in their documentation; a test compares it."""

# Members whose enumeration is in another shape.
ELSEWHERE: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("CreateNodegroupRequest", "instanceTypes"): ("ec2", "InstanceType")
}

UNDESCRIBED: Final[Mapping[str, str]] = {
    "pulumi:providers:aws": "it is a client's configuration and no call; the stack's own pattern checks its region"
}


@dataclass
class _Walk:
    """One pass along a call's shapes: builds the request and records problems."""

    found: list[str] = field(default_factory=list[str])
    required: list[Place] = field(default_factory=list[Place])
    enumerated: list[Place] = field(default_factory=list[Place])

    def value(self, shape: Shape, value: Any, at: Place, words: frozenset[str] = frozenset()) -> Any:
        if value == UNKNOWN:
            return _stand_in(shape)
        if shape.kind == "structure":
            return self._structure(shape, value, at)
        if shape.kind == "list":
            return self._list(shape, value, at, words)
        if shape.kind == "map":
            return self._map(shape, value, at)
        return self._plain(shape, value, at, words)

    def _structure(self, shape: Shape, value: Any, at: Place) -> Any:
        if not isinstance(value, Mapping):
            self._note(at, f"is no {shape.name}")
            return {}
        request: dict[str, Any] = {}
        for key, each in cast("Mapping[str, Any]", value).items():
            name = _member(shape, key)
            if name is None:
                self._note((*at, key), f"is no member of {shape.name}")
            elif each is not None:
                request[name] = self.member(shape, name, each, (*at, key))
        return request

    def member(self, shape: Shape, name: str, value: Any, at: Place) -> Any:
        if name in shape.required:
            self.required.append(at)
        elsewhere = ELSEWHERE.get((shape.name, name))
        words = DOCUMENTED.get((shape.name, name), frozenset())
        if elsewhere:
            words = shape_of(*elsewhere).enum
        return self.value(shape.member(name), value, at, words)

    def _list(self, shape: Shape, value: Any, at: Place, words: frozenset[str]) -> Any:
        if isinstance(value, Mapping) and (names := _tag_names(shape)):
            pairs = cast("Mapping[str, str]", value).items()
            return [self._tag(shape.items, names, pair, at) for pair in pairs]
        if isinstance(value, Mapping) and shape.items.kind == "structure":
            return [self.value(shape.items, value, at)]  # Where the provider takes one, the API takes several.
        if not isinstance(value, list):
            self._note(at, f"is no list of {shape.items.name}")
            return []
        return [
            self.value(shape.items, item, (*at, index), words) for index, item in enumerate(cast("list[Any]", value))
        ]

    def _tag(self, shape: Shape, names: tuple[str, str], pair: tuple[str, str], at: Place) -> Any:
        return {
            name: self.value(shape.member(name), text, (*at, pair[0])) for name, text in zip(names, pair, strict=True)
        }

    def _map(self, shape: Shape, value: Any, at: Place) -> Any:
        if not isinstance(value, Mapping):
            self._note(at, "is no map")
            return {}
        request: dict[str, Any] = {}
        for key, each in cast("Mapping[str, Any]", value).items():
            self.value(shape_of(shape.api, shape.key), key, (*at, key))
            request[key] = self.value(shape.items, each, (*at, key))
        return request

    def _plain(self, shape: Shape, value: Any, at: Place, words: frozenset[str]) -> Any:
        if shape.kind == "boolean" and value in {"true", "false"}:
            return value == "true"  # The provider tells unset from false by a text.
        if shape.kind == "string" and not isinstance(value, str):
            self._note(at, f"is no text but {value!r}")
            return ""
        if shape.kind == "string" and isinstance(value, str):
            self._text(shape, value, at, words)
        return value

    def _text(self, shape: Shape, value: str, at: Place, words: frozenset[str]) -> None:
        allowed = words or shape.enum
        if allowed:
            self.enumerated.append(at)
            if value not in allowed:
                self._note(at, f"is {value!r} and none of {', '.join(sorted(allowed)[:20])}")
        if shape.pattern and not _fits(shape.pattern, value):
            self._note(at, f"is {value!r}, which does not match {shape.pattern}")
        if len(value) < shape.least or (shape.longest is not None and len(value) > shape.longest):
            self._note(at, f"has {len(value)} characters, and {shape.least} to {shape.longest} are allowed")

    def _note(self, at: Place, wrong: str) -> None:
        self.found.append(f"{'.'.join(map(str, at))} {wrong}")


def _member(shape: Shape, key: str) -> str | None:
    """The member for an input, if there is one."""
    name = RENAMES.get((shape.name, key))
    return name or next((name for name in (key, big(key)) if name in shape.members), None)


def _tag_names(shape: Shape) -> tuple[str, str] | None:
    """Names of a tag's key and value, if the list is one of tags."""
    return next(
        (pair for pair in (("Key", "Value"), ("TagKey", "TagValue")) if set(shape.items.members) == set(pair)), None
    )


def _fits(pattern: str, value: str) -> bool:
    r"""Whether a text matches a pattern with Java's syntax: `\p{L}` and its like, and surrogate pairs."""
    pattern = pattern.replace(r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF")
    plain = re.sub(r"\\p\{(\w+)\}", lambda found: {"L": r"\w", "Z": r"\s", "N": r"\d"}.get(found[1][0], r"\w"), pattern)
    anchored = pattern.startswith("^") or pattern.endswith("$")
    match = re.match(plain, value) if anchored else re.fullmatch(plain, value)
    return match is not None


def _stand_in(shape: Shape) -> Any:
    """A valid value in place of one that only the cloud knows."""
    empty: Mapping[str, Any] = {"integer": 1, "long": 1, "boolean": True, "list": [], "map": {}, "structure": {}}
    return empty.get(shape.kind, "x" * max(shape.least, 20))


def _put(request: dict[str, Any], steps: Steps, value: Any) -> None:
    for step in steps[:-1]:
        request = request.setdefault(step, {})
    before = request.get(steps[-1])
    merge = isinstance(before, dict) and isinstance(value, Mapping)
    request[steps[-1]] = {**cast("dict[str, Any]", before), **cast("Mapping[str, Any]", value)} if merge else value


def _listed(shape: Shape, request: Any) -> Any:
    """The request with lists where `_put` could only make maps."""
    if not isinstance(request, Mapping):
        return request
    known = cast("Mapping[str, Any]", request)
    if shape.kind == "list":
        return [_listed(shape.items, known)]
    if shape.kind == "structure":
        return {name: _listed(shape.member(name), value) for name, value in known.items()}
    return dict(known)


def _descend(shape: Shape, steps: Steps) -> Shape:
    """The shape that has the last of some steps as its member, or among its keys."""
    for step in steps[:-1]:
        inner = shape.member(step)
        shape = inner.items if inner.kind == "list" else inner
    return shape


class EksDescription:
    """EKS and related services, by botocore."""

    stacks: Sequence[str] = ("dev-aws", "prod-aws")
    types: frozenset[str] = frozenset(CALLS)
    undescribed: Mapping[str, str] = UNDESCRIBED

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        calls = CALLS[token]
        known = {name for call in calls for name in call.inputs}
        unknown = [f"{name} maps to nothing of {token}" for name in inputs if name not in known]
        return unknown + [f"{call.operation}: {wrong}" for call in calls for wrong in request_of(call, inputs)[0]]

    def required(self, token: str, inputs: Inputs) -> list[Place]:
        return _once(place for call in CALLS[token] for place in _check(call, inputs)[1].required)

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]:
        return _once(place for call in CALLS[token] for place in _check(call, inputs)[1].enumerated)


def _once(places: Iterable[Place]) -> list[Place]:
    return list(dict.fromkeys(places))


def request_of(call: Call, inputs: Inputs) -> tuple[list[str], dict[str, Any]]:
    """The problems of one call, and its request."""
    found, _, request = _check(call, inputs)
    return found, request


def _check(call: Call, inputs: Inputs) -> tuple[list[str], _Walk, dict[str, Any]]:
    shape = input_of(call)
    walk = _Walk()
    request: dict[str, Any] = {}
    for name, value in call.fixed.items():
        _put(request, (name,), value)
    for name, steps in call.inputs.items():
        value = inputs.get(name)
        if value is None or steps == (WHOLE,):
            continue
        end = _descend(shape, steps)
        if end.kind == "map":  # A queue's attributes: their names are few words, and all are texts.
            walk.value(shape_of(end.api, end.key), steps[-1], (name,))
            checked = walk.value(end.items, str(value).lower() if isinstance(value, bool) else str(value), (name,))
        else:
            checked = walk.member(end, steps[-1], value, (name,))
        joins = isinstance(checked, list) and isinstance(request.get(steps[-1]), Mapping)
        _put(request, steps, cast("list[Any]", checked)[0] if joins else checked)
    listed = cast("dict[str, Any]", _listed(shape, request))
    return [*walk.found, *refusals(call, listed)], walk, listed


DESCRIPTION: Final[Description] = EksDescription()
