"""The calls of AWS' APIs by `eks_calls.yaml`, and their shapes by botocore's service models.

AWS makes its SDKs from these models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml
from botocore import loaders, model, validate

Steps: TypeAlias = tuple[str, ...]
WHOLE: Final = "-"  # the call does not have the input


@dataclass(frozen=True)
class Call:
    """One API call of a resource."""

    service: str
    operation: str
    inputs: Mapping[str, Steps]  # path of member names for each input; the call does not have other inputs
    fixed: Mapping[str, Any]  # members that the provider fills in by itself


def big(name: str) -> str:
    """A name with a capital, as EC2 and the older APIs write it."""
    return name[0].upper() + name[1:]


def _call(row: Mapping[str, Any]) -> Call:
    service_, operation = row["call"].split()
    inputs = {name: (name,) for name in row.get("same", "").split()}
    inputs |= {name: (big(name),) for name in row.get("big", "").split()}
    inputs |= {name: tuple(path.split()) for name, path in row.get("inputs", {}).items()}
    return Call(service_, operation, inputs, row.get("fixed", {}))


_ROWS: Final = yaml.safe_load(Path(__file__).with_name("eks_calls.yaml").read_text(encoding="utf-8"))
# By Pulumi's type token.
CALLS: Final[Mapping[str, Sequence[Call]]] = {token: [_call(row) for row in rows] for token, rows in _ROWS.items()}


@dataclass(frozen=True)
class Shape:
    """A type of an API, from its model."""

    api: str
    name: str
    kind: str  # `structure`, `list`, `map`, `string`, `boolean`, `integer`, …
    members: Mapping[str, str]  # of a structure, each with the name of its shape
    required: frozenset[str]
    item: str  # name of the shape of a list's items, or of a map's values
    key: str  # name of the shape of a map's keys
    enum: frozenset[str]
    pattern: str | None
    least: int
    longest: int | None

    def member(self, name: str) -> "Shape":
        return shape_of(self.api, self.members[name])

    @property
    def items(self) -> "Shape":
        return shape_of(self.api, self.item)


@cache
def service(name: str) -> Any:
    """The model of one API, as AWS publishes it. botocore has no types, so `Any` enters here."""
    return cast("Any", loaders).Loader().load_service_model(name, "service-2")


@cache
def shape_of(api: str, name: str) -> Shape:
    row = service(api)["shapes"][name]
    return Shape(
        api=api,
        name=name,
        kind=row["type"],
        members={member: value["shape"] for member, value in row.get("members", {}).items()},
        required=frozenset(row.get("required", ())),
        item=row.get("member", row.get("value", {})).get("shape", ""),
        key=row.get("key", {}).get("shape", ""),
        enum=frozenset(row.get("enum", ())),
        pattern=row.get("pattern"),
        least=int(row.get("min", 0)) if row["type"] == "string" else 0,
        longest=row.get("max") if row["type"] == "string" else None,
    )


def input_of(call: Call) -> Shape:
    return shape_of(call.service, service(call.service)["operations"][call.operation]["input"]["shape"])


def refusals(call: Call, request: Mapping[str, Any]) -> list[str]:
    """botocore's errors for a request: types, ranges, missing values."""
    api = cast("Any", model).ServiceModel(service(call.service), call.service)
    validation = (
        cast("Any", validate).ParamValidator().validate(request, api.operation_model(call.operation).input_shape)
    )
    return validation.generate_report().splitlines() if validation.has_errors() else []
