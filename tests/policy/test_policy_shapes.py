"""Pods in objects of any kind: each violation is found at any place of the pod, and the same pod without it passes."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from policy_builders import TODAY, UNKNOWN, Sample, all_findings, findings, manifest, sample_of, secret
from pulumi_policy import EnforcementLevel
from violations import NAMESPACE, VIOLATIONS

from rule_engine import View
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule
from workload_rules import PACK, jobs, security, shapes
from workload_rules.pods import POD_PARTS, Gpus

# Pods in objects of operators.

# All rules accept it.
POD: Final[dict[str, Any]] = {
    "containers": [
        {
            "name": "main",
            "image": "registry.example.com/ml/train:3.0.1",
            "env": [{"name": "EPOCHS", "value": "3"}],
            "resources": {"limits": {"cpu": "4"}},
            "securityContext": {"allowPrivilegeEscalation": False},
        }
    ],
    "volumes": [{"name": "scratch", "emptyDir": {}}],
}

RULES: Final = {rule.name: rule for rule in PACK.rules}
_GPU: Final = "nvidia.com/gpu"
_GPUS: Final = "GPUs without a quota"
_CLAIM: Final = "GPUs of a claim without a quota"
# The rule about parts of GPUs is not only about tenants, and a claim is in a further object.
_ANYWHERE: Final = sorted({*VIOLATIONS} - {"part of a GPU", _CLAIM})

_TABLES: Final[dict[str, dict[str, Any]]] = yaml.load(
    Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
ALL: Final = {**_TABLES["kinds"], **_TABLES["known"], **_TABLES["partial"]}
FIELDS, LIKE_PODS = _TABLES["containers"], _TABLES["like pods"]


def pod(violation: str) -> dict[str, Any]:
    spec = deepcopy(POD)
    if violation:
        _, put = VIOLATIONS[violation]
        put(spec)
    return spec


def filled(template: dict[str, Any], word: str, value: dict[str, Any], namespace: str = NAMESPACE) -> Sample:
    """An object in which `word` stands for a value."""

    def put(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: put(item) for key, item in cast("dict[str, Any]", part).items()}
        if isinstance(part, list):
            return [put(item) for item in cast("list[Any]", part)]
        return value if part == word else part

    props = put(template)
    props["metadata"] = {"name": "it", "namespace": namespace}
    for item in props.get("items", ()):
        item["metadata"] = props["metadata"]
    return sample_of(props)


def given(kind: str, violation: str = "", namespace: str = NAMESPACE) -> Sample:
    return filled(ALL[kind], "POD", pod(violation), namespace)


def found(rule: AnyRule, sample: Sample) -> set[str]:
    return {finding.outcome for finding in findings(rule, {"it": sample})}


@pytest.mark.parametrize("violation", [*_ANYWHERE, "part of a GPU"])
@pytest.mark.parametrize("kind", ALL)
def test_a_violation_is_found_in_a_pod_of_any_kind(kind: str, violation: str) -> None:
    rule = RULES[VIOLATIONS[violation][0]]
    assert found(rule, given(kind)) == set()
    assert found(rule, given(kind, violation)) == {"broken"}
    in_every_namespace = {"broken"} if violation == "part of a GPU" else set[str]()
    assert found(rule, given(kind, violation, "kube-system")) == in_every_namespace


TEMPLATE: Final = manifest(f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: eight, namespace: {NAMESPACE}}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com, count: 8}}}}]}}}}}}
""")


@pytest.mark.parametrize("kind", ALL)
def test_gpus_of_a_claim_are_found_in_a_pod_of_any_kind(kind: str) -> None:
    (finding,) = findings(RULES["gpu-namespace-quota"], {"it": given(kind, _CLAIM), "claim": TEMPLATE})
    assert finding.outcome == "broken"


@pytest.mark.parametrize("violation", _ANYWHERE)
def test_violation_is_found_within_a_secret_value(violation: str) -> None:
    spec = secret([{"alpha": None, "b": secret(pod(violation))}])
    metadata = {"name": "it", "namespace": NAMESPACE}
    held = Sample("kubernetes:example.com/v1:Anything", {"metadata": metadata, "spec": spec})
    assert "broken" in found(RULES[VIOLATIONS[violation][0]], held)


@pytest.mark.parametrize("kind", ALL)
def test_a_valid_pod_of_any_kind_has_no_findings(kind: str) -> None:
    strict = Evaluator(PACK, TODAY)
    strict.configure({rule.name: EnforcementLevel.MANDATORY for rule in PACK.rules}, {})
    queued = given(kind)
    queued.props["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": NAMESPACE}
    of_all = [*all_findings(Evaluator(PACK), [given(kind)]), *all_findings(strict, [queued])]
    # Of a patch, rules need more than it has.
    known = [one for one in of_all if not (kind.endswith("Patch") and one.outcome == "unknown")]
    assert [finding.message for finding in known] == []


# Containers outside lists of containers, and GPUs outside containers.

_OF_CONTAINERS: Final = ("privileged", "capability", "variable", "image", "part of a GPU", "GPUs without a quota")


def with_container(kind: str, violation: str = "") -> Sample:
    return filled(FIELDS[kind], "MAIN", pod(violation)["containers"][0])


@pytest.mark.parametrize("violation", _OF_CONTAINERS)
@pytest.mark.parametrize("kind", FIELDS)
def test_a_violation_is_found_in_a_container_that_is_in_no_list(kind: str, violation: str) -> None:
    rule = RULES[VIOLATIONS[violation][0]]
    assert found(rule, with_container(kind)) == set()
    assert found(rule, with_container(kind, violation)) == {"broken"}


@pytest.mark.parametrize(
    ("of", "spec", "place"),
    [
        ("apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication",
         "{executor: {instances: 4, gpu: {name: nvidia.com/gpu, quantity: 64}}}",
         "SparkApplication ml/it, spec.executor"),
        ("apiVersion: example.com/v1, kind: Cluster",
         "{pools: [{name: a, workerResources: {limits: {nvidia.com/gpu: 64}}}]}", "Cluster ml/it, spec.pools.a"),
    ],
)  # fmt: skip
def test_gpus_outside_containers_are_counted(of: str, spec: str, place: str) -> None:
    parts = filled(yaml.safe_load(f"{{{of}, spec: {spec}}}"), "", {}, "ml").resource().parts(POD_PARTS)
    assert [(part.place, part.gpus(Gpus())) for part in parts] == [(place, {"nvidia.com/gpu": 64})]


@pytest.mark.parametrize("what", LIKE_PODS)
def test_maps_with_fields_like_a_pods_have_no_findings(what: str) -> None:
    sample = filled(LIKE_PODS[what], "PRIVILEGED", {"securityContext": {"privileged": True}}, "ml")
    assert [finding.message for finding in all_findings(Evaluator(PACK), [sample])] == []


# Queues.


@pytest.mark.parametrize(
    "kind",
    [
        *("AppWrapper", "SparkApplication", "JobTemplate", "a kind of nobody", "TrainJob, podTemplateOverrides"),
        *("Job", "Volcano's Job", "JobSet", "PyTorchJob", "ScaledJob"),
    ],
)
def test_batch_work_of_any_kind_names_its_queue(kind: str) -> None:
    claimed = findings(jobs.batch_names_queue, {"it": given(kind, _CLAIM), "claim": TEMPLATE})
    assert {finding.outcome for finding in claimed} == {"broken"}
    work = given(kind, _GPUS)
    assert found(jobs.batch_names_queue, work) == {"broken"}
    work.props["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "ml-research"}
    assert found(jobs.batch_names_queue, work) == set()


def test_pods_of_an_operators_kind_can_have_the_queue_label() -> None:
    work = given("Crossplane Object", _GPUS)
    pod = work.props["spec"]["forProvider"]["manifest"]
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "ml-research"}
    assert found(jobs.batch_names_queue, work) == set()


@pytest.mark.parametrize(
    "kind",
    [
        *("CloneSet", "InferenceService", "ServingRuntime", "DeploymentPatch", "Pod", "PodTemplate"),
        *("ReplicationController", "Deployment", "StatefulSet", "ReplicaSet", "RayCluster"),
    ],
)
def test_serving_and_patches_need_no_queue(kind: str) -> None:
    assert found(jobs.batch_names_queue, given(kind, _GPUS)) == set()


# Values of other types beside a pod.

_PRIVILEGED: Final[dict[str, Any]] = {
    "name": "b",
    "securityContext": {"privileged": True},
    "resources": {"limits": {_GPU: 8}},
}
_AN_APP: Final = "apiVersion: example.com/v1, kind: App"


@pytest.mark.parametrize(
    ("of", "spec"),
    [
        # Beside an item of a path, an entry of a path, an item of the containers.
        ("apiVersion: batch.volcano.sh/v1alpha1, kind: Job",
         "{tasks: [true, {template: {spec: {containers: [PRIVILEGED]}}}]}"),
        ("apiVersion: kubeflow.org/v1, kind: PyTorchJob",
         "{pytorchReplicaSpecs: {A: 1, Worker: {template: {spec: {containers: [PRIVILEGED]}}}}}"),
        (_AN_APP, "{containers: [true, PRIVILEGED]}"),
        # In a map with names of a container, and in a container.
        (_AN_APP, "{containers: [{resources: [{containers: [PRIVILEGED]}]}]}"),
        (_AN_APP, "{containers: [{name: a, resources: {}, volumes: [{podSpec: {containers: [PRIVILEGED]}}]}]}"),
    ],
)  # fmt: skip
def test_a_pod_beside_a_value_of_another_type_is_found(of: str, spec: str) -> None:
    work = filled(yaml.safe_load(f"{{{of}, spec: {spec}}}"), "PRIVILEGED", _PRIVILEGED, "ml")
    assert "broken" in found(security.no_privileged, work)
    assert "broken" in found(jobs.batch_names_queue, work)


# Unknown values, sizes.


@pytest.mark.parametrize(
    ("props", "path"),
    [
        pytest.param({"spec": UNKNOWN}, "spec", id="the spec"),
        pytest.param({"spec": {"containers": UNKNOWN}}, "spec.containers", id="the containers"),
        pytest.param({"spec": {"hostPID": True, "volumes": UNKNOWN}}, "spec.volumes", id="a field of a pod"),
    ],
)
def test_unknown_values_of_operators_pods_are_reported(props: dict[str, Any], path: str) -> None:
    rule = security.no_host_paths if path.endswith("volumes") else security.no_privileged
    sample = Sample("kubernetes:example.com/v1:App", {"metadata": {"name": "a", "namespace": "ml"}, **props})
    (finding,) = findings(rule, {"it": sample})
    assert finding.outcome == "unknown"
    assert f"not evaluated: {path} is unknown until deployment" in finding.message


@pytest.mark.parametrize("levels", [250, 3000])
def test_a_pod_is_found_at_any_depth(levels: int) -> None:
    inner: Any = deepcopy(POD)
    inner["hostPID"] = True
    for _ in range(levels):
        inner = {"a": inner}
    (pod,) = shapes.find_pods(View(inner))
    assert (pod.form, len(pod.view.path), pod.view.flag("hostPID")) == ("pod", levels, True)


def test_an_object_of_many_maps_is_searched_once() -> None:
    """Linear: each map of the object is visited once."""
    visited: list[str] = []

    class Visited(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            if key == "containers":
                visited.append("map")
            return super().__contains__(key)

        def get(self, key: str, default: Any = None) -> Any:
            if key == "gpu":
                visited.append("map")
            return super().get(key, default)

    items: list[Any] = [Visited(name=str(index), inner=Visited(value=index)) for index in range(500)]
    assert list(shapes.find_pods(View({"spec": {"items": items}}))) == []
    assert len(visited) == 1000
