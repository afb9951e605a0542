"""What a stack plans for people is what a real API server answers for them."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from people_builders import OTHER, OWN, PEOPLE, RBAC, SIBLING, Desk, sections

from gpu_tenancy.access.live import Caller, reviews
from gpu_tenancy.access.planned import grants
from gpu_tenancy.access.resources import known
from gpu_tenancy.access.rules import allowed, can, identity
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.people import subject
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec.people import person

OPERATORS = {"operators": dict.fromkeys(("kueue", "volcano", "trainer", "keda", "fluid"), "installed")}


@pytest.fixture(scope="module")
def desk(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The roles and bindings of a stack in its namespaces, on the shared platform."""
    folder = tmp_path_factory.mktemp("people") / "project"
    with Desk.deployed(cluster, folder, platform.kubeconfig, **OPERATORS) as made:
        yield made


@pytest.mark.parametrize("who", PEOPLE)
def test_stack_and_api_server_agree_on_every_role_verb_and_resource(who: str, desk: Desk, cluster: Cluster) -> None:
    assert desk.kubeconfig
    tree = Tree(load(Source(sections(**OPERATORS))))
    one = person(PEOPLE[who])
    assert one
    me, resources, places = subject(one), known(tree.stack), (OWN, SIBLING, OTHER)
    own = [grant for grant in grants(tree) if grant.subject in identity(me)]
    planned = can(partial(allowed, own), resources, places)
    assert can(partial(reviews, cluster, Caller.of(me)), resources, places) == planned
    assert bool(planned) == (who != "stranger")


@pytest.mark.parametrize(
    "asked", [("create", "pods/exec"), ("list", "secrets"), ("get", "nodes"), ("patch", "lq"), ("bind", "clusterroles")]
)
def test_who_can_answers_the_same_from_the_stack_and_the_cluster(asked: tuple[str, str], desk: Desk) -> None:
    live = desk.run("access", "who-can", *asked, "--live", "--json")
    # Parts of the embedded platform, such as kwok, are users too.
    people = [row for row in json.loads(live.stdout) if row["who"] in PEOPLE.values()]
    assert (live.exit_code, people) == (0, json.loads(desk.run("access", "who-can", *asked, "--json").stdout))
    assert people


def test_the_control_plane_is_counted_and_shown_on_request(desk: Desk) -> None:
    few, every = (desk.run("access", "who-can", "list", "secrets", "--live", *more) for more in ((), ("--all",)))
    assert "of the control plane and of operators not shown (use --all)" in few.stderr
    assert "group:system:masters" not in few.stdout
    assert "group:system:masters whole cluster cluster-admin" in " ".join(every.stdout.split())


def test_a_binding_that_the_stack_does_not_have_is_reported(desk: Desk, cluster: Cluster) -> None:
    binding: Manifest = {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": "by-hand", "namespace": OTHER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann@example.com"},
            {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
        ],
    }
    cluster.apply(binding)
    try:
        who = desk.run("access", "who-can", "create", "configmaps", "--live")
        what = desk.run("access", "can", "ann", "-n", OTHER, "--live")
    finally:
        cluster.delete(Reference.of(binding))
    reason = "allowed by the cluster, not by the stack; remove the binding, or add it to the stack"
    assert (who.exit_code, what.exit_code) == (2, 2)
    assert f"error: user:ann@example.com in {OTHER}: {reason}" in who.stderr
    assert "group:system:authenticated" in who.stdout
    assert f"configmaps in {OTHER}: {reason}" in what.stderr


def test_a_role_that_was_not_deployed_is_reported(desk: Desk, cluster: Cluster) -> None:
    binding = cluster.get(RBAC, "RoleBinding", "gpu-tenancy-leads", SIBLING)
    assert binding
    cluster.delete(Reference.of(binding))
    try:
        result = desk.run("access", "who-can", "get", "secrets", "-n", SIBLING, "--live")
    finally:
        metadata: Manifest = {"name": "gpu-tenancy-leads", "namespace": SIBLING}
        kept: Manifest = {key: value for key, value in binding.items() if key != "metadata"}
        cluster.apply({**kept, "metadata": metadata})
    assert result.exit_code == 2
    assert (
        f"error: group:research-leads in {SIBLING}: allowed by the stack, not by the cluster; deploy the stack"
        in result.stderr
    )
