"""Identities of people, of CI jobs and of readers of secrets: the commands that owners of clusters run for them.

The resources are in `cases/identities.yaml`, `cases/eks_rights.yaml`, `cases/aks.yaml` and `cases/gke.yaml`.
"""

import json
from typing import Any, Final

import pytest
from builders import Data, planned, stack
from cloud_stacks import GROUPS, aks_creation, aks_stack, gke_creation, gke_stack, sent, with_team
from components_builders import texts
from rendered_stacks import stack_of_repository

from components.clouds.aws.policies import account_trust
from gpu_tenancy.model.plan.people import AccessPlan
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE

SCOPE: Final = f"{GROUPS}/ml-group/providers/Microsoft.ContainerService/managedClusters/ml"
GROUP: Final = "group:2b6e4a10-93a5-4b7c-8f21-0d6c5a1e7b06"
GKE_PROVIDER: Final = "projects/123456789012/locations/global/workloadIdentityPools/github/providers/github"
AKS_PROVIDER: Final = "https://token.actions.githubusercontent.com"


def with_people(sections: Data, *entries: str) -> Data:
    return with_team(sections, members={"researchers": list(entries)})


def with_robot(sections: Data, provider: str) -> Data:
    robot = {"role": "researcher", "subject": "repo:example/vision:ref:refs/heads/main"}
    cluster = {**sections["cluster"], "identityProvider": provider}
    return {**with_team(sections, serviceAccounts={"ci": robot}), "cluster": cluster}


def access(sections: Data) -> AccessPlan:
    found = planned(sections).access
    assert found is not None
    return found


def viewer(member: str) -> str:
    command = "gcloud projects add-iam-policy-binding example-ml"
    return f"{command} --member={member} --role=roles/container.clusterViewer"


def reader(assignee: str) -> str:
    return f'az role assignment create {assignee} --role "{USER_ROLE}" --scope {SCOPE}'


OWNERS: Final[dict[str, tuple[Data, list[str]]]] = {
    "people of an existing GKE cluster": (
        with_people(gke_stack(), "group:research@example.com", "user:rosa@example.com", "serviceaccount:ci/robot"),
        [viewer("group:research@example.com"), viewer("user:rosa@example.com")]),
    "people of an existing AKS cluster": (with_people(aks_stack(), GROUP),
        [reader(f"--assignee {GROUP.removeprefix('group:')}")]),
    "people of Entra without an object id": (with_people(aks_stack(aks_creation()), GROUP, "user:rosa@example.com"),
        [reader("--assignee rosa@example.com")]),
    "people of a cluster of no cloud": (with_people(stack(teams={"a": {"owner": "b", "costCenter": "c"}}), "user:rosa"),
        []),
    "a robot of a created GKE cluster": (with_robot(gke_stack(create=gke_creation()), GKE_PROVIDER), []),
    "a robot of an existing GKE cluster": (with_robot(gke_stack(), GKE_PROVIDER),
        [viewer("serviceAccount:robot-ci-e1b2d9c5@example-ml.iam.gserviceaccount.com")]),
}  # fmt: skip


@pytest.mark.parametrize("case", OWNERS)
def test_owners_of_clusters_get_commands(case: str) -> None:
    sections, commands = OWNERS[case]
    assert list(access(sections).commands) == commands
    if "existing" in case:
        assert not [one for one in sent(sections) if "clusterViewer" in str(one.inputs) or "RoleAssignment" in one.type]


def test_on_an_existing_aks_cluster_its_owner_assigns_the_role() -> None:
    (command,) = access(with_robot(aks_stack(), AKS_PROVIDER)).commands
    assert "--name ml_a_ci --query principalId" in command
    assert "--assignee-principal-type ServicePrincipal" in command


def test_clusters_of_no_cloud_have_no_logins() -> None:
    assert access(OWNERS["people of a cluster of no cloud"][0]).logins == ()


def test_robots_of_two_clusters_have_their_own_accounts() -> None:
    others: list[Data] = [{}, {"name": "other"}, {"location": "us-central1-b"}]
    bindings = [
        planned(with_robot(gke_stack(**other), GKE_PROVIDER)).teams[0].namespace.bindings[0] for other in others
    ]
    assert len({subject.name for binding in bindings for subject in binding.subjects if subject.kind == "User"}) == 3


@pytest.mark.parametrize("name", ["prod-aws", "dev-aws", "prod-gcp", "prod-azure"])
def test_each_cloud_of_the_repository_has_people_in_its_form(name: str) -> None:
    objects = stack_of_repository(name).rendered.registrations
    bound = {resource.name for resource in objects if resource.type.endswith(":RoleBinding")}
    of_people = {binding.rpartition("-")[2] for binding in bound} - {"pods"}  # those of `uncounted-pods`
    assert of_people == {"leads", "researchers", "viewers"}
    assert not [text for resource in objects for _, text in texts(resource.inputs) if text == "system:authenticated"]


def test_on_eks_only_tokens_of_the_teams_account_assume_the_role() -> None:
    issuer = "oidc.eks.eu-central-1.amazonaws.com/id/ABC"
    provider = f"arn:aws:iam::111122223333:oidc-provider/{issuer}"
    (statement,) = json.loads(account_trust(provider, f"https://{issuer}", "a", "secret-reader"))["Statement"]
    account: dict[str, Any] = {
        f"{issuer}:aud": "sts.amazonaws.com",
        f"{issuer}:sub": "system:serviceaccount:a:secret-reader",
    }
    assert statement["Principal"] == {"Federated": provider}
    assert statement["Action"] == ["sts:AssumeRoleWithWebIdentity"]
    assert statement["Condition"] == {"StringEquals": account}
