"""The Jobs of a month as kube-state-metrics saw them, for `tenancy replay`.

Names: https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload/job-metrics.md, read 2026-11-26.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cost.prometheus import Prometheus
from gpu_tenancy.cost.statement import Period
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.simulation.replay import JobRecord, Part

_Job: TypeAlias = tuple[str, str]
"""Namespace and name."""


def recorded_jobs(
    server: Prometheus, period: Period, teams: Collection[str]
) -> tuple[list[JobRecord], Mapping[str, int]]:
    """Jobs in the order of their submission, and how many are left out, by what is missing.

    The Jobs of a JobSet, such as those of a TrainJob, are admitted as one. Of Jobs with the same name, metrics tell the
    last. They have neither flavor nor priority class.

    Args:
        server: that scrapes kube-state-metrics, and has the stack's recording rules.
        period: in which they were submitted.
        teams: namespaces whose Jobs are taken.

    Raises:
        ConsoleError: the server cannot be reached, or has no Jobs of these teams.
    """
    span = f"{round(period.end - period.start)}s"

    def most(metric: str, name: str = "job_name") -> dict[_Job, float]:
        found = server.query(f"max by (namespace, {name}) (max_over_time({metric}[{span}]))", period.end)
        return {(labels["namespace"], labels[name]): value for labels, value in found}

    created = {job: at for job, at in most("kube_job_created").items() if job[0] in teams}
    if not created:
        raise ConsoleError(
            f"--prometheus {server.url}: has no samples of kube_job_created in {period.month} of a team of the stack",
            "set another --month, or use --from",
        )
    sets = f'group by (namespace, job_name, owner_name) (max_over_time(kube_job_owner{{owner_kind="JobSet"}}[{span}]))'
    owners = {
        (labels["namespace"], labels["job_name"]): labels["owner_name"] for labels, _ in server.query(sets, period.end)
    }
    together: dict[_Job, list[_Job]] = {}
    for job in created:
        together.setdefault((job[0], owners.get(job, job[1])), []).append(job)
    started, ended = most("kube_job_status_start_time"), most("kube_job_status_completion_time")
    pods = most("kube_job_spec_parallelism")
    gpus = most('gpu_tenancy:gpus_of_job{created_by_kind="Job"}', "created_by_name")
    records: list[JobRecord] = []
    left_out: Counter[str] = Counter()
    for (team, name), jobs in together.items():
        at = min(created[job] for job in jobs)
        if at < period.start:
            left_out[f"submitted before {period.month}"] += 1
        elif not all(job in started and job in ended for job in jobs):
            left_out["no start or no end"] += 1
        else:
            duration = max(0.0, max(ended[job] for job in jobs) - min(started[job] for job in jobs))
            parts = tuple(_part(pods.get(job, 1), gpus.get(job, 0)) for job in jobs)
            if duration < RECORDED_EVERY and not any(part.gpus for part in parts):
                left_out["shorter than the time between two samples of its GPUs"] += 1
            else:
                records.append(JobRecord(name, at, duration, team, parts))
    return sorted(records, key=lambda record: (record.at, record.name)), left_out


def _part(pods: float, gpus: float) -> Part:
    count = max(1, round(pods))
    return Part(count, round(gpus / count))
