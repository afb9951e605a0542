"""Plays a scenario on a live Kueue."""

import re
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import maps_at, text_at, texts_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import condition, is_true
from gpu_tenancy.kueue import Admitted, Evicted, Pending, Settled, Step, Workload
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, PodPlan, RolePlan
from gpu_tenancy.simulation.copies import Place, copied, own_places, uncopied
from gpu_tenancy.simulation.player import Event, Tell, unheard
from gpu_tenancy.simulation.stage import JobStep, Moment, moment_of

QUIET: Final = 1.5  # seconds without a change after which Kueue counts as settled
UNCONSIDERED: Final = 5.0  # the same while Kueue has no message about a pending job, such as one behind the head
PREEMPTING: Final = 20.0
"""The same while Kueue preempts jobs for another job, which is admitted when they have ended, seconds later."""
PATIENCE: Final = 60.0  # seconds in which Kueue settles
_POLL: Final = 0.2
_PREEMPTION: Final = "Pending the preemption of"
"""https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/scheduler.go"""
_IDENTIFIERS: Final = re.compile(r" \(UID: [^)]*\)|; preemptor path: .*")


@dataclass(slots=True)
class _Seen:
    workload: Workload
    number: int
    admitted: bool = False
    flavors: tuple[Mapping[str, str], ...] = ()
    message: str = ""
    preempted: str = ""


class LivePlayer:
    """A player on a live Kueue; `places` are where jobs of each queue are submitted."""

    def __init__(self, cluster: Cluster, tree: Tree, places: Mapping[str, Place]) -> None:
        self._cluster = cluster
        self._tree = tree
        self._places = places
        self._tell: Tell = unheard
        self._jobs: dict[str, _Seen] = {}
        self._known: dict[str, Workload] = {}
        self._evicted: list[Evicted] = []

    def play(self, step: JobStep, tell: Tell) -> Moment:
        """As `Player.play`. Raises WaitTimeoutError if Kueue does not settle, ApiError if a job is rejected."""
        return self.play_step(step.label, step.step, tell)

    def play_step(self, label: str, step: Step, tell: Tell | None = None) -> Moment:
        """As `play`, with its errors, for workloads of one pod set; Kueue settles between workloads that differ."""
        self._tell, self._evicted = tell or unheard, []
        for name in step.finish:
            self._delete(name)
            self._tell(Event("finished", name, self._known[name].queue))
            self._settle()
        for _, alike in groupby(step.submit, lambda job: (job.queue, job.pod_sets, job.priority)):
            for workload in alike:
                number = len(self._known) + 1
                self._cluster.create(job_of(self._tree, workload, self._places[workload.queue], number))
                self._jobs[workload.name] = _Seen(workload, number)
                self._known[workload.name] = workload
            self._settle()
        jobs = sorted(self._jobs.items(), key=lambda item: item[1].number)
        settled = Settled(
            admitted=tuple(Admitted(n, seen.workload.queue, seen.flavors) for n, seen in jobs if seen.admitted),
            pending=tuple(Pending(n, seen.workload.queue, seen.message) for n, seen in jobs if not seen.admitted),
            evicted=tuple(self._evicted),
        )
        moment = moment_of(self._tree, label, settled, self._known)
        submitted = {workload.name for workload in step.submit}
        for waiting in moment.waiting:
            if waiting.workload in submitted:
                self._tell(Event("pending", waiting.workload, waiting.team, message=waiting.why))
        return moment

    def message(self, name: str) -> str:
        """Kueue's message about a pending job."""
        return self._jobs[name].message

    def reference(self, name: str) -> Reference:
        """The Kubernetes Job of a played job."""
        seen = self._jobs[name]
        return Reference("batch/v1", "Job", job_name(seen.number), self._places[seen.workload.queue].namespace)

    def clear(self) -> None:
        """Deletes all jobs, and waits until their Workloads are gone. Raises WaitTimeoutError if one still exists."""
        numbers = {str(self._delete(name)) for name in list(self._jobs)}

        def gone() -> bool:
            return not any(_number(workload) in numbers for workload in self._workloads())

        self._cluster.wait_for(gone, timeout=PATIENCE, poll=_POLL, what="the Workloads of the jobs to be deleted")

    def _delete(self, name: str) -> int:
        self._cluster.delete(self.reference(name))
        return self._jobs.pop(name).number

    def _settle(self) -> None:
        changed = [time.monotonic(), 0.0]
        last: list[object] = [None]

        def settled() -> bool:
            now = self._read()
            if now != last[0]:
                last[0], changed[0] = now, time.monotonic()
            pending = [seen.message for seen in self._jobs.values() if not seen.admitted]
            return time.monotonic() - changed[0] >= quiet(pending)

        self._cluster.wait_for(settled, timeout=PATIENCE, poll=_POLL, what="Kueue to settle")

    def _read(self) -> object:
        by_number = {str(seen.number): (name, seen) for name, seen in self._jobs.items()}
        found: list[object] = []
        workloads = list(self._workloads())
        admissions: list[Event] = []
        for workload in workloads:
            name, seen = by_number.get(_number(workload), ("", None))
            if seen is None:
                continue
            admitted = is_true(workload, "Admitted")
            self._preempted(name, seen, workload, workloads)
            if admitted and not seen.admitted:
                admissions.append(Event("admitted", name, seen.workload.queue))
            seen.admitted = admitted
            seen.flavors = tuple(
                {resource: uncopied(flavor) for resource, flavor in texts_at(assignment, "flavors").items()}
                for assignment in maps_at(workload, "status", "admission", "podSetAssignments")
            )
            seen.message = uncopied(text_at(condition(workload, "QuotaReserved"), "message"))
            found.append((name, admitted, is_true(workload, "Evicted"), seen.preempted))
        for event in admissions:
            self._tell(event)
        return sorted(found, key=str)

    def _workloads(self) -> Iterator[Manifest]:
        for namespace in dict.fromkeys(place.namespace for place in self._places.values()):
            yield from self._cluster.list(KUEUE, "Workload", namespace=namespace)

    def _preempted(self, name: str, seen: _Seen, workload: Manifest, workloads: Iterable[Manifest]) -> None:
        preempted = condition(workload, "Preempted")
        when = text_at(preempted, "lastTransitionTime") + text_at(preempted, "message")
        if text_at(preempted, "status") != "True" or when == seen.preempted:
            return
        seen.preempted = when
        message = text_at(preempted, "message")
        numbers = {str(other.number): job for job, other in self._jobs.items()}
        by = next(
            (numbers.get(_number(other), "") for other in workloads if text_at(other, "metadata", "uid") in message), ""
        )
        by_queue = self._known[by].queue if by else ""
        reason, message = text_at(preempted, "reason"), _IDENTIFIERS.sub("", message)
        self._evicted.append(Evicted(name, by or name, reason, time.monotonic()))
        self._tell(Event("preempted", name, seen.workload.queue, by, by_queue, reason, message))


def quiet(messages: Collection[str]) -> float:
    """Seconds without a change after which Kueue counts as settled, by its messages about pending jobs."""
    if any(_PREEMPTION in message for message in messages):
        return PREEMPTING
    return QUIET if all(messages) else UNCONSIDERED


def _number(workload: Manifest) -> str:
    """The number of a Workload's played job; empty for other Workloads."""
    sets = maps_at(workload, "spec", "podSets")
    return text_at(sets[0], "template", "metadata", "labels", PLAYED) if sets else ""


@contextmanager
def live_player(platform: Platform, stack: str, tree: Tree, report: Report) -> Generator[LivePlayer]:
    """A player on the embedded platform; the scenario's jobs are deleted at the end.

    Jobs are submitted to the stack's own queues, or to copies of them if other workloads exist or a flavor has a
    topology. Raises ConsoleError if the platform does not carry the stack, or Kueue does not run there.
    """
    carried = platform.carried()
    if carried is None or carried.name != stack:
        what = f"carries stack {carried.name}" if carried else "carries no stack"
        replace = " --replace" if carried else ""
        raise ConsoleError(f"the embedded platform {what}, not {stack}", f"run `tenancy local up {stack}{replace}`")
    if "kueue" not in platform.controllers.running():
        raise ConsoleError("Kueue does not run on the embedded platform", f"run `tenancy local up {stack}`")
    with platform.cluster() as cluster, ExitStack() as at_end:
        places = own_places(tree)
        used = [name for name, place in places.items() if cluster.list(KUEUE, "Workload", namespace=place.namespace)]
        placed = [name for name, flavor in tree.flavors.items() if flavor.levels]
        if used or placed:
            reason = (
                f"{', '.join(used)}: other workloads are in these queues"
                if used
                else f"flavor {placed[0]} has a topology, and the scenario is played without topologies"
            )
            report(f"{reason}; the scenario is played on copies of all queues")
            places = at_end.enter_context(copied(cluster, tree))
        player = LivePlayer(cluster, tree, places)
        at_end.callback(player.clear)
        yield player


PLAYED: Final = "gpu-tenancy.dev/played"  # label of played jobs; its value numbers them
_IMAGE: Final = "registry.example.com/rehearsal:1"
_NOWHERE: Final = "tenancy-rehearsal"  # no such scheduler exists, so pods of copies take no node
_DAY: Final = 86_400


def job_name(number: int) -> str:
    """Kubernetes name of a played job."""
    return f"played-{number}"


def job_of(tree: Tree, workload: Workload, place: Place, number: int) -> Manifest:
    """A Job with the requests of a workload of one pod set; `number` is the played job's."""
    (pods,) = workload.pod_sets
    flavor = tree.flavors[next(iter(pods.flavors))] if pods.flavors and len(pods.flavors) == 1 else None
    with_gpus = any(is_extended(resource) for resource in pods.requests)
    # Pods without a class have the value 0.
    classes = (name for name, priority in tree.stack.priorities.items() if priority.value == workload.priority)
    pod = PodPlan(
        image=_IMAGE,
        command=(),
        args=(),
        env={},
        amounts=pods.requests,
        node_labels=dict(flavor.node_labels) if flavor else {},
        tolerated=flavor.taints if flavor and with_gpus else (),
        priority=next(classes, None) if workload.priority else None,
        non_root=True,
    )
    job = job_of_pods(job_name(number), place, pod, pods.count)
    metadata, template = job["metadata"], job["spec"]["template"]
    metadata["labels"][PLAYED] = str(number)
    template["metadata"]["labels"][PLAYED] = str(number)
    if not place.runs:
        template["spec"]["schedulerName"] = _NOWHERE
    return job


def job_of_pods(name: str, place: Place, pod: PodPlan, pods: int, *, gang: bool = False) -> dict[str, Any]:
    """A Job of equal pods, as a stack has it; Volcano starts all pods of a gang together."""
    roles = (RolePlan("worker", pods, pod),)
    space, queue = place.namespace, place.local_queue
    return job_manifest(JobPlan(name, space, queue, "job", roles, gang=gang, retries=0, deadline=None, keep=_DAY))
