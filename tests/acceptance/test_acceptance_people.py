"""Who may do what, as the API server decides it for each role and place, against the table `people.yaml`."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from acceptance_builders import Waves
from acceptance_guards import EXPERIMENTS, PRODUCTION, RESEARCH, Person

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.catalogue.roles import roles, rules_of

PEOPLE = {
    "L": "leads",
    "R": "researchers",
    "V": "viewers",
    "C": "cohort-leads",
    "O": "others",
    "A": "auditors",
    "N": "nobody",
    "X": "admins",
}
PLACES = {"own": RESEARCH, "sibling": EXPERIMENTS, "branch": PRODUCTION, "cluster": ""}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
OF_EVERYBODY = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
"""What Kubernetes lets everybody create: questions about oneself (ClusterRole `system:basic-user`)."""


class Right(NamedTuple):
    """A verb with a resource."""

    verb: str
    resource: str

    @property
    def attributes(self) -> dict[str, str]:
        """As a SubjectAccessReview has them."""
        path, _, subresource = self.resource.partition("/")
        name, _, group = path.partition(".")
        return {"verb": self.verb, "resource": name, "group": group, "subresource": subresource}


class Cell(NamedTuple):
    """A right of somebody in a place."""

    who: str
    place: str
    right: Right


def rows() -> list[Mapping[str, Any]]:
    return yaml.safe_load(Path(__file__).with_name("people.yaml").read_text(encoding="utf-8"))


def cells() -> Iterator[tuple[Cell, bool]]:
    """Each cell of the table, and whether it is allowed."""
    for row in rows():
        places: Mapping[str, str] = dict.fromkeys(PLACES, "X") if row.get("only") else row
        for place in PLACES:
            if place not in places:
                continue
            allowed = places[place].split()
            assert set(allowed) <= set(PEOPLE), row["what"]
            for verb in row["verbs"]:
                for resource in row["of"]:
                    for letter, who in PEOPLE.items():
                        yield Cell(who, place, Right(verb, resource)), letter in allowed


def test_each_cell_of_the_table_is_what_the_api_server_decides(cluster: Cluster, deployed: Waves) -> None:
    assert deployed
    expected = dict(cells())

    def decided(cell: Cell) -> bool:
        return reviewed(cluster, cell)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        answers = dict(zip(expected, threads.map(decided, expected), strict=True))
    wrong = [f"{'must' if must else 'must not'}: {cell}" for cell, must in expected.items() if answers[cell] != must]
    assert wrong == []


def reviewed(cluster: Cluster, cell: Cell) -> bool:
    """The decision of the API server."""
    answer: Any = cluster.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"one-of-{cell.who}",
                "groups": [cell.who, "system:authenticated"],
                "resourceAttributes": {**cell.right.attributes, "namespace": PLACES[cell.place]},
            },
        }
    )
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("place", ["own", "sibling", "branch"])
@pytest.mark.parametrize("who", [who for who in PEOPLE.values() if who != "admins"])
def test_the_table_shows_every_right(member: Callable[[str], Person], who: str, place: str) -> None:
    question = {"spec": {"namespace": PLACES[place]}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", **question}
    status, answer = member(who).asked("POST", REVIEWS, body)
    assert status == 201, answer
    shown = {
        cell.right for cell, allowed in cells() if allowed and cell.who == who and cell.place in {place, "cluster"}
    }
    assert rights(answer) == shown


def rights(review: Any) -> set[Right]:
    """What somebody may do, of the resources that have one name."""
    return {
        Right(verb, "/".join([f"{name}.{group}" if group else name, *([subresource] if subresource else [])]))
        for rule in review["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for name, _, subresource in (resource.partition("/") for resource in rule["resources"])
        if name not in OF_EVERYBODY
    }


AGGREGATED = {"metrics.k8s.io"}
"""Groups of API servers that no definition adds: metrics-server's."""


@pytest.mark.parametrize("role", roles())
def test_each_resource_of_a_role_is_one_that_the_api_server_serves(member: Callable[[str], Person], role: str) -> None:
    admin = member("admins")
    wanted = {
        (group, resource)
        for rule in rules_of(role)
        for group in rule.groups
        if group not in AGGREGATED
        for resource in rule.resources
    }
    served = {group: set(served_by(admin, group)) for group, _ in wanted}
    assert [(group, name) for group, name in sorted(wanted) if name not in served[group]] == []


def served_by(person: Person, group: str) -> Iterator[str]:
    """The resources and subresources of all versions of a group."""
    versions = ["/api/v1"]
    if group:
        status, found = person.asked("GET", f"/apis/{group}")
        assert status == 200, found
        versions = [f"/apis/{version['groupVersion']}" for version in found["versions"]]
    for version in versions:
        yield from (one["name"] for one in person.asked("GET", version)[1]["resources"])


READS = {
    "pods": f"/api/v1/namespaces/{RESEARCH}/pods",
    "secrets": f"/api/v1/namespaces/{RESEARCH}/secrets",
    "pods of a sibling": f"/api/v1/namespaces/{EXPERIMENTS}/pods",
    "pods of another branch": f"/api/v1/namespaces/{PRODUCTION}/pods",
    "secrets of a sibling": f"/api/v1/namespaces/{EXPERIMENTS}/secrets",
    "pods of all": "/api/v1/pods",
    "secrets of all": "/api/v1/secrets",
    "nodes": "/api/v1/nodes",
    "queues": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "workloads of all": "/apis/kueue.x-k8s.io/v1beta2/workloads",
    "namespaces": "/api/v1/namespaces",
}


@pytest.mark.parametrize(
    ("who", "answered"),
    {
        "leads": {"pods", "secrets", "nodes", "queues"},
        "researchers": {"pods", "nodes", "queues"},
        "viewers": {"pods", "nodes", "queues"},
        "cohort-leads": {"pods", "secrets", "pods of a sibling", "secrets of a sibling", "nodes", "queues"},
        "others": {"pods of another branch", "nodes", "queues"},
        "auditors": {*READS} - {"secrets", "secrets of a sibling", "secrets of all"},
        "nobody": set[str](),
        "admins": {*READS},
    }.items(),
)
def test_real_requests_are_answered_as_the_reviews_say(
    member: Callable[[str], Person], who: str, answered: set[str]
) -> None:
    one = member(who)
    statuses = {what: one.asked("GET", path)[0] for what, path in READS.items()}
    assert statuses == {what: 200 if what in answered else 403 for what in READS}
