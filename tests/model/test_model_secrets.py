"""Secrets of teams, and what workloads use of them."""

from typing import Any

import pytest
from builders import Data, errors, job, planned, server, stack, team

from gpu_tenancy.model.catalogue.credentials import credential
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.plan.secrets import CopiedSecret, Store, config_names, secret_rows
from gpu_tenancy.model.source import Source, to_config

SOURCES: Data = {
    "wandb": {"config": {"TOKEN": "wandb-vision"}},
    "s3": {"from": "aws://eu-central-1/vision/s3", "keys": {"ID": "id", "KEY": "secret"}},
    "hub": {
        "from": "aws://eu-central-1/vision/hub",
        "key": ".dockerconfigjson",
        "type": "kubernetes.io/dockerconfigjson",
    },
    "signing": {"existing": True},
}
USES: Data = {
    "env": {
        "LEVEL": "info",
        "TOKEN": {"secret": "wandb", "key": "TOKEN"},
        "REGION": {"configMap": "settings", "key": "region"},
        "POD": {"field": "metadata.name"},
    },
    "envFrom": [{"secret": "s3", "prefix": "S3_"}],
    "files": {"/etc/keys": {"secret": "signing", "items": {"tls.key": "own/key.pem"}}},
}


def sections(workload: Data | None = None, **fields: Any) -> Data:
    """A stack whose team has one Secret of each source, and a server that uses all of them."""
    of_team = {"gpus": {"h100": {"guaranteed": 8}}, "secrets": SOURCES, "imagePullSecrets": ["hub"], **fields}
    api = server(**(USES if workload is None else workload))
    return stack(teams={"vision": team(serving={"api": api}, **of_team)})


def problems(workload: Data | None = None, **fields: Any) -> list[str]:
    return errors(sections(workload, **fields))


def test_each_source_is_planned_without_a_value() -> None:
    (vision,) = planned(sections()).teams
    assert [(one.name, one.values) for one in vision.secrets.of_config] == [("wandb", {"TOKEN": "wandb-vision"})]
    region = Store("aws", "eu-central-1")
    assert vision.secrets.copied == (
        CopiedSecret("hub", region, "vision/hub", ((".dockerconfigjson", ""),), 3600, "kubernetes.io/dockerconfigjson"),
        CopiedSecret("s3", region, "vision/s3", (("ID", "id"), ("KEY", "secret")), 3600, "Opaque"),
    )
    assert vision.secrets.reader
    assert vision.secrets.reader.secrets == ((region, ("vision/hub", "vision/s3")),)
    assert vision.namespace.pull_secrets == ("hub",)


def test_roles_of_a_job_have_the_references_of_the_job_and_their_own() -> None:
    roles = {"launcher": {"env": {"TOKEN": "none"}}, "worker": {"env": {"EXTRA": {"secret": "signing", "key": "a"}}}}
    mpi = job(framework="mpi", command=["mpirun"], roles=roles, **USES)
    made = planned(stack(teams={"vision": team(gpus={"h100": {"guaranteed": 8}}, training={"fit": mpi})}))
    launcher, worker = made.teams[0].jobs[0].roles
    assert launcher.pod.env == {"LEVEL": "info", "TOKEN": "none"}
    assert [one.name for one in launcher.pod.references.variables] == ["POD", "REGION"]
    assert [one.name for one in worker.pod.references.variables] == ["EXTRA", "POD", "REGION", "TOKEN"]
    assert worker.pod.references.sources == launcher.pod.references.sources
    assert worker.pod.references.files == launcher.pod.references.files


def test_a_workload_pulls_images_with_its_own_secrets_and_the_teams() -> None:
    (vision,) = planned(sections({**USES, "imagePullSecrets": ["signing", "hub"]})).teams
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
    found = problems({"env": {"A": text}, "args": [f"--key={text}"]})
    assert [error.partition(":")[0] for error in found] == [
        "teams.vision.serving.api.args[0]",
        "teams.vision.serving.api.env.A",
    ]
    assert all(f"looks like a credential ({what})" in error and text not in error for error in found)


def test_a_variable_for_a_credential_has_a_text_that_looks_like_one() -> None:
    assert credential("abcdefgh12345678", "OPENAI_API_KEY") == "value of OPENAI_API_KEY"
    assert credential("abcdefgh12345678", "RUN_ID") is None
    assert credential("short1", "OPENAI_API_KEY") is None


def test_the_offline_engine_has_a_placeholder_for_each_value() -> None:
    assert config_names(load(Source(sections()))) == {
        "wandb-vision": ("teams", "vision", "secrets", "wandb", "config", "TOKEN")
    }
    config = to_config(Source(sections()))
    assert {key: value for key, value in config.items() if key.startswith("secrets:")} == {
        "secrets:wandb-vision": UNREAD
    }


def test_reports_name_the_users_of_each_secret() -> None:
    rows = {row.name: (row.source, row.users, row.restarts) for row in secret_rows(load(Source(sections())))}
    assert rows == {
        "hub": ("aws://eu-central-1/vision/hub", ("image pulls of all pods",), False),
        "s3": ("aws://eu-central-1/vision/s3", ("api",), False),
        "signing": ("created by hand", ("api",), False),
        "wandb": ("Pulumi config", ("api",), True),
    }
