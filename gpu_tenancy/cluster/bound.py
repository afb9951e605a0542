"""Pods with GPUs that no queue counts: for each queue, GPUs bound to nodes must not exceed GPUs counted.

Counted: quota that Kueue reserved for Workloads; `allocated` of a Volcano queue. Bound: requests of pods with a node,
by the flavors that select the node. Deleted pods keep their GPUs for their grace period: a breach tells them apart.

A second read confirms a breach: lists are milliseconds apart, and a deleted job's pods are deleted after its Workload.
The age of pods would need the server's clock, and would miss released quota and pods that are replaced each second.
"""

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cluster.demand import owners
from gpu_tenancy.cluster.gangs import queue_of_gang
from gpu_tenancy.cluster.pods import Manifest, deleted, label, name_of, namespace_of
from gpu_tenancy.cluster.reading import Kind, State, read
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.kinds import kinds

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "LocalQueue", "Node", "Pod", "PodGroup", "Queue", "ResourceFlavor", "Workload",
)  # fmt: skip
_FIX: Final = "delete them, or give them the size that was admitted"
_SERVERS: Final = ("Deployment", "StatefulSet")  # pods of one that is older than Kueue are never counted
_PAUSE: Final = 1.0  # seconds between two reads
_WORKLOAD: Final = "kueue.x-k8s.io/workload"  # annotation that Kueue adds to the pods of an admitted Workload

_Line: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], str]  # queues, flavors, resource
_Count: TypeAlias = tuple[str, str, str]  # queue, flavor, resource
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

    def problem(self, name: Callable[[str], str] = str) -> str:
        """Flavor, counted amount, owners and their pods, with a name for each name."""
        of = "" if self.flavor == "-" else f"of flavor {name(self.flavor)} "
        ending = f" and {self.terminating} terminating" if self.terminating else ""
        owners = [" ".join((kind, name(owner))) for kind, owner in (one.split(" ", 1) for one in self.owners)]
        pods = first_names([name(pod).rpartition("/")[2] for pod in self.pods], 4)
        return f"{of}on nodes{ending}, {self.counted} counted: {first_names(owners, 3)} (pods {pods})"

    def fix(self, name: Callable[[str], str] = str) -> str:
        """What ends the breach; new pods of a server that Kueue does not count are not counted either."""
        of_kinds = [(kind, name(owner).partition("/")) for kind, owner in (one.split(" ", 1) for one in self.owners)]
        again = [
            f"`kubectl delete {kind.lower()} {shlex.quote(own)} -n {space}`"
            for kind, (space, _, own) in of_kinds
            if kind in _SERVERS
        ]
        fixes = [_FIX] if len(again) < len(self.owners) else []
        if again:
            how = f"delete their owner: {', '.join(again)}; then deploy its stack, or apply its manifest, again"
            fixes.append(f"deleted pods come back uncounted, so {how}")
        return "; ".join(fixes)

    @property
    def text(self) -> str:
        """The breach in one line."""
        return f"queue {self.queue}: {self.bound} {self.resource} {self.problem()}; {self.fix()}"


def read_checked(cluster: Cluster, kinds: Collection[Kind], namespace: str = "", team: str = "") -> State:
    """A cluster as `read` reads it, with breaches that a second read has too: all, or those of the namespace `team`.

    `KINDS` must be among `kinds`. Raises the errors of `read`.
    """
    state = read(cluster, kinds, namespace)
    if breaches(state):
        time.sleep(_PAUSE)
        later = read(cluster, kinds, namespace)
        own = [one for one in breaches(state, later) if any(pod.startswith(team and f"{team}/") for pod in one.pods)]
        return replace(later, breaches=tuple(own))
    return state


def breaches(*reads: State) -> tuple[Breach, ...]:
    """Breaches in every read of a cluster; several reads are compared by the least bound and the most counted.

    Nothing is compared without Pods, Workloads or Volcano's Queues. Without Nodes, flavors are summed.
    """
    every = [Facts(state) for state in reads]
    counts = [_counted(facts) for facts in every]
    bounds = [_bound(facts, counted) for facts, counted in zip(every, counts, strict=True)]
    found: list[Breach] = []
    for line in sorted(set[_Line].intersection(*map(set[_Line], bounds))):
        queues, flavors, resource = line
        keys = [(queue, flavor, resource) for queue in queues for flavor in flavors]
        counted = sum(max(count[key] for count in counts) for key in keys)
        bound = min(sum(amount for pod, amount in pods[line] if not deleted(pod)) for pods in bounds)
        if bound > counted:
            pods, names = bounds[-1][line], (", ".join(queues), ", ".join(flavors))
            terminating = sum(amount for pod, amount in pods if deleted(pod))
            found.append(Breach(*names, resource, bound, counted, terminating, *_owners(every[-1], resource, pods)))
    return tuple(found)


def _counted(facts: Facts) -> Counter[_Count]:
    counted = Counter[_Count]()
    for workload in facts.queues.workloads:
        counted.update({(workload.holder, *line): amount for line, amount in workload.held.items() if workload.counts})
    for gang in facts.gangs:
        counted.update({(f"Volcano {gang.name}", "-", name): amount for name, amount in gang.used.items()})
    return counted


def _bound(facts: Facts, counted: Collection[_Count]) -> Mapping[_Line, _Pods]:
    """Pods on nodes that are compared, with the deleted ones."""
    state, found = facts.state, defaultdict[_Line, _Pods](list)
    flavors = defaultdict[str, set[str]](set)  # by resource
    for flavor, resource in (*facts.promised, *((flavor, resource) for _, flavor, resource in counted)):
        flavors[resource].add(flavor)
    unread = state.missing.get("Workload")
    readable = not unread or (unread.partly and not state.knows("Pod"))
    own = {space: {*homes.values()} for space, homes in facts.queues.homes.items() if readable}
    for workload in facts.queues.workloads if readable else ():
        own.setdefault(workload.namespace, set()).add(workload.holder)
    gangs = {gang.name: gang.counted for gang in facts.gangs}
    groups = {(namespace_of(one), name_of(one)): text_at(one, "spec", "queue") for one in state.of("PodGroup")}
    for pod, wanted in facts.gpu_pods:
        node, gang = text_at(pod, "spec", "nodeName"), queue_of_gang(pod, groups)
        queues = tuple(sorted(own.get(namespace_of(pod), set()) - {""}))
        for resource, amount in wanted.items() if node else ():
            if gang in gangs or (gang is not None and not state.knows("Queue")):
                if gangs.get(gang):
                    found[(f"Volcano {gang}",), ("-",), resource].append((pod, amount))
            elif queues and (every := flavors[resource] - {"-"}):
                here = {flavor for flavor in every if node in facts.flavors.get(flavor, ())} or every
                found[queues, tuple(sorted(here)), resource].append((pod, amount))
    return found


def _owners(facts: Facts, resource: str, pods: _Pods) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Owners with more GPUs on nodes than their Workloads count, and their pods; all if there are none."""
    known, left, names = owner_titles(facts.queues.workloads), Counter[str](), defaultdict[str, list[str]](list)
    for workload in facts.queues.workloads:
        held = (amount for (_, name), amount in workload.held.items() if name == resource and workload.counts)
        left[known[workload.namespace, workload.name]] += sum(held)
    for pod, amount in pods:
        if not deleted(pod):
            owner = owner_title(pod, known)
            names[owner].append(f"{namespace_of(pod)}/{name_of(pod)}")
            left[owner] -= amount
    beyond = sorted(owner for owner in names if left[owner] < 0) or sorted(names)
    return tuple(beyond), tuple(sorted(pod for owner in beyond for pod in names[owner]))


def owner_titles(workloads: Iterable[Workload]) -> dict[tuple[str, str], str]:
    """`Job research/a` by namespace, and by name of the Workload and uids of its owners."""
    known: dict[tuple[str, str], str] = {}
    for workload in workloads:
        kind = {text_at(owner, "kind") for owner in maps_at(workload.manifest, "metadata", "ownerReferences")}
        title = f"{kind.pop() if len(kind) == 1 else 'Workload'} {workload.label}"
        known |= {(workload.namespace, key): title for key in (workload.name, *workload.owners)}
    return known


def owner_title(pod: Manifest, known: Mapping[tuple[str, str], str]) -> str:
    """Title of the object of a pod: the owner of its Workload, the one that a label names, or its controller."""
    space, refs = namespace_of(pod), maps_at(pod, "metadata", "ownerReferences")
    keys = [text_at(pod, "metadata", *path) for path in (("annotations", _WORKLOAD), ("uid",))]
    titles = [known.get((space, key), "") for key in (*keys, *owners(pod))]
    titles += [f"{kind.kind} {space}/{name}" for kind in kinds().values() if (name := label(pod, kind.label))]
    names = [(text_at(one, "kind"), text_at(one, "name")) for one in refs]
    if revision := label(pod, "pod-template-hash"):  # ends the name of a Deployment's ReplicaSet
        names = [("Deployment", name.removesuffix(f"-{revision}")) for _, name in names]
    titles += [f"{kind} {space}/{name}" for kind, name in names]
    return next(filter(None, titles), f"Pod {space}/{name_of(pod)}")
