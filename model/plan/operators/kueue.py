"""Values of Kueue's chart. Its configuration is strict: the manager ends at a key that it does not know.

Each key was read in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/configuration_types.go
"""

from typing import Any, Final

import yaml

from model.catalogue.releases import charts
from model.plan.gpu_operator import Values
from model.plan.operators.needs import there
from model.plan.supply import pool_supply
from model.spec import Stack

TEAM_LABEL: Final = ("app.kubernetes.io/managed-by", "gpu-tenancy")
"""Label of the teams' namespaces (`model.plan.namespaces`), and of no namespace of a cloud or of other people."""
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_UNCOVERED: Final = (
    "ephemeral-storage",
    "hugepages-",
    "networking.gke.io.networks/",
    "rdma/",
    "vpc.amazonaws.com/efa",
)
"""Beginnings of the names of resources that no queue covers. Of a workload that asks for one which is neither covered
nor excluded Kueue says "resource … unavailable" and never admits it. Networks between GPUs come with the machine, so
whoever has its GPUs has them."""
_FRAMEWORKS: Final = ("batch/job", "pod", "deployment", "statefulset")
"""Always on: whatever a team starts counts, or a bare pod would take GPUs that the queue has promised to others."""
GANG: Final = "Job.v1alpha1.batch.volcano.sh"
"""Volcano's Job as Kueue names kinds that others manage: its pods are left to Volcano. With
`manageJobsWithoutQueueName` every other pod without a queue is gated, so a gang would never start
(https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/pod/pod_webhook.go)."""
GANG_READS: Final = (("batch.volcano.sh", "jobs"),)
"""What Kueue must be allowed to get, list and watch to find that out; its chart grants none of it, and refused it
rejects the gang's pods."""


def kueue_values(stack: Stack) -> Values:
    """The values: a configuration in a string, and what stands beside it."""
    return {
        "enablePrometheus": there(stack, "prometheus"),
        # Eviction of what is not ready after a while is on by default since 0.19, and leaving `waitForPodsReady` out
        # does not turn it off: only this gate does (pkg/util/waitforpodsready of v0.19.2). A server that loads a
        # model, or a job whose nodes the cloud takes an hour to bring, would be evicted, retried and at last
        # deactivated. Written here and not in the configuration: the manager ends where both name gates.
        "controllerManager": {"featureGates": [{"name": "DisableWaitForPodsReady", "enabled": True}]},
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(_configuration(stack), sort_keys=False)},
    }


def _configuration(stack: Stack) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        # As in the chart, which this text replaces whole.
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Pod": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": _teams_alone(stack),
        "integrations": _integrations(stack),
        "resources": {"excludeResourcePrefixes": _excluded(stack)},
    }
    if stack.fairness == "even":
        # Its being there turns it on; both strategies are Kueue's own default order.
        strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        configuration["fairSharing"] = {"preemptionStrategies": strategies}
    return configuration


def _teams_alone(stack: Stack) -> dict[str, Any]:
    """The teams' namespaces and no others: a cloud's own pods, wherever it keeps them, are never gated.

    System namespaces are spared by name as well, so that a label put there by mistake does no harm; Kueue refuses a
    selector that matches kube-system.
    """
    spared = {
        "kube-system",
        stack.metrics.prometheus.namespace,
        *(row.namespace for row in charts().values() if row.namespace),
    }
    key, value = TEAM_LABEL
    return {
        "matchLabels": {key: value},
        "matchExpressions": [{"key": _NAMESPACE_NAME, "operator": "NotIn", "values": sorted(spared)}],
    }


def _integrations(stack: Stack) -> dict[str, list[str]]:
    trainer = ("jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob") if there(stack, "trainer") else ()
    gangs = {"externalFrameworks": [GANG]} if there(stack, "volcano") else {}
    return {"frameworks": [*_FRAMEWORKS, *trainer], **gangs}


def _excluded(stack: Stack) -> list[str]:
    covered = [supply.resource for name in stack.pools if (supply := pool_supply(stack, name)) and supply.resource]
    return [prefix for prefix in _UNCOVERED if not any(resource.startswith(prefix) for resource in covered)]
