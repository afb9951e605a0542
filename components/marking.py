"""The mark of a Pulumi stack on its objects in a cluster, by which they are found again whatever its state has."""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from gpu_tenancy.model.names import DEPLOYED_BY, deployed_by


def mark_objects(part: str | None) -> None:
    """Has each object of Kubernetes that the program registers carry the mark of its environment.

    Not under mocks, where nothing is deployed: manifests of a preview can go to another cluster by other ways.

    Args:
        part: of the environment that this Pulumi stack has; an object keeps its mark when it moves between the parts.
    """
    if isinstance(get_monitor(), MockMonitor):
        return
    value = deployed_by(pulumi.get_project(), pulumi.get_stack().removesuffix(f".{part}"))

    def mark(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        metadata = args.props.get("metadata") if args.type_.startswith("kubernetes:") else None
        if not isinstance(metadata, Mapping):
            return None
        known = cast("Mapping[str, Any]", metadata)
        annotations: dict[str, Any] = {**(known.get("annotations") or {}), DEPLOYED_BY: value}
        props: dict[str, Any] = {**args.props, "metadata": {**known, "annotations": annotations}}
        return pulumi.ResourceTransformationResult(props, args.opts)

    pulumi.runtime.register_stack_transformation(mark)
