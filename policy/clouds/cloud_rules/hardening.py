"""Rules for what nodes are made of."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, Literal

from pydantic import Field

from cloud_rules.pools import Bought, Disks, Nodes
from cloud_rules.subjects import NODES
from judge import ADVICE, AnyRule, Rule, Settings, Severity


class Metadata(Settings):
    """How far the metadata service answers."""

    hops: int = Field(1, ge=1, description="Hops that an answer may travel on AWS; pods are two away.")


def _metadata(nodes: Nodes, settings: Metadata) -> Iterator[str]:
    yield from nodes.metadata(settings.hops)


IMDS_V2: Final = Rule(
    name="imds-v2",
    says="Pods do not reach the credentials of their node through the cloud's metadata service.",
    why="Whoever breaks into one pod has what its node may do: pull every image, ask the cloud in its name.",
    mend="AWS: tokens required, a hop limit of 1. GKE: GKE_METADATA, no legacy endpoints. Azure has no such setting.",
    link="https://docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NODES,
    judge=_metadata,
    settings=Metadata,
)


class DiskSettings(Settings):
    """What is asked of disks."""

    keys: Literal["cloud", "own"] = Field(
        "cloud", description="`own`: on AWS and GCP a key of the organisation's encrypts them, not the cloud's own."
    )
    account: bool = Field(default=False, description="Whether all AWS accounts encrypt volumes that say nothing of it.")
    host: bool = Field(
        default=False, description="Whether Azure's hosts encrypt as well, caches and temporary disks included."
    )


def _disks(nodes: Nodes, settings: DiskSettings) -> Iterator[str]:
    yield from nodes.disks(Disks(settings.keys == "own", settings.account, settings.host))


DISKS_ENCRYPTED: Final = Rule(
    name="disks-encrypted",
    says="Disks of nodes are encrypted. GCP and Azure always do; own keys, or the host's part, can be asked for.",
    why="Images, caches of datasets and checkpoints are on them, and a snapshot of a disk travels.",
    mend="AWS: encrypted: true for each disk of the launch template; or by the account, with the setting `account`.",
    link="https://docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=NODES,
    judge=_disks,
    settings=DiskSettings,
)


def _addresses(nodes: Nodes, _: Settings) -> Iterator[str]:
    yield from nodes.addresses()


NO_PUBLIC_ADDRESSES: Final = Rule(
    name="no-public-addresses",
    says="Nodes have no public addresses. Where a pool of GKE says nothing, its cluster must; on AWS, its subnets do.",
    why="Each port that a pod opens on its node is then open to the internet.",
    mend="Take the address away, and give the subnet a way out by NAT.",
    link="https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NODES,
    judge=_addresses,
    settings=Settings,
)


class Integrity(Settings):
    """What nodes prove when they start."""

    boot: bool = Field(default=False, description="Whether nodes start by secure boot (on Azure with a vTPM too).")
    without: list[str] = Field(
        ["Standard_N*"],
        description="Machines that do not start so, as patterns: those of Azure with GPUs, whose driver it refuses.",
    )


def _integrity(nodes: Nodes, settings: Integrity) -> Iterator[str]:
    names = [each.name for each in nodes.machines()] if settings.boot and isinstance(nodes, Bought) else []
    cannot = any(fnmatchcase(name, pattern) for name in names for pattern in settings.without)
    yield from nodes.integrity(boot=settings.boot and not cannot)


NODE_INTEGRITY: Final = Rule(
    name="node-integrity",
    says="Only whole machines become nodes: shielded on GKE; by secure boot there and on AKS where it is asked for.",
    why="A changed kernel or driver sees every pod's memory, and a stolen token makes any machine a node.",
    mend="GKE: enableShieldedNodes, shieldedInstanceConfig. AKS: securityProfile. EKS has no such setting.",
    link="https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=NODES,
    judge=_integrity,
    settings=Integrity,
)

RULES: Final[tuple[AnyRule, ...]] = (IMDS_V2, DISKS_ENCRYPTED, NO_PUBLIC_ADDRESSES, NODE_INTEGRITY)
