"""The Pulumi package schema of the components, from which Pulumi generates SDKs, made from the model of a stack."""

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.model.spec import NAMESPACE, Stack

from ..platform import PLATFORM

Schema: TypeAlias = dict[str, Any]

TENANCY: Final = f"{NAMESPACE}:index:Tenancy"  # type of the tenancy in programs of other languages

TENANCY_SECTIONS: Final = (
    "environment", "cluster", "pools", "machines", "priorities", "fairness", "cohorts", "teams", "datasets", "metrics",
    "operators", "guards", "idle", "images", "people", "multikueue", "production"
)  # fmt: skip
"""Sections that decide objects on the cluster; prices only matter for reports."""
TENANCY_CLUSTER: Final = ("provider", "version", "autoscaler", "provides")
"""Keys of an existing cluster that its Kubernetes provider does not know."""

_ANY: Final = {"$ref": "pulumi.json#/Any"}
_SUMMARY: Final = "GPU platform that ML teams share: queues with guarantees, namespaces, quotas, servers and jobs."
_PLATFORM_DOC: Final = """Everything that a stack can declare: cluster, node pools, operators, dashboards and tenancy.

An invalid input fails with every problem at once, each with its path, value, rule and fix."""
_TENANCY_DOC: Final = """Priority classes, queues, admission policies and teams on an existing cluster.

The cluster is that of the Kubernetes provider in the resource options; without one, it is the current context of your
kubeconfig. Clusters, node pools, operators and dashboards are not created; use `Platform` for them.

An invalid input fails with every problem at once, each with its path, value, rule and fix."""
_TENANCY_CLUSTER_DOC: Final = "The existing cluster. Its address and credentials belong to the Kubernetes provider."
OUTPUTS: Final[Schema] = {
    "environment": {"type": "string", "description": "Value of the label `environment` on all objects."},
    "namespaces": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Namespaces of the teams, in the order of the teams' names.",
    },
    "queues": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "Name of the ClusterQueue by namespace.",
    },
    "gpuOperatorValues": {
        "type": "object",
        "additionalProperties": _ANY,
        "description": "Helm values of the NVIDIA GPU Operator for the pools' drivers, if others install it.",
    },
}
"""Outputs of both components."""


def package_schema() -> Schema:
    """The package schema: two components, and a type for each section and each set of values of a stack.

    Defaults are in descriptions only: an SDK sends a default of the schema as if the user had set the key, and to the
    model a key that is set is different from one that is left out.

    Source: https://www.pulumi.com/docs/iac/extending-pulumi/schema/
    """
    model = Stack.model_json_schema(by_alias=True)
    del model["properties"]["split"], model["$defs"]["Split"]  # for the program that a Pulumi stack is of
    types: Schema = {}
    for name, section in model["$defs"].items():
        types[_token(name)] = _object(name, section, types)
    stack = _object("", model, types)
    inputs = stack["properties"]
    existing = model["$defs"]["ExistingCluster"]
    types[_token("TenancyCluster")] = {
        "type": "object",
        "description": _TENANCY_CLUSTER_DOC,
        "properties": {
            key: _property("TenancyCluster", key, existing["properties"][key], types) for key in TENANCY_CLUSTER
        },
        "required": [],
    }
    cluster = {"$ref": f"#/types/{_token('TenancyCluster')}", "description": _TENANCY_CLUSTER_DOC}
    return {
        "name": NAMESPACE,
        "displayName": "GPU tenancy",
        "version": version("gpu-tenancy"),
        "description": _SUMMARY,
        "keywords": ["category/infrastructure", "kind/component"],
        "resources": {
            PLATFORM: _component(_PLATFORM_DOC, inputs, stack["required"]),
            TENANCY: _component(
                _TENANCY_DOC, {key: inputs[key] for key in TENANCY_SECTIONS} | {"cluster": cluster}, stack["required"]
            ),
        },
        "types": types,
        "language": {language: {"respectSchemaVersion": True} for language in ("csharp", "go", "nodejs", "python")},
    }


def _component(description: str, inputs: Mapping[str, Schema], required: list[str]) -> Schema:
    return {
        "isComponent": True,
        "description": description,
        "inputProperties": dict(inputs),
        "requiredInputs": list(required),
        "properties": OUTPUTS,
        "required": [name for name in OUTPUTS if name != "gpuOperatorValues"],
    }


def _token(name: str) -> str:
    return f"{NAMESPACE}:index:{name}"


def _object(name: str, section: Schema, types: Schema) -> Schema:
    return {
        "type": "object",
        "description": section.get("description", ""),
        "properties": {key: _property(name, key, value, types) for key, value in section["properties"].items()},
        "required": section.get("required", []),
    }


def _property(name: str, key: str, value: Schema, types: Schema) -> Schema:
    written = _type(f"{name}{key[0].upper()}{key[1:]}", value, types)
    if "const" in value:
        written["const"] = value["const"]
    # A key can have its only description on a branch of its union.
    described = (branch["description"] for branch in _branches(value) if "description" in branch)
    description = value.get("description") or next(described, "")
    if (default := value.get("default")) is not None and isinstance(default, str | int | float) and default != "":
        description += f"\n\nDefault: `{json.dumps(default) if isinstance(default, bool) else default}`."
    return {**written, "description": description}


def _branches(value: Schema) -> Iterator[Schema]:
    """The alternatives of a value. `null` is no alternative: an input that is null counts as not set."""
    nested = value.get("anyOf") or value.get("oneOf")
    if nested:
        for branch in nested:
            yield from _branches(branch)
    elif isinstance(value.get("type"), list):
        yield from ({"type": kind} for kind in value["type"])
    elif value.get("type") != "null":
        yield value


def _type(name: str, value: Schema, types: Schema) -> Schema:
    written = [_single(name, branch, types) for branch in _branches(value)]
    distinct = [kind for at, kind in enumerate(written) if kind not in written[:at]]
    return dict(distinct[0]) if len(distinct) == 1 else {"oneOf": distinct}


def _single(name: str, value: Schema, types: Schema) -> Schema:
    if "$ref" in value:
        return {"$ref": f"#/types/{_token(value['$ref'].rpartition('/')[2])}"}
    if "enum" in value:
        options = [{"value": option} for option in value["enum"]]
        types[_token(name)] = {"type": value["type"], "description": value.get("description", ""), "enum": options}
        return {"$ref": f"#/types/{_token(name)}"}
    if value["type"] == "array":
        return {"type": "array", "items": _type(name, value["items"], types)}
    if value["type"] == "object":
        # Pulumi's maps have no rule for keys, so the model checks them.
        values = next(iter(value.get("patternProperties", {}).values()), value.get("additionalProperties"))
        schema = _type(name, cast("Schema", values), types) if isinstance(values, dict) else _ANY
        return {"type": "object", "additionalProperties": schema}
    return {"type": value["type"]}
