"""The real Kueue of a run: on an embedded platform of its own, with the configuration of this program's release.

The objects of a scenario have names of their own, so that many scenarios can be played at once.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.agree.drawing import Data
from benchmarks.leftovers import kill_at_end
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import amounts
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.controllers.table import module_of, read_rows
from gpu_tenancy.embedded.definitions import fetch, install
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.manifests.pods import queued
from gpu_tenancy.model.names import KUEUE
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, PodPlan, RolePlan
from gpu_tenancy.model.source import Source

NAMESPACE: Final = "agreement"  # of all scenarios; Kueue manages it like the namespace of a team
# Label of all objects but Jobs; its value is the prefix of the object's scenario, if any.
SCENARIO: Final = "gpu-tenancy.dev/scenario"
# The kinds outside of the namespace, in the order of their deletion.
KINDS: Final = ("ClusterQueue", "Cohort", "ResourceFlavor", "WorkloadPriorityClass")
_DAY: Final = 86_400


def version() -> str:
    """The version of Kueue's Go module."""
    return module_of(read_rows()["kueue"]).version.removeprefix("v")


@contextmanager
def platform(home: Path, report: Report) -> Generator[Platform]:
    """An embedded platform for the time of the block; leftovers of an interrupted run are removed first."""
    kill_at_end()
    made = Platform(home.absolute())
    made.down(report)
    # The collectors of the programs have memory to spend.
    os.environ.setdefault("GOGC", "400")
    try:
        made.up(report)
        yield made
    finally:
        made.down(report)


def start(made: Platform, cluster: Cluster, report: Report, *, fair: bool) -> None:
    """Starts Kueue as in a stack with this key `fairness`; a ConsoleError says why it cannot be built or started."""
    stack = load(
        Source(
            {
                "cluster": {"cloud": "existing", "provides": ["networkPolicies", "resourceMetrics"]},
                "fairness": "even" if fair else "hierarchical",
                "pools": {"h100": {"machine": "p5.48xlarge", "nodes": 1}},
                "teams": {"team": {"owner": "owner", "costCenter": "rd-001", "gpus": {"h100": {"guaranteed": 8}}}},
            }
        )
    )
    rows = table.rows_of(Tree(stack))
    pins = needed(read_pins(), {"kueue.x-k8s.io"})
    install(cluster, fetch(pins, made.cache, report), made.cache, report)
    found, unavailable = table.find(rows, made.cache, report)
    for program, reason in unavailable.items():
        raise ConsoleError(f"{program} is not available: {reason}", f"set {table.FOLDER} to a folder with it")
    made.controllers.bring(cluster, table.wanted(stack, found), made.cache, report)


def shared(scenarios: Sequence[Data]) -> list[Manifest]:
    """The shared objects of scenarios: the namespace, and a flavor or priority class for each value."""
    lines = [
        line
        for scenario in scenarios
        for owner in (*scenario["clusterQueues"], *(scenario.get("cohorts") or ()))
        for line in owner.get("resources") or owner.get("quota") or ()
    ]
    priorities: list[dict[str, int]] = [scenario.get("priorities") or {} for scenario in scenarios]
    values = {value for named in priorities for value in named.values()}
    labels: Json = {TEAM_LABEL[0]: TEAM_LABEL[1]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        *(_kueue("ResourceFlavor", flavor, spec={}) for flavor in sorted({line["flavor"] for line in lines})),
        *(_kueue("WorkloadPriorityClass", _class(value), value=value) for value in sorted(values)),
    ]


def _class(priority: int) -> str:
    return f"priority-{priority}"


def _kueue(kind: str, name: str, scenario: str = "", namespace: str = "", **rest: Json) -> Manifest:
    metadata: dict[str, Json] = {"name": name, "labels": {SCENARIO: scenario}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, **rest}


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of one scenario; no other scenario on the cluster has their `prefix`."""

    scenario: Data
    prefix: str

    def queues(self) -> Iterator[Manifest]:
        """Cohorts, each after its parent, then ClusterQueues and LocalQueues."""
        for cohort in self.scenario.get("cohorts") or ():
            parent = {"parentName": self._named(cohort["parent"])} if cohort.get("parent") else {}
            spec = {**parent, **_groups(cohort.get("quota") or ()), **_fair_sharing(cohort)}
            yield _kueue("Cohort", self._named(cohort["name"]), self.prefix, spec=spec)
        for queue in self.scenario["clusterQueues"]:
            yield _kueue("ClusterQueue", self._named(queue["name"]), self.prefix, spec=self._queue(queue))
        for queue in self.scenario["clusterQueues"]:
            name = self._named(queue["name"])
            yield _kueue("LocalQueue", name, self.prefix, NAMESPACE, spec={"clusterQueue": name})

    def blocking_queues(self) -> Iterator[Reference]:
        """The ClusterQueues whose first workload blocks those behind it."""
        for queue in self.scenario["clusterQueues"]:
            if queue.get("strategy") == "StrictFIFO":
                yield Reference(KUEUE, "ClusterQueue", self._named(queue["name"]))

    def job(self, workload: Data) -> Manifest:
        """A workload as a Job, which Kueue suspends until it admits it; no node runs its pods."""
        queue, priority = self._named(workload["queue"]), workload.get("priority")
        requests = amounts(workload["requests"])
        pod = PodPlan("registry.example.com/workload:1", (), (), {}, requests, {}, (), priority=None, account=None)
        roles = (RolePlan("main", workload.get("pods", 1), pod),)
        name = self._named(workload["name"])
        job = job_manifest(
            JobPlan(name, NAMESPACE, queue, "job", roles, gang=False, retries=0, deadline=None, keep=_DAY)
        )
        # A class of Kueue alone: there is no PriorityClass for the pods.
        job["metadata"]["labels"] = queued(queue, _class(self.scenario["priorities"][priority]) if priority else None)
        # No scheduler looks at the pods, because there are no nodes.
        job["spec"]["template"]["spec"]["schedulerName"] = "none"
        return job

    def job_reference(self, workload: str) -> Reference:
        """The Job of a workload."""
        return Reference("batch/v1", "Job", self._named(workload), NAMESPACE)

    def _named(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _queue(self, queue: Data) -> Json:
        cohort = queue.get("cohort")
        return {
            **({"cohortName": self._named(cohort)} if cohort else {}),
            "namespaceSelector": {},
            "queueingStrategy": queue.get("strategy") or "BestEffortFIFO",
            "preemption": queue.get("preemption") or {},
            **({"flavorFungibility": fungibility} if (fungibility := queue.get("flavorFungibility")) else {}),
            **_groups(queue["resources"]),
            **_fair_sharing(queue),
        }


def _fair_sharing(owner: Data) -> dict[str, Json]:
    weight = owner.get("weight")
    return {} if weight is None else {"fairSharing": {"weight": f"{weight:g}"}}


def _groups(lines: Sequence[Data]) -> dict[str, Json]:
    flavors: dict[str, list[Json]] = {}
    for line in lines:
        amounts = {
            "nominalQuota": line["nominal"],
            "borrowingLimit": line.get("borrowingLimit"),
            "lendingLimit": line.get("lendingLimit"),
        }
        quota: Json = {key: str(amount) for key, amount in amounts.items() if amount is not None}
        # pyrefly: ignore[invalid-argument]
        flavors.setdefault(line["flavor"], []).append({"name": line["resource"], **quota})
    if not flavors:
        return {}
    covered: list[Json] = list(dict.fromkeys(line["resource"] for line in lines))
    written: list[Json] = [{"name": name, "resources": resources} for name, resources in flavors.items()]
    return {"resourceGroups": [{"coveredResources": covered, "flavors": written}]}
