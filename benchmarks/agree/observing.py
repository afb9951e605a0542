"""Follows Kueue's changes of the workloads of all scenarios that are played at the same time."""

import re
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Condition, Event, Thread
from typing import Final

from benchmarks.agree.kueue import NAMESPACE
from gpu_tenancy.base.json import int_at, maps_at, text_at, texts_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, UnreachableError
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.model.names import KUEUE

_PREEMPTOR: Final = re.compile(r"JobUID: ([0-9a-f-]+)")
_SECONDS: Final = 20  # of one watch; the next one continues at its end


@dataclass(frozen=True, slots=True)
class Workload:
    """The state of a Workload object."""

    priority: int
    created: int
    reserved: int | None  # second of the quota reservation; None without quota
    assessed: bool  # whether the scheduler has decided on it since its creation
    admitted: bool
    evicting: bool  # whether it is evicted, but still has its quota
    evicted: str  # Kueue's reason
    preemptor: str  # uid of the job that it was preempted for, or empty
    flavors: Mapping[str, str]  # by resource, if it has quota

    @property
    def changing(self) -> bool:
        """Whether it is between two states."""
        return self.evicting or self.admitted != (self.reserved is not None)


def read_workload(manifest: Manifest) -> Workload:
    """Reads a Workload object."""
    reserved, admitted = condition(manifest, "QuotaReserved"), condition(manifest, "Admitted")
    evicted, preempted = condition(manifest, "Evicted"), condition(manifest, "Preempted")
    has_quota = text_at(reserved, "status") == "True"
    is_evicted = text_at(evicted, "status") == "True"
    match = _PREEMPTOR.search(text_at(preempted, "message"))
    pod_sets = maps_at(manifest, "status", "admission", "podSetAssignments")
    return Workload(
        priority=int_at(manifest, "spec", "priority"),
        created=_second(text_at(manifest, "metadata", "creationTimestamp")),
        reserved=_second(text_at(reserved, "lastTransitionTime")) if has_quota else None,
        assessed=bool(reserved),
        admitted=text_at(admitted, "status") == "True",
        evicting=is_evicted and has_quota,
        evicted=text_at(preempted, "reason") or text_at(evicted, "reason") if is_evicted else "",
        preemptor=match[1] if match else "",
        flavors=texts_at(pod_sets[0], "flavors") if pod_sets else {},
    )


def _second(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp())


@dataclass(slots=True)
class View:
    """The workloads of one scenario, by the names of their Jobs. Times are by the monotonic clock."""

    changed: Condition = field(default_factory=Condition)  # guards all of it, and is notified of each change
    workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    last: float = 0.0
    # Evictions and admissions in order: time, `+` or `-`, workload, reason, uid of the preemptor's job.
    events: list[tuple[float, str, str, str, str]] = field(default_factory=list[tuple[float, str, str, str, str]])
    # A preempted workload had a rival of the same priority and second of reservation: Kueue decides by a random id.
    tie: bool = False

    def update(self, name: str, now: Workload | None) -> None:
        """Stores a Workload's new state; None if it is deleted."""
        with self.changed:
            self.last = time.monotonic()
            before = self.workloads.get(name)
            if now is None:
                self.workloads.pop(name, None)
            else:
                self.workloads[name] = now
                if now.evicting and not (before and before.evicting):
                    self.events.append((self.last, "-", name, now.evicted, now.preemptor))
                    rivals = [rival for other, rival in self.workloads.items() if other != name]
                    same = (now.priority, now.reserved)
                    self.tie = self.tie or any((rival.priority, rival.reserved) == same for rival in rivals)
                if now.admitted and not (before and before.admitted):
                    self.events.append((self.last, "+", name, "", ""))
            self.changed.notify_all()


class Observer:
    """Follows the Workloads of a namespace in a thread of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._views: dict[str, View] = {}
        self._ended = Event()
        self._failure: Exception | None = None
        self._reactions: deque[float] = deque([0.2], maxlen=24)

    @contextmanager
    def following(self) -> Generator[None]:
        """Follows until the block ends."""
        thread = Thread(target=self._follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            # A watch ends by itself; nobody needs its events.
            thread.join(timeout=0.1)

    def view(self, prefix: str) -> View:
        """The view of a scenario, by the prefix of its names."""
        return self._views.setdefault(prefix, View())

    def check(self) -> None:
        """Raises the error that ended the watch, if any."""
        if self._failure:
            raise self._failure

    def reacted(self, seconds: float) -> None:
        """Records the seconds that Kueue took to decide on one workload."""
        self._reactions.append(seconds)

    @property
    def reaction(self) -> float:
        """Seconds in which Kueue decides at present, at worst."""
        return max(tuple(self._reactions))

    def _follow(self) -> None:
        try:
            since = ""
            while not self._ended.is_set():
                since = self._once(since)
        except (ApiError, UnreachableError) as error:
            if not self._ended.is_set():
                self._failure = error

    def _once(self, since: str) -> str:
        for event in self._cluster.watch(KUEUE, "Workload", namespace=NAMESPACE, since=since, seconds=_SECONDS):
            since = text_at(event.object, "metadata", "resourceVersion")
            for owner in maps_at(event.object, "metadata", "ownerReferences"):
                prefix, _, name = text_at(owner, "name").partition("-")
                if text_at(owner, "kind") == "Job" and prefix in self._views:
                    gone = event.type == "DELETED"
                    self._views[prefix].update(name, None if gone else read_workload(event.object))
        return since
