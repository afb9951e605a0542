"""Plays scenarios on the real Kueue, and records what it settles on after each step.

A workload is a Job, because Kueue counts its pods, and because its quota is free only when the Job has stopped. No node
runs the pods. To finish is to delete the Job. An action begins when nothing has changed for a while after the previous
one, and in a later second, since Kueue orders workloads by timestamps in seconds.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from benchmarks.agree.changing import Outcome, changed_objects, foreseen
from benchmarks.agree.objects import KUEUE, NAMESPACE, SCENARIO, Objects
from benchmarks.agree.observing import Observer, View
from benchmarks.agree.tenancies import Data
from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import is_true

REQUEUE: Final = 1.0
"""Seconds after which Kueue queues inadmissible workloads again if quota was freed: its `requeueBatchPeriod`."""
UNSETTLED: Final = 45.0
"""Seconds after an action in which a scenario comes to rest, unless it never does."""
_READY: Final = 120.0
_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pace:
    """How long nothing must change before the next action, in addition to what Kueue needs at present."""

    players: int
    margin: float


QUICK: Final = Pace(6 * (os.cpu_count() or 1), 0.4)
"""More players would only wait for one another."""
CAREFUL: Final = Pace(2 * (os.cpu_count() or 1), 2.5)
"""For scenarios in which the simulation and the first play differ."""


@dataclass(frozen=True, slots=True)
class Played:
    """What Kueue did.

    Attributes:
        observed: after each step, as in the recordings; fewer than there are steps if it did not settle.
        trace: for each step, events with the seconds since the step began, as in the recordings.
        settled: whether Kueue came to rest after each action.
        tie: whether Kueue decided by a random id at some point.
        change: what the scenario's change was foreseen to do, and what it did; None without a change.
    """

    observed: list[Data]
    trace: list[list[list[Any]]]
    settled: bool
    tie: bool
    change: tuple[Outcome, Outcome] | None = None

    def same(self, other: "Played") -> bool:
        """Whether both plays had the same states."""
        return (self.observed, self.settled) == (other.observed, other.settled)


class Stage:
    """A cluster with Kueue on which scenarios are played."""

    def __init__(self, cluster: Cluster, observer: Observer) -> None:
        self.cluster, self.observer = cluster, observer
        self._number = 0
        self._numbering = Lock()

    def play_all(self, scenarios: Sequence[Data], pace: Pace, advance: Callable[[int], None]) -> list[Played]:
        """Plays scenarios, some at the same time.

        Raises:
            ApiError, ConsoleError: the cluster rejects an object or does not answer.
        """
        done = 0

        def play(scenario: Data) -> Played:
            nonlocal done
            played = _Play(self, scenario, self._prefix(), pace).run()
            with self._numbering:
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

    def _prefix(self) -> str:
        with self._numbering:
            self._number += 1
            return f"s{self._number:04}"


@dataclass(slots=True)
class _Play:
    """One play of one scenario."""

    stage: Stage
    scenario: Data
    prefix: str
    pace: Pace
    began: float = 0.0
    uids: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def objects(self) -> Objects:
        return Objects(self.scenario, self.prefix)

    @property
    def view(self) -> View:
        return self.stage.observer.view(self.prefix)

    def run(self) -> Played:
        observed: list[Data] = []
        trace: list[list[list[Any]]] = []
        settled, change = True, None
        alive: list[str] = []
        self._set_up()
        try:
            for step in self.scenario["steps"]:
                self.began, begun = time.monotonic(), len(self.view.events)
                actions: list[tuple[float, str]] = []
                for action, workload in _actions(step):
                    self._next_second()
                    actions.append((time.monotonic(), f"{action} {_name(workload)}"))
                    settled = self._act(action, workload, alive)
                    if not settled:
                        break
                trace.append(self._trace(actions, begun))
                observed.append(self._observed(alive))
                if not settled:
                    break
            if settled and "change" in self.scenario:
                settled, change = self._change(alive)
        finally:
            self._hold()
        return Played(observed, trace, settled, self.view.tie, change)

    def _change(self, alive: Sequence[str]) -> tuple[bool, tuple[Outcome, Outcome]]:
        """Changes the queues; whether the scenario came to rest, and what was foreseen and done."""
        self._next_second()
        cluster = self.stage.cluster
        expected = foreseen(cluster, self.scenario, self.prefix)
        before, begun = self._observed(alive)["admitted"], len(self.view.events)
        for manifest in changed_objects(self.scenario, self.prefix):
            cluster.apply(manifest, force=True)
        settled = self._rest("", begun, submitted=False)
        preempted = {event[2] for event in self.view.events[begun:] if event[1] == "-"}
        joined = set(self._observed(alive)["admitted"]) - set(before)
        return settled, (expected, Outcome(tuple(sorted(preempted)), tuple(sorted(joined))))

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

    def _act(self, action: str, workload: Any, alive: list[str]) -> bool:
        """Submits or finishes a workload, and waits; whether the scenario came to rest."""
        cluster, name, begun = self.stage.cluster, _name(workload), len(self.view.events)
        if action == "submit":
            made = cluster.create(self.objects.job(workload))
            self.uids[text_at(made, "metadata", "uid")] = name
            alive.append(name)
        else:
            cluster.delete(self.objects.job_reference(name), wait=0)
            alive.remove(name)
        return self._rest(name, begun, submitted=action == "submit")

    def _rest(self, name: str, begun: int, *, submitted: bool) -> bool:
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
                quiet = self._quiet(requeued=not submitted or evictions, decided=decided)
                left = max(view.last, started) + quiet - now
                if not changing and left <= 0:
                    return True
                if now - started > UNSETTLED + self.stage.observer.reaction:
                    return False
                view.changed.wait(_HALF if changing else min(left, _HALF))

    def _quiet(self, *, requeued: bool, decided: bool) -> float:
        """Seconds without any change after which nothing changes any more."""
        reaction = self.stage.observer.reaction + self.pace.margin
        return reaction if decided and not requeued else REQUEUE + reaction

    def _next_second(self) -> None:
        """Waits for a second in which nothing was created or admitted yet."""
        with self.view.changed:
            workloads = tuple(self.view.workloads.values())
        latest = max((second for one in workloads for second in (one.created, one.reserved or 0)), default=0)
        time.sleep(max(0.0, latest + 1.02 - time.time()))

    def _observed(self, alive: Sequence[str]) -> Data:
        with self.view.changed:
            workloads = dict(self.view.workloads)
        admitted = [name for name in alive if name in workloads and workloads[name].admitted]
        flavors = {line["flavor"] for queue in self.scenario["clusterQueues"] for line in queue["resources"]}
        return {
            "admitted": admitted,
            "pending": [name for name in alive if name not in admitted],
            **({"flavors": {name: dict(workloads[name].flavors) for name in admitted}} if len(flavors) > 1 else {}),
        }

    def _trace(self, actions: Sequence[tuple[float, str]], begun: int) -> list[list[Any]]:
        events = [
            (moment, f"+{name}" if sign == "+" else f"-{name} {reason} by {self.uids.get(preemptor, 'unknown')}")
            for moment, sign, name, reason, preemptor in self.view.events[begun:]
        ]
        return [[round(moment - self.began, 1), text] for moment, text in sorted([*actions, *events])]

    def _hold(self) -> None:
        """Stops queues whose first workload keeps the scheduler busy for ever."""
        for queue in self.objects.blocking_queues():
            self.stage.cluster.patch(queue, {"spec": {"stopPolicy": "Hold"}})


def _actions(step: Data) -> Iterator[tuple[str, Any]]:
    yield from (("finish", name) for name in step.get("finish") or ())
    yield from (("submit", workload) for workload in step.get("submit") or ())


def _name(workload: Any) -> str:
    return workload if isinstance(workload, str) else workload["name"]
