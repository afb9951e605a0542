"""How teams share quota: priority classes, the cohort tree with the quotas of its nodes, and fairness."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from gpu_tenancy.model import fields
from gpu_tenancy.model.spec.people import Members
from gpu_tenancy.model.spec.pools import Pool


class Priority(fields.Section):
    """A PriorityClass and WorkloadPriorityClass: a number, or a mapping."""

    value: Annotated[int, Field(ge=-2147483648, le=1000000000)]
    """Priority; higher values are scheduled first. Values above 1000000000 are reserved for the system."""
    preempts: bool = False
    """Whether the scheduler of Kubernetes ends pods of lower priority for its pods. Kueue preempts by priority in any
    case: set it only for a class whose pods no queue counts."""
    default: bool = False
    """Whether pods without a class get this one; at most one class can be the default."""
    description: str = ""
    """Description of its use, shown by kubectl."""


PriorityEntry: TypeAlias = Annotated[Priority, fields.Shorthand(int, ("value",))]


class _Ordered(fields.Section):
    def _conflicts(self) -> Iterator[tuple[str, str]]:
        guaranteed, limit = getattr(self, "guaranteed", None) or 0, getattr(self, "limit", None)
        if limit is not None and limit < guaranteed:
            yield "limit is less than guaranteed", "raise limit or lower guaranteed"


class Gpus(_Ordered):
    """A share of a flavor's GPUs (of its MIG partitions or time slices, if GPUs are shared)."""

    guaranteed: fields.Count = 0
    """Number of guaranteed GPUs; lent while idle, and reclaimed from borrowers when needed."""
    limit: fields.Count | None = None
    """Maximum number of GPUs, including borrowed ones. Default: the guarantee for a team, unlimited for a cohort."""


class CpuShare(_Ordered):
    """A share of a flavor's CPUs."""

    guaranteed: fields.Cpu = 0
    """Guaranteed CPUs; default: each guaranteed GPU's share of the node. Jobs with more CPUs reclaim no GPUs."""
    limit: fields.Cpu | None = None
    """Maximum CPUs, including borrowed ones."""


class MemoryShare(_Ordered):
    """A share of a flavor's memory."""

    guaranteed: fields.Bytes = 0
    """Guaranteed memory; default: each guaranteed GPU's share of the node. Jobs with more memory reclaim no GPUs."""
    limit: fields.Bytes | None = None
    """Maximum memory, including borrowed memory."""


class FlavorQuota(Gpus):
    """A share of a flavor's GPUs, CPUs and memory.

    Default: in a GPU flavor, each GPU's share of the node. In a CPU flavor, guaranteed CPUs bring their share of the
    node's memory, and guaranteed memory its share of the CPUs; without either, no guarantee. Each team can borrow as
    much as its budget allows.
    """

    cpu: CpuShare | None = None
    """Share of the flavor's CPUs."""
    memory: MemoryShare | None = None
    """Share of the flavor's memory."""


class Shares(fields.Section):
    """Quotas of a team or a cohort, by flavor."""

    gpus: dict[fields.Name, Gpus] = {}
    """GPU quota by flavor."""
    quota: dict[fields.Name, FlavorQuota] = {}
    """Quota of all resources by flavor: for CPU and memory that differ from the GPUs' share, and for CPU pools."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        for flavor in sorted(set(self.gpus) & set(self.quota)):
            if self.quota[flavor].model_fields_set & {"guaranteed", "limit"}:
                yield f"sets GPUs of {flavor} under gpus and under quota", f"keep only gpus.{flavor}"


class Cohort(Shares):
    """A cohort of teams or cohorts. The one without a parent is the root; it has all unguaranteed quota."""

    parent: fields.DottedName | None = None
    """Parent cohort; required except for the root."""
    weight: fields.Weight | None = None
    """Weight of the cohort under fair sharing, which then shares as one. Default: its teams share by their weights."""
    members: Members = Members()
    """People who are members of all teams of the cohort and of the cohorts below it."""


Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
_FINAL: Final = "LessThanOrEqualToFinalShare"
_INITIAL: Final = "LessThanInitialShare"
_STRATEGIES: Final = ([_FINAL], [_INITIAL], [_FINAL, _INITIAL])
"""What Kueue accepts: `validStrategySets` in
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/config/validation.go"""


class Usage(fields.Section):
    """Usage over time of teams that share a queue: workloads of the team that used less are admitted first.

    Kueue's AdmissionFairSharing: https://kueue.sigs.k8s.io/docs/concepts/admission_fair_sharing/. It decides before
    priorities and preempts nothing, but among workloads that are preempted anyway, those of the team that used more are
    first.
    """

    half_life: fields.Duration
    """Time after which past usage counts half, such as `7d`."""
    sampling: fields.Duration = 300.0
    """Interval in which Kueue measures usage; default: 5m."""
    weights: dict[str, Annotated[float, Field(ge=0, le=fields.MOST_OBJECTS)]] = {}
    """Weight of a GPU, a CPU or a byte of memory in a team's usage; default: 1 for a GPU, its part of a GPU for a
    partition or time slice, and 0 for CPU and memory; without GPUs, 1 for a CPU."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if not self.half_life:
            yield "halfLife is 0, so past usage would never count", "set a duration such as 7d"
        if not self.sampling:
            yield "sampling is 0, which Kueue rejects", "set a duration such as 5m, or remove it"
        if self.sampling > self.half_life:
            yield "sampling is longer than halfLife, so usage would be forgotten between samples", "lower it"


class Fairness(fields.Section):
    """How teams share: `hierarchical` or `even` between queues, and by usage over time within a queue."""

    kind: Literal["hierarchical", "even"] = "hierarchical"
    """`hierarchical`: cohorts' limits are enforced, and a cohort within its own quota reclaims before its neighbours.
    `even`: Kueue's fair sharing by team weight, whatever the cohort; a cohort's limit is enforced, and it then shares
    as one."""
    strategies: list[Strategy] | None = None
    """Preemption by share, with `even`: how the shares of two queues must compare so that one preempts the other, in
    order; default: `[LessThanOrEqualToFinalShare, LessThanInitialShare]`."""
    usage: Usage | None = None
    """Usage over time, for teams that share a queue; default: priority and time of submission decide."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.strategies is not None and self.kind != "even":
            yield "sets strategies without kind: even, which they belong to", "set kind: even, or remove them"
        if self.strategies is not None and self.strategies not in _STRATEGIES:
            rule = f"strategies are [{', '.join(self.strategies)}], which Kueue rejects"
            yield rule, f"set [{_FINAL}, {_INITIAL}], or one of them"

    @property
    def even(self) -> bool:
        """Whether Kueue's fair sharing is on."""
        return self.kind == "even"

    @property
    def preemption_strategies(self) -> tuple[Strategy, ...]:
        """Kueue's own choice unless the stack has one; none without fair sharing."""
        return tuple(self.strategies or (_FINAL, _INITIAL)) if self.even else ()


class Worker(fields.Section):
    """A worker cluster: another stack of this project, and the Secret by which Kueue reaches its API server."""

    name: fields.Name
    """Name of the MultiKueueCluster."""
    stack: fields.Name
    """Stack of the worker, whose file is beside this one. Its pools, teams and quotas are those of the manager."""
    secret: fields.Name
    """Secret in Kueue's namespace of the manager's cluster, whose key `kubeconfig` has a kubeconfig of the worker,
    written by `tenancy access worker-kubeconfig`."""


class MultiKueue(fields.Section):
    """MultiKueue: `workers` in the stack of the manager, `manager` in the stack of each worker.

    Users submit to the manager. Each workload with quota there is created in the workers, and runs in the first one
    that admits it. The manager's flavors, teams, cohorts and priorities are those of its workers.
    """

    workers: Annotated[list[Worker], Field(max_length=20)] = []
    """Worker clusters, in the order in which `incremental` tries them."""
    manager: fields.Name | None = None
    """Stack of the manager, whose file is beside this one and names this stack under `workers`."""
    worker_lost_timeout: Annotated[fields.Duration, Field(ge=1)] = 900.0
    """Time after which workloads of a worker that is not reachable are queued again, for another worker."""
    dispatcher: Literal["all-at-once", "incremental"] = "all-at-once"
    """`all-at-once`: all workers get a workload, and the first that admits it runs it. `incremental`: three workers
    get it, after five minutes three more, in the order of `workers`."""
    pools: SkipJsonSchema[dict[fields.Name, Pool]] = {}
    """The workers' pools, as `model.workers` reads them; not a key of the file."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if bool(self.workers) == (self.manager is not None):
            yield "must set exactly one of workers and manager", "set one of them, and remove the other"
        for key in ("name", "stack"):
            values = [getattr(worker, key) for worker in self.workers]
            if twice := sorted({value for value in values if values.count(value) > 1}):
                yield f"has several workers with {key} {twice[0]}", f"set a {key} of its own for each worker"
        if self.manager is not None and self.model_fields_set & {"worker_lost_timeout", "dispatcher"}:
            rule = "sets workerLostTimeout or dispatcher, which only the manager has"
            yield rule, "set it in the stack of the manager"
