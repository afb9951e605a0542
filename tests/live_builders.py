"""Valid live objects as their controllers write them, for tests to break or change one part of."""

from typing import Any

from gpu_tenancy.base.quantity import format_amounts, times
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import Answer, Check, Kind, Missing, State
from gpu_tenancy.explain.fit import judge

GPU = "nvidia.com/gpu"
A100 = "NVIDIA-A100-SXM4-80GB"
ACTIVE = {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads"}
Data = dict[str, Any]
HIDDEN_QUEUES = Missing("ClusterQueue", "guaranteed and limit", "you may not list clusterqueues", "an admin")


def changed(manifest: Data, **spec: Any) -> Data:
    manifest["spec"] |= spec
    return manifest


def meta(name: str, namespace: str = "", **more: Any) -> Data:
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def cluster_queue(name: str, cohort: str = "", used: int | None = 0, **quota: Any) -> Data:
    """A queue with A100s alone; `used` None is a queue that Kueue has not counted."""
    line = {"name": GPU, "nominalQuota": "8", **{key: str(value) for key, value in quota.items()}}
    reserved = [{"name": "a100", "resources": [{"name": GPU, "total": str(used)}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": meta(name),
        "spec": {
            **({"cohortName": cohort} if cohort else {}),
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [line]}]}],
        },
        "status": {} if used is None else {"conditions": [ACTIVE], "flavorsReservation": reserved},
    }


def with_cpu(queue: Data, nominal: int, used: int = 0, limit: int = 64) -> Data:
    """Adds CPUs to a queue with A100s."""
    line = {"name": "cpu", "nominalQuota": str(nominal), "borrowingLimit": str(limit - nominal)}
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"].append("cpu")
    group["flavors"][0]["resources"].append(line)
    queue["status"]["flavorsReservation"][0]["resources"].append({"name": "cpu", "total": str(used)})
    return queue


def cpu_job(name: str, namespace: str = "research", gpus: int = 8, cpu: int = 32) -> Data:
    """A job of one pod that requests GPUs and CPUs."""
    found = job(name, namespace)
    written = {"cpu": str(cpu), GPU: str(gpus)}
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": written, "limits": written}
    return found


def cohort(name: str, parent: str = "", nominal: int | None = None, **limits: Any) -> Data:
    spec: Data = {"parentName": parent} if parent else {}
    if nominal is not None:
        line = {"name": GPU, "nominalQuota": str(nominal), **{key: str(value) for key, value in limits.items()}}
        spec["resourceGroups"] = [{"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [line]}]}]
    return {"metadata": meta(name), "spec": spec}


def local_queue(namespace: str, queue: str = "") -> Data:
    return {"metadata": meta(namespace, namespace), "spec": {"clusterQueue": queue or namespace}}


def flavor(name: str = "a100", **labels: str) -> Data:
    taint = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    return {"metadata": meta(name), "spec": {"nodeLabels": labels or {"model": name}, "nodeTaints": [taint]}}


def node(name: str = "n1", gpus: int = 8, **labels: str) -> Data:
    return {
        "metadata": meta(name, labels=labels or {"model": "a100"}),
        "spec": {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "96", "memory": "1000Gi", GPU: str(gpus), "pods": "110"}},
    }


def resources(gpus: int = 8, **more: Any) -> Data:
    written = {"cpu": "1", "memory": "4Gi", GPU: str(gpus), **more}
    return {"requests": written, "limits": written}


def pod_spec(gpus: int = 8, **more: Any) -> Data:
    return {
        "containers": [{"name": "main", "image": "registry.example.com/x:1", "resources": resources(gpus)}],
        "nodeSelector": {"model": "a100"},
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "restartPolicy": "Never",
        **more,
    }


def pod(name: str, namespace: str = "research", gpus: int = 8, on: str = "", **status: Any) -> Data:
    return {
        "metadata": meta(name, namespace, uid=f"uid-{name}", labels={}),
        "spec": pod_spec(gpus, **({"nodeName": on} if on else {})),
        "status": {"phase": "Running" if on else "Pending", **status},
    }


def job(
    name: str = "train", namespace: str = "research", pods: int = 1, gpus: int = 8, labels: Data | None = None
) -> Data:
    """A Job as its author writes it, with the uid of an API server."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(
            name, namespace, uid=f"uid-{name}", labels={"kueue.x-k8s.io/queue-name": namespace, **(labels or {})}
        ),
        "spec": {"parallelism": pods, "completions": pods, "suspend": True, "template": {"spec": pod_spec(gpus)}},
    }


def condition(kind: str, status: str, reason: str, message: str) -> Data:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def workload(of: Data, at: str = "2026-01-01T00:00:00Z", priority: int = 0, *, admitted: bool = False) -> Data:
    """A Workload of Kueue 0.19.2 for a Job: pending, or admitted to the flavor `a100`."""
    name, namespace = of["metadata"]["name"], of["metadata"]["namespace"]
    count = of["spec"]["parallelism"]
    spec = of["spec"]["template"]["spec"]
    used = format_amounts(times(requests(spec), count))
    why = f"insufficient unused quota for {GPU} in flavor a100, {used.get(GPU)} more needed"
    waits = f"couldn't assign flavors to pod set main: {why}"
    status: Data = {"conditions": [condition("QuotaReserved", "False", "Pending", waits)]}
    if admitted:
        assigned = {"name": "main", "count": count, "flavors": dict.fromkeys(used, "a100"), "resourceUsage": used}
        status = {
            "admission": {"clusterQueue": namespace, "podSetAssignments": [assigned]},
            "conditions": [
                condition("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {namespace}"),
                condition("Admitted", "True", "Admitted", "The workload is admitted"),
            ],
        }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": of["metadata"]["uid"], "controller": True}
    return {
        "metadata": meta(f"job-{name}-abcde", namespace, creationTimestamp=at, ownerReferences=[owner]),
        "spec": {
            "active": True,
            "queueName": namespace,
            "priority": priority,
            "podSets": [{"name": "main", "count": count, "template": {"spec": spec}}],
        },
        "status": {**status, "resourceRequests": []},
    }


def only_gpus(found: Data) -> Data:
    """A job, pod or workload whose pods request GPUs only, the only resource of these queues."""
    template = found["spec"].get("template") or {"spec": found["spec"]}
    wanted = template["spec"]["containers"][0]["resources"]
    for which in ("requests", "limits"):
        wanted[which] = {GPU: wanted[which][GPU]}
    return found


def came(  # noqa: PLR0913 - what a workload is
    name: str, team: str, gpus: int = 8, day: int = 1, priority: int = 0, *, runs: bool = True
) -> Data:
    """A workload of a day in January, admitted at once if it runs."""
    found = workload(only_gpus(job(name, team, gpus=gpus)), f"2026-01-{day:02}T00:00:00Z", priority, admitted=runs)
    found["metadata"]["name"] = name
    for each in found["status"]["conditions"]:
        each["lastTransitionTime"] = f"2026-01-{day:02}T00:00:00Z"
    return found


def waits(name: str, team: str = "research", gpus: int = 8, day: int = 20, priority: int = 0) -> Data:
    return came(name, team, gpus, day, priority, runs=False)


def counted(found: list[Data], teams: tuple[str, ...] = ("research", "speech"), **quota: Any) -> list[Data]:
    """A queue of each team, in one cohort, with the usage of these workloads."""
    made: list[Data] = []
    for team in teams:
        gpus = sum(
            int(one["resourceUsage"]["nvidia.com/gpu"])
            for each in found
            if each["metadata"]["namespace"] == team
            for one in each["status"].get("admission", {}).get("podSetAssignments", [])
        )
        made.append(cluster_queue(team, "org", used=gpus, **quota))
    return made


def state(missing: tuple[Missing, ...] = (), /, **objects: list[Data]) -> State:
    """A read cluster: team research with 8 A100s in org, on one node."""
    kinds: Any = {
        "ClusterQueue": [cluster_queue("research", "org", borrowingLimit=24)],
        "Cohort": [cohort("org", nominal=24)],
        "LocalQueue": [local_queue("research")],
        "Namespace": [{"metadata": meta("research", labels={"app.kubernetes.io/managed-by": "gpu-tenancy"})}],
        "Node": [node()],
        "PriorityClass": [{"metadata": meta("high"), "value": 1000}],
        "Queue": [],
        "ResourceFlavor": [flavor()],
        **objects,
    }
    lacking: dict[Kind, Missing] = {each.kind: each for each in missing}
    return State({kind: tuple(each) for kind, each in kinds.items()}, lacking)


def checked(about: Data, check: Check, missing: tuple[Missing, ...] = (), /, **objects: list[Data]) -> list[Answer]:
    """The answers of one check of `fit` about a workload of team research."""
    found = judge(state(missing, **objects), "research", demand(about, "research"))
    return [answer for answer in found.answers if answer.check is check]


def owned(pod: Data, owner: str = "uid-train") -> Data:
    pod["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True}]
    return pod
