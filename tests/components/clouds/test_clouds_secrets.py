"""What the identity of a team may read in each cloud: its own secrets, and nothing beside them."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import pytest
from builders import Data
from cloud_stacks import aks_creation, aks_stack, eks_creation, eks_section, eks_stack, gke_creation, gke_stack, sent
from components_builders import platform
from eks_description import DESCRIPTION
from test_clouds_service_accounts import inputs

from components.clouds.aws.policies import account_trust
from components.clouds.azure.identities import ROLES, SECRETS_USER
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.wire import UNKNOWN

READ: Final = "secretsmanager:GetSecretValue"
SECRETS: Final = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:"
ROLE: Final = "aws:iam/role:Role"
POLICY: Final = "aws:iam/rolePolicy:RolePolicy"


def with_secrets(sections: Data, *urls: str) -> Data:
    """A stack whose team has secrets of a cloud's secret manager."""
    secrets = {f"s{index}": {"from": url} for index, url in enumerate(urls)}
    return {**sections, "teams": {"a": {**sections["teams"]["a"], "secrets": secrets}}}


def registered(sections: Data) -> tuple[Registration, ...]:
    return platform(sections).rendered.registrations


def reader(sections: Data) -> Any:
    """The ServiceAccount as which External Secrets reads the team's secrets."""
    accounts = [one for one in registered(sections) if one.type.endswith(":ServiceAccount")]
    (found,) = (one for one in accounts if cast("Any", one.inputs)["metadata"]["name"] == "secret-reader")
    return found


AWS = ("aws://eu-central-1/ml/wandb", "aws://eu-central-1/ml/s3")


@pytest.fixture(params=[eks_section(), eks_creation()], ids=["existing", "created"])
def eks(request: pytest.FixtureRequest) -> Data:
    return with_secrets(eks_stack(request.param), *AWS)


def allowed(policy: str, action: str, arn: str) -> bool:
    """Whether IAM would allow an action, for a policy with statements that allow actions on resources."""
    return any(
        statement["Effect"] == "Allow"
        and any(fnmatchcase(action, pattern) for pattern in statement["Action"])
        and any(fnmatchcase(arn, pattern) for pattern in statement["Resource"])
        for statement in json.loads(policy)["Statement"]
    )


def test_on_eks_the_role_of_a_team_reads_its_secrets_and_no_others(eks: Data) -> None:
    policy = inputs(sent(eks), POLICY, "secrets")["policy"]
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


def test_on_eks_the_issuer_is_registered_for_created_clusters_only() -> None:
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


def test_on_eks_the_account_names_the_role_which_the_cloud_decides(eks: Data) -> None:
    account = reader(eks)
    assert account.inputs["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": UNKNOWN}
    (role,) = (one for one in registered(eks) if one.type == ROLE and "secrets" in one.name)
    assert cast("Any", role.inputs)["name"] == "ml_a__secrets"
    assert role.urn in account.dependencies


def test_inputs_match_awss_model(eks: Data) -> None:
    made = [one for one in sent(eks) if "secrets" in one.name and one.type in {ROLE, POLICY}]
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
    for one in stores:
        identity = one["spec"]["provider"]["gcpsm"]["auth"]["workloadIdentity"]
        assert identity["serviceAccountRef"] == {"name": "secret-reader"}
        assert identity["clusterProjectID"] == "example-ml"


AZURE = ("azure://keys/ml-vault/wandb", "azure://keys/ml-vault/s3")


def test_on_aks_the_identity_of_a_team_reads_each_secret_and_not_the_vault() -> None:
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


def test_on_aks_the_account_names_the_identity_which_the_cloud_decides() -> None:
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
    none = with_secrets(sections)
    none["teams"]["a"]["secrets"] = {"given": {"existing": True}, "typed": {"config": {"A": "a"}}}
    assert not [
        one
        for one in registered(none)
        if "secret" in one.name.lower()
        and not one.name.endswith("-typed")
        and not one.type.startswith(("gpu-tenancy:", "gcp:kms", "kubernetes:admission"))
    ]


def test_nodes_get_the_right_to_pull_from_named_registries() -> None:
    repository = "projects/shared-ml/locations/europe-west4/repositories/ml"
    (grant,) = (
        cast("Any", one.inputs)
        for one in sent({**gke_stack(), "images": {"registries": [repository]}})
        if one.type == "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember"
    )
    assert (grant["project"], grant["location"], grant["repository"]) == ("shared-ml", "europe-west4", "ml")
    assert grant["role"] == "roles/artifactregistry.reader"
    registry = (
        f"/subscriptions/{'0' * 8}-0000-0000-0000-{'0' * 12}/resourceGroups/ml"
        "/providers/Microsoft.ContainerRegistry/registries/mlimages"
    )
    for section, number in ((aks_creation(), 1), (None, 0)):
        made = sent({**aks_stack(section), "images": {"registries": [registry]}})
        roles = [cast("Any", one.inputs) for one in made if one.type.endswith("RoleAssignment") and "pull" in one.name]
        assert len(roles) == number
        assert all(one["scope"] == registry and one["roleDefinitionId"].endswith(ROLES["AcrPull"]) for one in roles)
