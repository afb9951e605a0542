"""What rules of a survey ask of a cluster: GPU nodes, flavors on them, tenants and pods, each computed once."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import amounts
from gpu_tenancy.cluster.gangs import GangQueue, gang_queues
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, namespace_of, requests
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.kueue import FlavorResource
from gpu_tenancy.model.catalogue import PRODUCT_LABELS
from gpu_tenancy.model.catalogue.access import owner_of

_ACCELERATOR: Final = re.compile(
    r"(nvidia\.com/(gpu|mig-)|amd\.com/gpu|gpu\.intel\.com/|habana\.ai/gaudi|aws\.amazon\.com/neuron|google\.com/tpu).*"
)
"""Resources of device plugins that are GPUs or other accelerators; network devices are none."""
_MODELS: Final = (
    PRODUCT_LABELS["nvidia.com"],
    "cloud.google.com/gke-accelerator",
    PRODUCT_LABELS["amd.com"],
    "node.kubernetes.io/instance-type",
)
"""Node labels that tell the model of a GPU, the most exact first."""
_BARRIERS: Final = ("NoSchedule", "NoExecute")
_KNOWN_TAINTS: Final = re.compile(r"([a-z0-9.-]*\.)?(nvidia|amd|kubernetes|google|amazonaws|azure|intel)\.(com|io)/.*")
_GUARDS: Final = ("toleration", "queue-name", "nvidia.com/gpu", "amd.com/gpu")
"""Words of a policy that judges which pods reach GPUs."""
_KUEUE: Final = "kueue.x-k8s.io/"


def accelerators(values: Mapping[str, int]) -> dict[str, int]:
    """The amounts of GPUs and other accelerators, without those that are 0."""
    return {name: value for name, value in values.items() if value and _ACCELERATOR.fullmatch(name)}


class Names:
    """Names of objects as a survey writes them: as they are, or replaced, the same name always by the same one."""

    def __init__(self, *, anonymous: bool = False) -> None:
        self.anonymous = anonymous
        self._given: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """The name to write; of `namespace/name` each part."""
        if not self.anonymous or not name:
            return name
        parts = (self._given.setdefault(part, f"name-{len(self._given) + 1}") for part in name.split("/"))
        return "/".join(parts)

    def message(self, text: str) -> str:
        """What the cluster writes, which has names in it."""
        return "its message is left out (--anonymous)" if self.anonymous and text else text

    def taint(self, taint: Manifest) -> str:
        """A taint as `key=value:effect`."""
        key, value, effect = (text_at(taint, part) for part in ("key", "value", "effect"))
        if not _KNOWN_TAINTS.fullmatch(key):
            key, value = self(key.replace("/", "|")), self(value.replace("/", "|"))
        return f"{key}{'=' + value if value else ''}:{effect}"

    def listed(self, names: Iterable[str], shown: int = 3) -> str:
        """The first names, and how many more there are."""
        written = [self(name) for name in names]
        more = f" and {len(written) - shown} more" if len(written) > shown else ""
        return ", ".join(written[:shown]) + more


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with GPUs.

    Attributes:
        model: of its GPUs, else its machine type; empty where no label tells.
        gpus: allocatable, by resource.
        broken: what the node has and does not offer, by resource: devices that are unhealthy.
        ready: whether it is ready and schedulable.
        taints: that keep pods away.
    """

    name: str
    model: str
    labels: Mapping[str, str]
    gpus: Mapping[str, int]
    broken: Mapping[str, int]
    ready: bool
    taints: tuple[Manifest, ...]


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster.

    Attributes:
        served: versions of the API groups of Kueue and Volcano, by group.
        managed: selects the namespaces in which Kueue manages pods and jobs without the name of a queue too; None for
            no namespace, or where Kueue's configuration cannot be read.
    """

    state: State
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    managed: Json = None
    name: Names = field(default_factory=Names)

    @cached_property
    def queues(self) -> Queues:
        """Kueue's queues."""
        return Queues(self.state)

    @cached_property
    def gangs(self) -> list[GangQueue]:
        """Volcano's queues, without those that it creates itself."""
        return gang_queues(self.state.of("Queue"), self.state.of("PodGroup"), self.state.of("Pod"))

    @cached_property
    def nodes(self) -> tuple[GpuNode, ...]:
        """Nodes with GPUs, also those that offer none at present."""
        return tuple(node for manifest in self.state.of("Node") if (node := _gpu_node(manifest)))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Resource names of GPUs, of nodes and of queues."""
        names = {name for node in self.nodes for name in node.gpus}
        names |= {name for queue in self.gangs for name in accelerators(queue.guarantee)}
        for queue in self.queues.cluster_queues.values():
            names |= {resource for _, resource in queue.spec.quotas if _ACCELERATOR.fullmatch(resource)}
        return tuple(sorted(names))

    @cached_property
    def flavors(self) -> dict[str, frozenset[str]]:
        """For each ResourceFlavor the GPU nodes that have its labels; without labels, all of them."""
        found: dict[str, frozenset[str]] = {}
        for flavor in self.state.of("ResourceFlavor"):
            wanted = texts_at(flavor, "spec", "nodeLabels").items()
            found[name_of(flavor)] = frozenset(node.name for node in self.nodes if wanted <= node.labels.items())
        return found

    def total(self, resource: str, *, ready: bool = False, nodes: Iterable[str] | None = None) -> int:
        """GPUs of all nodes or of some, of those that are ready and schedulable where asked."""
        chosen = None if nodes is None else set(nodes)
        return sum(
            node.gpus.get(resource, 0)
            for node in self.nodes
            if (chosen is None or node.name in chosen) and (node.ready or not ready)
        )

    @cached_property
    def gpu_pods(self) -> tuple[tuple[Manifest, dict[str, int]], ...]:
        """Pods that request GPUs and have not ended, with these."""
        found = ((pod, accelerators(requests(map_at(pod, "spec")))) for pod in self.state.of("Pod") if not ended(pod))
        return tuple((pod, wanted) for pod, wanted in found if wanted)

    @cached_property
    def used(self) -> dict[tuple[str, str], int]:
        """GPUs that pods on nodes request, by node and resource."""
        total: Counter[tuple[str, str]] = Counter()
        for pod, wanted in self.gpu_pods:
            if node := text_at(pod, "spec", "nodeName"):
                total.update({(node, resource): amount for resource, amount in wanted.items()})
        return dict(total)

    @cached_property
    def promised(self) -> dict[FlavorResource, int]:
        """The nominal quota of all ClusterQueues and Cohorts, by flavor and resource."""
        tenancy, total = self.queues.tenancy, Counter[FlavorResource]()
        for owner in (*tenancy.queues, *tenancy.cohorts):
            total.update({line: quota.nominal for line, quota in owner.quotas.items()})
        return dict(total)

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Namespaces of neither Kubernetes, a cloud nor an operator; `default` is one too, since people use it."""
        names = sorted(name_of(each) for each in self.state.of("Namespace"))
        operators = {operator.namespace for operator in self.operators}
        return tuple(name for name in names if name == "default" or not (owner_of(name) or name in operators))

    @cached_property
    def operators(self) -> "tuple[Operator, ...]":
        """Operators whose Deployments are there."""
        found = (_operator(each) for each in self.state.of("Deployment"))
        return tuple(sorted({operator for operator in found if operator}, key=lambda each: each.name))

    @cached_property
    def labels(self) -> dict[str, dict[str, str]]:
        """The labels of each namespace, with that of its name."""
        return {
            name_of(each): {"kubernetes.io/metadata.name": name_of(each), **texts_at(each, "metadata", "labels")}
            for each in self.state.of("Namespace")
        }

    @cached_property
    def guarded(self) -> tuple[Json, ...]:
        """Namespace selectors, None for all, of the bindings that deny pods by policies that judge access to GPUs."""
        texts = {
            name_of(each): str(at(each, "spec", "validations")) for each in self.state.of("ValidatingAdmissionPolicy")
        }
        judging = {name for name, text in texts.items() if any(word in text for word in _GUARDS)}
        return tuple(
            at(binding, "spec", "matchResources", "namespaceSelector")
            for binding in self.state.of("ValidatingAdmissionPolicyBinding")
            if text_at(binding, "spec", "policyName") in judging
            and "Deny" in list_at(binding, "spec", "validationActions")
        )

    def capped(self, namespace: str, resource: str) -> bool:
        """Whether a ResourceQuota without scopes bounds a GPU resource in a namespace."""
        return any(
            f"requests.{resource}" in map_at(quota, "spec", "hard") and not _scoped(quota)
            for quota in self.state.of("ResourceQuota", namespace)
        )

    def in_queue(self, pod: Manifest) -> bool:
        """Whether Kueue counts a pod: it has a mark of Kueue, or its owner has a Workload."""
        marks = {**texts_at(pod, "metadata", "labels"), **texts_at(pod, "metadata", "annotations")}
        owners = {text_at(owner, "uid") for owner in maps_at(pod, "metadata", "ownerReferences")}
        return any(mark.startswith(_KUEUE) for mark in marks) or bool(owners & self._queued)

    @cached_property
    def _queued(self) -> frozenset[str]:
        return frozenset(owner for workload in self.queues.workloads for owner in workload.owners)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, its namespace, and its version as the tag of its image has it."""

    name: str
    namespace: str
    version: str


_OPERATORS: Final[Mapping[str, str]] = {
    "/kueue": "Kueue",
    "/vc-scheduler": "Volcano",
    "/gpu-operator": "NVIDIA GPU Operator",
    "/network-operator": "NVIDIA Network Operator",
    "rocm/gpu-operator": "AMD GPU Operator",
    "kuberay/operator": "KubeRay",
    "/trainer-controller-manager": "Kubeflow Trainer",
    "/training-operator": "Kubeflow Training Operator",
    "/jobset": "JobSet",
    "/lws": "LeaderWorkerSet",
    "/keda": "KEDA",
    "/cluster-autoscaler": "Cluster Autoscaler",
    "karpenter/controller": "Karpenter",
    "/appwrapper": "AppWrapper",
    "/cert-manager-controller": "cert-manager",
}
"""Operators by the end of the repository of one of their images."""


def _operator(deployment: Manifest) -> Operator | None:
    for container in maps_at(deployment, "spec", "template", "spec", "containers"):
        repository, _, tag = text_at(container, "image").partition("@")[0].rpartition(":")
        for part, name in _OPERATORS.items():
            if repository.endswith(part):
                return Operator(name, namespace_of(deployment), tag or "?")
    return None


def _scoped(quota: Manifest) -> bool:
    return bool(at(quota, "spec", "scopes") or at(quota, "spec", "scopeSelector"))


def _gpu_node(node: Manifest) -> GpuNode | None:
    whole, offered = (amounts(at(node, "status", key)) for key in ("capacity", "allocatable"))
    gpus = accelerators(offered)
    broken = {name: value - gpus.get(name, 0) for name, value in accelerators(whole).items()}
    if not (gpus or broken):
        return None
    labels = texts_at(node, "metadata", "labels")
    ready = condition(node, "Ready")
    return GpuNode(
        name=name_of(node),
        model=next((labels[label] for label in _MODELS if label in labels), ""),
        labels=labels,
        gpus=gpus,
        broken={name: value for name, value in broken.items() if value > 0},
        ready=(is_true(node, "Ready") or not ready) and at(node, "spec", "unschedulable") is not True,
        taints=tuple(each for each in maps_at(node, "spec", "taints") if text_at(each, "effect") in _BARRIERS),
    )
