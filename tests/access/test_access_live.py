"""Rights in a stack's plan, and the table of resources, compared with a real API server."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from people_builders import OTHER, OWN, PEOPLE, RBAC, SIBLING, Desk, sections

from gpu_tenancy.access.live import Caller, review
from gpu_tenancy.access.planned import grants
from gpu_tenancy.access.rules import TABLE, VERBS, WHOLE, Question, Resource, allowed, identity
from gpu_tenancy.base.json import text_at
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS, DISCOVERY, Request
from gpu_tenancy.kube.transport import Transport
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.people import subject
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import person
from gpu_tenancy.model.yaml import read_table

OPERATORS = {"operators": dict.fromkeys(("kueue", "volcano", "trainer", "keda", "fluid"), "installed")}


@pytest.fixture(scope="module")
def desk(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("people") / "project"
    with Desk.deployed(cluster, folder, platform.kubeconfig, **OPERATORS) as made:
        yield made


@pytest.mark.parametrize("who", PEOPLE)
def test_stack_and_api_server_agree_on_each_right(who: str, desk: Desk, cluster: Cluster) -> None:
    assert desk.kubeconfig
    tree = Tree(load(Source(sections(**OPERATORS))))
    one = person(PEOPLE[who])
    assert one
    me, questions = subject(one), list(every_question(tree.stack))
    own = [grant for grant in grants(tree) if grant.subject in identity(me)]
    planned = dict(zip(questions, allowed(own, questions), strict=True))
    # All questions with the rarer answer, and a third of the other 3,000: another third for each person.
    rarer = sum(planned.values()) * 2 < len(planned)
    third = set(questions[[*PEOPLE].index(who) % 3 :: 3])
    asked = {question: right for question, right in planned.items() if right is rarer or question in third}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers = pool.map(partial(review, cluster, Caller.of(me)), asked)
        assert dict(zip(asked, answers, strict=True)) == asked
    assert any(planned.values()) == (who != "stranger")


def every_question(stack: Stack) -> Iterator[Question]:
    """About each verb and resource that the cluster of a stack serves, in each place."""
    environment = Environment(stack)
    for row in read_table(TABLE):
        if "operator" in row and not there(environment, row["operator"]):
            continue
        for scope, places in (("cluster", [WHOLE]), ("namespaced", [WHOLE, OWN, SIBLING, OTHER])):
            for plural, (_, _, parts) in row.get(scope, {}).items():
                for name in (plural, *(f"{plural}/{part}" for part in parts)):
                    resource = Resource(row["group"], name, namespaced=scope == "namespaced")
                    yield from (Question(verb, resource, place) for verb in VERBS for place in places)


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
    few, every = (desk.run("access", "who-can", "list", "secrets", "--live", *more) for more in ((), ("--verbose",)))
    assert "of the control plane and of operators not shown (use --verbose)" in few.stderr
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
    finally:
        cluster.delete(Reference.of(binding))
    reason = "allowed by the cluster, not by the stack; remove the binding, or add it to the stack"
    assert who.exit_code == 3
    assert f"error: user:ann@example.com in {OTHER}: {reason}" in who.stderr
    assert "group:system:authenticated" in who.stdout


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
    assert result.exit_code == 3
    assert (
        f"error: group:research-leads in {SIBLING}: allowed by the stack, not by the cluster; deploy the stack"
        in result.stderr
    )


# The table of resources is what the API server serves with the definitions that stacks have objects of.


ADDED = {"metrics.k8s.io"}
OF_ONESELF = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}


def written() -> dict[str, dict[str, Any]]:
    """Scope, kind, short names and subresources of each resource of the table, by group."""
    return {
        row["group"]: {
            plural: (scope, kind, set(short), set(parts))
            for scope in ("cluster", "namespaced")
            for plural, (kind, short, parts) in row.get(scope, {}).items()
        }
        for row in read_table(TABLE)
    }


def served(platform: Platform) -> dict[str, dict[str, Any]]:
    """The same of an API server, in all of a group's versions."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    transport = Transport(platform.kubeconfig, None, 2)
    for root in ("/api", "/apis"):
        answer = json.loads(transport.send(Request("GET", root, accept=DISCOVERY)))
        for group in answer["items"]:
            name = group["metadata"].get("name", "")
            for plural, row in rows(group):
                _, _, _, parts = found[name].setdefault(plural, row)
                parts |= row[3]
    return found


def rows(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for version in group["versions"]:
        for resource in version["resources"]:
            if resource["resource"] not in OF_ONESELF:
                scope = "namespaced" if resource["scope"] == "Namespaced" else "cluster"
                parts = {part["subresource"] for part in resource.get("subresources", ())}
                yield (
                    resource["resource"],
                    (scope, resource["responseKind"]["kind"], set(resource.get("shortNames", ())), parts),
                )


@pytest.mark.usefixtures("cluster")
def test_table_matches_the_api_servers_resources(platform: Platform) -> None:
    table, real = written(), served(platform)
    assert {group: real.get(group) for group in table if group not in ADDED} == {
        group: resources for group, resources in table.items() if group not in ADDED
    }


def test_table_omits_only_groups_of_the_control_plane(cluster: Cluster, platform: Platform) -> None:
    definitions = cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata_only=True)
    of_operators = {text_at(one, "metadata", "name").partition(".")[2] for one in definitions}
    left_out = served(platform).keys() - written().keys() - of_operators
    assert left_out == {"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}
