"""Google service accounts, which a CI job impersonates with its own token.

https://cloud.google.com/iam/docs/workload-identity-federation-with-deployment-pipelines
"""

from typing import Final

import pulumi
from pulumi_gcp import projects, serviceaccount

from gpu_tenancy.model.plan.service_accounts import ServiceAccountPlan
from gpu_tenancy.model.spec.clouds.gcp import VIEWER, GcpCluster

FEDERATED: Final = "roles/iam.workloadIdentityUser"
"""The role with which a federated identity impersonates a service account."""


class CiIdentity(pulumi.ComponentResource):
    """A Google service account without keys, and the one subject that may impersonate it.

    The workload identity pool of the CI system is not created here, because a project has one for all stacks. In a
    created cluster's project it can read clusters' addresses; for an existing cluster, the report has the command.
    """

    def __init__(
        self, name: str, section: GcpCluster, account: ServiceAccountPlan, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:RobotAccount", name, {}, opts)
        within = pulumi.ResourceOptions(parent=self)
        self.account = serviceaccount.Account(
            f"{name}-account",
            account_id=section.identity_name(account.team, account.name),
            display_name=f"Robot {account.name} of team {account.team} in GKE cluster {section.name}"[:100],
            project=section.project,
            opts=within,
        )
        serviceaccount.IAMMember(
            f"{name}-subject",
            service_account_id=self.account.name,
            role=FEDERATED,
            member=section.federated(account.subject or ""),
            opts=within,
        )
        if section.create:
            projects.IAMMember(
                f"{name}-login", project=section.project, role=VIEWER, member=self.account.member, opts=within
            )
        self.register_outputs({})
