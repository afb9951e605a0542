"""Managed identities of teams, their rights on containers, and storage accounts that a stack creates."""

from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi_azure_native.authorization import RoleAssignment
from pulumi_azure_native.storage import (
    BlobContainer,
    BlobServiceProperties,
    DeleteRetentionPolicyArgsDict,
    Kind,
    MinimumTlsVersion,
    PublicAccess,
    SkuName,
    StorageAccount,
)

from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.identities import DataGrant, MadeBucket, TeamIdentity
from gpu_tenancy.model.spec.clouds.azure import BLOB_ROLES, blob_condition

from .identities import Principal, Right, account_token, federated, managed_identity, role_assignment
from .pools import PoolCluster

_DAYS_OF_DELETED: Final = 30
"""Days for which a created storage account keeps deleted containers and blobs."""


class TeamAccess(pulumi.ComponentResource):
    """The managed identity of a team's pods, and its rights on the containers of its datasets.

    The CSI driver for Blob storage mounts a volume with the token of the pod's ServiceAccount:
    https://github.com/kubernetes-sigs/blob-csi-driver/blob/master/docs/workload-identity-static-pv-mount.md. A folder
    of a container is a condition of the role assignment.

    Attributes:
        client_id: of the identity, by which volumes name it.
    """

    def __init__(
        self,
        name: str,
        place: PoolCluster,
        team: TeamIdentity,
        issuer: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:TeamAccess", name, {}, opts)
        self._section, self._within = place.section, pulumi.ResourceOptions(parent=self)
        identity = managed_identity(f"{name}-identity", place.section, team.name, place.tags, self._within)
        before: list[pulumi.Resource] = []
        for account in team.accounts:
            # Entra accepts one write of an identity's credentials at a time.
            after = pulumi.ResourceOptions(parent=self, depends_on=[*before])
            token = account_token(issuer, team.team, account)
            before.append(federated(f"{name}-{account}", place.section, identity, (account, token), after))
        for grant in team.datasets:
            self._grant(f"{name}-{grant.dataset}", grant, identity.principal_id)
        self.client_id = identity.client_id
        self.register_outputs({})

    def _grant(self, name: str, grant: DataGrant, principal: pulumi.Output[str]) -> RoleAssignment:
        condition = blob_condition(grant.folder.prefix, writes=grant.writes) if grant.folder.prefix else None
        container = self._section.container_id(grant.folder.account, grant.folder.bucket, grant.account)
        right = Right(BLOB_ROLES[grant.writes], container, condition)
        return role_assignment(name, self._section, Principal(principal), right, self._within)


class DatasetAccount(pulumi.ComponentResource):
    """A storage account for datasets with its containers, in the cluster's resource group.

    It has no public access and no keys, keeps versions of blobs, and deleted ones for 30 days; Azure encrypts it. It
    stays when the stack is destroyed, because its data does not belong to the stack; in production, Pulumi also refuses
    to delete it.
    """

    def __init__(
        self,
        name: str,
        place: PoolCluster,
        containers: Sequence[MadeBucket],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetAccount", name, {}, opts)
        section = place.section
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True, protect=place.protect)
        group = section.resource_group
        account = StorageAccount(
            f"{name}-account",
            resource_group_name=group,
            account_name=containers[0].bucket.account,
            location=section.location,
            kind=Kind.STORAGE_V2,
            sku={"name": SkuName.STANDARD_ZRS},
            allow_blob_public_access=False,
            allow_shared_key_access=False,
            enable_https_traffic_only=True,
            minimum_tls_version=MinimumTlsVersion.TLS1_2,
            tags=place.tags,
            opts=kept,
        )
        retention: DeleteRetentionPolicyArgsDict = {"enabled": True, "days": _DAYS_OF_DELETED}
        BlobServiceProperties(
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
            BlobContainer(
                f"{name}-{made.bucket.bucket}",
                resource_group_name=group,
                account_name=account.name,
                container_name=made.bucket.bucket,
                public_access=PublicAccess.NONE,
                opts=kept,
            )
            for made in containers
        ]
        self.register_outputs({"account": account.name})


def data_access(
    name: str, plan: ClusterPlan, place: PoolCluster, issuer: pulumi.Output[str], parent: pulumi.Resource
) -> dict[str, pulumi.Output[str]]:
    """The identities of all teams, after the storage accounts that the stack creates.

    Returns:
        Client IDs of the identities, by their names.
    """
    by_account: dict[str, list[MadeBucket]] = {}
    for made in plan.buckets:
        by_account.setdefault(made.bucket.account, []).append(made)
    within = pulumi.ResourceOptions(parent=parent)
    containers = [
        container
        for account, made in by_account.items()
        for container in DatasetAccount(f"{name}-account-{account}", place, made, within).containers
    ]
    after = pulumi.ResourceOptions(parent=parent, depends_on=containers)
    return {
        team.name: TeamAccess(f"{name}-team-{team.team}", place, team, issuer, after).client_id
        for team in plan.identities
    }
