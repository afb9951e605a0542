"""Clouds of tests: recorded answers to reads, each checked against the cloud's own description."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import botocore
import botocore.session as botocore_session
import botocore.validate as botocore_validate
import yaml
from components_builders import cluster

from gpu_tenancy.doctor.checks import cloud_rows
from gpu_tenancy.doctor.results import Row
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source

Data = dict[str, Any]
BOTOCORE: Final[Any] = botocore
SESSION: Final[Any] = botocore_session
VALIDATE: Final[Any] = botocore_validate  # without types, since the package has none
DESCRIPTIONS: Final[Data] = yaml.safe_load((Path(__file__).parent / "descriptions.yaml").read_text(encoding="utf-8"))
READS: Final = re.compile(r"(Get|List|Describe|Simulate)[A-Z]\w*")  # names of operations of AWS that change nothing


@dataclass
class AwsAccount:
    """An account of AWS: answers by operation, such as `DescribeSubnets`; a text is an error of the CLI."""

    answers: Mapping[str, Data | str | Callable[[Data], Data]]
    asked: list[tuple[str, Data]] = field(default_factory=list[tuple[str, Data]])

    def __call__(self, arguments: tuple[str, ...]) -> "CompletedProcess[str]":
        program, service, command, *options = arguments
        assert program == "aws"
        assert options[-4:] == ["--region", "us-west-2", "--output", "json"]
        operation = operation_of(service, command)
        given: Data = json.loads(options[1]) if options[0] == "--cli-input-json" else {}
        if operation.input_shape:
            report = VALIDATE.ParamValidator().validate(given, operation.input_shape)
            assert not report.has_errors(), report.generate_report()
        self.asked.append((operation.name, given))
        answer = self.answers[operation.name]
        if isinstance(answer, str):
            return CompletedProcess(arguments, 254, "", answer)
        if callable(answer):
            answer = answer(given)
        assert operation.output_shape is not None
        described(answer, operation.output_shape)
        return CompletedProcess(arguments, 0, json.dumps(answer), "")


@cache
def operation_of(service: str, command: str) -> Any:
    """The operation of a command of the AWS CLI, in the models of botocore."""
    model = SESSION.get_session().get_service_model(service)
    (name,) = [name for name in model.operation_names if BOTOCORE.xform_name(name, "-") == command]
    return model.operation_model(name)


def described(value: Any, shape: Any) -> None:
    """Fails if botocore's model does not have a part of an answer."""
    match shape.type_name:
        case "structure":
            assert isinstance(value, dict), shape.name
            for key in value:  # pyright: ignore[reportUnknownVariableType]
                assert key in shape.members, f"{shape.name} has no {key}"
                described(value[key], shape.members[key])
        case "list":
            assert isinstance(value, list), shape.name
            for part in value:  # pyright: ignore[reportUnknownVariableType]
                described(part, shape.member)
        case "map":
            for part in value.values():
                described(part, shape.value)
        case _:
            kinds = {"string": str, "integer": int, "long": int, "double": float, "boolean": bool}
            assert isinstance(value, kinds.get(shape.type_name, object)), shape.name


@dataclass
class GoogleProject:
    """A project of Google Cloud: answers by method, such as `compute.regions.get`; a number is an HTTP status."""

    answers: Mapping[str, Any]
    asked: list[str] = field(default_factory=list[str])

    def __call__(self, method: str, url: str, token: str, body: bytes | None) -> tuple[int, str]:
        assert token == "token-of-gcloud"  # noqa: S105 - what the fake program printed
        api, name = self._method(method, url)
        self.asked.append(name)
        rights: list[str] = parse_qs(urlsplit(url).query).get("permissions", [])
        if body is not None:
            assert name.endswith(".testIamPermissions")
            conforms(json.loads(body), "TestIamPermissionsRequest", api["schemas"])
            rights = json.loads(body)["permissions"]
        answer = self.answers[name]
        if callable(answer):
            answer = answer(url, rights)
        if isinstance(answer, int):
            return answer, json.dumps({"error": {"code": answer, "message": f"{name} is forbidden"}})
        conforms(answer, api["methods"][name]["answer"], api["schemas"])
        return 200, json.dumps(answer)

    def _method(self, method: str, url: str) -> tuple[Data, str]:
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        for api in DESCRIPTIONS["google"].values():
            for name, row in api["methods"].items():
                template = re.sub(r"\\\{\w+\\\}", "[^/:]+", re.escape(row["path"]))
                if re.fullmatch(template, address) and row["method"] == method:
                    assert set(parse_qs(parts.query)) <= set(row["query"]), url
                    return api, name
        raise AssertionError(f"{method} {url} is no described method")

    def gcloud(self, arguments: tuple[str, ...]) -> "CompletedProcess[str]":
        """The program gcloud, which only prints a token."""
        assert arguments == ("gcloud", "auth", "print-access-token")
        return CompletedProcess(arguments, 0, "token-of-gcloud\n", "")


def conforms(value: Any, kind: Any, schemas: Data) -> None:
    """Fails if a discovery document does not have a part of an answer."""
    if isinstance(kind, list):
        assert isinstance(value, list)
        for part in cast("list[Any]", value):
            conforms(part, cast("list[Any]", kind)[0], schemas)
    elif isinstance(kind, dict):
        for part in value.values():
            conforms(part, cast("Data", kind)["*"], schemas)
    elif kind in schemas:
        for key, part in value.items():
            assert key in schemas[kind], f"{kind} has no {key}"
            conforms(part, schemas[kind][key], schemas)
    else:  # 64-bit integers are texts in JSON: https://cloud.google.com/docs/discovery/type-format
        kinds: dict[str, Any] = {"string": str, "int64": str, "int32": int, "double": (int, float)}
        assert isinstance(value, kinds.get(kind, object)), (kind, value)


# Lists of Azure by the end of their path, with the model of an item.
AZURE_MODELS: Final[list[tuple[str, str]]] = [
    ("Microsoft.Compute/skus", "ResourceSku"),
    ("Microsoft.Compute/locations/[^/]+/usages", "Usage"),
    (r"virtualNetworks/[^/]+/usages", "VirtualNetworkUsage"),
    ("Microsoft.Authorization/permissions", "Permission"),
]


@dataclass
class AzureSubscription:
    """A subscription of Azure: answers by the end of the path; a text is an error of the CLI."""

    answers: Mapping[str, Any]
    asked: list[str] = field(default_factory=list[str])

    def __call__(self, arguments: tuple[str, ...]) -> "CompletedProcess[str]":
        assert arguments[:5] == ("az", "rest", "--method", "get", "--url")
        parts = urlsplit(arguments[5])
        assert (parts.scheme, parts.netloc) == ("https", "management.azure.com")
        assert "api-version" in parse_qs(parts.query)
        self.asked.append(parts.path)
        (answer,) = [answer for end, answer in self.answers.items() if parts.path.endswith(end)]
        if isinstance(answer, str):
            return CompletedProcess(arguments, 1, "", answer)
        for pattern, model in AZURE_MODELS:
            if re.search(f"{pattern}$", parts.path):
                for item in answer["value"]:
                    of_model(item, model)
        return CompletedProcess(arguments, 0, json.dumps(answer), "")


def of_model(item: Data, model: str) -> None:
    """Fails if Microsoft's model does not have a part of an item."""
    models = {name: fields for package in DESCRIPTIONS["azure"].values() for name, fields in package.items()}
    for key, value in item.items():
        assert key in models[model], f"{model} has no {key}"
        inner = str(models[model][key]).removeprefix("list of ")
        if inner in models:
            parts: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
            for part in parts:
                of_model(part, inner)


def rows_of(sections: Data, program: Any, send: Any = None) -> list[Row]:
    stack, resources = load(Source(sections)), cluster(sections).rendered.registrations
    return list(cloud_rows(stack, resources, program, send) if send else cloud_rows(stack, resources, program))


def row(rows: list[Row], check: str, subject: str) -> Row:
    (found,) = [row for row in rows if row.check == check and subject in row.subject]
    return found
