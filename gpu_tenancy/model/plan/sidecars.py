"""Object storage in pods: the CSI drivers, what their mounts need, and the sidecars that they add to pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.model.plan.limits import container_bounds
from gpu_tenancy.model.quantity import CPU, MEMORY, Amounts, add, format_amount
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Workload


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A container that a driver's webhook adds to each pod with its volumes.

    Attributes:
        annotations: annotations of the pod, without which the webhook does nothing.
        limits: annotation for each resource of the sidecar, as limit and request.
        amounts: the sidecar's CPU and memory without such annotations.
        source: URL of these facts.
    """

    annotations: Mapping[str, str]
    limits: Mapping[str, str]
    amounts: Amounts
    source: str


@dataclass(frozen=True, slots=True)
class Driver:
    """A CSI driver for object storage.

    Attributes:
        source: documentation of its volumes.
        sidecar: what it adds to pods; None if it mounts without one.
        from_pods: what the pod's own network must reach, because the sidecar reads the bucket; empty if a daemon of the
            node does. NetworkPolicies of teams allow the addresses of the node (`nodeEndpoints` in
            `catalogue/clouds.yaml`); the team's `network.egress` must include the others.
    """

    name: str
    source: str
    sidecar: Sidecar | None = None
    from_pods: tuple[str, ...] = field(default=())


DRIVERS: Final = {
    "s3": Driver("s3.csi.aws.com", "https://github.com/awslabs/mountpoint-s3-csi-driver"),
    "gs": Driver(
        "gcsfuse.csi.storage.gke.io",
        "https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-pv",
        Sidecar(
            annotations={"gke-gcsfuse/volumes": "true"},
            limits={CPU: "gke-gcsfuse/cpu-limit", MEMORY: "gke-gcsfuse/memory-limit"},
            amounts={CPU: 250, MEMORY: 256 * 2**20},
            # Read 2026-11-22, with docs/known-issues.md and pkg/webhook/config.go of the same repository.
            source="https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/cmd/webhook/main.go",
        ),
        (
            "GKE metadata server, at 169.254.169.254",
            "storage.googleapis.com and sts.googleapis.com on port 443 (https://cloud.google.com/vpc/docs/private-google-access)",
        ),
    ),
    "az": Driver("blob.csi.azure.com", "https://learn.microsoft.com/azure/aks/azure-csi-blob-storage-provision"),
}
"""CSI drivers by URL scheme of the bucket."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A dataset in a container: the claim with its name, at a path."""

    dataset: str
    path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Mounts:
    """Datasets of a pod.

    Attributes:
        mounts: what the container mounts.
        annotations: of the pod, for sidecars.
        sidecar: CPU and memory of the sidecars, which count towards the namespace's quota, but not the queue's.
    """

    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    sidecar: Amounts = field(default_factory=dict[str, int])


NO_MOUNTS: Final = Mounts()


def mounts_of(stack: Stack, team: Team, workload: Workload) -> Mounts:
    """The datasets that a workload mounts; datasets that do not exist are reported by `model.checks`."""
    known = {name: path for name, path in workload.datasets.items() if name in stack.datasets}
    mounts = tuple(Mount(name, path, not stack.datasets[name].writable) for name, path in known.items())
    schemes = {stack.datasets[name].bucket.partition("://")[0] for name in known}
    annotations: dict[str, str] = {}
    amounts: Amounts = {}
    for sidecar in (DRIVERS[scheme].sidecar for scheme in sorted(schemes)):
        if sidecar is None:
            continue
        # A smaller container than the namespace's minimum would be rejected.
        own = {resource: max(amount, container_bounds(team, resource)) for resource, amount in sidecar.amounts.items()}
        annotations |= sidecar.annotations
        annotations |= {sidecar.limits[resource]: format_amount(resource, amount) for resource, amount in own.items()}
        amounts = add(amounts, own)
    return Mounts(mounts, annotations, amounts)


def sidecars(stack: Stack, team: Team) -> Amounts:
    """CPU and memory of all sidecars of a team's workloads, at their maximum number of pods."""
    total: Amounts = {}
    for workload in (*team.serving.values(), *team.training.values()):
        one = mounts_of(stack, team, workload).sidecar  # Roles mount the same datasets.
        total = add(total, {resource: amount * workload.most_pods for resource, amount in one.items()})
    return total
