"""Pods and objects around them for generated programs, written without the code of the packs.

A test knows what it has put into an object and where, so it knows what rules must find, whatever the object is.
"""

import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from policy_builders import Sample

from rule_engine.reading import SECRET, SIGNATURE

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
NAMESPACE: Final = "ml-research"
EXAMPLES: Final = int(os.environ.get("GPU_TENANCY_ATTEMPTS", "300"))
"""Number of programs of each test; `make attempts` has thousands."""
QUIET: Final = settings(
    deadline=None,
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    derandomize="GPU_TENANCY_ATTEMPTS" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)

# Pods.

NAMES: Final = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
IMAGE: Final = "registry.example.com/ml/train:3.0.1"


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """A map with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


_USERS: Final = {
    "runAsNonRoot": st.booleans(),
    "runAsUser": st.integers(1, 70000),
    "seccompProfile": st.just({"type": "RuntimeDefault"}),
}
_CONTEXTS: Final = _some(**_USERS, readOnlyRootFilesystem=st.booleans())
_CONTAINERS: Final = _some(
    args=st.lists(st.text(max_size=8), max_size=2),
    env=st.lists(st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=8)}), max_size=2),
    envFrom=st.just([{"prefix": "APP_", "configMapRef": {"name": "settings"}}]),
    ports=st.just([{"containerPort": 8080}]),
    readinessProbe=st.just({"httpGet": {"path": "/", "port": 8080}}),
    resources=st.sampled_from([{}, {"limits": {"cpu": "4"}}, {"requests": {"memory": "2Gi"}}]),
    securityContext=_CONTEXTS | st.just({"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}),
    volumeMounts=st.just([{"name": "scratch", "mountPath": "/scratch"}]),
)


def containers(least: int, most: int) -> st.SearchStrategy[list[Json]]:
    """Containers with names and images of their own."""
    bodies = st.lists(_CONTAINERS, min_size=least, max_size=most)
    return bodies.map(lambda some: [{**body, "name": f"c{n}", "image": IMAGE} for n, body in enumerate(some)])


_APART: Final[Json] = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": [NAMESPACE]}


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """The spec of a pod that keeps every rule."""
    spec: Json = {"containers": draw(containers(1, 3)), "volumes": [{"name": "scratch", "emptyDir": {}}]}
    first = draw(containers(0, 2))
    if first:
        spec["initContainers"] = [{**body, "name": f"i{n}"} for n, body in enumerate(first)]
    spec |= draw(
        _some(
            affinity=st.just({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}}),
            nodeSelector=st.just({"kubernetes.io/os": "linux"}),
            terminationGracePeriodSeconds=st.integers(1, 600),
            priorityClassName=st.just("ml-low"),
            restartPolicy=st.just("Never"),
            securityContext=_some(**_USERS),
            tolerations=st.just([{"key": "spot", "operator": "Exists"}]),
        )
    )
    return deepcopy(spec)  # tests change it, and strategies give the same objects again


# Violations.


@dataclass(frozen=True, slots=True)
class Violation:
    """A field of a pod that a rule forbids.

    Attributes:
        rule: its name.
        put: puts it into a pod's spec; the number selects one of several places.
        whole: whether the rule is about the whole stack.
    """

    rule: str
    put: Callable[[Json, int], object]
    whole: bool = False


def _all(spec: Json) -> list[Json]:
    return [*spec["containers"], *spec.get("initContainers", [])]


def _one(spec: Json, at: int) -> Json:
    every = _all(spec)
    return every[at % len(every)]


def _context(spec: Json, at: int, **fields: object) -> None:
    _one(spec, at).setdefault("securityContext", {}).update(fields)


def _add(spec: Json, field: str, item: Json, at: int) -> None:
    items = spec.setdefault(field, [])
    items.insert(at % (len(items) + 1), item)


def _limit(spec: Json, at: int, name: str, count: object) -> None:
    _one(spec, at)["resources"] = {"limits": {name: count}}


_DEVICES: Final = "nvidia-container-devices/all"


def _linger(spec: Json, at: int) -> None:
    _limit(spec, at, GPU, 1)
    spec["terminationGracePeriodSeconds"] = 86400 + at


def _apart(at: int) -> Json:
    """An affinity that reaches other namespaces."""
    term: Json = {"topologyKey": "kubernetes.io/os", "labelSelector": {}}
    reaches: list[Json] = [{"namespaceSelector": {}}, {"namespaces": ["ml-serving"]}, {"namespaces": [NAMESPACE, "x"]}]
    field = "podAffinity" if at % 2 else "podAntiAffinity"
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term, {**term, **reaches[at % 3]}]}}


VIOLATIONS: Final[Mapping[str, Violation]] = {
    "privileged": Violation("no-privileged", lambda spec, at: _context(spec, at, privileged=True)),
    "capability": Violation("no-privileged", lambda spec, at: _context(spec, at, capabilities={"add": ["SYS_ADMIN"]})),
    "init container": Violation(
        "no-privileged",
        lambda spec, at: _add(spec, "initContainers", {"name": "i9", "securityContext": {"privileged": True}}, at),
    ),
    "unmasked": Violation("no-privileged", lambda spec, at: _context(spec, at, procMount="Unmasked")),
    "host process": Violation(
        "no-privileged", lambda spec, at: _context(spec, at, windowsOptions={"hostProcess": True})
    ),
    "host process of the pod": Violation(
        "no-host-namespaces",
        lambda spec, _: spec.setdefault("securityContext", {}).update(windowsOptions={"hostProcess": True}),
    ),
    "hostPID": Violation("no-host-namespaces", lambda spec, _: spec.update(hostPID=True)),
    "hostNetwork": Violation("no-host-namespaces", lambda spec, _: spec.update(hostNetwork=True)),
    "hostPath": Violation(
        "no-host-paths", lambda spec, at: _add(spec, "volumes", {"name": "host", "hostPath": {"path": "/"}}, at)
    ),
    "hostPort": Violation(
        "no-host-ports", lambda spec, at: _one(spec, at).update(ports=[{"containerPort": 80, "hostPort": 80}])
    ),
    "variable": Violation(
        "gpu-visible-devices",
        lambda spec, at: _add(_one(spec, at), "env", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, at),
    ),
    "prefix": Violation(
        "gpu-visible-devices",
        lambda spec, at: _one(spec, at).update(envFrom=[{"prefix": "NVIDIA_", "secretRef": {"name": "keys"}}]),
    ),
    "mount": Violation(
        "gpu-visible-devices",
        lambda spec, at: _add(
            _one(spec, at),
            "volumeMounts",
            {"name": "scratch", "mountPath": ("/var/run/", "/run//", "/var/run/x/../", "var/run/")[at % 4] + _DEVICES},
            at,
        ),
    ),
    "grace": Violation("gpu-grace-bounded", _linger),
    "affinity": Violation("affinity-own-namespace", lambda spec, at: spec.update(affinity=_apart(at))),
    "system class": Violation(
        "priority-not-system", lambda spec, _: spec.update(priorityClassName="system-node-critical")
    ),
    "toleration": Violation(
        "toleration-has-key", lambda spec, at: _add(spec, "tolerations", {"operator": "Exists"}, at)
    ),
    "image": Violation("image-pinned", lambda spec, at: _one(spec, at).update(image="example.com/train:latest")),
    "many GPUs": Violation("gpu-per-node", lambda spec, at: _limit(spec, at, GPU, 64)),
    "many GPUs, with zeros": Violation("gpu-per-node", lambda spec, at: _limit(spec, at, GPU, "64e000")),
    "part of a GPU": Violation("gpu-request-equals-limit", lambda spec, at: _limit(spec, at, GPU, "500m")),
    "GPUs without a quota": Violation(
        "gpu-namespace-quota", lambda spec, at: _limit(spec, at, "nvidia.com/mig-1g.10gb", 1), whole=True
    ),
    "GPUs of a claim without a quota": Violation(
        "gpu-namespace-quota",
        lambda spec, at: _add(spec, "resourceClaims", {"name": "gpu", "resourceClaimTemplateName": "eight"}, at),
        whole=True,
    ),
}

# Objects around pods.

TEMPLATED: Final[Mapping[str, tuple[str, ...]]] = {
    "core/v1:Pod": ("spec",),
    "core/v1:PodTemplate": ("template", "spec"),
    "core/v1:ReplicationController": ("spec", "template", "spec"),
    "apps/v1:Deployment": ("spec", "template", "spec"),
    "apps/v1:StatefulSet": ("spec", "template", "spec"),
    "apps/v1:ReplicaSet": ("spec", "template", "spec"),
    "apps/v1:DeploymentPatch": ("spec", "template", "spec"),
    "batch/v1:Job": ("spec", "template", "spec"),
    "batch/v1:CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "batch/v1:CronJobPatch": ("spec", "jobTemplate", "spec", "template", "spec"),
    "batch.volcano.sh/v1alpha1:Job": ("spec", "tasks", "0", "template", "spec"),
    "flow.volcano.sh/v1alpha1:JobTemplate": ("spec", "tasks", "0", "template", "spec"),
    "jobset.x-k8s.io/v1alpha2:JobSet": ("spec", "replicatedJobs", "0", "template", "spec", "template", "spec"),
    "kubeflow.org/v1:PyTorchJob": ("spec", "pytorchReplicaSpecs", "Worker", "template", "spec"),
    "trainer.kubeflow.org/v1alpha1:TrainJob": ("spec", "podTemplateOverrides", "0", "spec"),
    "ray.io/v1:RayCluster": ("spec", "workerGroupSpecs", "0", "template", "spec"),
    "keda.sh/v1alpha1:ScaledJob": ("spec", "jobTargetRef", "template", "spec"),
    "serving.kserve.io/v1beta1:InferenceService": ("spec", "predictor"),
    "serving.kserve.io/v1alpha1:ServingRuntime": ("spec",),
    "apps.kruise.io/v1alpha1:CloneSet": ("spec", "template", "spec"),
    "workload.codeflare.dev/v1beta2:AppWrapper": ("spec", "components", "0", "template", "spec", "template", "spec"),
    "sparkoperator.k8s.io/v1beta2:SparkApplication": ("spec", "executor", "template", "spec"),
}
"""Where a pod's spec is in objects of each kind; `0` is an item of a list. From the definitions of the kinds."""
_KEYS: Final = st.sampled_from(["spec", "template", "driver", "pools", "containers", "env", "volumes", "resources"])


@st.composite
def paths(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """A kind and the place of a pod's spec in it: a known kind, or one that nobody knows."""
    known = draw(st.none() | st.sampled_from(sorted(TEMPLATED)))
    if known is not None:
        return known, TEMPLATED[known]
    way = draw(st.lists(_KEYS | st.just("0") | st.text(max_size=4), max_size=12))
    group = draw(st.sampled_from(["example.com", "ops.example.com", "argoproj.io", "tekton.dev"]))
    return f"{group}/v1:{draw(st.sampled_from(['Thing', 'Workflow', 'App', 'ThingPatch']))}", ("spec", *way)


@dataclass(frozen=True, slots=True)
class Placed:
    """An object with a pod in it.

    Attributes:
        kind: version and kind.
        path: where the pod's spec is.
        noise: other items and entries on the way, by the number of keys before them.
        wrapped: numbers of keys after which the program marks a value as secret.
    """

    kind: str
    path: tuple[str, ...]
    noise: Mapping[int, Any]
    wrapped: frozenset[int]

    def holding(self, spec: Json, labels: Mapping[str, str]) -> Sample:
        """The object with this pod."""
        value: Any = deepcopy(spec)
        for index in range(len(self.path) - 1, -1, -1):
            key = self.path[index]
            if index in self.wrapped:
                value = {SIGNATURE: SECRET, "value": value}
            noise = self.noise.get(index, {})
            value = [*noise.values(), value] if key == "0" else {**noise, key: value}
        version, _, kind = self.kind.partition(":")
        # pyrefly: ignore[unsupported-operation]
        props = {"metadata": {"name": "it", "namespace": NAMESPACE, "labels": dict(labels)}} | value
        return Sample(f"kubernetes:{version}:{kind}", props)


_NOISE: Final = st.dictionaries(
    st.sampled_from(["alpha", "beta", "gamma"]),
    st.sampled_from([None, True, 3, "text", [], {}, {"name": "x"}, [{"name": "y", "value": 1}]]),
    max_size=2,
)


@st.composite
def placed(draw: st.DrawFn) -> Placed:
    """An object of any kind for a pod."""
    kind, path = draw(paths())
    indexes = st.integers(1, len(path) - 1) if len(path) > 1 else st.nothing()
    noise = draw(st.dictionaries(indexes, _NOISE, max_size=3)) if len(path) > 1 else {}
    return Placed(kind, path, noise, draw(st.frozensets(st.integers(0, len(path) - 1), max_size=2)))
