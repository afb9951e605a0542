"""Managed identities of robots, as which a CI job logs in with its own token.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation-create-trust-user-assigned-managed-identity
"""

from typing import Final

import pulumi
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.managedidentity import FederatedIdentityCredential, UserAssignedIdentity

from gpu_tenancy.model.plan.robots import RobotPlan
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE

from .control_plane import role_definition
from .pools import PoolCluster

AUDIENCE: Final = "api://AzureADTokenExchange"
"""Audience of the tokens that Entra exchanges."""


class RobotIdentity(pulumi.ComponentResource):
    """The managed identity of a robot, and the one subject of the CI system that may log in as it.

    In a created cluster it can list the user credentials, which have no rights by themselves; for an existing cluster,
    the report has the command.

    Args:
        place: where it is created.
        robot: of a team.
        cluster: resource ID of the cluster, as its output, so that the role assignment depends on it.

    Attributes:
        object_id: its name as a user of the cluster.
    """

    def __init__(
        self,
        name: str,
        place: PoolCluster,
        robot: RobotPlan,
        cluster: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:RobotIdentity", name, {}, opts)
        within, section = pulumi.ResourceOptions(parent=self), place.section
        identity = UserAssignedIdentity(
            f"{name}-identity",
            resource_group_name=section.resource_group,
            resource_name_=section.identity_name(robot.team, robot.name),
            location=section.location,
            tags=place.tags,
            opts=within,
        )
        FederatedIdentityCredential(
            f"{name}-subject",
            resource_group_name=section.resource_group,
            resource_name_=identity.name,
            federated_identity_credential_resource_name="ci",
            issuer=section.identity_provider,
            subject=robot.subject,
            audiences=[AUDIENCE],
            opts=within,
        )
        if section.create:
            RoleAssignment(
                f"{name}-login",
                principal_id=identity.principal_id,
                principal_type=PrincipalType.SERVICE_PRINCIPAL,
                role_definition_id=role_definition(section.subscription, USER_ROLE),
                scope=cluster,
                opts=within,
            )
        self.object_id = identity.principal_id
        self.register_outputs({})
