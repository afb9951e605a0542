"""Drafts pools, teams, cohorts and priorities of a stack from nodes and objects of a cluster."""

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gpu_tenancy import kueue
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, int_at, list_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CPU, MEMORY, amounts, format_amount
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.cluster.supply import Facts, accelerators
from gpu_tenancy.kueue import Quota
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, allocatable, find_gpu, find_machine, machines
from gpu_tenancy.model.kinds import kinds

_TYPE: Final = "node.kubernetes.io/instance-type"
# Label of GPU feature discovery with the whole GPUs of a node, even if they are divided.
_COUNT: Final = "nvidia.com/gpu.count"
_MIG: Final = "nvidia.com/mig-"
_WHOLE: Final = "nvidia.com/gpu"
_UNKNOWN: Final = "unknown"
_MOST_GPUS: Final = 8  # of a node that is assumed
_OF_CONTROLLERS: Final = "node.kubernetes.io/"  # taints of unavailable nodes


@dataclass(slots=True)
class Drafted:
    """Entries of a section of a stack."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    notes: dict[str, str] = field(default_factory=dict[str, str])  # sources, by entry
    left: list[str] = field(default_factory=list[str])  # not expressible in the section
    assumed: list[str] = field(default_factory=list[str])  # entries that the cluster does not show


@dataclass(frozen=True, slots=True)
class _Shape:
    machine: str
    model: str
    resource: str
    gpus: int
    cpu: int
    memory: int


def pools(facts: Facts) -> tuple[Drafted, dict[str, str]]:
    """The pools, and the GPU resource of each flavor; empty for flavors of CPU nodes."""
    drafted, resources = Drafted(), dict[str, str]()
    taken: set[str] = set()
    flavors = sorted(facts.state.of("ResourceFlavor"), key=lambda flavor: -len(texts_at(flavor, "spec", "nodeLabels")))
    for flavor in flavors:
        name = name_of(flavor)
        nodes = [node for node in _nodes(facts, flavor) if name_of(node) not in taken]
        assumed = ""
        if not nodes and (nodes := _assumed(facts, flavor)):
            assumed = f"no node has the labels of its flavor; {plural(len(nodes), 'node')} for the quota of queues"
            drafted.assumed.append(f"pools.{name}: {assumed}; correct it")
        if not nodes:
            drafted.left.append(f"ResourceFlavor {name}: no node shows its machine; add a pool for it by hand")
            continue
        taken.update(map(name_of, nodes))
        groups = grouped((_shape(node), node) for node in nodes)
        resources[name] = next(iter(groups)).resource
        for number, (shape, group) in enumerate(groups.items(), 1):
            pool = name if len(groups) == 1 else f"{name}-{number}"
            drafted.entries[pool] = _pool(shape, group, flavor) | ({} if pool == name else {"flavor": name})
            if drafted.entries[pool].get("gpu", shape.model) != shape.model:
                drafted.assumed.append(f"pools.{pool}.gpu: no node shows the GPU model; set it")
            shown = assumed or f"{plural(len(group), 'node')} {shape.machine or 'without a machine type'}"
            drafted.notes[pool] = f"ResourceFlavor {name}: {shown}"
    if others := [node.name for node in facts.nodes if node.name not in taken]:
        without = f"Nodes {facts.name.listed(others)}: GPUs of no flavor"
        drafted.left.append(f"{without}; add a pool if teams are to use them")
    return drafted, resources


def _nodes(facts: Facts, flavor: Manifest) -> list[Manifest]:
    """Nodes with a flavor's labels: with GPUs if queues promise GPUs of the flavor, else without."""
    wanted = texts_at(flavor, "spec", "nodeLabels").items()
    nodes = [node for node in facts.state.of("Node") if wanted <= texts_at(node, "metadata", "labels").items()]
    promised = accelerators({res: amount for (name, res), amount in facts.promised.items() if name == name_of(flavor)})
    with_gpus: list[Manifest] = [node for node in nodes if accelerators(amounts(at(node, "status", "allocatable")))]
    if promised or (wanted and len(with_gpus) == len(nodes)):
        return with_gpus
    return [node for node in nodes if node not in with_gpus]


def _assumed(facts: Facts, flavor: Manifest) -> list[Manifest]:
    """Nodes that offer what queues promise of a flavor, such as nodes that an autoscaler has removed; at most 8 GPUs.

    Empty if queues do not promise CPU, memory and GPUs of one kind.
    """
    promised = {resource: amount for (name, resource), amount in facts.promised.items() if name == name_of(flavor)}
    gpus = accelerators(promised)
    if len(gpus) != 1 or not all(promised.get(name) for name in (CPU, MEMORY)):
        return []
    resource, total = next(iter(gpus.items()))
    count = total // gcd(total, _MOST_GPUS)
    offered: Json = {name: format_amount(name, promised[name] // count) for name in (CPU, MEMORY, resource)}
    labels: Json = map_at(flavor, "spec", "nodeLabels")
    return [
        {"metadata": {"name": f"{name_of(flavor)}-{number}", "labels": labels}, "status": {"allocatable": offered}}
        for number in range(count)
    ]


def _shape(node: Manifest) -> _Shape:
    """GPUs, CPUs, memory and machine type of a node; without a type, the only type with the same amounts."""
    labels, offered = texts_at(node, "metadata", "labels"), amounts(at(node, "status", "allocatable"))
    resource, count = next(iter(sorted(accelerators(offered).items())), ("", 0))
    product = labels.get(PRODUCT_LABELS.get(resource.partition("/")[0], ""), "")
    rest = offered.get(CPU, 0), offered.get(MEMORY, 0)
    machine = labels.get(_TYPE, "")
    if not machine:
        row, profile = find_gpu(product), resource.removeprefix(_MIG) if resource.startswith(_MIG) else ""
        parts = row.mig.get(profile, 0) if row and profile else 1
        same = [one for one in machines().values() if find_gpu(one.gpu or "") == row and one.gpus * parts == count]
        alike = [one.name for one in same if allocatable(one) == rest]
        machine = alike[0] if len(alike) == 1 else ""
    return _Shape(machine, product, resource, count, *((0, 0) if find_machine(machine) else rest))


def _pool(shape: _Shape, nodes: list[Manifest], flavor: Manifest) -> dict[str, Any]:
    labels = texts_at(flavor, "spec", "nodeLabels")
    of_product = PRODUCT_LABELS.get(shape.resource.partition("/")[0])
    own = {key: value for key, value in labels.items() if key != of_product}
    taints = [
        {key: taint[key] for key in ("key", "value", "effect") if text_at(taint, key)}
        for taint in maps_at(nodes[0], "spec", "taints")
        if text_at(taint, "key") not in {shape.resource, _WHOLE}
        and not text_at(taint, "key").startswith(_OF_CONTROLLERS)
    ]
    entry = {**_machine(shape, nodes[0]), "nodes": len(nodes)}
    return entry | ({"labels": own} if own else {}) | ({"taints": taints} if taints else {})


def _machine(shape: _Shape, node: Manifest) -> dict[str, Any]:
    """The machine type, or its amounts if the catalogue does not have it, and the partitions of its GPUs."""
    known = find_machine(shape.machine)
    whole = known.gpus if known else int(texts_at(node, "metadata", "labels").get(_COUNT, shape.gpus))
    row = find_gpu((known.gpu if known else shape.model) or "")
    sharing: dict[str, Any] = {}
    if whole and not shape.gpus % whole:
        each = shape.gpus // whole
        if shape.resource.startswith(_MIG):
            profile = shape.resource.removeprefix(_MIG)
            partitions = {} if row and row.mig.get(profile) == each else {"partitions": each}
            sharing = {"sharing": {"mig": {"profile": profile, **partitions}}}
        elif each > 1:
            sharing = {"sharing": {"timeSlicing": each}}
    if known and (shape.gpus == whole or sharing):
        return {"machine": shape.machine, **sharing}
    amount = amounts(map_at(node, "status", "allocatable"))
    entry: dict[str, Any] = {name: format_amount(name, amount.get(name, 0)) for name in (CPU, MEMORY)}
    if shape.gpus:
        entry |= {"gpu": shape.model or shape.machine or _UNKNOWN, "gpusPerNode": whole if sharing else shape.gpus}
        row = find_gpu(shape.model)
        if shape.resource != (row.resource if row else _WHOLE) and not sharing:
            entry["resource"] = shape.resource
    return entry | sharing


# Kinds to read.
KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "Deployment", "Job", "LimitRange", "LocalQueue", "Namespace", "NetworkPolicy", "Node",
    "PersistentVolumeClaim", "PriorityClass", "Queue", "ResourceFlavor", "ResourceQuota", "RoleBinding",
    "StorageClass", "Topology", "WorkloadPriorityClass",
)  # fmt: skip
# API groups of jobs and servers, and their operator.
OPERATED: Final = {kind.group: kind.operator for kind in kinds().values() if kind.operator}
ROOT: Final = "org"
# System classes are above: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/.
_MOST: Final = 1_000_000_000
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_PAYS: Final = {"owner": ("owner", "team"), "costCenter": ("cost-center",)}  # required keys of a team, and labels


@dataclass(frozen=True)
class Seen:
    """A cluster as input of a stack; `groups` are the served API groups of `OPERATED`."""

    facts: Facts
    groups: frozenset[str] = frozenset()

    @cached_property
    def pools(self) -> tuple[Drafted, dict[str, str]]:
        """The pools, and the GPU resource of each flavor."""
        return pools(self.facts)

    @cached_property
    def queue_of(self) -> dict[str, str]:
        """The ClusterQueue of each namespace with a LocalQueue; such a namespace is a team."""
        queues = self.facts.queues
        found = {space: queues.homes[space][queues.usual(space)] for space in sorted(queues.homes)}
        return {space: queue for space, queue in found.items() if queue in queues.cluster_queues}

    @cached_property
    def owners(self) -> dict[str, str]:
        """The team that owns each ClusterQueue; other teams share it."""
        found: dict[str, str] = {}
        for team, queue in self.queue_of.items():
            if queue not in found or team == queue:
                found[queue] = team
        return found

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """The parent of each cohort, including the root of the stack."""
        tenancy = self.facts.queues.tenancy
        named = {queue.cohort for queue in tenancy.queues if queue.cohort}
        found: dict[str, str | None] = dict.fromkeys(sorted(named))
        for cohort in tenancy.cohorts:
            found[cohort.name] = cohort.parent
            if cohort.parent:
                found.setdefault(cohort.parent, None)
        roots = [name for name, parent in found.items() if parent is None]
        if len(roots) == 1:
            return found
        root = ROOT if ROOT not in found else f"{ROOT}-root"
        return {root: None, **{name: parent or root for name, parent in found.items()}}

    @cached_property
    def provides(self) -> list[str]:
        """Features of the cluster. No object shows whether NetworkPolicies are enforced: assumed."""
        classes = self.facts.state.of("StorageClass")
        default = any(texts_at(each, "metadata", "annotations").get(_DEFAULT_CLASS) == "true" for each in classes)
        return ["networkPolicies", *(["defaultStorageClass"] if default else [])]

    def bounds(self, owner: kueue.ClusterQueue | kueue.Cohort, flavor: str, resource: str) -> dict[str, int]:
        """Guarantee and limit of a queue or cohort; without a borrowing limit, the limit is all quota of its tree."""
        quota = owner.quotas.get((flavor, resource), Quota(0))
        own = quota.nominal + self._below(owner.name, flavor, resource) * isinstance(owner, kueue.Cohort)
        if quota.borrowing_limit is not None:
            return {"guaranteed": own, "limit": own + max(0, quota.borrowing_limit)}
        cohort = owner.cohort if isinstance(owner, kueue.ClusterQueue) else owner.parent
        tops = {each.name: each.parent for each in self.facts.queues.tenancy.cohorts}
        while cohort and tops.get(cohort):
            cohort = tops[cohort]
        whole = self._below(cohort, flavor, resource, own=True) if cohort else 0
        return {"guaranteed": own, "limit": max(own, whole)}

    def _below(self, cohort: str, flavor: str, resource: str, *, own: bool = False) -> int:
        tenancy, key = self.facts.queues.tenancy, (flavor, resource)
        parts = [queue for queue in tenancy.queues if queue.cohort == cohort]
        total = sum(part.quotas[key].nominal for part in parts if key in part.quotas)
        for each in tenancy.cohorts:
            if each.parent == cohort and each.name != cohort:
                total += self._below(each.name, flavor, resource, own=True)
            if own and each.name == cohort and key in each.quotas:
                total += each.quotas[key].nominal
        return total

    def _gpus(self, owner: kueue.ClusterQueue | kueue.Cohort) -> dict[str, Any]:
        own = [line for line in owner.quotas if line[1] and self.pools[1].get(line[0]) == line[1]]
        shares = {flavor: self.bounds(owner, flavor, resource) for flavor, resource in own}
        used = {flavor: share for flavor, share in shares.items() if share["limit"]}
        return {"gpus": used} if used else {}

    @cached_property
    def teams(self) -> Drafted:
        """Teams: namespaces with a queue."""
        drafted, queues = Drafted(), self.facts.queues
        spaces = {name_of(each): texts_at(each, "metadata", "labels") for each in self.facts.state.of("Namespace")}
        for team, queue in self.queue_of.items():
            labels = spaces.get(team, {})
            entry: dict[str, Any] = {
                key: next((labels[label] for label in names if label in labels), _UNKNOWN)
                for key, names in _PAYS.items()
            }
            if "pod-security.kubernetes.io/enforce" not in labels:
                entry["podSecurity"] = "privileged"  # What runs must be accepted again.
            # The priority classes whose pods a ResourceQuota of the namespace counts.
            classes = [
                list_at(scope, "values")
                for quota in self.facts.state.of("ResourceQuota", team)
                for scope in maps_at(quota, "spec", "scopeSelector", "matchExpressions")
                if (text_at(scope, "scopeName"), text_at(scope, "operator")) == ("PriorityClass", "In")
            ]
            if classes and classes[0]:
                entry["compute"] = {"priorities": classes[0]}
            if self.owners[queue] != team:
                entry["queue"] = self.owners[queue]
            else:
                spec = queues.cluster_queues[queue].spec
                if spec.cohort and self.parents.get(spec.cohort):
                    entry["cohort"] = spec.cohort
                entry |= self._gpus(spec)
                entry |= {} if spec.cohort else {"lends": False}
            drafted.entries[team] = entry
            drafted.notes[team] = f"Namespace {team}, LocalQueue {queues.usual(team)}, ClusterQueue {queue}"
        return drafted

    @cached_property
    def cohorts(self) -> Drafted:
        """The cohort tree; empty if it has only the root that every stack has."""

        def place(name: str) -> tuple[int, str]:
            """Depth and name, so that parents come first."""
            above: list[str] = []
            while (parent := self.parents.get(above[-1] if above else name)) and parent not in above:
                above.append(parent)
            return len(above), name

        tenancy = self.facts.queues.tenancy
        known = {cohort.name: cohort for cohort in tenancy.cohorts}
        drafted = Drafted()
        for name in sorted(self.parents, key=place):
            parent, cohort = self.parents[name], known.get(name)
            entry: dict[str, Any] = {"parent": parent} if parent else {}
            if parent and cohort and cohort.quotas:
                entry |= self._gpus(cohort)
            if cohort and cohort.weight is not None and tenancy.fair_sharing:
                entry["weight"] = cohort.weight
            drafted.entries[name] = entry
            drafted.notes[name] = f"Cohort {name}" if cohort else "named by queues, without an object"
            if not cohort and name not in {queue.cohort for queue in tenancy.queues}:
                drafted.notes[name] = "not in the cluster: a stack has one root, so separate trees are joined"
        return Drafted() if drafted.entries in ({ROOT: {}}, {}) else drafted

    @cached_property
    def priorities(self) -> Drafted:
        """Priority classes of people, without classes of charts."""
        drafted = Drafted()
        for kind in ("WorkloadPriorityClass", "PriorityClass"):
            for each in self.facts.state.of(kind):
                name, value = name_of(each), int_at(each, "value")
                if value > _MOST or name.startswith("system-"):
                    continue
                if texts_at(each, "metadata", "labels").get("app.kubernetes.io/managed-by") == "Helm":
                    drafted.left.append(f"{kind} {name}: of a Helm release, which keeps it")
                    continue
                entry: dict[str, Any] = {"value": value}
                preempts = kind == "PriorityClass" and text_at(each, "preemptionPolicy") != "Never"
                entry |= {"preempts": True} if preempts else {}
                entry |= {"default": True} if at(each, "globalDefault") is True else {}
                entry |= {"description": text} if (text := text_at(each, "description")) else {}
                drafted.entries[name] = entry
                drafted.notes[name] = f"{kind} {name}"
        return drafted

    @property
    def parts(self) -> dict[str, Drafted]:
        """The drafted sections, in the order of the file."""
        return {"pools": self.pools[0], "priorities": self.priorities, "cohorts": self.cohorts, "teams": self.teams}

    def sections(self, name: str) -> dict[str, Any]:
        """The stack; its environment is from the namespaces' labels, else its name."""
        spaces = [each for each in self.facts.state.of("Namespace") if name_of(each) in self.queue_of]
        said = {texts_at(each, "metadata", "labels").get("environment", "") for each in spaces}
        environment = said.pop() if len(said) == 1 else name
        fair = {"fairness": "even"} if self.facts.queues.tenancy.fair_sharing else {}
        cluster: dict[str, Any] = {"cloud": "existing", "provides": self.provides}
        operators = {to_camel(name): "installed" for name in sorted({OPERATED[group] for group in self.groups})}
        start = {"environment": environment or name, "cluster": cluster, **fair}
        start |= {"operators": operators} if operators else {}
        return {**start, **{key: part.entries for key, part in self.parts.items() if part.entries}}
