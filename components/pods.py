"""Pods of the platform itself, such as those of CronJobs and DaemonSets, and the nodes on which they run."""

from collections.abc import Iterable, Mapping
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apps.v1 import DaemonSet, DaemonSetSpecArgsDict
from pulumi_kubernetes.batch.v1 import CronJob
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.networking.v1 import NetworkPolicy

from gpu_tenancy.model.plan.pools import POOL_LABEL

from .objects import DO_NOT_AWAIT

_NOBODY: Final = 65532
_SCRATCH: Final = "scratch"
KUBECTL_AND_SHELL: Final = (
    "docker.io/alpine/k8s:1.34.1@sha256:ec714df3813b5405292860f8a1c55c5727bf8c33c88992f1e981efad8065547f"
)
"""Image with kubectl, a shell and awk; that of Kubernetes has kubectl alone. The digest is in files of several public
repositories, which agree (read on 2026-11-23)."""
_MINUTES: Final = 60


def on_pools(pools: Iterable[str]) -> core.NodeAffinityArgsDict:
    """The affinity of pods that run only on the nodes of some pools."""
    return on_nodes({"key": POOL_LABEL, "operator": "In", "values": list(pools)})


def on_nodes(*labels: core.NodeSelectorRequirementArgsDict) -> core.NodeAffinityArgsDict:
    """The affinity of pods that run only on nodes with all of these labels."""
    terms: core.NodeSelectorArgsDict = {"node_selector_terms": [{"match_expressions": list(labels)}]}
    return {"required_during_scheduling_ignored_during_execution": terms}


def kubectl_pod(
    account: str, restart: str, own: core.ContainerArgsDict, memory: str, config_map: tuple[str, str] | None = None
) -> core.PodSpecArgsDict:
    """A pod of the platform itself that runs kubectl as nobody and writes to nothing but `/tmp`.

    Its container has at most so much memory, and a ConfigMap in a folder: `("kueue-gate", "/gate")`.
    """
    # kubectl keeps what it discovers in HOME.
    mounted: list[core.VolumeMountArgsDict] = [{"name": _SCRATCH, "mount_path": "/tmp"}]  # noqa: S108 - of the pod
    used: list[core.VolumeArgsDict] = [{"name": _SCRATCH, "empty_dir": {}}]
    if config_map:
        mounted.insert(0, {"name": "object", "mount_path": config_map[1]})
        used.insert(0, {"name": "object", "config_map": {"name": config_map[0]}})
    container: core.ContainerArgsDict = {
        **own,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": memory}},
        "security_context": {
            "allow_privilege_escalation": False,
            "capabilities": {"drop": ["ALL"]},
            "read_only_root_filesystem": True,
        },
        "volume_mounts": mounted,
    }
    return {
        "service_account_name": account,
        "restart_policy": restart,
        "security_context": {
            "seccomp_profile": {"type": "RuntimeDefault"},
            "run_as_non_root": True,
            "run_as_user": _NOBODY,
        },
        "containers": [container],
        "volumes": used,
    }


def script_container(name: str, script: str, variables: Mapping[str, str]) -> core.ContainerArgsDict:
    """The container of a CronJob that runs a shell script with these variables."""
    home = {"HOME": "/tmp"}  # noqa: S108 - of the pod
    return {
        "name": name,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": key, "value": value} for key, value in {**variables, **home}.items()],
    }


def namespace_of_jobs(
    name: str, namespace: str, environment: str, parent: pulumi.Resource
) -> tuple[core.Namespace, ResourceOptions]:
    """A namespace of no team, for CronJobs, to which nothing can connect; and options for what is in it.

    In the namespace of a team, whoever may create a pod could run it with the ServiceAccount of a CronJob, the team's
    quota could refuse their pods, and its NetworkPolicies deny the API server.

    Args:
        name: of the resource.
        namespace: its name.
        environment: of the stack.
        parent: the component.
    """
    labels = {
        "app.kubernetes.io/part-of": "gpu-tenancy",
        "environment": environment,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    metadata: ObjectMetaArgsDict = {"name": namespace, "labels": labels}
    made = core.Namespace(f"{name}-namespace", metadata=metadata, opts=ResourceOptions(parent=parent))
    inside = ResourceOptions(parent=parent, depends_on=[made])
    NetworkPolicy(
        f"{name}-default-deny",
        metadata={"name": "default-deny", "namespace": namespace},
        spec={"pod_selector": {}, "policy_types": ["Ingress"]},
        opts=inside,
    )
    return made, inside


def cron_job(
    name: str,
    metadata: ObjectMetaArgsDict,
    schedule: str,
    pod: tuple[str, core.ContainerArgsDict],
    opts: ResourceOptions,
) -> CronJob:
    """A CronJob that runs kubectl in a shell.

    Args:
        name: of the resource.
        metadata: of the CronJob; its pods have the same labels.
        schedule: as five fields of cron, in UTC.
        pod: its ServiceAccount, and name, command and variables of its container.
        opts: of the resource.
    """
    account, container = pod
    template: core.PodTemplateSpecArgsDict = {
        "spec": kubectl_pod(account, "Never", {**container, "image": KUBECTL_AND_SHELL}, "256Mi")
    }
    if "labels" in metadata:
        template["metadata"] = {"labels": metadata["labels"]}
    return CronJob(
        name,
        metadata=metadata,
        spec={
            "schedule": schedule,
            "time_zone": "Etc/UTC",
            "concurrency_policy": "Forbid",
            "starting_deadline_seconds": 10 * _MINUTES,
            "successful_jobs_history_limit": 1,
            "failed_jobs_history_limit": 3,
            "job_template": {
                "spec": {"backoff_limit": 2, "active_deadline_seconds": 10 * _MINUTES, "template": template}
            },
        },
        opts=opts,
    )


def on_each_node(
    labels: Mapping[str, str], pod: core.PodSpecArgsDict, nodes: core.NodeAffinityArgsDict
) -> DaemonSetSpecArgsDict:
    """The spec of a DaemonSet whose pods set up nodes: each sees the processes of its node and has no token."""
    spec: core.PodSpecArgsDict = {
        "priority_class_name": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "host_pid": True,
        "automount_service_account_token": False,
        **pod,
        "affinity": {"node_affinity": nodes},
    }
    return {"selector": {"match_labels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}


def node_daemon_set(
    name: str, called: str, labels: Mapping[str, str], spec: DaemonSetSpecArgsDict, opts: ResourceOptions
) -> DaemonSet:
    """A DaemonSet in `kube-system` with the name `called`; a deployment does not wait for it."""
    metadata: ObjectMetaArgsDict = {
        "name": called,
        "namespace": "kube-system",
        "labels": labels,
        "annotations": DO_NOT_AWAIT,
    }
    return DaemonSet(name, metadata=metadata, spec=spec, opts=opts)
