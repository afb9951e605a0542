"""Checks that the stack's own workloads run or are pending for a reason, and their placement."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.pods import Manifest, deleted, ended
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.cluster.workloads import read_workloads
from gpu_tenancy.explain.pending import CHECK_CONTROLLER
from gpu_tenancy.explain.running import Why, rejected_pods
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.jobs.requeueing import requeue
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.kueue.api import REQUIRED
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.kinds import kind_at, kinds
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import GANG, JobPlan
from gpu_tenancy.model.spec.roles import KINDS as JOBS

_PENDING: Final = frozenset({"waiting", "checked"})  # stages of a Workload for which Kueue or its checks have a reason
_PATIENCE: Final = 60.0  # seconds until controllers have created the pods of a workload, or they have nodes


def check_workloads(
    cluster: Cluster, plan: Plan, why_not: Callable[[str], str], within: float = _PATIENCE
) -> Iterator[Check]:
    """Asks `tenancy why` about each workload of the stack; workloads whose operator does not run are not checked.

    Jobs that finish are deleted after a while. `why_not` is why an operator does not run, by its field in `operators`;
    empty if it does. Controllers have `within` seconds to create the pods of what is admitted.
    """
    answers: dict[str, tuple[Why, bool]] = {}
    for team in plan.teams:
        namespace = team.namespace.name
        gangs = {job.name for job in team.jobs if job.gang} | {gang.name for gang in team.gangs}
        named = [
            *((server.name, server.api) for server in team.servers),
            *((job.name, JOBS[job.framework].api) for job in team.jobs),
            *((gang.name, GANG) for gang in team.gangs),
        ]
        asked: list[tuple[str, tuple[str, str]]] = []
        for name, api in named:
            operators = (kind_at(api).operator, "volcano" if name in gangs else None)
            if missing := next((reason for one in operators if one and (reason := why_not(one))), ""):
                yield Check(f"{namespace}/{name} runs, or is pending for a reason of its quota", missing, holds=None)
            else:
                asked.append((name, api))
        if asked:
            answers |= _answers(cluster, namespace, asked, within)
    if not answers:
        return
    waiting = {title: answer for title, (answer, _) in answers.items() if answer.waits}
    running = plural(len(answers) - len(waiting), "workload")
    yield Check(
        f"{plural(len(answers), 'workload')} of the stack run, or are pending for a reason of their quota",
        "; ".join([f"{running} admitted", *(f"{title} pending: {one.reason}" for title, one in waiting.items())]),
        holds=all(explained for _, explained in answers.values()),
    )


def _answers(
    cluster: Cluster, namespace: str, named: Sequence[tuple[str, tuple[str, str]]], within: float
) -> dict[str, tuple[Why, bool]]:
    """What `why` answers about each workload, and whether it runs or is pending for its quota or for nodes."""
    # Otherwise a controller or the API server stops it: for example, it is admitted and its pods are refused.
    answers: dict[str, tuple[Why, bool]] = {}

    def explained() -> bool:
        state = read(cluster, KINDS, namespace, only=OWN)
        for name, api in named:
            if manifest := cluster.get(*api, name, namespace):
                target = target_of(manifest, state)
                answer = why(target, state)
                begun = target.pods or target.groups or any(one.stage in _PENDING for one in target.workloads)
                fine = bool(begun) and answer.fix != CHECK_CONTROLLER and not rejected_pods(target, state)
                answers[f"{namespace}/{name}"] = answer, not answer.waits or fine
        return all(fine for _, fine in answers.values())

    with suppress(WaitTimeoutError):
        cluster.wait_for(explained, timeout=within, poll=2, what=f"the pods of {namespace}")
    return answers


def check_models(astray: Sequence[str]) -> Check:
    """The check that each pod of the stack has a node of the GPU model that it requests; `astray` are the others."""
    return Check(
        "pods of the stack run on nodes of the GPU model that they request",
        f"on other nodes: {', '.join(astray)}" if astray else "no pod on another node",
        holds=not astray,
    )


# Label of pods with the name of their job or server, for kinds whose controller sets none with the object's name.
_OF_JOB: Final = "app.kubernetes.io/name"
# Labels of pods in groups; each group has its own part of the network.
_GROUPS: Final = tuple(kind.groups.index for kind in kinds().values() if kind.groups)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Pods of a team that require one part of the network, or one for each group."""

    team: str
    name: str  # of their job or server
    selector: str  # key of the label with the name
    label: str  # node label that names the part
    pods: int | None  # of all groups; None for a server, whose number can change
    groups: int | None  # None if the number can change


def check_topology(cluster: Cluster, plan: Plan) -> Iterator[Check]:
    """Checks that all pods of a job or of a group that requires it run in one part of the network; Kueue must run."""
    for team in plan.teams:
        for job in team.jobs:
            for placed in _of_job(job):
                yield _in_one_part(cluster, placed, _requeued(cluster, job, placed))
        for server in team.servers:
            if label := server.pod.topology.get(REQUIRED):
                yield _in_one_part(cluster, _Placed(server.team, server.name, _OF_JOB, label, None, None))


def _of_job(job: JobPlan) -> Iterator[_Placed]:
    kind = kind_at(JOBS[job.framework].api)
    selector = kind.label if kind.label and not kind.named else _OF_JOB
    for label in dict.fromkeys(role.pod.topology.get(REQUIRED) for role in job.roles):
        if label:
            pods = sum(role.pods for role in job.roles if role.pod.topology.get(REQUIRED) == label) * job.groups
            yield _Placed(job.team, job.name, selector, label, pods, job.groups)


def _requeued(cluster: Cluster, job: JobPlan, placed: _Placed) -> str:
    """Requeues a job whose nodes other pods have taken, so that Kueue assigns others; says so, why not, or nothing."""
    # Kueue knows the pods that run when it assigns nodes to a job, but Volcano can place a gang there a moment later.
    # The scheduler ends no pod for another one, so the job would stay without nodes.
    if not any(text_at(condition(pod, "PodScheduled"), "reason") == "Unschedulable" for pod in _pods(cluster, placed)):
        return ""
    workloads = read_workloads(cluster.list(KUEUE, "Workload", namespace=placed.team))
    done = "requeued once, because other pods had taken its nodes"
    try:
        requeue(cluster, cluster.get(*JOBS[job.framework].api, placed.name, placed.team) or {}, workloads)
    except (ApiError, ConsoleError) as error:  # such as that Kueue has evicted it at the same moment
        done = f"not requeued: {error}"
    with suppress(WaitTimeoutError):  # the check that follows says which pods have no node
        cluster.wait_for(
            lambda: len([pod for pod in _pods(cluster, placed) if text_at(pod, "spec", "nodeName")]) == placed.pods,
            timeout=_PATIENCE,
            what=f"the pods of {placed.name} to have nodes",
        )
    return f"; {done}"


def _pods(cluster: Cluster, placed: _Placed) -> list[Manifest]:
    pods = cluster.list("v1", "Pod", namespace=placed.team, labels=f"{placed.selector}={placed.name}")
    live = (pod for pod in pods if not ended(pod) and not deleted(pod))
    return [pod for pod in live if text_at(pod, "metadata", "annotations", REQUIRED) == placed.label]


def _in_one_part(cluster: Cluster, placed: _Placed, again: str = "") -> Check:
    pods = _pods(cluster, placed)
    running: list[tuple[str, str]] = []
    for pod in pods:
        if name := text_at(pod, "spec", "nodeName"):
            groups_of = (text_at(pod, "metadata", "labels", label) for label in _GROUPS)
            running.append((name, next(filter(None, groups_of), "")))
    nodes = {name: cluster.get("v1", "Node", name) or {} for name, _ in running}
    parts = sorted({(group, text_at(nodes[name], "metadata", "labels", placed.label)) for name, group in running})
    where = ", ".join(dict.fromkeys(part for _, part in parts))
    groups = len({group for _, group in running}) if placed.groups is None else placed.groups
    whole = placed.pods is None or len(running) == placed.pods
    of_each = " per group" if placed.groups != 1 else ""
    return Check(
        f"all pods of {placed.team}/{placed.name} run on nodes with one {placed.label}{of_each}",
        f"{plural(len(running), 'pod')} on {', '.join(sorted(nodes))}: {where}{again}"
        if running
        else f"{placed.team}/{placed.name} is pending",
        holds=(whole and len(parts) == groups) if running else None,
    )
