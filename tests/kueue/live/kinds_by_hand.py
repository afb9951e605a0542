"""An object of each kind that Kueue integrates, as a person writes it, with each way to write resources."""

from copy import deepcopy
from typing import Any, Final, cast

from builders import GPU
from researchers import sections

from gpu_tenancy.model.kinds import WorkloadKind, kinds
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import integrations
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

FRAMEWORKS: Final = frozenset(integrations(Tree(load(Source(sections()))))["frameworks"])
INTEGRATED: Final = {kind.kind: kind for kind in kinds().values() if kind.integration in FRAMEWORKS}


def _container(name: str, requested: Any, limits: Any, **more: Any) -> Any:
    resources = {**({"requests": requested} if requested else {}), "limits": limits}
    return {"name": name, "image": "registry.example.com/train:1", "resources": resources, **more}


ONE: Final = {GPU: "1"}
SMALL: Final = {**ONE, "cpu": "100m", "memory": "128Mi"}
PLAIN: Final = _container("plain", {"cpu": "1"}, {"cpu": "1"})
# Parts of a pod spec, by the place of GPUs or CPUs.
FORMS: Final[dict[str, Any]] = {
    "both": {"containers": [_container("main", ONE, ONE)]},
    "small": {"containers": [_container("main", SMALL, SMALL)]},
    "limits": {"containers": [_container("main", None, ONE)]},
    "cpu-limits": {"containers": [_container("main", None, {**ONE, "cpu": "2", "memory": "3Gi"})]},
    "init": {"containers": [PLAIN], "initContainers": [_container("init", None, ONE)]},
    "sidecar": {
        "containers": [_container("main", None, ONE)],
        "initContainers": [_container("sidecar", None, ONE, restartPolicy="Always")],
    },
    "pod-level": {
        "containers": [_container("main", ONE, ONE)],
        "resources": {"requests": {"cpu": "3", "memory": "9Gi"}, "limits": {"cpu": "3", "memory": "9Gi"}},
    },
}
# Other fields of each kind. A kind that Kueue integrates and that is not here fails.
AROUND: Final[dict[str, Any]] = {
    "Pod": {},
    "Deployment": {"replicas": 2, "selector": {"matchLabels": {"app": "counted"}}},
    "StatefulSet": {"replicas": 2, "selector": {"matchLabels": {"app": "counted"}}, "serviceName": "counted"},
    "Job": {"parallelism": 2, "completions": 2},
    "JobSet": {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 2, "completions": 2}}}]},
    "TrainJob": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    "LeaderWorkerSet": {"replicas": 2, "leaderWorkerTemplate": {"size": 2}},
    "RayCluster": {
        "headGroupSpec": {"rayStartParams": {}},
        "workerGroupSpecs": [
            {"groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
        ],
    },
    "RayJob": {"entrypoint": "python /tune.py", "submissionMode": "HTTPMode"},
    "RayService": {"serveConfigV2": "", "upgradeStrategy": {"type": "None"}},
}
IN_RAY: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
NEVER: Final = ("Pod", "Job", "JobSet", "RayCluster", "RayJob", "RayService")  # kinds whose pods can end


def written(kind: WorkloadKind, form: str) -> Any:
    """An object of a kind whose pods have the resources of a form."""
    spec, form_of_pods = deepcopy(AROUND[kind.kind]), deepcopy(FORMS[form])  # callers change what is returned
    if kind.kind in IN_RAY:
        spec[IN_RAY[kind.kind]] = deepcopy(AROUND["RayCluster"])
    group = f"{kind.group}/" if kind.group else ""
    found: Any = {"apiVersion": f"{group}{kind.version}", "kind": kind.kind, "metadata": {"name": name_of(kind, form)}}
    found["spec"] = spec
    restart = {"restartPolicy": "Never"} if kind.kind in NEVER else {}
    template = {"metadata": {"labels": {"app": "counted"}}, "spec": {**restart, **form_of_pods}}
    for pods in kind.pods:
        if pods.resources:
            within(found, [step.field for step in pods.at])[pods.resources] = form_of_pods["containers"][0]["resources"]
        elif not pods.path:
            found["spec"] = template["spec"]
        elif pods.name not in {"submitter", "leader"}:
            *before, last = [step.field for step in pods.path]
            within(found, before)[last] = deepcopy(template)
    return found


def within(found: Any, path: list[str]) -> Any:
    """The value at a path, of the first item of each list."""
    for field in path:
        inner: Any = found.setdefault(field, {})
        found = cast("list[Any]", inner)[0] if isinstance(inner, list) else inner
    return found


def name_of(kind: WorkloadKind, form: str) -> str:
    return f"{kind.kind.lower()}-{form}"
