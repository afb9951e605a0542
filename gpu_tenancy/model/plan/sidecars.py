"""Object storage in pods: the CSI drivers, what their mounts need, and the sidecars that they add to pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, format_amount
from gpu_tenancy.model.spec.data import Dataset, Scheme
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
            `catalogue/clouds.yaml`) and `egress`; if the network resolves the names to other addresses, the team's
            `network.egress` must include those.
        egress: CIDRs of what is reached, over HTTPS.
    """

    name: str
    source: str
    sidecar: Sidecar | None = None
    from_pods: tuple[str, ...] = field(default=())
    egress: tuple[str, ...] = field(default=())


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
        # restricted.googleapis.com and private.googleapis.com, read 2026-11-23:
        # https://cloud.google.com/vpc/docs/configure-private-google-access#network-config
        ("199.36.153.4/30", "199.36.153.8/30"),
    ),
    "az": Driver("blob.csi.azure.com", "https://learn.microsoft.com/azure/aks/azure-csi-blob-storage-provision"),
}
"""CSI drivers by URL scheme of the bucket."""


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The sidecars of a pod.

    Attributes:
        annotations: of the pod.
        amounts: CPU and memory, which count towards the namespace's quota, but not the queue's.
    """

    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    amounts: Amounts = field(default_factory=dict[str, int])


def sidecars_of(datasets: Mapping[str, Dataset], team: Team, workload: Workload) -> Sidecars:
    """The sidecars of each pod of a workload; datasets that do not exist are reported by `model.checks`."""
    known = (datasets[name] for name in workload.datasets if name in datasets)
    schemes = {dataset.scheme for dataset in known if dataset.accelerate is None}
    annotations: dict[str, str] = {}
    amounts: Amounts = {}
    for sidecar in (DRIVERS[scheme].sidecar for scheme in sorted(schemes)):
        if sidecar is None:
            continue
        # A smaller container than the namespace's minimum would be rejected.
        own = {
            resource: max(amount, getattr(team.containers.min, resource) or 0)
            for resource, amount in sidecar.amounts.items()
        }
        annotations |= sidecar.annotations
        annotations |= {sidecar.limits[resource]: format_amount(resource, amount) for resource, amount in own.items()}
        amounts = add(amounts, own)
    return Sidecars(annotations, amounts)


def sidecars(datasets: Mapping[str, Dataset], team: Team) -> Amounts:
    """CPU and memory of all sidecars of a team's workloads, at their maximum number of pods."""
    total: Amounts = {}
    for workload in (*team.serving.values(), *team.training.values()):
        one = sidecars_of(datasets, team, workload).amounts  # Roles mount the same datasets.
        total = add(total, {resource: amount * workload.most_pods for resource, amount in one.items()})
    return total


def egress_of_datasets(datasets: Iterable[Dataset], team: str) -> tuple[str, ...]:
    """CIDRs that pods of a team reach over HTTPS to read its datasets, because a sidecar of the pod does."""
    own = (dataset for dataset in datasets if dataset.is_of(team))
    schemes = {dataset.scheme for dataset in own if dataset.accelerate is None}
    return tuple(cidr for scheme in sorted(schemes) for cidr in DRIVERS[scheme].egress)


@dataclass(frozen=True, slots=True, order=True)
class Folder:
    """A folder of a bucket, or a whole bucket.

    Attributes:
        scheme: of its URL: the service.
        bucket: the bucket; on Azure, the container.
        prefix: the folder, without slashes around it; empty for the whole bucket.
        account: on Azure, the storage account; else empty.
    """

    scheme: Scheme
    bucket: str
    prefix: str
    account: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{'/'.join(part for part in (self.account, self.bucket, self.prefix) if part)}"

    @property
    def whole(self) -> str:
        """URL of the whole bucket."""
        return f"{self.scheme}://{'/'.join(part for part in (self.account, self.bucket) if part)}"


def access_mode(*, writable: bool) -> str:
    """Access mode of the claims of a dataset, which pods on any number of nodes mount."""
    return "ReadWriteMany" if writable else "ReadOnlyMany"


def folder(dataset: Dataset) -> Folder:
    """The folder of a dataset."""
    first, _, rest = dataset.bucket.partition("://")[2].partition("/")
    if dataset.scheme != "az":
        return Folder(dataset.scheme, first, rest.strip("/"))
    container, _, prefix = rest.partition("/")
    return Folder(dataset.scheme, container, prefix.strip("/"), first)
