"""Managed identities that read the secrets of teams in Azure Key Vault.

https://learn.microsoft.com/azure/aks/workload-identity-overview
"""

from typing import Final

import pulumi

from gpu_tenancy.model.plan.secrets import READER, SecretReader

from .identities import Principal, Right, account_token, federated, managed_identity, role_assignment
from .pools import PoolCluster

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
        identity = managed_identity(f"{name}-identity", section, section.reader_name(reader.team), place.tags, within)
        token = account_token(issuer, reader.team, READER)
        federated(f"{name}-account", section, identity, (READER, token), within)
        for store, names in reader.secrets:
            vault = f"/subscriptions/{section.subscription}/resourceGroups/{store.group}/providers/Microsoft.KeyVault"
            for secret in names:
                right = Right(SECRETS_USER, f"{vault}/vaults/{store.place}/secrets/{secret}")
                role_assignment(
                    f"{name}-{store.place}-{secret}", section, Principal(identity.principal_id), right, within
                )
        client, tenant = reader.annotations.values()
        self.names = {client: identity.client_id, tenant: identity.tenant_id}
        self.register_outputs({})
