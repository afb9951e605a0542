"""Smallest stacks on EKS, and what they become."""

from collections.abc import Mapping
from typing import Any, Final

from builders import PROVIDED, Data, team
from components_builders import cluster as cluster_of

from gpu_tenancy.engine.recording import NO_ANSWERS, Registration

REGION: Final = "eu-central-1"
SUBNETS: Final = {f"{REGION}a": "subnet-0a1b2c3d4e5f60001", f"{REGION}b": "subnet-0a1b2c3d4e5f60002"}
DEPLOYER: Final = "arn:aws:iam::111122223333:role/deployer"
RESERVATION: Final = "cr-0a1b2c3d4e5f60718"
LIST: Final = "aws:autoscaling/getAmiIds:getAmiIds"
"""Pulumi's function that lists Auto Scaling groups."""
READ: Final = "aws:autoscaling/getGroup:getGroup"
"""Pulumi's function that reads one of them."""


def section(**more: Any) -> Data:
    """A cluster that exists."""
    here: Data = {"cloud": "aws", "name": "ml", "region": REGION, "subnets": SUBNETS}
    return here | more


def creation(section_: Data | None = None, **more: Any) -> Data:
    """A cluster to be made."""
    smallest: Data = {"version": "1.35", "system": {"machine": "m7i.4xlarge"}, "admins": [DEPLOYER]}
    return section(**(section_ or {}), create=smallest | more)


def machine_pool(machine: str = "p5.48xlarge", nodes: int | Data = 2, **more: Any) -> Data:
    """Two nodes of eight H100s."""
    return {"machine": machine, "nodes": nodes, **more}


def stack(cluster: Data | None = None, environment: str = "dev", **pools: Data) -> Data:
    """Nodes without GPUs, sixteen H100s, and a team that is guaranteed nothing."""
    own = {"cpu": machine_pool("m7i.8xlarge", 3), "gpu": machine_pool()}
    return {
        "environment": environment,
        "cluster": {**PROVIDED, **(cluster or section())},
        "pools": own | pools,
        "teams": {"a": team(gpus={"gpu": {"guaranteed": 0, "limit": 1}})},
    }


def resources(sections: Data, live: Mapping[str, int] | None = None) -> list[Registration]:
    """All that the cluster of a stack registers.

    Args:
        sections: of the stack.
        live: `minSize`, `maxSize` and `desiredCapacity` of the node groups in the cloud; None before they exist.
    """
    group: Data = {LIST: {"names": ["eks-gpu-1"], "arns": []}, READ: live}
    answers = group if live else NO_ANSWERS
    return list(cluster_of(sections, answers).rendered.registrations)


def one(made: list[Registration], token: str, name: str = "") -> Registration:
    """The one resource of a type, and of a name where there are several."""
    (registration,) = [resource for resource in made if resource.type == token and name in {"", resource.name}]
    return registration
