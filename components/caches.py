"""Fluid's caches of datasets in their own namespace, and references to them in the namespaces of teams."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.networking.v1 import NetworkPolicy, NetworkPolicySpecArgsDict

from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.model.manifests.pods import tolerations
from gpu_tenancy.model.plan.datasets import CLAIM_SIZE, CachedDataset, CachePlan
from gpu_tenancy.model.plan.object_storage import access_mode
from gpu_tenancy.model.spec.data import CACHES

from .objects import Component, Options
from .operators import critical_pods

_DATASET: Final = "Dataset"
_NETWORK: Final = "ContainerNetwork"
"""Fluid's default is the network of the node, on which GKE gives pods the node's identity:
https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#limitations."""
_SIZED: Final = ("tieredstore", "data", "master", "jobMaster", "worker", "jobWorker", "fuse", "properties")
"""Fields of a spec that Fluid does not change in a cache that runs."""
_FOLDER: Final = "/var/lib/juicefs-cache"  # folder of the nodes with JuiceFS caches, one for each dataset


class Caches(Component):
    """The namespace of all caches, and for each dataset Fluid's Dataset, runtime and load; Fluid is not installed here.

    A new size, medium or flavor replaces the runtime: its pods end, the cache is empty, and pods that mount it must be
    restarted. A Dataset stays as long as a team refers to it.
    """

    def __init__(self, name: str, environment: str, caches: Sequence[CachePlan], opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Caches", name, opts)
        labels = {
            "app.kubernetes.io/part-of": "gpu-tenancy",
            "environment": environment,
            # Fluid's mounts are privileged, and its workers have volumes of the host.
            "pod-security.kubernetes.io/enforce": "privileged",
        }
        namespace = Namespace(f"{name}-namespace", metadata={"name": CACHES, "labels": labels}, opts=self.own)
        # Fluid gives its mounts a system priority class, so that pods with GPUs do not evict them.
        critical = critical_pods(f"{name}-critical", CACHES, namespace, self.own)
        # Only pods of the namespace reach the caches: teams' pods read them through the mounts of their node.
        deny: NetworkPolicySpecArgsDict = {"pod_selector": {}, "policy_types": ["Ingress"]}
        own_pods: NetworkPolicySpecArgsDict = {**deny, "ingress": [{"from_": [{"pod_selector": {}}]}]}
        policies = [
            NetworkPolicy(
                f"{name}-{policy}",
                metadata={"name": policy, "namespace": CACHES},
                spec=spec,
                opts=self.after(namespace),
            )
            for policy, spec in {"default-deny": deny, "allow-own-pods": own_pods}.items()
        ]
        inside = self.after(namespace, critical, *policies)
        for cache in caches:
            self._cache(f"{name}-{cache.dataset}", cache, inside)

    def _cache(self, name: str, cache: CachePlan, inside: ResourceOptions) -> None:
        place: ObjectMetaArgsDict = {"name": cache.dataset, "namespace": CACHES}
        claimed: ObjectMetaArgsDict = {**place, "annotations": {CLAIM_SIZE: format_bytes(cache.claim)}}
        dataset = CustomResource(
            f"{name}-dataset", cache.api, _DATASET, metadata=claimed, spec=_dataset(cache), opts=inside
        )
        replaced = [f"spec.{field}" for field in _SIZED]
        opts = ResourceOptions(
            parent=self, depends_on=[dataset], replace_on_changes=replaced, delete_before_replace=True
        )
        runtime = CustomResource(
            f"{name}-runtime", cache.api, cache.kind, metadata=place, spec=_runtime(cache), opts=opts
        )
        if cache.load:
            load, amounts = cache.load
            spec = {
                "dataset": {"name": cache.dataset, "namespace": CACHES},
                "loadMetadata": True,
                "target": [{"path": cache.path, "replicas": cache.spec.copies}],
                "policy": "Once",
                "nodeSelector": dict(cache.node_labels),
                "tolerations": tolerations(cache.tolerated),
                "resources": _resources(amounts),
            }
            place = {"name": load, "namespace": CACHES}
            CustomResource(f"{name}-load", cache.api, "DataLoad", metadata=place, spec=spec, opts=self.after(runtime))


class CachedVolume(Component):
    """A team's reference to a cache: Fluid makes a ThinRuntime, a PersistentVolume and a claim with the dataset's name.

    The claim is pending until the cache is ready.
    """

    def __init__(self, name: str, cached: CachedDataset, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:CachedVolume", name, opts)
        mount = {"mountPoint": cached.mount, "name": cached.dataset}
        metadata: ObjectMetaArgsDict = {"name": cached.dataset, "namespace": cached.team}
        spec = {"mounts": [mount], "accessModes": [cached.access_mode]}
        self.reference = CustomResource(
            f"{name}-reference", cached.api, _DATASET, metadata=metadata, spec=spec, opts=self.own
        )


def _dataset(cache: CachePlan) -> dict[str, Any]:
    mount: dict[str, Any] = {
        "mountPoint": cache.mount,
        "name": cache.mount_name,
        "path": cache.path,
        "readOnly": not cache.writable,
        "shared": True,
    }
    if cache.options:
        mount["options"] = dict(cache.options)
    if cache.secret:
        mount["encryptOptions"] = [
            {"name": option, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
            for option, (secret, key) in cache.secret.items()
        ]
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in cache.node_labels.items()]
    return {
        "mounts": [mount],
        "accessModes": [access_mode(writable=cache.writable)],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
        "tolerations": tolerations(cache.tolerated),
        # Several caches can share a node; their workers spread over the nodes as far as they can.
        "placement": "Shared",
    }


def _runtime(cache: CachePlan) -> dict[str, Any]:
    pods: dict[str, dict[str, Any]] = {}
    for pod in cache.pods:
        flags = (("-Xmx", pod.container.heap), ("-XX:MaxDirectMemorySize=", pod.container.direct))
        java = [f"{flag}{size // 2**20}m" for flag, size in flags if size]
        pods[pod.key] = {"resources": _resources(pod.amounts), **({"jvmOptions": java} if java else {})}
    for key in ("master", "worker", "fuse"):
        if key in pods:
            pods[key]["networkMode"] = _NETWORK
    # The node's mount ends with the last pod that uses it.
    pods["fuse"]["cleanPolicy"] = "OnDemand"
    if "master" in pods:
        pods["master"]["nodeSelector"] = dict(cache.node_labels)
    # Otherwise, what a team writes stays in the cache.
    properties = {"properties": {"alluxio.user.file.writetype.default": "CACHE_THROUGH"}} if cache.writable else {}
    return {
        "replicas": cache.replicas,
        "tieredstore": {"levels": [_level(cache)]},
        **({"data": {"replicas": cache.spec.copies}, **properties} if cache.spec.runtime == "alluxio" else {}),
        **pods,
    }


def _level(cache: CachePlan) -> dict[str, Any]:
    """The cache medium of each worker; workers and mounts of JuiceFS share a folder of the node."""
    size = {"quota": format_bytes(cache.size)}
    if cache.spec.runtime == "juicefs":
        path = f"{_FOLDER}/{cache.dataset}"
        return {"mediumtype": "SSD", "volumeType": "hostPath", "path": path, **size, "low": "0.1"}
    in_memory = cache.spec.medium == "memory"
    medium, path = ("MEM", "/dev/shm") if in_memory else ("SSD", "/cache")  # noqa: S108 - of the pod
    return {"mediumtype": medium, "volumeType": "emptyDir", "path": path, **size, "high": "0.95", "low": "0.7"}


def _resources(amounts: Mapping[str, int]) -> dict[str, Any]:
    return {"requests": format_amounts(amounts), "limits": format_amounts(amounts)}
