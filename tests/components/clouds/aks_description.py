"""AKS's own description of its API: the models of azure-mgmt-containerservice, and what its pages say beside them.

The models are those of API version 2026-08-01, the only one in the package; pulumi-azure-native speaks 2025-09-01, of
whose clusters and pools the later version has every property, by the same name. What it has beyond, the types of the
Pulumi SDK refuse.
"""

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from aks_rules import CLUSTER_RULES, POOL_RULES, Finding, Rule
from azure.mgmt.containerservice import models
from azure.mgmt.containerservice.operations import AgentPoolsOperations, ManagedClustersOperations
from cloud_descriptions import Description, Inputs, Place
from pydantic.alias_generators import to_camel

from gpu_tenancy.engine.recording import UNKNOWN

CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
POOL: Final = "azure-native:containerservice:AgentPool"
BODIES: Final[Mapping[str, type]] = {CLUSTER: models.ManagedCluster, POOL: models.AgentPool}
CALLS: Final[Mapping[str, Callable[..., object]]] = {
    CLUSTER: ManagedClustersOperations.begin_create_or_update,
    POOL: AgentPoolsOperations.begin_create_or_update,
}
RULES: Final[Mapping[str, Sequence[Rule]]] = {CLUSTER: CLUSTER_RULES, POOL: POOL_RULES}
ENVELOPE: Final = {"id", "name", "type", "systemData", "properties"}
"""What Azure Resource Manager puts around a resource's properties; Pulumi's inputs are flat."""
AS_LISTS: Final = {("ManagedClusterIdentity", "userAssignedIdentities")}
"""Maps of the API from ids to nothing, which are lists of ids in Pulumi."""
DASHED: Final = models.ManagedClusterPropertiesAutoScalerProfile
"""The model whose properties are written with dashes in the API, as flags of the autoscaler."""

UNDESCRIBED: Final = "no description of this service is among the development dependencies"

Annotation: TypeAlias = Any
"""A type as Python writes it at run time."""


@dataclass(frozen=True)
class Property:
    """A property of one of the API's models."""

    annotation: Annotation
    required: bool
    writable: bool


@cache
def properties(model: type) -> Mapping[str, Property]:
    """The properties of a model by the API's names, those inside its envelope for a whole resource."""
    hints = get_type_hints(model, localns={"_models": models})
    found: dict[str, Property] = {}
    for owner in reversed(model.__mro__):
        for name, field in vars(owner).items():
            if type(field).__name__ != "_RestField":
                continue
            rest_field = cast("dict[str, Any]", vars(field))
            optional = NoneType in get_args(hints[name])
            writable = bool({"create", "update"} & set(rest_field["_visibility"] or ["create"]))
            rest_name = rest_field["_rest_name_input"] or name
            found[to_camel(rest_name.replace("-", "_")) if model is DASHED else rest_name] = Property(
                hints[name], not optional, writable
            )
    if "properties" not in found:
        return found
    inner = properties(_stripped(found["properties"].annotation))
    return {**{name: value for name, value in found.items() if name not in ENVELOPE}, **inner}


def _stripped(annotation: Annotation) -> Annotation:
    """A type without `None`."""
    rest = [argument for argument in get_args(annotation) if argument is not NoneType]
    if get_origin(annotation) not in {Union, UnionType} or len(rest) == len(get_args(annotation)):
        return annotation
    # pyrefly: ignore[invalid-annotation]
    return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - made at run time


def _object(model: type, value: Mapping[str, Any], place: Place) -> Iterator[Finding]:
    known = properties(model)
    for key, inner in value.items():
        at = (*place, key)
        if key not in known:
            yield Finding("problem", at, f"{model.__name__} has no {key}")
        elif not known[key].writable:
            yield Finding("problem", at, f"{model.__name__}.{key} is AKS's to write")
        else:
            yield from _value(known[key].annotation, _as_map(model, key, inner), at)
            if known[key].required:
                yield Finding("required", at)
    for name, each in known.items():
        if each.required and name not in value:
            yield Finding("problem", (*place, name), f"{model.__name__}.{name} is missing")


def _as_map(model: type, key: str, value: object) -> object:
    if (model.__name__, key) not in AS_LISTS or not isinstance(value, list):
        return value
    return {str(item): cast("dict[str, object]", {}) for item in cast("list[object]", value)}


def _value(annotation: Annotation, value: object, place: Place) -> Iterator[Finding]:
    if value == UNKNOWN:
        return
    wanted = _stripped(annotation)
    words = [
        argument
        for argument in (wanted, *get_args(wanted))
        if isinstance(argument, type) and issubclass(argument, Enum)
    ]
    if words:
        known = [str(word.value) for word in words[0]]
        yield Finding("enumerated", place)
        if value not in known:
            yield Finding("problem", place, f"{value} is none of {', '.join(known)}")
    elif get_origin(wanted) is list and isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _value(get_args(wanted)[0], inner, (*place, index))
    elif get_origin(wanted) is dict and isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _value(get_args(wanted)[1], inner, (*place, key))
    elif isinstance(wanted, type) and hasattr(wanted, "as_dict") and isinstance(value, Mapping):
        yield from _object(wanted, cast("Mapping[str, Any]", value), place)
    elif not _is(wanted, value):
        yield Finding("problem", place, f"{value!r} is no {wanted}")


def _is(wanted: Annotation, value: object) -> bool:
    if wanted is bool or isinstance(value, bool):
        return wanted is bool and isinstance(value, bool)
    if wanted is float:
        return isinstance(value, int | float)
    if wanted is dt.date:
        return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None
    return isinstance(wanted, type) and wanted in {int, str} and isinstance(value, wanted)


@cache
def path(token: str) -> Sequence[str]:
    """The names in the call's path, which Pulumi has among the inputs."""
    names = [to_camel(name) for name in inspect.signature(CALLS[token]).parameters]
    return [name for name in names if name.endswith("Name")]


def findings(token: str, inputs: Inputs) -> Iterator[Finding]:
    """All that AKS says of what is sent."""
    for name in path(token):
        yield Finding("required", (name,)) if name in inputs else Finding("problem", (name,), f"{name} is missing")
        if not isinstance(inputs.get(name, ""), str):
            yield Finding("problem", (name,), f"{name} is no text")
    body = {key: value for key, value in inputs.items() if key not in path(token)}
    found_in_body = list(_object(BODIES[token], body, ()))
    yield from found_in_body
    if any(finding.kind == "problem" for finding in found_in_body):
        return  # The pages speak of what has the models' types.
    for rule in RULES[token]:
        yield from rule(inputs)


def problems_of(model: type, value: Mapping[str, Any]) -> list[str]:
    """What AKS would refuse of a part of a request."""
    found = [finding for finding in _object(model, value, ()) if finding.kind == "problem"]
    return [f"{'.'.join(map(str, finding.place))}: {finding.text}" for finding in found]


class AksDescription:
    """What AKS says of its clusters and node pools."""

    stacks: Sequence[str] = ("prod-azure",)
    types = frozenset(BODIES)
    undescribed: Mapping[str, str] = {
        "azure-native:authorization:RoleAssignment": UNDESCRIBED,
        "azure-native:compute:ProximityPlacementGroup": UNDESCRIBED,
        "azure-native:managedidentity:UserAssignedIdentity": UNDESCRIBED,
        "azure-native:monitor:DiagnosticSetting": UNDESCRIBED,
        "azure-native:containerservice:MaintenanceConfiguration": "compared with the model in test_clouds_azure_made",
    }

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        diagnostics = [finding for finding in findings(token, inputs) if finding.kind == "problem"]
        return [f"{'.'.join(map(str, finding.place))}: {finding.text}" for finding in diagnostics]

    def required(self, token: str, inputs: Inputs) -> list[Place]:
        return list(dict.fromkeys(finding.place for finding in findings(token, inputs) if finding.kind == "required"))

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]:
        return list(dict.fromkeys(finding.place for finding in findings(token, inputs) if finding.kind == "enumerated"))


DESCRIPTION: Final[Description] = AksDescription()
