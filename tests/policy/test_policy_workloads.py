"""Rules about workloads that samples cannot express, the names that rules use, and namespaces without a tenant."""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pulumi_kubernetes
import pytest
from builders import planned, stack
from google.protobuf import json_format, struct_pb2
from kit_builders import remediate
from policy_builders import UNKNOWN, Sample, findings, manifest, messages, rbac_object, secret, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire
from samples import cases_of, shared

from components.guards import DEFAULTS, actions, mutation, spec
from components.objects import wire as as_sent
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.plan.guards import GuardsPlan
from rule_engine import Resource, Stack, UnknownValueError, View, rules_of
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule, ConfigError
from workload_rules import PACK, guards, images, placement, pods, priorities, quotas, rbac, scaling, security
from workload_rules.objects import number_or_percentage
from workload_rules.pods import PODS, SYSTEM, Tenants
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


_NOT_OF_OBJECTS: Final = {
    *("helm.sh", "kustomize", "yaml", "meta"),
    *("extensions", "auditregistration.k8s.io", "settings.k8s.io", "lifecycle.k8s.io"),
}
"""Components of the SDK, and groups that Kubernetes has removed, so that they can be anybody's."""


def test_own_kinds_of_kubernetes_are_not_searched_for_pods() -> None:
    """As in the SDK, so that a group of a new version fails here."""
    text = Path(pulumi_kubernetes.__file__).read_text(encoding="utf-8")
    groups = set(re.findall(r'"kubernetes:([a-z0-9.]+)/v\w+:', text)) - _NOT_OF_OBJECTS
    assert len(groups) >= 20
    assert [group for group in sorted(groups) if pods.is_searched(Resource(f"kubernetes:{group}/v1:Any"))] == []
    assert pods.is_searched(Resource("kubernetes:sparkoperator.k8s.io/v1:Any"))


# Guards.

_PLAN: Final = planned(stack(guards={"exempt": ["bot@example.com", "it's\\"]})).guards
_DEPLOY: Final = "deploy the stack that creates the guards, with the pack of the same release"


def guard(which: str, plan: GuardsPlan = _PLAN) -> Sample:
    """A policy of a stack as Pulumi registers it; of `default-*`, one that completes objects."""
    kind, given = (
        ("Mutating", mutation(which.removeprefix("default-"), plan))
        if which.startswith("default-")
        else ("Validating", spec(which, plan))
    )
    props = {"metadata": {"name": f"gpu-tenancy-{which}"}, "spec": as_sent(given)}
    return Sample(f"kubernetes:admissionregistration.k8s.io/v1:{kind}AdmissionPolicy", props)


def weaknesses(sample: Sample) -> list[str]:
    found = findings(guards.guards_not_weakened, {"it": sample})
    return [finding.message.partition(": ")[2].removesuffix(f"; {_DEPLOY}") for finding in found]


@pytest.mark.parametrize("which", [*actions(_PLAN), *(f"default-{name}" for name in DEFAULTS)])
def test_guards_of_a_stack_are_not_weakened(which: str) -> None:
    assert weaknesses(guard(which)) == []


_USERS: Final = "matchConditions.0.expression"
_SELF: Final = "[request.userInfo.username]"
_BOT: Final = "bot@example.com"
_GPU_NAME: Final = "'nvidia.com/gpu', "


@pytest.mark.parametrize(
    ("path", "value", "weakness"),
    [
        ("failurePolicy", "Ignore", "failurePolicy differs"),
        ("failurePolicy", None, "failurePolicy is missing"),
        ("validations", [], "validations differs"),
        ("validations.0.expression", "true", "validations differs"),
        ("validations.0.message", "no", "validations differs"),
        ("matchConditions.0.name", "other", "matchConditions differs"),
        (_USERS, "false", "matchConditions differs"),
        (_USERS, ("['system:masters',", f"{_SELF} + ["), "matchConditions differs"),
        (_USERS, ("'bot@example.com'", "request.userInfo.username"), "matchConditions differs"),
        (_USERS, ("!(", "false && !("), "matchConditions differs"),
        (_USERS, (_BOT, r"\x73ystem:authenticated"), "matchConditions differs"),
        (_USERS, (_BOT, "system:authenticated"), "matchConditions exempts system:auth"),
        (_USERS, (_BOT, "system:serviceaccount:ml:x"), "matchConditions exempts system:service"),
        ("variables.0.expression", "''", "variables differs"),
        ("variables", ("max-gpus-per", "min"), "variables differs"),
        ("variables", (_GPU_NAME, ""), "variables lacks nvidia.com/gpu"),
        ("matchConstraints.objectSelector", {"matchLabels": {"a": "b"}}, "matchConstraints differs"),
        ("matchConstraints.excludeResourceRules", [{"scope": "*"}], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.operations", ["CREATE"], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.resources", ["pods"], "matchConstraints lacks replicationcontrollers"),
        ("matchConstraints.resourceRules.0.resourceNames", ["a"], "matchConstraints differs"),
        ("matchConstraints.resourceRules.0.scope", "Cluster", "matchConstraints differs"),
        ("auditAnnotations", [{"key": "a"}], "auditAnnotations is not a field of the guard"),
    ],
)
def test_changes_of_a_guard_are_reported(path: str, value: Any, weakness: str) -> None:
    """A pair of texts replaces the first in the value by the second."""
    whole = guard("amount")
    if isinstance(value, tuple):
        changed: Any = whole.props["spec"]
        for key in path.split("."):
            changed = changed[int(key) if key.isdigit() else key]
        old, new = (json.dumps(text)[1:-1] for text in cast("tuple[str, str]", value))
        value = json.loads(json.dumps(changed).replace(old, new))
    weakened = with_field(whole, f"spec.{path}", value)
    assert weakened != whole
    (found,) = weaknesses(weakened)
    assert weakness in found


def test_any_literals_of_a_stack_are_the_guard() -> None:
    few = replace(_PLAN, exempt=(), makers=(), trainer=None, max_per_node={}, taints={}, priorities={})
    many = replace(_PLAN, exempt=tuple(f"user-{n}@example.com" for n in range(40)), max_per_node={"nvidia.com/gpu": 8})
    assert [weaknesses(guard(which, plan)) for plan in (few, many) for which in ("amount", "queue")] == [[]] * 4


BY_PLATFORM = "monitoring"
"""The namespace of Prometheus: tenants too have one of this name, so the configurations in policy/config list it."""


def pod(namespace: str) -> Sample:
    return manifest(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: miner, namespace: {namespace}}}, spec: {{hostPID: true,"
        " containers: [{name: main, securityContext: {privileged: true}}]}}"
    )


@pytest.mark.parametrize("namespace", SYSTEM)
def test_pods_of_system_namespaces_are_not_checked(namespace: str) -> None:
    assert findings(security.no_privileged, {"it": pod(namespace)}) == []


@pytest.mark.parametrize(
    "namespace",
    ["recommender-system", "gke-team", "kube-ml", "gmp-team", "monitoring", "kube-system2", "default", "karpenter"],
)
def test_checks_namespaces_with_names_like_system_ones(namespace: str) -> None:
    for rule in (security.no_privileged, security.no_host_namespaces):
        assert [finding.level for finding in findings(rule, {"it": pod(namespace)})] == [rule.level]


def test_platform_adds_namespaces_to_the_system_namespaces() -> None:
    settings = {"platform": ["recommender-system"]}
    assert findings(security.no_privileged, {"it": pod("recommender-system")}, settings) == []
    assert findings(security.no_privileged, {"it": pod("kube-system")}, settings) == []
    assert findings(security.no_privileged, {"it": pod("news-system")}, settings) != []


@pytest.mark.parametrize("setting", ["system", "platform"])
@pytest.mark.parametrize("value", ["*-system", "kube-*", "gke-?", "ml-[ab]", "Kube-System", "", "a" * 64])
def test_a_pattern_is_refused_with_place_value_and_fix(setting: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        security.no_privileged.parse_settings({setting: ["kube-system", value]})
    assert str(refused.value) == (
        f"no-privileged.{setting}: {value!r} is not the name of a namespace; list exact names, without patterns"
    )


def test_namespaces_of_operators_are_system_namespaces() -> None:
    namespaces = {chart.namespace for chart in charts().values()}
    assert namespaces - {*SYSTEM} == {BY_PLATFORM}


def test_all_rules_have_the_same_system_namespaces() -> None:
    defaults = [rule.parse_settings({}) for rule in PACK.rules]
    assert {tuple(settings.system) for settings in defaults if isinstance(settings, Tenants)} == {tuple(SYSTEM)}


# Rules about tenants with their samples in namespaces of no tenant.

EVERYWHERE: Final = {
    "kueue-manages-all",
    "no-binding-to-everybody",
    "no-cluster-admin",
    "no-wildcard-roles",
    "priority-exists",
    "queue-exists",
    "reference-grants-reviewed",
}
"""Rules about objects in all namespaces: for them, a tenant is defined otherwise, such as by a right."""
# Starts of messages about a namespace, or about an object in one.
IN_NAMESPACE: Final = re.compile(r"Namespace |\w+ [\w-]+/")


def of_tenants() -> list[object]:
    rules = PACK.rules
    return [pytest.param(one, id=one.name) for one in rules if one.settings and issubclass(one.settings, Tenants)]


def namespaces(given: Mapping[str, Sample]) -> Iterator[str]:
    for sample in given.values():
        if sample.type.startswith("kubernetes:"):
            metadata = sample.props.get("metadata", {})
            yield metadata.get("name", sample.name) if sample.type.endswith(":Namespace") else "default"
            yield metadata.get("namespace", "default")


@pytest.mark.parametrize("setting", ["system", "platform"])
@pytest.mark.parametrize("rule", of_tenants())
def test_a_rule_for_tenants_reports_nothing_in_other_namespaces(rule: AnyRule, setting: str) -> None:
    reported = [
        finding.message
        for case in cases_of(rule.name, "denied")
        for finding in findings(rule, case.program, {**case.settings, setting: sorted({*namespaces(case.program)})})
        if IN_NAMESPACE.match(finding.message)
    ]
    assert bool(reported) == (rule.name in EVERYWHERE), reported
