"""DaemonSets that set up GKE nodes: privileged pods in `kube-system`, where no quota applies."""

from collections.abc import Mapping, Sequence
from typing import Final

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet
from pulumi_kubernetes.core.v1 import ContainerArgsDict, NodeAffinityArgsDict, PodSpecArgsDict

from ...conventions import DO_NOT_AWAIT

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
