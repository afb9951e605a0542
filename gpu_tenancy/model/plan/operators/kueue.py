"""Values of Kueue's chart. Its configuration is strict: the manager ends at a key that it does not know.

Each key was read in https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/configuration_types.go
"""

from typing import Any, Final

import yaml

from gpu_tenancy.model.catalogue.releases import charts
from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.plan.supply import pool_supply
from gpu_tenancy.model.spec import Stack

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
_GANG_READS: Final = (("batch.volcano.sh", "jobs"),)
"""What Kueue must be allowed to get, list and watch to find that out; its chart grants none of it, and refused it
rejects the gang's pods."""
_FLUID: Final = "data.fluid.io"
_CACHES: Final = {
    "AlluxioRuntime": "alluxioruntimes",
    "DataLoad": "dataloads",
    "DataMigrate": "datamigrates",
    "EFCRuntime": "efcruntimes",
    "JindoRuntime": "jindoruntimes",
    "JuiceFSRuntime": "juicefsruntimes",
    "ThinRuntime": "thinruntimes",
    "VineyardRuntime": "vineyardruntimes",
}
"""Kinds of Fluid's whose masters, workers and loaders are left to it, with their plurals. Those are StatefulSets and
Jobs of such an owner, without a queue, and nothing in a runtime puts the queue's label on a StatefulSet: they would
wait for ever. Not here: GooseFS, whose objects name no owner; DataProcess, which is anybody's work; loads by a
timetable, whose owner is a CronJob; FUSE pods, since any DaemonSet beside the queue could ask for GPUs.
https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/charts,
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go"""


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


def kueue_reads(stack: Stack) -> tuple[tuple[str, str], ...]:
    """What Kueue must be allowed to get, list and watch beyond what its chart grants: API group and resource."""
    gangs = _GANG_READS if there(stack, "volcano") else ()
    caches = tuple((_FLUID, plural) for plural in _CACHES.values()) if there(stack, "fluid") else ()
    return (*gangs, *caches)


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
    gangs = [GANG] if there(stack, "volcano") else []
    caches = [f"{kind}.v1alpha1.{_FLUID}" for kind in _CACHES] if there(stack, "fluid") else []
    others = {"externalFrameworks": [*gangs, *caches]} if gangs or caches else {}
    return {"frameworks": [*_FRAMEWORKS, *trainer], **others}


def _excluded(stack: Stack) -> list[str]:
    covered = [supply.resource for name in stack.pools if (supply := pool_supply(stack, name)) and supply.resource]
    return [prefix for prefix in _UNCOVERED if not any(resource.startswith(prefix) for resource in covered)]
