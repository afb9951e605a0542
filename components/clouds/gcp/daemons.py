"""Setup of GKE nodes: Google's driver installer, and networks, NCCL's plugin and device files for GPUDirect."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, NodeAffinityArgsDict, PodSpecArgsDict, VolumeArgsDict
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.model.catalogue.pods import FabricRow, HostMount, Installer, fabrics
from gpu_tenancy.model.manifests.pods import host_mounts
from gpu_tenancy.model.plan.cluster import NodePool
from gpu_tenancy.model.plan.fabric import network_name
from gpu_tenancy.model.spec.clouds.gcp import FabricNetwork, GcpCluster
from gpu_tenancy.model.yaml import read_table

from ...objects import Component, Options, node_daemon_set, on_nodes, on_pools

PAUSE: Final[ContainerArgsDict] = {  # keeps a pod whose init containers have done all of its work
    "name": "pause",
    "image": "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830",
    "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
    "security_context": {"allow_privilege_escalation": False},
}


def _node_daemon_set(
    name: str, called: str, pod: PodSpecArgsDict, nodes: NodeAffinityArgsDict, opts: ResourceOptions
) -> DaemonSet:
    on_host: PodSpecArgsDict = {"host_network": True, **pod, "affinity": {"node_affinity": nodes}}
    return node_daemon_set(name, ("k8s-app", called), on_host, opts, rolling=True)


def _host_paths(paths: Mapping[str, str]) -> list[VolumeArgsDict]:
    return [{"name": name, "host_path": {"path": path}} for name, path in paths.items()]


NAME: Final = "nvidia-driver-installer"
NO_PLUGIN_LABEL: Final = "gke-no-default-nvidia-gpu-device-plugin"
"""Label of nodes that use the device plugin of the GPU Operator."""


class DriverInstaller(Component):
    """A DaemonSet that installs NVIDIA's driver on Container-Optimized OS nodes if GKE's own installation is disabled.

    The installer is in the node image (`cos-nvidia-installer:fixed`, never pulled), so driver and kernel match. It is
    privileged and runs in `kube-system`, where no quota applies. The GPU Operator, not installed here, has the device
    plugin.
    """

    # https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-operator

    def __init__(self, name: str, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:GkeDriverInstaller", name, opts)
        table = read_table(Path(__file__).with_suffix(".yaml"))
        mounts: Mapping[str, tuple[str, str]] = table["mounts"]
        variables: Mapping[str, str] = table["variables"]
        installer: ContainerArgsDict = {
            "name": NAME,
            "image": "cos-nvidia-installer:fixed",
            "image_pull_policy": "Never",
            # A loaded driver stays until the node is deleted, and a second installation fails while it is loaded.
            "command": ["bash", "-c", "lsmod | grep -q '^nvidia ' || exec /cos-gpu-installer install"],
            "resources": {"requests": {"cpu": "150m"}},
            "security_context": {"privileged": True},
            "env": [{"name": key, "value": value} for key, value in variables.items()],
            "volume_mounts": [{"name": volume, "mount_path": inside} for volume, (_, inside) in mounts.items()],
        }
        pod: PodSpecArgsDict = {
            "volumes": _host_paths({volume: host for volume, (host, _) in mounts.items()}),
            "containers": [PAUSE],
            "init_containers": [installer],
        }
        # Without GKE's driver installation and without GKE's device plugin.
        nodes = on_nodes(
            {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"},
            {"key": "cloud.google.com/gke-gpu-driver-version", "operator": "DoesNotExist"},
            {"key": NO_PLUGIN_LABEL, "operator": "In", "values": ["true"]},
        )
        _node_daemon_set(f"{name}-daemonset", NAME, pod, nodes, self.own)


INJECTOR: Final = "device-injector"
_INJECTED: Final = (
    HostMount(name="dev", host="/dev", path="/dev"),
    HostMount(name="nri", host="/var/run/nri", path="/var/run/nri"),
)
_NETWORKING: Final = "networking.gke.io"


class GpuFabric(Component):
    """The networks, libraries and devices that GPUDirect needs besides the interfaces of the nodes.

    - For each additional network of pools without DRANET a `GKENetworkParamSet` and a `Network`, named as its
      subnetwork, to which pods' annotations refer.
    - For each fabric, on its pools, a DaemonSet that installs NCCL's plugin; for TCPX and TCPXO also the NRI device
      injector, which gives a pod's daemon access to another container's GPUs. They are privileged and run in
      `kube-system`, where no quota applies.
    """

    # https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx and
    # https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom.

    def __init__(self, name: str, pools: Sequence[NodePool], section: GcpCluster, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:clouds:GkeGpuFabric", name, opts)
        by_fabric = grouped((str(pool.fabric.fabric), pool) for pool in pools if pool.fabric and pool.fabric.fabric)
        for network, mode in _networks(by_fabric, section):
            self._network(f"{name}-{network_name(network)}", network, mode)
        for kind, of_fabric in by_fabric.items():
            for installer, alike in _installers(fabrics()[kind].installer, of_fabric):
                self._daemon_set(f"{name}-{installer.name}", installer.name, _installing(installer), alike)
        injectors = {kind: row.injector for kind in by_fabric if (row := fabrics()[kind]).injector}
        if injectors:
            injected = [pool for kind in injectors for pool in by_fabric[kind]]
            volumes, inject = _mounting(INJECTOR, str(next(iter(injectors.values()))), _INJECTED)
            self._daemon_set(f"{name}-{INJECTOR}", INJECTOR, {"volumes": volumes, "containers": [inject]}, injected)

    def _network(self, name: str, network: FabricNetwork, mode: str) -> None:
        version, kind = f"{_NETWORKING}/v1", "GKENetworkParamSet"
        metadata: ObjectMetaArgsDict = {"name": network_name(network)}
        spec: dict[str, Any] = {"vpc": network.network, "vpcSubnet": network.subnetwork, "deviceMode": mode}
        parameters = CustomResource(f"{name}-parameters", version, kind, metadata=metadata, spec=spec, opts=self.own)
        spec = {"type": "Device", "parametersRef": {"group": _NETWORKING, "kind": kind, "name": network_name(network)}}
        CustomResource(f"{name}-network", version, "Network", metadata=metadata, spec=spec, opts=self.after(parameters))

    def _daemon_set(self, name: str, called: str, pod: PodSpecArgsDict, pools: Sequence[NodePool]) -> None:
        _node_daemon_set(name, called, pod, on_pools(pool.name for pool in pools), self.own)


def _networks(by_fabric: dict[str, list[NodePool]], section: GcpCluster) -> list[tuple[FabricNetwork, str]]:
    modes: dict[str, tuple[FabricNetwork, str]] = {}
    for kind, pools in by_fabric.items():
        row: FabricRow = fabrics()[kind]
        for pool in pools:
            networks = section.fabric_networks_for(kind, pool.fabric.interfaces if pool.fabric else 0)
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
    steps: list[ContainerArgsDict] = []
    if installer.script:  # in the namespaces of the node
        steps.append(
            {
                "name": "prepare-node",
                "image": installer.node_image or installer.image,
                "command": ["nsenter", "-at", "1", "--", "sh", "-c", "\n".join(installer.script)],
                "resources": {"requests": {"cpu": "10m"}},
                "security_context": {"privileged": True},
            }
        )
    command = ["/bin/sh", "-c", "\n".join(installer.command)]
    volumes, install = _mounting(installer.name, installer.image, installer.mounts)
    return {"volumes": volumes, "containers": [PAUSE], "init_containers": [*steps, {**install, "command": command}]}


def _mounting(name: str, image: str, mounts: Sequence[HostMount]) -> tuple[list[VolumeArgsDict], ContainerArgsDict]:
    container: ContainerArgsDict = {
        "name": name,
        "image": image,
        "resources": {"requests": {"cpu": "150m"}},
        "security_context": {"privileged": True},
        "volume_mounts": host_mounts(mounts),
    }
    return _host_paths({mount.name: mount.host for mount in mounts}), container
