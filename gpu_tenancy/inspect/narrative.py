"""Texts of `usage`, `fit` and `why` for people; nothing reads them to find out what happened."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_tenancy.base.amounts import amount_text, amounts_text, gpus, leading_text
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import CHANNELS, Amounts
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.inspect.answers import Verdict
from gpu_tenancy.inspect.budgets import Need
from gpu_tenancy.inspect.diagnosis import Diagnosis, Reason
from gpu_tenancy.inspect.forecast import Forecast
from gpu_tenancy.inspect.queueing import QuotaRequest, Refusal, Source
from gpu_tenancy.inspect.queues import Closed, ClosedBy
from gpu_tenancy.inspect.reading import Missing
from gpu_tenancy.inspect.snapshot import NotSimulated, SimulationGap
from gpu_tenancy.inspect.unblock import Unblock
from gpu_tenancy.inspect.usage import Note, Row, Total, Usage
from gpu_tenancy.inspect.workloads import GATED_BY, HeldBack, HeldBackBy
from gpu_tenancy.kueue.topology import PREFERRED, UNCONSTRAINED

_SHOWN: Final = 5
"""Names in a list of workloads, after which only their number follows."""

NO_KUEUE: Final = "Kueue is not installed: no queue to wait in"
KUEUE_NOT_RUNNING: Final = "Kueue has not reported usage for any queue: its controller is not running"
LIVELOCK: Final = "workloads of this cohort tree preempt one another endlessly, in Kueue too"
CHECK_CONTROLLER: Final = "if this persists, check the Kueue controller"
NO_ACTION: Final = "no action needed"
STATE_PLACE: Final = f'add the annotation {UNCONSTRAINED}: "true" to the pod template'
WAIT_UNTIL_THEN: Final = "no action needed until then"
_PULLED_WITHOUT: Final = "imagePullSecrets: the kubelet pulls images without it"
CREATE_CLUSTER_QUEUE: Final = "create it, or set another clusterQueue in the LocalQueue"
FIX_THIS: Final = "fix this; Kueue then admits the workload without further action"


def names_text(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    return first_names(names, _SHOWN)


def ask(missing: Missing) -> str:
    """Who may read what is missing."""
    return f"ask {missing.who}"


def missing_text(missing: Missing) -> str:
    """Which objects cannot be read, what they would show, and who may read them."""
    kinds = f"{missing.kind}{'es' if missing.kind.endswith('s') else 's'}"
    ask = f"; ask {missing.who}" if missing.who else ""
    return f"{kinds} not readable ({missing.tells}): {missing.why}{ask}"


# Quota of Kueue's queues.


def request_numbers(request: QuotaRequest) -> str:
    """What is requested of one resource of one flavor and what of it is missing, without when it fits."""
    state = (
        f"{amount_text(request.resource, request.missing)} missing"
        if request.missing
        else f"{amount_text(request.resource, request.available)} available"
    )
    return f"{_requested(request)}, {state} ({_guarantee(request)}; {_limit(request)})"


def request_text(request: QuotaRequest) -> str:
    """What is requested of one resource of one flavor, and when it fits."""
    resource, missing = request.resource, amount_text(request.resource, request.missing)
    head = _requested(request)
    match request.source:
        case Source.NOMINAL:
            return f"{head}, fits now ({_guarantee(request)})"
        case Source.BORROWED:
            borrowed = amount_text(resource, min(request.requested, request.used + request.requested - request.nominal))
            total = amount_text(resource, request.available)
            return f"{head}, fits now by borrowing {borrowed} ({_guarantee(request)}; {total} available in total)"
        case Source.RECLAIMED:
            return f"{head}, fits after reclaiming {missing} that other queues borrowed ({_guarantee(request)})"
        case Source.OTHERS:
            return f"{head}, fits when other queues release {missing} ({_guarantee(request)}; {_limit(request)})"
        case Source.OWN_QUEUE:
            return f"{head}, fits when workloads of its own queue end ({_guarantee(request)}; {_limit(request)})"
        case Source.NEVER:
            limit = f"{head}, exceeds the limit of {amount_text(resource, request.limit)}"
            return f"nodes of flavor {request.flavor} have no channels" if resource == CHANNELS else limit


def _requested(request: QuotaRequest) -> str:
    return f"{request.flavor} {request.resource}: {amount_text(request.resource, request.requested)} requested"


def _guarantee(request: QuotaRequest) -> str:
    nominal, unused = request.nominal, max(0, request.nominal - request.used)
    return f"guaranteed {amount_text(request.resource, nominal)}, unused {amount_text(request.resource, unused)}"


def _limit(request: QuotaRequest) -> str:
    return f"limit {amount_text(request.resource, request.limit)}, used {amount_text(request.resource, request.used)}"


def refusal_text(refusal: Refusal) -> str:
    """Why a flavor, or all flavors of a queue, cannot be used."""
    if refusal.topology:
        return f"flavor {refusal.flavor}: {_TOPOLOGY[refusal.topology]}"
    if refusal.taint:
        return f"flavor {refusal.flavor}: the pod does not tolerate the taint {refusal.taint}"
    if refusal.flavor:
        return f"flavor {refusal.flavor}: does not match the pod's node selector or affinity"
    if refusal.resource == CHANNELS:
        return f"no flavor of queue {refusal.queue} has nodes with channels, so Kueue never admits the workload"
    return f"no flavor of queue {refusal.queue} covers {refusal.resource}, so Kueue never admits the workload"


_TOPOLOGY: Final = {
    "unstated": "it has a topology, other flavors of the queue have none, and the pods do not state their place",
    "missing": "it has no topology, and an annotation of the pods requires one",
}


def unstated_text(refused: Iterable[Refusal]) -> str:
    """The first flavor that pods could use if they stated their place in its topology; empty for none."""
    return next((refusal_text(refusal) for refusal in refused if refusal.topology == "unstated"), "")


def missing_amounts(requests: Iterable[QuotaRequest]) -> str:
    """`8 nvidia.com/gpu of a100`, for each resource that is missing."""
    return ", ".join(
        f"{amount_text(request.resource, request.missing)} {request.resource} of {request.flavor}"
        for request in requests
        if request.missing
    )


def borrowers(request: QuotaRequest, amounts: Mapping[str, int]) -> str:
    """Which queues borrow a resource now, and how much."""
    who = names_text([f"{queue} {amount_text(request.resource, amount)}" for queue, amount in amounts.items()])
    return f"{request.flavor} {request.resource} borrowed now by: {who}"


def closed_text(closed: Closed) -> str:
    """Why a queue admits no workload of a namespace."""
    match closed.cause:
        case ClosedBy.CLUSTER_QUEUE_INACTIVE:
            return f"ClusterQueue {closed.name} admits no workloads: {closed.detail}"
        case ClosedBy.LOCAL_QUEUE_STOPPED:
            return f"LocalQueue {closed.name} is stopped (stopPolicy {closed.detail})"
        case ClosedBy.LOCAL_QUEUE_INACTIVE:
            return f"LocalQueue {closed.name} admits no workloads: {closed.detail}"
        case ClosedBy.NAMESPACE_NOT_SELECTED:
            return f"namespaceSelector of ClusterQueue {closed.name} does not match namespace {closed.detail}"


def closed_fix(closed: Closed) -> str:
    """What opens the queue again."""
    match closed.cause:
        case ClosedBy.CLUSTER_QUEUE_INACTIVE | ClosedBy.LOCAL_QUEUE_INACTIVE:
            return FIX_THIS
        case ClosedBy.LOCAL_QUEUE_STOPPED:
            return "set stopPolicy to None; Kueue then admits the workload without further action"
        case ClosedBy.NAMESPACE_NOT_SELECTED:
            return "change the selector, or use another queue"


def held_back_text(held: HeldBack) -> str:
    """Why Kueue does not consider a pending workload."""
    match held.cause:
        case HeldBackBy.GATE:
            return f"gated by {held.detail} (annotation {GATED_BY})"
        case HeldBackBy.ON_HOLD:
            return f"on hold: {held.detail}"
        case HeldBackBy.BACKOFF:
            return f"evicted; Kueue requeues it at {held.detail}"
        case HeldBackBy.NOT_REQUEUED:
            return f"not requeued by Kueue: {held.detail}"


# The simulation.


def not_simulated(why: NotSimulated) -> str:
    """Why the queue was not simulated."""
    match why.gap:
        case SimulationGap.UNREADABLE:
            detail = missing_text(why.missing) if why.missing else "not all objects are readable"
        case SimulationGap.NOT_RUNNING:
            detail = KUEUE_NOT_RUNNING
        case SimulationGap.INVALID:
            detail = f"the queue configuration is invalid: {why.detail}"
        case SimulationGap.LIVELOCK:
            detail = LIVELOCK
        case SimulationGap.MISMATCH:
            counted, held = (amount_text(why.resource, value) for value in (why.counted, why.held))
            detail = (
                f"Kueue reports {counted} {why.resource} of {why.flavor} in use in queue {why.queue},"
                f" but its workloads hold {held}; retry in a moment"
            )
    return f"not simulated: {detail}"


def unmodelled_text(parts: Sequence[str]) -> str:
    """What the queue uses and the simulation does not cover."""
    return f"used by this queue but not simulated: {'; '.join(parts)}"


def forecast_text(forecast: Forecast) -> str:
    """What would happen to a workload that is submitted now."""
    head = "simulation: if submitted now, the workload would be"
    if not forecast.admitted:
        return f"{head} pending: {forecast.why}"
    if not forecast.preempted:
        return f"{head} admitted without preemption"
    return f"{head} admitted and preempt {names_text(forecast.preempted)}"


def unblock_lines(unblock: Unblock) -> Iterator[str]:
    """What would get a pending workload admitted."""
    if unblock.admitted:
        preempts = f"preempts {names_text(unblock.gone)}" if unblock.gone else "no preemption"
        yield f"simulation: admitted in the next scheduling cycle, {preempts}"
    else:
        yield f"simulation: pending: {unblock.why}"
        yield from _ways(unblock)
    if unblock.left_out:
        yield unmodelled_text(unblock.left_out)


def _ways(unblock: Unblock) -> Iterator[str]:
    tested = f"tested {unblock.tried} of {plural(unblock.running, 'running workload')}"
    if unblock.ends:
        which = unblock.ends[0] if len(unblock.ends) == 1 else f"any one of these: {names_text(unblock.ends)}"
        yield f"simulation: admitted after the end of {which} ({tested})"
    elif unblock.running:
        yield f"simulation: ending one workload would not admit it ({tested})"
    if unblock.takers:
        freed = "quota freed by the others" if unblock.ends else "the freed quota"
        yield f"{freed} would go to: {names_text(unblock.takers)}"
    if unblock.together:
        yield f"simulation: admitted after these {len(unblock.together)} end: {names_text(unblock.together)}"
    elif unblock.in_turn > 1:
        yield f"simulation: ending {unblock.in_turn} workloads in sequence, lowest priority first, would not admit it"
    if unblock.ahead:
        yield f"simulation: admitted after the removal of the workloads ahead of it: {names_text(unblock.ahead)}"


# The conclusion of `why` for a workload in a queue.


def no_room_together(message: str) -> tuple[str, str]:
    """Quota is free, but no part of the network has room for the pods of a workload."""
    fix = f"wait until nodes near one another are free, request fewer pods, or use the annotation {PREFERRED}"
    return f"no part of the network has room for its pods: {message}", fix


def diagnosis_text(diagnosis: Diagnosis) -> tuple[str, str]:
    """Reason and fix."""
    return _REASONS[diagnosis.reason](diagnosis), _fix(diagnosis)


_REASONS: Final[Mapping[Reason, Callable[[Diagnosis], str]]] = {
    Reason.FREE: lambda _: "quota is free but the workload is not admitted",
    Reason.BORROWABLE: lambda _: "quota can be borrowed but the workload is not admitted",
    Reason.ABOUT_TO_ADMIT: lambda _: "Kueue is about to admit it",
    Reason.ABOUT_TO_PREEMPT: lambda d: f"Kueue is about to admit it and to preempt {names_text(_simulated(d).gone)}",
    Reason.QUEUE_ORDER: lambda _: "other workloads are ahead of it in its queue",
    Reason.RECLAIMABLE: lambda d: f"other queues borrow its guaranteed quota: {missing_amounts(d.requests)}",
    Reason.OTHERS: lambda d: (
        f"it needs quota beyond its guarantee that other queues use: {missing_amounts(d.requests)}"
    ),
    Reason.BEYOND_GUARANTEE: lambda d: (
        f"the quota it needs beyond its guarantee is in use: {missing_amounts(d.requests)}"
    ),
    Reason.OWN_QUEUE_FULL: lambda d: f"its own queue uses all that it may use: {missing_amounts(d.requests)} missing",
    Reason.NEVER: lambda d: f"its queue can never admit it: {_never(d)}",
    Reason.SIMULATED: lambda d: f"pending: {_simulated(d).why}",
}


def _never(diagnosis: Diagnosis) -> str:
    if unstated := unstated_text(diagnosis.refused):
        return unstated
    requests = "; ".join(request_text(request) for request in diagnosis.requests)
    return requests or "; ".join(refusal_text(refusal) for refusal in diagnosis.refused)


def _simulated(diagnosis: Diagnosis) -> Unblock:
    if diagnosis.unblock is None:
        raise ValueError("only a simulated diagnosis has workloads to name")
    return diagnosis.unblock


_FIXES: Final[Mapping[Reason, str]] = {
    Reason.FREE: CHECK_CONTROLLER,
    Reason.BORROWABLE: CHECK_CONTROLLER,
    Reason.ABOUT_TO_ADMIT: CHECK_CONTROLLER,
    Reason.ABOUT_TO_PREEMPT: NO_ACTION,
    Reason.QUEUE_ORDER: "wait, or set a higher priority class",
    Reason.RECLAIMABLE: f"{NO_ACTION}: Kueue reclaims it from {{who}}",
    Reason.OTHERS: "wait for {who} to release it, request less, or raise the guarantee",
    Reason.OWN_QUEUE_FULL: "wait for workloads of its own queue to end, end some of them, or raise the limit",
    Reason.NEVER: "request less, request another flavor, or raise the limit",
}
_LOWER_ONLY: Final = "Kueue reclaims it only from workloads of lower priority; otherwise wait for {who} to release it"
_FURTHER: Final[Mapping[Reason, str]] = {
    Reason.OWN_QUEUE_FULL: "; or end some of them, or raise the limit",
    Reason.BEYOND_GUARANTEE: "; or request less, or raise the guarantee",
    Reason.SIMULATED: "",
}
"""What follows the simulated way."""


def _fix(diagnosis: Diagnosis) -> str:
    if diagnosis.unblock and diagnosis.reason in _FURTHER:
        return f"{_way(diagnosis.unblock)}{_FURTHER[diagnosis.reason]}"
    if diagnosis.reason is Reason.NEVER and unstated_text(diagnosis.refused):
        return STATE_PLACE
    text = _LOWER_ONLY if diagnosis.lower_only and diagnosis.reason is Reason.RECLAIMABLE else _FIXES[diagnosis.reason]
    return text.format(who=names_text(diagnosis.borrowers) or "other queues")


def _way(unblock: Unblock) -> str:
    if len(unblock.ends) == 1:
        return f"wait until {unblock.ends[0]} ends"
    if unblock.ends:
        return f"wait until one of these ends: {names_text(unblock.ends)}"
    if unblock.together:
        return f"wait until these {len(unblock.together)} end: {names_text(unblock.together)}"
    if unblock.ahead:
        return f"wait, or remove the workloads ahead of it: {names_text(unblock.ahead)}"
    if unblock.takers:
        return f"wait for the workloads that are admitted first, such as {names_text(unblock.takers)}"
    return "none of the tested ends would admit it"


# The queue itself.


def queue_position(labels: Sequence[str], requested: Amounts, *, complete: bool) -> str:
    """How many workloads are ahead in the queue, and what they request."""
    seen = "" if complete else " (of those that you may see)"
    if not labels:
        return f"no workload is ahead of it in the queue{seen}"
    count = plural(len(labels), "workload is", "workloads are")
    return f"{count} ahead of it{seen}, requesting {leading_text(requested)}: {names_text(labels)}"


def already_pending(count: int, requested: Amounts) -> str:
    """How many workloads are pending in a queue that another would join."""
    pending = f"{plural(count, 'workload')} already pending ({leading_text(requested)})"
    return f"{pending}; those of higher or equal priority are admitted first"


# Container defaults.


def default_text(container: str, given: Mapping[str, str]) -> str:
    """Which requests and limits of a container the LimitRange sets, such as `requests`: `cpu 1`."""
    return f"container {container}: {' and '.join(f'{kind} {amounts}' for kind, amounts in given.items())}"


# Namespace quota.

NO_QUOTA: Final = "no ResourceQuota of the namespace applies to these pods"


def quota_text(need: Need) -> str:
    """What is requested of one resource of a ResourceQuota, and how much of it is free."""
    budget, requested, resource = need.budget, need.requested, need.budget.resource
    asked, hard, used = (amount_text(resource, value) for value in (requested, budget.hard, budget.used))
    head = f"ResourceQuota {budget.quota}: {resource} {asked} requested"
    if need.verdict == "never":
        return f"{head}, exceeds the quota of {hard}"
    if need.verdict == "later":
        return f"{head}, {used} of {hard} used; {amount_text(resource, requested - budget.left)} must be released first"
    return f"{head}, {amount_text(resource, budget.left)} of {hard} free"


# Nodes.


def node_room(nodes: int, now: int, empty: int, *, grow: bool = False) -> str:
    """How many pods the suitable nodes have room for."""
    room = f"{plural(nodes, 'suitable node')}, room for {plural(now, 'such pod')} now and {empty} when empty"
    return f"{room}; the autoscaler must add nodes" if grow else room


def part_too_small(label: str, pods: int, room: int) -> str:
    """Pods that must all run in one part of the network, none of which is large enough."""
    largest = f"no value has room for more than {room}"
    return f"{plural(pods, 'pod')} must run where nodes have one value of {label}, but {largest}"


def node_too_small(requested: Amounts, nodes: int, largest: str) -> str:
    """A pod that is larger than any suitable node."""
    what = gpus(requested) or requested
    return f"a pod requests {amounts_text(what)}, but the largest of {plural(nodes, 'suitable node')} has {largest}"


def nodes_excluded(taints: Mapping[str, int], unschedulable: int) -> str:
    """Nodes with matching labels that do not accept the pod."""
    parts = [
        f"{plural(count, 'node')} with taint {taint}, which it does not tolerate" for taint, count in taints.items()
    ]
    parts += [f"{plural(unschedulable, 'unschedulable node')}"] if unschedulable else []
    return f"matching nodes do not accept the pod: {'; '.join(parts)}"


def no_node_of_flavor(flavor: str) -> str:
    """A flavor without nodes."""
    return f"no node of flavor {flavor} exists yet; the autoscaler must add one"


NO_AFFINE_NODE: Final = "no node matches the pod's node affinity"


def no_node_with_label(key: str, value: str, values: Sequence[str]) -> str:
    """A node selector that no node matches."""
    return f"no node has the label {key}={value}; existing values: {', '.join(values) or 'none'}"


def free_on_nodes(resource: str, counts: Mapping[int, int]) -> str:
    """How many nodes have how much free."""
    parts = (f"{amount_text(resource, free)} on {plural(count, 'node')}" for free, count in sorted(counts.items()))
    return f"free {resource}: {', '.join(parts)}"


# Volcano's queues.

NO_GANG_QUEUE: Final = "the queue does not exist; set spec.queue to an existing queue"
NO_GANG_BOUND: Final = "the queue has no limit for these resources"


def gang_queue_closed(state: str) -> str:
    """A queue that accepts no gangs."""
    return f"the queue is in state {state} and accepts no gangs"


def gang_text(resource: str, requested: int, used: int, capability: int) -> str:
    """What a gang requests of a queue, and when it fits."""
    asked, taken, limit = (amount_text(resource, value) for value in (requested, used, capability))
    if requested > capability:
        return f"{resource} {asked} requested, exceeds the limit of {limit}"
    if used + requested > capability:
        return f"{resource} {asked} requested, fits when other gangs end ({taken} of {limit} used)"
    return f"{resource} {asked} requested, {amount_text(resource, capability - used)} of {limit} free"


def gangs_pending(count: int, requested: Amounts) -> str:
    """How many gangs are pending in a queue."""
    return f"{plural(count, 'gang')} pending in it ({leading_text(requested)})"


# The API server's dry run.


def dry_run_accepted(what: str, *, renamed: bool) -> str:
    """An object that the API server would create."""
    how = "dry run with another name, since the name is in use" if renamed else "dry run"
    return f"accepts {what} ({how})"


def dry_run_rejected(what: str, message: str, *, missing_right: bool) -> str:
    """An object that the API server would not create, or that the user may not create."""
    return f"{what} not evaluated, you may not create it: {message}" if missing_right else f"rejects {what}: {message}"


# Priority and scheduler.

NO_PRIORITY_CLASS: Final = "no priority class: priority 0"


def class_text(kind: str, name: str, value: object, *, preempts: bool) -> str:
    """A priority class with its value."""
    return f"{kind} {name} ({value}){'' if preempts else ', never preempts'}"


def no_class(kind: str, name: str, known: Iterable[str]) -> str:
    """A priority class that does not exist."""
    return f"{kind} {name} not found; {nearest(name, known)}"


def scheduler_text(name: str, *, known: bool) -> str:
    """Which scheduler places the pods."""
    return f"scheduler {name}{'' if known else ', which is not known to run in this cluster'}"


# Queues that do not exist.

NO_LOCAL_QUEUE: Final = "the namespace has no LocalQueue; ask the platform team for one"
NOTHING_REQUESTED: Final = "no resources requested"


def no_queue_label(label: str, queue: str) -> str:
    """A workload without a queue."""
    hint = f"; add the label {label}: {queue}" if queue else ""
    return f"no queue set, so it stays pending for ever in a team's namespace{hint}"


def no_local_queue(name: str, namespace: str) -> str:
    """A LocalQueue that does not exist."""
    return f"LocalQueue {name} not found in namespace {namespace}"


def known_queues(name: str, known: Iterable[str]) -> str:
    """Hint for a LocalQueue that does not exist."""
    names = tuple(known)
    return nearest(name, names) if names else NO_LOCAL_QUEUE


def no_cluster_queue(local: str, name: str) -> str:
    """A LocalQueue whose ClusterQueue does not exist."""
    return f"ClusterQueue {name} of LocalQueue {local} not found"


def one_by_one(unit: str, now: int, count: int) -> str:
    """How many pods of a Deployment, or groups of a LeaderWorkerSet, would be admitted now."""
    return f"each {unit} is admitted separately: {now} of {plural(count, unit)} now"


def local_usage(flavor: str, amounts: Amounts) -> str:
    """What a namespace uses, where the ClusterQueue is not readable."""
    return f"your namespace uses {amounts_text(amounts)} of {flavor}"


USED_BY_PODS: Final = f"{KUEUE_NOT_RUNNING}; usage is counted from pods"


def fit_conclusion(title: str, verdict: Verdict, about: str, reason: str) -> str:
    """Whether a workload fits, and the first check that decides it."""
    match verdict:
        case "now":
            return f"{title} fits now"
        case "later":
            return f"{title} fits, but not now: {about}: {reason}"
        case "never":
            return f"{title} does not fit: {about}: {reason}"
        case "unknown":
            return f"{title} fits as far as you may see: {about}: {reason}"


# Stages of a workload.


def workload_place(name: str, local: str, cluster_queue: str, priority: int) -> str:
    """Where a Workload is queued."""
    behind = f" (ClusterQueue {cluster_queue})" if cluster_queue else ""
    return f"Workload {name} in LocalQueue {local or '(none)'}{behind}, priority {priority}"


def condition_text(kind: str, reason: str, message: str) -> str:
    """A condition of Kueue's, with its message."""
    return f"Kueue condition {kind} ({reason}): {message}"


def check_text(name: str, state: str, message: str) -> str:
    """An admission check that is not ready."""
    return f"admission check {name} is {state}{': ' + message if message else ''}"


def ended(outcome: str = "") -> str:
    """An object that ended."""
    return f"not pending: ended{f' ({outcome})' if outcome else ''}"


INACTIVE: Final = "its Workload is deactivated (spec.active is false)"


def activate(namespace: str, name: str) -> str:
    """The command that activates a Workload."""
    patch = """--type merge -p '{"spec":{"active":true}}'"""
    return f"kubectl -n {namespace} patch workload {name} {patch}"


def checks_pending(names: Sequence[str], requested: Amounts) -> tuple[str, str]:
    """Reason and fix where quota is reserved, but admission checks are not ready."""
    held = leading_text(requested)
    checks = ", ".join(names) or "of its queue"
    reason = f"quota is reserved ({held}), but admission check {checks} is not ready"
    return reason, "wait for the check, for example for new nodes; see the AdmissionCheck"


STRICT_FIFO: Final = "its queue is StrictFIFO: no workload passes the first, even if that one can never be admitted"
QUOTA_UNREADABLE: Final = "pending for quota; you may not see how much is free"


# Objects without a Workload.

NOT_MANAGED: Final = "no Workload: Kueue does not manage it"
NOT_QUEUED_YET: Final = (
    "not queued yet: Kueue has not created a Workload for it",
    "check that the Kueue controller is running, and that it manages this kind and this namespace",
)
"""Reason and fix."""


def not_labelled(label: str, queues: Iterable[str]) -> tuple[str, str]:
    """Reason and fix for an object without a queue label."""
    return "not queued: no queue label", f"add the label {label}={min(queues, default='<a LocalQueue>')}"


def not_queued(queue: str, namespace: str, queues: Iterable[str]) -> tuple[str, str]:
    """Reason and fix for an object whose LocalQueue does not exist."""
    return f"not queued: {no_local_queue(queue, namespace)}", known_queues(queue, queues)


def queue_label(local: str, cluster_queue: str) -> str:
    """The LocalQueue that an object names, with its ClusterQueue."""
    return f"queue label: LocalQueue {local} (ClusterQueue {cluster_queue})"


# Gangs that are pending.

VOLCANO_NOT_RUNNING: Final = "Volcano has not reported usage for any queue: its controller is not running"
NO_POD_GROUP: Final = ("Volcano has not created a PodGroup for it", "check that the Volcano controller is running")
"""Reason and fix."""
NO_CAPACITY_FOR_GANG: Final = (
    "no capacity for all pods of the gang at the same time",
    "wait for nodes; the gang starts as a whole",
)
"""Reason and fix."""


def gang_place(queue: str) -> str:
    """The Volcano queue of a gang."""
    return f"gang in Volcano queue {queue}: all pods start together"


def pod_group_text(name: str, phase: str, members: object) -> str:
    """A PodGroup with its phase and the number of pods that start together."""
    return f"PodGroup {name}: {phase or 'no phase yet'}, minMember {members}"


def gang_never(line: str) -> tuple[str, str]:
    """Reason and fix for a gang that exceeds its queue."""
    return f"its queue can never admit it: {line}", "request less, or raise the capability of the queue"


def gang_later(line: str) -> tuple[str, str]:
    """Reason and fix for a gang whose queue is full."""
    return f"its queue is at capacity: {line}", "wait until other gangs of the team end"


# Pods that do not run.

FIX_THIS_ERROR: Final = "fix this error"
PODS_REJECTED: Final = "the API server rejects its pods"


def in_worker(worker: str) -> tuple[str, str]:
    """Reason and fix of a workload that MultiKueue sent to another cluster."""
    return (
        f"runs in worker cluster {worker}; this cluster has none of its pods",
        f"for its pods, run `tenancy why` with the kubeconfig of {worker}",
    )


def nominated(workers: Iterable[object]) -> str:
    """The worker clusters of MultiKueue that have a copy of a workload."""
    names = ", ".join(str(worker) for worker in workers)
    return f"pending in worker clusters {names}: the first that admits it runs it; quota there is not shown here"


NO_PODS_REQUESTED: Final = "not pending: no pods requested"
SUSPENDED: Final = ("suspended (spec.suspend is true)", "set spec.suspend to false, or let Kueue do it")
"""Reason and fix."""
NO_PODS_YET: Final = ("no pods created yet", "check the events of its controller: kubectl describe")
"""Reason and fix."""


def pod_rejected(message: str) -> str:
    """What the API server answered to the object's controller."""
    return f"pod rejected: {message}"


def release_quota(namespace: str) -> str:
    """Fix for pods that exceed a ResourceQuota."""
    return f"release quota or raise it: tenancy usage {namespace}"


def not_started(error: str) -> tuple[str, str]:
    """Reason and fix for containers of a scheduled pod that do not start."""
    return f"containers do not start: {error}", FIX_THIS_ERROR


def container_error(container: str, reason: str, message: str) -> str:
    """Why a container waits, as the kubelet reports it."""
    return f"{container}: {reason}{': ' + message if message else ''}"


def not_scheduled_yet(pods: int) -> tuple[str, str]:
    """Reason and fix for pods that no scheduler has looked at."""
    return f"{plural(pods, 'pod')} not handled by any scheduler yet", "check that the pod's scheduler is running"


def gated(pods: int, gates: Sequence[str], *, by_kueue: bool) -> tuple[str, str]:
    """Reason and fix for pods with scheduling gates."""
    fix = "check its Workload: kubectl get workloads" if by_kueue else "wait until its controller removes it"
    return f"{plural(pods, 'pod')} blocked by scheduling gate {', '.join(gates)}", fix


def unschedulable(pods: int, first: str, message: str) -> str:
    """Pods without a node, with the scheduler's message on the first."""
    return f"{plural(pods, 'pod')} unschedulable; {first}: {message}"


def not_bound(claim: str, phase: str) -> str:
    """A PersistentVolumeClaim that is missing or has no volume."""
    return f"claim {claim} is {phase or 'not found'}"


def volumes_not_ready(line: str) -> tuple[str, str]:
    """Reason and fix for pods whose claims are not bound."""
    return f"volumes not ready: {line}", "check the claim: kubectl describe pvc"


_UNPLACED_FIXES: Final[Mapping[Verdict, str]] = {
    "never": "request what the nodes have, or tolerate their taint",
    "later": "wait, or add nodes",
}


def unplaced(why: str, verdict: Verdict) -> tuple[str, str]:
    """Reason and fix for pods that the scheduler cannot place.

    Args:
        why: the message of the scheduler, or the result of the check of the nodes.
        verdict: of that check.
    """
    return f"pods unschedulable: {why}", _UNPLACED_FIXES.get(verdict, "capacity is available; check scheduler events")


UNPLACED: Final = ("pods unschedulable", "check the message of the scheduler")
"""Reason and fix where the nodes are not readable."""


def others_running(pods: int) -> str:
    """Pods of the same object that run."""
    return plural(pods, "other pod running", "other pods running")


def not_pending(pods: int) -> str:
    """An object whose pods run."""
    return f"not pending: {plural(pods, 'pod running', 'pods running')}"


def pods_unreadable(who: str) -> tuple[str, str]:
    """Reason and fix where the user may not read pods."""
    return "its pods are not readable by you", f"ask {who}"


# Usage.

_NOTES: Final[Mapping[Note, str]] = {
    Note.LENT: "lent: upper bound of the idle guarantee that others use; Kueue records who borrows, not from whom:"
    " quota without a guarantee counts as borrowed first, and near cohorts before far ones",
    Note.NO_FLAVOR: "flavor -: no flavor of the queue can ever provide it; see `tenancy why`",
    Note.KUEUE_NOT_RUNNING: f"{KUEUE_NOT_RUNNING}; used: requests of pods on the flavors' nodes",
    Note.QUOTAS_ABRIDGED: "quotas: only GPUs and resources at capacity; `tenancy usage TEAM` shows all of one team",
    Note.CPU_QUOTAS_ABRIDGED: "quotas: only requests of CPU and memory, and resources at capacity; `tenancy usage TEAM`"
    " shows all of one team",
}


def row_title(row: Row) -> str:
    """Name of the queue or namespace in the first column; a namespace that shares a queue is indented below it."""
    return f"  namespace {row.team}" if row.part_of else row.team


def usage_total(total: Total) -> str:
    """Sums of GPUs, of CPU and memory where flavors have no GPUs, and the pending workloads."""
    parts = [
        f"{row.resource}{' without GPUs' if row.beside_gpus else ''}:"
        f" {_known(row.resource, row.guaranteed)} guaranteed, {_known(row.resource, row.used)} used,"
        f" {_known(row.resource, row.borrowed)} borrowed, {_known(row.resource, row.waiting)} pending"
        for row in total.resources
    ]
    requested = f" ({'; '.join(leading_text(part) for part in total.requested)})" if total.requested else ""
    return f"total {'; '.join(parts) or 'no quota'}; {plural(total.workloads, 'workload')} pending{requested}"


def _known(resource: str, amount: int | None) -> str:
    return "unknown" if amount is None else amount_text(resource, amount)


def usage_notes(usage: Usage) -> Iterator[str]:
    """What the reader should know about the numbers, and which are unknown."""
    yield from (_NOTES[note] for note in usage.notes)
    yield from (missing_text(missing) for missing in usage.unreadable)


def no_claim(name: str, team: str, known: Iterable[str]) -> str:
    """A claim that does not exist."""
    return f"claim {name} not found in namespace {team}; {nearest(name, known)}"


def claim_of_cache(name: str, cache: str, phase: str) -> str:
    """A claim that Fluid has not made yet."""
    state = {"": "Fluid has not seen it", "NotBound": "it is not ready"}.get(phase, f"it is {phase}")
    return f"claim {name} waits for cache {cache}: {state}"


def claim_deleted(name: str) -> str:
    """A claim that stays only until no pod mounts it."""
    return f"claim {name} is being deleted; new pods cannot mount it"


def claim_lost(name: str) -> str:
    """A claim whose volume is gone."""
    return f"claim {name} has lost its PersistentVolume; recreate the claim"


def claim_of_one(name: str, mode: str, pods: int) -> str:
    """A claim of one node or pod, which several pods mount."""
    place = "one pod" if mode == "ReadWriteOncePod" else "pods of one node"
    return f"claim {name} is {mode}: only {place} can mount it, not {pods} pods; use a claim with ReadWriteMany"


def claim_in_use(name: str, mode: str, pod: str, node: str) -> str:
    """A claim of one node that is mounted already."""
    return f"claim {name} is {mode} and mounted by pod {pod} on node {node}; end it, or run on the same node"


def claim_unbound(name: str, storage_class: str) -> str:
    """A claim without a volume."""
    of = f"StorageClass {storage_class} creates one" if storage_class else "a PersistentVolume is created for it"
    return f"claim {name} is not bound: it can be mounted once {of}; check its events"


def claim_without_class(name: str, storage_class: str) -> str:
    """A claim that nothing can bind."""
    return f"claim {name} is not bound, and its StorageClass {storage_class} does not exist"


def claim_waits(name: str, storage_class: str) -> str:
    """A claim that is bound when a pod is scheduled."""
    return f"claim {name} is bound when its first pod is scheduled (StorageClass {storage_class})"


def claim_bound(name: str, modes: Sequence[str]) -> str:
    """A claim that can be mounted."""
    return f"claim {name} is bound ({', '.join(modes)})"


def claim_read_only(name: str) -> str:
    """A claim that a container mounts for writing, in vain."""
    return f"claim {name} is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount"


def no_object(kind: str, name: str, where: str, known: Iterable[str]) -> str:
    """A Secret or ConfigMap that does not exist, so that the containers of a pod do not start."""
    fix = f"create it, or set another one; {nearest(name, known)}"
    return f"{kind} {name} not found ({where}), so pods do not start; {fix}"


def no_template(name: str) -> str:
    """A ResourceClaimTemplate that does not exist, and that no ComputeDomain has the driver make."""
    return f"ResourceClaimTemplate {name} not found; {_create_domain(name)}"


def _create_domain(name: str) -> str:
    return f"create a ComputeDomain with spec.channel.resourceClaimTemplate.name: {name}"


def channel_made(name: str) -> str:
    """A ResourceClaimTemplate that the driver makes for a ComputeDomain."""
    return f"ResourceClaimTemplate {name} is made by NVIDIA's DRA driver for its ComputeDomain"


def channel_claimed(name: str) -> str:
    """A ResourceClaimTemplate of channels."""
    return f"each pod claims the channel of its node by ResourceClaimTemplate {name}; channels have no limit"


def class_not_counted(name: str, device_class: str) -> str:
    """A ResourceClaimTemplate of other devices."""
    claimed = f"ResourceClaimTemplate {name} claims devices of DeviceClass {device_class}"
    return f"{claimed}, which Kueue does not admit; {_REQUEST_GPUS}"


_REQUEST_GPUS: Final = "request GPUs under resources of the containers"


def claim_not_supported(name: str) -> str:
    """A ResourceClaim that pods name themselves."""
    return f"Kueue admits no pod with a ResourceClaim ({name}); set resourceClaimTemplateName instead"


def template_missing(name: str) -> tuple[str, str]:
    """Reason and fix of a pending workload whose pods name a template that does not exist."""
    made = "NVIDIA's DRA driver makes it for a ComputeDomain"
    fix = f"{_create_domain(name)}, or, if there is one, check that the driver's controller is running"
    return f"its pods claim devices by ResourceClaimTemplate {name}, which does not exist: {made}", fix


def class_unmapped(device_class: str, *, channel: bool) -> tuple[str, str]:
    """Reason and fix of a pending workload whose pods claim devices that Kueue does not count."""
    mapping = f"add {device_class} to deviceClassMappings of Kueue's configuration"
    reason = f"its pods claim devices of DeviceClass {device_class}, which Kueue does not count"
    return reason, mapping if channel else _REQUEST_GPUS


NO_CHANNELS: Final = (
    "its pods claim channels of a ComputeDomain, and no flavor that they can use has nodes with channels",
    "select nodes with NVLink between machines, or remove resourceClaims",
)
"""Reason and fix of a pending workload on nodes without channels."""
CHANNELS_TAKEN: Final = (
    "no node with room has a free channel: a node has one channel, for one pod with a ComputeDomain",
    "request all GPUs of a node for each pod, or wait until the pod that has the channel ends",
)
"""Reason and fix of pods that wait for the channel of a node."""


def no_pull_secret(name: str, known: Iterable[str]) -> str:
    """A Secret of a registry that does not exist: the kubelet pulls without it."""
    return f"Secret {name} not found ({_PULLED_WITHOUT}); create it, or set another one; {nearest(name, known)}"


def no_pull_type(name: str, actual: str, wanted: str) -> str:
    """A Secret of a registry that the kubelet does not use."""
    return f"Secret {name} has type {actual} ({_PULLED_WITHOUT}); create it with type {wanted}"


def no_key(kind: str, name: str, key: str, where: str, known: Iterable[str]) -> str:
    """A Secret or ConfigMap without a key that a container needs."""
    fix = f"add it, or set another one; {nearest(key, known)}"
    return f"{kind} {name} has no key {key} ({where}), so pods do not start; {fix}"


def keys_unknown(kind: str, name: str, keys: Sequence[str]) -> str:
    """A Secret or ConfigMap with a key that its managedFields do not record."""
    return f"{kind} {name} exists; unknown whether it has the key {names_text(keys)} (not in its managedFields)"


def has_keys(kind: str, name: str, keys: Sequence[str]) -> str:
    """A Secret or ConfigMap that pods can use."""
    return f"{kind} {name} has the key {names_text(keys)}" if keys else f"{kind} {name} exists"
