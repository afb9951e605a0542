"""The queues of a running cluster as the questions need them: whose they are, what they hold, what waits in them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpu_tenancy.console.cluster.waiting import condition
from gpu_tenancy.console.live.pods import Manifest, called, ended, home, requests, scheduler
from gpu_tenancy.console.live.reading import State
from gpu_tenancy.console.live.selecting import selects
from gpu_tenancy.console.live.tree import ClusterQueue, Line, Tree
from gpu_tenancy.console.live.workloads import Workload, waiting
from gpu_tenancy.console.offline.wire import Json, at, text_at


@dataclass(frozen=True)
class Queues:
    """All queues of Kueue's that the user may see, and what is in them."""

    state: State

    @cached_property
    def tree(self) -> Tree:
        """The cohort tree. Where Kueue has not counted a queue, its pods on the flavors' nodes are."""
        found = [ClusterQueue.of(each) for each in self.state.of("ClusterQueue")]
        counted = [each if each.counted else replace(each, used=self._by_pods(each.name)) for each in found]
        return Tree(counted, self.state.of("Cohort"))

    @cached_property
    def uncounted(self) -> bool:
        """Whether Kueue has counted none of the queues: it does not run here."""
        return bool(self.tree.queues) and not any(each.counted for each in self.tree.queues.values())

    @cached_property
    def homes(self) -> dict[str, dict[str, str]]:
        """For each namespace its LocalQueues and the ClusterQueues that they lead to."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for each in self.state.of("LocalQueue"):
            found[home(each)][called(each)] = text_at(each, "spec", "clusterQueue")
        return dict(found)

    def users(self, queue: str) -> list[str]:
        """The namespaces whose jobs a ClusterQueue takes."""
        return sorted(namespace for namespace, queues in self.homes.items() if queue in queues.values())

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        """All that are not finished."""
        found = (Workload.of(each) for each in self.state.of("Workload"))
        return tuple(each for each in found if each.stage != "finished")

    def queue_of(self, workload: Workload) -> str:
        """The ClusterQueue of a workload; empty where its LocalQueue leads nowhere."""
        return self.homes.get(workload.namespace, {}).get(workload.queue, "")

    def waiting_in(self, queue: str) -> list[Workload]:
        """What waits in a ClusterQueue, the next first."""
        return waiting(self.members.get(queue, ()))

    @cached_property
    def members(self) -> dict[str, list[Workload]]:
        """The workloads of each ClusterQueue."""
        found: dict[str, list[Workload]] = defaultdict(list)
        for each in self.workloads:
            found[self.queue_of(each)].append(each)
        return dict(found)

    def holder_of(self, workload: Workload) -> str:
        """The ClusterQueue whose quota a workload holds; the one that it waits for where it holds none."""
        return workload.holder or self.queue_of(workload)

    def shut_out(self, namespace: str, queue: str) -> str:
        """Why a ClusterQueue takes nothing of a namespace; empty where it does, or where nobody can tell.

        Kueue lets such a workload into the queue all the same; it waits there for ever, and blocks nobody.
        """
        if not self.state.knows("Namespace") or namespace not in self._labels:
            return ""
        if selects(self._selectors.get(queue), self._labels[namespace]):
            return ""
        return f"its namespaceSelector does not take namespace {namespace}, so nothing of it is ever admitted"

    @cached_property
    def _labels(self) -> dict[str, Mapping[str, str]]:
        return {called(each): labels(each, "metadata", "labels") for each in self.state.of("Namespace")}

    @cached_property
    def _selectors(self) -> dict[str, Json]:
        return {called(each): at(each, "spec", "namespaceSelector") for each in self.state.of("ClusterQueue")}

    def stopped(self, namespace: str, name: str) -> str:
        """Why a LocalQueue lets nothing through; empty where it does."""
        if policy := self.stop_policy(namespace, name):
            return f"LocalQueue {name} is stopped (stopPolicy {policy})"
        active = condition(self._locals.get((namespace, name), {}), "Active")
        message = text_at(active, "message") if text_at(active, "status") == "False" else ""
        return f"LocalQueue {name}: {message}" if message else ""

    def stop_policy(self, namespace: str, name: str) -> str:
        """How a LocalQueue is stopped: `Hold`, `HoldAndDrain`; empty where it is not."""
        found = text_at(self._locals.get((namespace, name), {}), "spec", "stopPolicy")
        return found if found != "None" else ""

    @cached_property
    def _locals(self) -> dict[tuple[str, str], Manifest]:
        return {(home(each), called(each)): each for each in self.state.of("LocalQueue")}

    def _by_pods(self, queue: str) -> dict[Line, int]:
        used: dict[Line, int] = defaultdict(int)
        nodes = self._flavored
        for namespace in self.users(queue):
            for pod in self.state.of("Pod", namespace):
                spec = at(pod, "spec")
                flavor = nodes.get(text_at(pod, "spec", "nodeName"))
                if flavor and isinstance(spec, dict) and not ended(pod) and scheduler(spec) != "volcano":
                    for name, value in requests(spec).items():
                        used[flavor, name] += value
        return dict(used)

    @cached_property
    def _flavored(self) -> dict[str, str]:
        return flavored(self.state.of("Node"), self.state.of("ResourceFlavor"))


def flavored(nodes: Iterable[Manifest], flavors: Sequence[Manifest]) -> dict[str, str]:
    """The flavor of each node that has all labels of one; of several, the one that names most labels."""
    wanted = sorted(
        ((labels(each, "spec", "nodeLabels"), called(each)) for each in flavors), key=lambda each: -len(each[0])
    )
    found: dict[str, str] = {}
    for node in nodes:
        here = labels(node, "metadata", "labels")
        match = next((name for asked, name in wanted if asked and asked.items() <= here.items()), None)
        if match:
            found[called(node)] = match
    return found


def labels(manifest: Manifest, *keys: str) -> Mapping[str, str]:
    """A map of labels; empty where there is none."""
    found = at(manifest, *keys)
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}
