"""People, their roles, and secrets of teams."""

from typing import Any

import pytest
from builders import (
    AKS,
    EKS,
    FEW_CPUS,
    GKE,
    PROVIDED,
    Data,
    base,
    environment_of,
    errors,
    job,
    patched,
    planned,
    server,
    stack,
    stack_of,
    team,
)
from pydantic import ValidationError

from gpu_tenancy.model.catalogue.access import Role, credential, roles, rules_of
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.plan.people import AccessPlan, Subject, rules
from gpu_tenancy.model.plan.secrets import CopiedSecret, Store, config_names, secret_rows
from gpu_tenancy.model.resolve import resolve
from gpu_tenancy.model.source import Source, to_config

OBJECT = "5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
ROLE = "arn:aws:iam::111122223333:role/research"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def tree(**members: Any) -> Data:
    """Cohort org over cohort research over team a, and team b directly under org."""
    cohorts = {
        "org": {"members": members.get("org", {})},
        "research": {"parent": "org", "members": members.get("research", {})},
    }
    half = {"h100": {"guaranteed": 8}}
    teams = {
        "a": team(gpus=half, cohort="research", members=members.get("a", {})),
        "b": team(gpus=half, cohort="org", members=members.get("b", {})),
    }
    return stack(cohorts=cohorts, teams=teams, people=members.get("people", {}))


def bound(sections: Data, name: str) -> dict[str, list[str]]:
    (found,) = (one.namespace for one in planned(sections).teams if one.namespace.name == name)
    return {binding.role: [str(who) for who in binding.people] for binding in found.bindings}


def access(sections: Data) -> AccessPlan:
    found = planned(sections).access
    assert found
    return found


def test_cohort_members_are_members_of_all_its_teams() -> None:
    sections = tree(
        org={"viewers": ["group:all"]}, research={"leads": ["group:heads"]}, a={"researchers": ["user:ann"]}
    )
    assert bound(sections, "a") == {"lead": ["group:heads"], "researcher": ["user:ann"], "viewer": ["group:all"]}
    assert bound(sections, "b") == {"viewer": ["group:all"]}


def test_who_has_several_roles_is_bound_once_with_the_highest() -> None:
    sections = tree(org={"viewers": ["group:g"]}, research={"leads": ["group:g"]}, a={"researchers": ["group:g"]})
    assert bound(sections, "a") == {"lead": ["group:g"]}
    assert bound(sections, "b") == {"viewer": ["group:g"]}


def test_short_names_of_people_are_resolved_everywhere() -> None:
    people = {"names": {"heads": "group:h"}, "admins": ["heads"]}
    sections = tree(people=people, a={"leads": ["heads"]}, b={"viewers": ["group:h"]})
    assert bound(sections, "a") == {"lead": ["group:h"]}
    assert access(sections).admins == access(sections).members == (Subject("Group", "h"),)


def test_people_are_subjects_of_the_api_server() -> None:
    sections = tree(a={"leads": ["group:g", "user:ann@example.com", "serviceaccount:ci/robot"]})
    assert access(sections).members == (
        Subject("Group", "g"),
        Subject("ServiceAccount", "robot", "ci"),
        Subject("User", "ann@example.com"),
    )


def test_an_iam_role_is_the_group_of_its_access_entry() -> None:
    found = access({**tree(a={"leads": [ROLE]}), "cluster": {**EKS, **PROVIDED}})
    assert found.members == (Subject("Group", "gpu-tenancy:111122223333:role/research"),)
    assert [str(one) for one in found.principals] == [ROLE]


@pytest.mark.parametrize(
    ("section", "good", "bad"),
    [
        (EKS, [ROLE, "arn:aws:iam::111122223333:user/x/ann", "serviceaccount:ci/robot"], ["group:g", "user:ann"]),
        (GKE, ["group:ml@example.com", "user:ann@example.com"], ["group:ml", "user:ann", ROLE]),
        (AKS, [f"group:{OBJECT}", "user:ann@example.com", f"user:{OBJECT}"], ["group:ml@example.com", "user:a", ROLE]),
        ({}, ["group:oidc:ml", "user:ann"], [ROLE]),
    ],
    ids=["aws", "gcp", "azure", "existing"],
)
def test_people_have_the_forms_of_their_clusters_directory(section: Data, good: list[str], bad: list[str]) -> None:
    def complaints(entries: list[str]) -> list[str]:
        sections = tree(a={"viewers": entries})
        found = errors({**sections, "cluster": {**sections["cluster"], **section}})
        return [error for error in found if ".members." in error]

    assert complaints(good) == []
    assert [error.split(": ")[0] for error in complaints(bad)] == [
        f"teams.a.members.viewers[{index}]" for index in range(len(bad))
    ]


def test_no_access_rules_without_people() -> None:
    assert planned(tree()).access is None
    assert not planned(tree()).guards.members
    assert planned(tree(a={"viewers": ["user:ann"]})).guards.members
    assert not planned(tree(people={"admins": ["user:ann"]})).guards.members


def test_only_used_roles_are_created() -> None:
    assert list(access(tree(a={"viewers": ["user:ann"]})).roles) == ["viewer", "member"]
    assert list(access(tree(people={"auditors": ["user:ann"]})).roles) == ["auditor"]
    assert access(tree(people={"admins": ["user:ann"]})).roles == {}


def test_a_role_has_no_rules_about_operators_that_do_not_run() -> None:
    def groups(**sections: Any) -> set[str]:
        found = access({**tree(a={"leads": ["user:ann"]}), **sections})
        return {group for rules in found.roles.values() for rule in rules for group in rule.groups}

    assert "data.fluid.io" not in groups()
    assert "data.fluid.io" in groups(operators={"fluid": "installed"})


def test_members_read_routes_and_create_none() -> None:
    network: Data = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}

    gateway: Data = {"gateway": "infra/edge"}
    notebooks: Data = {"images": ["registry.example.com/lab:1"], "sizes": {"small": {}}, "home": {"size": "20Gi"}}

    def of_leads(expose: Data | None, hosts: Data | None = None) -> list[tuple[str, ...]]:
        own = {"serving": {"chat": server(expose=expose)}, "notebooks": {**notebooks, "expose": hosts}}
        owner = team(gpus={"h100": {"guaranteed": 8}}, network=network, **own)
        found = rules(environment_of(stack(teams={"a": owner})), "lead")
        return [rule.verbs for rule in found if {"httproutes", "endpoints"}.intersection(rule.resources)]

    reads = ("get", "list", "watch")
    assert of_leads({"host": "chat.ml.example.com", **gateway}) == [reads, reads]
    assert of_leads(None, {"domain": "ml.example.com", "names": ["ann"], **gateway}) == [reads, reads]
    assert of_leads(None) == [reads]


def test_team_roles_include_the_next_and_leads_read_secrets() -> None:
    def rights(name: str) -> set[tuple[str, str, str]]:
        return {
            (verb, group, resource)
            for rule in rules_of(name)
            for verb in rule.verbs
            for group in rule.groups
            for resource in rule.resources
        }

    assert rights("viewer") < rights("researcher") < rights("lead")
    assert {name for name in roles() if any(resource == "secrets" for _, _, resource in rights(name))} == {"lead"}
    for name in ("viewer", "auditor", "member"):
        assert not {verb for verb, _, _ in rights(name)} & WRITES, name


@pytest.mark.parametrize(
    "part",
    [
        {"verbs": ["*"]},
        {"verbs": ["escalate"]},
        {"verbs": ["bind"]},
        {"verbs": ["impersonate"]},
        {"resources": ["*"]},
        {"resources": ["pods/*"]},
        {"groups": ["*"]},
        {"resources": ["pods/ephemeralcontainers"]},
        {"resources": ["serviceaccounts/token"]},
    ],
    ids=str,
)
def test_the_table_of_roles_refuses_wildcards_and_escalation(part: Data) -> None:
    rule = {"groups": [""], "resources": ["pods"], "verbs": ["get"], "reason": "why"}
    assert Role.model_validate({"scope": "namespace", "rules": [rule]}, strict=False)
    with pytest.raises(ValidationError):
        Role.model_validate({"scope": "namespace", "rules": [{**rule, **part}]}, strict=False)


# Secrets.

VISION: Data = base("secrets")["teams"]["vision"]  # one Secret of each source, and a server that uses all of them
USES: Data = {key: VISION["serving"]["api"][key] for key in ("env", "envFrom", "files")}


def sections(workload: Data | None = None) -> Data:
    return patched(base("secrets"), {"teams": {"vision": {"serving": {"api": workload or {}}}}})


def test_each_source_is_planned_without_a_value() -> None:
    (vision,) = planned(sections()).teams
    assert {name: one.config for name, one in vision.secrets.of_config.items()} == {"wandb": {"TOKEN": "wandb-vision"}}
    region = Store("aws", "eu-central-1")
    assert vision.secrets.copied == (
        CopiedSecret("hub", region, "vision/hub", ((".dockerconfigjson", ""),), 3600, "kubernetes.io/dockerconfigjson"),
        CopiedSecret("s3", region, "vision/s3", (("ID", "id"), ("KEY", "secret")), 3600, "Opaque"),
    )
    assert vision.secrets.reader
    assert vision.secrets.reader.secrets == ((region, ("vision/hub", "vision/s3")),)
    assert vision.namespace.pull_secrets == ("hub",)


def test_roles_of_a_job_inherit_its_references() -> None:
    roles = {"launcher": {"env": {"TOKEN": "none"}}, "worker": {"env": {"EXTRA": {"secret": "signing", "key": "a"}}}}
    mpi = job(framework="mpi", command=["mpirun"], roles=roles, **USES)
    made = planned(
        stack(teams={"vision": team(gpus={"h100": {"guaranteed": 8}}, quota=FEW_CPUS, training={"fit": mpi})})
    )
    launcher, worker = made.teams[0].jobs[0].roles
    assert launcher.pod.env == {"LEVEL": "info", "TOKEN": "none"}
    assert sorted(launcher.pod.references.variables) == ["POD", "REGION"]
    assert sorted(worker.pod.references.variables) == ["EXTRA", "POD", "REGION", "TOKEN"]
    assert worker.pod.references.sources == launcher.pod.references.sources
    assert worker.pod.references.files == launcher.pod.references.files


def test_images_are_pulled_with_secrets_of_job_and_team() -> None:
    (vision,) = planned(sections({"imagePullSecrets": ["signing", "hub"]})).teams
    assert vision.servers[0].pod.references.pull == ("hub", "signing")
    (vision,) = planned(sections()).teams
    assert vision.servers[0].pod.references.pull == ()  # The ServiceAccount has those of the team.


CREDENTIALS = {
    "AWS access key": "AKIA" + "A" * 16,
    "GitHub token": "ghp_" + "a1" * 18,
    "GitLab token": "glpat-" + "a1" * 10,
    "Hugging Face token": "hf_" + "aB" * 17,
    "Google API key": "AIza" + "a" * 35,
    "NVIDIA API key": "nvapi-" + "a" * 64,
    "OpenAI or Anthropic API key": "sk-ant-" + "a1" * 20,
    "Slack token": "xoxb-" + "1" * 12,
    "private key": "-----BEGIN RSA PRIVATE KEY-----",
    "JSON Web Token": f"eyJ{'a' * 20}.eyJ{'b' * 20}.{'c' * 20}",
    "password in a URL": "postgres://ml:hunter2@db:5432/ml",
}


@pytest.mark.parametrize("what", CREDENTIALS)
def test_a_credential_in_clear_text_is_refused_and_not_shown(what: str) -> None:
    text = CREDENTIALS[what]
    found = errors(sections({"env": {"A": text}, "args": [f"--key={text}"]}))
    assert [error.partition(":")[0] for error in found] == [
        "teams.vision.serving.api.args[0]",
        "teams.vision.serving.api.env.A",
    ]
    assert all(f"looks like a credential ({what})" in error and text not in error for error in found)


def test_a_variable_named_for_a_credential_is_judged() -> None:
    assert credential("abcdefgh12345678", "OPENAI_API_KEY") == "value of OPENAI_API_KEY"
    assert credential("abcdefgh12345678", "RUN_ID") is None
    assert credential("short1", "OPENAI_API_KEY") is None


def test_the_offline_engine_has_a_placeholder_for_each_value() -> None:
    assert config_names(stack_of(sections())) == {
        "wandb-vision": ("teams", "vision", "secrets", "wandb", "config", "TOKEN")
    }
    config = to_config(Source(sections()))
    assert {key: value for key, value in config.items() if key.startswith("secrets:")} == {
        "secrets:wandb-vision": UNREAD
    }


def test_reports_name_the_users_of_each_secret() -> None:
    rows = {row.name: (row.source, row.users, row.restarts) for row in secret_rows(resolve(stack_of(sections())))}
    assert rows == {
        "hub": ("aws://eu-central-1/vision/hub", ("image pulls of all pods",), False),
        "s3": ("aws://eu-central-1/vision/s3", ("api",), False),
        "signing": ("created by hand", ("api",), False),
        "wandb": ("Pulumi config", ("api",), True),
    }
