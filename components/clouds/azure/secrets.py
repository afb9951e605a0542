"""Managed identities that read the secrets of teams in Azure Key Vault.

https://learn.microsoft.com/azure/aks/workload-identity-overview
"""

from typing import Final

import pulumi
from pulumi_azure_native.authorization import PrincipalType, RoleAssignment
from pulumi_azure_native.managedidentity import FederatedIdentityCredential, UserAssignedIdentity

from gpu_tenancy.model.plan.secrets import READER, SecretReader

from .control_plane import role_definition
from .pools import PoolCluster
from .robots import AUDIENCE

SECRETS_USER: Final = "Key Vault Secrets User"
"""The role with which values of a secret are read: https://learn.microsoft.com/azure/key-vault/general/rbac-guide."""


class SecretReaderIdentity(pulumi.ComponentResource):
    """The managed identity of a team that reads its secrets, by the tokens of the team's ServiceAccount.

    It may read each secret, and no others of the vault. Vaults must use Azure RBAC; neither they nor their secrets are
    created here. An existing cluster must have the OIDC issuer and workload identity enabled.

    Attributes:
        names: its client ID and tenant, by their names in the plan.
    """

    def __init__(
        self,
        name: str,
        place: PoolCluster,
        reader: SecretReader,
        issuer: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretReaderIdentity", name, {}, opts)
        within, section = pulumi.ResourceOptions(parent=self), place.section
        identity = UserAssignedIdentity(
            f"{name}-identity",
            resource_group_name=section.resource_group,
            resource_name_=section.reader_name(reader.team),
            location=section.location,
            tags=place.tags,
            opts=within,
        )
        FederatedIdentityCredential(
            f"{name}-account",
            resource_group_name=section.resource_group,
            resource_name_=identity.name,
            federated_identity_credential_resource_name=READER,
            issuer=issuer,
            subject=f"system:serviceaccount:{reader.team}:{READER}",
            audiences=[AUDIENCE],
            opts=within,
        )
        for store, names in reader.secrets:
            vault = f"/subscriptions/{section.subscription}/resourceGroups/{store.group}/providers/Microsoft.KeyVault"
            for secret in names:
                RoleAssignment(
                    f"{name}-{store.place}-{secret}",
                    principal_id=identity.principal_id,
                    principal_type=PrincipalType.SERVICE_PRINCIPAL,
                    role_definition_id=role_definition(section.subscription, SECRETS_USER),
                    scope=f"{vault}/vaults/{store.place}/secrets/{secret}",
                    opts=within,
                )
        client, tenant = reader.annotations.values()
        self.names = {client: identity.client_id, tenant: identity.tenant_id}
        self.register_outputs({})
