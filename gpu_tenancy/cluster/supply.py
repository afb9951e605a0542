"""Numbers of GPUs in a cluster, and `Facts`, the inputs of survey rules: GPU nodes, their flavors, tenants and pods."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from gpu_tenancy.base.guarantee import BESIDE
from gpu_tenancy.base.json import Json, at, list_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import MEMORY, add, amounts
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cluster.gangs import GangQueue, gang_queues
from gpu_tenancy.cluster.nodes import excluding_taints, taint_text
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, namespace_of, requests
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.kueue import FlavorResource
from gpu_tenancy.model.catalogue import PRODUCT_LABELS
from gpu_tenancy.model.catalogue.access import owner_of


@dataclass(frozen=True, slots=True)
class Pool:
    """GPU nodes of the same flavors, or nodes of one model that no flavor selects."""

    flavors: tuple[str, ...]
    model: str  # empty without a label
    resource: str
    nodes: tuple[str, ...]
    exist: int  # offered by nodes
    ready: int  # on nodes that are ready and schedulable
    promised: int  # nominal quota of all ClusterQueues and Cohorts
    used: int  # requests of pods on the nodes
    taints: tuple[str, ...] = ()

    @property
    def idle(self) -> int:
        """GPUs that no pod requests."""
        return max(0, self.exist - self.used)


@dataclass(frozen=True, slots=True)
class Total:
    """GPUs of one resource name in the whole cluster."""

    resource: str
    exist: int
    ready: int
    queues: int  # nominal quota of Kueue
    gangs: int  # guarantees of Volcano queues
    quotas: int  # sum of ResourceQuotas
    used: int
    held: int  # requests of pods on no node, without pods that Kueue gates

    @property
    def idle(self) -> int:
        """GPUs that no pod requests."""
        return max(0, self.exist - self.used)


# Resources of device plugins for GPUs or other accelerators; excludes network devices.
_ACCELERATOR: Final = re.compile(
    r"(nvidia\.com/(gpu|mig-)|amd\.com/gpu|gpu\.intel\.com/|habana\.ai/gaudi|aws\.amazon\.com/neuron|google\.com/tpu).*"
)
# Node labels with the GPU model, the most exact first.
_MODELS: Final = (
    PRODUCT_LABELS["nvidia.com"],
    "cloud.google.com/gke-accelerator",
    PRODUCT_LABELS["amd.com"],
    "node.kubernetes.io/instance-type",
)
_KNOWN_TAINTS: Final = re.compile(r"([a-z0-9.-]*\.)?(nvidia|amd|kubernetes|google|amazonaws|azure|intel)\.(com|io)/.*")
# Words in policies that restrict access to GPUs.
_GUARDS: Final = ("toleration", "queue-name", "nvidia.com/gpu", "amd.com/gpu")
_GIB: Final = 2**30
_KUEUE: Final = "kueue.x-k8s.io/"


def accelerators(values: Mapping[str, int]) -> dict[str, int]:
    """The nonzero amounts of GPUs and other accelerators."""
    return {name: value for name, value in values.items() if value and _ACCELERATOR.fullmatch(name)}


class Names:
    """Names of objects in a survey; with `anonymous`, consistent replacements."""

    def __init__(self, *, anonymous: bool = False) -> None:
        self.anonymous = anonymous
        self._given: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Each part of `namespace/name` is replaced separately."""
        if not self.anonymous or not name:
            return name
        parts = (self._given.setdefault(part, f"name-{len(self._given) + 1}") for part in name.split("/"))
        return "/".join(parts)

    def message(self, text: str) -> str:
        """A message of the cluster; omitted if anonymous, since messages contain names."""
        return "its message is left out (--anonymous)" if self.anonymous and text else text

    def taint(self, taint: Manifest) -> str:
        """A taint as `key=value:effect`."""
        key, value, effect = (text_at(taint, part) for part in ("key", "value", "effect"))
        if not _KNOWN_TAINTS.fullmatch(key):
            key, value = self(key.replace("/", "|")), self(value.replace("/", "|"))
        return taint_text(key, value, effect)

    def listed(self, names: Iterable[str]) -> str:
        """The first three names, and the number of further names."""
        return first_names([self(name) for name in names], 3)


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with GPUs."""

    name: str
    model: str  # of its GPUs, else its machine type; empty without a label
    labels: Mapping[str, str]
    gpus: Mapping[str, int]
    broken: Mapping[str, int]  # unhealthy devices, which the node does not offer
    ready: bool  # and schedulable
    taints: tuple[Manifest, ...]  # exclude pods


@dataclass(frozen=True)
class Facts:
    """A cluster with GPU totals; `served` has the API groups of Kueue and Volcano."""

    state: State
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    configuration: Manifest | None = None  # of Kueue, see `survey.configuration_of`; None if it is not readable
    name: Names = field(default_factory=Names)

    @cached_property
    def queues(self) -> Queues:
        """Queues of Kueue."""
        return Queues(self.state)

    @cached_property
    def managed(self) -> Json:
        """Selects namespaces whose pods Kueue manages without a queue, too; None for no namespace, or unknown."""
        written = self.configuration or {}
        whole = at(written, "manageJobsWithoutQueueName") is True
        with_pods = "pod" in list_at(written, "integrations", "frameworks")
        return map_at(written, "managedJobsNamespaceSelector") if whole and with_pods else None

    @cached_property
    def gangs(self) -> list[GangQueue]:
        """Volcano's queues, except the two that Volcano creates."""
        return gang_queues(self.state.of("Queue"), self.state.of("PodGroup"), self.state.of("Pod"))

    @cached_property
    def nodes(self) -> tuple[GpuNode, ...]:
        """Nodes with GPUs, including nodes that offer none at present."""
        return tuple(node for manifest in self.state.of("Node") if (node := _gpu_node(manifest)))

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """Resource names of GPUs, from nodes and queues."""
        names = {name for node in self.nodes for name in node.gpus}
        names |= {name for queue in self.gangs for name in accelerators(queue.guarantee)}
        for queue in self.queues.cluster_queues.values():
            names |= {resource for _, resource in queue.spec.quotas if _ACCELERATOR.fullmatch(resource)}
        return tuple(sorted(names))

    @cached_property
    def flavors(self) -> dict[str, frozenset[str]]:
        """GPU nodes that match the labels of each ResourceFlavor; all of them for a flavor without labels."""
        wanted = {name_of(one): texts_at(one, "spec", "nodeLabels").items() for one in self.state.of("ResourceFlavor")}
        return {
            flavor: frozenset(node.name for node in self.nodes if labels <= node.labels.items())
            for flavor, labels in wanted.items()
        }

    @cached_property
    def per_gpu(self) -> dict[str, dict[str, int]]:
        """CPU and memory, in whole Gi, of each flavor's nodes for one of their GPUs; empty for a flavor without nodes.

        Without requests of DaemonSets' pods, as far as pods are readable.
        """
        free = {name_of(node): Counter(amounts(at(node, "status", "allocatable"))) for node in self.state.of("Node")}
        for pod in self.state.of("Pod"):
            of = {text_at(owner, "kind") for owner in maps_at(pod, "metadata", "ownerReferences")}
            if "DaemonSet" in of and (node := text_at(pod, "spec", "nodeName")) in free:
                free[node].subtract(requests(map_at(pod, "spec")))
        shares: dict[str, dict[str, int]] = {}
        for flavor, nodes in self.flavors.items():
            whole = add(*(free[node] for node in nodes))
            count = sum(accelerators(whole).values())
            units = {name: whole.get(name, 0) // count for name in BESIDE} if count else {}
            shares[flavor] = {name: amount - amount % (_GIB if name == MEMORY else 1) for name, amount in units.items()}
        return shares

    def total(self, resource: str, *, ready: bool = False, nodes: Collection[str] | None = None) -> int:
        """Number of GPUs of all nodes or of `nodes`; with `ready`, of ready nodes only."""
        chosen = [node for node in self.nodes if (node.ready or not ready) and (nodes is None or node.name in nodes)]
        return sum(node.gpus.get(resource, 0) for node in chosen)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """Pools of each flavor, then pools without a flavor, by model."""
        return tuple(pool for resource in self.resources for pool in _pools(self, resource))

    @cached_property
    def totals(self) -> tuple[Total, ...]:
        """The sums of each GPU resource."""
        guaranteed = add(*(queue.guarantee for queue in self.gangs))
        quotas = add(*(amounts(at(quota, "spec", "hard")) for quota in self.state.of("ResourceQuota")))
        held = add(*(wanted for wanted, _, _, _ in unplaced(self)))
        return tuple(
            Total(
                resource=resource,
                exist=self.total(resource),
                ready=self.total(resource, ready=True),
                queues=sum(amount for (_, name), amount in self.promised.items() if name == resource),
                gangs=guaranteed.get(resource, 0),
                quotas=quotas.get(f"requests.{resource}", 0),
                used=sum(amount for (_, name), amount in self.used.items() if name == resource),
                held=held.get(resource, 0),
            )
            for resource in self.resources
        )

    @cached_property
    def gpu_pods(self) -> tuple[tuple[Manifest, dict[str, int]], ...]:
        """Pods that request GPUs and have not ended, with their GPUs."""
        found = ((pod, accelerators(requests(map_at(pod, "spec")))) for pod in self.state.of("Pod") if not ended(pod))
        return tuple((pod, wanted) for pod, wanted in found if wanted)

    @cached_property
    def used(self) -> dict[tuple[str, str], int]:
        """GPUs that scheduled pods request, by node and resource."""
        total: Counter[tuple[str, str]] = Counter()
        for pod, wanted in self.gpu_pods:
            if node := text_at(pod, "spec", "nodeName"):
                total.update({(node, resource): amount for resource, amount in wanted.items()})
        return dict(total)

    @cached_property
    def promised(self) -> dict[FlavorResource, int]:
        """Nominal quota of all ClusterQueues and Cohorts, by flavor and resource."""
        tenancy, total = self.queues.tenancy, Counter[FlavorResource]()
        for owner in (*tenancy.queues, *tenancy.cohorts):
            total.update({line: quota.nominal for line, quota in owner.quotas.items()})
        return dict(total)

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """Namespaces that are not of Kubernetes, a cloud or an operator; `default` counts, since people use it."""
        names = sorted(name_of(each) for each in self.state.of("Namespace"))
        operators = {operator.namespace for operator in self.operators}
        return tuple(name for name in names if name == "default" or not (owner_of(name) or name in operators))

    @cached_property
    def operators(self) -> "tuple[Operator, ...]":
        """Operators with a Deployment in the cluster."""
        found: set[Operator] = set()
        for each in self.state.of("Deployment"):
            containers = maps_at(each, "spec", "template", "spec", "containers")
            images = [text_at(container, "image").partition("@")[0].rpartition(":") for container in containers]
            known = [(name, tag) for image, _, tag in images for end, name in _OPERATORS.items() if image.endswith(end)]
            if known:
                name, tag = known[0]
                found.add(Operator(name, namespace_of(each), tag or "?"))
        return tuple(sorted(found, key=lambda operator: operator.name))

    @cached_property
    def labels(self) -> dict[str, dict[str, str]]:
        """Labels of each namespace, including `kubernetes.io/metadata.name`."""
        return {
            name_of(each): {"kubernetes.io/metadata.name": name_of(each), **texts_at(each, "metadata", "labels")}
            for each in self.state.of("Namespace")
        }

    @cached_property
    def guarded(self) -> tuple[Json, ...]:
        """Namespace selectors (None for all) of bindings whose policies restrict access to GPUs."""
        judging = {
            name_of(policy)
            for policy in self.state.of("ValidatingAdmissionPolicy")
            if any(word in str(at(policy, "spec", "validations")) for word in _GUARDS)
        }
        return tuple(
            at(binding, "spec", "matchResources", "namespaceSelector")
            for binding in self.state.of("ValidatingAdmissionPolicyBinding")
            if text_at(binding, "spec", "policyName") in judging
            and "Deny" in list_at(binding, "spec", "validationActions")
        )


class Operator(NamedTuple):
    """An operator with its namespace, and the tag of its image as version."""

    name: str
    namespace: str
    version: str


# Operators by the end of the repository of an image.
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
        taints=excluding_taints(node),
    )


def _pools(facts: Facts, resource: str) -> Iterator[Pool]:
    nominal = {flavor: amount for (flavor, name), amount in facts.promised.items() if name == resource}
    offering = frozenset(node.name for node in facts.nodes if node.gpus.get(resource))
    groups: list[tuple[tuple[str, ...], frozenset[str]]] = []
    for flavor in sorted(nominal):  # Flavors that share nodes are one group.
        own = facts.flavors.get(flavor, frozenset[str]()) & offering
        same = [group for group in groups if group[1] & own]
        groups = [group for group in groups if group not in same]
        names = (*(name for group in same for name in group[0]), flavor)
        groups.append((names, own.union(*(group[1] for group in same))))
    groups = [(flavors, nodes) for flavors, nodes in groups if nodes or any(nominal[flavor] for flavor in flavors)]
    counted = frozenset[str]().union(*(nodes for _, nodes in groups))
    models: dict[str, set[str]] = defaultdict(set)
    for node in facts.nodes:
        if node.name in offering - counted:
            models[node.model].add(node.name)
    for flavors, nodes in [*groups, *(((), frozenset(names)) for _, names in sorted(models.items()))]:
        own_nodes = [node for node in facts.nodes if node.name in nodes]
        yield Pool(
            flavors=flavors,
            model=", ".join(sorted({node.model for node in own_nodes} - {""})),
            resource=resource,
            nodes=tuple(sorted(nodes)),
            exist=facts.total(resource, nodes=nodes),
            ready=facts.total(resource, nodes=nodes, ready=True),
            promised=sum(nominal[flavor] for flavor in flavors),
            used=sum(facts.used.get((node, resource), 0) for node in nodes),
            taints=tuple(sorted({facts.name.taint(taint) for node in own_nodes for taint in node.taints})),
        )


def unplaced(facts: Facts) -> Iterator[tuple[dict[str, int], bool, str, str]]:
    """Unscheduled pods with GPUs: GPUs, whether gated, namespace, name. Excludes pods that Kueue gates."""
    for pod, wanted in facts.gpu_pods:
        gates = {text_at(gate, "name") for gate in maps_at(pod, "spec", "schedulingGates")}
        if not text_at(pod, "spec", "nodeName") and not any(gate.startswith(_KUEUE) for gate in gates):
            yield wanted, bool(gates), namespace_of(pod), name_of(pod)


def unusable(state: State, flavors: Collection[str] | None = None, *, gone: bool = False) -> Iterator[str]:
    """Pools with more guaranteed than usable GPUs. `gone` counts missing nodes, some of which an autoscaler can add."""
    if not (state.knows("Node") and state.knows("ClusterQueue")):
        return
    facts = Facts(state)
    for pool in facts.pools:
        if flavors is None or set(flavors) & set(pool.flavors):
            parts = list(_unusable(facts, pool, gone=gone))
            if pool.promised > pool.ready and parts:
                counted = f"queues are guaranteed {pool.promised} {pool.resource} of flavor {', '.join(pool.flavors)}"
                yield f"{counted}, {pool.ready} can be used: {'; '.join(parts)}"


def _unusable(facts: Facts, pool: Pool, *, gone: bool) -> Iterator[str]:
    inside = frozenset[str]().union(*(facts.flavors.get(flavor, frozenset()) for flavor in pool.flavors))
    own = [node for node in facts.nodes if node.name in inside]
    cordoned = {name_of(node) for node in facts.state.of("Node") if at(node, "spec", "unschedulable") is True}
    broken = [node for node in own if node.broken.get(pool.resource)]
    for text, chosen in (
        ("on nodes that are cordoned", [node for node in own if not node.ready and node.name in cordoned]),
        ("on nodes that are not ready", [node for node in own if not node.ready and node.name not in cordoned]),
        ("that nodes do not offer: devices are unhealthy or have no plugin", broken),
    ):
        amounts = (node.broken if chosen is broken else node.gpus for node in chosen)
        if amount := sum(gpus.get(pool.resource, 0) for gpus in amounts):
            yield f"{amount} {text} ({first_names(sorted(node.name for node in chosen), 3)})"
    lacking = pool.promised - sum(node.gpus.get(pool.resource, 0) + node.broken.get(pool.resource, 0) for node in own)
    if gone and own and lacking > 0:
        yield f"{lacking} on nodes that do not exist: they are gone, or an autoscaler has not added them"
