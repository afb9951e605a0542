"""Whether a team's workload fits: bounds, quota, queue, nodes, priority, each with its numbers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.live.amounts import gpus, listed, many
from gpu_tenancy.console.live.answers import Answer, Verdict, worst
from gpu_tenancy.console.live.bounds import bound
from gpu_tenancy.console.live.budgets import judge_budgets
from gpu_tenancy.console.live.demand import Demand
from gpu_tenancy.console.live.foreseen import LEFT_OUT, Foreseen, foresee
from gpu_tenancy.console.live.gangs import gang_queues, judge_gang
from gpu_tenancy.console.live.nodes import judge_nodes
from gpu_tenancy.console.live.placing import spots
from gpu_tenancy.console.live.pods import Manifest, called, requests, scheduler
from gpu_tenancy.console.live.queueing import ORDER, VERDICTS, Taken, judge_queue
from gpu_tenancy.console.live.queues import Queues
from gpu_tenancy.console.live.reading import Kind, State
from gpu_tenancy.console.live.tree import ClusterQueue, usage
from gpu_tenancy.console.live.workloads import PodSet
from gpu_tenancy.console.offline.wire import Json, text_at
from gpu_tenancy.model.problems import nearest
from gpu_tenancy.model.quantity import add

KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup",
    "PriorityClass", "Queue", "ResourceFlavor", "Workload", "WorkloadPriorityClass",
)  # fmt: skip
"""What is read, of the whole cluster where the user may."""
OWN: Final[tuple[Kind, ...]] = ("LimitRange", "ResourceQuota")
"""What is read of the team's namespace alone."""

_QUEUE: Final = "queue"
_PRIORITY: Final = "priority"


@dataclass(frozen=True, slots=True)
class Fitting:
    """What all judges say to one object.

    Attributes:
        title: such as `Job nightly`.
        asks: what all its pods ask for.
    """

    title: str
    asks: str
    answers: tuple[Answer, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict of all together."""
        return worst(each.verdict for each in self.answers)

    @property
    def conclusion(self) -> str:
        """One sentence: whether it fits, and where not, whose word that is."""
        verdict = self.verdict
        if verdict == "now":
            return f"{self.title} fits now"
        why = next(each for each in self.answers if each.verdict == verdict)
        reason = f"{why.about}: {why.words[0]}"
        return {
            "later": f"{self.title} fits, but not now: {reason}",
            "never": f"{self.title} does not fit: {reason}",
            "unknown": f"{self.title} fits as far as you may see: {reason}",
        }[verdict]


def require_team(state: State, team: str) -> None:
    """Raises `ConsoleError` where there is no such namespace, as far as the user may see."""
    known = [called(each) for each in state.of("Namespace")]
    if state.knows("Namespace") and team not in known:
        raise ConsoleError(f"there is no namespace {team}", f"{nearest(team, known)}; tenancy usage shows the teams")


def judge(state: State, team: str, demand: Demand) -> Fitting:
    """Judges one object by what was read; the API server's own word comes after."""
    bounded = [bound(state.of("LimitRange", team), each.spec) for each in demand.templates]
    filled = replace(
        demand,
        templates=tuple(replace(each, spec=one.spec) for each, one in zip(demand.templates, bounded, strict=True)),
    )
    sets = [PodSet(each.name, each.count, requests(each.spec), each.spec) for each in filled.templates]
    bounds = [
        _of(filled, each.name, one.answer)
        if state.knows("LimitRange")
        else _unseen(state, "LimitRange", one.answer.about)
        for each, one in zip(filled.templates, bounded, strict=True)
    ]
    taken, queue = _queue(state, team, filled, sets)
    answers = (
        *dict.fromkeys(bounds),
        _budget(state, team, filled),
        queue,
        *_nodes(state, filled, sets, taken),
        _priority(state, filled),
    )
    total = add(*(each.total for each in sets))
    pods = many(sum(each.count for each in sets), "pod")
    return Fitting(filled.title, f"{pods}, together {listed(total)}", answers)


def _of(demand: Demand, name: str, answer: Answer) -> Answer:
    """An answer about one of several kinds of pods says which."""
    return replace(answer, about=f"{answer.about} of {name}") if len(demand.templates) > 1 else answer


def _unseen(state: State, kind: Kind, about: str) -> Answer:
    return Answer(about, "unknown", (str(state.missing[kind]),))


def _budget(state: State, team: str, demand: Demand) -> Answer:
    pods = [(each.spec, each.count) for each in demand.templates]
    if not state.knows("ResourceQuota"):
        return _unseen(state, "ResourceQuota", "namespace quota")
    return judge_budgets(state.of("ResourceQuota", team), pods, _default_priority(state))


def _default_priority(state: State) -> str:
    return next((called(each) for each in state.of("PriorityClass") if each.get("globalDefault") is True), "")


def _queue(state: State, team: str, demand: Demand, sets: Sequence[PodSet]) -> tuple[list[Taken], Answer]:
    """What Kueue or Volcano says, and which flavors Kueue would give."""
    if demand.gang is not None:
        if not state.knows("Queue"):
            return [], _unseen(state, "Queue", _QUEUE)
        found = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
        return [], judge_gang(found, demand.gang, [(each.pod, each.count) for each in sets])
    queues = Queues(state)
    own = queues.homes.get(team, {})
    if not own and not state.refused("LocalQueue") and "LocalQueue" in state.missing:
        return [], Answer(_QUEUE, "now", ("Kueue is not installed: nothing waits in a queue",))
    name = demand.queue or ("default" if "default" in own else "")
    if not name:
        suggestion = f"; add the label kueue.x-k8s.io/queue-name: {min(own)}" if own else ""
        words = f"it names no queue, so in a team's namespace it waits for ever{suggestion}"
        return [], Answer(_QUEUE, "never", (words,))
    if name not in own:
        known = f"{nearest(name, own)}" if own else "the namespace has none"
        return [], Answer(_QUEUE, "never", (f"there is no LocalQueue {name} in {team}; {known}",))
    return _cluster_queue(queues, team, name, demand, sets)


def _cluster_queue(
    queues: Queues, team: str, name: str, demand: Demand, sets: Sequence[PodSet]
) -> tuple[list[Taken], Answer]:
    state, target = queues.state, queues.homes[team][name]
    about = f"{_QUEUE} {target}"
    if not state.knows("ClusterQueue"):
        return [], Answer(about, "unknown", (str(state.missing["ClusterQueue"]), *_by_local(state, team, name)))
    queue = queues.tree.queues.get(target)
    if queue is None:
        return [], Answer(about, "never", (f"LocalQueue {name} leads to it, and there is no such ClusterQueue",))
    if closed := _closed(queues, team, name, queue):
        return [], Answer(about, "never", (closed,))
    flavors = state.of("ResourceFlavor")
    taken = judge_queue(queues.tree, queue, flavors, sets)
    answer = _said(about, taken)
    if not demand.whole and answer.verdict != "now":
        answer = _pod_by_pod(queues, queue, sets, answer)
    before = tuple(_before(queues, target))
    if not demand.whole or answer.verdict == "never" or queues.uncounted:
        return taken, replace(answer, words=(*answer.words, *before, *_uncounted(queues)))
    return taken, _foreseen(answer, taken, before, foresee(queues, target, sets, _priority_value(state, demand)))


def _closed(queues: Queues, team: str, name: str, queue: ClusterQueue) -> str:
    """Why nothing of a team gets into a queue, however much is free; empty where it does."""
    if queue.inactive:
        return f"it admits nothing now: {queue.inactive}"
    if stopped := queues.stopped(team, name):
        return f"it gets nothing now: {stopped}"
    return queues.shut_out(team, queue.name)


def _foreseen(answer: Answer, taken: Sequence[Taken], before: tuple[str, ...], found: Foreseen | str) -> Answer:
    """What the simulation of Kueue says, before which the arithmetic gives way where they disagree."""
    if isinstance(found, str):
        return replace(answer, words=(*answer.words, *before, f"not simulated: {found}"))
    quiet = found.runs and not found.gone
    leave = ORDER[max(ORDER.index(each.leave) for each in taken)]
    agree = quiet if VERDICTS[leave] == "now" else found.runs == (leave == "reclaiming") and not quiet
    more = (f"{LEFT_OUT}: {found.left_out}",) if found.left_out else ()
    if agree:
        told = () if quiet else (found.words,)
        return replace(answer, words=(*answer.words, *before, *told, *more))
    numbers = dict.fromkeys(share.numbers for each in taken for share in each.shares)
    return replace(answer, verdict="now" if quiet else "later", words=(found.words, *numbers, *before, *more))


def _said(about: str, taken: Iterable[Taken]) -> Answer:
    found = list(taken)
    verdict = worst(VERDICTS[each.leave] for each in found)
    hardest = [each for each in found if VERDICTS[each.leave] == verdict]
    words = [share.words for each in hardest for share in each.shares if VERDICTS[share.leave] == verdict]
    refused = [why for each in hardest for why in each.refused] if verdict == "never" else []
    return Answer(about, verdict, tuple(dict.fromkeys([*words, *refused])) or ("it asks for nothing",))


def _pod_by_pod(queues: Queues, queue: ClusterQueue, sets: Sequence[PodSet], whole: Answer) -> Answer:
    """A Deployment's pods are admitted one by one: as many as fit start."""
    (pods,) = sets
    flavors = queues.state.of("ResourceFlavor")
    fitting = 0
    for count in range(1, pods.count + 1):
        (taken,) = judge_queue(queues.tree, queue, flavors, [replace(pods, count=count)])
        if VERDICTS[taken.leave] != "now":
            break
        fitting = count
    return replace(whole, words=(*whole.words, f"each pod is admitted by itself: {fitting} of {pods.count} now"))


def _by_local(state: State, team: str, name: str) -> Iterator[str]:
    for each in state.of("LocalQueue", team):
        if called(each) == name:
            for (flavor, resource), value in usage(each, "flavorsReservation").items():
                if value:
                    yield f"your namespace uses {listed({resource: value})} of {flavor}"


def _before(queues: Queues, target: str) -> Iterator[str]:
    found = queues.waiting_in(target)
    if found:
        asked = listed(gpus(add(*(each.total for each in found))))
        wait = many(len(found), "workload waits", "workloads wait")
        yield f"{wait} in it already, for {asked}; those of a higher or the same priority come first"


def _priority_value(state: State, demand: Demand) -> int:
    """The priority that Kueue gives it: its own class's for queues, else its pods'."""
    classes = {called(each): each for each in state.of("WorkloadPriorityClass")}
    if demand.priority:
        value = classes.get(demand.priority, {}).get("value")
    else:
        name = next((text_at(each.spec, "priorityClassName") for each in demand.templates), "")
        of_pods = {called(each): each for each in state.of("PriorityClass")}
        value = of_pods.get(name or _default_priority(state), {}).get("value")
    return value if isinstance(value, int) else 0


def _uncounted(queues: Queues) -> Iterator[str]:
    if queues.uncounted:
        yield "Kueue does not run here, so what is used was counted by pods"


def _nodes(state: State, demand: Demand, sets: Sequence[PodSet], taken: Sequence[Taken]) -> Iterator[Answer]:
    if not state.knows("Node"):
        yield _unseen(state, "Node", "nodes")
        return
    nodes = spots(state.of("Node"), state.of("Pod"))
    given = {each.pods.name: [share.flavor for share in each.shares] for each in taken}
    flavors = {called(each): each for each in state.of("ResourceFlavor")}
    for pods in sets:
        names = dict.fromkeys(given.get(pods.name, ()))
        answer, nodes = judge_nodes(nodes, pods, [flavors[each] for each in names if each in flavors])
        if not state.knows("Pod"):
            answer = replace(answer, words=(*answer.words, str(state.missing["Pod"])))
        yield _of(demand, pods.name, answer)


def _priority(state: State, demand: Demand) -> Answer:
    """Whether its classes are there, and who would place its pods."""
    verdicts, words = list[Verdict](), list[str]()
    for each in dict.fromkeys(text_at(each.spec, "priorityClassName") for each in demand.templates):
        verdict, said = _class(state, "PriorityClass", each or _default_priority(state), "priority class")
        verdicts.append(verdict)
        words.append(said)
    if demand.priority:
        verdict, said = _class(state, "WorkloadPriorityClass", demand.priority, "in the queue")
        verdicts.append(verdict)
        words.append(said)
    for each in dict.fromkeys(scheduler(each.spec) for each in demand.templates):
        known = each == "default-scheduler" or (each == "volcano" and state.knows("Queue"))
        verdicts.append("now" if known else "never" if each == "volcano" else "unknown")
        words.append(f"placed by {each}" if known else f"placed by {each}, which is not known to run here")
    pairs = sorted(zip(verdicts, words, strict=True), key=lambda each: each[0] != worst(verdicts))
    return Answer(_PRIORITY, worst(verdicts), tuple(words for _, words in pairs))


def _class(state: State, kind: Kind, name: str, what: str) -> tuple[Verdict, str]:
    if not name:
        return "now", "no priority class: priority 0"
    if not state.knows(kind):
        return "unknown", str(state.missing[kind])
    found: Mapping[str, Manifest] = {called(each): each for each in state.of(kind)}
    if name not in found:
        return "never", f"there is no {kind} {name}; {nearest(name, found)}"
    value: Json = found[name].get("value")
    meek = ", and pushes nobody off" if found[name].get("preemptionPolicy") == "Never" else ""
    return "now", f"{what} {name} ({value}){meek}"
