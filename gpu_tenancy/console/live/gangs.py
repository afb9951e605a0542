"""Volcano's queues and gangs: what a queue has, and whether it would take another."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.live.amounts import amounts, gpus, listed, ordered, said
from gpu_tenancy.console.live.answers import Answer
from gpu_tenancy.console.live.pods import Manifest, called, ended, home, label, requests, scheduler
from gpu_tenancy.console.offline.wire import at, maps_at, text_at
from gpu_tenancy.model.quantity import add, times

QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class GangQueue:
    """A queue of Volcano's.

    Attributes:
        counted: whether Volcano has said what is allocated; where it has not, what its pods ask for is counted.
        pending: gangs that wait, and what they ask for at least.
    """

    name: str
    guarantee: Mapping[str, int]
    capability: Mapping[str, int]
    used: Mapping[str, int]
    counted: bool
    state: str
    pending: tuple[Manifest, ...] = ()

    @property
    def waiting(self) -> dict[str, int]:
        """What gangs wait for."""
        return add(*(amounts(at(each, "spec", "minResources")) for each in self.pending))


def gang_queues(
    queues: Iterable[Manifest], groups: Iterable[Manifest], pods: Iterable[Manifest] = ()
) -> list[GangQueue]:
    """Reads Volcano's queues; the two that it makes itself are nobody's."""
    found = tuple(groups)
    by_group = {(home(each), called(each)): text_at(each, "spec", "queue") for each in found}
    placed = [each for each in pods if text_at(each, "spec", "nodeName") and not ended(each)]
    return [
        _queue(each, [one for one in found if text_at(one, "spec", "queue") == called(each)], by_group, placed)
        for each in queues
        if called(each) not in {"default", "root"}
    ]


def _queue(
    queue: Manifest, groups: Iterable[Manifest], by_group: Mapping[tuple[str, str], str], pods: Iterable[Manifest]
) -> GangQueue:
    status = at(queue, "status")
    counted = isinstance(status, dict) and "allocated" in status
    own = [_requests(each) for each in pods if gang_of(each, by_group) == called(queue)]
    return GangQueue(
        name=called(queue),
        guarantee=amounts(at(queue, "spec", "guarantee", "resource")),
        capability=amounts(at(queue, "spec", "capability")),
        used=amounts(at(queue, "status", "allocated")) if counted else add(*own),
        counted=counted,
        state=text_at(queue, "status", "state") or "Open",
        pending=tuple(each for each in groups if text_at(each, "status", "phase") in {"", "Pending", "Inqueue"}),
    )


def _requests(pod: Manifest) -> dict[str, int]:
    spec = at(pod, "spec")
    return requests(spec) if isinstance(spec, dict) else {}


def gang_of(pod: Manifest, by_group: Mapping[tuple[str, str], str]) -> str:
    """The queue of a pod that Volcano schedules; empty for any other."""
    spec = at(pod, "spec")
    if not isinstance(spec, dict) or scheduler(spec) != "volcano":
        return ""
    group = text_at(pod, "metadata", "annotations", GROUP_NAME)
    named = (text_at(pod, "metadata", "annotations", QUEUE_NAME), label(pod, QUEUE_NAME))
    return next((each for each in named if each), "") or by_group.get((home(pod), group), "")


def judge_gang(queues: Iterable[GangQueue], name: str, pods: Iterable[tuple[Mapping[str, int], int]]) -> Answer:
    """Whether a queue of Volcano's takes a gang, all at once."""
    about = f"Volcano queue {name}"
    queue = next((each for each in queues if each.name == name), None)
    if queue is None:
        return Answer(about, "never", ("there is no such queue; name one in spec.queue",))
    if queue.state != "Open":
        return Answer(about, "never", (f"it is {queue.state} and takes no gang",))
    need = add(*(times(pod, count) for pod, count in pods))
    never, later, now = list[str](), list[str](), list[str]()
    for resource in ordered(need):
        most, used = queue.capability.get(resource), queue.used.get(resource, 0)
        asked = said(resource, need[resource])
        if most is None or not need[resource]:
            continue
        if need[resource] > most:
            never.append(f"{resource} {asked}: never: limit {said(resource, most)}")
        elif used + need[resource] > most:
            of = f"{said(resource, used)} of {said(resource, most)} are used"
            later.append(f"{resource} {asked}: fits only when other gangs end: {of}")
        else:
            now.append(f"{resource} {asked}: {said(resource, most - used)} of {said(resource, most)} are free")
    verdict = "never" if never else "later" if later else "now"
    waits = f"{len(queue.pending)} gangs wait in it for {listed(gpus(queue.waiting))}" if queue.pending else ""
    words = (*(never or later or now or ["it bounds nothing of this"]), *([waits] if waits else []))
    return Answer(about, verdict, words)


def messages(group: Manifest) -> list[str]:
    """What Volcano says of a gang: its conditions that hold, the latest word of each kind."""
    held = [each for each in maps_at(group, "status", "conditions") if text_at(each, "status") == "True"]
    return [f"{text_at(each, 'type')}: {text_at(each, 'message') or text_at(each, 'reason')}" for each in held]
