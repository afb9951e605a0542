"""What a preflight asks a cloud about, and what objects need besides the API server: two tables."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows


class AwsQuota(Row):
    """A quota of EC2 in vCPUs, with its code and name in Service Quotas, for instances that are bought in one way.

    Attributes:
        families: prefixes of instance types, such as `g` or `p5`.
    """

    code: Annotated[str, Field(pattern=r"^L-[0-9A-F]{8}$")]
    name: str
    capacity: Literal["on-demand", "spot"]
    families: list[str]

    def is_of_generation(self, family: str) -> bool:
        """Whether it is for a generation such as `p5`, and a family such as `p5en` is of it."""
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
"""What a stack may have that needs further rights: a cluster to create, its network, people who log in, identities of
service accounts, identities of teams with datasets, buckets to create, identities that read secrets, and these in a
cluster to create, and file systems for claims of teams."""


class Rights(Fact):
    """The rights that a deployment uses: for node pools in any cluster, and further ones that only some stacks need."""

    rights: list[str]
    further: dict[Part, list[str]]

    def needed(self, parts: Collection[Part] = ()) -> list[str]:
        """The rights of a stack with some parts, each once."""
        further = (right for part, rights in self.further.items() if part in parts for right in rights)
        return list(dict.fromkeys([*self.rights, *further]))


class Aws(Rights):
    """What is asked of AWS."""

    quotas: list[AwsQuota]

    def quota_of(self, instance_type: str, *, spot: bool) -> AwsQuota | None:
        """The quota that an instance type such as `p5.48xlarge` counts against; None if it is not in the table."""
        family = instance_type.partition(".")[0]
        letters = re.sub(r"\d.*", "", family)
        candidates = [quota for quota in self.quotas if (quota.capacity == "spot") == spot]
        exact = [quota for quota in candidates if quota.is_of_generation(family)]
        return next(iter(exact or [quota for quota in candidates if letters in quota.families]), None)


class Gcp(Rights):
    """What is asked of Google Cloud.

    Attributes:
        gpus: quota metric of a region, by the beginning of machine types.
        pod_addresses: of the pods' range, for each node.
        services: APIs that must be enabled, of any stack.
        services_of_create: of a stack that creates the cluster.
        services_of_service_accounts: with which CI jobs log in as service accounts.
        services_of_storage: of shared storage, by the class that claims use.
        on_bucket, on_folder, on_secret: rights on an existing bucket, managed folder or secret that a team gets a right
            on.
    """

    gpus: dict[str, str]
    pod_addresses: int
    services: list[str]
    services_of_create: list[str]
    services_of_service_accounts: list[str]
    service_of_secrets: str
    services_of_storage: dict[str, list[str]]
    on_bucket: list[str]
    on_folder: list[str]
    on_secret: list[str]

    def metric_of(self, machine_type: str) -> str | None:
        """The quota metric of a machine type's GPUs; None if it is not in the table."""
        return next((metric for begin, metric in self.gpus.items() if machine_type.startswith(f"{begin}-")), None)


class Azure(Rights):
    """What is asked of Azure: resource providers and features that must be registered.

    Attributes:
        on_scope: rights on an existing storage account or vault that a team gets a right on.
    """

    providers: list[str]
    providers_of_buckets: list[str]
    on_scope: list[str]
    features: list[str]


class Preflight(Row):
    """The whole table."""

    aws: Aws
    gcp: Gcp
    azure: Azure


@cache
def preflight() -> Preflight:
    """The table."""
    return read_rows("preflight", Preflight)


class Provider(Row):
    """A Pulumi resource of this program: its name for people (`by`), its type, and texts that its inputs contain."""

    by: str
    type: str
    inputs: tuple[str, ...]


class Need(Fact):
    """Something that objects need to work.

    Attributes:
        kinds: rendered kinds that need it.
        of: who needs it, in the plural.
        without: what happens without a provider.
        means: what provides it in any cluster.
        made: by cloud, what provides it in a cluster that this program creates.
        cloud: by cloud, what provides it in every cluster of the cloud's Kubernetes service.
    """

    kinds: tuple[str, ...]
    of: str = Field(alias="for")
    without: str
    means: str
    made: Mapping[str, Provider] = {}
    cloud: Mapping[str, str] = {}


@cache
def needs() -> Mapping[str, Need]:
    """The needs by name; the names are the values of `cluster.provides`."""
    return read_rows("needs", dict[str, Need])
