"""Types of a stack's fields: closed, frozen sections, and constrained names and amounts."""

import datetime as dt
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function, no_info_before_validator_function

from gpu_tenancy.base import quantity
from gpu_tenancy.model.names import UNREAD

_T = TypeVar("_T")
LONGEST_TEXT: Final = 2**17
"""Characters of a value: the longest argument or variable of a process on Linux (`MAX_ARG_STRLEN` in execve(2))."""
MOST_OBJECTS: Final = 1_000_000
"""Nodes, GPUs, pods or objects of one kind; a cluster has at most 5,000 nodes and 300,000 containers:
https://kubernetes.io/docs/setup/best-practices/cluster-large/."""
MOST_MILLICORES: Final = 100_000_000 * 1000
MOST_BYTES: Final = 2**60
MOST_SECONDS: Final = 10 * 365 * 86_400  # ten years; a duration in the Kubernetes API has at most 2^31 seconds
MOST_PRICE: Final = 1_000_000  # per hour of one machine, in the currency of the price table


class Section(BaseModel):
    """A section of a stack. Closed (unknown keys are errors), frozen, keys in camelCase."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
        strict=True,
        str_max_length=LONGEST_TEXT,
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, which nothing changes: pydantic copies each default with a mapping in it, again for each stack."""
        return self

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        for rule, fix in self._conflicts():
            raise refuse(rule, fix)
        return self

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """Rule and fix of each contradiction between its keys; the first one is reported."""
        yield from ()


@dataclass(frozen=True)
class Shorthand:
    """Accepts one plain value in place of a section, as the value of these keys: `nodes: 4`."""

    plain: type[int] | type[str]
    keys: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: type[Section], handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._spelled_out, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "integer" if self.plain is int else "string"}, handler(schema)]}

    def _spelled_out(self, value: Any) -> Any:
        plain = isinstance(value, self.plain) and not isinstance(value, bool)
        return dict.fromkeys(self.keys, value) if plain else value


@dataclass(frozen=True)
class Matching:
    """Refuses texts that do not fully match a pattern; `schema` is the pattern in the JSON schema, empty for none."""

    pattern: re.Pattern[str]
    rule: str
    fix: str
    schema: str | None = None

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        pattern = f"^{self.pattern.pattern}$" if self.schema is None else self.schema
        return {"type": "string", "pattern": pattern} if pattern else handler(schema)

    def _checked(self, text: str) -> str:
        if not self.pattern.fullmatch(text):
            raise refuse(self.rule, self.fix)
        return text


def refuse(rule: str, fix: str) -> PydanticCustomError:
    """A validator's error: the broken rule and the fix."""
    # Pydantic formats the template, so texts that may contain braces are passed as its context.
    return PydanticCustomError("stack", "{rule}; {fix}", {"rule": rule, "fix": fix})


_LABEL_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_IMAGE: Final = re.compile(
    r"(?P<name>[a-z0-9._-]+(:\d+(?=/))?(/[a-z0-9._-]+)*)(?P<tag>:[\w][\w.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)

_RESERVED: Final = re.compile(
    r"owner|cost-center|environment|gpu-tier|app\.kubernetes\.io/managed-by"
    r"|(?!app\.kubernetes\.io/)([-a-z0-9.]+\.)?(kubernetes\.io|gpu-tenancy\.dev|volcano\.sh|fluid\.io)/.*"
    r"|([-a-z0-9.]+[.-])?k8s\.io/.*"
)
"""Keys that a team's namespace has from its stack, and those that guards, Kueue, Volcano, Fluid or Kubernetes read."""


def _own_key(key: str) -> str:
    if _RESERVED.fullmatch(key):
        rule = "is a key that the platform sets, or that guards, Kueue, Volcano, Fluid or Kubernetes read"
        raise refuse(rule, "set the team's key that it follows from, or use a domain of your own: example.com/NAME")
    return key


def _resource(text: str) -> str:
    domain, _, name = text.partition("/")
    if not name or not _LABEL_KEY.fullmatch(text) or domain.startswith(("requests.", "limits.")):
        fix = "use the DOMAIN/NAME that the device plugin advertises, such as amd.com/gpu"
        raise refuse("is not an extended resource", fix)
    return text


def _parsed(parse: Callable[[Any], _T], value: Any, rule: str, fix: str) -> _T:
    try:
        return parse(value)
    except (AttributeError, ValueError) as error:
        raise refuse(rule, fix) from error


def _cidr(text: str) -> str:
    fix = "use ADDRESS/PREFIX, such as 10.0.0.0/8 or 0.0.0.0/0"
    network = _parsed(partial(ip_network, strict=False), text, "is not a CIDR", fix)
    if "/" not in text:
        raise refuse("is not a CIDR", f"add the prefix length: {text}/{network.prefixlen} for one address")
    return text


def _port(text: str) -> str:
    if (found := re.search(r":(\d+)(/|$)", text)) and not 0 < int(found[1]) < 2**16:
        raise refuse(f"has port {found[1]}", "set a port from 1 to 65535")
    return text


def _image(text: str) -> str:
    if text == UNREAD:
        return text
    match = _IMAGE.fullmatch(text)
    if not match:
        raise refuse("is not an image name", "use REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST")
    _port(match["name"])
    if not match["digest"] and match["tag"] in {None, ":latest"}:
        rule = "has no fixed tag, so nodes may run different versions"
        raise refuse(rule, "add a tag other than 'latest', or a digest")
    return text


def _amount(parse: Callable[[Any], int], rule: str, fix: str, most: tuple[int, str], least: int = 0) -> BeforeValidator:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise refuse(rule, fix)
        amount = _parsed(parse, value, rule, fix)
        if 0 < amount < least and str(amount) == str(value):
            raise refuse("is an amount of bytes", f"write its unit: {value}Gi")
        if amount > most[0]:
            raise refuse(f"exceeds the maximum of {most[1]}", "lower it")
        return amount

    return BeforeValidator(read)


_CPU: Final = _amount(
    quantity.parse_cpu,
    "is not an amount of CPU",
    "set CPUs such as 4, 0.5 or 500m",
    (MOST_MILLICORES, f"{MOST_MILLICORES // 1000:,} CPUs"),
)
_BYTES: Final = _amount(
    quantity.parse_bytes,
    "is not an amount of memory or storage",
    "set bytes such as 512Mi, 64Gi or 2Ti",
    (MOST_BYTES, quantity.format_bytes(MOST_BYTES)),
    least=2**20,  # Fewer bytes lack their unit.
)


def _duration(value: Any) -> float:
    fix = "set a duration such as 100ms, 30s, 10m, 6h or 7d"
    text = value if isinstance(value, str) else ""
    seconds = _parsed(quantity.parse_duration, text, "is not a duration with a unit", fix)
    if seconds > MOST_SECONDS:
        raise refuse("exceeds the maximum of ten years", "lower it")
    return seconds


def _whole(length: int, unit: str) -> BeforeValidator:
    def read(value: Any) -> int:
        units, rest = divmod(_duration(value), length)
        if rest:
            near = [quantity.format_duration(number * length) for number in (units, units + 1) if number]
            raise refuse(f"is not a whole number of {unit}", f"set {' or '.join(near)}")
        return int(units) * length

    return BeforeValidator(read)


def _rate(value: Any) -> int:
    fix = "set a number of requests per second, such as 10000/s or 0.5/s"
    thousandths = _parsed(quantity.parse_rate, value if isinstance(value, str) else "", "is not a rate", fix)
    if not thousandths:
        raise refuse("is no request at all", "set a rate above 0")
    return thousandths


def _date(value: Any) -> dt.date:
    """YAML reads a date without quotes as a date, and Pulumi then writes it with a time."""
    if isinstance(value, dt.date):
        return value.date() if isinstance(value, dt.datetime) else value
    fix = "set YEAR-MONTH-DAY, such as 2026-12-24"
    return _parsed(lambda text: dt.date.fromisoformat(text.removesuffix("T00:00:00Z")), value, "is not a date", fix)


PORT: Final = AfterValidator(_port)
"""Refuses a URL with a port that does not exist."""

OFF: Final = BeforeValidator(lambda value: "off" if value is False else value)
"""Accepts an unquoted `off`: YAML 1.1 reads it as false, YAML 1.2 as a string."""


def _amounts(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "number"], "pattern": pattern})


# Defaults in the schema, as a stack has them.
_written: Final = partial(PlainSerializer, when_used="json")
_SIZE: Final = _written(lambda size: quantity.format_bytes(size) if size else 0)
_CPUS: Final = _written(lambda cpu: cpu / 1000 if cpu % 1000 else cpu // 1000)

_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"

_NAME: Final = Matching(
    re.compile(_LABEL),
    "is not a valid Kubernetes name",
    "use at most 63 lowercase letters, digits and '-'; start and end with a letter or digit",
)
Name: TypeAlias = Annotated[str, _NAME]
"""A name of a Kubernetes object: a DNS label."""

_DOTTED_NAME: Final = Matching(
    re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"),
    "is not a valid Kubernetes name",
    "use at most 253 lowercase letters, digits, '-' and '.'; start and end with a letter or digit",
)
DottedName: TypeAlias = Annotated[str, _DOTTED_NAME]
"""A name of a Kubernetes object that is a DNS subdomain, such as `org.vision`."""

_WORKLOAD_NAME: Final = Matching(
    re.compile(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?"),
    "is not a valid workload name: a Service and the pods of a job get this name",
    "use at most 50 lowercase letters, digits and '-'; start with a letter",
)
WorkloadName: TypeAlias = Annotated[str, _WORKLOAD_NAME]
"""A valid name for a Service (starts with a letter) and for a job's pods (leaves room for suffixes)."""

ResourceName: TypeAlias = Annotated[str, AfterValidator(_resource)]  # with a domain

Cidr: TypeAlias = Annotated[str, AfterValidator(_cidr)]

_HOST: Final = Matching(
    re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})+"),
    "is not a host",
    "use a DNS name in lowercase, such as chat.example.com, or *.example.com for all names below example.com",
)
Host: TypeAlias = Annotated[str, _HOST]
"""A DNS name, or all names below one."""

Weight: TypeAlias = Annotated[float, Field(gt=0, le=MOST_OBJECTS)]

_LABEL_VALUE: Final = Matching(
    re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"),
    "is not a valid label value",
    "use at most 63 letters, digits, '-', '_' and '.'; start and end with a letter or digit",
    schema="",
)
LabelValue: TypeAlias = Annotated[str, _LABEL_VALUE]
LabelKey: TypeAlias = Annotated[
    str,
    Matching(_LABEL_KEY, "is not a valid label key", "use NAME or DOMAIN/NAME, such as example.com/pool", schema=""),
]
OwnKey: TypeAlias = Annotated[LabelKey, AfterValidator(_own_key)]
"""Key of a label or annotation that nothing of the platform reads."""

Image: TypeAlias = Annotated[str, AfterValidator(_image)]
"""A container image with a fixed tag or a digest."""

Cpu: TypeAlias = Annotated[int, Field(ge=0, le=MOST_MILLICORES), _CPU, _amounts(quantity.CPU_PATTERN), _CPUS]
"""Millicores, written as CPUs: 4, 0.5, 500m."""

Bytes: TypeAlias = Annotated[int, Field(ge=0, le=MOST_BYTES), _BYTES, _amounts(quantity.BYTES_PATTERN), _SIZE]
"""Bytes, written as 512Mi, 64Gi, 2Ti."""

_WRITTEN: Final = _written(quantity.format_duration)
_FORM: Final = WithJsonSchema({"type": "string", "pattern": quantity.DURATION_PATTERN})

Duration: TypeAlias = Annotated[float, Field(ge=0, le=MOST_SECONDS), BeforeValidator(_duration), _FORM, _WRITTEN]
"""Seconds and parts of them, written with a unit: 100ms, 1.5s."""

Seconds: TypeAlias = Annotated[int, Field(ge=0, le=MOST_SECONDS), _whole(1, "seconds"), _FORM, _WRITTEN]
"""Whole seconds, as Kubernetes counts them, written with a unit: 30s, 10m, 6h, 7d."""

Hours: TypeAlias = Annotated[int, Field(ge=0, le=MOST_SECONDS), _whole(3600, "hours"), _FORM, _WRITTEN]
"""Seconds of whole hours: 6h, 7d."""

Rate: TypeAlias = Annotated[
    int,
    Field(ge=1, le=10**12),
    BeforeValidator(_rate),
    WithJsonSchema({"type": "string", "pattern": quantity.RATE_PATTERN}),
]
"""Thousandths of requests per second, written as 220/s."""

Date: TypeAlias = Annotated[
    dt.date, BeforeValidator(_date), WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"})
]

Count: TypeAlias = Annotated[int, Field(ge=0, le=MOST_OBJECTS)]

Positive: TypeAlias = Annotated[int, Field(ge=1, le=MOST_OBJECTS)]
