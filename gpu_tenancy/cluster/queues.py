"""Queues of a running cluster: namespaces, usage and pending workloads."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, at, map_at, text_at, texts_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import amounts, gpus
from gpu_tenancy.cluster.cluster_queues import ClusterQueue, is_fair_sharing, quotas_of, read_cluster_queue, read_cohort
from gpu_tenancy.cluster.pods import Manifest, ended, name_of, namespace_of, requests, scheduler, selects
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.workloads import FIX_THIS, Reason, Workload, read_workloads, waiting
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue import FAIR, FlavorResource, Quotas, Tenancy

NO_KUEUE: Final = "Kueue is not installed: no queue to wait in"
NO_LOCAL_QUEUE: Final = "the namespace has no LocalQueue; ask the platform team for one"
KUEUE_NOT_RUNNING: Final = "Kueue has not reported usage for any queue: its controller is not running"


@dataclass(frozen=True)
class Queues:
    """Kueue's queues and workloads, as far as the user may read them."""

    state: State

    @cached_property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """ClusterQueues by name; without usage from Kueue, pods on the flavors' nodes are counted."""
        queues = {queue.name: queue for queue in map(read_cluster_queue, self.state.of("ClusterQueue"))}
        for name, queue in queues.items():
            if queue.counted:
                continue
            used: dict[FlavorResource, int] = defaultdict(int)
            for pod in (pod for namespace in self.users(name) for pod in self.state.of("Pod", namespace)):
                spec = map_at(pod, "spec")
                flavor = self.flavor_by_node.get(text_at(spec, "nodeName"))
                if flavor and not ended(pod) and scheduler(spec) != "volcano":
                    for resource, value in requests(spec).items():
                        used[flavor, resource] += value
            queues[name] = replace(queue, usage=dict(used))
        return queues

    @cached_property
    def tenancy(self) -> Tenancy:
        """All ClusterQueues and Cohorts."""
        queues = tuple(queue.spec for queue in self.cluster_queues.values())
        cohorts = tuple(read_cohort(cohort) for cohort in self.state.of("Cohort"))
        return Tenancy(queues, cohorts, FAIR if is_fair_sharing(self.state.of("ClusterQueue")) else None)

    @cached_property
    def quotas(self) -> Quotas:
        """Quota and usage of all ClusterQueues."""
        return quotas_of(self.tenancy, self.cluster_queues.values())

    @cached_property
    def uncounted(self) -> bool:
        """Whether Kueue reports usage of no queue, since its controller does not run."""
        return bool(self.cluster_queues) and not any(queue.counted for queue in self.cluster_queues.values())

    @cached_property
    def homes(self) -> dict[str, dict[str, str]]:
        """LocalQueues of each namespace, with their ClusterQueues."""
        homes: dict[str, dict[str, str]] = defaultdict(dict)
        for local in self.state.of("LocalQueue"):
            homes[namespace_of(local)][name_of(local)] = text_at(local, "spec", "clusterQueue")
        return dict(homes)

    def unknown_local(self, namespace: str, name: str) -> Reason:
        """Error for workloads of a missing LocalQueue."""
        known = self.homes.get(namespace)
        fix = nearest(name, known) if known else NO_LOCAL_QUEUE
        return f"LocalQueue {name} not found in namespace {namespace}", fix

    def unknown_class(self, kind: Kind, name: str) -> Reason | None:
        """Error for workloads of a missing priority class; None if it exists, or may exist."""
        known = [name_of(one) for one in self.state.of(kind)]
        if not name or name in known or not self.state.knows(kind):
            return None
        return f"{kind} {name} not found", nearest(name, [one for one in known if not one.startswith("system-")])

    def usual(self, namespace: str) -> str:
        """LocalQueue to suggest: the one with the namespace's name, else the first; empty for none."""
        known = self.homes.get(namespace, {})
        return namespace if namespace in known else min(known, default="")

    def users(self, queue: str) -> list[str]:
        """Namespaces with a LocalQueue of a ClusterQueue."""
        return sorted(namespace for namespace, queues in self.homes.items() if queue in queues.values())

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """Workloads that are not finished."""
        return tuple(workload for workload in self.every_workload if workload.stage != "finished")

    @cached_property
    def every_workload(self) -> tuple[Workload, ...]:
        """All workloads, including finished ones."""
        return read_workloads(self.state.of("Workload"))

    def unseen(self, queue: str) -> int:
        """Number of pending workloads that the user may not read."""
        if self.state.knows("Workload"):
            return 0
        return max(0, self.cluster_queues[queue].pending - len(self.waiting_in(queue)))

    def queue_of(self, workload: Workload) -> str:
        """ClusterQueue of a workload; empty if its LocalQueue does not exist."""
        return self.homes.get(workload.namespace, {}).get(workload.queue, "")

    def waiting_in(self, queue: str) -> list[Workload]:
        """Pending workloads of a ClusterQueue, in queue order."""
        return waiting(self.members.get(queue, ()))

    @cached_property
    def members(self) -> dict[str, list[Workload]]:
        """The workloads of each ClusterQueue."""
        return grouped((self.queue_of(workload), workload) for workload in self.workloads)

    def holder_of(self, workload: Workload) -> str:
        """ClusterQueue that has the workload's reserved quota, or in which it is pending."""
        return workload.holder or self.queue_of(workload)

    def shut_out(self, namespace: str, queue: str) -> Reason | None:
        """Why the namespaceSelector of a ClusterQueue excludes a namespace; None if it does not."""
        if not self.state.knows("Namespace") or namespace not in self._labels:
            return None
        if selects(self._selectors.get(queue), self._labels[namespace]):
            return None
        text = f"namespaceSelector of ClusterQueue {queue} does not match namespace {namespace}"
        return text, "change the selector, or use another queue"

    @cached_property
    def _labels(self) -> dict[str, Mapping[str, str]]:
        return {name_of(manifest): texts_at(manifest, "metadata", "labels") for manifest in self.state.of("Namespace")}

    @cached_property
    def _selectors(self) -> dict[str, Json]:
        return {name_of(queue): at(queue, "spec", "namespaceSelector") for queue in self.state.of("ClusterQueue")}

    def stopped(self, namespace: str, name: str) -> Reason | None:
        """Why a LocalQueue is stopped or inactive."""
        if policy := self.stop_policy(namespace, name):
            patch = """--type merge -p '{"spec": {"stopPolicy": "None"}}'"""
            fix = f"ask a lead of the team for `kubectl -n {namespace} patch localqueue {name} {patch}`"
            return f"LocalQueue {name} is stopped (stopPolicy {policy})", fix
        active = condition(self._locals.get((namespace, name), {}), "Active")
        message = text_at(active, "message") if text_at(active, "status") == "False" else ""
        return (f"LocalQueue {name} admits no workloads: {message}", FIX_THIS) if message else None

    def closed(self, namespace: str, local: str, queue: ClusterQueue) -> Reason | None:
        """Why a ClusterQueue admits no workloads of a LocalQueue."""
        if queue.hold and queue.stop_policy:
            return queue.hold.sentence, queue.hold.fix
        if queue.inactive:
            return f"ClusterQueue {queue.name} admits no workloads: {queue.inactive}", FIX_THIS
        return self.stopped(namespace, local) or self.shut_out(namespace, queue.name)

    def stop_policy(self, namespace: str, name: str) -> str:
        """`Hold` or `HoldAndDrain` of a LocalQueue; empty if it is not stopped."""
        policy = text_at(self._locals.get((namespace, name), {}), "spec", "stopPolicy")
        return policy if policy != "None" else ""

    @cached_property
    def _locals(self) -> dict[tuple[str, str], Manifest]:
        return {(namespace_of(local), name_of(local)): local for local in self.state.of("LocalQueue")}

    @cached_property
    def flavor_by_node(self) -> dict[str, str]:
        """Flavor of each node by most matching labels; a single flavor without labels has other nodes without GPUs."""
        flavors = self.state.of("ResourceFlavor")
        wanted = [(texts_at(flavor, "spec", "nodeLabels"), name_of(flavor)) for flavor in flavors]
        wanted.sort(key=lambda pair: -len(pair[0]))
        unlabelled = [name for asked, name in wanted if not asked]
        by_node: dict[str, str] = {}
        for node in self.state.of("Node"):
            here = texts_at(node, "metadata", "labels")
            match = next((name for asked, name in wanted if asked and asked.items() <= here.items()), None)
            if match is None and len(unlabelled) == 1 and not gpus(amounts(at(node, "status", "allocatable"))):
                match = unlabelled[0]
            if match:
                by_node[name_of(node)] = match
        return by_node
