"""Objects that may exist in the cluster already, and that the stack takes over."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi

from gpu_tenancy.model.spec.adoption import adoptable

from .clouds.api import Api


def adopting(names: Sequence[str], api: Api) -> list[pulumi.ResourceTransformation]:
    """Transformations of a component with which the named objects below it are taken over if they exist.

    All other objects keep their provider, which refuses objects that exist already.
    """
    if not names:
        return []
    wanted, provider = frozenset(names), api.adopting()

    def adopt(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if _name(args.type_, args.props) not in wanted:
            return None
        options = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(provider=provider))
        return pulumi.ResourceTransformationResult(args.props, options)

    return [adopt]


def _name(type_: str, props: Mapping[str, Any]) -> str:
    """The name of a resource in `cluster.adopt`; empty for what is not an object of Kubernetes."""
    package, _, rest = type_.partition(":")
    api_version, _, kind = rest.rpartition(":")
    metadata = props.get("metadata") if package == "kubernetes" else None
    if not isinstance(metadata, Mapping):
        return ""
    known = cast("Mapping[str, Any]", metadata)
    return adoptable(api_version.removeprefix("core/"), kind, known.get("namespace") or "", known.get("name") or "")
