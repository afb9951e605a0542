"""Usage of Volcano's queues, and their room for another gang."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import add, amount_text, amounts, leading_text, ordered, plain, times
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, namespace_of, requests, scheduler
from gpu_tenancy.cluster.reading import Answer, Check, Verdict, decisive
from gpu_tenancy.model.names import GROUP_MINIMUM

QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
EXISTING: Final = f"set spec.queue, or the annotation {QUEUE_NAME}, to an existing queue"
_OWN: Final = frozenset({"default", "root"})  # created by Volcano
ALONE: Final = "Kueue holds back single pods for Volcano; submit a Job of batch.volcano.sh with spec.queue: {}"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class GangQueue:
    """A Volcano queue."""

    name: str
    guarantee: Mapping[str, int]
    capability: Mapping[str, int]
    used: Mapping[str, int]
    counted: bool  # False if usage is computed from pods
    state: str
    pending: tuple[Manifest, ...] = ()  # PodGroups that are not running

    @property
    def waiting(self) -> dict[str, int]:
        """Minimum requests of all pending gangs."""
        return add(*(gang_requests(group) for group in self.pending))


def gang_queues(
    queues: Iterable[Manifest], groups: Iterable[Manifest], pods: Iterable[Manifest] = ()
) -> list[GangQueue]:
    """Reads Volcano's queues, except the two that Volcano creates."""
    by_queue: dict[str, list[Manifest]] = defaultdict(list)
    by_group: dict[tuple[str, str], str] = {}
    for group in groups:
        name = by_group[namespace_of(group), name_of(group)] = text_at(group, "spec", "queue")
        by_queue[name].append(group)
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        name = queue_of_gang(pod, by_group)
        if name and text_at(pod, "spec", "nodeName") and not ended(pod):
            used[name] = add(used.get(name, {}), requests(map_at(pod, "spec")))
    found: list[GangQueue] = []
    for manifest in queues:
        if (name := name_of(manifest)) not in _OWN:
            counted = "allocated" in map_at(manifest, "status")
            pending = [one for one in by_queue[name] if text_at(one, "status", "phase") in {"", "Pending", "Inqueue"}]
            queue = GangQueue(
                name=name,
                guarantee=amounts(at(manifest, "spec", "guarantee", "resource")),
                capability=amounts(at(manifest, "spec", "capability")),
                used=amounts(at(manifest, "status", "allocated")) if counted else used.get(name, {}),
                counted=counted,
                state=text_at(manifest, "status", "state") or "Open",
                pending=tuple(pending),
            )
            found.append(queue)
    return found


def queue_of_gang(pod: Manifest, by_group: Mapping[tuple[str, str], str]) -> str | None:
    """Volcano queue of a pod, by its own mark or its PodGroup; None if another scheduler places the pod."""
    if scheduler(map_at(pod, "spec")) != "volcano":
        return None
    group = text_at(pod, "metadata", "annotations", GROUP_NAME)
    named = text_at(pod, "metadata", "annotations", QUEUE_NAME) or label(pod, QUEUE_NAME)
    return named or by_group.get((namespace_of(pod), group), "")


def gang_requests(group: Manifest) -> dict[str, int]:
    """Requests of a PodGroup's minimum number of pods, without the names of ResourceQuotas such as `requests.cpu`.

    https://github.com/volcano-sh/volcano/blob/v1.14.1/pkg/controllers/util/util.go adds them.
    """
    found = amounts(at(group, "spec", "minResources")).items()
    return {name: amount for name, amount in found if plain(name) == name != "pods" and not name.startswith("count/")}


def judge_gang(
    queues: Iterable[GangQueue], name: str, pods: Iterable[tuple[Mapping[str, int], int]], together: int = 0
) -> Answer:
    """Checks a Volcano queue for room for the pods of a gang.

    `pods`: requests and number, in the order in which Volcano starts them. `together`: pods that start together, 0 for
    all.
    """
    if name in _OWN:
        own = "Volcano's own queue, which has no quota of the team; set spec.queue to a queue of the team"
        return Answer(Check.VOLCANO_QUEUE, "now", (own,), name)
    queue = next((queue for queue in queues if queue.name == name), None)
    if queue is None:
        return Answer(Check.VOLCANO_QUEUE, "never", (f"the queue does not exist; {EXISTING}",), name)
    if queue.state != "Open":
        closed = f"the queue is in state {queue.state} and accepts no gangs"
        return Answer(Check.VOLCANO_QUEUE, "never", (closed,), name)
    listed, requested = tuple(pods), dict[str, int]()
    left = together or sum(count for _, count in listed)
    for pod, count in listed:
        requested = add(requested, times(pod, min(count, left)))
        left -= min(count, left)
    verdict, lines = decisive(_judge_limits(queue, requested))
    lines = lines or ("the queue has no limit for these resources",)
    if queue.pending:
        lines = (*lines, f"{plural(len(queue.pending), 'gang')} pending in it ({leading_text(queue.waiting)})")
    return Answer(Check.VOLCANO_QUEUE, verdict, lines, name)


def _judge_limits(queue: GangQueue, requested: Mapping[str, int]) -> Iterator[tuple[Verdict, str]]:
    for resource in ordered(requested):
        limit, used, amount = queue.capability.get(resource), queue.used.get(resource, 0), requested[resource]
        if limit is None or not amount:
            continue
        head, most = f"{resource} {amount_text(resource, amount)} requested", amount_text(resource, limit)
        if amount > limit:
            yield "never", f"{head}, exceeds the limit of {most}"
        elif used + amount > limit:
            yield "later", f"{head}, fits when other gangs end ({amount_text(resource, used)} of {most} used)"
        else:
            yield "now", f"{head}, {amount_text(resource, limit - used)} of {most} free"


def too_few(together: int, count: int) -> tuple[str, str] | None:
    """The error and its fix if a gang has fewer pods than must start together; None if it has enough."""
    if together <= count:
        return None
    fix = f"set minAvailable, or the annotation {GROUP_MINIMUM}, to at most {count}"
    return f"{together} pods must start together, but it has {plural(count, 'pod')}", fix


def messages(group: Manifest) -> list[str]:
    """Messages of the true conditions of a PodGroup."""
    conditions = [each for each in maps_at(group, "status", "conditions") if text_at(each, "status") == "True"]
    return [f"{text_at(each, 'type')}: {text_at(each, 'message') or text_at(each, 'reason')}" for each in conditions]
