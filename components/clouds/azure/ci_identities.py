"""Managed identities as which a CI job logs in with its own token.

https://learn.microsoft.com/entra/workload-id/workload-identity-federation-create-trust-user-assigned-managed-identity
"""

import pulumi

from gpu_tenancy.model.plan.service_accounts import ServiceAccountPlan
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE

from .identities import Principal, Right, federated, managed_identity, role_assignment
from .pools import PoolCluster


class CiIdentity(pulumi.ComponentResource):
    """The managed identity of a service account, and the one subject of the CI system that may log in as it.

    In a created cluster it can list the user credentials, which have no rights by themselves; for an existing cluster,
    the report has the command.

    Args:
        place: where it is created.
        account: of a team.
        cluster: resource ID of the cluster, as its output, so that the role assignment depends on it.

    Attributes:
        object_id: its name as a user of the cluster.
    """

    def __init__(
        self,
        name: str,
        place: PoolCluster,
        account: ServiceAccountPlan,
        cluster: pulumi.Output[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("gpu-tenancy:clouds:RobotIdentity", name, {}, opts)
        within, section = pulumi.ResourceOptions(parent=self), place.section
        identity_name = section.identity_name(account.team, account.name)
        identity = managed_identity(f"{name}-identity", section, identity_name, place.tags, within)
        token = (section.identity_provider, account.subject)
        federated(f"{name}-subject", section, identity, ("ci", token), within)
        if section.create:
            role_assignment(
                f"{name}-login", section, Principal(identity.principal_id), Right(USER_ROLE, cluster), within
            )
        self.object_id = identity.principal_id
        self.register_outputs({})
