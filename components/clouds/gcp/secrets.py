"""Rights of teams to read their secrets in Google Secret Manager.

https://cloud.google.com/secret-manager/docs/access-control
"""

from typing import Final

import pulumi
from pulumi_gcp import secretmanager

from gpu_tenancy.model.plan.secrets import READER, SecretReader
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster

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
