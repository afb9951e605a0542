"""Stacks on AKS of which a test changes one thing, and what is sent for them."""

from typing import Any, Final, cast

from aks_description import CLUSTER, POOL
from builders import PROVIDED, Data, team
from components_builders import cluster

from gpu_tenancy.engine.recording import Registration

SUBSCRIPTION: Final = "5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
TENANT: Final = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
ADMINS: Final = "9f8e7d6c-5b4a-4f3e-8d2c-1b0a9f8e7d6c"
GROUPS: Final = f"/subscriptions/{SUBSCRIPTION}/resourceGroups"
SUBNET: Final = f"{GROUPS}/network/providers/Microsoft.Network/virtualNetworks/ml/subnets/nodes"
VAULT: Final = f"{GROUPS}/keys/providers/Microsoft.KeyVault/vaults/ml"
KEY: Final = "https://ml.vault.azure.net/keys/secrets/0123456789abcdef0123456789abcdef"
LOGS: Final = f"{GROUPS}/logs/providers/Microsoft.OperationalInsights/workspaces/ml"
RESERVATION: Final = f"{GROUPS}/reserved/providers/Microsoft.Compute/capacityReservationGroups/a100"
DISKS: Final = f"{GROUPS}/keys/providers/Microsoft.Compute/diskEncryptionSets/ml"
SPOT: Final = "kubernetes.azure.com/scalesetpriority"
A100: Final = "Standard_ND96amsr_A100_v4"


def section(**more: Any) -> Data:
    """A cluster that exists."""
    here: Data = {
        "cloud": "azure",
        "name": "ml",
        "subscription": SUBSCRIPTION,
        "resourceGroup": "ml-group",
        "location": "eastus",
        "subnet": SUBNET,
    }
    return here | more


def creation(**more: Any) -> Data:
    """A cluster to be made."""
    system = {"machine": "Standard_D16s_v5"}
    here: Data = {
        "version": "1.35",
        "system": system,
        "secretsKey": KEY,
        "vault": VAULT,
        "logs": LOGS,
        "tenant": TENANT,
        "admins": [ADMINS],
    }
    return section(create=here | more)


def stack(cluster: Data | None = None, environment: str = "dev", **pools: Data) -> Data:
    """Nodes without GPUs, eight A100s that may become 32, and a team that is guaranteed eight."""
    own = {"cpu": {"machine": "Standard_D32s_v5", "nodes": 3}, "gpu": pool(labels={"example.com/whole": "yes"})}
    driver = next((pool["driver"] for pool in pools.values() if "driver" in pool), None)
    return {
        "operators": {"driver": driver} if driver else {},
        "environment": environment,
        "cluster": {**PROVIDED, **(cluster or section())},
        "pools": own | pools,
        "teams": {"a": team(gpus={"gpu": {"guaranteed": 8}})},
    }


def pool(machine: str = A100, **more: Any) -> Data:
    return {"machine": machine, "nodes": {"min": 1, "max": 4}, **more}


def cut(machine: str, profile: str) -> Data:
    """Partitions of GPUs beside whole ones."""
    return pool(machine, nodes=4, sharing={"mig": {"profile": profile}}, labels={"example.com/cut": "yes"})


def sent(sections: Data) -> tuple[Registration, ...]:
    return cluster(sections).rendered.registrations


def only(sections: Data, token: str, name: str = "") -> Registration:
    (registration,) = (
        resource for resource in sent(sections) if resource.type == token and resource.name.endswith(name)
    )
    return registration


def inputs(sections: Data, name: str = "gpu") -> Any:
    """What is sent for a pool."""
    return cast("Any", only(sections, POOL, f"-{name}").inputs)


def made(sections: Data) -> Any:
    """What is sent for a cluster that is made."""
    return cast("Any", only(sections, CLUSTER).inputs)


def gpu(**more: Any) -> Any:
    """What is sent for the A100s, with something changed."""
    return inputs(stack(gpu=pool(**more)))
