"""Locked memory for containers on AKS nodes with InfiniBand, and the module for GPUDirect RDMA."""

from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, PodSpecArgsDict

from ...conventions import DO_NOT_AWAIT
from ...pods import on_pools

NAME: Final = "gpu-tenancy-memory-lock"
IMAGE: Final = (
    "mcr.microsoft.com/mirror/docker/library/ubuntu:24.04"
    "@sha256:c35e29c9450151419d9448b0fd75374fec4fff364a27f176fb458d472dfc9e54"
)
"""As https://github.com/Azure/azure-container-networking pins it for its own image (read on 2026-11-22)."""
_SCRIPT: Final = """
while true; do
  for process in $(pidof containerd); do
    prlimit --pid "$process" --memlock=unlimited:unlimited
  done
  if [ -d /sys/module/nvidia ] && [ ! -d /sys/module/nvidia_peermem ]; then
    modprobe nvidia-peermem || echo "nvidia-peermem cannot be loaded yet"
  fi
  sleep 60
done
"""


class MemoryLock(pulumi.ComponentResource):
    """A DaemonSet that lets containers on the nodes of some pools lock memory without limit.

    InfiniBand locks the memory that it sends from. A container inherits its limit from containerd, 8 MiB by systemd's
    default, and AKS has no setting for it. Otherwise each pod would need the capability IPC_LOCK
    (https://github.com/Azure/aks-rdma-infiniband/blob/main/tests/scenarios/k8s/values.yaml), which the Pod Security
    Standard of the teams' namespaces rejects. The limit of a running containerd is raised, which no container notices;
    it is raised again after containerd restarts.

    It also loads `nvidia-peermem`, without which NCCL copies through the memory of the host: AKS installs its managed
    driver, but does not load this module, which needs the network driver of the Network Operator first
    (https://azure.github.io/aks-rdma-infiniband/configurations/gpu-drivers, read 2026-11-24). With `driver: operator`
    the GPU Operator has loaded it already. The pods are privileged and run in `kube-system`.

    Example:
        >>> MemoryLock("cluster-memory-lock", ["a100"])
    """

    def __init__(self, name: str, pools: Sequence[str], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:clouds:AksMemoryLock", name, {}, opts)
        labels = {"app.kubernetes.io/name": NAME}
        self.daemon_set = DaemonSet(
            f"{name}-daemonset",
            metadata={"name": NAME, "namespace": "kube-system", "labels": labels, "annotations": DO_NOT_AWAIT},
            spec={
                "selector": {"match_labels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod(pools)},
            },
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def _pod(pools: Sequence[str]) -> PodSpecArgsDict:
    raise_limit: ContainerArgsDict = {
        "name": "raise-limit",
        "image": IMAGE,
        # In the namespaces of the node, which has the tools.
        "command": ["nsenter", "-at", "1", "--", "sh", "-c", _SCRIPT],
        "resources": {"requests": {"cpu": "5m", "memory": "10Mi"}},
        "security_context": {"privileged": True},
    }
    return {
        "priority_class_name": "system-node-critical",
        "affinity": {"node_affinity": on_pools(pools)},
        "tolerations": [{"operator": "Exists"}],
        "host_pid": True,
        "automount_service_account_token": False,
        "containers": [raise_limit],
    }
