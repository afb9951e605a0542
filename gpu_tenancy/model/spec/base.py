"""The types that a stack's fields are made of: closed, frozen sections and constrained names and amounts."""

import re
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from gpu_tenancy.model.quantity import parse_bytes, parse_cpu

UNREAD: Final = "unread-secret"
"""Stands for a text that only Pulumi can decrypt, where a stack is read without it."""


class Section(BaseModel):
    """A part of a stack. Closed (an unknown key is an error), frozen, keys in camelCase."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, use_attribute_docstrings=True, strict=True
    )


@dataclass(frozen=True)
class Shorthand:
    """Lets a section be written as one plain value that stands for some of its keys: `nodes: 4`."""

    plain: type[int] | type[str]
    keys: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: type[Section], handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._spelled_out, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer" if self.plain is int else "string"}, handler(schema)]}

    def _spelled_out(self, value: Any) -> Any:
        plain = isinstance(value, self.plain) and not isinstance(value, bool)
        return dict.fromkeys(self.keys, value) if plain else value


def refuse(rule: str, mend: str) -> PydanticCustomError:
    """The error of a validator of ours: what must hold, and what to write instead."""
    # The braces of a template are pydantic's, so the sentences go in as its context.
    return PydanticCustomError("stack", "{rule}; {mend}", {"rule": rule, "mend": mend})


_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_WORKLOAD_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_IMAGE: Final = re.compile(
    r"(?P<name>[a-z0-9._-]+(:\d+(?=/))?(/[a-z0-9._-]+)*)(?P<tag>:[\w][\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)


def _dns_label(text: str) -> str:
    if not _DNS_LABEL.fullmatch(text):
        raise refuse(
            "is no name that Kubernetes takes",
            "use small letters, digits and '-', at most 63, a letter or digit first and last",
        )
    return text


def _label_value(text: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise refuse("is no label value", "use letters, digits, '-', '_' and '.', at most 63")
    return text


def _label_key(text: str) -> str:
    if not _LABEL_KEY.fullmatch(text):
        raise refuse("is no label key", "write name or domain/name, such as example.com/pool")
    return text


def _resource(text: str) -> str:
    domain, _, name = text.partition("/")
    if not name or not _LABEL_KEY.fullmatch(text) or domain.startswith(("requests.", "limits.")):
        raise refuse("is no extended resource", "write domain/name as the device plugin does, such as amd.com/gpu")
    return text


def _workload_name(text: str) -> str:
    if not _WORKLOAD_NAME.fullmatch(text):
        raise refuse(
            "is no name that a Service and the pods of a job can carry",
            "use small letters, digits and '-', at most 50, a letter first",
        )
    return text


def _cidr(text: str) -> str:
    try:
        ip_network(text, strict=False)
    except ValueError as error:
        raise refuse("is no CIDR", "write for example 10.0.0.0/8 or 0.0.0.0/0") from error
    if "/" not in text:
        raise refuse("is no CIDR", f"write {text}/32 for one address")
    return text


def _image(text: str) -> str:
    if text == UNREAD:
        return text
    match = _IMAGE.fullmatch(text)
    if not match:
        raise refuse("is no image name", "write registry/name:tag or registry/name@sha256:…")
    if not match["digest"] and match["tag"] in {None, ":latest"}:
        raise refuse(
            "names no fixed version of the image, so two nodes may run two programs",
            "pin it: a tag that is not 'latest', or a digest",
        )
    return text


def _cpu(value: Any) -> int:
    return _amount(value, parse_cpu, "is no amount of cpu", "write cpus such as 4, 0.5 or 500m")


def _bytes(value: Any) -> int:
    return _amount(value, parse_bytes, "is no amount of memory or storage", "write bytes such as 512Mi, 64Gi or 2Ti")


def _amount(value: Any, parse: Any, rule: str, mend: str) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise refuse(rule, mend)
    try:
        return parse(value)
    except ValueError as error:
        raise refuse(rule, mend) from error


def _duration(value: Any) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise refuse("is no length of time with its unit", "write for example 100ms, 30s, 10m, 6h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


_QUANTITY_SCHEMA: Final = {"type": ["string", "number"], "pattern": r"^[0-9.]+(m|k|[MGTPE]|[KMGTPE]i)?$"}

Name: TypeAlias = Annotated[
    str, AfterValidator(_dns_label), WithJsonSchema({"type": "string", "pattern": f"^{_DNS_LABEL.pattern}$"})
]
"""A name of a Kubernetes object: a DNS label."""

WorkloadName: TypeAlias = Annotated[
    str, AfterValidator(_workload_name), WithJsonSchema({"type": "string", "pattern": f"^{_WORKLOAD_NAME.pattern}$"})
]
"""A name that a Service (a letter first) and a job's pods (room for their own suffixes) can carry."""

ResourceName: TypeAlias = Annotated[str, AfterValidator(_resource)]
"""An extended resource: it has a domain."""

Cidr: TypeAlias = Annotated[str, AfterValidator(_cidr)]

Weight: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]

LabelValue: TypeAlias = Annotated[str, AfterValidator(_label_value)]
LabelKey: TypeAlias = Annotated[str, AfterValidator(_label_key)]

Image: TypeAlias = Annotated[str, AfterValidator(_image)]
"""A container image with a fixed tag or a digest."""

Cpu: TypeAlias = Annotated[int, BeforeValidator(_cpu), WithJsonSchema(_QUANTITY_SCHEMA)]
"""Millicores, written as cpus: 4, 0.5, 500m."""

Bytes: TypeAlias = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(_QUANTITY_SCHEMA)]
"""Bytes, written as 512Mi, 64Gi, 2Ti."""

Seconds: TypeAlias = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": f"^{_DURATION.pattern}$"}),
]
"""Seconds, written with a unit: 100ms, 30s, 10m, 6h, 7d."""

Count: TypeAlias = Annotated[int, Field(ge=0)]
"""A whole number, 0 or more: GPUs, nodes and pods do not come in parts."""

Positive: TypeAlias = Annotated[int, Field(ge=1)]
