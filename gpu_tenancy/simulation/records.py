"""Recorded jobs, read from a user's file: JSON lines, CSV, or the Workloads of a cluster."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final, cast

from pydantic import Field, ValidationError

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import CPU, MEMORY, amount, gpus
from gpu_tenancy.cluster.workloads import EXECUTED
from gpu_tenancy.model.fields import Bytes, Count, Cpu, Duration, Positive, Section
from gpu_tenancy.model.names import USER

ALIBABA: Final = frozenset({"creation_time", "scheduled_time", "deletion_time", "num_gpu", "cpu_milli", "memory_mib"})
"""Columns of `openb_pod_list_*.csv`: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023."""
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one shape: amounts of one pod in base units, None for the default; flavor None for any of the team's."""

    pods: int = 1
    gpus: int = 1
    flavor: str | None = None
    cpu: int | None = None
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """How a Workload of Kueue ran."""

    start: float  # last admission, in seconds since 1970
    job: str
    user: str = ""  # label `gpu-tenancy.dev/user`, empty without one
    failed: bool = False
    evicted: float = 0.0  # seconds that it had been admitted before
    preempted: float = 0.0  # share of its evictions that were preemptions


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job that ran."""

    name: str
    at: float  # submission in seconds since 1970 or since any moment that all records share
    duration: float  # seconds
    team: str | None  # None if unknown
    parts: tuple[Part, ...]
    priority: str | None = None  # None for the team's
    run: Run | None = None  # of a Workload
    freed: float = 0.0  # seconds of its duration that `idle` of the stack would have freed

    @property
    def without_freed(self) -> "JobRecord":
        """The job if `idle` had stopped it."""
        return replace(self, duration=max(0.0, self.duration - self.freed), freed=0.0)


class RecordedJob(Section):
    """A line of a file with recorded jobs; as CSV, a column for each key."""

    at: str | float
    """When the job was submitted: a time such as `2026-10-01T08:00:00Z`, or seconds. Lines are in this order."""
    duration: Duration
    """How long it ran, such as `90m` or `5400s`."""
    name: str = ""
    """Name of the job; default: its line."""
    team: str | None = None
    """Team that submitted it; default: the jobs are dealt to the teams by their guarantees."""
    gpus: Count = 1
    """GPUs of each pod; 0 for a job of CPUs."""
    pods: Positive = 1
    """Number of pods, which are admitted together."""
    flavor: str | None = None
    """Flavor to run on; default: any of the team's."""
    cpu: Cpu | None = None
    """CPUs of each pod; default: the share of its GPUs in the machine, less a tenth."""
    memory: Bytes | None = None
    """Memory of each pod; default: as for CPUs."""
    priority: Annotated[str | None, Field(max_length=253)] = None
    """Priority class; default: that of the team."""


class Trace:
    """A file with recorded jobs; each pass reads it again, and counts in `left_out` entries without a start or an end.

    Workloads that still run count until `until`, in seconds since 1970; None: they are left out.
    """

    def __init__(self, file: Path, until: float | None = None) -> None:
        self.file, self.until = file, until
        self.left_out: dict[str, int] = {}  # by the missing part

    def __iter__(self) -> Iterator[JobRecord]:
        """Jobs in the order of arrival. Raises ConsoleError for a line that is invalid or earlier than the last."""
        self.left_out = {}
        before = float("-inf")
        try:
            with self.file.open(encoding="utf-8-sig", newline="") as handle:
                for line, record in self._records(handle):
                    if record.at < before:
                        raise ConsoleError(
                            f"{self.file}:{line}: at: earlier than the line before it", "sort the lines by `at`"
                        )
                    before = record.at
                    yield record
        except (FileNotFoundError, IsADirectoryError) as error:
            raise ConsoleError(f"--used: {self.file} is not a file", "specify a file with recorded jobs") from error
        except UnicodeDecodeError as error:
            raise ConsoleError(f"{self.file}: is not UTF-8", "specify a file of JSON lines, or CSV") from error

    def durations(self) -> Iterator[tuple[str, int, float]]:
        """Team, GPUs and seconds of each job with a known team. Raises ConsoleError as the iteration does."""
        for record in self:
            if record.team is not None:
                yield record.team, sum(part.pods * part.gpus for part in record.parts), record.duration

    def _records(self, handle: Iterable[str]) -> Iterable[tuple[int, JobRecord]]:
        """The records with their lines; only jobs that users have written must be in order."""
        if self.file.suffix == ".csv":
            rows = csv.DictReader(handle)
            if set(rows.fieldnames or ()) >= ALIBABA:
                return _sorted(self._each(enumerate(rows, start=2), self._alibaba))
            found = ((line, {key: text for key, text in row.items() if text}) for line, row in enumerate(rows, 2))
            return self._each(found, self._written)
        if self.file.suffix == ".json":  # As `kubectl get workloads -A -o json` prints it.
            whole: Any = self._json("".join(handle), 1)
            if not isinstance(whole, dict) or not isinstance(whole.get("items"), list):  # pyright: ignore[reportUnknownMemberType]
                raise ConsoleError(
                    f"{self.file}: is not a list of Workloads", "write it with `kubectl get workloads -A -o json`"
                )
            return _sorted(self._each(enumerate(cast("list[Any]", whole["items"]), start=1), self._workload))
        # One JSON object a line: a job, or a Workload.
        entries = ((line, self._json(text, line)) for line, text in enumerate(handle, start=1) if text.strip())
        first = list(islice(entries, 1))
        of_kueue = any(isinstance(entry, dict) and "metadata" in entry for _, entry in first)
        rest = chain(first, entries)
        return _sorted(self._each(rest, self._workload)) if of_kueue else self._each(rest, self._written)

    def _json(self, text: str, line: int) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            problem = f"{self.file}:{line}: not valid JSON: {error}"
            raise ConsoleError(problem, "write one JSON object a line") from error

    def _each(
        self, entries: Iterable[tuple[int, Any]], read: Callable[[int, Any], JobRecord | str]
    ) -> Iterator[tuple[int, JobRecord]]:
        for line, entry in entries:
            try:
                record = read(line, entry)
            except ValidationError as error:
                raise _wrong(f"{self.file}:{line}", error) from error
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise ConsoleError(f"{self.file}:{line}: cannot be read: {error}", _known_keys()) from error
            if isinstance(record, str):
                self.left_out[record] = self.left_out.get(record, 0) + 1
            else:
                yield line, record

    def _written(self, line: int, entry: Mapping[str, Any]) -> JobRecord:
        read = RecordedJob.model_validate(entry, strict=False)
        part = Part(read.pods, read.gpus, read.flavor, read.cpu, read.memory)
        name, at = read.name or f"line-{line}", _seconds(read.at)
        return JobRecord(name, at, read.duration, read.team, (part,), read.priority)

    def _alibaba(self, _line: int, row: Mapping[str, str]) -> JobRecord | str:
        if not row["scheduled_time"] or not row["deletion_time"]:
            return "no start or no end"
        at, start, end = (float(row[key]) for key in ("creation_time", "scheduled_time", "deletion_time"))
        # A pod with a part of a GPU gets a whole one.
        part = Part(1, int(row["num_gpu"]), None, int(row["cpu_milli"]), int(row["memory_mib"]) * _MIB)
        return JobRecord(row["name"], at, max(0.0, end - start), None, (part,))

    def _workload(self, _line: int, found: Any) -> JobRecord | str:
        """A Workload of Kueue that has ended or runs: https://kueue.sigs.k8s.io/docs/concepts/workload/."""
        metadata, spec, status = found["metadata"], found["spec"], found.get("status", {})
        true = {one["type"]: one for one in status.get("conditions", ()) if one["status"] == "True"}
        times = {kind: _seconds(one["lastTransitionTime"]) for kind, one in true.items()}
        end = times.get("Finished", self.until)
        if "Admitted" not in times or end is None:
            return "not admitted, or not finished"
        counts = {one["reason"]: int(one["count"]) for one in status.get("schedulingStats", {}).get("evictions", ())}
        total = sum(counts.values())
        run = Run(
            times["Admitted"],
            next((owner["name"] for owner in metadata.get("ownerReferences", ())), metadata["name"]),
            metadata.get("labels", {}).get(USER, ""),
            failed=true.get("Finished", {}).get("reason") == "Failed",
            evicted=float(next((status[key] for key in EXECUTED if key in status), 0)),
            preempted=counts.get("Preempted", 0) / total if total else 0.0,
        )
        parts = tuple(_part(one) for one in status["admission"]["podSetAssignments"])
        reference = spec.get("priorityClassRef", {}).get("name") or spec.get("priorityClassName") or None
        duration, at = max(0.0, end - run.start), _seconds(metadata["creationTimestamp"])
        return JobRecord(metadata["name"], at, duration, metadata["namespace"], parts, reference, run)


def _sorted(records: Iterable[tuple[int, JobRecord]]) -> list[tuple[int, JobRecord]]:
    return sorted(records, key=lambda one: (one[1].at, one[0]))


def _wrong(line: str, error: ValidationError) -> ConsoleError:
    found = error.errors()
    detail = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    place = f"{line}: {'.'.join(map(str, detail['loc']))}"
    context: dict[str, Any] = detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        return ConsoleError(f"{place}: unknown key", nearest(str(detail["loc"][0]), RecordedJob.model_fields))
    rule, fix = context.get("rule", detail["msg"].lower()), context.get("fix", _known_keys())
    return ConsoleError(f"{place}: {detail['input']!r}: {rule}", fix)


def _part(assignment: Any) -> Part:
    count = int(assignment.get("count") or 1)
    usage = {name: amount(name, value) // count for name, value in assignment.get("resourceUsage", {}).items()}
    flavors: dict[str, str] = assignment.get("flavors", {})
    of_gpus = gpus(usage)
    flavor = next((flavors[name] for name in of_gpus if name in flavors), flavors.get(CPU))
    return Part(count, sum(of_gpus.values()), flavor, usage.get(CPU), usage.get(MEMORY))


def _seconds(at: str | float) -> float:
    if isinstance(at, str):
        try:
            return float(at)
        except ValueError:
            moment = datetime.fromisoformat(at)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return at


def _known_keys() -> str:
    return f"its keys are {', '.join(RecordedJob.model_fields)}"
