"""A cluster read at a moment at which Kueue's counts are those of its Workloads."""

import time
from collections import defaultdict
from collections.abc import Collection

from gpu_tenancy.inspect.cluster_queues import reported_usage
from gpu_tenancy.inspect.pods import name_of
from gpu_tenancy.inspect.reading import Kind, State, read
from gpu_tenancy.inspect.workloads import Workload
from gpu_tenancy.kube.client import Cluster


def read_settled(cluster: Cluster, kinds: Collection[Kind], *, tries: int = 5) -> State:
    """Reads a cluster until Kueue's counts are those of its Workloads: it writes both, one a moment after the other.

    After so many tries, one second apart, the last state is returned as it is.

    Raises:
        UnreachableError, ApiError: as for `read`.
    """
    state = read(cluster, kinds)
    for _ in range(tries - 1):
        if counts_are_current(state):
            break
        time.sleep(1)
        state = read(cluster, kinds)
    return state


def counts_are_current(state: State) -> bool:
    """Whether each ClusterQueue counts what its Workloads hold, where all of them can be read."""
    if not state.knows("Workload"):
        return True
    held: dict[tuple[str, str, str], int] = defaultdict(int)
    for workload in map(Workload.of, state.of("Workload")):
        for (flavor, resource), amount in workload.held.items() if workload.stage != "finished" else ():
            held[workload.holder, flavor, resource] += amount
    return all(
        used == held[name_of(queue), flavor, resource]
        for queue in state.of("ClusterQueue")
        for (flavor, resource), used in reported_usage(queue, "flavorsReservation").items()
    )
