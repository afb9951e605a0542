"""Pods of the platform itself, and the nodes on which they run."""

from collections.abc import Iterable
from typing import Final

from pulumi_kubernetes.core.v1 import (
    ContainerArgsDict,
    NodeAffinityArgsDict,
    NodeSelectorRequirementArgsDict,
    PodSpecArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)

from gpu_tenancy.model.plan.pools import POOL_LABEL


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


_NOBODY: Final = 65532
_SCRATCH: Final = "scratch"


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
        "security_context": {
            "seccomp_profile": {"type": "RuntimeDefault"},
            "run_as_non_root": True,
            "run_as_user": _NOBODY,
        },
        "containers": [
            {
                **own,
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": memory}},
                "security_context": {
                    "allow_privilege_escalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "read_only_root_filesystem": True,
                },
                "volume_mounts": mounted,
            }
        ],
        "volumes": used,
    }
