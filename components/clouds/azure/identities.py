"""Managed identities of CI jobs and readers of secrets, and the roles of these, of people and of nodes."""

# https://learn.microsoft.com/entra/workload-id/workload-identity-federation-create-trust-user-assigned-managed-identity,
# https://learn.microsoft.com/azure/aks/workload-identity-overview

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pulumi
from pulumi import ResourceOptions
from pulumi_azure_native import storage
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.containerservice.outputs import UserAssignedIdentityManagedClusterResponse
from pulumi_azure_native.managedidentity import FederatedIdentityCredential, UserAssignedIdentity

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.identities import MadeBucket, ServiceAccountPlan, TeamIdentity
from gpu_tenancy.model.plan.secrets import READER, SecretReader
from gpu_tenancy.model.spec.clouds.azure import BLOB_ROLES, USER_ROLE, AzureCluster, blob_condition
from gpu_tenancy.model.yaml import read_table

from ...objects import Component, Options
from .pools import PoolCluster

AUDIENCE: Final = "api://AzureADTokenExchange"  # audience of the tokens that Entra exchanges
ROLES: Final[Mapping[str, str]] = read_table(Path(__file__).with_suffix(".yaml"))  # IDs of built-in roles
Token: TypeAlias = tuple[pulumi.Input[str] | None, pulumi.Input[str] | None]  # issuer and subject of a token


class Principal(NamedTuple):
    """The object ID in Entra of a role's holder; a managed identity is a service principal."""

    id: pulumi.Input[str]
    kind: PrincipalType = PrincipalType.SERVICE_PRINCIPAL


class Right(NamedTuple):
    """A built-in role, the resource ID that it is assigned on, and its condition."""

    role: str
    scope: pulumi.Input[str]
    condition: str | None = None


def managed_identity(
    name: str, section: AzureCluster, identity: str, tags: dict[str, str], opts: ResourceOptions
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
    opts: ResourceOptions,
) -> FederatedIdentityCredential:
    """A credential of an identity: its name, and the token for logins as the identity."""
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
    """The token of a ServiceAccount of the cluster with this OIDC issuer."""
    return issuer, f"system:serviceaccount:{namespace}:{account}"


def role_assignment(
    name: str, section: AzureCluster, principal: Principal, right: Right, opts: ResourceOptions
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


class CiIdentity(Component):
    """The managed identity of a service account, and the one CI subject that may log in as it.

    In a created cluster it can list the user credentials, which have no rights by themselves; for an existing cluster,
    the report has the command. `object_id` is its name as a user of the cluster.
    """

    def __init__(
        self, name: str, place: PoolCluster, account: ServiceAccountPlan, cluster: pulumi.Output[str], opts: Options
    ) -> None:
        super().__init__("gpu-tenancy:clouds:RobotIdentity", name, opts)
        section = place.section
        identity_name = section.identity_name(account.team, account.name)
        identity = managed_identity(f"{name}-identity", section, identity_name, place.tags, self.own)
        token = (section.identity_provider, account.subject)
        federated(f"{name}-subject", section, identity, ("ci", token), self.own)
        if section.create:  # `cluster` is its resource ID, so the assignment depends on it.
            right = Right(USER_ROLE, cluster)
            role_assignment(f"{name}-login", section, Principal(identity.principal_id), right, self.own)
        self.object_id = identity.principal_id


SECRETS_USER: Final = "Key Vault Secrets User"
"""The role with which values of a secret are read: https://learn.microsoft.com/azure/key-vault/general/rbac-guide."""


class SecretReaderIdentity(Component):
    """The managed identity of a team that reads its secrets, by the tokens of the team's ServiceAccount.

    It may read only the team's secrets of a vault. Vaults, with Azure RBAC, and secrets are not created here. An
    existing cluster must have the OIDC issuer and workload identity enabled. `names` are its client ID and tenant, by
    their names in the plan.
    """

    def __init__(
        self, name: str, place: PoolCluster, reader: SecretReader, issuer: pulumi.Output[str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretReaderIdentity", name, opts)
        section = place.section
        identity = managed_identity(f"{name}-identity", section, section.reader_name(reader.team), place.tags, self.own)
        token = account_token(issuer, reader.team, READER)
        federated(f"{name}-account", section, identity, (READER, token), self.own)
        for store, names in reader.secrets:
            vault = f"/subscriptions/{section.subscription}/resourceGroups/{store.group}/providers/Microsoft.KeyVault"
            for secret in names:
                right = Right(SECRETS_USER, f"{vault}/vaults/{store.place}/secrets/{secret}")
                assigned = f"{name}-{store.place}-{secret}"
                role_assignment(assigned, section, Principal(identity.principal_id), right, self.own)
        client, tenant = reader.annotations.values()
        self.names = {client: identity.client_id, tenant: identity.tenant_id}


_KUBELET: Final = "kubeletidentity"  # identity with which nodes pull images; all node pools of a cluster share it


def kubelet_of(profile: Mapping[str, UserAssignedIdentityManagedClusterResponse] | None) -> str:
    """The object ID of the identity of a cluster's nodes; empty if it has none."""
    return (profile or {})[_KUBELET].object_id or "" if profile and _KUBELET in profile else ""


_DAYS_OF_DELETED: Final = 30  # days for which a created storage account keeps deleted containers and blobs


class TeamAccess(Component):
    """The managed identity of a team's pods, and its rights on the containers of its datasets.

    The CSI driver for Blob storage mounts a volume with the token of the pod's ServiceAccount:
    https://github.com/kubernetes-sigs/blob-csi-driver/blob/master/docs/workload-identity-static-pv-mount.md. A folder
    of a container is a condition of the role assignment. Volumes name `client_id`.
    """

    def __init__(
        self, name: str, place: PoolCluster, team: TeamIdentity, issuer: pulumi.Output[str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:TeamAccess", name, opts)
        section = place.section
        identity = managed_identity(f"{name}-identity", section, team.name, place.tags, self.own)
        before: list[pulumi.Resource] = []
        for account in team.accounts:
            # Entra accepts one write of an identity's credentials at a time.
            token = account_token(issuer, team.team, account)
            before.append(federated(f"{name}-{account}", section, identity, (account, token), self.after(*before)))
        for grant in team.datasets:
            folder = grant.folder
            condition = blob_condition(folder.prefix, writes=grant.writes) if folder.prefix else None
            container = section.container_id(folder.account, folder.bucket, grant.account)
            right = Right(BLOB_ROLES[grant.writes], container, condition)
            role_assignment(f"{name}-{grant.dataset}", section, Principal(identity.principal_id), right, self.own)
        self.client_id = identity.client_id


class DatasetAccount(Component):
    """A storage account for datasets with its containers, in the cluster's resource group. It is kept.

    It has no public access and no keys, keeps blob versions, and deleted blobs for 30 days; Azure encrypts it.
    """

    def __init__(self, name: str, place: PoolCluster, containers: Sequence[MadeBucket], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetAccount", name, opts)
        section = place.section
        kept = self.kept(protect=place.protect)
        group = section.resource_group
        account = storage.StorageAccount(
            f"{name}-account",
            resource_group_name=group,
            account_name=containers[0].bucket.account,
            location=section.location,
            kind=storage.Kind.STORAGE_V2,
            sku={"name": storage.SkuName.STANDARD_ZRS},
            allow_blob_public_access=False,
            allow_shared_key_access=False,
            enable_https_traffic_only=True,
            minimum_tls_version=storage.MinimumTlsVersion.TLS1_2,
            tags=place.tags,
            opts=kept,
        )
        retention: storage.DeleteRetentionPolicyArgsDict = {"enabled": True, "days": _DAYS_OF_DELETED}
        storage.BlobServiceProperties(
            f"{name}-versions",
            resource_group_name=group,
            account_name=account.name,
            blob_services_name="default",
            is_versioning_enabled=True,
            delete_retention_policy=retention,
            container_delete_retention_policy=retention,
            opts=kept,
        )
        self.containers: list[pulumi.Resource] = [
            storage.BlobContainer(
                f"{name}-{made.bucket.bucket}",
                resource_group_name=group,
                account_name=account.name,
                container_name=made.bucket.bucket,
                public_access=storage.PublicAccess.NONE,
                opts=kept,
            )
            for made in containers
        ]


def data_access(
    name: str, plan: ClusterPlan, place: PoolCluster, issuer: pulumi.Output[str], parent: pulumi.Resource
) -> dict[str, pulumi.Output[str]]:
    """The identities of all teams, after the storage accounts that the stack creates: client IDs by name."""
    by_account = grouped((made.bucket.account, made) for made in plan.buckets)
    within = ResourceOptions(parent=parent)
    containers = [
        container
        for account, made in by_account.items()
        for container in DatasetAccount(f"{name}-account-{account}", place, made, within).containers
    ]
    after = ResourceOptions(parent=parent, depends_on=containers)
    return {
        team.name: TeamAccess(f"{name}-team-{team.team}", place, team, issuer, after).client_id
        for team in plan.identities
    }
