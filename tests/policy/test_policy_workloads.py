"""Rules about workloads, queues and roles that samples cannot express: facts, remedies, and a whole tenancy."""

from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final, cast

import pytest
from google.protobuf import json_format, struct_pb2
from kit_builders import remediate
from policy_builders import UNKNOWN, Sample, findings, manifest, messages, rbac_object, secret, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire
from samples import shared

from rule_engine import Resource, Stack, UnknownValueError, View, rules_of
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule
from workload_rules import PACK, images, placement, priorities, quotas, rbac, scaling
from workload_rules.objects import number_or_percentage
from workload_rules.pods import PODS
from workload_rules.rbac import BINDINGS, ROLES

# Nodes and networks.


def test_each_template_of_an_object_selects_its_own_nodes() -> None:
    jobset = manifest(
        "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a, namespace: ml}, spec: {"
        "replicatedJobs: [{name: b, template: {spec: {template: {spec: {nodeSelector: {a: b}, containers: [{}]}}}}},"
        " {name: c, template: {spec: {template: {spec: {nodeSelector: {e: f}, containers: [{}]}}}}}]}}"
    )
    parts = jobset.resource().parts(PODS)
    assert [dict(placement.node_labels(part)) for part in parts] == [{"a": frozenset("b")}, {"e": frozenset("f")}]


def test_rules_of_workloads_are_about_kubernetes_alone() -> None:
    assert not Evaluator(PACK).covers("aws:s3/bucket:Bucket")


# Violations that a patch cannot express: it removes no field, so samples of them would be silent in this form.


def test_a_gpu_request_without_a_limit_is_reported() -> None:
    container = "{name: main, resources: {requests: {nvidia.com/gpu: 1}}}"
    pod = manifest(f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{containers: [{container}]}}}}")
    (message,) = messages(findings(placement.gpu_request_equals_limit, {"a": pod}), "broken")
    assert "requests 1 nvidia.com/gpu without a limit" in message


def test_a_class_without_a_value_has_zero() -> None:
    server = with_field(shared("server"), "spec.template.spec.priorityClassName", "none")
    work = with_field(shared("training-job"), "spec.template.spec.priorityClassName", "one")
    none, one = (with_field(shared("low-class"), "metadata.name", name) for name in ("none", "one"))
    given = {
        "server": server,
        "work": work,
        "none": with_field(none, "value", None),
        "one": with_field(one, "value", 1),
    }
    (message,) = messages(findings(priorities.training_not_above_serving, given), "broken")
    assert "has one (1), which is higher than none (0)" in message


def test_a_percentage_is_of_the_total_and_rounded_up() -> None:
    assert [number_or_percentage(View(text), Decimal(101)) for text in ("1%", "100%", "7")] == [2, 101, 7]


# Roles and bindings.


def role(kind: str, name: str, rest: str, **labels: str) -> Sample:
    sample = rbac_object(kind, name, rest)
    sample.props["metadata"] |= {"labels": labels}
    return sample


_SELECTING: Final = "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: x}}, {matchLabels: {a: y}}]}"
_BINDING: Final = (
    "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all},"
    " subjects: [{kind: Group, name: NAME}]"
)


def test_an_aggregated_role_is_not_aggregated_into_itself() -> None:
    stack = Stack([role("ClusterRole", "all", _SELECTING, a="x").resource()])
    (one,) = stack.matching(ROLES, bool)
    assert rbac.aggregating(one, stack) == []


def _listed(sample: Sample) -> Resource:
    (resource,) = Sample(f"{sample.type}List", {"items": [sample.props]}).resource().objects()
    return resource


def test_unknown_fields_of_listed_roles_are_named_in_place() -> None:
    binding = role("ClusterRoleBinding", "it", _BINDING.replace("NAME", "a"))
    stack = Stack([_listed(binding), _listed(role("ClusterRole", "all", _SELECTING))])
    (bound,) = stack.matching(BINDINGS, bool)
    with pytest.raises(UnknownValueError, match=r"^items\.0\.aggregationRule of ClusterRole all selects no"):
        list(rbac.rules_of(bound, stack))
    stack = Stack([_listed(role("ClusterRoleBinding", "it", "subjects: []"))])
    (bound,) = stack.matching(BINDINGS, bool)
    with pytest.raises(UnknownValueError, match=r"^items\.0\.roleRef is not set$"):
        list(rbac.rules_of(bound, stack))


# Remedies, and a whole tenancy.


RULES = rules_of(quotas, priorities, scaling, images)
TENANCY = {
    name: shared(name)
    for name in (
        *("server", "rank", "hpa", "budget", "quota", "scoped-quota", "limits", "critical-class", "low-class"),
        *("queue-class", "flavor", "cluster-queue", "local-queue", "groups-cohort", "org-cohort"),
    )
}


def mended(given: Sample, autoscaled: list[str]) -> dict[str, Any] | None:
    """A resource after the rule's remedy, over the wire; None if it is unchanged."""
    response = remediate(PACK, scaling.replicas_left_out.name, given, {"autoscaled": autoscaled})
    if not response.remediations:
        return None
    (remediation,) = cast("list[wire.Remediation]", response.remediations)
    return json_format.MessageToDict(remediation.properties)


def with_replicas(count: object) -> Sample:
    return with_field(shared("server"), "spec.replicas", count)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in RULES])
def test_a_consistent_tenancy_has_no_findings(rule: AnyRule) -> None:
    assert findings(rule, TENANCY) == []


@pytest.mark.parametrize("count", [10.0, UNKNOWN])
def test_remedy_removes_replicas_and_nothing_else(count: object) -> None:
    inputs = with_field(with_replicas(count), "spec.template.spec.containers.0.image", UNKNOWN)
    inputs = with_field(inputs, "metadata.annotations", {"token": secret("hunter2")})
    wanted = deepcopy(inputs.props)
    del wanted["spec"]["replicas"]
    sent = struct_pb2.Struct()
    sent.update(wanted)
    assert mended(inputs, ["ml-serving/*"]) == json_format.MessageToDict(sent)


@pytest.mark.parametrize(
    ("given", "autoscaled"),
    [
        pytest.param(with_replicas(10), [], id="it is not listed"),
        pytest.param(with_replicas(10), ["ml-research/*"], id="another namespace is listed"),
        pytest.param(shared("server"), ["*"], id="it has none"),
        pytest.param(replace(with_replicas(10), type="kubernetes:apps/v1:DaemonSet"), ["*"], id="another kind"),
        pytest.param(replace(with_replicas(10), type="aws:ecs/service:Service"), ["*"], id="another provider"),
        pytest.param(replace(with_replicas(10), props={"spec": UNKNOWN}), ["*"], id="nothing is known of it"),
    ],
)
def test_remedy_changes_listed_workloads_only(given: Sample, autoscaled: list[str]) -> None:
    assert mended(given, autoscaled) is None
