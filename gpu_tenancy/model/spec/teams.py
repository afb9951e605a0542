"""A team: its namespace, what that may hold, its share of the GPUs, and what runs there."""

from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import Bytes, Cidr, Count, Cpu, LabelValue, Name, Section, Weight, WorkloadName, refuse
from gpu_tenancy.model.spec.tenancy import Gpus, Shares
from gpu_tenancy.model.spec.workloads import Server, Training


class CpuMemory(Section):
    """An amount of cpu and memory; what is left out stays unsaid."""

    cpu: Cpu | None = None
    """Cpus such as 4, 0.5 or 500m."""
    memory: Bytes | None = None
    """Bytes such as 512Mi or 64Gi."""


class Resources(CpuMemory):
    """An amount of cpu, memory and GPUs."""

    gpu: Count | None = None
    """GPUs under any of the flavors' resource names."""


class Compute(Section):
    """The namespace's budget of cpu and memory. Left out, requests up to what the team's queues may admit."""

    requests: CpuMemory = CpuMemory()
    """All pods' requests together."""
    limits: CpuMemory = CpuMemory()
    """All pods' limits together. With both, no container's limit may exceed its request by more than this ratio, so
    that what the queue admits by requests never fails by limits."""
    priorities: list[Name] = []
    """Count only pods of these classes, and admit no others; left out, all pods count."""

    @model_validator(mode="after")
    def _limits_beside_requests(self) -> Self:
        for resource in ("cpu", "memory"):
            if getattr(self.limits, resource) is not None and getattr(self.requests, resource) is None:
                raise refuse(
                    f"bounds limits.{resource} alone, which could refuse pods that the queue admits by their requests",
                    f"write requests.{resource} beside it, or leave it out",
                )
        return self


class Containers(Section):
    """What a container gets that says nothing, and the bounds for those that do."""

    default: CpuMemory = Field(default_factory=lambda: CpuMemory.model_validate({"cpu": 2, "memory": "8Gi"}))
    """Limits of a container that names none; left out, cpu 2 and memory 8Gi. GPUs are always 0 there."""
    default_request: CpuMemory = Field(default_factory=lambda: CpuMemory.model_validate({"cpu": 1, "memory": "4Gi"}))
    """Requests of a container that names none; left out, cpu 1 and memory 4Gi."""
    min: CpuMemory = CpuMemory()
    """Least of each."""
    max: Resources = Resources()
    """Most of each; GPUs left out: as many as a node has."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for resource in ("cpu", "memory"):
            ladder = [
                (name, amount)
                for name in ("min", "default_request", "default", "max")
                if (amount := getattr(getattr(self, name), resource)) is not None
            ]
            for (lower, least), (upper, most) in pairwise(ladder):
                if least > most:
                    raise refuse(
                        f"{_yaml(lower)}.{resource} is above {_yaml(upper)}.{resource}",
                        f"lower {_yaml(lower)} or raise {_yaml(upper)} (where unsaid: cpu 1 to 2, memory 4Gi to 8Gi)",
                    )
        return self


def _yaml(field: str) -> str:
    return "defaultRequest" if field == "default_request" else field


class Claims(Section):
    """Bounds for the size of one volume claim."""

    min: Bytes | None = None
    """Least that a claim may ask for."""
    max: Bytes | None = None
    """Most that a claim may ask for."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.max < self.min:
            raise refuse("has max below min", "raise max or lower min")
        return self


class Objects(Section):
    """How many objects the namespace may hold; what is left out is not bounded."""

    pods: Count | None = None
    """Pods that have not ended."""
    services: Count | None = None
    """Services."""
    secrets: Count | None = None
    """Secrets."""
    configmaps: Count | None = None
    """ConfigMaps, with the one of the cluster's certificate that every namespace has."""
    persistentvolumeclaims: Count | None = None
    """Volume claims."""
    storage: Bytes | None = None
    """Requested by all volume claims together."""


class Gang(Gpus):
    """GPUs that Volcano schedules for the team, taken off what the queues share: one GPU, one scheduler."""

    cpu: Cpu | None = None
    """Cpus of all its gangs together; left out, what the GPUs bring of the machine."""
    memory: Bytes | None = None
    """Memory of all its gangs together, likewise."""

    @property
    def most(self) -> int:
        """GPUs that its gangs may have together."""
        return self.guaranteed if self.limit is None else self.limit


class Network(Section):
    """Holes in the namespace's default-deny network policy, beside DNS, the team's own pods and its servers' ports."""

    clients: Literal["cluster", "team"] = "cluster"
    """Who may call the team's servers: every namespace of the cluster, or the team's own pods."""
    egress: list[Cidr] = []
    """CIDRs that the team's pods may reach over HTTPS, such as 0.0.0.0/0 to download from anywhere."""


class Preemption(Section):
    """When the team's queue takes GPUs back by ending others' pods. Kueue's own terms and values."""

    reclaim_within_cohort: Literal["Any", "LowerPriority", "Never"] = "Any"
    """Whose pods end when the team wants its guarantee back from borrowers."""
    within_cluster_queue: Literal["LowerPriority", "LowerOrNewerEqualPriority", "Never"] = "LowerPriority"
    """Which of the team's own pods end for another of its own."""
    borrow_within_cohort: Literal["LowerPriority", "Never"] = "Never"
    """Whose pods end so that the team may borrow."""

    @model_validator(mode="after")
    def _borrowing_needs_reclaiming(self) -> Self:
        if self.borrow_within_cohort != "Never" and self.reclaim_within_cohort == "Never":
            raise refuse(
                "preempts to borrow but never to reclaim, which Kueue rejects",
                "set reclaimWithinCohort to LowerPriority or Any, or leave borrowWithinCohort out",
            )
        return self


class Team(Shares):
    """One namespace with its guarantee and limit of every flavor, its budgets, and its workloads."""

    owner: LabelValue
    """Group of people that owns it, in label `owner`."""
    cost_center: LabelValue
    """Who pays, in label `cost-center`."""
    tier: LabelValue = "standard"
    """Label `gpu-tier`, such as critical, high-priority, best-effort."""
    cohort: Name | None = None
    """Group of the tree that it belongs to; left out, the root."""
    queue: Name | None = None
    """Another team whose queue and share this one uses, in place of a share of its own."""
    priority: Name | None = None
    """Priority class of its workloads that name none."""
    weight: Weight = 1.0
    """Its part when teams compete under fair sharing."""
    lends: bool | None = None
    """Whether others may borrow its guarantee while it is idle; left out: not where it serves, else yes."""
    preemption: Preemption = Preemption()
    """When it takes GPUs back."""
    gangs: dict[Name, Gang] = {}
    """GPUs by flavor for gangs that Volcano schedules."""
    compute: Compute = Compute()
    """Budget of cpu and memory."""
    objects: Objects = Objects()
    """Budget of objects and storage."""
    containers: Containers = Containers()
    """Defaults and bounds of one container."""
    claims: Claims = Claims()
    """Bounds of one volume claim."""
    network: Network = Network()
    """Holes in the default-deny network policy."""
    pod_security: Literal["privileged", "baseline", "restricted"] = "baseline"
    """Pod security level that the namespace enforces."""
    serving: dict[WorkloadName, Server] = {}
    """Servers by name."""
    training: dict[WorkloadName, Training] = {}
    """Jobs and gangs by name."""

    @model_validator(mode="after")
    def _one_share(self) -> Self:
        if self.queue is not None and (self.gpus or self.quota):
            raise refuse(
                f"has a share of its own and uses the queue of {self.queue}",
                "leave gpus and quota out, or leave queue out",
            )
        return self
