"""Names of kinds, groups and fields that rules use, one at a time."""

import re
from pathlib import Path
from typing import Any, Final

import pulumi_kubernetes
import pytest
from policy_builders import PACKS, Sample, findings, manifest
from pulumi_kubernetes.admissionregistration import v1

from rule_engine import Resource
from rule_engine.rules import AnyRule
from workload_rules import images, jobs, pods, security, tenancy

_METADATA: Final = "metadata: {name: it, namespace: ml}"
_GPU: Final = "containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]"


_NOT_OF_OBJECTS: Final = {
    *("helm.sh", "kustomize", "yaml", "meta"),
    *("extensions", "auditregistration.k8s.io", "settings.k8s.io", "lifecycle.k8s.io"),
}
"""Components of the SDK, and groups that Kubernetes has removed, so that they can be anybody's."""


def reported(rule: AnyRule, text: str, **settings: Any) -> bool:
    return bool(findings(rule, {"it": manifest(f"{{{_METADATA}, {text}}}")}, settings))


def test_own_kinds_of_kubernetes_are_not_searched_for_pods() -> None:
    """As in the SDK, so that a group of a new version fails here."""
    text = Path(pulumi_kubernetes.__file__).read_text(encoding="utf-8")
    groups = set(re.findall(r'"kubernetes:([a-z0-9.]+)/v\w+:', text)) - _NOT_OF_OBJECTS
    assert len(groups) >= 20
    assert [group for group in sorted(groups) if pods.is_searched(Resource(f"kubernetes:{group}/v1:Any"))] == []
    assert pods.is_searched(Resource("kubernetes:sparkoperator.k8s.io/v1:Any"))


# Guards.

_FIELDS: Final = {
    "ValidatingAdmissionPolicy": [*v1.ValidatingAdmissionPolicySpecArgsDict.__annotations__],
    "MutatingAdmissionPolicy": [*v1.MutatingAdmissionPolicySpecArgsDict.__annotations__],
}
# Fields of a policy's spec that do not change its rejections, except by their value.
_HARMLESS: Final = {"audit_annotations", "failure_policy", "reinvocation_policy"}


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return "".join((first, *(word.capitalize() for word in more)))


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, fields in _FIELDS.items() for field in fields])
def test_a_patch_of_what_a_guard_decides_by_is_a_violation(kind: str, field: str) -> None:
    props = {"metadata": {"name": "gpu-tenancy-queue"}, "spec": {_camel(field): [{"name": "a"}]}}
    sample = Sample(f"kubernetes:admissionregistration.k8s.io/v1:{kind}Patch", props)
    found = [
        finding for finding in findings(tenancy.guards_not_weakened, {"it": sample}) if finding.outcome == "broken"
    ]
    assert bool(found) is (field not in _HARMLESS)


@pytest.mark.parametrize("field", [*v1.MatchResourcesArgsDict.__annotations__])
def test_a_binding_of_a_guard_is_not_narrowed(field: str) -> None:
    name, matching = "gpu-tenancy-queue", {_camel(field): {"a": 1}}
    spec = {"policyName": name, "validationActions": ["Deny"], "matchResources": matching}
    props = {"metadata": {"name": name}, "spec": spec}
    sample = Sample("kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding", props)
    allowed = field in {"match_policy", "namespace_selector"}
    assert bool(findings(tenancy.guards_not_weakened, {"it": sample})) is not allowed


# Work.


@pytest.mark.parametrize(
    ("version", "kind", "is_work"),
    [
        ("serving.knative.dev/v1", "Configuration", False),
        ("serving.kserve.io/v1beta1", "InferenceService", False),
        ("serving.kserve.io/v1alpha1", "LLMInferenceService", False),
        ("serving.kserve.io/v1alpha1", "ServingRuntime", False),
        ("serving.kserve.io/v1alpha1", "ClusterServingRuntime", False),
        ("apps.kruise.io/v1alpha1", "CloneSet", False),
        ("apps.kruise.io/v1beta1", "StatefulSet", False),
        ("apps.nvidia.com/v1alpha1", "NIMService", False),
        ("example.com/v1", "Service", True),
    ],
)
def test_work_that_serves_names_no_queue(version: str, kind: str, *, is_work: bool) -> None:
    text = f"apiVersion: {version}, kind: {kind}, spec: {{template: {{spec: {{{_GPU}}}}}}}"
    assert reported(jobs.batch_names_queue, text) is is_work


@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_a_runtime_without_gpus_can_select_nodes_with_gpus(kind: str) -> None:
    spec = "{nodeSelector: {nvidia.com/gpu.product: a}, containers: [{name: b}]}"
    text = (
        f"apiVersion: trainer.kubeflow.org/v1alpha1, kind: {kind}, spec: {{template: {{spec: {{replicatedJobs:"
        f" [{{name: a, template: {{spec: {{template: {{spec: {spec}}}}}}}}}]}}}}}}"
    )
    rule = next(rule for rule in PACKS[0].rules if rule.name == "cpu-pods-off-gpu-nodes")
    assert not reported(rule, text)


@pytest.mark.parametrize(
    "kind",
    ["apiVersion: batch.volcano.sh/v1alpha1, kind: Job", "apiVersion: flow.volcano.sh/v1alpha1, kind: JobTemplate"],
)
def test_work_of_volcano_names_its_queue_in_its_spec(kind: str) -> None:
    text = f"{kind}, spec: {{queue: a, tasks: [{{template: {{spec: {{{_GPU}}}}}}}]}}"
    assert not reported(jobs.batch_names_queue, text)
    assert reported(jobs.batch_names_queue, text.replace("queue: a, ", ""))


# Values of containers, routes and charts.


@pytest.mark.parametrize(("value", "is_reported"), [("none", False), ("void", False), ("''", False), ("all", True)])
def test_a_variable_that_selects_no_gpu_is_accepted(value: str, *, is_reported: bool) -> None:
    variable = f"{{name: NVIDIA_VISIBLE_DEVICES, value: {value}}}"
    text = f"apiVersion: v1, kind: Pod, spec: {{containers: [{{env: [{variable}]}}]}}"
    assert reported(security.gpu_visible_devices, text) is is_reported


@pytest.mark.parametrize("beside", ["repository", "tag", "version"])
def test_an_image_in_parts_is_not_checked(beside: str) -> None:
    text = "apiVersion: example.com/v1, kind: App, spec: {container: {image: a}}"
    assert reported(images.image_pinned, text)
    assert not reported(images.image_pinned, text.replace("image: a", f"image: a, {beside}: b"))


@pytest.mark.parametrize("kind", ["Gateway", "ListenerSet", "GRPCRoute", "HTTPRoute", "TLSRoute"])
def test_each_kind_of_route_claims_hosts(kind: str) -> None:
    spec = "{listeners: [{hostname: a.example.com}]}" if "Route" not in kind else "{hostnames: [a.example.com]}"
    text = f"apiVersion: gateway.networking.k8s.io/v1, kind: {kind}, spec: {spec}"
    assert reported(tenancy.route_hosts_reviewed, text)
    assert not reported(tenancy.route_hosts_reviewed, text, hosts=["ml/*.example.com"])


@pytest.mark.parametrize(
    "type_", ["kubernetes:helm.sh/v3:Release", "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v4:Chart"]
)
def test_each_kind_of_chart_has_a_version(type_: str) -> None:
    assert len(findings(images.charts_pinned, {"it": Sample(type_, {"chart": "a"})})) == 1
