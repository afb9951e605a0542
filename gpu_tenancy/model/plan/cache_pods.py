"""The pods of caches of datasets, and what they take from the nodes of a flavor."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.quantity import MEMORY, Amounts, add, times
from gpu_tenancy.model.catalogue.storage import CacheContainer, CacheStore, caches
from gpu_tenancy.model.spec.data import Acceleration, Dataset
from gpu_tenancy.model.spec.teams import Team

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class TakenByCaches:
    """CPU and memory that caches take from the nodes of a flavor.

    Attributes:
        total: of all nodes together.
        node: most of one node: a worker and the mount of each dataset, all masters and loads.
        every: least of each node: the mounts, and the workers of datasets that have one on each node.
        by_dataset: the total of each dataset.
    """

    total: Amounts = field(default_factory=dict[str, int])
    node: Amounts = field(default_factory=dict[str, int])
    every: Amounts = field(default_factory=dict[str, int])
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
    """Number of nodes with a part of the cache.

    Args:
        acceleration: the cache.
        always: number of nodes that the flavor's pools always have.
    """
    return always if acceleration.replicas is None else acceleration.replicas


def taken(  # noqa: PLR0913 - of a flavor
    datasets: Mapping[str, Dataset], teams: Mapping[str, Team], flavor: str, *, gpus: bool, always: int, most: int
) -> TakenByCaches:
    """What the caches of datasets take from a flavor.

    Args:
        datasets: of the stack.
        teams: of the stack.
        flavor: name of the flavor.
        gpus: whether its nodes have GPUs.
        always: number of nodes that its pools always have.
        most: maximum number of nodes of its pools.
    """
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
            once = add(pod_amounts(acceleration, "master"), _load(acceleration))
            total += [times(worker, replicas), once]
            nodes += [worker, once]
            every += [worker] if replicas >= most else []
        if total:
            by_dataset[name] = add(*total)
    return (
        TakenByCaches(add(*by_dataset.values()), add(*nodes), add(*every), by_dataset) if by_dataset else NOTHING_TAKEN
    )


def accelerated(datasets: Mapping[str, Dataset]) -> Iterator[tuple[str, Dataset, Acceleration]]:
    """The datasets with a cache, in the stack's order."""
    for name, dataset in datasets.items():
        if dataset.accelerate is not None:
            yield name, dataset, dataset.accelerate


def _reaches(teams: Mapping[str, Team], dataset: Dataset, flavor: str) -> bool:
    """Whether pods of the dataset's teams can run on nodes with GPUs; those without are open to all teams."""
    for name, team in teams.items():
        owner = teams.get(team.queue or name, team)
        if dataset.is_of(name) and (flavor in owner.gpus or flavor in owner.quota or flavor in team.gangs):
            return True
    return False


def _load(acceleration: Acceleration) -> Amounts:
    return caches()[acceleration.runtime].load.amounts if acceleration.warm else {}


def store_of(dataset: Dataset, acceleration: Acceleration) -> CacheStore:
    """How the runtime of a cache mounts the dataset's bucket."""
    return caches()[acceleration.runtime].stores[dataset.scheme]


def has_identity(dataset: Dataset, acceleration: Acceleration) -> bool:
    """Whether the cache reads the bucket with the cloud identity of its ServiceAccount.

    The Secret of a JuiceFS cache has the address of the metadata engine, and not the keys of the bucket.
    """
    of_bucket = acceleration.secret if acceleration.runtime == "alluxio" else None
    return of_bucket is None and store_of(dataset, acceleration).identity
