"""Managed identities, the tokens that log in as them, and role assignments."""

from typing import Final, NamedTuple, TypeAlias

import pulumi
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.managedidentity import FederatedIdentityCredential, UserAssignedIdentity

from gpu_tenancy.model.spec.clouds.azure import BLOB_ROLES, USER_ROLE, AzureCluster

AUDIENCE: Final = "api://AzureADTokenExchange"
"""Audience of the tokens that Entra exchanges."""
ROLES: Final = {
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Key Vault Crypto User": "12338af0-0e69-4776-bea7-57ae8d297424",
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "Key Vault Secrets User": "4633458b-17de-408a-b874-0445c86b69e6",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
    USER_ROLE: "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
    BLOB_ROLES[False]: "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
    BLOB_ROLES[True]: "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
}
"""Ids of built-in roles: https://learn.microsoft.com/azure/role-based-access-control/built-in-roles."""
Token: TypeAlias = tuple[pulumi.Input[str] | None, pulumi.Input[str] | None]
"""Issuer and subject of a token."""


class Principal(NamedTuple):
    """Who has a role, by the object ID in Entra; a managed identity is a service principal."""

    id: pulumi.Input[str]
    kind: PrincipalType = PrincipalType.SERVICE_PRINCIPAL


class Right(NamedTuple):
    """A built-in role, the resource ID that it is assigned on, and the condition under which it gives its rights."""

    role: str
    scope: pulumi.Input[str]
    condition: str | None = None


def managed_identity(
    name: str, section: AzureCluster, identity: str, tags: dict[str, str], opts: pulumi.ResourceOptions
) -> UserAssignedIdentity:
    """A managed identity with the name `identity`, in the resource group of the cluster."""
    return UserAssignedIdentity(
        name,
        resource_group_name=section.resource_group,
        resource_name_=identity,
        location=section.location,
        tags=tags,
        opts=opts,
    )


def federated(
    name: str,
    section: AzureCluster,
    identity: UserAssignedIdentity,
    credential: tuple[str, Token],
    opts: pulumi.ResourceOptions,
) -> FederatedIdentityCredential:
    """A credential of an identity: its name, and the token with which somebody logs in as the identity."""
    credential_name, (issuer, subject) = credential
    return FederatedIdentityCredential(
        name,
        resource_group_name=section.resource_group,
        resource_name_=identity.name,
        federated_identity_credential_resource_name=credential_name,
        issuer=issuer,
        subject=subject,
        audiences=[AUDIENCE],
        opts=opts,
    )


def account_token(issuer: pulumi.Input[str], namespace: str, account: str) -> Token:
    """The token of a ServiceAccount of the cluster whose OIDC issuer it is."""
    return issuer, f"system:serviceaccount:{namespace}:{account}"


def role_assignment(
    name: str, section: AzureCluster, principal: Principal, right: Right, opts: pulumi.ResourceOptions
) -> RoleAssignment:
    """The assignment of a right to a principal."""
    definitions = f"/subscriptions/{section.subscription}/providers/Microsoft.Authorization/roleDefinitions"
    return RoleAssignment(
        name,
        principal_id=principal.id,
        principal_type=principal.kind,
        role_definition_id=f"{definitions}/{ROLES[right.role]}",
        scope=right.scope,
        condition=right.condition,
        condition_version="2.0" if right.condition else None,
        opts=opts,
    )
