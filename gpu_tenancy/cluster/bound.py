"""GPUs of pods on nodes that no queue counts: for each queue, GPUs bound to nodes must not exceed GPUs counted.

Counted: quota that Kueue reserved for Workloads, by flavor; `allocated` of a Volcano queue. Bound: requests of pods
with a node that have not ended, by the flavors whose labels the node has. Deleted pods are not bound, since they keep
their GPUs for their grace period; a breach tells them apart. Queues that share a namespace are compared together.

One read is not enough: its lists are milliseconds apart, and pods of a deleted job are deleted later than its Workload.
A second read confirms a breach. The age of pods would need the clock of the API server, would not tell when quota was
released, and would miss pods that are replaced each second.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gpu_tenancy.base.json import map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import gpus
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cluster.gangs import gang_queues, queue_of_gang
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, namespace_of, requests
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.model.kinds import kinds

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "LocalQueue", "Node", "Pod", "PodGroup", "Queue", "ResourceFlavor", "Workload",
)  # fmt: skip
PAUSE: Final = 1.0  # seconds between two reads
FIX: Final = "delete them, or give them the size that was admitted"
_WORKLOAD: Final = "kueue.x-k8s.io/workload"  # annotation that Kueue adds to the pods of an admitted Workload

_Line: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], str]  # queues, flavors, resource
_Pods: TypeAlias = list[tuple[Manifest, int]]  # with their GPUs


@dataclass(frozen=True, slots=True)
class Breach:
    """GPUs of a flavor on nodes beyond what a queue counts."""

    queue: str  # several if they share a namespace
    flavor: str  # several if they share nodes, or if nodes are not readable; `-` for gangs
    resource: str
    bound: int
    counted: int
    terminating: int  # GPUs of deleted pods, beside `bound`
    owners: tuple[str, ...]  # with more GPUs than are counted for them, such as `TrainJob ml-research/nightly`
    pods: tuple[str, ...]  # of these owners, as `namespace/name`

    @property
    def value(self) -> str:
        """Such as `32 nvidia.com/gpu of flavor a100`."""
        return f"{self.bound} {self.resource}" + ("" if self.flavor == "-" else f" of flavor {self.flavor}")

    @property
    def problem(self) -> str:
        """The counted amount, the owners and their pods."""
        ending = f" and {self.terminating} terminating" if self.terminating else ""
        pods = first_names([pod.rpartition("/")[2] for pod in self.pods], 4)
        return f"on nodes{ending}, {self.counted} counted: {first_names(self.owners, 3)} (pods {pods})"

    @property
    def text(self) -> str:
        """The breach in one line."""
        return f"queue {self.queue}: {self.value} {self.problem}; {FIX}"


def confirmed(state: State, again: Callable[[], State]) -> tuple[Breach, ...]:
    """Breaches of a cluster, read with `KINDS`, that a second read has too; raises the errors of `again`."""
    if not breaches(state):
        return ()
    time.sleep(PAUSE)
    return breaches(state, again())


def breaches(*reads: State) -> tuple[Breach, ...]:
    """Breaches in every read of a cluster; several reads are compared by the least bound and the most counted.

    Nothing is compared without Pods, Workloads or Volcano's Queues. Without Nodes, flavors are summed.
    """
    counts, all_pods = [_counted(state) for state in reads], [_bound(state) for state in reads]
    found: list[Breach] = []
    for line in sorted(set[_Line].intersection(*map(set[_Line], all_pods))):
        queues, flavors, resource = line
        keys = [(queue, flavor, resource) for queue in queues for flavor in flavors]
        counted = sum(max(count[key] for count in counts) for key in keys)
        bound = min(sum(amount for pod, amount in pods[line] if not _deleted(pod)) for pods in all_pods)
        if bound > counted:
            pods, names = all_pods[-1][line], (", ".join(queues), ", ".join(flavors))
            terminating = sum(amount for pod, amount in pods if _deleted(pod))
            owners = _owners(reads[-1], resource, pods)
            found.append(Breach(*names, resource, bound, counted, terminating, *owners))
    return tuple(found)


def _deleted(pod: Manifest) -> bool:
    return bool(text_at(pod, "metadata", "deletionTimestamp"))


def _counted(state: State) -> Counter[tuple[str, str, str]]:
    """Amounts by queue, flavor and resource."""
    counted = Counter[tuple[str, str, str]]()
    for workload in Queues(state).workloads:
        counted.update({(workload.holder, *line): amount for line, amount in workload.held.items()})
    for gang in gang_queues(state.of("Queue"), ()):
        counted.update({(f"Volcano {gang.name}", "-", name): amount for name, amount in gang.used.items()})
    return counted


def _bound(state: State) -> Mapping[_Line, _Pods]:
    """Pods on nodes that are compared, with the deleted ones."""
    queues, found = Queues(state), defaultdict[_Line, _Pods](list)
    offered = defaultdict[tuple[str, str], set[str]](set)  # flavors by queue and resource
    quotas = ((name, *line) for name, queue in queues.cluster_queues.items() for line in queue.spec.quotas)
    for name, flavor, resource in (*quotas, *_counted(state)):
        offered[name, resource].add(flavor)
    resources = {resource for _, resource in offered}
    gangs = {gang.name: gang.counted for gang in gang_queues(state.of("Queue"), ())}
    groups = {(namespace_of(one), name_of(one)): text_at(one, "spec", "queue") for one in state.of("PodGroup")}
    flavors = state.of("ResourceFlavor")
    selected = {name_of(flavor): texts_at(flavor, "spec", "nodeLabels").items() for flavor in flavors}
    nodes = {name_of(node): texts_at(node, "metadata", "labels").items() for node in state.of("Node")}
    unread = state.missing.get("Workload")
    together = _together(queues) if not unread or (unread.partly and not state.knows("Pod")) else {}
    for pod in state.of("Pod"):
        node, gang = text_at(pod, "spec", "nodeName"), queue_of_gang(pod, groups)
        for resource, amount in gpus(requests(map_at(pod, "spec"))).items() if node and not ended(pod) else ():
            if gang in gangs or (gang is not None and not state.knows("Queue")):
                if gangs.get(gang):
                    found[(f"Volcano {gang}",), ("-",), resource].append((pod, amount))
            elif (names := together.get(namespace_of(pod))) and resource in resources:
                own = {flavor for name in names for flavor in offered[name, resource]}
                here = (name for name in own if node not in nodes or selected.get(name, set()) <= nodes[node])
                line = names, tuple(sorted(here)) or (queues.flavor_by_node.get(node, "-"),), resource
                found[line].append((pod, amount))
    return found


def _together(queues: Queues) -> dict[str, tuple[str, ...]]:
    """ClusterQueues of each namespace, with all that they share a namespace with."""
    own = {namespace: {*homes.values()} for namespace, homes in queues.homes.items()}
    for workload in queues.workloads:
        own.setdefault(workload.namespace, set()).add(workload.holder)
    merged: dict[str, set[str]] = {}
    for names in own.values():
        whole = (names - {""}).union(*(merged.get(name, set()) for name in names))
        merged.update(dict.fromkeys(whole, whole))
    return {namespace: tuple(sorted(merged[min(names - {""})])) for namespace, names in own.items() if names - {""}}


def _owners(state: State, resource: str, pods: _Pods) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Owners with more GPUs on nodes than their Workloads count, and their pods; all if there are none."""
    known: dict[tuple[str, str], str] = {}
    counted, bound = Counter[str](), Counter[str]()
    for workload in Queues(state).workloads:
        kind = {text_at(owner, "kind") for owner in maps_at(workload.manifest, "metadata", "ownerReferences")}
        title = f"{kind.pop() if len(kind) == 1 else 'Workload'} {workload.label}"
        known |= {(workload.namespace, key): title for key in (workload.name, *workload.owners)}
        counted[title] += sum(amount for (_, name), amount in workload.held.items() if name == resource)
    names: dict[str, list[str]] = defaultdict(list)
    for pod, amount in pods:
        if not _deleted(pod):
            owner = _owner(pod, known)
            names[owner].append(f"{namespace_of(pod)}/{name_of(pod)}")
            bound[owner] += amount
    owners = sorted(owner for owner in bound if bound[owner] > counted[owner]) or sorted(bound)
    return tuple(owners), tuple(sorted(pod for owner in owners for pod in names[owner]))


def _owner(pod: Manifest, known: Mapping[tuple[str, str], str]) -> str:
    """Title of the object of a pod: the owner of its Workload, the one that a label names, or its controller."""
    namespace, refs = namespace_of(pod), maps_at(pod, "metadata", "ownerReferences")
    keys = [text_at(pod, "metadata", "annotations", _WORKLOAD), text_at(pod, "metadata", "uid")]
    titles = (known.get((namespace, key), "") for key in (*keys, *(text_at(ref, "uid") for ref in refs)))
    labels = ((kind.kind, label(pod, kind.label)) for kind in kinds().values() if kind.label)
    named = (f"{kind} {namespace}/{name}" for kind, name in labels if name)
    controllers = (f"{text_at(ref, 'kind')} {namespace}/{text_at(ref, 'name')}" for ref in refs)
    return next(filter(None, (*titles, *named, *controllers)), f"Pod {namespace}/{name_of(pod)}")
