"""Rights by roles, tokens of robots and Pod Security, as the API server decides."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from acceptance_builders import Waves, a_binding
from acceptance_guards import EXPERIMENTS, PRODUCTION, RESEARCH, Person, job, pod_of
from policy_builders import TODAY, Sample
from violations import Json

from gpu_tenancy.base.json import at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.catalogue.access import roles, rules_of
from rule_engine import Resource, View
from rule_engine.evaluator import Evaluator, Outcome
from workload_rules import PACK
from workload_rules.rbac import built_in_roles, rules
from workload_rules.roles import FORBIDDEN

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
"""Everybody may create questions about themselves (ClusterRole `system:basic-user`)."""


class Right(NamedTuple):
    verb: str
    resource: str

    @property
    def attributes(self) -> dict[str, str]:
        path, _, subresource = self.resource.partition("/")
        name, _, group = path.partition(".")
        return {"verb": self.verb, "resource": name, "group": group, "subresource": subresource}


class Cell(NamedTuple):
    who: str
    place: str
    right: Right


def rows() -> list[Mapping[str, Any]]:
    return yaml.safe_load(Path(__file__).with_name("people.yaml").read_text(encoding="utf-8"))


def cells() -> Iterator[tuple[Cell, bool]]:
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
    """Of administrators, and of all people in the whole cluster; the next test has all rights in namespaces."""
    assert deployed
    expected = {cell: must for cell, must in cells() if cell.who == "admins" or cell.place == "cluster"}

    def decided(cell: Cell) -> bool:
        return reviewed(cluster, cell)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        answers = dict(zip(expected, threads.map(decided, expected), strict=True))
    wrong = [f"{'must' if must else 'must not'}: {cell}" for cell, must in expected.items() if answers[cell] != must]
    assert wrong == []


def reviewed(cluster: Cluster, cell: Cell) -> bool:
    attributes = {**cell.right.attributes, "namespace": PLACES[cell.place]}
    return allowed(cluster, f"one-of-{cell.who}", attributes, groups=[cell.who, "system:authenticated"])


def allowed(cluster: Cluster, user: str, attributes: Mapping[str, str], **subject: Any) -> bool:
    asked = {"user": user, "resourceAttributes": attributes, **subject}
    review: Any = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    return bool(at(cluster.create(review), "status", "allowed"))


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
    return {
        Right(verb, "/".join([f"{name}.{group}" if group else name, *([subresource] if subresource else [])]))
        for rule in review["status"]["resourceRules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for name, _, subresource in (resource.partition("/") for resource in rule["resources"])
        if name not in OF_EVERYBODY
    }


AGGREGATED = {"metrics.k8s.io"}  # groups of aggregated API servers: metrics-server


@pytest.mark.parametrize("role", roles())
def test_roles_name_resources_that_are_served(member: Callable[[str], Person], role: str) -> None:
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


# Bounded tokens of robots.

NAME = "ci"  # the robot of ml-research in the stack `local`
OTHERS = (EXPERIMENTS, PRODUCTION, "kube-system")


@pytest.fixture(scope="module")
def robot(cluster: Cluster, member: Callable[[str], Person], deployed: Waves) -> Person:
    """A user with a bound token of the robot."""
    assert deployed
    return Person(cluster, cluster.token(RESEARCH, NAME, seconds=600), member("admins").authority)


def test_its_account_gives_pods_no_token_and_has_no_stored_one(cluster: Cluster, deployed: Waves) -> None:
    assert deployed
    found = cluster.get("v1", "ServiceAccount", NAME, RESEARCH)
    assert found is not None
    assert found["automountServiceAccountToken"] is False
    assert "secrets" not in found


def test_a_token_does_in_its_team_what_a_researcher_does(robot: Person) -> None:
    for path in ("pods", "events"):
        assert robot.asked("GET", f"/api/v1/namespaces/{RESEARCH}/{path}")[0] == 200, path
    assert not robot.refusal(job(RESEARCH, RESEARCH, pod_of(0)))
    assert robot.asked("GET", f"/api/v1/namespaces/{RESEARCH}/secrets")[0] == 403
    assert robot.asked("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues")[0] == 200


@pytest.mark.parametrize("namespace", OTHERS)
def test_a_token_does_nothing_in_another_namespace(robot: Person, namespace: str) -> None:
    for path in ("pods", "secrets", "configmaps", "events"):
        assert robot.asked("GET", f"/api/v1/namespaces/{namespace}/{path}")[0] == 403, path
    assert "forbidden" in robot.refusal(job(namespace, namespace, pod_of(0)))
    assert robot.asked("GET", "/api/v1/pods")[0] == 403


def test_a_robot_makes_no_token_and_no_pod_of_its_own_account(robot: Person) -> None:
    body: Any = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert robot.asked("POST", f"/api/v1/namespaces/{RESEARCH}/serviceaccounts/{NAME}/token", body)[0] == 403
    refused = robot.refusal(job(RESEARCH, RESEARCH, pod_of(0, serviceAccountName=NAME)))
    assert f"sets service account {NAME}, whose rights its pod would have; set serviceAccountName: workload" in refused
    assert not robot.refusal(job(RESEARCH, RESEARCH, pod_of(0, serviceAccountName="workload")))


# Roles that the workload pack knows.

RBAC: Final = "rbac.authorization.k8s.io/v1"
# Patterns of resources, some of which RBAC does not know.
ODD: Final[dict[str, Any]] = {
    "apiVersion": RBAC,
    "kind": "ClusterRole",
    "metadata": {"name": "odd-patterns"},
    "rules": [
        {"apiGroups": [""], "resources": ["*/token", "pods/*", "nodes"], "verbs": ["create", "get"]},
        {"apiGroups": ["*"], "resources": ["networkpolicies", "roles"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["delete"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*/*"], "verbs": ["update"]},
    ],
}


def role(manifest: dict[str, Any]) -> Resource:
    return Resource(f"kubernetes:{RBAC}:ClusterRole", _props=View(manifest))


@pytest.fixture(scope="module")
def bound(cluster: Cluster) -> Iterator[str]:
    """A user who has the odd role in the whole cluster."""
    for manifest in (ODD, a_binding("odd-patterns", "odd-patterns", ("User", "odd-user"))):
        cluster.apply(manifest)
    # The authorizer learns of a binding a moment later.
    cluster.wait_for(
        lambda: allowed(cluster, "odd-user", Right("get", "nodes").attributes), what="the role of odd-user"
    )
    yield "odd-user"
    for kind in ("ClusterRoleBinding", "ClusterRole"):
        cluster.delete(Reference(RBAC, kind, "odd-patterns"))


def test_built_in_roles_are_those_of_the_api_server(cluster: Cluster) -> None:
    """Without roles of feature gates that are off by default, and rules that controllers aggregate."""
    roles: Any = cluster.list(RBAC, "ClusterRole")
    live: dict[str, Any] = {item["metadata"]["name"]: item for item in roles}
    for name, known in ((known.name, known) for known in built_in_roles().values()):
        assert isinstance(known.props.value, dict)
        table: dict[str, Any] = known.props.value
        assert table.get("aggregationRule") == live[name].get("aggregationRule"), name
        if "rules" in table:
            assert table["rules"] == live[name]["rules"], name
        labels = {key: label for key, label in live[name]["metadata"]["labels"].items() if "aggregate-to" in key}
        assert table["metadata"].get("labels", {}) == labels, name


def test_a_rule_grants_what_the_api_server_decides(cluster: Cluster, bound: str) -> None:
    granted = list(rules(role(ODD)))
    decisions: dict[tuple[str, str], bool] = {}
    expected: dict[tuple[str, str], bool] = {}
    for text, verbs in FORBIDDEN.items():
        path, slash, subresource = text.partition("/")
        name, _, group = path.partition(".")
        resource = f"{name}{slash}{subresource}"
        for verb in verbs:
            expected[text, verb] = any(rule.grants(verb) and rule.covers(group, resource) for rule in granted)
            decisions[text, verb] = allowed(cluster, bound, Right(verb, text).attributes)
    assert decisions == expected
    assert {True, False} == set(decisions.values())


# Pod Security and the policy pack.

PLACE: Final = "test-pod-security"
IMAGE: Final = "registry.example.com/ml/train:3.0.1"
RULES: Final = frozenset({"no-privileged", "no-host-namespaces", "no-host-paths"})
"""The rules that together forbid as much as the level `baseline`, but for profiles, kernel parameters and ports."""

CONTEXTS: Final[list[Json]] = [
    *({"privileged": flag} for flag in (True, False)),
    {"procMount": "Default"},
    *(
        {"capabilities": {"add": [name], "drop": ["ALL"]}}
        for name in ("CHOWN", "KILL", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "ALL", "MKNOD")
    ),
    {"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}},
]
VOLUMES: Final[list[Json]] = [{"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"configMap": {"name": "a"}}]

_PROBE: Final[Json] = {"httpGet": {"port": 80, "host": "169.254.169.254"}}


def pods() -> Iterator[Json]:
    """Pods that the API server accepts as valid, without Pod Security."""
    main: Json = {"name": "main", "image": IMAGE}
    contexts = [{"securityContext": context} for context in CONTEXTS]
    yield from ({"containers": [{**main, **fields}]} for fields in contexts)
    yield from ({"containers": [main], "initContainers": [{**main, "name": "first", **fields}]} for fields in contexts)
    of_pod: list[Json] = [
        *({field: flag} for field in ("hostPID", "hostIPC", "hostNetwork") for flag in (True, False)),
        *({"volumes": [{"name": "a", **volume}]} for volume in VOLUMES),
    ]
    yield from ({"containers": [main], **fields} for fields in of_pod)


@pytest.fixture(scope="module")
def baseline(cluster: Cluster) -> Cluster:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE, "labels": labels}}
    cluster.apply(namespace)
    cluster.wait_for(lambda: cluster.exists("v1", "ServiceAccount", "default", PLACE), what="the service account")
    return cluster


def refused(cluster: Cluster, spec: Json) -> str:
    """The API server's refusal of a pod; empty if it admits it."""
    metadata = {"generateName": "it-", "namespace": PLACE}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    try:
        cluster.create(pod, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def test_pod_security_and_the_pack_agree(baseline: Cluster) -> None:
    verdicts: list[bool] = []
    for spec in pods():
        verdict = refused(baseline, spec)
        assert not verdict or "violates PodSecurity" in verdict, verdict
        metadata = {"name": "it", "namespace": "ml-research"}
        resource = Sample("kubernetes:core/v1:Pod", {"metadata": metadata, "spec": spec}).resource()
        found = Evaluator(PACK, TODAY).evaluate(resource)
        broken = [one.message for one in found if one.rule.name in RULES and one.outcome is Outcome.BROKEN]
        assert bool(broken) == bool(verdict), (spec, verdict, broken)
        verdicts.append(bool(verdict))
    assert {*verdicts} == {True, False}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param(
            {"containers": [{"name": "main", "image": IMAGE, "ports": [{"containerPort": 80, "hostPort": 80}]}]},
            "hostPort", id="a port of the host"),
        pytest.param({"containers": [{"name": "main", "image": IMAGE, "livenessProbe": _PROBE}]},
            "violates PodSecurity", id="a probe of another host"),
        pytest.param({"containers": [{"name": "main", "image": IMAGE, "lifecycle": {"preStop": _PROBE}}]},
            "violates PodSecurity", id="a hook that calls another host"),
    ],
)  # fmt: skip
def test_the_api_server_enforces_the_level(baseline: Cluster, fields: Json, words: str) -> None:
    assert words in refused(baseline, fields)
