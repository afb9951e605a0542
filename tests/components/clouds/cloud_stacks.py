"""Small stacks on each cloud of which a test changes one thing, and the registrations of their clusters."""

from collections.abc import Mapping
from typing import Any, Final, cast

from aks_description import POOL
from builders import PROVIDED, Data, team
from components_builders import cluster

from gpu_tenancy.engine.recording import NO_ANSWERS, Registration

REGION: Final = "eu-central-1"
SUBNETS: Final = {f"{REGION}a": "subnet-0a1b2c3d4e5f60001", f"{REGION}b": "subnet-0a1b2c3d4e5f60002"}
DEPLOYER: Final = "arn:aws:iam::111122223333:role/deployer"
RESERVATION: Final = "cr-0a1b2c3d4e5f60718"
LIST: Final = "aws:autoscaling/getAmiIds:getAmiIds"  # Pulumi's function that lists Auto Scaling groups
READ: Final = "aws:autoscaling/getGroup:getGroup"  # Pulumi's function that reads one of them
SUBSCRIPTION: Final = "5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
GROUPS: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
SUBNET: Final = f"{GROUPS}/network/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"
VAULT: Final = f"{GROUPS}/keys/providers/Microsoft.KeyVault/vaults/ml"
RESERVED: Final = f"{GROUPS}/reserved/providers/Microsoft.Compute/capacityReservationGroups/a100"
DISKS: Final = f"{GROUPS}/keys/providers/Microsoft.Compute/diskEncryptionSets/ml"
A100: Final = "Standard_ND96amsr_A100_v4"


def sent(sections: Data, answers: Mapping[str, Mapping[str, Any]] = NO_ANSWERS) -> list[Registration]:
    """All registrations of a stack's cluster; functions of clouds answer by token."""
    return list(cluster(sections, answers).rendered.registrations)


def one(made: list[Registration], token: str, name: str = "") -> Registration:
    (registration,) = [resource for resource in made if resource.type == token and name in {"", resource.name}]
    return registration


def typed(made: list[Registration], token: str) -> list[Any]:
    return [cast("Any", resource) for resource in made if resource.type == token]


def with_team(sections: Data, **fields: Any) -> Data:
    """The stack with more keys of its team `a`."""
    return {**sections, "teams": {"a": {**sections["teams"]["a"], **fields}}}


# EKS


def eks_section(**more: Any) -> Data:
    """An existing cluster."""
    here: Data = {"cloud": "aws", "name": "ml", "region": REGION, "subnets": SUBNETS}
    return here | more


def eks_creation(section: Data | None = None, **more: Any) -> Data:
    """A cluster to create."""
    smallest: Data = {"version": "1.35", "system": {"machine": "m7i.4xlarge"}, "admins": [DEPLOYER]}
    return eks_section(**(section or {}), create=smallest | more)


def eks_pool(machine: str = "p5.48xlarge", nodes: int | Data = 2, **more: Any) -> Data:
    """Two nodes of eight H100s."""
    return {"machine": machine, "nodes": nodes, **more}


def eks_stack(cluster: Data | None = None, environment: str = "dev", **pools: Data) -> Data:
    """Nodes without GPUs, sixteen H100s, and a team without a guarantee."""
    own = {"cpu": eks_pool("m7i.8xlarge", 3), "gpu": eks_pool()}
    return {
        "environment": environment,
        "cluster": {**PROVIDED, **(cluster or eks_section())},
        "pools": own | pools,
        "teams": {"a": team(gpus={"gpu": {"guaranteed": 0, "limit": 1}})},
    }


# AKS


def aks_section(**more: Any) -> Data:
    """An existing cluster."""
    here: Data = {
        "cloud": "azure",
        "name": "ml",
        "subscription": SUBSCRIPTION,
        "resourceGroup": "ml-group",
        "location": "eastus",
        "subnet": SUBNET,
    }
    return here | more


def aks_creation(**more: Any) -> Data:
    """A cluster to create."""
    here: Data = {
        "version": "1.35",
        "system": {"machine": "Standard_D16s_v5"},
        "secretsKey": "https://ml.vault.azure.net/keys/secrets/0123456789abcdef0123456789abcdef",
        "vault": VAULT,
        "logs": f"{GROUPS}/logs/providers/Microsoft.OperationalInsights/workspaces/ml",
        "tenant": "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d",
        "admins": ["9f8e7d6c-5b4a-4f3e-8d2c-1b0a9f8e7d6c"],
    }
    return aks_section(create=here | more)


def aks_pool(machine: str = A100, **more: Any) -> Data:
    """One to four nodes of eight A100s."""
    return {"machine": machine, "nodes": {"min": 1, "max": 4}, **more}


def aks_partitions(machine: str, profile: str) -> Data:
    """Partitions of GPUs in addition to whole ones."""
    return aks_pool(machine, nodes=4, sharing={"mig": {"profile": profile}}, labels={"example.com/cut": "yes"})


def aks_stack(cluster: Data | None = None, environment: str = "dev", **pools: Data) -> Data:
    """Nodes without GPUs, 8 to 32 A100s, and a team that is guaranteed eight."""
    own = {"cpu": {"machine": "Standard_D32s_v5", "nodes": 3}, "gpu": aks_pool(labels={"example.com/whole": "yes"})}
    driver = next((pool["driver"] for pool in pools.values() if "driver" in pool), None)
    return {
        "operators": {"driver": driver} if driver else {},
        "environment": environment,
        "cluster": {**PROVIDED, **(cluster or aks_section())},
        "pools": own | pools,
        "teams": {"a": team(gpus={"gpu": {"guaranteed": 8}})},
    }


def aks_nodes(sections: Data, name: str = "gpu") -> Registration:
    (registration,) = (node for node in typed(sent(sections), POOL) if node.name.endswith(f"-{name}"))
    return registration


def aks_inputs(sections: Data, name: str = "gpu") -> Any:
    """The registered inputs of a pool."""
    return cast("Any", aks_nodes(sections, name).inputs)


# GKE


def gke_creation(**more: Any) -> Data:
    """A cluster to create."""
    here: Data = {
        "version": "1.35",
        "network": "ml",
        "subnetwork": "ml-sub",
        "podRange": "pods",
        "serviceRange": "services",
        "securityGroup": "gke-security-groups@example.com",
        "system": {"machine": "n2-standard-16"},
    }
    return here | more


def gke_stack(**cluster: Any) -> Data:
    pools: Data = {"l4": {"machine": "g2-standard-48", "nodes": {"min": 0, "max": 4}}}
    here: Data = {"cloud": "gcp", "name": "ml", "project": "example-ml", "location": "us-central1-a"}
    return {"cluster": {**here, **PROVIDED, **cluster}, "pools": pools, "teams": {"a": team(gpus={})}}
