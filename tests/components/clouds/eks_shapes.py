"""The shapes of AWS' APIs, by botocore's service models: the files from which AWS makes its SDKs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from botocore import loaders, model, validate
from eks_calls import Call


@dataclass(frozen=True)
class Shape:
    """A type of an API's, as its model describes it.

    Attributes:
        kind: `structure`, `list`, `map`, `string`, `boolean`, `integer`, …
        members: of a structure, each with the name of its shape.
        item: name of the shape of a list's items, or of a map's values.
        key: name of the shape of a map's keys.
    """

    api: str
    name: str
    kind: str
    members: Mapping[str, str]
    required: frozenset[str]
    item: str
    key: str
    enum: frozenset[str]
    pattern: str | None
    least: int
    longest: int | None

    def member(self, name: str) -> "Shape":
        """The shape of one member."""
        return shape_of(self.api, self.members[name])

    @property
    def items(self) -> "Shape":
        """The shape of a list's items, or of a map's values."""
        return shape_of(self.api, self.item)


@cache
def service(name: str) -> Any:
    """The model of one API, as AWS publishes it. botocore has no types, so `Any` enters here."""
    return cast("Any", loaders).Loader().load_service_model(name, "service-2")


@cache
def shape_of(api: str, name: str) -> Shape:
    """One shape of an API's model."""
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
    """The shape of a call's input."""
    return shape_of(call.service, service(call.service)["operations"][call.operation]["input"]["shape"])


def refusals(call: Call, request: Mapping[str, Any]) -> list[str]:
    """What botocore itself says of a request: types, ranges, what is missing."""
    api = cast("Any", model).ServiceModel(service(call.service), call.service)
    validation = (
        cast("Any", validate).ParamValidator().validate(request, api.operation_model(call.operation).input_shape)
    )
    return validation.generate_report().splitlines() if validation.has_errors() else []
