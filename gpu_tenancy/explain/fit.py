"""Checks whether a team's workload fits: namespace quota, queue, nodes and priority."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.quantity import CLAIMED, add, amounts_text, leading_text
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.budgets import judge_quota, with_defaults
from gpu_tenancy.cluster.cluster_queues import ClusterQueue, reported_usage
from gpu_tenancy.cluster.demand import Demand, volcano_queue
from gpu_tenancy.cluster.gangs import gang_queues, judge_gang, too_few
from gpu_tenancy.cluster.nodes import judge_nodes, read_nodes
from gpu_tenancy.cluster.pods import Manifest, name_of, requests, scheduler
from gpu_tenancy.cluster.queueing import Offer, Source, judge_queue
from gpu_tenancy.cluster.queues import KUEUE_NOT_RUNNING, NO_KUEUE, Queues
from gpu_tenancy.cluster.reading import Answer, Check, Kind, State, Verdict, worst
from gpu_tenancy.cluster.references import judge_claims, judge_references, judge_volumes, with_channels
from gpu_tenancy.cluster.snapshot import NotSimulatedError, unseen_reclaim
from gpu_tenancy.cluster.workloads import PodSet
from gpu_tenancy.explain.coverage import uncovered
from gpu_tenancy.explain.unblock import Unblock, forecast, not_simulated_text
from gpu_tenancy.model.names import QUEUE_LABEL

# Kinds to list in the whole cluster, if the user may.
KINDS: Final[tuple[Kind, ...]] = (
    "AdmissionCheck", "ClusterQueue", "ClusterTrainingRuntime", "Cohort", "Job", "LocalQueue", "Namespace", "Node",
    "Pod", "PodGroup", "PriorityClass", "Queue", "ResourceFlavor", "StorageClass", "Workload", "WorkloadPriorityClass",
)  # fmt: skip
# Kinds to list in the team's namespace only.
OWN: Final[tuple[Kind, ...]] = ("Dataset", "LimitRange", "PersistentVolumeClaim", "ResourceQuota", "TrainingRuntime")


@dataclass(frozen=True, slots=True)
class Fitting:
    """The results of all checks of one workload."""

    title: str  # such as `Job nightly`
    asks: str  # pods and their total requests
    answers: tuple[Answer, ...]

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the checks."""
        return worst(answer.verdict for answer in self.answers)

    @property
    def conclusion(self) -> str:
        """Whether it fits, and the first check that decides it."""
        deciding = (answer for answer in self.answers if answer.verdict == self.verdict)
        # A larger quota helps no pod that no node can have, or that the API server refuses.
        first = {Check.NODES, Check.PRIORITY, Check.API_SERVER} if self.verdict == "never" else set[Check]()
        decisive = min(deciding, key=lambda answer: answer.check not in first, default=None)
        about, line = (decisive.about, decisive.lines[0]) if decisive else ("", "")
        match self.verdict:
            case "now":
                return f"{self.title} fits now"
            case "later":
                return f"{self.title} fits, but not now: {about}: {line}"
            case "never":
                return f"{self.title} does not fit: {about}: {line}"
            case "unknown":
                return f"{self.title} fits as far as you may see: {about}: {line}"


def judge(state: State, team: str, demand: Demand) -> Fitting:
    """Checks one workload against the objects of `state`, without the API server's dry run."""
    defaulted = [with_defaults(state.of("LimitRange", team), template.spec) for template in demand.templates]
    pairs = zip(demand.templates, defaulted, strict=True)
    filled = replace(demand, templates=tuple(replace(template, spec=spec) for template, (spec, _) in pairs))
    sets = [
        PodSet(each.name, each.count, requests(each.spec), each.spec, each.placed, each.within)
        for each in filled.templates
    ]
    offers, queue = _queue(state, team, filled, with_channels(state, team, sets))
    if state.knows("ResourceQuota"):
        pods = [(template.spec, template.count) for template in filled.templates]
        quota = judge_quota(state.of("ResourceQuota", team), pods, _default_priority(state))
    else:
        quota = state.unknown(Check.NAMESPACE_QUOTA, "ResourceQuota")
    answers = (
        *_defaults(state, filled, [texts for _, texts in defaulted]),
        queue,
        quota,
        *judge_volumes(state, team, sets),
        *judge_references(state, team, sets),
        *judge_claims(state, team, demand, sets),
        *_nodes(state, filled, sets, offers),
        _priority(state, filled),
    )
    total = add(*(pods.total for pods in sets))
    count = plural(sum(pods.count for pods in sets), "pod")
    return Fitting(filled.title, f"{count}, {amounts_text(total)} in total", answers)


def _defaults(state: State, demand: Demand, texts: Sequence[tuple[str, ...]]) -> Iterator[Answer]:
    if not state.knows("LimitRange"):
        yield state.unknown(Check.CONTAINER_DEFAULTS, "LimitRange")
        return
    answers = (
        _of(demand, template.name, Answer(Check.CONTAINER_DEFAULTS, "now", lines))
        for template, lines in zip(demand.templates, texts, strict=True)
        if lines
    )
    yield from dict.fromkeys(answers)


def _of(demand: Demand, name: str, answer: Answer) -> Answer:
    return replace(answer, name=name) if len(demand.templates) > 1 else answer


def _default_priority(state: State) -> str:
    return next((name_of(item) for item in state.of("PriorityClass") if item.get("globalDefault") is True), "")


def _queue(state: State, team: str, demand: Demand, sets: Sequence[PodSet]) -> tuple[list[Offer], Answer]:
    gang = volcano_queue(demand, kueue=state.has_kueue)
    few = too_few(demand.together, sum(pods.count for pods in sets))
    if few or gang is not None:
        return [], _volcano_queue(state, gang or "default", demand.together, sets, few)
    queues = Queues(state)
    own = queues.homes.get(team, {})
    if not own and not state.has_kueue:
        return [], Answer(Check.QUEUE, "now", (NO_KUEUE,))
    name = demand.queue or ("default" if "default" in own else "")
    if not name:
        hint = f"; add the label {QUEUE_LABEL}: {queues.usual(team)}" if own else ""
        line = f"no queue set, so it stays pending for ever in a team's namespace{hint}"
        return [], Answer(Check.QUEUE, "never", (line,))
    if name not in own:
        return [], Answer(Check.QUEUE, "never", ("; ".join(queues.unknown_local(team, name)),))
    return _cluster_queue(queues, team, name, demand, sets)


def _volcano_queue(
    state: State, name: str, together: int, sets: Sequence[PodSet], few: tuple[str, str] | None
) -> Answer:
    if few:
        return Answer(Check.VOLCANO_QUEUE, "never", ("; ".join(few),), name)
    if not state.knows("Queue"):
        return state.unknown(Check.QUEUE, "Queue")
    gangs = gang_queues(state.of("Queue"), state.of("PodGroup"), state.of("Pod"))
    return judge_gang(gangs, name, [(pods.pod, pods.count) for pods in sets], together)


def _cluster_queue(
    queues: Queues, team: str, name: str, demand: Demand, sets: Sequence[PodSet]
) -> tuple[list[Offer], Answer]:
    state, target = queues.state, queues.homes[team][name]
    if not state.knows("ClusterQueue"):
        answer = state.unknown(Check.QUEUE, "ClusterQueue", target)
        return [], replace(answer, lines=(*answer.lines, *_local_usage(state, team, name)))
    queue = queues.cluster_queues.get(target)
    if queue is None:
        return [], Answer(Check.QUEUE, "never", (f"ClusterQueue {target} of LocalQueue {name} not found",), target)
    closed = queues.closed(team, name, queue)
    stopped = bool(queue.stop_policy or queues.stop_policy(team, name))  # until somebody opens it again
    if closed and not stopped:
        return [], Answer(Check.QUEUE, "never", closed[:1], target)
    offers = judge_queue(queues.quotas, queue.spec, state.of("ResourceFlavor"), sets)
    answer = _by_quota(target, offers)
    if closed and answer.verdict != "never":
        answer = replace(answer, verdict="later", lines=("; ".join(closed), *answer.lines))
    if not demand.whole and answer.verdict != "now":
        answer = _one_by_one(queues, queue, sets, demand.groups, answer)
    pending = queues.waiting_in(target)
    requested = leading_text(add(*(workload.total for workload in pending)))
    waits = f"{plural(len(pending), 'workload')} already pending ({requested})"
    before = (f"{waits}; those of higher or equal priority are admitted first",) if pending else ()
    bound = uncovered(queues, queue.spec, offers) if demand.whole else None
    first = ("; ".join(bound),) if bound and not closed else ()
    if closed or not demand.whole or answer.verdict == "never" or queues.uncounted or unseen_reclaim(queues, offers):
        counted = (f"{KUEUE_NOT_RUNNING}; usage is counted from pods",) if queues.uncounted else ()
        return offers, replace(answer, lines=(*first, *answer.lines, *before, *counted))
    try:
        simulated = forecast(queues, target, sets, _priority_value(state, demand))
    except NotSimulatedError as error:
        return offers, replace(answer, lines=(*first, *answer.lines, *before, f"not simulated: {error}"))
    answer = _with_forecast(answer, offers, before, simulated)
    return offers, answer if simulated.admitted else replace(answer, lines=(*first, *answer.lines))


def _with_forecast(answer: Answer, offers: Sequence[Offer], before: tuple[str, ...], simulated: Unblock) -> Answer:
    """The simulated outcome replaces the arithmetic if they disagree."""
    undisturbed = simulated.admitted and not simulated.preempted
    source = max(offer.source for offer in offers)
    if source.verdict == "now":
        agree = undisturbed
    else:
        agree = simulated.admitted == (source is Source.RECLAIMED) and not undisturbed
    gaps = (not_simulated_text(simulated.not_simulated),) if simulated.not_simulated else ()
    gaps += (simulated.estimate.text,) if simulated.estimate else ()
    if agree:
        outcome = () if undisturbed or not simulated.admitted else (simulated.of_submitted,)
        return replace(answer, lines=(*answer.lines, *before, *outcome, *gaps))
    numbers = dict.fromkeys(request.numbers for offer in offers for request in offer.requests)
    lines = (simulated.of_submitted, *numbers, *before, *gaps)
    return replace(answer, verdict="now" if undisturbed else "later", lines=lines)


def _by_quota(target: str, offers: Sequence[Offer]) -> Answer:
    verdict = worst(offer.source.verdict for offer in offers)
    hardest = [offer for offer in offers if offer.source.verdict == verdict]
    requests = [request for offer in hardest for request in offer.requests if request.source.verdict == verdict]
    # Claims have quota without a limit, or none on nodes without such devices.
    shown = [request for request in requests if verdict == "never" or request.resource not in CLAIMED]
    lines = [request.advice for request in shown]
    if verdict == "never":
        refused = [refusal for offer in hardest for refusal in offer.refused]
        first = [refusal for refusal in refused if refusal.decisive]
        rest = [refusal.text for refusal in refused if not refusal.decisive]
        lines = [*(refusal.advice for refusal in first), *lines, *rest]
        if all(any(refusal.held and refusal.decisive for refusal in offer.refused) for offer in hardest):
            verdict = "later"
    return Answer(Check.QUEUE, verdict, tuple(dict.fromkeys(lines)) or ("no resources requested",), target)


def _one_by_one(queues: Queues, queue: ClusterQueue, sets: Sequence[PodSet], groups: int, whole: Answer) -> Answer:
    """Pods of a Deployment and groups of a LeaderWorkerSet are admitted separately, as many as fit."""
    flavors = queues.state.of("ResourceFlavor")
    number = groups if groups > 1 else sets[0].count
    fitting = 0
    for count in range(1, number + 1):
        some = [replace(pods, count=pods.count * count // number) for pods in sets]
        offers = judge_queue(queues.quotas, queue.spec, flavors, some)
        if any(offer.source.verdict != "now" for offer in offers):
            if not fitting and (bound := uncovered(queues, queue.spec, offers)):
                whole = replace(whole, lines=("; ".join(bound), *whole.lines))
            break
        fitting = count
    unit = "group" if groups > 1 else "pod"
    line = f"each {unit} is admitted separately: {fitting} of {plural(number, unit)} now"
    return replace(whole, lines=(*whole.lines, line))


def _local_usage(state: State, team: str, name: str) -> Iterator[str]:
    for local in state.of("LocalQueue", team):
        if name_of(local) == name:
            for (flavor, resource), value in reported_usage(local, "flavorsReservation").items():
                if value:
                    yield f"your namespace uses {amounts_text({resource: value})} of {flavor}"


def _priority_value(state: State, demand: Demand) -> int:
    # Kueue prefers the WorkloadPriorityClass to the priority of the pods.
    classes = {name_of(item): item for item in state.of("WorkloadPriorityClass")}
    if demand.priority:
        value = classes.get(demand.priority, {}).get("value")
    else:
        name = next((text_at(template.spec, "priorityClassName") for template in demand.templates), "")
        of_pods = {name_of(item): item for item in state.of("PriorityClass")}
        value = of_pods.get(name or _default_priority(state), {}).get("value")
    return value if isinstance(value, int) else 0


def _nodes(state: State, demand: Demand, sets: Sequence[PodSet], offers: Sequence[Offer]) -> Iterator[Answer]:
    if not state.knows("Node"):
        yield state.unknown(Check.NODES, "Node")
        return
    nodes = read_nodes(state.of("Node"), state.of("Pod"))
    assigned = {offer.pods.name: [request.flavor for request in offer.requests] for offer in offers}
    flavors = {name_of(flavor): flavor for flavor in state.of("ResourceFlavor")}
    for pods in sets:
        chosen = [flavors[name] for name in dict.fromkeys(assigned.get(pods.name, ())) if name in flavors]
        answer, nodes = judge_nodes(nodes, pods, chosen, every_pod=state.knows("Pod"))
        yield _of(demand, pods.name, answer)


def _priority(state: State, demand: Demand) -> Answer:
    names = dict.fromkeys(text_at(template.spec, "priorityClassName") for template in demand.templates)
    results = [_class(state, "PriorityClass", name or _default_priority(state)) for name in names]
    if demand.priority:
        results.append(_class(state, "WorkloadPriorityClass", demand.priority))
    for name in dict.fromkeys(scheduler(template.spec) for template in demand.templates):
        known = name == "default-scheduler" or (name == "volcano" and state.knows("Queue"))
        verdict: Verdict = "now" if known else "never" if name == "volcano" else "unknown"
        results.append((verdict, f"scheduler {name}{'' if known else ', which is not known to run in this cluster'}"))
    return Answer.of(Check.PRIORITY, results)


def _class(state: State, kind: Kind, name: str) -> tuple[Verdict, str]:
    if not name:
        return "now", "no priority class: priority 0"
    if not state.knows(kind):
        return "unknown", state.missing[kind].text
    if unknown := Queues(state).unknown_class(kind, name):
        return "never", "; ".join(unknown)
    classes: Mapping[str, Manifest] = {name_of(item): item for item in state.of(kind)}
    return "now", f"{kind} {name} ({classes[name].get('value')})"
