"""Import of cloud resources that exist already, instead of their creation."""

from collections.abc import Iterable, Mapping
from typing import Final

import pulumi

from gpu_tenancy.model.spec.adoption import imports

KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    # Its name is fixed, and another version of it restarts all nodes of its group.
    "aws:ec2/launchTemplate:LaunchTemplate": (
        "blockDeviceMappings", "capacityReservationSpecification", "instanceMarketOptions", "instanceType",
        "metadataOptions", "name", "networkInterfaces", "placement", "tagSpecifications", "tags", "tagsAll",
        "updateDefaultVersion", "userData",
    ),
    # Another role replaces the cluster.
    "aws:iam/role:Role": ("assumeRolePolicy", "description", "name", "path", "permissionsBoundary", "tags", "tagsAll"),
}  # fmt: skip
"""Inputs that an adopted resource keeps as it has them, by type: those that the program sets."""


def importing(names: Iterable[str]) -> list[pulumi.ResourceTransformation]:
    """Transformations of a cluster with which the named resources of the cloud are imported.

    Pulumi imports a resource before it changes what differs, and ignores the option once the state has the resource:
    https://www.pulumi.com/docs/iac/concepts/resources/options/import/. The resource is protected, so that a difference
    that would replace it is an error and not the end of its nodes.

    Args:
        names: `cluster.adopt` of the stack.
    """
    ids = imports(names)
    if not ids:
        return []

    def adopt(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if args.name not in ids or not isinstance(args.resource, pulumi.CustomResource) or args.opts.id is not None:
            return None
        own = pulumi.ResourceOptions(
            import_=ids[args.name], protect=True, ignore_changes=list(KEPT.get(args.type_, ()))
        )
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, own))

    return [adopt]
