"""Facts for preflight checks of a cloud, and needs of objects besides the API server: two tables."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, Url, read_rows


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


class Rights(Fact):
    """Rights and services that resources need, by Pulumi type; a type that is only read has `.get` at its end."""

    types: Mapping[str, tuple[str, ...]]

    def needed(self, types: Iterable[str]) -> list[str]:
        """The needs of resources with these types, each once."""
        return list(dict.fromkeys(need for one in types for need in self.types.get(one, ())))


class Aws(Rights):
    """Preflight facts of AWS."""

    quotas: list[AwsQuota]
    no_control_plane: frozenset[str]  # IDs of zones

    def quota_of(self, instance_type: str, *, spot: bool) -> AwsQuota | None:
        """The quota that an instance type such as `p5.48xlarge` counts against; None if it is not in the table."""
        family = instance_type.partition(".")[0]
        letters = re.sub(r"\d.*", "", family)
        candidates = [quota for quota in self.quotas if (quota.capacity == "spot") == spot]
        exact = [quota for quota in candidates if quota.is_of_generation(family)]
        return next(iter(exact or [quota for quota in candidates if letters in quota.families]), None)


class Place(Row):
    """Something on which a resource grants rights; `{…}` are its inputs. `fix` is for one that does not exist."""

    name: str
    url: Url
    fix: str


class Gcp(Rights):
    """Preflight facts of Google Cloud."""

    gpus: dict[str, str]  # quota metric of a region, by the beginning of machine types
    cpus: dict[str, str]  # the same for CPUs
    disks: dict[str, str]  # quota metric of a region, by type of boot disk
    pod_addresses: int  # number of addresses of the pods' range for each node
    services_of_storage: dict[str, list[str]]  # APIs of shared storage, by class
    places: Mapping[str, Place]  # by type


class Azure(Rights):
    """Preflight facts of Azure."""

    features: Mapping[str, str]  # that must be registered, by type
    places: Mapping[str, Mapping[str, tuple[str, ...]]]  # rights by type, and by the input with a resource ID


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
