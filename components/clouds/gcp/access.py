"""Who reaches what on GKE: kubeconfigs without credentials, identities of CI jobs, rights on secrets."""

import json
from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi_gcp import projects, secretmanager, serviceaccount
from pulumi_gcp.container import outputs

from gpu_tenancy.model.kubeconfig import Server, gke_helper, of_helper
from gpu_tenancy.model.plan.identities import ServiceAccountPlan
from gpu_tenancy.model.plan.secrets import READER, SecretReader
from gpu_tenancy.model.spec.clouds.gcp import VIEWER, GcpCluster


def authority(auth: outputs.ClusterMasterAuth) -> str:
    """The CA certificate of a cluster, in base64; empty until it is created."""
    return auth.cluster_ca_certificate or ""


def dns_name(config: outputs.ClusterControlPlaneEndpointsConfig) -> str:
    """The DNS name of a cluster's API server; empty until it is created."""
    return (config.dns_endpoint_config.endpoint if config.dns_endpoint_config else None) or ""


def kubeconfig(cluster: Mapping[str, str | None]) -> str:
    """A kubeconfig without credentials: Google's credential plugin gets a token for each use.

    Args:
        cluster: its `name`, the address of its API server (`endpoint`) without a scheme, and its CA certificate in
            base64 (`authority`), which a DNS name does not need.
    """
    server = Server(cluster["name"] or "", f"https://{cluster['endpoint']}", cluster["authority"])
    return json.dumps(of_helper(server, gke_helper()))


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


ACCESSOR: Final = "roles/secretmanager.secretAccessor"
"""The role with which values of a secret are read."""


class SecretRights(pulumi.ComponentResource):
    """The right of a team's ServiceAccount to read each of its secrets, and no others.

    The ServiceAccount is a member of the policies itself, without a service account of Google Cloud. The secrets are
    not created here.
    """

    def __init__(
        self, name: str, section: GcpCluster, reader: SecretReader, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:SecretRights", name, {}, opts)
        for store, names in reader.secrets:
            for secret in names:
                secretmanager.SecretIamMember(
                    f"{name}-{store.place}-{secret}",
                    project=store.place,
                    secret_id=secret,
                    role=ACCESSOR,
                    member=section.account_member(reader.team, READER),
                    opts=pulumi.ResourceOptions(parent=self),
                )
        self.register_outputs({})
