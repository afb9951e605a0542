"""Facts for preflight checks of a cloud, and needs of objects besides the API server: two tables."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows


class AwsQuota(Row):
    """A quota of EC2 in vCPUs, with its code and name in Service Quotas; `families` are prefixes of instance types."""

    code: Annotated[str, Field(pattern=r"^L-[0-9A-F]{8}$")]
    name: str
    capacity: Literal["on-demand", "spot"]
    families: tuple[str, ...]

    def is_of_generation(self, family: str) -> bool:
        """Whether a family such as `p5en` belongs to the generation of this quota, such as `p5`."""
        names = (name for name in self.families if name[-1].isdigit() and family.startswith(name))
        return any(not family[len(name) :][:1].isdigit() for name in names)


Part: TypeAlias = Literal[
    "create",
    "network",
    "people",
    "serviceAccounts",
    "identities",
    "buckets",
    "secrets",
    "secretsOfCreate",
    "efs",
    "lustre",
]
"""Part of a stack that needs further rights; `people` are people who log in, `identities` are of teams with datasets,
`secrets` are of identities that read secrets, and `efs` and `lustre` are file systems for claims of teams."""


class Rights(Fact):
    """Rights of a deployment: for node pools in any cluster, and further rights by part of a stack."""

    rights: list[str]
    further: dict[Part, list[str]]

    def needed(self, parts: Collection[Part] = ()) -> list[str]:
        """The rights of a stack with some parts, each once."""
        further = (right for part, rights in self.further.items() if part in parts for right in rights)
        return list(dict.fromkeys([*self.rights, *further]))


class Aws(Rights):
    """Preflight facts of AWS."""

    quotas: list[AwsQuota]

    def quota_of(self, instance_type: str, *, spot: bool) -> AwsQuota | None:
        """The quota that an instance type such as `p5.48xlarge` counts against; None if it is not in the table."""
        family = instance_type.partition(".")[0]
        letters = re.sub(r"\d.*", "", family)
        candidates = [quota for quota in self.quotas if (quota.capacity == "spot") == spot]
        exact = [quota for quota in candidates if quota.is_of_generation(family)]
        return next(iter(exact or [quota for quota in candidates if letters in quota.families]), None)


class Gcp(Rights):
    """Preflight facts of Google Cloud."""

    gpus: dict[str, str]  # quota metric of a region, by the beginning of machine types
    pod_addresses: int  # number of addresses of the pods' range for each node
    services: list[str]  # APIs that every stack needs
    services_of_create: list[str]  # APIs for a stack that creates the cluster
    services_of_service_accounts: list[str]  # APIs with which CI jobs log in as service accounts
    service_of_secrets: str
    services_of_storage: dict[str, list[str]]  # APIs of shared storage, by class
    on_bucket: list[str]  # rights on an existing bucket to grant access to a team
    on_folder: list[str]  # the same on a managed folder
    on_secret: list[str]  # the same on a secret

    def metric_of(self, machine_type: str) -> str | None:
        """The quota metric of a machine type's GPUs; None if it is not in the table."""
        return next((metric for begin, metric in self.gpus.items() if machine_type.startswith(f"{begin}-")), None)


class Azure(Rights):
    """Preflight facts of Azure: resource providers and features that must be registered."""

    providers: list[str]
    providers_of_buckets: list[str]
    on_scope: list[str]  # rights on an existing storage account or vault, to grant access to a team
    features: list[str]


class Preflight(Row):
    """Preflight facts of all clouds."""

    aws: Aws
    gcp: Gcp
    azure: Azure


def preflight() -> Preflight:
    """The preflight table."""
    return read_rows("preflight", Preflight)


class Provider(Row):
    """A Pulumi resource of this program: its name for people (`by`), its type, and texts that its inputs contain."""

    by: str
    type: str
    inputs: tuple[str, ...]


class Need(Fact):
    """A need of objects besides the API server."""

    kinds: tuple[str, ...]  # rendered kinds that need it
    of: str = Field(alias="for")  # users of the need, in the plural
    without: str  # consequence of a missing provider
    means: str  # provider in any cluster
    made: Mapping[str, Provider] = {}  # by cloud, provider in a cluster that this program creates
    cloud: Mapping[str, str] = {}  # by cloud, provider in every cluster of the cloud's Kubernetes service


def needs() -> Mapping[str, Need]:
    """The needs by name; the names are the values of `cluster.provides`."""
    return read_rows("needs", dict[str, Need])
