"""Rules for roles and bindings: roles of other stacks, patches, and many bindings of one role."""

import pytest
from policy_builders import Sample, doubt, findings, messages, rbac_object, with_field

from rule_engine.rules import AnyRule
from workload_rules import roles

SUBJECTS = "subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: ml-research}]"
ROLE_REF = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: of-another-stack}"
BINDING = rbac_object("ClusterRoleBinding", "team", f"{ROLE_REF}, {SUBJECTS}")
ROLE = rbac_object("ClusterRole", "of-another-stack", "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]")
EVALUATING_BINDINGS = [roles.no_cluster_admin, roles.no_cluster_wide_secrets, roles.tenant_roles_bounded]
PLACE = "ClusterRoleBinding team"
ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def unknown(rule: AnyRule, settings: dict[str, list[str]] | None = None, **given: Sample) -> tuple[str, ...]:
    found = findings(rule, given, settings)
    assert messages(found, "broken") == ()
    return messages(found, "unknown")


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in EVALUATING_BINDINGS])
def test_role_of_another_stack_is_unknown_until_reviewed(rule: AnyRule) -> None:
    why = "references ClusterRole of-another-stack, which is not in this stack"
    assert unknown(rule, binding=BINDING) == (doubt(PLACE, "roleRef.name", why),)
    assert unknown(rule, {"reviewed": ["of-another-*"]}, binding=BINDING) == ()
    assert unknown(rule, {"admins": ["Group:ml-research"]}, binding=BINDING) == ()
    assert unknown(rule, binding=BINDING, role=ROLE) == ()


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in EVALUATING_BINDINGS])
def test_role_that_aggregates_other_stacks_roles_is_unknown(rule: AnyRule) -> None:
    selecting = "aggregationRule: {clusterRoleSelectors: [{matchLabels: {example.com/suite: 'true'}}]}"
    role = rbac_object("ClusterRole", "of-another-stack", selecting)
    why = "of ClusterRole of-another-stack selects no ClusterRole of this stack"
    assert unknown(rule, binding=BINDING, role=role) == (doubt(PLACE, "aggregationRule", why),)


def test_a_patch_of_a_role_is_evaluated_as_the_role() -> None:
    patch = rbac_object("ClusterRolePatch", "view", "rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]")
    given = {"patch": patch, "binding": with_field(BINDING, "roleRef.name", "view")}
    assert len(messages(findings(roles.no_cluster_admin, given), "broken")) == 1
    assert len(messages(findings(roles.no_wildcard_roles, given), "broken")) == 1


def test_a_patch_of_a_binding_does_not_have_its_role() -> None:
    patch = rbac_object("ClusterRoleBindingPatch", "team", SUBJECTS)
    (found,) = messages(findings(roles.no_cluster_admin, {"patch": patch}), "broken")
    assert found == (
        "ClusterRoleBindingPatch team: not evaluated: roleRef is not set by the patch; set it in the patch too, or"
        " change the object in its own stack"
    )


def test_reports_each_binding_of_a_role_with_its_subjects() -> None:
    second = with_field(with_field(BINDING, "metadata.name", "second"), "subjects.0.name", "ml-serving")
    role = with_field(ROLE, "rules.0", ALL)
    found = messages(findings(roles.no_cluster_admin, {"a": BINDING, "b": second, "role": role}), "broken")
    assert [message.partition(";")[0] for message in found] == [
        f"ClusterRoleBinding {name}: binds ClusterRole of-another-stack, which can do everything, to Group {group}"
        for name, group in (("team", "ml-research"), ("second", "ml-serving"))
    ]
