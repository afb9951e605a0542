"""Jobs, servers and single pods of a namespace, with their pods and Workloads."""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.cluster.demand import KINDS
from gpu_tenancy.cluster.pods import Manifest, label, name_of
from gpu_tenancy.cluster.reading import State, read, require_team
from gpu_tenancy.cluster.rejections import rejections
from gpu_tenancy.cluster.workloads import Workload, read_workloads
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError, UnknownKindError
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.kinds import kind_of

_UNREAD: Final = (FORBIDDEN, NOT_FOUND)
_INDEX: Final = "batch.kubernetes.io/job-completion-index"
_NUMBER: Final = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Jobs:
    """The objects of a namespace that run pods."""

    namespace: str
    objects: tuple[Manifest, ...]  # including objects that controllers created
    workloads: tuple[Workload, ...] = ()  # of Kueue; empty if not readable
    events: tuple[Manifest, ...] = ()  # of controllers; empty if not readable

    @cached_property
    def _above(self) -> dict[str, tuple[str, ...]]:
        """Uids of each object and its owners, the root last."""
        parents = {
            uid_of(manifest): next((text_at(owner, "uid") for owner in controllers(manifest)), "")
            for manifest in self.objects
        }
        found: dict[str, tuple[str, ...]] = {}
        for uid in parents:
            line = [uid]
            while (above := parents[line[-1]]) in parents and above not in line:
                line.append(above)
            found[uid] = tuple(line)
        return found

    @cached_property
    def roots(self) -> tuple[Manifest, ...]:
        """Objects without an owner, as people submit them."""
        return tuple(manifest for manifest in self.objects if len(self._above[uid_of(manifest)]) == 1)

    def named(self, name: str, kind: str = "") -> Manifest:
        """The object with a name, of any kind or of one; of an object and its controller's objects, the former.

        Raises ConsoleError if no object has the name, or several kinds have one.
        """
        found = [
            manifest
            for manifest in self.objects
            if name_of(manifest) == name and kind.lower() in {"", text_at(manifest, "kind").lower()}
        ]
        uids = {uid_of(manifest) for manifest in found}
        first = [manifest for manifest in found if not uids.intersection(self._above[uid_of(manifest)][1:])]
        if len(first) == 1:
            return first[0]
        place = f"{self.namespace}/{name}"
        if first:
            kinds = ", ".join(f"{text_at(one, 'kind')} ({text_at(one, 'apiVersion')})" for one in first)
            raise ConsoleError(f"{place}: several objects have this name: {kinds}", "set --kind")
        known = sorted({name_of(manifest) for manifest in self.objects if text_at(manifest, "kind") != "Pod"})
        fix = nearest(name, known) if known else f"`tenancy queue {self.namespace}` lists its jobs"
        raise ConsoleError(f"{place}: {kind or 'object'} not found, or not readable by you", fix)

    def owner(self, manifest: Manifest) -> Manifest | None:
        """The owner whose controller would recreate this object after a deletion; not the CronJob of a run."""
        above = self._above[uid_of(manifest)][1:]
        found = next((one for one in self.objects if uid_of(one) in above[:1]), None)
        kind = kind_of(found) if found else None
        return found if kind and kind.counted_by != "template" else None

    def pods(self, manifest: Manifest) -> tuple[Manifest, ...]:
        """Pods of an object, sorted by name; of pods with the same index, the newest one."""
        by_place: dict[str, Manifest] = {}
        for pod in sorted(self._made_for(manifest), key=lambda pod: text_at(pod, "metadata", "creationTimestamp")):
            if text_at(pod, "kind") == "Pod":
                by_place[text_at(pod, "metadata", "generateName") if label(pod, _INDEX) else name_of(pod)] = pod

        def natural(name: str) -> list[tuple[int, str]]:
            """Orders names by the numbers in them: `train-2` before `train-10`."""
            return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(name)]

        return tuple(by_place[place] for place in sorted(by_place, key=natural))

    def workloads_of(self, manifest: Manifest) -> tuple[Workload, ...]:
        """Kueue's Workloads of an object and of objects that it owns."""
        uids = {uid_of(one) for one in self._made_for(manifest)}
        return tuple(workload for workload in self.workloads if uids.intersection(workload.owners))

    @cached_property
    def refused(self) -> dict[str, tuple[str, ...]]:
        """Messages about refused pods and children of objects, newest first, by `namespace/name` of the root."""
        names = {uid_of(manifest): f"{self.namespace}/{name_of(manifest)}" for manifest in self.objects}
        return rejections(self.events, self.workloads, {uid: names[above[-1]] for uid, above in self._above.items()})

    def pods_of(self, workload: Workload) -> tuple[Manifest, ...]:
        """Running pods of one of Kueue's Workloads."""
        owners = frozenset(workload.owners)
        pods = (one for one in self.objects if text_at(one, "kind") == "Pod")
        running = (pod for pod in pods if text_at(pod, "status", "phase") == "Running")
        return tuple(pod for pod in running if not owners.isdisjoint(self._above[uid_of(pod)]))

    def _made_for(self, manifest: Manifest) -> Iterator[Manifest]:
        return (one for one in self.objects if uid_of(manifest) in self._above[uid_of(one)])


def uid_of(manifest: Manifest) -> str:
    """Uid of an object."""
    return text_at(manifest, "metadata", "uid")


def controllers(manifest: Manifest) -> Iterator[Manifest]:
    """The controlling owner references."""
    return (owner for owner in maps_at(manifest, "metadata", "ownerReferences") if owner.get("controller"))


def read_jobs(
    cluster: Cluster, namespace: str, *, queued: bool = False, kinds: Iterable[tuple[str, str]] = KINDS
) -> Jobs:
    """Reads a namespace; unreadable kinds are left out. `queued`: also Workloads and events.

    Raises ConsoleError without objects if the namespace does not exist, or the user may not read it.
    """
    cluster.resource("v1", "Pod")  # A server that does not answer is asked once, not by each thread.
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        listed = pool.map(partial(_list, cluster, namespace), kinds)
        more = read(cluster, (), namespace, only=("Workload", "Event")) if queued else State()
        objects = tuple(one for found in listed for one in found)
        if kinds and not objects:
            require_team(read(cluster, ("Namespace", "LocalQueue"), namespace, only=("Pod",)), namespace, "jobs", "Pod")
        return Jobs(namespace, objects, read_workloads(more.of("Workload")), more.of("Event"))


def _list(cluster: Cluster, namespace: str, api: tuple[str, str]) -> tuple[Manifest, ...]:
    try:
        return cluster.list(*api, namespace=namespace)
    except (UnknownKindError, ApiError) as error:
        if error.status not in _UNREAD:
            raise
        return ()


def look_up(cluster: Cluster, namespace: str, name: str, kind: str = "") -> Manifest:
    """Finds an object of any kind that runs pods; see `Jobs.named`."""
    return read_jobs(cluster, namespace).named(name, kind)
