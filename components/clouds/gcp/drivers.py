"""Google's driver installer, for pools that use the device plugin of the GPU Operator."""

from typing import Final

import pulumi
from pulumi_kubernetes.core.v1 import ContainerArgsDict

from ...pods import on_nodes
from .daemons import PAUSE, node_daemon_set, node_pod

NAME: Final = "nvidia-driver-installer"
NO_PLUGIN_LABEL: Final = "gke-no-default-nvidia-gpu-device-plugin"
"""Label of nodes that use the device plugin of the GPU Operator."""

_HOST: Final = "/home/kubernetes/bin/nvidia"
_MOUNTS: Final = {
    "dev": ("/dev", "/dev"),
    "nvidia": (_HOST, "/usr/local/nvidia"),
    "vulkan": (f"{_HOST}/vulkan/icd.d", "/etc/vulkan/icd.d"),
    "root": ("/", "/root"),
    "cos-tools": ("/var/lib/cos-tools", "/build/cos-tools"),
}
"""Paths on the node and in the installer's container, by volume name."""
_PLACES: Final = {
    "NVIDIA_INSTALL_DIR_HOST": _HOST,
    "NVIDIA_INSTALL_DIR_CONTAINER": "/usr/local/nvidia",
    "VULKAN_ICD_DIR_HOST": f"{_HOST}/vulkan/icd.d",
    "VULKAN_ICD_DIR_CONTAINER": "/etc/vulkan/icd.d",
    "ROOT_MOUNT_DIR": "/root",
    "COS_TOOLS_DIR_HOST": "/var/lib/cos-tools",
    "COS_TOOLS_DIR_CONTAINER": "/build/cos-tools",
}


class DriverInstaller(pulumi.ComponentResource):
    """A DaemonSet that installs NVIDIA's driver on Container-Optimized OS nodes if GKE's own installation is disabled.

    The installer is part of the node image (`cos-nvidia-installer:fixed`, never pulled), so driver and kernel always
    match. It is privileged and runs in `kube-system`, where no quota applies. The device plugin is that of the GPU
    Operator, which is not installed here.

    https://github.com/GoogleCloudPlatform/container-engine-accelerators/blob/master/nvidia-driver-installer/cos/daemonset-preloaded.yaml
    and https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-operator.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:clouds:GkeDriverInstaller", name, {}, opts)
        pod = node_pod([PAUSE], {volume: host for volume, (host, _) in _MOUNTS.items()}, [_installer()])
        # Without GKE's driver installation and without GKE's device plugin.
        nodes = on_nodes(
            {"key": "cloud.google.com/gke-accelerator", "operator": "Exists"},
            {"key": "cloud.google.com/gke-gpu-driver-version", "operator": "DoesNotExist"},
            {"key": NO_PLUGIN_LABEL, "operator": "In", "values": ["true"]},
        )
        self.daemon_set = node_daemon_set(f"{name}-daemonset", NAME, pod, nodes, pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


def _installer() -> ContainerArgsDict:
    return {
        "name": NAME,
        "image": "cos-nvidia-installer:fixed",
        "image_pull_policy": "Never",
        # A loaded driver stays until the node is deleted, and a second installation fails while it is loaded.
        "command": ["bash", "-c", "lsmod | grep -q '^nvidia ' || exec /cos-gpu-installer install"],
        "resources": {"requests": {"cpu": "150m"}},
        "security_context": {"privileged": True},
        "env": [{"name": key, "value": value} for key, value in _PLACES.items()],
        "volume_mounts": [{"name": name, "mount_path": inside} for name, (_, inside) in _MOUNTS.items()],
    }
