"""Each rule in each form of an object: patches, lists, components of Pulumi, and releases of charts."""

from pathlib import Path
from typing import Any, Final

import forms
import pytest
from policy_builders import TODAY, Sample, all_findings, findings, manifest, messages, rbac_object, with_field
from pulumi_policy import EnforcementLevel

from document import FORMS, read_set
from gpu_tenancy.engine.render import render
from gpu_tenancy.packs.process import Client
from rule_engine.evaluator import Evaluator, Outcome
from workload_rules import PACK, roles, scaling, tenancy

_PROD: Final = read_set("workloads", "prod")


def evaluator() -> Evaluator:
    made = Evaluator(PACK, TODAY)
    rows: dict[str, dict[str, Any]] = {
        name: row if isinstance(row, dict) else {"enforcementLevel": row} for name, row in _PROD.items()
    }
    levels = {name: row["enforcementLevel"] for name, row in rows.items() if "enforcementLevel" in row}
    made.configure(
        {name: EnforcementLevel(level) for name, level in levels.items()},
        {name: {key: row[key] for key in row if key != "enforcementLevel"} for name, row in rows.items()},
    )
    return made


PRODUCTION: Final = evaluator()


@pytest.mark.slow
@pytest.mark.parametrize("form", forms.FORMS)
def test_page_names_the_rules_that_a_form_silences(form: str) -> None:
    row = FORMS[form]
    assert forms.silent(form) == (forms.possible(form) if row.is_silent else sorted(row.rules))


def test_the_page_has_each_form() -> None:
    assert {*FORMS} == {*forms.FORMS}


_COMPONENTS: Final = """
from pulumi_kubernetes.helm.v4 import Chart
from pulumi_kubernetes.kustomize.v2 import Directory
from pulumi_kubernetes.yaml.v2 import ConfigFile, ConfigGroup

objects = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}]
ConfigGroup("a", objs=objects)
ConfigFile("b", file="a.yaml")
Chart("c", chart="./c")
Directory("d", directory=".")
"""


def test_provider_expands_components_of_version_two(tmp_path: Path) -> None:
    """Otherwise they need rows of their own: then a pack sees their objects also without a provider."""
    (tmp_path / "__main__.py").write_text(_COMPONENTS, encoding="utf-8")
    made = render(tmp_path, project="forms", stack="all", config={}, answers={}).registrations
    assert [(each.type, each.custom) for each in made if each.type.startswith("kubernetes:")] == [
        ("kubernetes:helm.sh/v4:Chart", False),
        ("kubernetes:kustomize/v2:Directory", False),
        ("kubernetes:yaml/v2:ConfigFile", False),
        (forms.COMPONENT, False),
    ]


# Patches of the second review of the guards, and honest ones that look alike.


def patch(kind: str, name: str = "it", **fields: Any) -> Sample:
    version, _, bare = kind.partition(":")
    metadata = {"name": name, "namespace": "ml-research", **fields.pop("metadata", {})}
    return Sample(f"kubernetes:{version}:{bare}Patch", {"metadata": metadata, **fields})


_POLICY: Final = "admissionregistration.k8s.io/v1"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_FLAVOR: Final[dict[str, Any]] = {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 8}]}
ATTEMPTS: Final = {
    "pod-security-level": patch("core/v1:Namespace", metadata={"labels": {_ENFORCE: "privileged"}}),
    "quota-requests-prefix": patch("core/v1:ResourceQuota", spec={"hard": {"nvidia.com/gpu": 8}}),
    "limit-range-gpus": patch(
        "core/v1:LimitRange", spec={"limits": [{"type": "Container", "default": {"nvidia.com/gpu": 8}}]}
    ),
    "borrowing-bounded": patch(
        "kueue.x-k8s.io/v1beta2:ClusterQueue",
        spec={"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [_FLAVOR]}]},
    ),
    "network-policy-open": patch("networking.k8s.io/v1:NetworkPolicy", spec={"ingress": [{}]}),
    "guards-not-weakened": patch(
        f"{_POLICY}:ValidatingAdmissionPolicyBinding", "gpu-tenancy-queue", spec={"validationActions": ["Audit"]}
    ),
    "cohort-named": patch("kueue.x-k8s.io/v1beta2:ClusterQueue", spec={"preemption": {"reclaimWithinCohort": "Any"}}),
    "quota-scopes": patch("core/v1:ResourceQuota", spec={"hard": {"services": 8}, "scopes": ["BestEffort"]}),
    "no-external-ips": patch("core/v1:Service", spec={"externalIPs": ["192.0.2.1"]}),
}
_NO_GPU: Final = {"nvidia.com/gpu": 0}
_OF_AN_IMAGE: Final = {"name": "main", "image": f"registry.example.com/a@sha256:{'0' * 64}"}
# Patches that break a rule or not, by the object's other fields.
HALVES: Final = {
    "borrowing-bounded": patch("kueue.x-k8s.io/v1beta2:ClusterQueue", spec={"cohortName": "all"}),
    "no-host-paths": Sample(
        "kubernetes:core/v1:PersistentVolumePatch",
        {"metadata": {"name": "it"}, "spec": {"claimRef": {"namespace": "ml-research", "name": "data"}}},
    ),
    "no-cluster-admin": Sample(
        "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBindingPatch",
        {"metadata": {"name": "it"}, "subjects": [{"kind": "Group", "name": "ml-research"}]},
    ),
}
TWINS: Final = {
    "quota-requests-prefix": patch("core/v1:ResourceQuota", spec={"hard": {"requests.nvidia.com/gpu": 8}}),
    "quota-scopes": patch("core/v1:ResourceQuota", spec={"hard": {"services": 8}}),
    "no-external-ips": patch("core/v1:Service", spec={"ports": [{"port": 80}]}),
    "replicas": patch("apps/v1:Deployment", spec={"replicas": 3}),
    "pod-security-level": patch("core/v1:Namespace", metadata={"labels": {_ENFORCE: "restricted"}}),
    "limit-range-gpus": patch(
        "core/v1:LimitRange", spec={"limits": [{"type": "Container", "default": _NO_GPU, "defaultRequest": _NO_GPU}]}
    ),
    "borrowing-bounded": patch("kueue.x-k8s.io/v1beta2:ClusterQueue", spec={"stopPolicy": "Hold"}),
    "network-policy-open": patch(
        "networking.k8s.io/v1:NetworkPolicy", spec={"ingress": [{"from": [{"podSelector": {}}]}]}
    ),
    "guards-not-weakened": patch(
        f"{_POLICY}:ValidatingAdmissionPolicyBinding", "of-another", spec={"validationActions": ["Audit"]}
    ),
    "an image": patch("apps/v1:Deployment", spec={"template": {"spec": {"containers": [_OF_AN_IMAGE]}}}),
}


def found(sample: Sample) -> list[tuple[str, EnforcementLevel, str]]:
    return [
        (finding.rule.name, finding.level, finding.message)
        for finding in all_findings(PRODUCTION, [sample])
        if finding.outcome is not Outcome.UNKNOWN
    ]


@pytest.mark.parametrize("rule", ATTEMPTS)
def test_patch_violates_a_mandatory_rule(rule: str) -> None:
    assert (rule, EnforcementLevel.MANDATORY) in {(name, level) for name, level, _ in found(ATTEMPTS[rule])}


@pytest.mark.parametrize("rule", HALVES)
def test_half_of_a_violation_has_the_level_of_the_rule(rule: str) -> None:
    (message,) = (
        text for name, level, text in found(HALVES[rule]) if (name, level) == (rule, EnforcementLevel.MANDATORY)
    )
    assert "not set by the patch; set it in the patch too" in message


@pytest.mark.parametrize("name", TWINS)
def test_an_honest_patch_passes(name: str) -> None:
    assert found(TWINS[name]) == []


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_patch_of_a_label_passes(attempt: str) -> None:
    metadata = {**ATTEMPTS[attempt].props["metadata"], "labels": {"example.com/note": "seen"}}
    label = Sample(ATTEMPTS[attempt].type, {"metadata": metadata})
    assert found(label) == []


def test_each_kind_of_the_cases_can_have_a_patch_of_a_label() -> None:
    made = [each.changed for rule in PACK.rules for each in forms.violations(rule.name)]
    kinds = {sample.type for sample in made if sample.type.startswith("kubernetes:") and "helm.sh" not in sample.type}
    for kind in sorted(kinds):
        token = kind.removesuffix("Patch").removesuffix("List")
        metadata = {"name": "it", "namespace": "ml-research", "labels": {"example.com/note": "seen"}}
        assert found(Sample(f"{token}Patch", {"metadata": metadata})) == [], kind


# What a patch leaves of an object that is in the same stack.

SPACE: Final = manifest("""
apiVersion: v1
kind: Namespace
metadata: {name: ml-research}
""")
DENY: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: it, namespace: ml-research}
spec: {podSelector: {}, policyTypes: [Ingress]}
""")


def test_evaluates_an_object_with_its_patch() -> None:
    given = {"space": SPACE, "deny": DENY}
    assert findings(tenancy.default_deny, given) == []
    opened = messages(findings(tenancy.default_deny, {**given, "patch": ATTEMPTS["network-policy-open"]}), "broken")
    assert [message.partition(";")[0] for message in opened] == [
        "Namespace ml-research: no NetworkPolicy denies Ingress by default"
    ]
    elsewhere = with_field(ATTEMPTS["network-policy-open"], "metadata.name", "other")
    assert findings(tenancy.default_deny, {**given, "patch": elsewhere}) == []


def test_evaluates_patched_replicas_with_the_autoscaler() -> None:
    autoscaler = manifest("""
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: it, namespace: ml-research}
    spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: it}, minReplicas: 2, maxReplicas: 4}
    """)
    given = {"it": TWINS["replicas"]}
    assert findings(scaling.replicas_left_out, given) == []
    assert len(findings(scaling.replicas_left_out, {**given, "autoscaler": autoscaler})) == 1


def test_patch_without_needed_fields_has_the_level_of_the_rule() -> None:
    policy = patch("networking.k8s.io/v1:NetworkPolicy", spec={"policyTypes": ["Ingress"]})
    (finding,) = findings(tenancy.default_deny, {"space": SPACE, "policy": policy})
    assert finding.level is tenancy.default_deny.level
    assert finding.message.startswith(
        "Namespace ml-research: not evaluated: NetworkPolicyPatch ml-research/it: spec.podSelector"
    )


def test_evaluates_a_patched_role_with_its_bindings() -> None:
    role = rbac_object("ClusterRole", "all", "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]")
    wide = rbac_object("ClusterRolePatch", "all", "rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]")
    binding = rbac_object(
        "ClusterRoleBinding",
        "all",
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all},"
        " subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-research}]",
    )
    assert findings(roles.no_cluster_admin, {"role": role, "binding": binding}) == []
    assert len(findings(roles.no_cluster_admin, {"role": role, "binding": binding, "patch": wide})) == 1


def test_a_list_of_unknown_length_is_not_evaluated() -> None:
    unknown = Sample("kubernetes:core/v1:NamespaceList", {"items": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"})
    (finding,) = findings(tenancy.pod_security_level, {"it": unknown})
    assert (finding.outcome, "items is unknown" in finding.message) == (Outcome.UNKNOWN, True)


def test_a_list_of_any_kinds_has_objects_of_their_own_kinds() -> None:
    items = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}, {"kind": "Other"}, 7]
    (finding,) = findings(tenancy.pod_security_level, {"it": Sample("kubernetes:core/v1:List", {"items": items})})
    assert finding.message.startswith("Namespace a: enforces no Pod Security level")


# Samples in a process, as Pulumi asks it.


@pytest.mark.process
@pytest.mark.parametrize("rule", ["quota-requests-prefix", "guards-not-weakened"])
def test_a_process_reports_a_patch_and_passes_its_label(packs: dict[str, Client], rule: str) -> None:
    client, sample = packs["workloads"], ATTEMPTS[rule]
    diagnostics = client.analyze(sample.request())
    assert rule in {diagnostic.policyName for diagnostic, _ in diagnostics}
    label = {"metadata": {**sample.props["metadata"], "labels": {"example.com/note": "seen"}}}
    assert client.analyze(Sample(sample.type, label).request()) == []
