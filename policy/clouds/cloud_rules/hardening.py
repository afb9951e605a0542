"""Rules for node configurations: metadata service, disks, public addresses, secure boot."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from cloud_rules.machines import matches
from cloud_rules.pools import DiskRequirements, MachineSource, Nodes
from cloud_rules.subjects import NODES
from rule_engine import ADVICE, Settings, Severity, rule


class Metadata(Settings):
    """Hop limit of the metadata service."""

    hops: int = Field(
        1, ge=1, description=("Maximum number of hops of a metadata response on AWS; pods are two hops away.")
    )


@rule(
    "imds-v2",
    rationale=(
        "An attacker in one pod gets the permissions of its node: to pull every image, and to call the cloud API as"
        " the node."
    ),
    fix=(
        "AWS: require tokens, and set a hop limit of 1. GKE: set GKE_METADATA, and disable legacy endpoints. Azure"
        " has no such setting."
    ),
    link="https://docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NODES,
)
def imds_v2(nodes: Nodes, settings: Metadata) -> Iterator[str]:
    """Pods must not reach the credentials of their node through the cloud's metadata service."""
    return nodes.metadata(settings.hops)


class DiskSettings(Settings):
    """Encryption requirements for disks."""

    keys: Literal["cloud", "own"] = Field(
        "cloud", description="`own`: on AWS and GCP, disks must be encrypted with a customer-managed key."
    )
    account: bool = Field(default=False, description="Whether all AWS accounts encrypt volumes by default.")
    host: bool = Field(
        default=False, description="Whether Azure hosts must encrypt too, including caches and temporary disks."
    )


@rule(
    "disks-encrypted",
    rationale="Disks contain images, dataset caches and checkpoints, and snapshots of a disk can be copied.",
    fix=(
        "AWS: set encrypted: true for each disk of the launch template, or enable encryption for the account and"
        " the setting `account`."
    ),
    link="https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=NODES,
)
def disks_encrypted(nodes: Nodes, settings: DiskSettings) -> Iterator[str]:
    """Node disks must be encrypted.

    GCP and Azure always encrypt them; customer-managed keys and host encryption can be required.
    """
    yield from nodes.disks(DiskRequirements(settings.keys == "own", settings.account, settings.host))


@rule(
    "no-public-addresses",
    rationale="Otherwise each port that a pod opens on its node is reachable from the internet.",
    fix="Remove the public address, and give the subnet outbound access through NAT.",
    link="https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NODES,
)
def no_public_addresses(nodes: Nodes, _: Settings) -> Iterator[str]:
    """Nodes must not have public addresses.

    If a GKE pool does not set this, its cluster must; on AWS, subnets can set it.
    """
    return nodes.addresses()


class Integrity(Settings):
    """Secure boot requirements for nodes."""

    boot: bool = Field(default=False, description="Whether nodes must use secure boot (on Azure with a vTPM too).")
    unsupported: list[str] = Field(
        ["Standard_N*"],
        description=(
            "Machines that cannot use secure boot, as patterns: Azure machines with GPUs, whose driver does not"
            " support it."
        ),
    )


@rule(
    "node-integrity",
    rationale=(
        "A modified kernel or driver can read every pod's memory, and a stolen token can register any machine as a"
        " node."
    ),
    fix="GKE: set enableShieldedNodes and shieldedInstanceConfig. AKS: set securityProfile. EKS has no such setting.",
    link="https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=NODES,
)
def node_integrity(nodes: Nodes, settings: Integrity) -> Iterator[str]:
    """Only verified machines may become nodes: shielded nodes on GKE; secure boot on GKE and AKS if required."""
    names = [machine.name for machine in nodes.machines()] if settings.boot and isinstance(nodes, MachineSource) else []
    exempt = any(matches(name, pattern) for name in names for pattern in settings.unsupported)
    yield from nodes.integrity(boot=settings.boot and not exempt)
