"""What a preflight asks a cloud about, from `preflight.yaml`: quotas by machine family, and rights."""

import datetime as dt
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.reserved import Row
from gpu_tenancy.model.tables import read_table


class AwsQuota(Row):
    """A quota of EC2 in vCPUs.

    Attributes:
        code: quota code of Service Quotas.
        name: as Service Quotas has it.
        capacity: the way instances are bought.
        families: prefixes of instance types, such as `g` or `p5`.
    """

    code: Annotated[str, Field(pattern=r"^L-[0-9A-F]{8}$")]
    name: str
    capacity: Literal["on-demand", "spot"]
    families: list[str]


class Rights(Row):
    """The rights that a deployment uses.

    Attributes:
        rights: for node pools in any cluster.
        create: further ones, if the stack creates the cluster.
        people: further ones, if the stack lets people log in.
        robots: further ones, if the stack creates cloud identities of robots.
        source: URL of the facts.
        date: when it was read.
    """

    rights: list[str]
    create: list[str]
    people: list[str]
    robots: list[str]
    source: str
    date: dt.date

    def needed(self, *, creates: bool, people: bool = False, robots: bool = False) -> list[str]:
        """The rights of a stack, each once.

        Args:
            creates: whether it creates the cluster.
            people: whether it lets people log in.
            robots: whether it creates cloud identities of robots.
        """
        further = ((self.create, creates), (self.people, people), (self.robots, robots))
        return list(dict.fromkeys([*self.rights, *(right for rights, needed in further if needed for right in rights)]))


class Aws(Rights):
    """What is asked of AWS."""

    quotas: list[AwsQuota]

    def quota_of(self, instance_type: str, *, spot: bool) -> AwsQuota | None:
        """The quota that an instance type counts against; None if it is not in the table.

        Args:
            instance_type: such as `p5.48xlarge`.
            spot: whether it is a spot instance.
        """
        family = instance_type.partition(".")[0]
        letters = re.sub(r"\d.*", "", family)
        candidates = [quota for quota in self.quotas if (quota.capacity == "spot") == spot]
        exact = [quota for quota in candidates if any(_of_generation(name, family) for name in quota.families)]
        return next(iter(exact or [quota for quota in candidates if letters in quota.families]), None)


def _of_generation(name: str, family: str) -> bool:
    """Whether a family such as `p5en` is of the generation `p5`."""
    return name[-1].isdigit() and family.startswith(name) and not family[len(name) :][:1].isdigit()


class Gcp(Rights):
    """What is asked of Google Cloud.

    Attributes:
        gpus: quota metric of a region, by the beginning of machine types.
        pod_addresses: of the pods' range, for each node.
        services: APIs that must be enabled.
        services_of_create: further ones, if the stack creates the cluster.
        services_of_robots: those with which CI jobs log in as robots.
    """

    gpus: dict[str, str]
    pod_addresses: int
    services: list[str]
    services_of_create: list[str]
    services_of_robots: list[str]

    def metric_of(self, machine_type: str) -> str | None:
        """The quota metric of a machine type's GPUs; None if it is not in the table."""
        return next((metric for begin, metric in self.gpus.items() if machine_type.startswith(f"{begin}-")), None)


class Azure(Rights):
    """What is asked of Azure: resource providers and features that must be registered."""

    providers: list[str]
    features: list[str]


class Preflight(Row):
    """The whole table."""

    aws: Aws
    gcp: Gcp
    azure: Azure


@cache
def preflight() -> Preflight:
    """The table.

    Raises:
        pydantic.ValidationError: the table is malformed.
    """
    return Preflight.model_validate(read_table(Path(__file__).with_name("preflight.yaml")))
