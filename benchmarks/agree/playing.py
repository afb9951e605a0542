"""Plays scenarios on the real Kueue, and records the settled state after each step.

A workload is a Job, because Kueue counts its pods, and because its quota is free only when the Job has stopped. No node
runs the pods. A Job is deleted to finish. An action begins when nothing has changed for a while after the previous one,
and in a later second, since Kueue orders workloads by timestamps in seconds.
"""

import os
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, Final

from benchmarks.agree.drawing import Data
from benchmarks.agree.kueue import NAMESPACE, SCENARIO, Objects, shared, start
from benchmarks.agree.observing import Observer, View
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.names import KUEUE

# Seconds after which Kueue requeues inadmissible workloads if quota was freed: its `requeueBatchPeriod`.
REQUEUE: Final = 1.0
UNSETTLED: Final = 45.0  # seconds after an action in which a scenario settles, unless it never does
_READY: Final = 120.0
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """Players, and the seconds without a change before the next action, in addition to Kueue's reaction time."""

    players: int
    margin: float


QUICK: Final = Pace(6 * (os.cpu_count() or 1), 0.4)  # more players would only wait for one another
CAREFUL: Final = Pace(2 * (os.cpu_count() or 1), 2.5)  # for scenarios in which the simulation and the first play differ


@dataclass(frozen=True, slots=True)
class Played:
    """The record of one play, as in the recordings."""

    observed: list[Data]  # after each step; fewer than the steps if it did not settle
    trace: list[list[list[Any]]]  # events of each step, with seconds since it began
    settled: bool  # whether Kueue settled after each action
    tie: bool  # whether Kueue decided by a random id
    after: Any = None  # result of the stage's `then`; None without, or if unsettled

    def same(self, other: "Played") -> bool:
        """Whether both plays had the same states."""
        return (self.observed, self.settled) == (other.observed, other.settled)


class Stage:
    """A cluster with Kueue for scenarios; `then` is called after the last step of each settled play, for tests."""

    def __init__(self, cluster: Cluster, observer: Observer, then: "Callable[[Play], Any] | None" = None) -> None:
        self.cluster, self.observer, self.then = cluster, observer, then
        self._numbers = count(1)

    def play_all(self, scenarios: Sequence[Data], pace: Pace, advance: Callable[[int], None]) -> list[Played]:
        """Plays scenarios, some at the same time; raises if the cluster rejects an object or does not answer."""
        done, counting = 0, Lock()

        def play(scenario: Data) -> Played:
            nonlocal done
            played = Play(self, scenario, f"s{next(self._numbers):04}", pace).run()
            with counting:
                done += 1
                advance(done)
            return played

        with ThreadPoolExecutor(pace.players) as pool:
            futures = [pool.submit(play, scenario) for scenario in scenarios]
            try:
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def stage(
    made: Platform,
    scenarios: Sequence[Data],
    report: Report,
    *,
    fair: bool,
    then: "Callable[[Play], Any] | None" = None,
) -> Generator[Stage]:
    """Has Kueue run with or without fair sharing, with the scenarios' shared objects; these objects stay."""
    with made.cluster() as cluster, made.cluster() as watched:
        start(made, cluster, report, fair=fair)
        for manifest in shared(scenarios):
            cluster.apply(manifest)
        observer = Observer(watched)
        with observer.following():
            yield Stage(cluster, observer, then)


@dataclass(slots=True)
class Play:
    """One play of one scenario."""

    stage: Stage
    scenario: Data
    prefix: str  # of the names of its objects
    pace: Pace
    uids: dict[str, str] = field(default_factory=dict[str, str])  # workloads, by the Job's uid
    alive: list[str] = field(default_factory=list[str])  # workloads that have not finished

    @property
    def objects(self) -> Objects:
        """The scenario's objects."""
        return Objects(self.scenario, self.prefix)

    @property
    def view(self) -> View:
        """The observed state of its workloads."""
        return self.stage.observer.view(self.prefix)

    def run(self) -> Played:
        """Plays all steps, until one does not settle."""
        observed: list[Data] = []
        trace: list[list[list[Any]]] = []
        settled, after = True, None
        self._set_up()
        try:
            for step in self.scenario["steps"]:
                began, begun = time.monotonic(), len(self.view.events)
                moments: list[tuple[float, str]] = []
                actions = [("finish", name) for name in step.get("finish") or ()]
                actions += [("submit", workload) for workload in step.get("submit") or ()]
                for action, workload in actions:
                    self.next_second()
                    moments.append((time.monotonic(), f"{action} {_name(workload)}"))
                    settled = self._act(action, workload)
                    if not settled:
                        break
                moments += [
                    (
                        moment,
                        f"+{name}" if sign == "+" else f"-{name} {reason} by {self.uids.get(preemptor, 'unknown')}",
                    )
                    for moment, sign, name, reason, preemptor in self.view.events[begun:]
                ]
                trace.append([[round(moment - began, 1), text] for moment, text in sorted(moments)])
                observed.append(self.observed())
                if not settled:
                    break
            if settled and self.stage.then:
                after = self.stage.then(self)
        finally:
            # The first workload of such a queue keeps the scheduler busy for ever.
            for queue in self.objects.blocking_queues():
                self.stage.cluster.patch(queue, {"spec": {"stopPolicy": "Hold"}})
        return Played(observed, trace, settled, self.view.tie, after)

    def _set_up(self) -> None:
        cluster = self.stage.cluster
        _ = self.view  # before its first event
        for manifest in self.objects.queues():
            cluster.create(manifest)
        queues, selector = len(self.scenario["clusterQueues"]), f"{SCENARIO}={self.prefix}"

        def active() -> bool:
            found = cluster.list(KUEUE, "LocalQueue", namespace=NAMESPACE, labels=selector)
            return len([queue for queue in found if is_true(queue, "Active")]) == queues

        cluster.wait_for(active, timeout=_READY, what=f"the queues of {self.scenario['id']} to be active")
        time.sleep(self.stage.observer.reaction)  # cohorts have no such condition

    def _act(self, action: str, workload: Any) -> bool:
        """Submits or finishes a workload, and waits; returns whether the scenario settled."""
        cluster, name, begun = self.stage.cluster, _name(workload), len(self.view.events)
        if action == "submit":
            made = cluster.create(self.objects.job(workload))
            self.uids[text_at(made, "metadata", "uid")] = name
            self.alive.append(name)
        else:
            cluster.delete(self.objects.job_reference(name), wait=0)
            self.alive.remove(name)
        return self.rest(name, begun, submitted=action == "submit")

    def rest(self, name: str, begun: int, *, submitted: bool) -> bool:
        """Waits for the workload `name` until nothing changes after `begun` events; False if that takes too long."""
        view, started = self.view, time.monotonic()
        decided = False
        while True:
            self.stage.observer.check()
            with view.changed:
                now = time.monotonic()
                workload = view.workloads.get(name)
                if submitted and not decided and workload and workload.assessed:
                    decided = True
                    self.stage.observer.reacted(now - started)
                changing = any(one.changing for one in view.workloads.values()) or (workload is not None) != submitted
                evictions = any(event[1] == "-" for event in view.events[begun:])
                if submitted and not changing and not evictions and workload and workload.admitted:
                    return True  # it took free quota, so that nothing else can change
                # Seconds without any change after which nothing changes any more.
                quiet = self.stage.observer.reaction + self.pace.margin
                if not decided or not submitted or evictions:
                    quiet += REQUEUE
                left = max(view.last, started) + quiet - now
                if not changing and left <= 0:
                    return True
                if now - started > UNSETTLED + self.stage.observer.reaction:
                    return False
                view.changed.wait(_HALF if changing else min(left, _HALF))

    def next_second(self) -> None:
        """Waits for a second in which nothing was created or admitted yet."""
        with self.view.changed:
            workloads = tuple(self.view.workloads.values())
        latest = max((second for one in workloads for second in (one.created, one.reserved or 0)), default=0)
        time.sleep(max(0.0, latest + 1.02 - time.time()))

    def observed(self) -> Data:
        """The admitted and pending workloads, as in the recordings."""
        with self.view.changed:
            workloads = dict(self.view.workloads)
        admitted = [name for name in self.alive if name in workloads and workloads[name].admitted]
        flavors = {line["flavor"] for queue in self.scenario["clusterQueues"] for line in queue["resources"]}
        return {
            "admitted": admitted,
            "pending": [name for name in self.alive if name not in admitted],
            **({"flavors": {name: dict(workloads[name].flavors) for name in admitted}} if len(flavors) > 1 else {}),
        }


def _name(workload: Any) -> str:
    return workload if isinstance(workload, str) else workload["name"]
