"""Pod specs of workloads, shared by servers, jobs and gangs."""

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
    """A toleration for each taint; for GPU taints with any value, because existing clusters use different ones."""
    return [
        {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        if taint.value in {"", GPU_TAINT_VALUE}
        else {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in taints
    ]


def resources(pod: PodPlan) -> ResourceRequirementsArgsDict:
    """Equal requests and limits: extended resources require this, and the pod's QoS class is Guaranteed."""
    return {"requests": format_amounts(pod.amounts), "limits": format_amounts(pod.amounts)}


def environment(pod: PodPlan) -> list[EnvVarArgsDict]:
    """The environment variables, in a stable order."""
    return [{"name": name, "value": value} for name, value in sorted(pod.env.items())]


def container(pod: PodPlan, name: str) -> ContainerArgsDict:
    """The container of a workload's pod, without privilege escalation and without capabilities."""
    args: ContainerArgsDict = {
        "name": name,
        "image": pod.image,
        "resources": resources(pod),
        "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if pod.command:
        args["command"] = list(pod.command)
    if pod.args:
        args["args"] = list(pod.args)
    if pod.env:
        args["env"] = environment(pod)
    if pod.shared_memory:
        args["volume_mounts"] = shared_memory_mounts(pod)
    return args


_SHARED_MEMORY: Final = "shared-memory"


def shared_memory_mounts(pod: PodPlan) -> list[VolumeMountArgsDict]:
    """The mount of /dev/shm, through which processes on several GPUs exchange data; empty if the plan has none."""
    return [{"name": _SHARED_MEMORY, "mount_path": "/dev/shm"}] if pod.shared_memory else []  # noqa: S108 - of the pod


def shared_memory_volumes(pod: PodPlan) -> list[VolumeArgsDict]:
    """The volume of /dev/shm; it counts as the container's memory."""
    if not pod.shared_memory:
        return []
    size = format_bytes(pod.shared_memory)
    return [{"name": _SHARED_MEMORY, "empty_dir": {"medium": "Memory", "size_limit": size}}]


def pod_spec(pod: PodPlan, workload_container: ContainerArgsDict) -> PodSpecArgsDict:
    """A pod with one container, restricted to nodes with its GPU model, with its priority and without an API token."""
    spec: PodSpecArgsDict = {
        "containers": [workload_container],
        "node_selector": pod.node_labels,
        "tolerations": tolerations(pod.tolerated),
        "automount_service_account_token": False,
        "service_account_name": "workload",
        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
    }
    if pod.priority:
        spec["priority_class_name"] = pod.priority
    if pod.shared_memory:
        spec["volumes"] = shared_memory_volumes(pod)
    return spec
