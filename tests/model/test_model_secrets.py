"""Secrets of teams, and what workloads use of them."""

from typing import Any

import pytest
from builders import Data, errors, job, planned, server, stack, team

from gpu_tenancy.model.catalogue.credentials import credential
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.plan.secrets import CopiedSecret, Store, config_names, secret_rows
from gpu_tenancy.model.resolve import resolve
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


@pytest.mark.parametrize(
    ("variable", "error"),
    [
        ({"secret": "wandb"}, "names no key; set key to the key whose value the variable gets"),
        ({"field": "metadata.name", "key": "a"}, "sets key without secret or configMap; remove key"),
        ({}, "does not have one source; write a text, or set one of secret, configMap and field"),
        (
            {"secret": "wandb", "configMap": "b", "key": "c"},
            "does not have one source; write a text, or set one of secret, configMap and field",
        ),
    ],
)
def test_a_variable_has_one_source(variable: Data, error: str) -> None:
    assert problems({"env": {"A": variable}}) == [f"teams.vision.serving.api.env.A: {error}"]


def test_a_number_is_not_text() -> None:
    assert problems({"env": {"PORT": 8080}}) == [
        "teams.vision.serving.api.env.PORT: 8080 is not a string; set a string, in quotes"
    ]


def test_workloads_of_a_team_that_declares_secrets_use_no_others() -> None:
    found = problems(
        {
            "env": {"A": {"secret": "wandbb", "key": "TOKEN"}, "B": {"secret": "wandb", "key": "TOKE"}},
            "envFrom": [{"secret": "other"}],
            "files": {"/a": {"secret": "s4"}, "/b": {"secret": "s3", "items": {"IDD": "x"}}},
            "imagePullSecrets": ["huub"],
        },
        workloadSecrets=["s33"],
    )
    assert [problem.partition(";")[0] for problem in found] == [
        "teams.vision.serving.api.env.A.secret: unknown Secret 'wandbb' (did you mean 'wandb'?)",
        "teams.vision.serving.api.env.B.key: unknown key 'TOKE' (did you mean 'TOKEN'?)",
        "teams.vision.serving.api.envFrom[0].secret: unknown Secret 'other'",
        "teams.vision.serving.api.files./a.secret: unknown Secret 's4'",
        "teams.vision.serving.api.files./b.items.IDD: unknown key 'IDD' (did you mean 'ID'?)",
        "teams.vision.serving.api.imagePullSecrets[0]: unknown Secret 'huub' (did you mean 'hub'?)",
        "teams.vision.workloadSecrets[0]: unknown Secret 's33' (did you mean 's3'?)",
    ]


def test_a_team_without_declared_secrets_can_use_any() -> None:
    assert problems(secrets={}, imagePullSecrets=["any"], workloadSecrets=["other"]) == []


def test_a_variable_is_set_once() -> None:
    twice: Data = {"env": {}, "envFrom": [{"secret": "s3"}, {"secret": "s3"}]}
    assert problems(twice) == ["teams.vision.serving.api.envFrom: names s3 twice; remove one of them"]
    sources = {**SOURCES, "other": {"config": {"ID": "a"}}}
    both = {"envFrom": [{"secret": "s3"}, {"secret": "other"}]}
    assert problems(both, secrets=sources) == [
        "teams.vision.serving.api.envFrom: sets variable ID twice; set prefix for one of the sources"
    ]
    assert problems({"envFrom": [{"secret": "s3"}, {"secret": "other", "prefix": "O_"}]}, secrets=sources) == []


def test_two_mounts_have_two_paths() -> None:
    here = sections({**USES, "datasets": {"corpus": "/etc/keys"}})
    found = errors({**here, "datasets": {"corpus": "s3://corpus"}})
    (error,) = found
    assert error.endswith(
        "mounts two volumes at /etc/keys; set different paths under datasets, volumes, scratch and files"
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({}, "does not have one source; set one of existing: true, from and config"),
        (
            {"existing": True, "config": {"A": "a"}},
            "does not have one source; set one of existing: true, from and config",
        ),
        ({"existing": True, "keys": {"A": "a"}}, "sets keys, which only applies with from; remove keys"),
        (
            {"from": "aws://eu-central-1/a", "key": "A", "keys": {"B": "b"}},
            "sets key and keys; keep key for the whole value, or keys for fields of it",
        ),
        (
            {"config": {"A": "a"}, "type": "kubernetes.io/dockerconfigjson"},
            (
                "has type kubernetes.io/dockerconfigjson without its only key .dockerconfigjson; set config:"
                " {.dockerconfigjson: NAME}"
            ),
        ),
    ],
)
def test_a_secret_has_one_source(source: Data, error: str) -> None:
    assert problems({}, secrets={"hub": {"existing": True}, "x": source}) == [f"teams.vision.secrets.x: {error}"]


@pytest.mark.parametrize(
    "url",
    [
        "vault/a",
        "aws://a",
        "aws://eu-central-1/",
        "gcp://P/a",
        "azure://vault/name",
        "s3://a/b",
        "aws://eu-central-1/a b",
    ],
)
def test_a_secret_of_no_manager_is_refused(url: str) -> None:
    (error,) = problems({}, secrets={"hub": {"existing": True}, "x": {"from": url}})
    assert error == (
        f"teams.vision.secrets.x.from: {url} is not a secret of a cloud's secret manager; use aws://REGION/NAME,"
        " gcp://PROJECT/NAME or azure://RESOURCE-GROUP/VAULT/NAME"
    )


def test_an_image_is_pulled_with_credentials_of_a_registry() -> None:
    assert problems(imagePullSecrets=["wandb", "signing"]) == [
        (
            "teams.vision.imagePullSecrets[0]: wandb has type Opaque, with which no image can be pulled; set"
            " teams.vision.secrets.wandb.type: kubernetes.io/dockerconfigjson"
        )
    ]


def test_a_secret_of_another_cloud_is_refused() -> None:
    here = sections()
    here["cluster"]["provider"] = "gcp"
    assert [error.partition(";")[0] for error in errors(here) if "another cloud" in error] == [
        f"teams.vision.secrets.{name}.from: aws://eu-central-1/vision/{name} is in another cloud than the cluster"
        " (gcp), whose identities have no rights there"
        for name in ("hub", "s3")
    ]


def test_the_budget_has_room_for_all_secrets() -> None:
    assert problems(objects={"secrets": 3}) == [
        "teams.vision.objects.secrets: 3 is less than the number of Secrets that the team declares (4); raise it to 4"
    ]


def test_the_reader_of_secrets_is_not_a_ci_account() -> None:
    assert problems(serviceAccounts={"secret-reader": {"role": "viewer"}}) == [
        (
            "teams.vision.serviceAccounts.secret-reader: secret-reader is the ServiceAccount that reads the team's"
            " secrets in the cloud; rename it"
        )
    ]


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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HF_HOME", "/models/hf_cache"),
        ("TOKENIZER", "gpt2-medium-2024-01-01"),
        ("WANDB_API_KEY", "dryrun"),
        ("OPENAI_API_KEY", "$(FROM_SECRET_1234567)"),
        ("URL", "https://example.com:8443/path@v1"),
        ("PASSWORD", UNREAD),
        ("DIGEST", "sha256:" + "0a" * 32),
        ("DB", "postgres://ml:$(PASSWORD)@db/ml"),
    ],
)
def test_values_without_credentials_are_accepted(name: str, text: str) -> None:
    assert problems({"env": {name: text}}) == []


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
    rows = {row.name: (row.source, row.users, row.restarts) for row in secret_rows(resolve(load(Source(sections()))))}
    assert rows == {
        "hub": ("aws://eu-central-1/vision/hub", ("image pulls of all pods",), False),
        "s3": ("aws://eu-central-1/vision/s3", ("api",), False),
        "signing": ("created by hand", ("api",), False),
        "wandb": ("Pulumi config", ("api",), True),
    }
