"""The network between GPUs of different machines: its users, and the requests or claims of their pods."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.quantity import CHANNELS, INTERFACES, Amounts
from gpu_tenancy.model.catalogue import Machine
from gpu_tenancy.model.catalogue.pods import FabricRow, HostMount, Hugepages, fabrics
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import has_claims, installed_by, is_enabled
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.spec.clouds.gcp import FabricNetwork, GcpCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.workloads import Server, Training, Workload

HUGEPAGES: Final = "hugepages-2Mi"
"""Resource of huge pages of 2 MiB: https://kubernetes.io/docs/tasks/manage-hugepages/scheduling-hugepages/."""
_PAGE: Final = 2 * 2**20


@dataclass(frozen=True, slots=True)
class PodFabric:
    """Fields of a pod for the network between GPUs, such as `efa`, with the row that has those of its containers."""

    name: str
    row: FabricRow
    devices: Amounts  # requests, same as limits: interfaces, and huge pages in bytes
    annotations: Mapping[str, str]
    claim: str | None  # ResourceClaimTemplate of its interfaces; None if it does not claim them

    @property
    def host_mounts(self) -> tuple[HostMount, ...]:
        """The mounts of all containers, one for each volume."""
        both = (*self.row.mounts, *(self.row.daemon.mounts if self.row.daemon else ()))
        return tuple({mount.name: mount for mount in both}.values())


def uses_fabric(workload: Workload) -> bool:
    """Whether a workload uses its nodes' fabric: as in the stack, else jobs and groups of several GPU pods do."""
    if workload.fabric is not None:
        return workload.fabric
    if not isinstance(workload, (Server, Training)) or not workload.gpus:
        return False
    pods = workload.pods_by_role
    return sum(pods[name] for name, part in workload.parts.items() if part.gpus) > 1


def lack(environment: Environment, flavor: str, workload: Workload) -> str | None:
    """Why pods of a workload cannot use the fabric of a flavor's nodes; None if they can."""
    pools = environment.pools_of(flavor)
    if environment.stack.dispatches and any(pool.claimable for pool in pools):
        return "Kueue of a MultiKueue manager does not count claims of interfaces, which dranet needs"
    return _pools_lack(flavor, pools, workload) or _machines_lack(pools, workload)


def _pools_lack(flavor: str, pools: Sequence[ResolvedPool], workload: Workload) -> str | None:
    if without := next((pool for pool in pools if not pool.fabric), None):
        return f"pool {without.name} of flavor {flavor} does not set fabric"
    kinds = {pool.fabric for pool in pools if pool.fabric}
    if len(kinds) != 1:
        return f"the pools of flavor {flavor} have different fabrics ({', '.join(sorted(kinds)) or 'none'})"
    if shared := next((pool for pool in pools if pool.pool.sharing), None):
        return f"pods of pool {shared.name} share GPUs"
    if len({pool.claimable for pool in pools}) > 1:
        return f"the pools of flavor {flavor} give pods different interfaces: by dranet, by networks, or in number"
    if pools[0].claimable and isinstance(workload, Training) and (workload.scheduler == "volcano" or workload.gang):
        return "Volcano does not make the claims of interfaces, which dranet needs"
    return None


def _machines_lack(pools: Sequence[ResolvedPool], workload: Workload) -> str | None:
    kind, gpus = pools[0].fabric or "", workload.gpus
    row = fabrics()[kind]
    for machine in _machines(pools):
        if row.whole and gpus != machine.gpus:
            return f"{kind} needs all {machine.gpus} GPUs of a machine in one pod, not {gpus}"
        if row.resource and not _interfaces(machine, gpus):
            part = f"{gpus} of the {machine.gpus} GPUs of {machine.name}"
            return f"{part} are less than one interface of its {kind} network"
    return None


def pod_fabric(environment: Environment, flavor: str, workload: Workload) -> PodFabric | None:
    """Fields of a workload's pods for the fabric of a flavor's nodes; None if they do not or cannot use it."""
    if not workload.gpus or not uses_fabric(workload) or lack(environment, flavor, workload):
        return None
    pools = environment.pools_of(flavor)
    machines, kind = _machines(pools), pools[0].fabric or ""
    row = fabrics()[kind]
    devices: dict[str, int] = {}
    if row.resource:
        devices[row.resource] = min(_interfaces(machine, workload.gpus) for machine in machines)
    if row.hugepages:
        pages = min(reserved_pages(row.hugepages, machine) * workload.gpus // machine.gpus for machine in machines)
        devices[HUGEPAGES] = pages // _PAGE * _PAGE
    claimed = pools[0].claimable
    return PodFabric(
        name=kind,
        row=row,
        devices=devices,
        annotations={} if claimed else _annotations(environment.stack.cluster, row, kind, machines[0]),
        claim=claim_name(claimed) if claimed else None,
    )


def claim_name(interfaces: int) -> str:
    """Name of the ResourceClaimTemplate of a number of interfaces; each team that can use such nodes has it."""
    return f"rdma-{interfaces}"


def claiming_flavors(environment: Environment) -> dict[str, int]:
    """The flavors whose pods claim interfaces, with their number on a node; none if workers of MultiKueue run jobs."""
    if environment.stack.dispatches:
        return {}
    claimed: dict[str, set[int]] = {}
    for pool in environment.pools.values():
        claimed.setdefault(pool.flavor, set()).add(pool.claimable)
    return {flavor: min(numbers) for flavor, numbers in claimed.items() if min(numbers) == max(numbers) > 0}


def _machines(pools: Iterable[ResolvedPool]) -> list[Machine]:
    return [pool.machine for pool in pools if pool.machine]


def reserved_pages(pages: Hugepages, machine: Machine) -> int:
    """Huge pages of a machine for its fabric, in bytes: as many as pods may request together."""
    return min(pages.machine, pages.per_cpu * (machine.cpu // 1000)) // _PAGE * _PAGE


def node_pages(machine: Machine, fabric: str) -> int:
    """Huge pages in bytes that pods can request on a node with a fabric; 0 without."""
    row = fabrics().get(fabric)
    return reserved_pages(row.hugepages, machine) if row and row.hugepages else 0


def network_name(network: FabricNetwork) -> str:
    """Name of GKE's objects for an additional network: its subnetwork's, which is unique."""
    return network.subnetwork.rpartition("/")[2]


def _interfaces(machine: Machine, gpus: int) -> int:
    """The interfaces of a number of GPUs on their machine, rounded down."""
    return machine.network.interfaces * gpus // machine.gpus if machine.network and machine.gpus else 0


def _annotations(section: Cluster, row: FabricRow, fabric: str, machine: Machine) -> dict[str, str]:
    """GKE's annotations: the networks of the pod, and the device files of its daemon.

    https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx
    """
    annotations: dict[str, str] = {}
    if row.networks and isinstance(section, GcpCluster) and machine.network:
        attached = section.fabric_networks_for(fabric, machine.network.interfaces)[row.networks.of_node :]
        names = {0: "default", **{index: network_name(one) for index, one in enumerate(attached, row.networks.first)}}
        interfaces = [{"interfaceName": f"eth{index}", "network": name} for index, name in names.items()]
        annotations["networking.gke.io/default-interface"] = "eth0"
        annotations["networking.gke.io/interfaces"] = json.dumps(interfaces, separators=(",", ":"))
    if row.daemon and row.devices:
        files = "".join(f"- path: {path}\n" for path in row.devices)
        annotations[f"devices.gke.io/container.{row.daemon.name}"] = files
    return annotations


def claimed_on(environment: Environment) -> dict[str, tuple[str, ...]]:
    """Resources that pods can claim, each with the flavors on whose nodes they can; empty ones are omitted."""
    flavors = {CHANNELS: connected_flavors(environment), INTERFACES: tuple(claiming_flavors(environment))}
    return {resource: names for resource, names in flavors.items() if names}


def channels_of(job: str) -> str:
    """Name of the ResourceClaimTemplate from which the pods of a job claim their channels.

    The driver's controller makes it for each ComputeDomain; each pod claims a channel of its node:
    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1.
    """
    return f"{job}-channel"


def connected_flavors(environment: Environment) -> tuple[str, ...]:
    """Flavors whose pods can claim channels: NVLink connects the machines of all of their pools.

    Empty if the driver does not run in the cluster, or if workers of MultiKueue run the jobs.
    """
    stack = environment.stack
    if stack.dispatches or not serves_domains(environment) or not has_claims(stack.cluster):
        return ()
    flavors = dict.fromkeys(pool.flavor for pool in environment.pools.values())
    return tuple(flavor for flavor in flavors if is_connected(environment.pools_of(flavor)))


def serves_domains(environment: Environment) -> bool:
    """Whether the DRA driver runs in the cluster and has compute domains, as far as its values are known."""
    by = installed_by(environment, "dra_driver")
    own = environment.stack.operators.of("dra_driver").values
    return by == "installed" or (by == "here" and is_enabled(own, "resources", "computeDomains"))


def is_connected(pools: Iterable[ResolvedPool]) -> bool:
    """Whether NVLink connects the machines of all pools of a flavor, each with others of its pool."""
    return all(pool.nvlink for pool in pools)


def most_nodes(pools: Collection[ResolvedPool]) -> int | None:
    """The maximum number of a flavor's machines that NVLink connects; None if it is unknown for a pool."""
    nodes = [pool.nvlink.nodes for pool in pools if pool.nvlink and pool.nvlink.nodes]
    return max(nodes) if nodes and len(nodes) == len(pools) else None
