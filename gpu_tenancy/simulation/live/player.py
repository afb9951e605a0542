"""Submits jobs to a live Kueue, and reads what becomes of them."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from gpu_tenancy.base.json import maps_at, text_at, texts_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.kueue import Admitted, Evicted, Pending, Settled, Step, Workload
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.live.copies import KUEUE, Place, uncopied
from gpu_tenancy.simulation.live.jobs import PLAYED, job_name, job_of
from gpu_tenancy.simulation.scenarios.stage import Moment, moment_of

QUIET: Final = 1.5
"""Seconds without a change after which Kueue counts as settled."""
UNCONSIDERED: Final = 5.0
"""The same while Kueue has no message about a pending job, such as one behind the head of its queue."""
PREEMPTING: Final = 20.0
"""The same while Kueue preempts jobs for another one, which is admitted when they have ended: seconds later on a busy
machine."""
PATIENCE: Final = 60.0
"""Seconds in which Kueue settles."""
_POLL: Final = 0.2
_PREEMPTION: Final = "Pending the preemption of"
"""In Kueue's message about a job for which it preempts others:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go"""
_IDENTIFIERS: Final = re.compile(r" \(UID: [^)]*\)|; preemptor path: .*")


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened to a job, in the order in which it was seen.

    Attributes:
        seconds: since the step began.
        what: `submitted`, `finished`, `admitted` or `preempted`.
        job: its name in the scenario.
        message: Kueue's message; empty for what the player did.
        by: the job that preempts it; empty for other events.
        reason: of a preemption, such as `InCohortReclamation`.
    """

    seconds: float
    what: str
    job: str
    message: str = ""
    by: str = ""
    reason: str = ""


@dataclass(slots=True)
class _Seen:
    """A job as it was last seen."""

    workload: Workload
    number: int
    admitted: bool = False
    flavors: tuple[Mapping[str, str], ...] = ()
    message: str = ""
    preempted: str = ""


@dataclass(slots=True)
class Player:
    """Plays steps of jobs on the queues of a stack.

    Attributes:
        places: where the jobs of each queue are submitted.
        tell: receives each event when it is seen.
    """

    cluster: Cluster
    tree: Tree
    places: Mapping[str, Place]
    tell: Callable[[Happened], None] = lambda _: None
    _jobs: dict[str, _Seen] = field(default_factory=dict[str, _Seen])
    _known: dict[str, Workload] = field(default_factory=dict[str, Workload])
    _evicted: list[Evicted] = field(default_factory=list[Evicted])
    _began: float = 0.0

    def play(self, label: str, step: Step) -> Moment:
        """Ends and submits the jobs of a step, and returns the state when Kueue has settled.

        Jobs that are alike are submitted together; before a different one, Kueue settles.

        Raises:
            WaitTimeoutError: Kueue does not settle.
            ApiError: the API server or a policy rejects a job.
        """
        self._began, self._evicted = time.monotonic(), []
        for name in step.finish:
            self._finish(name)
            self._settle()
        for _, alike in groupby(step.submit, lambda job: (job.queue, job.pod_sets, job.priority)):
            for workload in alike:
                self._submit(workload)
            self._settle()
        return moment_of(self.tree, label, self._state(), self._known)

    def message(self, name: str) -> str:
        """Kueue's message about a pending job."""
        return self._jobs[name].message

    def clear(self) -> None:
        """Deletes all jobs, and waits until their Workloads are gone.

        Raises:
            WaitTimeoutError: a Workload still exists.
        """
        numbers = {str(self._finish(name, quiet=True)) for name in list(self._jobs)}

        def gone() -> bool:
            return not any(_number(workload) in numbers for workload in self._workloads())

        self.cluster.wait_for(gone, timeout=PATIENCE, poll=_POLL, what="the Workloads of the jobs to be deleted")

    def _submit(self, workload: Workload) -> None:
        number = len(self._known) + 1
        self.cluster.create(job_of(self.tree, workload, self.places[workload.queue], number))
        self._jobs[workload.name] = _Seen(workload, number)
        self._known[workload.name] = workload
        self._tell("submitted", workload.name)

    def _finish(self, name: str, *, quiet: bool = False) -> int:
        """Deletes a job and returns its number."""
        seen = self._jobs.pop(name)
        namespace = self.places[seen.workload.queue].namespace
        self.cluster.delete(Reference("batch/v1", "Job", job_name(seen.number), namespace))
        if not quiet:
            self._tell("finished", name)
        return seen.number

    def _settle(self) -> None:
        """Waits until nothing has changed for a while."""
        changed = [time.monotonic(), 0.0]
        last: list[object] = [None]

        def settled() -> bool:
            now = self._read()
            if now != last[0]:
                last[0], changed[0] = now, time.monotonic()
            pending = [seen.message for seen in self._jobs.values() if not seen.admitted]
            return time.monotonic() - changed[0] >= quiet(pending)

        self.cluster.wait_for(settled, timeout=PATIENCE, poll=_POLL, what="Kueue to settle")

    def _read(self) -> object:
        """Reads all Workloads, tells what changed, and returns what must stay the same while Kueue is settled."""
        by_number = {str(seen.number): (name, seen) for name, seen in self._jobs.items()}
        found: list[object] = []
        workloads = list(self._workloads())
        admissions: list[tuple[str, Manifest]] = []
        for workload in workloads:
            name, seen = by_number.get(_number(workload), ("", None))
            if seen is None:
                continue
            admitted = is_true(workload, "Admitted")
            self._preempted(name, seen, workload, workloads)
            if admitted and not seen.admitted:
                admissions.append((name, workload))
            seen.admitted = admitted
            seen.flavors = tuple(_flavors(workload))
            seen.message = uncopied(text_at(condition(workload, "QuotaReserved"), "message"))
            found.append((name, admitted, is_true(workload, "Evicted"), seen.preempted))
        for name, workload in admissions:
            self._tell("admitted", name, text_at(condition(workload, "Admitted"), "message"))
        return sorted(found, key=str)

    def _workloads(self) -> Iterator[Manifest]:
        for namespace in dict.fromkeys(place.namespace for place in self.places.values()):
            yield from self.cluster.list(KUEUE, "Workload", namespace=namespace)

    def _preempted(self, name: str, seen: _Seen, workload: Manifest, workloads: Iterable[Manifest]) -> None:
        """Records a preemption that was not seen before."""
        preempted = condition(workload, "Preempted")
        when = text_at(preempted, "lastTransitionTime") + text_at(preempted, "message")
        if text_at(preempted, "status") != "True" or when == seen.preempted:
            return
        seen.preempted = when
        message = text_at(preempted, "message")
        numbers = {str(other.number): job for job, other in self._jobs.items()}
        by = next((numbers.get(_number(other), "") for other in workloads if _uid(other) in message), "")
        seconds, reason = time.monotonic() - self._began, text_at(preempted, "reason")
        self._evicted.append(Evicted(name, by or name, reason, seconds))
        self.tell(Happened(seconds, "preempted", name, _IDENTIFIERS.sub("", message), by, reason))

    def _state(self) -> Settled:
        jobs = sorted(self._jobs.items(), key=lambda item: item[1].number)
        return Settled(
            admitted=tuple(Admitted(n, seen.workload.queue, seen.flavors) for n, seen in jobs if seen.admitted),
            pending=tuple(Pending(n, seen.workload.queue, seen.message) for n, seen in jobs if not seen.admitted),
            evicted=tuple(self._evicted),
        )

    def _tell(self, what: str, job: str, message: str = "") -> None:
        self.tell(Happened(time.monotonic() - self._began, what, job, message))


def quiet(messages: Collection[str]) -> float:
    """Seconds without a change after which Kueue counts as settled, by its messages about pending jobs."""
    if any(_PREEMPTION in message for message in messages):
        return PREEMPTING
    return QUIET if all(messages) else UNCONSIDERED


def _number(workload: Manifest) -> str:
    """The number of the played job that a Workload belongs to; empty for other Workloads."""
    sets = maps_at(workload, "spec", "podSets")
    return text_at(sets[0], "template", "metadata", "labels", PLAYED) if sets else ""


def _uid(workload: Manifest) -> str:
    return text_at(workload, "metadata", "uid")


def _flavors(workload: Manifest) -> Iterator[Mapping[str, str]]:
    for assignment in maps_at(workload, "status", "admission", "podSetAssignments"):
        yield {resource: uncopied(name) for resource, name in texts_at(assignment, "flavors").items()}
