"""Kueue: its Helm values, and for MultiKueue the workers of a manager and the rights that a worker gives to it.

Its configuration is strict: the manager exits on an unknown key. Source of the keys:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/config/v1beta2/configuration_types.go; of MultiKueue:
https://kueue.sigs.k8s.io/docs/tasks/manage/setup_multikueue/.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.base.quantity import CPU, MEMORY, go_duration
from gpu_tenancy.model.catalogue.access import Rule, Verb
from gpu_tenancy.model.catalogue.operators import charts, operators
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.names import CLAIM_CLASSES, UNCOVERED, USER
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claimed_on
from gpu_tenancy.model.plan.needs import OF_JOBS, installed_by, there
from gpu_tenancy.model.plan.operators.gpus import Values
from gpu_tenancy.model.plan.people import PREFIX, Subject
from gpu_tenancy.model.spec.tenancy import MultiKueue, Usage
from gpu_tenancy.model.yaml import read_table

TEAM_LABEL: Final = ("app.kubernetes.io/managed-by", "gpu-tenancy")
"""Label of the teams' namespaces (`model.plan.namespaces`), which no other namespace has."""
_FRAMEWORKS: Final = ("batch/job", "pod", "deployment", "statefulset")
"""Always on: otherwise a pod that Kueue does not manage would use GPUs that are guaranteed to others."""
GANG: Final = "Job.v1alpha1.batch.volcano.sh"
"""Volcano's Job as an external framework of Kueue, so that Kueue leaves its pods to Volcano. With
`manageJobsWithoutQueueName`, Kueue gates all other pods without a queue, so a gang would never start
(https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/pod/pod_webhook.go)."""
_GANG_READS: Final = (("batch.volcano.sh", "jobs"),)
"""Resources that Kueue must be able to get, list and watch to recognise a gang. Its chart does not grant this; without
it, Kueue rejects the gang's pods."""
_DIGITS: Final = 6  # digits of the part of a GPU that a partition or time slice is
_FLUID: Final = "data.fluid.io"
TABLE: Final[Mapping[str, Any]] = read_table(Path(__file__).with_name("values.yaml"))


def kueue_values(environment: Environment) -> Values:
    """Values of Kueue: its configuration as YAML in a string."""
    text = yaml.safe_dump(_configuration(environment), sort_keys=False)
    return {"managerConfig": {"controllerManagerConfigYaml": text}}


def kueue_reads(environment: Environment) -> tuple[tuple[str, str], ...]:
    """Permissions (get, list, watch) that Kueue needs in addition to its chart's: API group and resource."""
    gangs = _GANG_READS if there(environment, "volcano") else ()
    caches = tuple((_FLUID, plural) for plural in TABLE["caches"].values()) if there(environment, "fluid") else ()
    return (*gangs, *caches)


def _configuration(environment: Environment) -> dict[str, Any]:
    stack = environment.stack
    configuration: dict[str, Any] = {
        **TABLE["kueue"],
        "managedJobsNamespaceSelector": _teams_alone(stack.metrics.prometheus.namespace),
        "integrations": integrations(environment),
        "resources": {"excludeResourcePrefixes": _excluded(environment)},
    }
    if claimed := claimed_on(environment):
        mappings = [{"name": resource, "deviceClassNames": [CLAIM_CLASSES[resource]]} for resource in claimed]
        configuration["resources"]["deviceClassMappings"] = mappings
    if stack.multikueue and stack.multikueue.workers:
        configuration["multiKueue"] = _dispatching(stack.environment, stack.multikueue)
    if stack.fairness.even:  # This key enables fair sharing.
        configuration["fairSharing"] = {"preemptionStrategies": list(stack.fairness.preemption_strategies)}
    if usage := stack.fairness.usage:
        configuration["admissionFairSharing"] = {
            "usageHalfLifeTime": go_duration(usage.half_life),
            "usageSamplingInterval": go_duration(usage.sampling),
            "resourceWeights": usage_weights(environment, usage),
        }
    return configuration


def usage_weights(environment: Environment, usage: Usage) -> dict[str, float]:
    """The weight of every resource that queues cover: of one GPU, partition or time slice, of one CPU, and of one byte.

    Kueue's default is 1. Memory is 0 by default, because its bytes would outnumber everything else.
    """
    gpus: dict[str, float] = {}
    for pool in environment.all_pools.values():
        if pool.supply and pool.supply.resource and pool.cut:
            gpus[pool.supply.resource] = max(round(1 / pool.cut.replicas, _DIGITS), gpus.get(pool.supply.resource, 0))
    claimed = dict.fromkeys(claimed_on(environment), 0.0)
    return {CPU: 0.0 if gpus else 1.0, MEMORY: 0.0, **gpus, **claimed, **usage.weights}


def _dispatching(origin: str, section: MultiKueue) -> dict[str, Any]:
    """MultiKueue of a manager. `origin` marks its objects in the workers, for its garbage collection."""
    return {
        "gcInterval": "1m0s",
        "origin": origin,
        "workerLostTimeout": go_duration(section.worker_lost_timeout),
        "dispatcherName": f"kueue.x-k8s.io/multikueue-dispatcher-{section.dispatcher}",
    }


def _teams_alone(monitoring: str) -> dict[str, Any]:
    """Selector for the teams' namespaces only, so that pods of the cloud are never gated.

    System namespaces are excluded by name against labels by mistake; Kueue rejects a selector that matches kube-system.
    """
    spared = sorted({"kube-system", monitoring, *(row.namespace for row in charts().values())})
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": spared}
    return {"matchLabels": dict([TEAM_LABEL]), "matchExpressions": [others]}


def integrations(environment: Environment) -> dict[str, list[str]]:
    """The kinds that Kueue queues (`frameworks`), and kinds whose children it leaves alone (`externalFrameworks`).

    Workloads have the label of a job's user, by which `tenancy cost` sums.
    """
    running = [operator for operator in OF_JOBS if there(environment, operator)]
    of_jobs = [kind.integration for name in running for kind in kinds().values() if kind.operator == name]
    gangs = [GANG] if there(environment, "volcano") else []
    caches = [f"{kind}.v1alpha1.{_FLUID}" for kind in TABLE["caches"]] if there(environment, "fluid") else []
    others = {"externalFrameworks": [*gangs, *caches]} if gangs or caches else {}
    return {"frameworks": [*_FRAMEWORKS, *of_jobs], "labelKeysToCopy": [USER], **others}


def _excluded(environment: Environment) -> list[str]:
    supplies = [pool.supply for pool in environment.pools.values() if pool.supply]
    covered = [supply.resource for supply in supplies if supply.resource]
    return [prefix for prefix in UNCOVERED if not any(resource.startswith(prefix) for resource in covered)]


CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""Controller of the AdmissionCheck, and `spec.managedBy` of jobs that run in a worker."""
CHECK: Final = f"{PREFIX}multikueue"
"""Name of the MultiKueueConfig and the AdmissionCheck of a manager; in a worker, of the account of its manager."""
KUBECONFIG_KEY: Final = "kubeconfig"
"""Key of the Secret that Kueue reads (`apis/kueue/v1beta2/multikueue_types.go` of v0.19.2)."""

_READ: Final[tuple[Verb, ...]] = ("get", "list", "watch")
_WRITE: Final[tuple[Verb, ...]] = ("create", "update", "patch", "delete")
_EVICT: Final[tuple[Verb, ...]] = ("get", "update", "patch")
_KINDS: Final = {
    kind.integration: (kind.group, kind.plural)
    for kind in kinds().values()
    if kind.integration and kind.queue != "either"
}
"""API group and resource of the kinds that MultiKueue creates in a worker, by Kueue's integration. The pods of a
Deployment are dispatched one by one. `pkg/controller/jobs/*/*_multikueue_adapter.go` of v0.19.2."""


@dataclass(frozen=True, slots=True)
class WorkerAccess:
    """Rights of the manager in the cluster of a worker, by a ServiceAccount in Kueue's namespace."""

    account: Subject
    reads: tuple[Rule, ...]  # in the whole cluster: Kueue lists and watches without a namespace
    writes: tuple[Rule, ...]  # in the namespaces of teams only
    of_others: bool  # whether Kueue, and so its namespace, is not installed by this stack


def kueue_namespace() -> str:
    """The namespace of Kueue, with the Secrets of a manager and the account of a worker."""
    return operators()["kueue"].charts["kueue"].namespace


def worker_access(environment: Environment) -> WorkerAccess | None:
    """The rights of the manager in a worker; None if the stack is no worker.

    Kueue's own script also gives rights for other kinds, and to write in all namespaces:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/site/static/examples/multikueue/create-multikueue-kubeconfig.sh
    """
    section = environment.stack.multikueue
    if section is None or section.manager is None:
        return None
    kinds = [_KINDS[name] for name in integrations(environment)["frameworks"] if name in _KINDS]
    kueue = ("kueue.x-k8s.io",)
    reads = [
        Rule(groups=kueue, resources=("workloads",), verbs=_READ, reason="admission and end of workloads"),
        Rule(groups=kueue, resources=("clusterqueues", "localqueues"), verbs=_READ, reason="queues of the worker"),
    ]
    writes = [
        Rule(groups=kueue, resources=("workloads",), verbs=_WRITE, reason="copies of the manager's workloads"),
        Rule(groups=kueue, resources=("workloads/status",), verbs=_EVICT, reason="eviction of a copy"),
    ]
    for group, resource in kinds:
        reads.append(Rule(groups=(group,), resources=(resource,), verbs=_READ, reason="status of copied jobs"))
        if group:
            status = f"{resource}/status"
            reads.append(Rule(groups=(group,), resources=(status,), verbs=("get",), reason="status of copied jobs"))
        writes.append(Rule(groups=(group,), resources=(resource,), verbs=("create", "delete"), reason="copies of jobs"))
    account = Subject("ServiceAccount", CHECK, kueue_namespace())
    return WorkerAccess(account, tuple(reads), tuple(writes), of_others=installed_by(environment, "kueue") != "here")
