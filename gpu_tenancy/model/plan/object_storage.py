"""Object storage in a cluster: CSI drivers with their sidecars, the pods of caches, and their use of nodes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.quantity import MEMORY, Amounts, add, format_amount, times
from gpu_tenancy.model.catalogue.storage import CacheContainer, CacheStore, bucket_drivers, caches
from gpu_tenancy.model.spec.data import Acceleration, Dataset, Scheme
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Workload


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The sidecars of a pod, by its annotations. Their amounts count towards the namespace's quota, not the queue's."""

    annotations: Mapping[str, str]
    amounts: Amounts


def sidecars_of(datasets: Mapping[str, Dataset], team: Team, workload: Workload) -> Sidecars:
    """The sidecars of each pod of a workload; datasets that do not exist are reported by `model.checks`."""
    known = (datasets[name] for name in workload.datasets if name in datasets)
    schemes = {dataset.scheme for dataset in known if dataset.accelerate is None}
    annotations: dict[str, str] = {}
    amounts: Amounts = {}
    for sidecar in (bucket_drivers()[scheme].sidecar for scheme in sorted(schemes)):
        if sidecar is None:
            continue
        annotations |= sidecar.annotations
        for resource, usual in sidecar.amounts.items():
            # A smaller container than the namespace's minimum would be rejected.
            amount = max(usual, getattr(team.containers.min, resource) or 0)
            annotations[sidecar.limits[resource]] = format_amount(resource, amount)
            amounts = add(amounts, {resource: amount})
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
    return tuple(cidr for scheme in sorted(schemes) for cidr in bucket_drivers()[scheme].egress)


@dataclass(frozen=True, slots=True, order=True)
class Folder:
    """A folder of a bucket, or a whole bucket."""

    scheme: Scheme  # of the URL: the service
    bucket: str  # on Azure the container
    prefix: str  # without slashes around it; empty for the whole bucket
    account: str = ""  # storage account on Azure
    endpoint: str = ""  # service that has an S3 bucket; empty for Amazon

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
        return Folder(dataset.scheme, first, rest.strip("/"), endpoint=dataset.endpoint or "")
    container, _, prefix = rest.partition("/")
    return Folder(dataset.scheme, container, prefix.strip("/"), first)


def path_style(endpoint: str) -> bool:
    """Whether requests to a service have the bucket in the path, as most need; Alibaba's has it in the host's name.

    https://www.alibabacloud.com/help/en/oss/developer-reference/compatibility-with-amazon-s3 (2026-11-28)
    """
    return ".aliyuncs.com" not in endpoint


_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class TakenByCaches:
    """CPU and memory that caches take from the nodes of a flavor."""

    total: Amounts = field(default_factory=dict[str, int])  # of all nodes together
    node: Amounts = field(default_factory=dict[str, int])  # most of one node: worker, mounts, masters and loads
    every: Amounts = field(default_factory=dict[str, int])  # least of each node: mounts and workers on every node
    by_dataset: Mapping[str, Amounts] = field(default_factory=dict[str, Amounts])


NOTHING_TAKEN: Final = TakenByCaches()


def share(acceleration: Acceleration, replicas: int) -> int:
    """Size of the cache of one replica in bytes, in whole MiB."""
    return -(-acceleration.cache // (max(1, replicas) * _MIB)) * _MIB


def containers(acceleration: Acceleration, pod: str) -> Mapping[str, CacheContainer]:
    """Containers of a pod (`master`, `worker` or `fuse`), by the key of the runtime's spec."""
    return getattr(caches()[acceleration.runtime].pods, pod)


def pod_amounts(acceleration: Acceleration, pod: str, replicas: int = 1) -> Amounts:
    """CPU and memory of a pod; a cache in memory is part of its workers'."""
    of_cache = {MEMORY: share(acceleration, replicas)} if pod == "worker" and acceleration.medium == "memory" else {}
    return add(*(container.amounts for container in containers(acceleration, pod).values()), of_cache)


def replicas_of(acceleration: Acceleration, always: int) -> int:
    """Number of nodes with a part of the cache; default: the nodes that the flavor's pools always have."""
    return always if acceleration.replicas is None else acceleration.replicas


def taken(  # noqa: PLR0913 - of a flavor
    datasets: Mapping[str, Dataset], teams: Mapping[str, Team], flavor: str, *, gpus: bool, always: int, most: int
) -> TakenByCaches:
    """CPU and memory that caches take from a flavor, with GPUs or not, of `always` to `most` nodes."""
    by_dataset: dict[str, Amounts] = {}
    nodes: list[Amounts] = []
    every: list[Amounts] = []
    for name, dataset, acceleration in accelerated(datasets):
        total: list[Amounts] = []
        if not gpus or _reaches(teams, dataset, flavor):
            mount = pod_amounts(acceleration, "fuse")
            total.append(times(mount, most))
            nodes.append(mount)
            every.append(mount)
        if acceleration.flavor == flavor:
            replicas = replicas_of(acceleration, always)
            worker = pod_amounts(acceleration, "worker", replicas)
            load: Amounts = caches()[acceleration.runtime].load.amounts if acceleration.warm else {}
            once = add(pod_amounts(acceleration, "master"), load)
            total += [times(worker, replicas), once]
            nodes += [worker, once]
            every += [worker] if replicas >= most else []
        if total:
            by_dataset[name] = add(*total)
    return TakenByCaches(add(*by_dataset.values()), add(*nodes), add(*every), by_dataset)


def accelerated(datasets: Mapping[str, Dataset]) -> Iterator[tuple[str, Dataset, Acceleration]]:
    """The datasets with a cache, in the stack's order."""
    for name, dataset in datasets.items():
        if dataset.accelerate is not None:
            yield name, dataset, dataset.accelerate


def _reaches(teams: Mapping[str, Team], dataset: Dataset, flavor: str) -> bool:
    """Whether pods of the dataset's teams can run on nodes with GPUs; other nodes are open to all teams."""
    own = [(team, teams.get(team.queue or name, team)) for name, team in teams.items() if dataset.is_of(name)]
    return any(flavor in owner.gpus or flavor in owner.quota or flavor in team.gangs for team, owner in own)


def store_of(dataset: Dataset, acceleration: Acceleration) -> CacheStore:
    """How the runtime of a cache mounts the dataset's bucket."""
    return caches()[acceleration.runtime].stores[dataset.scheme]


def has_identity(dataset: Dataset, acceleration: Acceleration) -> bool:
    """Whether the cache reads the bucket with the cloud identity of its ServiceAccount.

    The Secret of a JuiceFS cache has the address of the metadata engine, and not the keys of the bucket.
    """
    of_bucket = acceleration.secret if acceleration.runtime == "alluxio" else None
    return of_bucket is None and store_of(dataset, acceleration).identity
