"""Workloads, queues and roles: the values that decide about a violation, one at a time."""

from decimal import Decimal
from typing import Any, Final

import pytest
from policy_builders import UNKNOWN, Sample, findings, manifest, messages, rbac_object, with_field
from pulumi_policy import EnforcementLevel
from samples import shared

from rule_engine import Resource, Stack, UnknownValueError, View
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule
from workload_rules import PACK, images, jobs, placement, priorities, quotas, rbac, roles, tenancy
from workload_rules.objects import number_or_percentage
from workload_rules.pods import PODS
from workload_rules.rbac import BINDINGS, ROLES

_GPU: Final = "nvidia.com/gpu"


def parsed(text: str) -> Sample:
    """An object in one line; `GPUS` are the resources of a container with a GPU."""
    return manifest(text.replace("GPUS", "resources: {limits: {nvidia.com/gpu: 1}}").replace("UNKNOWN", UNKNOWN))


def pod(name: str, container: str, namespace: str = "ml", **spec: Any) -> Sample:
    sample = parsed(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{containers:"
        f" [{{name: main, {container}}}]}}}}"
    )
    sample.props["spec"] |= spec
    return sample


def outcomes(rule: AnyRule, *samples: Sample, **settings: Any) -> list[str]:
    given = {f"{index}": sample for index, sample in enumerate(samples)}
    found = findings(rule, given, settings)
    return [f"{finding.outcome} {finding.urn.rpartition(':')[2]}" for finding in found]


# GPUs of containers.


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: null}}", []),
        ("{limits: {nvidia.com/gpu: 1}, requests: {nvidia.com/gpu: 0}}", ["broken a"]),
        ("{requests: {nvidia.com/gpu: 0}}", []),
        ("{requests: {nvidia.com/gpu: 1}}", ["broken a"]),
    ],
)
def test_gpu_request_is_compared_with_the_limit_if_set(resources: str, expected: list[str]) -> None:
    assert outcomes(placement.gpu_request_equals_limit, pod("a", f"resources: {resources}")) == expected


def test_the_limit_of_a_part_of_a_pod_can_be_in_another_part() -> None:
    part = parsed(
        "{apiVersion: example.com/v1, kind: App, metadata: {name: a, namespace: ml},"
        " spec: {initContainers: [{name: b, resources: {requests: {nvidia.com/gpu: 1}}}]}}"
    )
    assert outcomes(placement.gpu_request_equals_limit, part) == []


_SHARED: Final = "resources: {limits: {nvidia.com/gpu.shared: 1}}"


def test_pods_with_other_nodes_or_other_gpus_share_with_others() -> None:
    on_a, on_b = {"node": "a"}, {"node": "b"}
    given = (
        pod("a", _SHARED, nodeSelector=on_a),
        pod("b", _SHARED, nodeSelector=on_b),
        pod("c", _SHARED, "other", nodeSelector=on_b),
    )
    assert outcomes(placement.time_slicing_trust, *given) == ["broken b", "broken c"]
    other = _SHARED.replace("gpu.shared", "a.shared")
    given = (pod("a", other), pod("b", _SHARED), pod("c", _SHARED, "other"))
    settings = {"gpus": ["nvidia.com/*"]}
    assert outcomes(placement.time_slicing_trust, *given, **settings) == ["broken b", "broken c"]


# Batch work.

_RAY: Final = (
    "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: a, namespace: ml}, spec: {headGroupSpec: {template:"
    " {spec: {schedulerName: HEAD, containers: [{name: b, HEADGPUS}]}}}, workerGroupSpecs: [{groupName: c, template:"
    " {spec: {schedulerName: WORKER, containers: [{name: d, GPUS}]}}}]}}"
)
_OF_KUEUE: Final = (
    "{apiVersion: batch/v1, kind: Job, metadata: {name: job, namespace: ml, labels: {kueue.x-k8s.io/queue-name: ml}},"
    " spec: {template: {spec: {containers: [{name: a, GPUS}]}}}}"
)


@pytest.mark.parametrize(
    ("head", "worker", "of_head", "expected"),
    [
        ("volcano", "default", "GPUS", ["broken a"]),
        ("volcano", "default", "image: b", []),
        ("default", "volcano", "image: b", ["broken a"]),
    ],
)
def test_work_is_volcanos_if_one_of_its_pods_with_gpus_is(
    head: str, worker: str, of_head: str, expected: list[str]
) -> None:
    text = _RAY.replace("HEADGPUS", of_head).replace("HEAD", head).replace("WORKER", worker)
    assert outcomes(jobs.one_batch_scheduler, parsed(text), parsed(_OF_KUEUE)) == expected


def test_schedulers_are_compared_by_namespace_and_gpus() -> None:
    given = [pod("a", "GPUS", "first"), pod("b", "GPUS"), pod("c", "resources: {limits: {amd.com/gpu: 1}}")]
    for sample in given:
        sample.props["spec"]["schedulerName"] = "volcano"
    given = [given[0], given[2], given[1]]
    assert outcomes(jobs.one_batch_scheduler, *given, parsed(_OF_KUEUE)) == ["broken b"]


def test_a_runtime_names_no_queue_and_other_objects_are_no_work() -> None:
    runtime = parsed(
        "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainingRuntime, metadata: {name: a, namespace: ml}, spec:"
        " {template: {spec: {replicatedJobs: [{name: b, template: {spec: {template: {spec: {containers:"
        " [{name: c, GPUS}]}}}}}]}}}}"
    )
    assert outcomes(jobs.batch_names_queue, runtime) == []
    assert not Evaluator(PACK).covers("aws:s3/bucket:Bucket")


def test_the_first_unknown_pod_is_named() -> None:
    jobset = parsed(
        "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a, namespace: ml}, spec: {"
        "replicatedJobs: [{name: b, template: {spec: {template: {spec: {containers: UNKNOWN}}}}},"
        " {name: c, template: {spec: {template: {spec: {containers: UNKNOWN}}}}}]}}"
    )
    (message,) = messages(findings(jobs.batch_names_queue, {"a": jobset}), "unknown")
    assert "spec.replicatedJobs.0.template.spec.template.spec.containers is unknown" in message


# Nodes and networks.


def test_each_template_of_an_object_selects_its_own_nodes() -> None:
    jobset = parsed(
        "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: a, namespace: ml}, spec: {"
        "replicatedJobs: [{name: b, template: {spec: {template: {spec: {nodeSelector: {a: b}, containers: [{}]}}}}},"
        " {name: c, template: {spec: {template: {spec: {nodeSelector: {e: f}, containers: [{}]}}}}}]}}"
    )
    parts = jobset.resource().parts(PODS)
    assert [dict(placement.node_labels(part)) for part in parts] == [{"a": frozenset("b")}, {"e": frozenset("f")}]


def test_exclusive_topology_of_pods_is_reported() -> None:
    job = parsed(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: a, namespace: ml}, spec: {template: {metadata: {"
        "annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}, spec: {containers: [{name: b}]}}}}"
    )
    assert outcomes(placement.affinity_own_namespace, job) == ["broken a"]


def test_a_percentage_is_of_the_total_and_rounded_up() -> None:
    assert [number_or_percentage(View(text), Decimal(101)) for text in ("1%", "100%", "7")] == [2, 101, 7]


def test_a_class_without_a_value_has_zero() -> None:
    server = with_field(shared("server"), "spec.template.spec.priorityClassName", "none")
    work = with_field(shared("training-job"), "spec.template.spec.priorityClassName", "one")
    none, one = (with_field(shared("low-class"), "metadata.name", name) for name in ("none", "one"))
    none = with_field(none, "value", None)
    given = {"server": server, "work": work, "none": none, "one": with_field(one, "value", 1)}
    (message,) = messages(findings(priorities.training_not_above_serving, given), "broken")
    assert "has one (1), which is higher than none (0)" in message


# Namespaces.


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ("{podSelector: {}}", ["Egress"]),
        ("{podSelector: {}, egress: []}", []),
        ("{podSelector: {}, policyTypes: [Egress]}", ["Ingress"]),
        ("{podSelector: {}, egress: [{}]}", ["Egress"]),
    ],
)
def test_a_policy_without_types_denies_what_it_has_rules_for(spec: str, missing: list[str]) -> None:
    space = parsed("{apiVersion: v1, kind: Namespace, metadata: {name: ml}}")
    metadata = "{name: a, namespace: ml}"
    policy = parsed(f"{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {metadata}, spec: {spec}}}")
    found = messages(findings(tenancy.default_deny, {"a": space, "b": policy}, {"egress": True}), "broken")
    assert [f" {direction} by default" in message for message in found for direction in missing] == [True] * len(
        missing
    )
    assert len(found) == len(missing)


def test_generated_namespace_has_its_pulumi_name() -> None:
    spaces = [Sample("kubernetes:core/v1:Namespace", {"metadata": {}}, name) for name in ("ml", "kube-system")]
    assert outcomes(tenancy.pod_security_level, *spaces) == ["broken ml"]


_CLAIMS: Final = [{"name": "a", "resourceClaimTemplateName": "gpus"}]
_TEMPLATE: Final = (
    "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpus, namespace: ml},"
    " spec: {spec: {devices: {requests: [REQUEST]}}}}"
)
_DOMAIN: Final = (
    "{apiVersion: resource.nvidia.com/v1beta1, kind: ComputeDomain, metadata: {name: a, namespace: ml},"
    " spec: {channel: {resourceClaimTemplate: {name: NAME}}}}"
)


@pytest.mark.parametrize(
    ("texts", "settings", "expected"),
    [
        ([], {}, ["unknown a"]),
        ([_TEMPLATE.replace("REQUEST", "{deviceClassName: gpu.nvidia.com}")], {}, ["broken a"]),
        ([_TEMPLATE.replace("REQUEST", "{exactly: {deviceClassName: gpu.nvidia.com}}")], {}, ["broken a"]),
        ([_TEMPLATE.replace("REQUEST", "{exactly: {deviceClassName: gpu}}")], {"classes": ["*"]}, ["broken a"]),
        ([_TEMPLATE.replace("REQUEST", "{exactly: {deviceClassName: nic}}")], {}, []),
        (
            [_TEMPLATE.replace("REQUEST", "{exactly: {deviceClassName: nic}}"), _DOMAIN.replace("NAME", "UNKNOWN")],
            {},
            [],
        ),
        ([_DOMAIN.replace("NAME", "gpus")], {}, []),
        ([_DOMAIN.replace("NAME", "gpus")], {"classes": ["compute-domain-*"]}, ["broken a"]),
        ([_DOMAIN.replace("NAME", "other")], {}, ["unknown a"]),
    ],
)
def test_a_claim_of_gpus_needs_a_quota(texts: list[str], settings: dict[str, Any], expected: list[str]) -> None:
    given = [pod("a", "image: b", resourceClaims=_CLAIMS), *(parsed(text) for text in texts)]
    assert outcomes(tenancy.gpu_namespace_quota, *given, **settings) == expected


# Queues.


@pytest.mark.parametrize(
    ("kind", "fields", "is_unread"),
    [
        ("v1beta2:ClusterQueue", {"cohortName": "all"}, True),
        ("v1beta1:ClusterQueue", {"cohort": "all"}, True),
        ("v1beta2:Cohort", {"parentName": "all"}, True),
        ("v1beta2:ClusterQueue", {"stopPolicy": "Hold"}, False),
    ],
)
def test_a_patch_of_the_cohort_is_about_the_quotas_of_the_object(
    kind: str, fields: dict[str, str], *, is_unread: bool
) -> None:
    sample = Sample(f"kubernetes:kueue.x-k8s.io/{kind}Patch", {"metadata": {"name": "a"}, "spec": fields})
    found = findings(quotas.borrowing_bounded, {"a": sample})
    assert ["not set by the patch" in finding.message for finding in found] == [True] * is_unread


@pytest.mark.parametrize(
    ("at", "to", "maximum", "expected"),
    [
        ("spec.cohortName", "all", {"amd.com/*": 1}, 0),
        ("spec.cohortName", "all", {"nvidia.com/*": 1}, 1),
        ("spec.cohortName", None, {"nvidia.com/*": 1}, 0),
    ],
)
def test_borrowing_is_bounded_by_the_resources_maximum(
    at: str, to: str | None, maximum: dict[str, int], expected: int
) -> None:
    queue = parsed(
        "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: a}, spec: {resourceGroups:"
        " [{flavors: [{name: b, resources: [{name: nvidia.com/gpu, nominalQuota: 1, borrowingLimit: 8}]}]}]}}"
    )
    given = {"it": with_field(queue, at, to) if to else queue}
    assert len(findings(quotas.borrowing_bounded, given, {"maximum": maximum})) == expected
    unlimited = with_field(given["it"], "spec.resourceGroups.0.flavors.0.resources.0.borrowingLimit", None)
    assert bool(findings(quotas.borrowing_bounded, {"it": unlimited})) is (to is not None)


# Roles and bindings.


def role(kind: str, name: str, rest: str, **labels: str) -> Sample:
    sample = rbac_object(kind, name, rest.replace("UNKNOWN", UNKNOWN))
    sample.props["metadata"] |= {"labels": labels}
    return sample


_READ: Final = "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]"
_ALL: Final = "rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]"
_SELECTING: Final = "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: x}}, {matchLabels: {a: y}}]}"
_BINDING: Final = (
    "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all},"
    " subjects: [{kind: Group, name: NAME}]"
)


@pytest.mark.parametrize(
    ("roles_of_stack", "expected"),
    [
        ([("ClusterRole", "some", _ALL, "y")], ["broken it"]),
        ([("ClusterRole", "some", _ALL, "z")], ["unknown it"]),
        ([("Role", "some", _ALL, "y")], ["unknown it"]),
        ([("Role", "some", _ALL, "y"), ("ClusterRole", "other", _READ, "x")], []),
    ],
)
def test_aggregated_role_has_rules_of_any_selector(
    roles_of_stack: list[tuple[str, str, str, str]], expected: list[str]
) -> None:
    given = [
        role("ClusterRoleBinding", "it", _BINDING.replace("NAME", "ml-research")),
        role("ClusterRole", "all", _SELECTING),
        *(role(kind, name, rest, a=label) for kind, name, rest, label in roles_of_stack),
    ]
    assert outcomes(roles.no_cluster_admin, *given) == expected


def test_an_aggregated_role_is_not_aggregated_into_itself() -> None:
    stack = Stack([role("ClusterRole", "all", _SELECTING, a="x").resource()])
    (one,) = stack.matching(ROLES, bool)
    assert rbac.aggregating(one, stack) == []


def test_subjects_of_a_harmless_role_do_not_matter() -> None:
    binding = role("ClusterRoleBinding", "it", _BINDING.replace("NAME", "UNKNOWN"))
    assert outcomes(roles.no_cluster_admin, binding, role("ClusterRole", "all", _READ)) == []
    assert outcomes(roles.no_cluster_admin, binding, role("ClusterRole", "all", _ALL)) == ["unknown it"]
    assert outcomes(roles.tenant_roles_bounded, binding, role("ClusterRole", "all", _READ)) == []


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


# Charts, and the GPU Operator.

_RELEASE: Final = Sample("kubernetes:helm.sh/v3:Release", {"chart": "gpu-operator", "values": {}}, "operator")


def test_release_without_a_chart_is_denied_and_a_chart_unknown() -> None:
    assert outcomes(images.charts_pinned, Sample(_RELEASE.type, {}, "a")) == ["broken a"]
    assert outcomes(images.charts_pinned, Sample("kubernetes:helm.sh/v3:Chart", {}, "a")) == ["unknown a"]


def test_pool_has_the_driver_that_its_profile_names() -> None:
    props = {"vmSize": "Standard_D4s_v5", "gpuProfile": {"driver": "Install"}}
    assert (
        outcomes(images.gpu_operator_driver_mode, Sample(shared("aks-pool").type, props, "a"), _RELEASE)
        == ["broken a"] * 2
    )


def test_a_node_label_does_not_excuse_a_driver_that_is_missing() -> None:
    labels = {"nvidia.com/gpu.deploy.driver": "false"}
    props = {"vmSize": "Standard_ND96isr_H100_v5", "gpuProfile": {"driver": "None"}, "nodeLabels": labels}
    without = with_field(_RELEASE, "values", {"driver": {"enabled": False}})
    pool = Sample(shared("aks-pool").type, props, "a")
    assert outcomes(images.gpu_operator_driver_mode, pool, without) == ["broken a"]
    assert outcomes(images.gpu_operator_driver_mode, pool, _RELEASE) == []
    assert images.gpu_operator_driver_mode.level is EnforcementLevel.MANDATORY
