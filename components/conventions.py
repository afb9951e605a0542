"""API versions, annotations and kinds of objects that several components use, and their form on the wire."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final, cast

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pydantic.alias_generators import to_camel

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
"""API version of Kueue's objects; v1beta1 is deprecated."""
DO_NOT_AWAIT: Final = {"pulumi.com/skipAwait": "true"}
"""Annotation of workloads that can stay pending in a queue: a deployment does not wait until they run."""


def custom_resource(name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions) -> CustomResource:
    """An object of the model as a resource."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    return CustomResource(
        name, api_version=manifest["apiVersion"], kind=manifest["kind"], metadata=metadata, spec=spec, opts=opts
    )


def kueue_object(  # noqa: PLR0913 - what an object has
    name: str,
    kind: str,
    called: str,
    spec: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    *,
    annotations: dict[str, str] | None = None,
) -> CustomResource:
    """A cluster-scoped object of Kueue with the name `called`."""
    metadata: ObjectMetaArgsDict = {"name": called}
    if annotations:
        metadata["annotations"] = annotations
    return CustomResource(name, api_version=KUEUE, kind=kind, metadata=metadata, spec=spec, opts=opts)


def admission_check(
    name: str, check: str, controller: str, config_kind: str, opts: pulumi.ResourceOptions
) -> CustomResource:
    """The AdmissionCheck of a controller, with the config of its own kind and the same name."""
    parameters = {"apiGroup": KUEUE.partition("/")[0], "kind": config_kind, "name": check}
    return kueue_object(name, "AdmissionCheck", check, {"controllerName": controller, "parameters": parameters}, opts)


def fair_sharing(weight: float | None) -> dict[str, Any]:
    """The weight of a Cohort, ClusterQueue or LocalQueue, as part of its spec; empty for None."""
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


class PlainObject(pulumi.CustomResource):
    """An object of a kind that an operator defines, such as Kueue's WorkloadPriorityClass.

    Example:
        >>> PlainObject("low", "kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", {"metadata": {...}, "value": 1}, opts)
    """

    def __init__(
        self, name: str, api_version: str, kind: str, fields: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(
            f"kubernetes:{api_version}:{kind}",
            name,
            {"apiVersion": api_version, "kind": kind, **fields},
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=version("pulumi-kubernetes"))),
        )


_OWN_KEYS: Final = frozenset({"annotations", "labels", "limits", "match_labels", "node_selector", "requests"})
"""Fields whose value is a map with keys of the user's choice."""


def wire(piece: Any) -> Any:
    """Converts the snake_case keys of an SDK's `…ArgsDict` to the API's camelCase.

    Keys of the user's choice, such as label keys, are unchanged.
    """
    if isinstance(piece, Mapping):
        found = cast("Mapping[str, Any]", piece)
        return {_key(key): dict(value) if key in _OWN_KEYS else wire(value) for key, value in found.items()}
    if isinstance(piece, list):
        return [wire(item) for item in cast("list[Any]", piece)]
    return piece


def _key(key: str) -> str:
    return to_camel(key.removesuffix("_"))
