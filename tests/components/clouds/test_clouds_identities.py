"""Identities in each cloud: people, the CI jobs of robots, and the readers of secrets."""

import json
import re
from typing import Any, Final, cast

import pytest
from aks_description import CLUSTER as AKS
from builders import Data, planned, stack
from cloud_descriptions import allowed
from cloud_stacks import (
    DEPLOYER,
    GROUPS,
    REGION,
    aks_creation,
    aks_stack,
    eks_creation,
    eks_section,
    eks_stack,
    gke_creation,
    gke_stack,
    one,
    sent,
    with_team,
)
from components_builders import platform, texts
from eks_description import DESCRIPTION
from rendered_stacks import stack_of_repository

from components.clouds.aws.policies import account_trust
from components.clouds.azure.identities import ROLES, SECRETS_USER
from gpu_tenancy.engine.recording import UNKNOWN, Registration
from gpu_tenancy.model.plan.people import AccessPlan
from gpu_tenancy.model.spec.clouds.azure import USER_ROLE

RESEARCH: Final = "arn:aws:iam::111122223333:role/teams/research"
ROSA: Final = "arn:aws:iam::111122223333:user/rosa"
ENTRY: Final = "aws:eks/accessEntry:AccessEntry"
MEMBER: Final = "gcp:projects/iAMMember:IAMMember"
ASSIGNMENT: Final = "azure-native:authorization:RoleAssignment"
GROUP: Final = "2b6e4a10-93a5-4b7c-8f21-0d6c5a1e7b06"
GUEST: Final = "2b6e4a10-93a5-4b7c-8f21-0d6c5a1e7b07"
GOOGLES_PEOPLE: Final = [
    "group:research@example.com",
    "user:ci@example-ml.iam.gserviceaccount.com",
    "user:rosa@example.com",
    "serviceaccount:ci/robot",
]


def with_people(sections: Data, *entries: str, **people: Any) -> Data:
    return {**with_team(sections, members={"researchers": list(entries)}), "people": people}


def access(sections: Data) -> AccessPlan:
    found = planned(sections).access
    assert found is not None
    return found


def eks(*entries: str, cluster: Data | None = None, **people: Any) -> dict[str, Any]:
    """The access entries of a stack, by their principal."""
    rendered = sent(with_people(eks_stack(cluster or eks_creation()), *entries, **people))
    entries_ = [cast("Any", resource.inputs) for resource in rendered if resource.type == ENTRY]
    by_principal = {entry["principalArn"]: entry for entry in entries_}
    assert len(by_principal) == len(entries_)
    return by_principal


@pytest.mark.parametrize("section", [eks_section(), eks_creation()], ids=["existing", "created"])
def test_each_principal_has_an_entry_with_its_bound_group(section: Data) -> None:
    entries = eks(RESEARCH, ROSA, cluster=section)
    groups = {RESEARCH: ["gpu-tenancy:111122223333:role/teams/research"], ROSA: ["gpu-tenancy:111122223333:user/rosa"]}
    assert {arn: entry["kubernetesGroups"] for arn, entry in entries.items() if arn in groups} == groups
    assert {entry["type"] for entry in entries.values()} == {"STANDARD"}
    made = planned(with_people(eks_stack(section), RESEARCH, ROSA))
    (binding,) = made.teams[0].namespace.bindings
    assert {subject.name for subject in binding.subjects} == {group for names in groups.values() for group in names}


def test_an_administrator_and_member_has_one_entry() -> None:
    entries = eks(DEPLOYER, RESEARCH, admins=[DEPLOYER])
    assert entries.keys() == {DEPLOYER, RESEARCH}
    assert entries[DEPLOYER]["kubernetesGroups"] == ["gpu-tenancy:111122223333:role/deployer"]


def test_members_have_no_policies_of_eks() -> None:
    registrations = sent(with_people(eks_stack(eks_creation()), RESEARCH))
    policy = one(registrations, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert policy.inputs["principalArn"] == DEPLOYER


def test_a_created_gke_cluster_is_found_by_its_people() -> None:
    registrations = sent(with_people(gke_stack(create=gke_creation()), *GOOGLES_PEOPLE))
    members = {
        str(resource.inputs["member"]): resource.inputs
        for resource in registrations
        if resource.type == MEMBER and resource.inputs["role"] == "roles/container.clusterViewer"
    }
    assert members.keys() == {
        "group:research@example.com",
        "serviceAccount:ci@example-ml.iam.gserviceaccount.com",
        "user:rosa@example.com",
    }
    assert {str(inputs["project"]) for inputs in members.values()} == {"example-ml"}


def test_the_owner_of_an_existing_gke_cluster_gets_the_commands() -> None:
    sections = with_people(gke_stack(), *GOOGLES_PEOPLE)
    commands = access(sections).commands
    assert commands[0] == (
        "gcloud projects add-iam-policy-binding example-ml --member=group:research@example.com"
        " --role=roles/container.clusterViewer"
    )
    assert len(commands) == 3
    assert not [resource for resource in sent(sections) if "clusterViewer" in str(resource.inputs)]


def assignments(sections: Data) -> dict[str, Any]:
    """The role assignments of people by their object ids."""
    found = [cast("Any", one.inputs) for one in sent(sections) if one.type == ASSIGNMENT]
    return {one["principalId"]: one for one in found if one["roleDefinitionId"].endswith(ROLES[USER_ROLE])}


def test_people_of_a_created_aks_cluster_list_user_credentials() -> None:
    sections = with_people(aks_stack(aks_creation()), f"group:{GROUP}", f"user:{GUEST}", "user:rosa@example.com")
    made = assignments(sections)
    assert {principal: one["principalType"] for principal, one in made.items()} == {GROUP: "Group", GUEST: "User"}
    (cluster,) = (one for one in sent(sections) if one.type == AKS)
    assert all(cluster.urn in one.dependencies for one in sent(sections) if one.inputs in made.values())
    scope = f"{GROUPS}/ml-group/providers/Microsoft.ContainerService/managedClusters/ml"
    assert access(sections).commands == (
        f'az role assignment create --assignee rosa@example.com --role "{USER_ROLE}" --scope {scope}',
    )


def test_an_existing_aks_cluster_is_only_read() -> None:
    sections = with_people(aks_stack(), f"group:{GROUP}")
    assert assignments(sections) == {}
    assert len(access(sections).commands) == 1


def test_existing_clusters_need_no_cloud_access() -> None:
    found = access(with_people(stack(), "group:research", "user:rosa"))
    assert (found.logins, found.commands) == ((), ())


@pytest.mark.parametrize("name", ["prod-aws", "dev-aws", "prod-gcp", "prod-azure"])
def test_each_cloud_of_the_repository_has_people_in_its_form(name: str) -> None:
    objects = stack_of_repository(name).rendered.registrations
    bound = {resource.name for resource in objects if resource.type.endswith(":RoleBinding")}
    assert {binding.rpartition("-")[2] for binding in bound} == {"leads", "researchers", "viewers"}
    assert not [text for resource in objects for _, text in texts(resource.inputs) if text == "system:authenticated"]


# How each cloud lets the CI job of a robot log in to the cluster, without a stored credential


SUBJECT: Final = "repo:example/vision:ref:refs/heads/main"
ISSUER: Final = "token.actions.githubusercontent.com"
ACCOUNT: Final = "arn:aws:iam::111122223333"
EKS_PROVIDER: Final = f"{ACCOUNT}:oidc-provider/{ISSUER}"
POOL: Final = "projects/123456789012/locations/global/workloadIdentityPools/github"
GKE_PROVIDER: Final = f"{POOL}/providers/github"
AKS_PROVIDER: Final = f"https://{ISSUER}"


def with_robot(sections: Data, provider: str, subject: str | None = SUBJECT) -> Data:
    robot = {"role": "researcher", **({"subject": subject} if subject else {})}
    cluster = {**sections["cluster"], "identityProvider": provider}
    return {**with_team(sections, serviceAccounts={"ci": robot}), "cluster": cluster}


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
def eks_robot(request: pytest.FixtureRequest) -> Data:
    return with_robot(eks_stack(request.param), EKS_PROVIDER)


def test_on_eks_one_subject_of_the_issuer_assumes_the_role(eks_robot: Data) -> None:
    role = inputs(sent(eks_robot), "aws:iam/role:Role", "robot")
    assert role["name"] == "ml_a_ci"
    (statement,) = json.loads(role["assumeRolePolicy"])["Statement"]
    assert statement == {
        "Effect": "Allow",
        "Principal": {"Federated": EKS_PROVIDER},
        "Action": ["sts:AssumeRoleWithWebIdentity"],
        "Condition": {"StringEquals": {f"{ISSUER}:aud": "sts.amazonaws.com", f"{ISSUER}:sub": SUBJECT}},
    }


def test_on_eks_the_role_of_a_robot_only_reads_the_cluster(eks_robot: Data) -> None:
    made = sent(eks_robot)
    (statement,) = json.loads(inputs(made, "aws:iam/rolePolicy:RolePolicy", "robot")["policy"])["Statement"]
    assert statement["Action"] == ["eks:DescribeCluster"]
    assert statement["Resource"] == f"arn:aws:eks:{REGION}:*:cluster/ml"
    assert not [one for one in made if "PolicyAttachment" in one.type and "robot" in one.name]
    entry = inputs(made, ENTRY, "robot")
    assert entry["kubernetesGroups"] == ["gpu-tenancy:111122223333:role/ml_a_ci"]
    assert bound(eks_robot) == [("Group", "gpu-tenancy:111122223333:role/ml_a_ci"), ("ServiceAccount", "ci")]
    assert [one for one in made if one.type.endswith("AccessPolicyAssociation") and "robot" in one.name] == []


def test_on_eks_the_entry_follows_the_role_and_the_cluster() -> None:
    made = sent(with_robot(eks_stack(eks_creation()), EKS_PROVIDER))
    (entry,) = (one for one in made if one.type == ENTRY and "robot" in one.name)
    needs = {one.type for one in made if one.urn in entry.dependencies}
    assert needs >= {"aws:eks/cluster:Cluster", "aws:iam/role:Role"}


def test_inputs_of_ci_identities_match_awss_model(eks_robot: Data) -> None:
    made = [one for one in sent(eks_robot) if "robot" in one.name and one.type.startswith("aws:")]
    assert {one.type for one in made} == {ENTRY, "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy"}
    assert [problem for one in made for problem in DESCRIPTION.problems(one.type, cast("Any", one.inputs))] == []
    (role,) = (one for one in made if one.type == "aws:iam/role:Role")
    assert DESCRIPTION.problems(role.type, {**cast("Any", role.inputs), "name": "x" * 65})


def test_on_gke_one_subject_impersonates_the_account() -> None:
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
    assert access(sections).commands == ()


def test_robots_of_two_clusters_have_their_own_accounts() -> None:
    names = {
        bound(with_robot(gke_stack(**cluster), GKE_PROVIDER))[1][1]
        for cluster in ({}, {"name": "other"}, {"location": "us-central1-b"})
    }
    assert len(names) == 3


def test_an_existing_gke_cluster_needs_a_command_for_robots() -> None:
    sections = with_robot(gke_stack(), GKE_PROVIDER)
    assert not [one for one in sent(sections) if one.type == MEMBER and "robot" in one.name]
    (_, (_, email)) = bound(sections)
    (command,) = access(sections).commands
    assert command.endswith(f" --member=serviceAccount:{email} --role=roles/container.clusterViewer")


def test_on_aks_one_subject_logs_in_as_the_identity() -> None:
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
    (command,) = access(sections).commands
    assert "--name ml_a_ci --query principalId" in command
    assert "--assignee-principal-type ServicePrincipal" in command


def test_a_robot_without_a_subject_has_no_cloud_identity() -> None:
    sections = with_robot(eks_stack(), EKS_PROVIDER, subject=None)
    assert not [one for one in sent(sections) if "robot" in one.name]
    assert bound(sections) == [("ServiceAccount", "ci")]


def test_on_aks_the_binding_has_the_object_id_of_the_cloud() -> None:
    sections = with_robot(aks_stack(), AKS_PROVIDER)
    registrations = platform(sections).rendered.registrations
    (binding,) = (one for one in registrations if one.type.endswith(":RoleBinding"))
    subjects = {subject["kind"]: subject["name"] for subject in cast("Any", binding.inputs)["subjects"]}
    assert subjects == {"ServiceAccount": "ci", "User": UNKNOWN}
    (identity,) = (one for one in registrations if one.type.endswith("UserAssignedIdentity") and "robot" in one.name)
    assert identity.urn in binding.dependencies


# What the identity of a team may read in each cloud: its own secrets, and nothing beside them


READ: Final = "secretsmanager:GetSecretValue"
SECRETS: Final = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:"
ROLE: Final = "aws:iam/role:Role"
POLICY: Final = "aws:iam/rolePolicy:RolePolicy"


def with_secrets(sections: Data, *urls: str) -> Data:
    """A stack whose team has secrets of a cloud's secret manager."""
    return with_team(sections, secrets={f"s{index}": {"from": url} for index, url in enumerate(urls)})


def registered(sections: Data) -> tuple[Registration, ...]:
    return platform(sections).rendered.registrations


def reader(sections: Data) -> Any:
    """The ServiceAccount with which External Secrets reads the team's secrets."""
    accounts = [one for one in registered(sections) if one.type.endswith(":ServiceAccount")]
    (found,) = (one for one in accounts if cast("Any", one.inputs)["metadata"]["name"] == "secret-reader")
    return found


AWS = ("aws://eu-central-1/ml/wandb", "aws://eu-central-1/ml/s3")


@pytest.fixture(params=[eks_section(), eks_creation()], ids=["existing", "created"])
def eks_secrets(request: pytest.FixtureRequest) -> Data:
    return with_secrets(eks_stack(request.param), *AWS)


def test_on_eks_the_role_of_a_team_reads_its_secrets_alone(eks_secrets: Data) -> None:
    policy = inputs(sent(eks_secrets), POLICY, "secrets")["policy"]
    for name in ("ml/wandb", "ml/s3"):
        assert allowed(policy, READ, f"{SECRETS}{name}-Ab12Cd")
        assert allowed(policy, "secretsmanager:DescribeSecret", f"{SECRETS}{name}-Ab12Cd")
    for other in ("ml/wandb2-Ab12Cd", "ml/wandb-prod-Ab12Cd", "ml/other-Ab12Cd", "ml/s3/keys-Ab12Cd", "wandb-Ab12Cd"):
        assert not allowed(policy, READ, f"{SECRETS}{other}")
    for action in ("PutSecretValue", "DeleteSecret", "ListSecrets", "BatchGetSecretValue", "TagResource"):
        assert not allowed(policy, f"secretsmanager:{action}", f"{SECRETS}ml/wandb-Ab12Cd")
    assert not allowed(policy, READ, f"{SECRETS.replace('eu-central-1', 'us-east-1')}ml/wandb-Ab12Cd")


def test_on_eks_only_tokens_of_the_teams_account_assume_the_role() -> None:
    provider = "arn:aws:iam::111122223333:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/ABC"
    issuer = "https://oidc.eks.eu-central-1.amazonaws.com/id/ABC"
    (statement,) = json.loads(account_trust(provider, issuer, "a", "secret-reader"))["Statement"]
    assert statement["Principal"] == {"Federated": provider}
    assert statement["Action"] == ["sts:AssumeRoleWithWebIdentity"]
    assert statement["Condition"] == {
        "StringEquals": {
            "oidc.eks.eu-central-1.amazonaws.com/id/ABC:aud": "sts.amazonaws.com",
            "oidc.eks.eu-central-1.amazonaws.com/id/ABC:sub": "system:serviceaccount:a:secret-reader",
        }
    }


def test_on_eks_only_created_clusters_register_the_issuer() -> None:
    providers = {
        kind: [one for one in sent(with_secrets(sections, *AWS)) if "OpenIdConnectProvider" in one.type]
        for kind, sections in {
            "existing": eks_stack(),
            "created": eks_stack(eks_creation()),
        }.items()
    }
    assert providers["existing"] == []
    (made,) = providers["created"]
    assert cast("Any", made.inputs)["clientIdLists"] == ["sts.amazonaws.com"]


def test_on_eks_the_account_names_the_role_of_the_cloud(eks_secrets: Data) -> None:
    account = reader(eks_secrets)
    assert account.inputs["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": UNKNOWN}
    (role,) = (one for one in registered(eks_secrets) if one.type == ROLE and "secrets" in one.name)
    assert cast("Any", role.inputs)["name"] == "ml_a__secrets"
    assert role.urn in account.dependencies


def test_inputs_match_awss_model(eks_secrets: Data) -> None:
    made = [one for one in sent(eks_secrets) if "secrets" in one.name and one.type in {ROLE, POLICY}]
    assert len(made) == 2
    assert [problem for one in made for problem in DESCRIPTION.problems(one.type, cast("Any", one.inputs))] == []


def test_on_gke_the_account_itself_reads_each_secret() -> None:
    sections = with_secrets(gke_stack(create=gke_creation()), "gcp://example-ml/wandb", "gcp://shared-ml/s3")
    grants = [
        cast("Any", one.inputs)
        for one in sent(sections)
        if one.type == "gcp:secretmanager/secretIamMember:SecretIamMember"
    ]
    assert [(one["project"], one["secretId"]) for one in grants] == [("example-ml", "wandb"), ("shared-ml", "s3")]
    assert {one["role"] for one in grants} == {"roles/secretmanager.secretAccessor"}
    assert {one["member"] for one in grants} == {"serviceAccount:example-ml.svc.id.goog[a/secret-reader]"}
    assert "annotations" not in reader(sections).inputs["metadata"]
    stores = [cast("Any", one.inputs) for one in registered(sections) if one.type.endswith(":SecretStore")]
    assert {one["spec"]["provider"]["gcpsm"]["projectID"] for one in stores} == {"example-ml", "shared-ml"}
    for store in stores:
        identity = store["spec"]["provider"]["gcpsm"]["auth"]["workloadIdentity"]
        assert identity["serviceAccountRef"] == {"name": "secret-reader"}
        assert identity["clusterProjectID"] == "example-ml"


AZURE = ("azure://keys/ml-vault/wandb", "azure://keys/ml-vault/s3")


def test_on_aks_the_identity_reads_secrets_and_not_the_vault() -> None:
    sections = with_secrets(aks_stack(aks_creation()), *AZURE)
    made = sent(sections)
    credential = inputs(made, "azure-native:managedidentity:FederatedIdentityCredential", "secrets")
    assert credential["subject"] == "system:serviceaccount:a:secret-reader"
    assert credential["audiences"] == ["api://AzureADTokenExchange"]
    roles = [cast("Any", one.inputs) for one in made if one.type.endswith("RoleAssignment") and "secrets" in one.name]
    assert {one["roleDefinitionId"].rpartition("/")[2] for one in roles} == {ROLES[SECRETS_USER]}
    scope = r"/subscriptions/[0-9a-f-]+/resourceGroups/keys/providers/Microsoft.KeyVault/vaults/ml-vault/secrets/(\w+)"
    found = [re.fullmatch(scope, one["scope"]) for one in roles]
    assert {match[1] for match in found if match} == {"wandb", "s3"}
    assert all(found)


def test_on_aks_the_account_names_the_identity_of_the_cloud() -> None:
    sections = with_secrets(aks_stack(aks_creation()), *AZURE)
    account = reader(sections)
    assert account.inputs["metadata"]["annotations"] == {
        "azure.workload.identity/client-id": UNKNOWN,
        "azure.workload.identity/tenant-id": UNKNOWN,
    }
    identities = [
        one for one in registered(sections) if one.type.endswith("UserAssignedIdentity") and "secrets" in one.name
    ]
    assert [one.urn in account.dependencies for one in identities] == [True]


@pytest.mark.parametrize("sections", [eks_stack(eks_creation()), gke_stack(), aks_stack()], ids=["aws", "gcp", "azure"])
def test_a_team_without_secrets_of_the_cloud_has_no_identity(sections: Data) -> None:
    none = with_team(sections, secrets={"given": {"existing": True}, "typed": {"config": {"A": "a"}}})
    assert not [
        one
        for one in registered(none)
        if "secret" in one.name.lower()
        and not one.name.endswith("-typed")
        and not one.type.startswith(("gpu-tenancy:", "gcp:kms", "kubernetes:admission"))
    ]
