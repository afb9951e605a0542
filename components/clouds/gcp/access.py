"""Kubeconfigs without credentials, identities of CI jobs, and rights on secrets and buckets of GKE clusters."""

import json
from collections.abc import Mapping
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_gcp import container, organizations, projects, secretmanager, serviceaccount, storage
from pulumi_gcp.container import outputs

from gpu_tenancy.model.kubeconfig import Server, gke_helper, of_helper
from gpu_tenancy.model.plan.cluster import ClusterPlan
from gpu_tenancy.model.plan.identities import MadeBucket, ServiceAccountPlan, TeamIdentity
from gpu_tenancy.model.plan.secrets import READER, SecretReader
from gpu_tenancy.model.spec.clouds.gcp import OBJECT_ROLES, VIEWER, GcpCluster

from ...objects import Component, Options
from .. import once_there


def authority(auth: outputs.ClusterMasterAuth) -> str:
    """The CA certificate of a cluster, in base64; empty until it is created."""
    return auth.cluster_ca_certificate or ""


def dns_name(config: outputs.ClusterControlPlaneEndpointsConfig) -> str:
    """The DNS name of a cluster's API server; empty until it is created."""
    return (config.dns_endpoint_config.endpoint if config.dns_endpoint_config else None) or ""


def kubeconfig(cluster: Mapping[str, str | None]) -> str:
    """A kubeconfig without credentials: Google's credential plugin gets a token for each use.

    `cluster` has its `name`, its API server's address without a scheme (`endpoint`) and, unless that is a DNS name, its
    CA certificate in base64 (`authority`).
    """
    server = Server(cluster["name"] or "", f"https://{cluster['endpoint']}", cluster["authority"])
    return json.dumps(of_helper(server, gke_helper()))


FEDERATED: Final = "roles/iam.workloadIdentityUser"
"""The role with which a federated identity impersonates a service account."""


class CiIdentity(Component):
    """A Google service account without keys, and the one subject that may impersonate it.

    The CI system's workload identity pool is not created here, because a project has one for all stacks. In a created
    cluster's project it can read clusters' addresses; for an existing cluster, the report has the command.
    """

    def __init__(self, name: str, section: GcpCluster, account: ServiceAccountPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:RobotAccount", name, opts)
        self.account = serviceaccount.Account(
            f"{name}-account",
            account_id=section.identity_name(account.team, account.name),
            display_name=f"Robot {account.name} of team {account.team} in GKE cluster {section.name}"[:100],
            project=section.project,
            opts=self.own,
        )
        serviceaccount.IAMMember(
            f"{name}-subject",
            service_account_id=self.account.name,
            role=FEDERATED,
            member=section.federated(account.subject or ""),
            opts=self.own,
        )
        if section.create:
            projects.IAMMember(
                f"{name}-login", project=section.project, role=VIEWER, member=self.account.member, opts=self.own
            )


ACCESSOR: Final = "roles/secretmanager.secretAccessor"  # the role with which values of a secret are read


class SecretRights(Component):
    """The right of a team's ServiceAccount to read each of its secrets, and no others; secrets are not created here.

    The ServiceAccount is a member of the policies itself, without a service account of Google Cloud.
    """

    def __init__(self, name: str, section: GcpCluster, reader: SecretReader, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:SecretRights", name, opts)
        for store, names in reader.secrets:
            for secret in names:
                secretmanager.SecretIamMember(
                    f"{name}-{store.place}-{secret}",
                    project=store.place,
                    secret_id=secret,
                    role=ACCESSOR,
                    member=section.account_member(reader.team, READER),
                    opts=self.own,
                )


_DAYS_OF_OLD: Final = 90  # days for which a created bucket keeps old versions of objects


class TeamRights(Component):
    """The rights of a team's ServiceAccounts on the folders of its datasets, by Workload Identity Federation for GKE.

    They are principals themselves, without a service account of Google. A folder is a managed folder, because a bucket
    role's condition cannot restrict listed names. Members are added to policies; other grants stay.
    """

    # https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity,
    # https://cloud.google.com/storage/docs/managed-folders

    def __init__(
        self, name: str, section: GcpCluster, team: TeamIdentity, number: pulumi.Output[str], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:TeamRights", name, opts)
        for account in team.accounts:
            member = pulumi.Output.format(section.principal("{0}", team.team, account), number)
            for grant in team.datasets:
                bucket, role = grant.folder.bucket, OBJECT_ROLES[grant.writes]
                right = f"{name}-{account}-{grant.dataset}"
                if grant.folder.prefix:
                    storage.ManagedFolderIamMember(
                        right,
                        bucket=bucket,
                        managed_folder=f"{grant.folder.prefix}/",
                        role=role,
                        member=member,
                        opts=self.own,
                    )
                else:
                    storage.BucketIAMMember(right, bucket=bucket, role=role, member=member, opts=self.own)


class DatasetBucket(Component):
    """A bucket for datasets in the cluster's region, with a managed folder for each folder dataset. It is kept.

    It has no public access and no access lists, and keeps old versions of objects for 90 days; Google encrypts it.
    """

    def __init__(
        self, name: str, plan: ClusterPlan, section: GcpCluster, made: MadeBucket, opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:DatasetBucket", name, opts)
        kept = self.kept(protect=plan.protect)
        bucket = storage.Bucket(
            f"{name}-bucket",
            name=made.bucket.bucket,
            project=section.project,
            location=section.region,
            public_access_prevention="enforced",
            uniform_bucket_level_access=True,
            versioning={"enabled": True},
            lifecycle_rules=[
                {
                    "action": {"type": "Delete"},
                    "condition": {"days_since_noncurrent_time": _DAYS_OF_OLD, "with_state": "ARCHIVED"},
                }
            ],
            labels=dict(plan.tags),
            opts=kept,
        )
        self.resources: list[pulumi.Resource] = [
            storage.ManagedFolder(
                f"{name}-{folder.prefix.replace('/', '.')}", bucket=bucket.name, name=f"{folder.prefix}/", opts=kept
            )
            for folder in made.folders
        ] or [bucket]


def data_access(
    name: str, plan: ClusterPlan, section: GcpCluster, cluster: container.Cluster, opts: ResourceOptions
) -> None:
    """The rights of all teams, after the buckets that the stack creates."""
    # The project's number, which is part of the names of its principals, is asked once the cluster exists.
    made: list[pulumi.Resource] = []
    for bucket in plan.buckets:
        made += DatasetBucket(f"{name}-bucket-{bucket.bucket.bucket}", plan, section, bucket, opts).resources
    if not plan.identities:
        return
    project = organizations.get_project_output(
        project_id=once_there(section.project, cluster.endpoint), opts=pulumi.InvokeOutputOptions(parent=opts.parent)
    )
    after = ResourceOptions.merge(opts, ResourceOptions(depends_on=made))
    for team in plan.identities:
        TeamRights(f"{name}-team-{team.team}", section, team, project.number, after)
