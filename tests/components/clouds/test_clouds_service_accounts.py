"""How each cloud lets the CI job of a robot log in to the cluster, without a stored credential."""

import json
from typing import Any, Final, cast

import pytest
from aks_description import CLUSTER as AKS
from builders import Data, errors, planned, stack
from cloud_stacks import (
    REGION,
    aks_creation,
    aks_stack,
    eks_creation,
    eks_section,
    eks_stack,
    gke_creation,
    gke_stack,
    sent,
)
from components_builders import platform
from eks_description import DESCRIPTION
from test_clouds_people import ENTRY, MEMBER

from components.clouds.azure.identities import ROLES
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE

SUBJECT: Final = "repo:example/vision:ref:refs/heads/main"
ISSUER: Final = "token.actions.githubusercontent.com"
ACCOUNT: Final = "arn:aws:iam::111122223333"
EKS_PROVIDER: Final = f"{ACCOUNT}:oidc-provider/{ISSUER}"
POOL: Final = "projects/123456789012/locations/global/workloadIdentityPools/github"
GKE_PROVIDER: Final = f"{POOL}/providers/github"
AKS_PROVIDER: Final = f"https://{ISSUER}"


def with_robot(sections: Data, provider: str | None = None, subject: str | None = SUBJECT, name: str = "ci") -> Data:
    """A stack whose team has a robot."""
    robot = {"role": "researcher", **({"subject": subject} if subject else {})}
    cluster = {**sections["cluster"], **({"identityProvider": provider} if provider else {})}
    return {
        **sections,
        "cluster": cluster,
        "teams": {"a": {**sections["teams"]["a"], "serviceAccounts": {name: robot}}},
    }


def inputs(registrations: list[Registration], token: str, name: str = "") -> Any:
    """The inputs of the only resource of a type whose name has a part."""
    (found,) = (one for one in registrations if one.type == token and name in one.name)
    return cast("Any", found.inputs)


def bound(sections: Data) -> list[tuple[str, str]]:
    """Kind and name of the subjects of the team's only RoleBinding."""
    (binding,) = planned(sections).teams[0].namespace.bindings
    assert binding.role == "researcher"
    return [(subject.kind, subject.name) for subject in binding.subjects]


@pytest.fixture(params=[eks_section(), eks_creation()], ids=["existing", "created"])
def eks(request: pytest.FixtureRequest) -> Data:
    return with_robot(eks_stack(request.param), EKS_PROVIDER)


def test_on_eks_exactly_one_subject_of_the_issuer_may_assume_the_role(eks: Data) -> None:
    role = inputs(sent(eks), "aws:iam/role:Role", "robot")
    assert role["name"] == "ml_a_ci"
    (statement,) = json.loads(role["assumeRolePolicy"])["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Federated": EKS_PROVIDER},
        "Action": ["sts:AssumeRoleWithWebIdentity"],
        "Condition": {"StringEquals": {f"{ISSUER}:aud": "sts.amazonaws.com", f"{ISSUER}:sub": SUBJECT}},
    }


def test_on_eks_the_role_may_only_read_the_cluster_and_its_entry_has_the_group_that_is_bound(eks: Data) -> None:
    made = sent(eks)
    (statement,) = json.loads(inputs(made, "aws:iam/rolePolicy:RolePolicy", "robot")["policy"])["Statement"]
    assert statement["Action"] == ["eks:DescribeCluster"]
    assert statement["Resource"] == f"arn:aws:eks:{REGION}:*:cluster/ml"
    assert not [one for one in made if "PolicyAttachment" in one.type and "robot" in one.name]
    entry = inputs(made, ENTRY, "robot")
    assert entry["kubernetesGroups"] == ["gpu-tenancy:111122223333:role/ml_a_ci"]
    assert bound(eks) == [("Group", "gpu-tenancy:111122223333:role/ml_a_ci"), ("ServiceAccount", "ci")]
    assert [one for one in made if one.type.endswith("AccessPolicyAssociation") and "robot" in one.name] == []


def test_on_eks_the_entry_follows_the_role_and_the_cluster() -> None:
    made = sent(with_robot(eks_stack(eks_creation()), EKS_PROVIDER))
    (entry,) = (one for one in made if one.type == ENTRY and "robot" in one.name)
    needs = {one.type for one in made if one.urn in entry.dependencies}
    assert needs >= {"aws:eks/cluster:Cluster", "aws:iam/role:Role"}


def test_inputs_of_ci_identities_match_awss_model(eks: Data) -> None:
    made = [one for one in sent(eks) if "robot" in one.name and one.type.startswith("aws:")]
    assert {one.type for one in made} == {ENTRY, "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"}
    assert [problem for one in made for problem in DESCRIPTION.problems(one.type, cast("Any", one.inputs))] == []
    (role,) = (one for one in made if one.type == "aws:iam/role:Role")
    assert DESCRIPTION.problems(role.type, {**cast("Any", role.inputs), "name": "x" * 65})


def test_on_gke_exactly_one_subject_may_impersonate_an_account_that_finds_clusters() -> None:
    sections = with_robot(gke_stack(create=gke_creation()), GKE_PROVIDER)
    made = sent(sections)
    account = inputs(made, "gcp:serviceaccount/account:Account", "robot")
    assert 6 <= len(account["accountId"]) <= 30
    grant = inputs(made, "gcp:serviceaccount/iAMMember:IAMMember")
    assert (grant["role"], grant["member"]) == (
        "roles/iam.workloadIdentityUser",
        f"principal://iam.googleapis.com/{POOL}/subject/{SUBJECT}",
    )
    assert inputs(made, MEMBER, "robot")["role"] == "roles/container.clusterViewer"
    email = f"{account['accountId']}@example-ml.iam.gserviceaccount.com"
    assert bound(sections) == [("ServiceAccount", "ci"), ("User", email)]
    access = planned(sections).access
    assert access is not None
    assert access.commands == ()


def test_robots_of_two_clusters_of_a_project_have_their_own_accounts() -> None:
    names = {
        bound(with_robot(gke_stack(**cluster), GKE_PROVIDER))[1][1]
        for cluster in ({}, {"name": "other"}, {"location": "us-central1-b"})
    }
    assert len(names) == 3


def test_on_an_existing_gke_cluster_an_administrator_of_the_project_lets_the_robot_find_it() -> None:
    sections = with_robot(gke_stack(), GKE_PROVIDER)
    assert not [one for one in sent(sections) if one.type == MEMBER and "robot" in one.name]
    access = planned(sections).access
    assert access is not None
    (_, (_, email)) = bound(sections)
    (command,) = access.commands
    assert command.endswith(f" --member=serviceAccount:{email} --role=roles/container.clusterViewer")


def test_on_aks_exactly_one_subject_may_log_in_as_an_identity_that_lists_user_credentials() -> None:
    sections = with_robot(aks_stack(aks_creation()), AKS_PROVIDER)
    made = sent(sections)
    identity = inputs(made, "azure-native:managedidentity:UserAssignedIdentity", "robot")
    assert identity["resourceName"] == "ml_a_ci"
    credential = inputs(made, "azure-native:managedidentity:FederatedIdentityCredential")
    assert (credential["issuer"], credential["subject"]) == (AKS_PROVIDER, SUBJECT)
    assert credential["audiences"] == ["api://AzureADTokenExchange"]
    (login,) = (one for one in made if one.type.endswith("RoleAssignment") and "robot" in one.name)
    assigned = cast("Any", login.inputs)
    assert assigned["roleDefinitionId"].endswith(ROLES[USER_ROLE])
    assert assigned["principalType"] == "ServicePrincipal"
    assert {one.type for one in made if one.urn in login.dependencies} >= {
        AKS,
        "azure-native:managedidentity:UserAssignedIdentity",
    }


def test_on_an_existing_aks_cluster_its_owner_assigns_the_role() -> None:
    sections = with_robot(aks_stack(), AKS_PROVIDER)
    assert not [one for one in sent(sections) if one.type.endswith("RoleAssignment")]
    access = planned(sections).access
    assert access is not None
    (command,) = access.commands
    assert "--name ml_a_ci --query principalId" in command
    assert "--assignee-principal-type ServicePrincipal" in command


def test_a_robot_without_a_subject_has_no_cloud_identity() -> None:
    sections = with_robot(eks_stack(), EKS_PROVIDER, subject=None)
    assert not [one for one in sent(sections) if "robot" in one.name]
    assert bound(sections) == [("ServiceAccount", "ci")]


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        (
            with_robot(stack()),
            "needs a cloud, which gives service accounts identities; remove it, and use tokens of `tenancy",
        ),
        (with_robot(eks_stack()), "needs the issuer of the CI system's tokens; set cluster.identityProvider"),
        (with_robot(gke_stack()), "needs the issuer of the CI system's tokens; set cluster.identityProvider"),
        (with_robot(aks_stack()), "needs the issuer of the CI system's tokens; set cluster.identityProvider"),
        (
            with_robot(eks_stack(), EKS_PROVIDER, name="c" * 60),
            (
                f"needs an identity ml_a_{'c' * 60}, which is longer than 64 characters; shorten the service account's"
                " name"
            ),
        ),
        (
            with_robot(eks_stack(), EKS_PROVIDER, "repository_owner:example"),
            "is not the subject of one repository of GitHub; write repo:OWNER/REPOSITORY:..., such as",
        ),
        (
            with_robot(aks_stack(), AKS_PROVIDER, "repo:example/vision"),
            "is not the subject of one repository of GitHub; write repo:OWNER/REPOSITORY:..., such as",
        ),
        (
            with_robot(eks_stack(), EKS_PROVIDER, "repo:example/*:main"),
            "has a wildcard, but a service account is one",
        ),
        (with_robot(gke_stack(), GKE_PROVIDER, "repo:example/vision:a b"), "is not the subject of a CI system's token"),
    ],
    ids=["existing", "aws", "gcp", "azure", "long", "owner", "repository", "wildcard", "blank"],
)
def test_subjects_that_no_cloud_identity_can_have_are_refused(sections: Data, problem: str) -> None:
    (error,) = errors(sections)
    assert error.startswith("teams.a.serviceAccounts.c")
    assert problem in error


def test_with_gitlab_other_subjects_are_right() -> None:
    gitlab = f"{ACCOUNT}:oidc-provider/gitlab.com"
    assert errors(with_robot(eks_stack(), gitlab, "project_path:ml/vision:ref_type:branch:ref:main")) == []


def test_on_aks_the_binding_has_the_object_id_that_the_cloud_decides() -> None:
    sections = with_robot(aks_stack(), AKS_PROVIDER)
    registrations = platform(sections).rendered.registrations
    (binding,) = (one for one in registrations if one.type.endswith(":RoleBinding"))
    subjects = {subject["kind"]: subject["name"] for subject in cast("Any", binding.inputs)["subjects"]}
    assert subjects == {"ServiceAccount": "ci", "User": UNKNOWN}
    (identity,) = (one for one in registrations if one.type.endswith("UserAssignedIdentity") and "robot" in one.name)
    assert identity.urn in binding.dependencies
