"""What GKE nodes and pods need for GPUDirect: networks as objects, NCCL's plugin, and device files in containers."""

from collections.abc import Iterator, Sequence
from typing import Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict

from gpu_tenancy.model.catalogue.fabrics import FabricRow, HostMount, Installer, fabrics
from gpu_tenancy.model.manifests.pods import host_mounts
from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.fabric import network_name
from gpu_tenancy.model.spec.clouds.gcp import FabricNetwork, GcpCluster

from ...pods import on_pools
from .daemons import PAUSE, node_daemon_set, node_pod

INJECTOR: Final = "device-injector"
_NETWORKING: Final = "networking.gke.io"


class GpuFabric(pulumi.ComponentResource):
    """The networks, libraries and devices that GPUDirect needs besides the interfaces of the nodes.

    - For each additional network of the pools without DRANET a `GKENetworkParamSet` and a `Network` with the name of
      its subnetwork, which the annotations of pods refer to.
    - For each fabric a DaemonSet that installs NCCL's plugin, and for TCPX and TCPXO the NRI device injector, which
      gives the daemon of a pod access to GPUs that belong to another container. They run only on the pools of the
      fabric. They are privileged and run in `kube-system`, where no quota applies.

    https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx and
    https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom.

    Example:
        >>> GpuFabric("cluster-fabric", plan(stack).cluster.pools, stack.cluster)
    """

    def __init__(
        self, name: str, pools: Sequence[NodePool], section: GcpCluster, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-tenancy:clouds:GkeGpuFabric", name, {}, opts)
        self._own = pulumi.ResourceOptions(parent=self)
        by_fabric: dict[str, list[NodePool]] = {}
        for pool in pools:
            if pool.fabric and pool.fabric.fabric:
                by_fabric.setdefault(pool.fabric.fabric, []).append(pool)
        self.networks = [
            self._network(f"{name}-{network_name(network)}", network, mode)
            for network, mode in _networks(by_fabric, section)
        ]
        self.installers = [
            self._daemon_set(f"{name}-{installer.name}", installer.name, _installing(installer), alike)
            for kind, of_fabric in by_fabric.items()
            for installer, alike in _installers(fabrics()[kind].installer, of_fabric)
        ]
        self.injector = self._injector(f"{name}-{INJECTOR}", by_fabric)
        self.register_outputs({})

    def _network(self, name: str, network: FabricNetwork, mode: str) -> CustomResource:
        of = network_name(network)
        parameters = CustomResource(
            f"{name}-parameters",
            api_version=f"{_NETWORKING}/v1",
            kind="GKENetworkParamSet",
            metadata={"name": of},
            spec={"vpc": network.network, "vpcSubnet": network.subnetwork, "deviceMode": mode},
            opts=self._own,
        )
        return CustomResource(
            f"{name}-network",
            api_version=f"{_NETWORKING}/v1",
            kind="Network",
            metadata={"name": of},
            spec={
                "type": "Device",
                "parametersRef": {"group": _NETWORKING, "kind": "GKENetworkParamSet", "name": of},
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[parameters]),
        )

    def _injector(self, name: str, by_fabric: dict[str, list[NodePool]]) -> DaemonSet | None:
        images = {kind: row.injector for kind in by_fabric if (row := fabrics()[kind]).injector}
        if not images:
            return None
        pools = [pool for kind in images for pool in by_fabric[kind]]
        return self._daemon_set(name, INJECTOR, _injecting(str(next(iter(images.values())))), pools)

    def _daemon_set(self, name: str, called: str, pod: PodSpecArgsDict, pools: Sequence[NodePool]) -> DaemonSet:
        return node_daemon_set(name, called, pod, on_pools(pool.name for pool in pools), self._own)


def _networks(by_fabric: dict[str, list[NodePool]], section: GcpCluster) -> list[tuple[FabricNetwork, str]]:
    """The networks that pods use, each with the mode of its devices."""
    modes: dict[str, tuple[FabricNetwork, str]] = {}
    for kind, pools in by_fabric.items():
        row: FabricRow = fabrics()[kind]
        for pool in pools:
            interfaces = pool.fabric.interfaces if pool.fabric else 0
            networks = section.fabric_networks_for(kind, interfaces)
            for network in networks[row.networks.of_node if row.networks else 0 :] if not pool.dranet else ():
                modes[network_name(network)] = (network, row.networks.mode if row.networks else "NetDevice")
    return list(modes.values())


def _installers(installer: Installer | None, pools: Sequence[NodePool]) -> Iterator[tuple[Installer, list[NodePool]]]:
    """The installers of a fabric, each with the pools whose architecture its image has."""
    if installer is None:
        return
    own = installer.model_copy(update={"name": f"{installer.name}-arm64", "image": installer.arm64})
    on_arm = [pool for pool in pools if installer.arm64 and pool.machine.architecture == "arm64"]
    for of, alike in ((installer, [pool for pool in pools if pool not in on_arm]), (own, on_arm)):
        if alike:
            yield of, alike


def _installing(installer: Installer) -> PodSpecArgsDict:
    install: ContainerArgsDict = {
        "name": installer.name,
        "image": installer.image,
        "command": ["/bin/sh", "-c", "\n".join(installer.command)],
        "resources": {"requests": {"cpu": "150m"}},
        "security_context": {"privileged": True},
        "volume_mounts": host_mounts(installer.mounts),
    }
    return node_pod(
        [PAUSE], _host_paths(installer.mounts), [*([_on_node(installer)] if installer.script else []), install]
    )


def _host_paths(mounts: Sequence[HostMount]) -> dict[str, str]:
    return {mount.name: mount.host for mount in mounts}


def _on_node(installer: Installer) -> ContainerArgsDict:
    """Runs a script in the namespaces of the node."""
    return {
        "name": "prepare-node",
        "image": installer.node_image or installer.image,
        "command": ["nsenter", "-at", "1", "--", "sh", "-c", "\n".join(installer.script)],
        "resources": {"requests": {"cpu": "10m"}},
        "security_context": {"privileged": True},
    }


def _injecting(image: str) -> PodSpecArgsDict:
    mounts = (
        HostMount(name="dev", host="/dev", path="/dev"),
        HostMount(name="nri", host="/var/run/nri", path="/var/run/nri"),
    )
    inject: ContainerArgsDict = {
        "name": INJECTOR,
        "image": image,
        "resources": {"requests": {"cpu": "150m"}},
        "security_context": {"privileged": True},
        "volume_mounts": host_mounts(mounts),
    }
    return node_pod([inject], _host_paths(mounts))
