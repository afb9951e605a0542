"""What a robot's bounded token may do, as the real API server decides; and that nobody of the team gets at it."""

from collections.abc import Callable
from typing import Any

import pytest
from acceptance_builders import Waves
from acceptance_guards import EXPERIMENTS, PRODUCTION, RESEARCH, Person, job, pod_of

from gpu_tenancy.kube.client import Cluster

NAME = "ci"
"""The robot of ml-research in the stack `local`."""
TOKEN = f"/api/v1/namespaces/{RESEARCH}/serviceaccounts/{NAME}/token"
OTHERS = (EXPERIMENTS, PRODUCTION, "kube-system")


@pytest.fixture(scope="module")
def robot(cluster: Cluster, member: Callable[[str], Person], deployed: Waves) -> Person:
    """Whoever has a bounded token of the robot."""
    assert deployed
    token = cluster.token(RESEARCH, NAME, seconds=600)
    return Person(cluster, token, member("admins").authority)


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


@pytest.mark.parametrize("who", ["viewers", "researchers", "leads", "cohort-leads", "robot"])
def test_members_cannot_create_tokens_of_the_ci_account(
    robot: Person, member: Callable[[str], Person], who: str
) -> None:
    body: Any = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    one = robot if who == "robot" else member(who)
    assert one.asked("POST", TOKEN, body)[0] == 403
    assert member("admins").asked("POST", TOKEN, body)[0] == 201


@pytest.mark.parametrize("who", ["researchers", "leads", "robot"])
def test_members_cannot_run_pods_as_the_ci_account(robot: Person, member: Callable[[str], Person], who: str) -> None:
    one = robot if who == "robot" else member(who)
    refused = one.refusal(job(RESEARCH, RESEARCH, pod_of(0, serviceAccountName=NAME)))
    assert f"sets service account {NAME}, whose rights its pod would have; set serviceAccountName: workload" in refused
    assert not one.refusal(job(RESEARCH, RESEARCH, pod_of(0, serviceAccountName="workload")))
