"""The GPU-hours and the Jobs of a month from Prometheus, by its HTTP API."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import maps_at, text_at, texts_at
from gpu_tenancy.cost.statement import HOUR, Hours, JobUse, Loss, Period, Statement, Supply, Terms
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY
from gpu_tenancy.simulation.records import JobRecord, Part

_OK: Final = 200
_TIMEOUT: Final = 120.0
_NO_LOST: Final = (
    "GPU-hours before preemptions are not in metrics: `tenancy usage` has them of workloads that exist, and --used of"
    " those in a file"
)
_LATER: Final = "teams with several flavors: jobs have no price, because metrics of pods have no flavor"

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server of Prometheus' HTTP API; `url` includes a path before `/api/v1`."""

    url: str

    def query(self, expr: str, at: float) -> Iterator[tuple[Labels, float]]:
        """Labels and value of each series at a time (seconds since 1970). Raises ConsoleError without an answer."""
        for series in self._answer("query", {"query": expr, "time": f"{at:.0f}"}):
            sample: Any = series["value"]
            yield texts_at(series, "metric"), float(sample[1])

    def range(self, expr: str, start: float, end: float) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
        """Labels of each series, with times and values as often as rules record them; raises as `query` does."""
        fields = {"query": expr, "start": f"{start:.0f}", "end": f"{end:.0f}", "step": f"{RECORDED_EVERY}"}
        for series in self._answer("query_range", fields):
            samples: Any = series["values"]
            yield texts_at(series, "metric"), [(float(at), float(value)) for at, value in samples]

    def _answer(self, path: str, fields: dict[str, str]) -> Iterator[Mapping[str, Any]]:
        if urlsplit(self.url).scheme not in {"http", "https"}:
            raise ConsoleError(f"--prometheus {self.url}: is not an address", "set one such as http://127.0.0.1:9090")
        address = f"{self.url.rstrip('/')}/api/v1/{path}"
        try:
            with urllib3.PoolManager(timeout=_TIMEOUT, retries=False) as pool:
                answer = pool.request_encode_body("POST", address, fields=fields, encode_multipart=False)
        except HTTPError as error:
            fix = "check the address, or run `kubectl port-forward` again"
            raise ConsoleError(f"--prometheus {self.url}: is not reachable: {error}", fix) from error
        try:
            found: Any = json.loads(answer.data)
        except ValueError:
            found = {}
        if answer.status != _OK or not isinstance(found, dict):
            said = text_at(found, "error") if isinstance(found, dict) else ""  # pyright: ignore[reportUnknownArgumentType]
            what = f"--prometheus {self.url}: status {answer.status}{': ' if said else ''}{said}"
            raise ConsoleError(what, "check that it is the address of Prometheus, without /api/v1")
        yield from maps_at(found, "data", "result")  # pyright: ignore[reportUnknownArgumentType]

    def hours(self, record: str, period: Period) -> Iterator[tuple[Labels, float]]:
        """GPU-hours of each series of a recording rule `gpu_tenancy:gpus_<record>`."""
        span = f"{round(period.end - period.start)}s"
        for labels, total in self.query(f"sum_over_time(gpu_tenancy:gpus_{record}[{span}])", period.end):
            yield labels, total * RECORDED_EVERY / HOUR


def of_prometheus(stack: str, terms: Terms, server: Prometheus, period: Period) -> Statement:
    """The statement of a month, from the samples of the stack's recording rules. Raises ConsoleError without them."""
    sums = {
        name: {(labels["cluster_queue"], labels["flavor"]): hours for labels, hours in server.hours(name, period)}
        for name in ("guaranteed", "used", "idle", "borrowed", "lent")
    }
    counted = f"max(count_over_time(gpu_tenancy:gpus_used[{round(period.end - period.start)}s]))"
    samples = [count for _, count in server.query(counted, period.end)]
    if not samples:
        raise ConsoleError(
            f"--prometheus {server.url}: has no samples of gpu_tenancy:gpus_used in {period.month}",
            "deploy the stack, whose PrometheusRule has this rule, or use --used; Prometheus keeps samples for its"
            " retention only",
        )
    keys = dict.fromkeys(key for found in sums.values() for key in found)
    amounts = {key: [found.get(key, 0.0) for found in sums.values()] for key in keys}
    lines = terms.ordered(terms.line(*key, Hours(*found)) for key, found in amounts.items())
    total = sum((line.hours for line in lines), Hours())
    existed = sum(hours for _, hours in server.hours("existing", period))
    flavors = [terms.tree.flavors[name] for name in terms.prices]
    gangs = sum(flavor.gangs.get(flavor.resource or "", 0) for flavor in flavors)
    covered = samples[0] * RECORDED_EVERY / HOUR
    jobs = tuple(_jobs(terms, server, period))
    return Statement(
        stack,
        server.url,
        period,
        covered=covered,
        at_most=False,
        lines=lines,
        losses=tuple(_losses(terms, server, period)),
        jobs=jobs,
        supply=(Supply("", existed, gangs * samples[0] * RECORDED_EVERY / HOUR, total.guaranteed, total.used),),
        notes=(_NO_LOST, *([_LATER] if any(not job.flavor for job in jobs) else [])),
    )


def _losses(terms: Terms, server: Prometheus, period: Period) -> Iterator[Loss]:
    sums: dict[str, dict[str, float]] = {}
    for name in ("unused", "failed"):
        for labels, hours in server.hours(name, period):
            sums.setdefault(terms.queue_of(labels["namespace"]), {"unused": 0.0, "failed": 0.0})[name] += hours
    yield from (Loss(team, found["unused"], None, found["failed"]) for team, found in sums.items())


def _jobs(terms: Terms, server: Prometheus, period: Period) -> Iterator[JobUse]:
    for labels, hours in server.hours("of_job", period):
        team, job = labels["namespace"], labels.get("created_by_name", "")
        flavor, price = terms.flavor_of(team)
        yield JobUse(terms.queue_of(team), team, job, "", flavor, hours, price)


_Job: TypeAlias = tuple[str, str]  # namespace and name
_NOTHING: Final[Mapping[_Job, float]] = MappingProxyType({})


def recorded_jobs(
    server: Prometheus, period: Period, teams: Collection[str], freed: Mapping[_Job, float] = _NOTHING
) -> tuple[list[JobRecord], Mapping[str, int]]:
    """Jobs of some namespaces in the order of submission, and the number of jobs left out, by the missing part.

    The server scrapes kube-state-metrics, and has the stack's recording rules. The Jobs of a JobSet, such as those of a
    TrainJob, are admitted as one. Of Jobs with the same name, metrics tell the last, without flavor and priority class:
    https://github.com/kubernetes/kube-state-metrics/blob/main/docs/metrics/workload/job-metrics.md, read 2026-11-26.
    Each has its seconds of `freed`; a JobSet those of the least of its Jobs, because it is idle as a whole.

    Raises:
        ConsoleError: the server cannot be reached, or has no Jobs of these teams.
    """
    span = f"{round(period.end - period.start)}s"

    def most(metric: str, name: str = "job_name") -> dict[_Job, float]:
        found = server.query(f"max by (namespace, {name}) (max_over_time({metric}[{span}]))", period.end)
        return {(labels["namespace"], labels[name]): value for labels, value in found}

    created = {job: at for job, at in most("kube_job_created").items() if job[0] in teams}
    if not created:
        what = f"has no samples of kube_job_created in {period.month} of a team of the stack"
        raise ConsoleError(f"--prometheus {server.url}: {what}", "set another --month, or use --used")
    sets = f'group by (namespace, job_name, owner_name) (max_over_time(kube_job_owner{{owner_kind="JobSet"}}[{span}]))'
    owners = {
        (labels["namespace"], labels["job_name"]): labels["owner_name"] for labels, _ in server.query(sets, period.end)
    }
    together = grouped(((job[0], owners.get(job, job[1])), job) for job in created)
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
            counts = {job: max(1, round(pods.get(job, 1))) for job in jobs}
            parts = tuple(Part(count, round(gpus.get(job, 0) / count)) for job, count in counts.items())
            if duration < RECORDED_EVERY and not any(part.gpus for part in parts):
                left_out["shorter than the time between two samples of its GPUs"] += 1
            else:
                unused = min(freed.get(job, 0.0) for job in jobs)
                records.append(JobRecord(name, at, duration, team, parts, freed=unused))
    return sorted(records, key=lambda record: (record.at, record.name)), left_out
