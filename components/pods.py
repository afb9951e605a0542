"""Pod specs of workloads, shared by servers, jobs and gangs."""

from collections.abc import Iterable, Mapping
from typing import Final

import pulumi
from pulumi_kubernetes.core.v1 import (
    AffinityArgsDict,
    CapabilitiesArgsDict,
    ContainerArgsDict,
    EnvVarArgsDict,
    NodeAffinityArgsDict,
    NodeSelectorRequirementArgsDict,
    PodResourceClaimArgsDict,
    PodSecurityContextArgsDict,
    PodSpecArgsDict,
    ResourceRequirementsArgsDict,
    SecurityContextArgsDict,
    TolerationArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.model.catalogue.fabrics import HostMount
from gpu_tenancy.model.names import ACCOUNT
from gpu_tenancy.model.plan.fabric import PodFabric
from gpu_tenancy.model.plan.mounts import Mount
from gpu_tenancy.model.plan.pools import GPU_TAINT_VALUE, POOL_LABEL, NodeTaint
from gpu_tenancy.model.plan.workloads import PodPlan

from .conventions import STAYS
from .references import file_mounts, file_volumes, pull_secrets, variable_sources, variables


def tolerations(taints: tuple[NodeTaint, ...]) -> list[TolerationArgsDict]:
    """A toleration for each taint; for GPU taints with any value, because existing clusters use different ones."""
    return [
        {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        if taint.value in {"", GPU_TAINT_VALUE}
        else {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in taints
    ]


def on_pools(pools: Iterable[str]) -> NodeAffinityArgsDict:
    """The affinity of pods that run only on the nodes of some pools."""
    return on_nodes({"key": POOL_LABEL, "operator": "In", "values": list(pools)})


def on_nodes(*labels: NodeSelectorRequirementArgsDict) -> NodeAffinityArgsDict:
    """The affinity of pods that run only on nodes with all of these labels."""
    return {
        "required_during_scheduling_ignored_during_execution": {
            "node_selector_terms": [{"match_expressions": list(labels)}]
        }
    }


def near(labels: Iterable[str]) -> AffinityArgsDict:
    """The affinity of pods that prefer nodes with these labels: those that have caches of their datasets.

    Fluid's webhook would add the same to pods with a label, but its failure would reject them.
    """
    return {
        "node_affinity": {
            "preferred_during_scheduling_ignored_during_execution": [
                {
                    "weight": 100,
                    "preference": {"match_expressions": [{"key": label, "operator": "In", "values": ["true"]}]},
                }
                for label in labels
            ]
        }
    }


def resources(pod: PodPlan) -> ResourceRequirementsArgsDict:
    """Equal requests and limits: extended resources require this, and the pod's QoS class is Guaranteed."""
    amounts = {**pod.amounts, **(pod.fabric.devices if pod.fabric else {})}
    needed: ResourceRequirementsArgsDict = {"requests": format_amounts(amounts), "limits": format_amounts(amounts)}
    if pod.claims:
        needed["claims"] = [{"name": name} for name in pod.claims]
    return needed


def device_claims(pod: PodPlan) -> list[PodResourceClaimArgsDict]:
    """The claims of a pod: of the channel of its job's ComputeDomain, and of interfaces; empty without."""
    return [{"name": name, "resource_claim_template_name": template} for name, template in pod.claims.items()]


def environment(pod: PodPlan) -> list[EnvVarArgsDict]:
    """The environment variables, in a stable order: the fabric's, and those of the stack, which win."""
    referring = variables(pod.references)
    texts = {**(pod.fabric.env if pod.fabric else {}), **pod.env}
    return sorted(
        [*_variables({name: text for name, text in texts.items() if name not in referring}), *referring.values()],
        key=lambda variable: str(variable["name"]),
    )


def _variables(values: Mapping[str, str]) -> list[EnvVarArgsDict]:
    return [{"name": name, "value": value} for name, value in sorted(values.items())]


def annotations(pod: PodPlan) -> dict[str, str]:
    """Annotations of the pod: its place in the network, its devices, sidecars of its datasets, and that it stays."""
    devices: Mapping[str, str] = pod.fabric.annotations if pod.fabric else {}
    return {**pod.topology, **devices, **pod.volumes.annotations, **(STAYS if pod.stays else {})}


def template_metadata(
    pod: PodPlan, labels: Mapping[str, str], more: Mapping[str, pulumi.Input[str]] | None = None
) -> ObjectMetaArgsDict:
    """Metadata of a pod template, with `more` annotations."""
    metadata: ObjectMetaArgsDict = {"labels": dict(labels)}
    if of_pod := {**annotations(pod), **(more or {})}:
        metadata["annotations"] = of_pod
    return metadata


def rights(capabilities: tuple[str, ...] = ()) -> SecurityContextArgsDict:
    """The security context of a container: no privilege escalation, and no capabilities but these."""
    added: CapabilitiesArgsDict = {"add": list(capabilities)} if capabilities else {}
    return {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"], **added}}


def container_rights(pod: PodPlan) -> SecurityContextArgsDict:
    """The security context of a workload's container: without capabilities, unless its fabric needs one."""
    return rights(pod.fabric.capabilities if pod.fabric else ())


def container(pod: PodPlan, name: str) -> ContainerArgsDict:
    """The container of a workload's pod."""
    args: ContainerArgsDict = {
        "name": name,
        "image": pod.image,
        "resources": resources(pod),
        "security_context": container_rights(pod),
    }
    if pod.command:
        args["command"] = list(pod.command)
    if pod.args:
        args["args"] = list(pod.args)
    if of_container := environment(pod):
        args["env"] = of_container
    if sources := variable_sources(pod.references):
        args["env_from"] = sources
    if of_pod := mounts(pod):
        args["volume_mounts"] = of_pod
    if pod.ends:
        args["lifecycle"] = {"pre_stop": {"sleep": {"seconds": pod.ends[0]}}}
    return args


_SHARED_MEMORY: Final = "shared-memory"
_SCRATCH: Final = "scratch"
_MODEL: Final = "model"


def mounts(pod: PodPlan) -> list[VolumeMountArgsDict]:
    """The mounts of a workload's container: /dev/shm, its data and files, and the libraries and devices of its fabric.

    Processes on several GPUs exchange data through /dev/shm.
    """
    of_memory: list[VolumeMountArgsDict] = (
        [{"name": _SHARED_MEMORY, "mount_path": "/dev/shm"}] if pod.shared_memory else []  # noqa: S108 - of the pod
    )
    of_claims: list[VolumeMountArgsDict] = [_of_claim(mount) for mount in pod.volumes.mounts]
    if pod.volumes.model:
        of_claims.append({"name": _MODEL, "mount_path": pod.volumes.model[1], "read_only": True})
    scratch = pod.volumes.scratch
    of_node: list[VolumeMountArgsDict] = [{"name": _SCRATCH, "mount_path": scratch.path}] if scratch else []
    of_files = file_mounts(pod.references)
    return [*of_memory, *of_claims, *of_node, *of_files, *host_mounts(pod.fabric.mounts if pod.fabric else ())]


def _of_claim(mount: Mount) -> VolumeMountArgsDict:
    args: VolumeMountArgsDict = {"name": mount.volume, "mount_path": mount.path, "read_only": mount.read_only}
    if mount.cached:
        # If Fluid's mount of the node fails and is mounted again, running pods see it:
        # https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/pkg/webhook/plugins/mountpropagationinjector
        args["mount_propagation"] = "HostToContainer"
    return args


def host_mounts(paths: Iterable[HostMount]) -> list[VolumeMountArgsDict]:
    """The mounts of a container for paths of the node."""
    return [{"name": mount.name, "mount_path": mount.path} for mount in paths]


def volumes(pod: PodPlan) -> list[VolumeArgsDict]:
    """The volumes of a pod. /dev/shm counts as the container's memory.

    Scratch space is an emptyDir: on the node's local disks where these hold the ephemeral storage of pods. The pod does
    not request it, because no quota of Kueue has ephemeral storage, and Kueue would not admit the pod.
    """
    size = format_bytes(pod.shared_memory)
    of_memory: list[VolumeArgsDict] = (
        [{"name": _SHARED_MEMORY, "empty_dir": {"medium": "Memory", "size_limit": size}}] if pod.shared_memory else []
    )
    of_claims: list[VolumeArgsDict] = [
        {"name": mount.volume, "persistent_volume_claim": {"claim_name": mount.claim, "read_only": mount.read_only}}
        for mount in pod.volumes.mounts
    ]
    if pod.volumes.model:
        of_claims.append({"name": _MODEL, "image": {"reference": pod.volumes.model[0]}})
    scratch = pod.volumes.scratch
    of_node: list[VolumeArgsDict] = (
        [{"name": _SCRATCH, "empty_dir": {"size_limit": format_bytes(scratch.size)}}] if scratch else []
    )
    of_files = file_volumes(pod.references)
    return [*of_memory, *of_claims, *of_node, *of_files, *(host_volumes(pod.fabric) if pod.fabric else [])]


def host_volumes(fabric: PodFabric) -> list[VolumeArgsDict]:
    """The paths of the node that the containers of a pod mount for its fabric."""
    return [{"name": mount.name, "host_path": {"path": mount.host}} for mount in fabric.host_mounts]


def sidecars(fabric: PodFabric | None) -> list[ContainerArgsDict]:
    """The daemon of a fabric as a sidecar: it starts before the workload's container and ends after it.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    if fabric is None or fabric.daemon is None:
        return []
    daemon = fabric.daemon
    return [
        {
            "name": daemon.name,
            "image": daemon.image,
            "restart_policy": "Always",
            "command": list(daemon.command),
            "env": _variables(daemon.env),
            "security_context": rights(daemon.capabilities),
            "volume_mounts": host_mounts(daemon.mounts),
        }
    ]


_NOBODY: Final = 65532
POD_SECURITY: Final[PodSecurityContextArgsDict] = {"seccomp_profile": {"type": "RuntimeDefault"}}


def pod_security(pod: PodPlan) -> PodSecurityContextArgsDict:
    """The security context of a pod: with the user of its engine, and without root where the namespace rejects it.

    The root of its storage is given to its group, once for each volume.

    The files in it are not touched, or each start would visit all of them:
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
    """
    security: PodSecurityContextArgsDict = {**POD_SECURITY}
    if pod.engine or pod.non_root:
        security["run_as_non_root"] = True
    if pod.engine:
        security["run_as_user"] = pod.engine.user
        security["run_as_group"] = pod.engine.group
    if pod.volumes.group is not None:
        security["fs_group"] = pod.volumes.group
        security["fs_group_change_policy"] = "OnRootMismatch"
    return security


def pod_spec(pod: PodPlan, workload_container: ContainerArgsDict) -> PodSpecArgsDict:
    """A pod with one container, restricted to nodes with its GPU model, with its priority and without an API token.

    What is empty is left out: Kueue removes empty fields from a job that it starts, and they would differ.
    """
    spec: PodSpecArgsDict = {
        "containers": [workload_container],
        "automount_service_account_token": False,
        "service_account_name": ACCOUNT,
        "security_context": pod_security(pod),
    }
    if pod.node_labels:
        spec["node_selector"] = pod.node_labels
    if tolerated := tolerations(pod.tolerated):
        spec["tolerations"] = tolerated
    if pod.caches:
        spec["affinity"] = near(pod.caches)
    if of_claims := device_claims(pod):
        spec["resource_claims"] = of_claims
    if pod.priority:
        spec["priority_class_name"] = pod.priority
    if of_pod := volumes(pod):
        spec["volumes"] = of_pod
    if of_fabric := sidecars(pod.fabric):
        spec["init_containers"] = of_fabric
    if pulling := pull_secrets(pod.references):
        spec["image_pull_secrets"] = pulling
    _end_as_server(spec, pod)
    return spec


def _end_as_server(spec: PodSpecArgsDict, pod: PodPlan) -> None:
    """Adds what a pod has of a server that drains, or of an engine."""
    if pod.ends:
        spec["termination_grace_period_seconds"] = pod.ends[1]
    if pod.engine:
        # Variables of Services could have names that it reads: VLLM_PORT, for a Service named vllm.
        spec["enable_service_links"] = False


def kubectl_pod(
    account: str, restart: str, own: ContainerArgsDict, memory: str, config_map: tuple[str, str] | None = None
) -> PodSpecArgsDict:
    """A pod of the platform itself that runs kubectl as nobody and writes to nothing but `/tmp`.

    Its container has at most so much memory, and a ConfigMap in a folder: `("kueue-gate", "/gate")`.
    """
    mounted: list[VolumeMountArgsDict] = [{"name": _SCRATCH, "mount_path": "/tmp"}]  # noqa: S108 - of the pod
    used: list[VolumeArgsDict] = [{"name": _SCRATCH, "empty_dir": {}}]
    if config_map:
        mounted.insert(0, {"name": "object", "mount_path": config_map[1]})
        used.insert(0, {"name": "object", "config_map": {"name": config_map[0]}})
    return {
        "service_account_name": account,
        "restart_policy": restart,
        "security_context": {**POD_SECURITY, "run_as_non_root": True, "run_as_user": _NOBODY},
        "containers": [
            {
                **own,
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": memory}},
                "security_context": {**rights(), "read_only_root_filesystem": True},
                "volume_mounts": mounted,
            }
        ],
        "volumes": used,
    }
