"""Rights of people, by a stack alone."""

from pathlib import Path

import pytest
from object_server import serving
from people_builders import OTHER, OWN, SIBLING, Desk

from gpu_tenancy.access.rules import Resource, Rule
from gpu_tenancy.base.json import at
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.names import KUEUE, STACK

PODS, SCALE = Resource("", "pods", namespaced=True), Resource("apps", "deployments/scale", namespaced=True)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk.at(tmp_path / "project")


def rule(groups: str, resources: str, verbs: str, names: str = "") -> Rule:
    groups_, resources_, verbs_ = (frozenset(words.split(",")) for words in (groups, resources, verbs))
    return Rule(groups_, resources_, verbs_, frozenset(names.split()))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (rule("*", "*", "*"), "pods scale"),
        (rule("apps", "*", "get"), "scale"),
        (rule("apps", "deployments", "get"), ""),
        (rule("*", "*/scale", "get"), "scale"),
        (rule("*", "pods,deployments/scale", "get"), "pods scale"),
        (rule("*", "*", "list"), ""),
        (rule("", "pods", "get"), "pods"),
        (rule("", "pods", "get", "one"), ""),
    ],
)
def test_a_rule_allows_what_the_api_server_allows(given: Rule, expected: str) -> None:
    asked = {"pods": PODS, "scale": SCALE}
    assert {name for name, resource in asked.items() if given.allows("get", resource)} == {*expected.split()}


def test_who_can_lists_people_with_their_role_and_the_teams(desk: Desk) -> None:
    assert desk.lines("access", "who-can", "create", "pods/exec") == [
        "who where role",
        "group:platform-admins whole cluster cluster-admin",
        f"group:research-leads {SIBLING}, {OWN} gpu-tenancy-lead",
        f"serviceaccount:default/ci-vision {OWN} gpu-tenancy-researcher",
        f"user:ann@example.com {OWN} gpu-tenancy-researcher",
    ]
    assert desk.lines("access", "who-can", "get", "secret", "-n", OTHER) == [
        "who where role",
        "group:platform-admins whole cluster cluster-admin",
    ]


def test_names_are_those_that_kubectl_accepts(desk: Desk) -> None:
    first = desk.lines("access", "who-can", "delete", "jobs.batch")
    assert len(first) == 5
    assert [desk.lines("access", "who-can", "delete", name) for name in ("job", "jobs", "Job")] == [first] * 3
    assert desk.lines("access", "who-can", "get", "no") == desk.lines("access", "who-can", "get", "nodes")
    assert len(desk.lines("access", "who-can", "get", "nodes")) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("access", "who-can", "gett", "pods"), "error: VERB: unknown verb 'gett'; did you mean 'get'?"),
        (("access", "who-can", "get", "podz"), "error: RESOURCE: unknown resource 'podz'; did you mean 'pods'?"),
        (("access", "who-can", "get", "pods", "-n", "nobody"), "error: no stack has a team 'nobody'; specify a stack"),
        (("access", "who-can", "get", "pods", "-n", "web", "--stack", "people"), "error: stack people: unknown team"),
        (("access", "kubeconfig", "nope", "--stack", "people"), "error: stack people: unknown team 'nope'; use one"),
        (("access", "kubeconfig", OWN, "--as", "an"), "error: --as: 'an' is not a person; write user:NAME"),
        (("access", "kubeconfig", OWN, "--as", "serviceaccount:ci"), "error: --as: 'serviceaccount:ci' is not a"),
    ],
)  # fmt: skip
def test_errors_name_the_argument_the_value_and_the_fix(desk: Desk, arguments: tuple[str, ...], message: str) -> None:
    assert desk.error(*arguments).startswith(message)


def test_a_resource_of_several_groups_needs_one(tmp_path: Path) -> None:
    desk = Desk.at(tmp_path / "project", operators={"volcano": "installed"})
    assert desk.error("access", "who-can", "get", "jobs") == (
        "error: RESOURCE: jobs is in 2 API groups; specify jobs.batch or jobs.batch.volcano.sh"
    )


def test_without_people_a_stack_must_be_named(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    desk.project.write("other", {"teams": {}})
    assert len(desk.lines("access", "who-can", "get", "nodes")) == 7
    desk.project.write("other", {"people": {}})
    assert (
        desk.error("access", "who-can", "get", "nodes")
        == "error: 2 stacks have people; specify --stack other or --stack people"
    )


def test_default_stack_is_the_one_on_the_embedded_platform(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    desk.project.write("other", {"people": {}})
    platform = Platform()
    platform.places.carried.parent.mkdir(parents=True)
    platform.carry(Carried("people", "server-side apply", 1))
    assert len(desk.lines("access", "who-can", "get", "nodes", "--embedded")) == 7
    platform.carry(Carried("elsewhere", "server-side apply", 1))
    assert "2 stacks have people" in desk.error("access", "who-can", "get", "nodes", "--embedded")


@pytest.mark.process
@pytest.mark.parametrize(
    ("stacks", "answer"),
    [
        (["people"], 0),
        (["people", ""], 0),
        ([], "error: 2 stacks have people; specify --stack other or --stack people"),
        (["people", "other"], "error: 2 stacks have people; specify --stack other or --stack people"),
        (["prod"], "stacks: no file of stack prod, which the cluster in use has; change to its project, or specify"),
    ],
)
def test_default_stack_is_the_one_that_the_cluster_has(
    desk: Desk, tmp_path: Path, stacks: list[str], answer: object
) -> None:
    desk.project.write("other", {"people": {}})
    cohorts = [{"metadata": {"name": f"c{at}", "annotations": {STACK: name}}} for at, name in enumerate(stacks)]
    with serving(tmp_path, {(KUEUE, "Cohort"): cohorts}) as kubeconfig:
        words = "access", "who-can", "get", "nodes", "--kubeconfig", kubeconfig
        if answer == 0:
            assert len(desk.lines(*words)) == 7
        else:
            assert str(answer) in desk.error(*words)
    # An unknown cluster is no reason to fail otherwise.
    assert "2 stacks have people; specify" in desk.error("access", "who-can", "get", "nodes", "--kubeconfig", "gone")


def test_the_root_cohort_has_the_name_of_its_stack(desk: Desk) -> None:
    made = preview("people", desk.project.folder).objects
    marks = {one.name: at(one.manifest, "metadata", "annotations", STACK) for one in made if one.kind == "Cohort"}
    assert marks == {"org": "people", "research": None, "product": None}
