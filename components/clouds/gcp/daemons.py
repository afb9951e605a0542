"""DaemonSets that set up GKE nodes, such as Google's driver installer: privileged pods in `kube-system`."""

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, NodeAffinityArgsDict, PodSpecArgsDict

from ...conventions import DO_NOT_AWAIT
from ...pods import on_nodes

PAUSE: Final[ContainerArgsDict] = {
    "name": "pause",
    "image": "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830",
    "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
    "security_context": {"allow_privilege_escalation": False},
}
"""Keeps a pod whose init containers have done all of its work."""


def node_pod(
    containers: Sequence[ContainerArgsDict],
    host_paths: Mapping[str, str],
    init_containers: Sequence[ContainerArgsDict] = (),
) -> PodSpecArgsDict:
    """A pod on every node that its DaemonSet selects, with the node's network, processes and paths."""
    pod: PodSpecArgsDict = {
        "priority_class_name": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "host_network": True,
        "host_pid": True,
        "automount_service_account_token": False,
        "volumes": [{"name": name, "host_path": {"path": path}} for name, path in host_paths.items()],
        "containers": list(containers),
    }
    if init_containers:
        pod["init_containers"] = list(init_containers)
    return pod


def node_daemon_set(
    name: str, called: str, pod: PodSpecArgsDict, nodes: NodeAffinityArgsDict, opts: pulumi.ResourceOptions
) -> DaemonSet:
    """A DaemonSet on some nodes; a deployment does not wait for it."""
    labels = {"k8s-app": called}
    return DaemonSet(
        name,
        metadata={"name": called, "namespace": "kube-system", "labels": labels, "annotations": DO_NOT_AWAIT},
        spec={
            "selector": {"match_labels": labels},
            "update_strategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {**pod, "affinity": {"node_affinity": nodes}},
            },
        },
        opts=opts,
    )


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
