"""Rules for tenants' workloads. The message of a violation has the value, the rule and the fix."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.plan.guards import GuardsPlan
from gpu_tenancy.model.quantity import format_amounts

from ..conventions import QUEUE, VOLCANO
from .expressions import (
    CLASS_LABELS,
    CONTAINERS,
    CRON_JOB,
    GANG_OF,
    GANG_QUEUE,
    IS_VOLCANO,
    LIMITS,
    PLACES,
    QUEUE_OF,
    REQUESTS,
    SHARED,
    TRAIN_JOB,
    by_namespace,
    is_gpu,
    literal,
    number,
    requests_gpus,
)

_OWNERS: Final = (
    "apps/Deployment",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "batch/Job",
    "batch.volcano.sh/Job",
    "jobset.x-k8s.io/JobSet",
    "trainer.kubeflow.org/TrainJob",
    "v1/Pod",
)
"""Kinds whose children Kueue does not count again. It trusts the owner reference, whoever wrote it
(`FindAncestorJobManagedByKueue` in
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The content of one ValidatingAdmissionPolicy.

    Attributes:
        name: name of the policy, without the prefix `gpu-tenancy-`.
        variables: CEL expressions by name; each can use `SHARED` and the variables before it.
        faults: names of the variables that are lists of messages, one per violation. If all are empty, the object is
            accepted.
        of_trainer: whether JobSets that Kubeflow Trainer creates are validated too.
    """

    name: str
    variables: Mapping[str, str]
    faults: tuple[str, ...]
    of_trainer: bool = True

    @property
    def all_variables(self) -> dict[str, str]:
        """The shared variables and those of the rule, in order of their dependencies."""
        return {**SHARED, **self.variables}


def rules(guards: GuardsPlan) -> Iterator[Rule]:
    """The rules that apply to a stack."""
    yield _queue(guards)
    if guards.taints:
        yield _toleration(guards)
    yield _scheduling(guards)
    yield _amount(guards)
    if any(bounds.ratios for bounds in guards.teams.values()):
        yield _ratio(guards)


def _queue(guards: GuardsPlan) -> Rule:
    """GPU workloads must use the LocalQueue of the namespace or a Volcano queue of the team."""
    gangs = by_namespace({name: list(bounds.gangs) for name, bounds in guards.teams.items()}, [])
    no_pods = "object.kind in ['TrainJob', 'PodGroup']"
    return Rule(
        name="queue",
        variables={
            "asks": f"{no_pods} || variables.pods.exists(p, {requests_gpus(guards.names)})",
            "queue": QUEUE_OF,
            "gang": GANG_OF,
            "gangs": f"dyn({gangs})",
            "uncounted": (
                "variables.asks && variables.gang == '' && variables.queue != request.namespace ? ["
                "'asks for GPUs and names ' + (variables.queue == '' ? 'no queue' : 'the queue ' + variables.queue"
                " + ', which this namespace does not have') + ', so that no share would count them; write"
                f" {QUEUE}: ' + request.namespace + ' under ' + ({CRON_JOB} ? 'spec.jobTemplate.' : '')"
                " + 'metadata.labels'] : []"
            ),
            "astray": (
                "variables.asks && variables.gang != '' && !(variables.gang in variables.gangs) ? ["
                "'is in Volcano\\'s queue ' + variables.gang + ', which is none of this namespace\\'s; '"
                " + (size(variables.gangs) == 0 ? 'the team has no gangs: queue a Job with the label"
                f" {QUEUE}: ' + request.namespace : 'write ' + ({IS_VOLCANO} ? 'spec.queue: ' :"
                f" 'the annotation {GANG_QUEUE}: ') + variables.gangs.join(' or '))] : []"
            ),
            "forged": (
                "variables.asks ? object.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false)"
                f" && (o.apiVersion.split('/')[0] + '/' + o.kind) in {literal(_OWNERS)}).map(o,"
                " 'says that ' + o.kind + ' ' + o.name + ' made it, and the queue would not count it; only the"
                " controllers of that kind make such an owner, so leave metadata.ownerReferences out') : []"
            ),
        },
        faults=("uncounted", "astray", "forged"),
        of_trainer=False,
    )


def _toleration(guards: GuardsPlan) -> Rule:
    """Pods without GPUs must not tolerate the taints of GPU nodes."""
    tolerated = f"t.?key.orValue('') == '' || t.key in {literal(guards.taints)}"
    return Rule(
        name="toleration",
        variables={
            "tolerating": (
                f"variables.pods.filter(p, !{requests_gpus(guards.names)}).map(p, p.?tolerations.orValue([]).filter(t,"
                f" {tolerated}).map(t, 'tolerates ' + (t.?key.orValue('') == '' ? 'every taint' : t.key)"
                " + ' in a pod that asks for no GPU, and would take cpus and memory that belong to GPUs; '"
                " + (t.?key.orValue('') == '' ? 'name the keys that it needs, none of a GPU'"
                " : 'leave the toleration out'))).filter(f, size(f) > 0).map(f, f[0])"
            ),
        },
        faults=("tolerating",),
    )


def _scheduling(guards: GuardsPlan) -> Rule:
    """Pods must use an allowed scheduler and a priority class of the team, and must not set nodeName."""
    schedulers = {
        name: ["default-scheduler", VOLCANO] if bounds.volcano else ["default-scheduler"]
        for name, bounds in guards.teams.items()
    }
    classes = {name: list(bounds.classes) for name, bounds in guards.teams.items()}
    most_common = max(classes.values(), key=list(classes.values()).count, default=list[str]())
    required = [name for name, bounds in guards.teams.items() if bounds.must_name]
    return Rule(
        name="scheduling",
        variables={
            "schedulers": by_namespace(schedulers, ["default-scheduler"]),
            "classes": f"dyn({by_namespace(classes, most_common)})",
            "places": PLACES,
            "foreign": (
                "variables.places.map(p, p.?schedulerName.orValue('')).filter(s, s != ''"
                " && !(s in variables.schedulers)).map(s, 'wants the scheduler ' + s + ', which knows nothing of the"
                " queues; write schedulerName: ' + variables.schedulers.join(' or ') + ', or leave it out')"
            ),
            "pinned": (
                "object.kind == 'Pod' && oldObject != null ? []"
                " : variables.pods.filter(p, p.?nodeName.orValue('') != '').map(p, 'puts itself on the node '"
                " + p.nodeName + ', past every scheduler and taint; leave nodeName out, and choose nodes by"
                " nodeSelector')"
            ),
            "unknown": (
                "(variables.places.map(p, p.?priorityClassName.orValue('')) +"
                f" {CLASS_LABELS}).filter(n, n != '' && !(n in variables.classes)).map(n, 'has the priority class ' + n"
                " + ', which this namespace may not name; ' + (size(variables.classes) == 0 ? 'leave it out'"
                " : 'write one of ' + variables.classes.join(', ')))"
            ),
            "unsaid": (
                f"request.namespace in {literal(required)} && !({TRAIN_JOB}) && variables.pods.exists(p,"
                " p.?priorityClassName.orValue('') == '') ? ['names no priority class, and the namespace\\'s quota"
                " refuses such pods for ever; write priorityClassName: ' + variables.classes.join(' or ')] : []"
            ),
        },
        faults=("foreign", "pinned", "unknown", "unsaid"),
    )


def _amount(guards: GuardsPlan) -> Rule:
    """A pod must not request more GPUs than the largest node has, nor a container more than the team's maximum."""
    of_container = by_namespace({name: dict(bounds.gpus) for name, bounds in guards.teams.items()}, {})
    amount = number(f"r in {LIMITS} ? {LIMITS}[r] : r in {REQUESTS} ? {REQUESTS}[r] : 0")
    at_once = "(p.containers + p.?initContainers.orValue([]).filter(c, c.?restartPolicy.orValue('') == 'Always'))"
    total = f"{at_once}.map(c, {amount}).sum()"
    counts = f"{CONTAINERS}.map(c, {amount})"
    return Rule(
        name="amount",
        variables={
            "most": f"dyn({literal(guards.max_per_node)})",
            "bounds": f"dyn({of_container})",
            "unknown": (
                f"variables.pods.map(p, {CONTAINERS}.map(c, {LIMITS}.filter(r, {is_gpu(guards.names)}"
                f" && !(r in variables.most) && {number(f'{LIMITS}[r]')} > 0.0)).filter(f, size(f) > 0))"
                ".filter(f, size(f) > 0).map(f, 'asks for ' + f[0][0] + ', which no node has; '"
                " + (size(variables.most) == 0 ? 'there are no GPUs here' : 'ask for '"
                " + variables.most.map(r, r).join(' or ')))"
            ),
            "excess": (
                f"variables.pods.map(p, variables.most.filter(r, {total} > double(variables.most[r])"
                f" || {counts}.exists(a, a > double(variables.most[r]))).map(r, 'asks for '"
                f" + string(int(({counts} + [{total}]).max())) + ' ' + r + ' in one pod, and the largest node has '"
                " + string(variables.most[r]) + '; ask for that many at most, in more pods'))"
                ".filter(f, size(f) > 0).map(f, f[0])"
            ),
            "over": (
                f"variables.pods.map(p, variables.bounds.filter(r, {counts}.exists(a,"
                f" a > double(variables.bounds[r]))).map(r, 'asks for ' + string(int({counts}.max())) + ' ' + r"
                " + ' in one container, and one of this namespace may have ' + string(variables.bounds[r])"
                " + '; ask for that many at most, in more pods')).filter(f, size(f) > 0).map(f, f[0])"
            ),
        },
        faults=("unknown", "excess", "over"),
    )


def _ratio(guards: GuardsPlan) -> Rule:
    """Containers must respect the LimitRange's maximum ratio of limit to request before Kueue admits their job."""
    teams = guards.teams.items()
    limit, request = f"(r in {LIMITS} ? {LIMITS}[r] : variables.defaults[r])", f"{REQUESTS}[r]"
    return Rule(
        name="ratio",
        variables={
            "ratios": f"dyn({by_namespace({name: dict(bounds.ratios) for name, bounds in teams}, {})})",
            # A container with a request only gets the LimitRange's default limit; one with a limit only requests the
            # same amount.
            "defaults": (
                f"dyn({by_namespace({name: dict(format_amounts(bounds.defaults)) for name, bounds in teams}, {})})"
            ),
            "loose": (
                f"variables.pods.map(p, {CONTAINERS}.map(c, variables.ratios.filter(r, r in {REQUESTS} &&"
                f" {number(limit)} > {number(request)} * double(variables.ratios[r]) * 1.000001)"
                f".map(r, 'limits ' + r + ' to ' + string({limit}) + ' for a request of '"
                f" + string({request}) + ', and a limit of this namespace may be '"
                " + string(variables.ratios[r]) + ' times its request, so the queue would admit what no pod may be;"
                " raise the request or lower the limit')).filter(f, size(f) > 0))"
                ".filter(f, size(f) > 0).map(f, f[0][0])"
            ),
        },
        faults=("loose",),
    )
