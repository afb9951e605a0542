"""Checks that the stack's own workloads run, or are pending for a reason, and that they are placed as they require."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain.pending import CHECK_CONTROLLER
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kueue.api import REQUIRED
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.kinds import kind_at, kinds
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import GANG, JobPlan, ServerPlan
from gpu_tenancy.model.spec.roles import KINDS as JOBS


def check_workloads(cluster: Cluster, plan: Plan, why_not: Callable[[str], str]) -> Iterator[Check]:
    """Asks `tenancy why` about each workload of the stack; those whose operator does not run are not checked.

    Args:
        cluster: with the stack.
        plan: of the stack.
        why_not: why an operator does not run, by its field in `operators`; empty if it does.
    """
    found: dict[str, tuple[str, Manifest]] = {}
    for workload in _workloads(plan):
        title = f"{workload.team}/{workload.name}"
        if missing := next((reason for name in workload.operators if (reason := why_not(name))), ""):
            yield Check(f"{title} runs, or is pending for a reason of its quota", missing, holds=None)
        elif manifest := cluster.get(*workload.api, workload.name, workload.team):
            found[title] = workload.team, manifest
    if not found:
        return
    answers = {title: _why(cluster, team, manifest) for title, (team, manifest) in found.items()}
    waiting = {title: answer for title, answer in answers.items() if answer.waits}
    running = [title for title in answers if title not in waiting]
    unexplained = [title for title, answer in waiting.items() if not _explained(answer)]
    parts = [f"{plural(len(running), 'workload')} admitted", *(f"{t} pending: {a.reason}" for t, a in waiting.items())]
    yield Check(
        f"{plural(len(found), 'workload')} of the stack run, or are pending for a reason of their quota",
        "; ".join(parts),
        holds=not unexplained,
    )


def check_models(astray: Sequence[str]) -> Check:
    """The check that the scheduler gives each pod of the stack a node of the GPU model that it requests.

    Args:
        astray: the pods on other nodes.
    """
    return Check(
        "pods of the stack run on nodes of the GPU model that they request",
        f"on other nodes: {', '.join(astray)}" if astray else "no pod on another node",
        holds=not astray,
    )


@dataclass(frozen=True, slots=True)
class _Workload:
    """A workload of the stack.

    Attributes:
        api: version and kind.
        operators: what must run for its pods to run, by the fields in `operators`.
    """

    team: str
    name: str
    api: tuple[str, str]
    operators: tuple[str, ...]


def _workloads(plan: Plan) -> Iterator[_Workload]:
    """All workloads; jobs that finish are deleted after a while."""
    for team in plan.teams:
        gangs = {job.name for job in team.jobs if job.gang} | {gang.name for gang in team.gangs}
        named = [
            *((server.name, server.api) for server in team.servers),
            *((job.name, JOBS[job.framework].api) for job in team.jobs),
            *((gang.name, GANG) for gang in team.gangs),
        ]
        for name, api in named:
            operators = (kind_at(api).operator, "volcano" if name in gangs else None)
            yield _Workload(team.namespace.name, name, api, tuple(filter(None, operators)))


def _why(cluster: Cluster, namespace: str, manifest: Manifest) -> Why:
    state = read(cluster, KINDS, namespace, only=OWN)
    return why(target_of(manifest, state), state)


def _explained(answer: Why) -> bool:
    """Whether something blocks the workload; otherwise its controller should have admitted it."""
    return answer.fix != CHECK_CONTROLLER


_OF_JOB: Final = "app.kubernetes.io/name"
"""Label of pods with the name of their job or server, for kinds whose controller sets none with the object's name."""
_GROUPS: Final = tuple(kind.groups.index for kind in kinds().values() if kind.groups)
"""Labels of pods in groups; each group has a part of its own."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """Pods that require one part of the network.

    Attributes:
        team: their namespace.
        name: of their job or server.
        selector: key of the label that has this name.
        label: node label whose value names the part.
        pods: number of pods in all groups; None for a server, whose number an autoscaler can change.
        groups: number of groups, each of which has a part of its own; None where that can change.
    """

    team: str
    name: str
    selector: str
    label: str
    pods: int | None
    groups: int | None


def check_topology(cluster: Cluster, plan: Plan) -> Iterator[Check]:
    """Checks that all pods of a job or of a group that requires it run in one part of the network.

    Args:
        cluster: with the stack, and Kueue running.
        plan: of the stack.
    """
    for team in plan.teams:
        for placed in (*(one for job in team.jobs for one in _of_job(job)), *map(_of_server, team.servers)):
            if placed:
                yield _in_one_part(cluster, placed)


def _of_job(job: JobPlan) -> Iterator[_Placed]:
    kind = kind_at(JOBS[job.framework].api)
    selector = kind.label if kind.label and not kind.named else _OF_JOB
    for label in dict.fromkeys(role.pod.topology.get(REQUIRED) for role in job.roles):
        if label:
            pods = sum(role.pods for role in job.roles if role.pod.topology.get(REQUIRED) == label) * job.groups
            yield _Placed(job.team, job.name, selector, label, pods, job.groups)


def _of_server(server: ServerPlan) -> _Placed | None:
    label = server.pod.topology.get(REQUIRED)
    return _Placed(server.team, server.name, _OF_JOB, label, None, None) if label else None


def _in_one_part(cluster: Cluster, placed: _Placed) -> Check:
    pods = [
        pod
        for pod in cluster.list("v1", "Pod", namespace=placed.team, labels=f"{placed.selector}={placed.name}")
        if text_at(pod, "metadata", "annotations", REQUIRED) == placed.label
    ]
    running = [(name, _group(pod)) for pod in pods if (name := text_at(pod, "spec", "nodeName"))]
    nodes = {name: cluster.get("v1", "Node", name) or {} for name, _ in running}
    parts = sorted({(group, text_at(nodes[name], "metadata", "labels", placed.label)) for name, group in running})
    where = ", ".join(dict.fromkeys(part for _, part in parts))
    groups = len({group for _, group in running}) if placed.groups is None else placed.groups
    whole = placed.pods is None or len(running) == placed.pods
    of_each = " per group" if placed.groups != 1 else ""
    return Check(
        f"all pods of {placed.team}/{placed.name} run on nodes with one {placed.label}{of_each}",
        f"{plural(len(running), 'pod')} on {', '.join(sorted(nodes))}: {where}"
        if running
        else f"{placed.team}/{placed.name} is pending",
        holds=(whole and len(parts) == groups) if running else None,
    )


def _group(pod: Manifest) -> str:
    return next(filter(None, (text_at(pod, "metadata", "labels", label) for label in _GROUPS)), "")
