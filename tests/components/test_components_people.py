"""Bindings and roles as the program declares them."""

from typing import Any, cast

from builders import Data, stack, team
from components_builders import Program, tenancy

EVERYBODY = {"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}


def made(**sections: Any) -> Program:
    members: Data = {"leads": ["group:heads"], "researchers": ["user:ann"], "viewers": ["serviceaccount:ci/robot"]}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, members=members, workloadSecrets=["s3"]), "b": team()}
    people: Data = {"admins": ["group:platform"], "auditors": ["group:audit"]}
    return tenancy(stack(**{"teams": teams, "people": people, **sections}))


def binding(program: Program, kind: str, name: str, namespace: str = "") -> tuple[str, list[Data]]:
    """The role and the subjects of a binding."""
    body = cast("Any", program.only(kind, name, namespace).manifest)
    assert body["roleRef"]["kind"] == "ClusterRole"
    return body["roleRef"]["name"], body["subjects"]


def test_there_is_one_binding_for_each_role_that_people_have_in_a_namespace() -> None:
    program = made()
    assert [(one.namespace, one.name) for one in program.every("RoleBinding")] == [
        ("a", "gpu-tenancy-leads"),
        ("a", "gpu-tenancy-researchers"),
        ("a", "gpu-tenancy-viewers"),
    ]
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    assert binding(program, "RoleBinding", "gpu-tenancy-leads", "a") == (
        "gpu-tenancy-lead",
        [{**group, "kind": "Group", "name": "heads"}],
    )
    assert binding(program, "RoleBinding", "gpu-tenancy-researchers", "a") == (
        "gpu-tenancy-researcher",
        [{**group, "kind": "User", "name": "ann"}],
    )
    assert binding(program, "RoleBinding", "gpu-tenancy-viewers", "a") == (
        "gpu-tenancy-viewer",
        [{"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}],
    )


def test_in_the_whole_cluster_only_listed_people_are_bound() -> None:
    program = made()
    names = {name: binding(program, "ClusterRoleBinding", f"gpu-tenancy-{name}") for name in bound(program)}
    assert {name: (role, [one["name"] for one in subjects]) for name, (role, subjects) in names.items()} == {
        "people-admins": ("cluster-admin", ["platform"]),
        "auditors": ("gpu-tenancy-auditor", ["audit"]),
        "members": ("gpu-tenancy-member", ["heads", "robot", "ann"]),
    }


def bound(program: Program) -> list[str]:
    return [one.name.removeprefix("gpu-tenancy-") for one in program.every("ClusterRoleBinding")]


def test_every_bound_role_is_made_and_nobody_binds_everybody() -> None:
    program = made()
    roles = {one.name for one in program.every("ClusterRole")} | {"cluster-admin"}
    bindings: list[Any] = [
        one.manifest for kind in ("RoleBinding", "ClusterRoleBinding") for one in program.every(kind)
    ]
    assert {one["roleRef"]["name"] for one in bindings} == roles
    assert not {subject["name"] for one in bindings for subject in one["subjects"]} & EVERYBODY


def test_roles_as_declared_have_no_wildcards_and_no_rights_to_give_rights() -> None:
    rules: list[Any] = [rule for one in made().every("ClusterRole") for rule in cast("Any", one.manifest)["rules"]]
    assert rules
    for rule in rules:
        values = {value for values in rule.values() for value in values}
        assert not values & {"*", "escalate", "bind", "impersonate"}


def test_without_people_nobody_is_bound() -> None:
    program = made(teams={"a": team()}, people={})
    assert [one for kind in ("ClusterRole", "RoleBinding") for one in program.every(kind)] == []
    assert bound(program) == []


RULES = {"accounts", "priority", "secrets", "tokens", "queue-objects"}


def test_rules_about_people_deny_whatever_the_action_of_the_guards() -> None:
    for action in ("warn", "off"):
        program = made(guards=action)
        for rule in RULES:
            spec = program.spec("ValidatingAdmissionPolicyBinding", f"gpu-tenancy-{rule}")
            assert spec["validationActions"] == ["Deny"], rule


def test_without_members_there_are_no_rules_about_people() -> None:
    program = made(teams={"a": team()})
    names = {one.name.removeprefix("gpu-tenancy-") for one in program.every("ValidatingAdmissionPolicy")}
    assert names & RULES == {"queue-objects"}
    spec = program.spec("ValidatingAdmissionPolicyBinding", "gpu-tenancy-queue-objects")
    assert spec["validationActions"] == ["Warn", "Audit"]


def test_secrets_that_researchers_may_use_are_a_fact_of_the_namespace() -> None:
    metadata = cast("Any", made().only("Namespace", "a").manifest)["metadata"]
    assert metadata["annotations"]["guards.gpu-tenancy.dev/workload-secrets"] == "s3"
