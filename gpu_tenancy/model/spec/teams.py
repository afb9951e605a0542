"""A team: its namespace and budgets, its share of the GPUs, and its workloads."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model import fields
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.operators import Receiver
from gpu_tenancy.model.spec.people import Members, ServiceAccount
from gpu_tenancy.model.spec.secrets import Secret
from gpu_tenancy.model.spec.serving import Notebooks
from gpu_tenancy.model.spec.tenancy import Gpus, Shares
from gpu_tenancy.model.spec.workloads import OF_BURST, CpuMemory, Server, Training

Class: TypeAlias = Annotated[
    str,
    fields.Matching(
        re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?(/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?"),
        "is not the name of a class or Gateway",
        "use the name of an IngressClass or GatewayClass, or NAMESPACE/NAME of a Gateway",
    ),
]
"""A class of load balancers or routes, or a Gateway as NAMESPACE/NAME."""


class Resources(CpuMemory):
    """An amount of CPU, memory and GPUs."""

    gpu: fields.Count | None = None
    """Number of GPUs, of any flavor."""


class Compute(fields.Section):
    """CPU and memory in the namespace's ResourceQuota; default: requests up to what the team's queues can admit."""

    requests: CpuMemory = CpuMemory()
    """Sum of the requests of all pods."""
    limits: CpuMemory = CpuMemory()
    """Sum of the limits of all pods. With `requests`, a container's limit must not exceed its request by more than the
    ratio of both, so that pods that the queue admits are never rejected for their limits."""
    priorities: list[fields.Name] = []
    """Priority classes that pods in the namespace may use; default: all. Others are rejected."""
    waiting: Annotated[int, Field(ge=0, le=100)] = 0
    """How much more pods may request while they are pending, as a multiple of all that may run: for Deployments,
    StatefulSets and single pods that people create, whose pending pods count. With 0, the namespace's quota rejects
    them beyond what the team's queues can admit."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        for resource in ("cpu", "memory"):
            if getattr(self.limits, resource) is not None and getattr(self.requests, resource) is None:
                rule = f"sets limits.{resource} without requests.{resource}"
                fix = f"set requests.{resource} too, or remove limits.{resource}"
                yield f"{rule}, so the quota could reject pods that the queue admits by their requests", fix


class Containers(fields.Section):
    """LimitRange of the namespace: a container's defaults and bounds."""

    default: CpuMemory = Field(default_factory=lambda: CpuMemory.model_validate({"cpu": 2, "memory": "8Gi"}))
    """Limits of a container without limits; default: cpu 2 and memory 8Gi. The default for GPUs is always 0."""
    default_request: CpuMemory = Field(default_factory=lambda: CpuMemory.model_validate({"cpu": 1, "memory": "4Gi"}))
    """Requests of a container without requests; default: cpu 1 and memory 4Gi."""
    min: CpuMemory = CpuMemory()
    """Minimum per container."""
    max: Resources = Resources()
    """Maximum per container; default for GPUs: all GPUs of a node."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        bounds = {"min": self.min, "defaultRequest": self.default_request, "default": self.default, "max": self.max}
        for resource in ("cpu", "memory"):
            amounts = {name: getattr(bound, resource) for name, bound in bounds.items()}
            ladder = [(name, amount) for name, amount in amounts.items() if amount is not None]
            for (lower, lower_amount), (upper, upper_amount) in pairwise(ladder):
                if lower_amount > upper_amount:
                    fix = f"lower {lower} or raise {upper} (defaults: cpu 1 to 2, memory 4Gi to 8Gi)"
                    yield f"{lower}.{resource} is greater than {upper}.{resource}", fix


class Claims(fields.Section):
    """Bounds for the size of one PersistentVolumeClaim."""

    min: fields.Bytes | None = None
    """Minimum size that a claim may request."""
    max: fields.Bytes | None = None
    """Maximum size that a claim may request."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.min is not None and self.max is not None and self.max < self.min:
            yield "max is less than min", "raise max or lower min"


class Objects(fields.Section):
    """Object counts in the namespace's ResourceQuota, so that no team fills the cluster's store.

    If the team's own servers and jobs in the stack need more than half of a default, it is twice what they need.
    """

    pods: fields.Count | None = None
    """Maximum number of pods that are not terminated; default: 3000."""
    jobs: fields.Count | None = None
    """Maximum number of objects of each kind that has pods, such as Jobs and Deployments; default: 500. Kinds that
    controllers create too, such as Jobs of a JobSet, may have as many more as `pods`, and Workloads of Kueue as many as
    all of these together."""
    children: fields.Count | None = None
    """Maximum number of children of one object: Jobs of a JobSet, groups of a LeaderWorkerSet, workers of a Ray
    cluster; default: 50. Operators create all of them before those of the next object."""
    cronjobs: fields.Count | None = None
    """Maximum number of CronJobs; default: 20. Each starts at most twelve Jobs an hour."""
    services: fields.Count | None = None
    """Maximum number of Services; default: 1000."""
    secrets: fields.Count | None = None
    """Maximum number of Secrets; default: 1000."""
    configmaps: fields.Count | None = None
    """Maximum number of ConfigMaps, including `kube-root-ca.crt`, which every namespace has; default: 1000."""
    persistentvolumeclaims: fields.Count | None = None
    """Maximum number of PersistentVolumeClaims; default: 500."""
    others: fields.Count | None = None
    """Maximum number of objects of each of these kinds: ControllerRevisions, HorizontalPodAutoscalers, Ingresses,
    Leases, NetworkPolicies, PodDisruptionBudgets, ResourceClaimTemplates, RoleBindings, Roles, ServiceAccounts;
    default: 1000. ResourceClaims, which Kubernetes creates for pods, may have 8 more for each of `pods`."""
    storage: fields.Bytes | None = None
    """Maximum sum of the storage requests of all PersistentVolumeClaims; default: unlimited."""


class Gang(Gpus):
    """GPUs that Volcano schedules for the team; they are subtracted from what Kueue's queues share."""

    cpu: fields.Cpu | None = None
    """CPUs of all its gangs; default: the share of the machine of the GPUs, or of `memory` on nodes without GPUs."""
    memory: fields.Bytes | None = None
    """Memory of all its gangs; default: the share of the machine of the GPUs, or of `cpu` on nodes without GPUs."""

    @property
    def effective_limit(self) -> int:
        """Maximum number of GPUs of all its gangs."""
        return self.guaranteed if self.limit is None else self.limit


class Expose(fields.Section):
    """What servers, Services and routes of the team may open to clients outside of the cluster; else it is rejected."""

    hosts: list[fields.Host] = []
    """Hosts of Ingresses, routes and Gateways, such as chat.example.com; `*.example.com` allows all names below
    example.com."""
    classes: list[Class] = []
    """IngressClasses, GatewayClasses and classes of load balancers that they may use, and Gateways of other namespaces
    as NAMESPACE/NAME."""
    services: list[Literal["LoadBalancer", "NodePort", "ExternalName"]] = []
    """Types of Services besides ClusterIP."""
    reach: Literal["internal", "public"] = "internal"
    """Whether load balancers can be `public`. `internal` requires the annotation for internal load balancers of the
    cluster's cloud, or a class of `classes`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.hosts and not self.classes:
            rule = "sets hosts without classes, so no Ingress and no route could use them"
            yield rule, "add the IngressClass to classes, or the Gateway as NAMESPACE/NAME"


class Network(fields.Section):
    """Traffic allowed by the namespace's default-deny NetworkPolicy, besides DNS, own pods and servers' ports."""

    clients: Literal["cluster", "team"] = "cluster"
    """Clients of the team's servers: all namespaces of the cluster, or only the team's own pods."""
    egress: list[fields.Cidr] = []
    """CIDRs that the team's pods may reach over HTTPS, such as 0.0.0.0/0 for the whole internet."""
    expose: Expose = Expose()
    """What the team's own Services and routes may open to clients outside of the cluster."""


class Preemption(fields.Section):
    """Preemption policy of the team's ClusterQueue, with Kueue's keys and values."""

    reclaim_within_cohort: Literal["Any", "LowerPriority", "Never"] = "Any"
    """Workloads of borrowing queues that are preempted to reclaim the team's guarantee."""
    within_cluster_queue: Literal["LowerPriority", "LowerOrNewerEqualPriority", "Never"] = "LowerPriority"
    """Workloads of the team itself that are preempted for another workload of the team."""
    borrow_within_cohort: Literal["LowerPriority", "Never"] = "Never"
    """Workloads of other queues that are preempted so that the team can borrow."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.borrow_within_cohort != "Never" and self.reclaim_within_cohort == "Never":
            rule = "borrowWithinCohort is set but reclaimWithinCohort is Never, which Kueue rejects"
            yield rule, "set reclaimWithinCohort to LowerPriority or Any, or remove borrowWithinCohort"


Spared: TypeAlias = Annotated[
    str,
    fields.Matching(
        re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?"),
        "is not the name of a job, a kind or a priority class",
        "use the name alone, such as nightly, RayJob or ml-high",
    ),
]
"""A name of jobs, a kind or a priority class."""


class Idle(fields.Section):
    """What happens to jobs whose GPUs are idle. A string sets `then`.

    All pods of the job must be below the threshold, by DCGM's metrics; a pod without metrics is never idle. Servers and
    notebooks are excluded: notebooks have their own `idle`.
    """

    then: Annotated[Literal["notify", "requeue", "cancel", "off"], fields.OFF] = "notify"
    """`notify`: an event on the job, an annotation, and an alert. `requeue`: the job is also evicted, and queued again
    at the place of its creation. `cancel`: it is also stopped, until somebody sets `spec.active` of its Workload.
    `off`: nothing, for a team of a stack that has `idle`."""
    below: Annotated[float, Field(gt=0, le=50)] = 5
    """Percent of utilization, on average of five minutes, below which a GPU is idle."""
    after: Annotated[fields.Seconds, Field(ge=600, le=7 * 86400)] = Field(default=7200, alias="for")
    """Time for which all GPUs of a job must be idle; default: 2h. Before it is stopped, its team is told: after half of
    this time."""
    grace: Annotated[fields.Seconds, Field(le=86400)] = 1800
    """Time from the first metrics of a pod that does not count, such as for the download of its data; default: 30m."""
    spare: Annotated[list[Spared], Field(max_length=100)] = Field(default=[], alias="except")
    """Jobs that are never idle: by name, by kind such as RayJob, or by priority class."""

    @property
    def warned(self) -> float:
        """Seconds after which the team is told."""
        return self.after if self.then == "notify" else self.after / 2


IdleEntry: TypeAlias = Annotated[Idle, fields.Shorthand(str, ("then",)), fields.OFF]


class Team(Shares):
    """A team: a namespace with its guarantee and limit for each flavor, its budgets, and its workloads."""

    owner: fields.LabelValue
    """Owner of the team's namespace, in label `owner`."""
    cost_center: fields.LabelValue
    """Cost center that pays, in label `cost-center`."""
    monthly_budget: Annotated[float, Field(gt=0, le=1000 * fields.MOST_PRICE)] | None = None
    """US dollars that the GPUs of its queue may cost in 30 days, at the prices of this stack; above, an alert fires.
    Needs the operator `prometheus`, with at least 30 days of `metrics.storage.retention` where this program installs
    it."""
    idle: IdleEntry | None = None
    """What happens to its jobs whose GPUs are idle; default: `idle` of the stack."""
    alerts: Receiver | None = None
    """Receiver of the alerts on its queue and on objects in its namespace; default: the platform team's."""
    tier: fields.LabelValue = "standard"
    """Value of label `gpu-tier`, such as critical, high-priority or best-effort."""
    labels: dict[fields.OwnKey, fields.LabelValue] = {}
    """Further labels of the team's namespace, such as `{example.com/unit: vision, istio-injection: disabled}`. Keys of
    the platform, Kubernetes, Kueue and Volcano are refused."""
    annotations: Annotated[dict[fields.OwnKey, Annotated[str, Field(max_length=1000)]], Field(max_length=50)] = {}
    """Further annotations of the team's namespace, with keys as in `labels`."""
    members: Members = Members()
    """People of the team, in addition to those of the cohorts above it."""
    service_accounts: dict[fields.Name, ServiceAccount] = {}
    """Service accounts of the team, for its CI jobs, by name, such as `ci`."""
    workload_secrets: list[fields.Name] = []
    """Secrets that pods of researchers may use too. Without it, only leads may submit workloads that use Secrets."""
    secrets: dict[fields.Name, Secret] = {}
    """Secrets of the namespace by name, and the source of their values: created by hand (`{existing: true}`), from a
    cloud's secret manager (`from`), or from the Pulumi config (`config`). If set, workloads can use no others."""
    image_pull_secrets: list[fields.Name] = []
    """Secrets with credentials of registries, with which all pods of the team pull their images."""
    cohort: fields.DottedName | None = None
    """Cohort that the team belongs to; default: the root."""
    queue: fields.Name | None = None
    """Another team whose queue and share this team uses, in place of its own."""
    priority: fields.Name | None = None
    """Default priority class of its workloads."""
    deadline: Annotated[fields.Seconds, Field(ge=1)] | None = None
    """Default maximum run time of its jobs, also of those that its people submit; default: none. Servers and notebooks
    have none."""
    weight: fields.Weight = 1.0
    """Weight of the team's queue under fair sharing (`fairness: even`)."""
    usage_weight: fields.Weight | None = None
    """Weight of the team among those that share its queue, with `fairness.usage`, by which its past usage is divided;
    default: 1."""
    lends: bool | None = None
    """Whether others may borrow its guarantee while it is idle; default: true if the team has no servers."""
    preemption: Preemption = Preemption()
    """Preemption policy of its ClusterQueue."""
    gangs: dict[fields.Name, Gang] = {}
    """GPUs for gangs that Volcano schedules, by flavor."""
    compute: Compute = Compute()
    """Budget of CPU and memory (ResourceQuota)."""
    objects: Objects = Objects()
    """Budget of objects and storage (ResourceQuota)."""
    containers: Containers = Containers()
    """Defaults and bounds of one container (LimitRange)."""
    claims: Claims = Claims()
    """Bounds of one PersistentVolumeClaim (LimitRange)."""
    storage: dict[fields.Name, Storage] = {}
    """PersistentVolumeClaims of the team by name, which its workloads mount with `volumes`."""
    network: Network = Network()
    """Traffic allowed by the default-deny NetworkPolicy."""
    pod_security: Literal["privileged", "baseline", "restricted"] = "baseline"
    """Pod Security Standard that the namespace enforces."""
    serving: dict[fields.WorkloadName, Server] = {}
    """Servers by name."""
    training: dict[fields.WorkloadName, Training] = {}
    """Jobs and gangs by name."""
    notebooks: Notebooks | None = None
    """Notebooks that its people can start; default: none."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        bursts = (f"{name}{OF_BURST}" for name, spec in self.serving.items() if spec.burst)
        if taken := next((name for name in bursts if name in self.serving), None):
            yield f"has a server {taken}, which is the name of the burst of another one", "rename it"
        if self.queue is not None and (self.gpus or self.quota):
            rule = f"sets its own gpus or quota and also uses the queue of {self.queue}"
            yield rule, "remove gpus and quota, or remove queue"
        for key in ("cohort", "weight", "lends", "preemption"):
            if self.queue is not None and key in self.model_fields_set:
                yield f"sets {key}, which the team of its queue has", f"remove it: teams.{self.queue}.{key} applies"
