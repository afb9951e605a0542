"""The pod of a workload, the same whoever makes it."""

from typing import Final

from pulumi_kubernetes.core.v1 import (
    ContainerArgsDict,
    EnvVarArgsDict,
    PodSpecArgsDict,
    ResourceRequirementsArgsDict,
    TolerationArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)

from gpu_tenancy.model.plan.supply import GPU_TAINT_VALUE, NodeTaint
from gpu_tenancy.model.plan.workloads import PodPlan
from gpu_tenancy.model.quantity import format_amounts, format_bytes


def tolerations(taints: tuple[NodeTaint, ...]) -> list[TolerationArgsDict]:
    """A toleration for each taint; of a GPU's whatever its value, which an existing cluster may have set otherwise."""
    return [
        {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        if taint.value in {"", GPU_TAINT_VALUE}
        else {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in taints
    ]


def resources(pod: PodPlan) -> ResourceRequirementsArgsDict:
    """Requests and limits alike: extended resources must be, and equal cpu and memory keep the pod's word."""
    return {"requests": format_amounts(pod.amounts), "limits": format_amounts(pod.amounts)}


def environment(pod: PodPlan) -> list[EnvVarArgsDict]:
    """The environment variables, in a stable order."""
    return [{"name": name, "value": value} for name, value in sorted(pod.env.items())]


def container(pod: PodPlan, name: str) -> ContainerArgsDict:
    """The one container of a workload's pod, without rights that no training or serving needs."""
    found: ContainerArgsDict = {
        "name": name,
        "image": pod.image,
        "resources": resources(pod),
        "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if pod.command:
        found["command"] = list(pod.command)
    if pod.args:
        found["args"] = list(pod.args)
    if pod.env:
        found["env"] = environment(pod)
    if pod.shared_memory:
        found["volume_mounts"] = shared_memory_mounts(pod)
    return found


_SHARED_MEMORY: Final = "shared-memory"


def shared_memory_mounts(pod: PodPlan) -> list[VolumeMountArgsDict]:
    """Where a container has the memory through which GPUs exchange data; nothing where the plan gives it none."""
    return [{"name": _SHARED_MEMORY, "mount_path": "/dev/shm"}] if pod.shared_memory else []  # noqa: S108 - of the pod


def shared_memory_volumes(pod: PodPlan) -> list[VolumeArgsDict]:
    """The volume of it, which counts as the container's memory."""
    if not pod.shared_memory:
        return []
    size = format_bytes(pod.shared_memory)
    return [{"name": _SHARED_MEMORY, "empty_dir": {"medium": "Memory", "size_limit": size}}]


def pod_spec(pod: PodPlan, own: ContainerArgsDict) -> PodSpecArgsDict:
    """A pod around its container: on nodes of its GPU's model alone, at its priority, without an API token."""
    found: PodSpecArgsDict = {
        "containers": [own],
        "node_selector": pod.node_labels,
        "tolerations": tolerations(pod.tolerated),
        "automount_service_account_token": False,
        "service_account_name": "workload",
        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
    }
    if pod.priority:
        found["priority_class_name"] = pod.priority
    if pod.shared_memory:
        found["volumes"] = shared_memory_volumes(pod)
    return found
