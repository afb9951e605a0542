"""How each cloud lets people log in to the cluster, whose roles are Kubernetes'."""

from typing import Any, Final, cast

import pytest
from aks_description import CLUSTER as AKS
from builders import Data, errors, planned, stack
from cloud_stacks import (
    DEPLOYER,
    GROUPS,
    aks_creation,
    aks_stack,
    eks_creation,
    eks_section,
    eks_stack,
    gke_creation,
    gke_stack,
    one,
    sent,
)
from components_builders import texts
from rendered_stacks import stack_of_repository

from components.clouds.azure.identities import ROLES
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
    """A stack whose team has these researchers."""
    teams = {"a": {**sections["teams"]["a"], "members": {"researchers": list(entries)}}}
    return {**sections, "teams": teams, "people": people}


def eks(*entries: str, cluster: Data | None = None, **people: Any) -> dict[str, Any]:
    """The access entries of a stack, by their principal."""
    rendered = sent(with_people(eks_stack(cluster or eks_creation()), *entries, **people))
    entries_ = [cast("Any", resource.inputs) for resource in rendered if resource.type == ENTRY]
    by_principal = {entry["principalArn"]: entry for entry in entries_}
    assert len(by_principal) == len(entries_)
    return by_principal


@pytest.mark.parametrize("section", [eks_section(), eks_creation()], ids=["existing", "created"])
def test_each_principal_has_an_entry_with_the_group_that_its_role_binding_names(section: Data) -> None:
    entries = eks(RESEARCH, ROSA, cluster=section)
    groups = {RESEARCH: ["gpu-tenancy:111122223333:role/teams/research"], ROSA: ["gpu-tenancy:111122223333:user/rosa"]}
    assert {arn: entry["kubernetesGroups"] for arn, entry in entries.items() if arn in groups} == groups
    assert {entry["type"] for entry in entries.values()} == {"STANDARD"}
    made = planned(with_people(eks_stack(section), RESEARCH, ROSA))
    (binding,) = made.teams[0].namespace.bindings
    assert {subject.name for subject in binding.subjects} == {group for names in groups.values() for group in names}


def test_an_administrator_who_is_a_member_too_has_one_entry_with_the_group() -> None:
    entries = eks(DEPLOYER, RESEARCH, admins=[DEPLOYER])
    assert entries.keys() == {DEPLOYER, RESEARCH}
    assert entries[DEPLOYER]["kubernetesGroups"] == ["gpu-tenancy:111122223333:role/deployer"]


def test_members_have_no_policies_of_eks() -> None:
    registrations = sent(with_people(eks_stack(eks_creation()), RESEARCH))
    policy = one(registrations, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert policy.inputs["principalArn"] == DEPLOYER


def test_the_role_of_nodes_is_not_a_person() -> None:
    cluster = eks_section(nodeRole=RESEARCH)
    (problem,) = errors(with_people(eks_stack(cluster), RESEARCH))
    assert problem.startswith(f"teams.a.members.researchers[0]: {RESEARCH} is the role of the nodes")


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
    access = planned(sections).access
    assert access is not None
    assert access.commands[0] == (
        "gcloud projects add-iam-policy-binding example-ml --member=group:research@example.com"
        " --role=roles/container.clusterViewer"
    )
    assert len(access.commands) == 3
    assert not [resource for resource in sent(sections) if "clusterViewer" in str(resource.inputs)]


def assignments(sections: Data) -> dict[str, Any]:
    """The role assignments of people by their object ids."""
    found = [cast("Any", one.inputs) for one in sent(sections) if one.type == ASSIGNMENT]
    return {one["principalId"]: one for one in found if one["roleDefinitionId"].endswith(ROLES[USER_ROLE])}


def test_a_created_aks_cluster_lets_its_people_list_user_credentials() -> None:
    sections = with_people(aks_stack(aks_creation()), f"group:{GROUP}", f"user:{GUEST}", "user:rosa@example.com")
    made = assignments(sections)
    assert {principal: one["principalType"] for principal, one in made.items()} == {GROUP: "Group", GUEST: "User"}
    (cluster,) = (one for one in sent(sections) if one.type == AKS)
    assert all(cluster.urn in one.dependencies for one in sent(sections) if one.inputs in made.values())
    access = planned(sections).access
    assert access is not None
    scope = f"{GROUPS}/ml-group/providers/Microsoft.ContainerService/managedClusters/ml"
    assert access.commands == (
        f'az role assignment create --assignee rosa@example.com --role "{USER_ROLE}" --scope {scope}',
    )


def test_an_existing_aks_cluster_is_only_read() -> None:
    sections = with_people(aks_stack(), f"group:{GROUP}")
    assert assignments(sections) == {}
    access = planned(sections).access
    assert access is not None
    assert len(access.commands) == 1


def test_existing_clusters_need_no_cloud_access() -> None:
    access = planned(with_people(stack(), "group:research", "user:rosa")).access
    assert access is not None
    assert (access.logins, access.commands) == ((), ())


@pytest.mark.parametrize("name", ["prod-aws", "dev-aws", "prod-gcp", "prod-azure"])
def test_each_cloud_of_the_repository_has_people_in_its_form(name: str) -> None:
    objects = stack_of_repository(name).rendered.registrations
    bound = {resource.name for resource in objects if resource.type.endswith(":RoleBinding")}
    assert {binding.rpartition("-")[2] for binding in bound} == {"leads", "researchers", "viewers"}
    assert not [text for resource in objects for _, text in texts(resource.inputs) if text == "system:authenticated"]
