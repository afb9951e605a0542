"""Checks that the stack's own workloads run, or are pending for the reason that `tenancy why` gives."""

from collections.abc import Iterator

from gpu_tenancy.base.texts import plural
from gpu_tenancy.inspect.diagnosis import CHECK_CONTROLLER
from gpu_tenancy.inspect.reading import read
from gpu_tenancy.inspect.running import Why
from gpu_tenancy.inspect.target import target_of
from gpu_tenancy.inspect.why import KINDS, OWN, why
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import GANG
from gpu_tenancy.model.spec.roles import KINDS as JOBS


def check_workloads(cluster: Cluster, plan: Plan, *, gangs: bool) -> Iterator[Check]:
    """Asks `tenancy why` about each workload of the stack.

    Args:
        cluster: with the stack.
        plan: of the stack.
        gangs: whether Volcano runs, which schedules gangs and the pods of jobs that start together.
    """
    found = {
        f"{team}/{name}": (team, manifest)
        for team, name, kind in _workloads(plan, gangs=gangs)
        if (manifest := cluster.get(*kind, name, team))
    }
    if not found:
        return
    answers = {title: _why(cluster, team, manifest) for title, (team, manifest) in found.items()}
    waiting = {title: answer for title, answer in answers.items() if answer.waits}
    running = [title for title in answers if title not in waiting]
    unexplained = [title for title, answer in waiting.items() if not _explained(answer)]
    parts = [f"{plural(len(running), 'workload')} admitted", *(f"{t} pending: {a.reason}" for t, a in waiting.items())]
    yield Check(
        "every workload of the stack runs, or is pending for a reason of its quota",
        "; ".join(parts),
        holds=not unexplained,
    )


def _workloads(plan: Plan, *, gangs: bool) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Namespace, name and kind with its version; jobs that finish are deleted after a while."""
    for team in plan.teams:
        yield from ((team.namespace.name, server.name, server.api) for server in team.servers)
        for job in team.jobs:
            if gangs or not job.gang:
                yield team.namespace.name, job.name, JOBS[job.framework].api
        if gangs:
            yield from ((team.namespace.name, gang.name, GANG) for gang in team.gangs)


def _why(cluster: Cluster, namespace: str, manifest: Manifest) -> Why:
    state = read(cluster, KINDS, namespace, only=OWN)
    return why(target_of(manifest, state), state)


def _explained(answer: Why) -> bool:
    """Whether something blocks the workload; otherwise its controller should have admitted it."""
    return answer.fix != CHECK_CONTROLLER
