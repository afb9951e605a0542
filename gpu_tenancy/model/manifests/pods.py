"""Pods of workloads, shared by servers, jobs and gangs, and the labels of workloads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.model.catalogue.pods import HostMount
from gpu_tenancy.model.names import PRIORITY_LABEL, QUEUE_LABEL, USER
from gpu_tenancy.model.plan.fabric import PodFabric
from gpu_tenancy.model.plan.pools import GPU_TAINT_VALUE, NodeTaint
from gpu_tenancy.model.plan.secrets import References
from gpu_tenancy.model.plan.workloads import JobPlan, PodPlan
from gpu_tenancy.model.spec.secrets import Variable

NAME: Final = "app.kubernetes.io/name"  # label by which a workload's Service and other objects select its pods
PART_OF: Final = "app.kubernetes.io/part-of"
"""Label by which the Service of a server with a burst selects the pods of both."""
COMPONENT: Final = "app.kubernetes.io/component"
"""Label of the pods of a group with their role, by which a server's Service selects the leaders:
https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/."""
VOLCANO: Final = "volcano"
STAYS: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
"""Annotations of pods by which node autoscalers do not evict them: Cluster Autoscaler (also on GKE and AKS) and
Karpenter. They stop no preemption by Kueue, no upgrade of a node and no repair (read 2026-11-24):
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node,
https://karpenter.sh/docs/concepts/disruption/#pod-level-controls."""
_RUN_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label after which Kueue stops a workload, counted over all of its admissions:
https://kueue.sigs.k8s.io/docs/concepts/workload/#maximum-execution-time."""
MARGIN: Final = 60  # seconds by which a job's own deadline, which tells users why it failed, comes before Kueue's


def labels_of(job: JobPlan) -> dict[str, str]:
    """Labels of a job in a queue. Its own deadline begins again after a preemption or restart, Kueue's does not."""
    end = {_RUN_TIME: str(job.deadline + MARGIN)} if job.deadline is not None else {}
    whose = {USER: job.user} if job.user else {}
    return {**pod_labels(job), **queued(job.queue, job.pod.priority), **whose, **end}


def pod_labels(job: JobPlan) -> dict[str, str]:
    """Labels of the pods of a job; no name for a user's job, because a server's Service could select its pods."""
    return {} if job.user is not None else {NAME: job.name}


def queued(queue: str, priority: str | None) -> dict[str, str]:
    """Labels of a workload that is submitted to a queue."""
    return {QUEUE_LABEL: queue, **({PRIORITY_LABEL: priority} if priority else {})}


def tolerations(taints: Iterable[NodeTaint]) -> list[dict[str, str]]:
    """A toleration for each taint; for GPU taints with any value, because existing clusters use different ones."""
    return [
        {"key": taint.key, "operator": "Exists", "effect": taint.effect}
        if taint.value in {"", GPU_TAINT_VALUE}
        else {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in taints
    ]


def near(labels: Iterable[str]) -> dict[str, Any]:
    """Prefers nodes with caches of a pod's datasets. Fluid's webhook would add it, but its failure rejects pods."""
    expressions = [{"key": label, "operator": "In", "values": ["true"]} for label in labels]
    terms = [{"weight": 100, "preference": {"matchExpressions": [one]}} for one in expressions]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def resources(pod: PodPlan) -> dict[str, Any]:
    """Requests and limits, equal for GPUs and unless the stack has others; empty for namespace defaults."""
    amounts = {**pod.amounts, **(pod.fabric.devices if pod.fabric else {})}
    if not amounts:
        return {}
    needed: dict[str, Any] = {"requests": format_amounts(amounts), "limits": format_amounts({**amounts, **pod.limits})}
    if pod.claims:
        needed["claims"] = [{"name": name} for name in pod.claims]
    return needed


def device_claims(pod: PodPlan) -> list[dict[str, str]]:
    """Claims of the channel of the job's ComputeDomain, and of interfaces."""
    return [{"name": name, "resourceClaimTemplateName": template} for name, template in pod.claims.items()]


def environment(pod: PodPlan) -> list[dict[str, Any]]:
    """The environment variables in a stable order: the fabric's, then the stack's, which override them."""
    named = {name: {"value": text} for name, text in {**(pod.fabric.row.env if pod.fabric else {}), **pod.env}.items()}
    named |= {name: {"valueFrom": _source(variable)} for name, variable in pod.references.variables.items()}
    return [{"name": name, **value} for name, value in sorted(named.items())]


def _source(variable: Variable) -> dict[str, Any]:
    if variable.field:
        return {"fieldRef": {"fieldPath": variable.field}}
    kind = "secretKeyRef" if variable.secret else "configMapKeyRef"
    return {kind: {"name": variable.secret or variable.config_map, "key": variable.key}}


def annotations(pod: PodPlan) -> dict[str, str]:
    """Annotations of the pod: topology, devices, sidecars of datasets, and protection from node autoscalers."""
    devices: Mapping[str, str] = pod.fabric.annotations if pod.fabric else {}
    of_code = {ANNOTATION: pod.code} if pod.code else {}
    return {**pod.topology, **devices, **pod.volumes.annotations, **(STAYS if pod.stays else {}), **of_code}


def template_metadata(pod: PodPlan, labels: Mapping[str, str], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Metadata of a pod template; values of the annotations in `more` may be known only during the deployment."""
    fields = {"labels": dict(labels), "annotations": {**annotations(pod), **(more or {})}}
    return {key: value for key, value in fields.items() if value}


def rights(capabilities: tuple[str, ...] = ()) -> dict[str, Any]:
    """The security context of a container: no privilege escalation, and no capabilities but these."""
    added = {"add": list(capabilities)} if capabilities else {}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], **added}}


def container_rights(pod: PodPlan) -> dict[str, Any]:
    """The security context of a workload's container: without capabilities, unless its fabric needs one."""
    return rights(pod.fabric.row.capabilities if pod.fabric else ())


def command(pod: PodPlan) -> list[str]:
    """The command of a workload's container, which unpacks its code first; empty for the image's command."""
    return unpacking(pod.command) if pod.code else list(pod.command)


def container(pod: PodPlan, name: str) -> dict[str, Any]:
    """The container of a workload's pod."""
    fields = {
        "resources": resources(pod),
        "securityContext": container_rights(pod),
        "command": command(pod),
        "args": list(pod.args),
        "env": environment(pod),
        "envFrom": variable_sources(pod.references),
        "volumeMounts": mounts(pod),
        "lifecycle": {"preStop": {"sleep": {"seconds": pod.ends[0]}}} if pod.ends else {},
    }
    return {"name": name, "image": pod.image, **{key: value for key, value in fields.items() if value}}


_SHARED_MEMORY: Final = "shared-memory"
_SCRATCH: Final = "scratch"
_MODEL: Final = "model"


def mounts(pod: PodPlan) -> list[dict[str, Any]]:
    """Mounts of a container: /dev/shm (for data between GPUs), data, files, libraries and devices of its fabric."""
    of_memory = [{"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}] if pod.shared_memory != 0 else []  # noqa: S108 - of the pod
    of_claims: list[dict[str, Any]] = []
    for mount in pod.volumes.mounts:
        # If Fluid's mount of the node fails and is mounted again, running pods see it:
        # https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/pkg/webhook/plugins/mountpropagationinjector
        again = {"mountPropagation": "HostToContainer"} if mount.cached else {}
        of_claims.append({"name": mount.volume, "mountPath": mount.path, "readOnly": mount.read_only, **again})
    if pod.volumes.model:
        of_claims.append({"name": _MODEL, "mountPath": pod.volumes.model[1], "readOnly": True})
    scratch = pod.volumes.scratch
    of_node = [{"name": _SCRATCH, "mountPath": scratch.path}] if scratch else []
    of_files = [
        {"name": f"{_FILES}{index}", "mountPath": directory, "readOnly": True}
        for index, directory in enumerate(pod.references.files)
    ]
    of_code = _CODE_MOUNTS if pod.code else ()
    of_fabric = host_mounts(pod.fabric.row.mounts if pod.fabric else ())
    return [*of_memory, *of_claims, *of_node, *of_files, *of_code, *of_fabric]


def host_mounts(paths: Iterable[HostMount]) -> list[Any]:
    """The mounts of a container for paths of the node."""
    return [{"name": mount.name, "mountPath": mount.path} for mount in paths]


def volumes(pod: PodPlan) -> list[dict[str, Any]]:
    """The volumes of a pod. /dev/shm counts as the container's memory.

    Scratch space is an emptyDir: on the node's local disks if these hold the ephemeral storage of pods. The pod does
    not request it, because no quota of Kueue has ephemeral storage, and Kueue would not admit the pod.
    """
    size = {"sizeLimit": format_bytes(pod.shared_memory)} if pod.shared_memory else {}
    of_memory = [{"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory", **size}}] if pod.shared_memory != 0 else []
    of_claims: list[dict[str, Any]] = [
        {"name": mount.volume, "persistentVolumeClaim": {"claimName": mount.claim, "readOnly": mount.read_only}}
        for mount in pod.volumes.mounts
    ]
    if pod.volumes.model:
        of_claims.append({"name": _MODEL, "image": {"reference": pod.volumes.model[0]}})
    scratch = pod.volumes.scratch
    of_node = [{"name": _SCRATCH, "emptyDir": {"sizeLimit": format_bytes(scratch.size)}}] if scratch else []
    of_files: list[dict[str, Any]] = []
    for index, files in enumerate(pod.references.files.values()):
        items = [{"key": key, "path": path} for key, path in sorted(files.items.items())]
        kind, named = ("secret", "secretName") if files.secret else ("configMap", "name")
        source = {named: files.secret or files.config_map, **({"items": items} if items else {})}
        of_files.append({"name": f"{_FILES}{index}", kind: source})
    of_code = _CODE_VOLUMES if pod.code else ()
    return [*of_memory, *of_claims, *of_node, *of_files, *of_code, *(host_volumes(pod.fabric) if pod.fabric else [])]


def host_volumes(fabric: PodFabric) -> list[dict[str, Any]]:
    """The paths of the node that the containers of a pod mount for its fabric."""
    return [{"name": mount.name, "hostPath": {"path": mount.host}} for mount in fabric.host_mounts]


def sidecars(fabric: PodFabric | None) -> list[dict[str, Any]]:
    """The daemon of a fabric as a sidecar: it starts before the workload's container and ends after it.

    https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    """
    daemon = fabric.row.daemon if fabric else None
    if daemon is None:
        return []
    return [
        {
            "name": daemon.name,
            "image": daemon.image,
            "restartPolicy": "Always",
            "command": list(daemon.command),
            "env": [{"name": name, "value": value} for name, value in sorted(daemon.env.items())],
            "securityContext": rights(daemon.capabilities),
            "volumeMounts": host_mounts(daemon.mounts),
        }
    ]


POD_SECURITY: Final = {"seccompProfile": {"type": "RuntimeDefault"}}


def pod_security(pod: PodPlan) -> dict[str, Any]:
    """The security context of a pod: the user of its engine, and non-root if the namespace requires it.

    The group of its storage is set on the root of each volume only once, because a recursive change would visit all
    files: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
    """
    security: dict[str, Any] = {**POD_SECURITY}
    if pod.engine or pod.non_root:
        security["runAsNonRoot"] = True
    if pod.engine:
        security["runAsUser"] = pod.engine.user
        security["runAsGroup"] = pod.engine.group
    if pod.volumes.group is not None:
        security["fsGroup"] = pod.volumes.group
        security["fsGroupChangePolicy"] = "OnRootMismatch"
    return security


def account(pod: PodPlan) -> dict[str, str]:
    """The ServiceAccount of a pod, as a field of its spec; empty for the default of the namespace."""
    return {"serviceAccountName": pod.account} if pod.account else {}


def pod_spec(pod: PodPlan, workload_container: dict[str, Any]) -> dict[str, Any]:
    """A pod with one container, restricted to nodes with its GPU model, with its priority and without an API token.

    Empty fields are omitted: Kueue removes them from a job that it starts, and they would differ.
    """
    fields = {
        "nodeSelector": pod.node_labels,
        "tolerations": tolerations(pod.tolerated),
        "affinity": near(pod.caches) if pod.caches else {},
        "resourceClaims": device_claims(pod),
        "priorityClassName": pod.priority,
        "volumes": volumes(pod),
        "initContainers": sidecars(pod.fabric),
        "imagePullSecrets": pull_secrets(pod.references),
        "terminationGracePeriodSeconds": pod.ends[1] if pod.ends else None,
    }
    return {
        "containers": [workload_container],
        "automountServiceAccountToken": False,
        **account(pod),
        "securityContext": pod_security(pod),
        **{key: value for key, value in fields.items() if value},
        # Variables of Services could have names that an engine reads: VLLM_PORT, for a Service named vllm.
        **({"enableServiceLinks": False} if pod.engine else {}),
    }


_FILES: Final = "files-"
"""Prefix of the volumes; the names of Secrets are too long for volumes, and could clash with other volumes."""


def variable_sources(references: References) -> list[dict[str, Any]]:
    """The objects whose keys become variables of a container, in the order of the stack: later ones override."""
    sources: list[dict[str, Any]] = []
    for source in references.sources:
        prefix = {"prefix": source.prefix} if source.prefix else {}
        kind = "secretRef" if source.secret else "configMapRef"
        sources.append({kind: {"name": source.secret or source.config_map}, **prefix})
    return sources


def pull_secrets(references: References) -> list[dict[str, str]]:
    """The Secrets with which a pod pulls its image; empty for the Secrets of its ServiceAccount."""
    return [{"name": name} for name in references.pull]


ANNOTATION: Final = "gpu-tenancy.dev/code"  # of pods: the archive, a compressed tar in base64
FOLDER: Final = "/code"  # folder of the code in the container, and working directory of its command
_MOUNT: Final = "/gpu-tenancy"
_UNPACK: Final = f'cd {FOLDER} && base64 -d {_MOUNT}/code | tar -xzf - && exec "$@"'


def unpacking(command: Sequence[str]) -> list[str]:
    """A command that unpacks the code and then runs another one there; its image needs sh, base64, tar and gzip."""
    return ["/bin/sh", "-c", _UNPACK, "code", *command]


_ARCHIVE: Final = {"path": "code", "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}}
_CODE_VOLUMES: Final[list[dict[str, Any]]] = [
    {"name": "code", "emptyDir": {}},
    {"name": "code-archive", "downwardAPI": {"items": [_ARCHIVE]}},
]
_CODE_MOUNTS: Final[list[dict[str, Any]]] = [
    {"name": "code", "mountPath": FOLDER},
    {"name": "code-archive", "mountPath": _MOUNT, "readOnly": True},
]
