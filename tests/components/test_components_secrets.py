"""Secrets of stacks and teams: the places of their values, and no other places."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import pulumi
import pytest
from builders import FEW_CPUS, Data, job, server, stack, team
from cli_builders import Project, small
from components_builders import Program, pod_specs, tenancy

from components.secrets import CHECKSUM, checksum
from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.files import as_yaml
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file, to_config
from gpu_tenancy.model.spec.roles import KINDS
from gpu_tenancy.review.build import as_json, review
from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.page import page

CANARY: Final = "hunter2-canary"
ENCRYPTED: Final = "AAABAKencrypted"

REASON: Final = (
    "is secret, but the names and amounts of a plan are plain values; pass a plain value; only image, command, args and"
    " env of a server or job, and texts in the values of an operator, can be secret"
)
# As Pulumi's language host, for a section that has a secret at any depth.
LANGUAGE_HOST: Final = """
from pulumi.runtime import config
config.set_all_config(config.CONFIG.get(), ["gpu-tenancy:teams"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


def with_secrets() -> dict[str, Any]:
    """A stack with each kind of secret that stays one."""
    container = {"env": {"TOKEN": {"secure": ENCRYPTED}}, "args": ["--key", {"secure": ENCRYPTED}]}
    values = {"grafana": {"adminPassword": {"secure": ENCRYPTED}}}
    sections = small(operators={"prometheus": {"install": "here", "values": values}, "gpuOperator": "off"})
    sections["teams"]["vision"]["serving"]["api"] = server(**container)
    sections["teams"]["vision"]["training"]["nightly"] = job(gpus=2, **container)
    return sections


def run(project: Project, *places: tuple[str, ...], value: str = CANARY) -> Rendered:
    """Runs the program with the config of Pulumi's engine: secrets decrypted, and encrypted in the file."""
    sections = with_secrets()
    for *around, key in places:
        at = sections
        for part in around:
            at = at[part]
        at[key] = {"secure": ENCRYPTED}
    source = read_file(project.write("good", sections))
    config = {key: text.replace("unread-secret", value) for key, text in to_config(source).items()}
    return render(project.folder, project="gpu-tenancy", stack="good", config=config)


def test_secrets_reach_pods_and_releases_as_secrets(project: Project) -> None:
    rendered = run(project)
    having = [one for one in rendered.registrations if CANARY in json.dumps(one.inputs)]
    paths = {text_at(one.inputs, "kind") or text_at(one.inputs, "chart"): one.secret_paths for one in having}
    pod = ("spec", "template", "spec", "containers", 0)
    in_pods = {(*pod, "args", 1), (*pod, "env", 0, "value")}
    assert {kind: set(found) for kind, found in paths.items()} == {
        "Deployment": in_pods,
        "Job": in_pods,
        "kube-prometheus-stack": {("values", "grafana", "adminPassword")},
    }
    for one in having:
        assert CANARY not in json.dumps(one.shown)
        assert "[secret]" in json.dumps(one.shown)
    assert "late-" not in json.dumps([one.inputs for one in rendered.registrations])


def test_no_output_of_a_preview_has_them(project: Project) -> None:
    rendered = run(project)
    stack = load(read_file(project.folder / "stacks" / "Pulumi.good.yaml"))
    seen = review(Preview("good", stack, rendered, kubernetes_objects(rendered), stack), project.folder)
    outputs = [
        *(as_yaml(one.shown) for one in kubernetes_objects(rendered)),
        *(as_json(seen), comment(seen), page(seen), repr(rendered), json.dumps(rendered.outputs)),
    ]
    assert not [text for text in outputs if CANARY in text or ENCRYPTED in text]


# Places whose values would be readable in objects, names or outputs.
SHOWN = [
    ("teams", "vision", "costCenter"),
    ("teams", "vision", "owner"),
    ("teams", "vision", "cohort"),
    ("teams", "vision", "serving"),
    ("pools", "h100", "machine"),
    ("pools", "h100", "nodes"),
    ("operators", "prometheus", "version"),
    ("operators", "prometheus", "values"),
    ("cluster", "cloud"),
    ("environment",),
    ("teams",),
    ("people",),
]


@pytest.mark.parametrize("value", [CANARY, "{}"], ids=["text", "mapping"])
@pytest.mark.parametrize("path", SHOWN, ids=".".join)
def test_a_secret_that_objects_show_is_refused_with_its_line(
    project: Project, path: tuple[str, ...], value: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run(project, path, value=value)
    source = read_file(project.folder / "stacks" / "Pulumi.good.yaml")
    assert str(refused.value) == f"stacks/Pulumi.good.yaml:{source.line(path)}: {'.'.join(path)}: {REASON}"


def test_secrets_are_refused_with_the_other_problems(project: Project) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run(project, ("teams", "vision", "costCenter"), ("pools", "l4", "nodes"), ("teams", "vision", "ownr"))
    problems = str(refused.value).splitlines()
    assert [problem.split(": ")[1] for problem in problems] == [
        "pools.l4.nodes",
        "teams.vision.costCenter",
        "teams.vision.ownr",
    ]
    assert CANARY not in str(refused.value)


def test_a_secret_section_is_not_shown_in_errors(project: Project) -> None:
    """If a section can be a file's name, its text would be in the error about the file."""
    main = project.folder / "__main__.py"
    main.write_text(LANGUAGE_HOST + main.read_text())
    config = to_config(read_file(project.write("good", small()))) | {"gpu-tenancy:teams": CANARY}
    with pytest.raises(pulumi.RunError, match=r"^teams: has a secret that is not in stacks/Pulumi\.good\.yaml; "):
        render(project.folder, project="gpu-tenancy", stack="good", config=config)


def test_a_secret_whose_place_only_the_engine_knows_is_refused(project: Project) -> None:
    main = project.folder / "__main__.py"
    main.write_text(LANGUAGE_HOST + main.read_text())
    run(project)  # its places are in the file
    sections = small()
    sections["teams"]["vision"]["serving"]["api"] = server(env={"TOKEN": CANARY})
    source = read_file(project.write("good", sections))
    with pytest.raises(pulumi.RunError) as refused:
        render(project.folder, project="gpu-tenancy", stack="good", config=to_config(source))
    assert str(refused.value) == (
        "teams: has a secret that is not in stacks/Pulumi.good.yaml; set it with `pulumi config set --secret --path` in"
        " stacks/Pulumi.good.yaml"
    )


# Secrets of teams: what pods refer to, what is made, and canaries: values of the config are nowhere else


USES: Final[Data] = {
    "env": {"LEVEL": "info", "TOKEN": {"secret": "wandb", "key": "TOKEN"}, "POD": {"field": "metadata.name"}},
    "envFrom": [{"secret": "s3", "prefix": "S3_"}, {"configMap": "settings"}],
    "files": {"/etc/keys": {"secret": "signing", "items": {"a.key": "b/a.key"}}, "/etc/map": {"configMap": "settings"}},
    "imagePullSecrets": ["own"],
}
SECRETS: Final[Data] = {
    "wandb": {"config": {"TOKEN": "wandb-vision"}},
    "s3": {"from": "aws://eu-central-1/vision/s3", "refresh": "15m"},
    "signing": {"existing": True},
    "own": {"existing": True},
    "hub": {"existing": True},
}


def with_workloads(**workloads: Data) -> Data:
    of_team = team(
        gpus={"h100": {"guaranteed": 8}},
        quota=FEW_CPUS,
        gangs={"a100": {"guaranteed": 8}},
        secrets=SECRETS,
        imagePullSecrets=["hub"],
        **workloads,
    )
    return stack(teams={"vision": of_team})


@pytest.fixture(scope="module")
def kinds() -> Program:
    """One workload of each kind that uses all secrets."""
    frameworks: dict[str, Data] = {name: job(framework=name, **USES) for name in KINDS}
    for name in ("mpi", "deepspeed", "ray"):
        frameworks[name]["command"] = ["mpirun"]
    gang = job(scheduler="volcano", workers=2, flavor="a100", **USES)
    return tenancy(with_workloads(serving={"api": server(**USES)}, training={**frameworks, "gang": gang}))


def workloads(kinds: Program) -> Mapping[str, list[Any]]:
    """The pod specs of each workload; a TrainJob's are in its runtime."""
    names = {"Deployment", "Job", "JobSet", "LeaderWorkerSet", "RayJob", "TrainingRuntime"}
    found = {f"{one.kind}/{one.name}": one for one in kinds.objects if one.kind in names}
    return {name: pod_specs(one) for name, one in found.items() if pod_specs(one)}


def test_each_kind_of_pod_refers_to_secrets_and_has_no_value(kinds: Program) -> None:
    found = workloads(kinds)
    assert {"Deployment/api", "Job/job", "Job/gang", "JobSet/jobset", "TrainingRuntime/job-mpi"} <= found.keys()
    assert {"RayJob/ray", "LeaderWorkerSet/leader-worker"} <= found.keys()
    for specs in found.values():
        for spec in specs:
            (container,) = spec["containers"]
            variables = {one["name"]: one for one in container["env"]}
            assert variables["LEVEL"]["value"] == "info"
            assert variables["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "wandb", "key": "TOKEN"}}
            assert variables["POD"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            assert [one["name"] for one in container["env"]] == sorted(variables)
            assert container["envFrom"] == [
                {"secretRef": {"name": "s3"}, "prefix": "S3_"},
                {"configMapRef": {"name": "settings"}},
            ]
            mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
            volumes = {one["name"]: one for one in spec["volumes"]}
            keys, settings = (volumes[mounts[path]["name"]] for path in ("/etc/keys", "/etc/map"))
            assert keys["secret"] == {"secretName": "signing", "items": [{"key": "a.key", "path": "b/a.key"}]}
            assert settings["configMap"] == {"name": "settings"}
            assert mounts["/etc/keys"]["readOnly"]
            assert spec["imagePullSecrets"] == [{"name": "hub"}, {"name": "own"}]


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_a_train_job_and_its_runtime_refer_to_secrets(kinds: Program, framework: str) -> None:
    spec = kinds.spec("TrainJob", framework)
    variables = {one["name"]: one for one in spec["trainer"]["env"]}
    assert variables["TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "wandb", "key": "TOKEN"}}
    (patch,) = spec["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "hub"}, {"name": "own"}]
    assert {one["mountPath"] for one in pod["containers"][0]["volumeMounts"]} >= {"/etc/keys", "/etc/map"}
    runtime = kinds.spec("TrainingRuntime", f"job-{framework}")
    (made,) = runtime["template"]["spec"]["replicatedJobs"]
    (container,) = made["template"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"][0] == {"secretRef": {"name": "s3"}, "prefix": "S3_"}


def test_all_pods_of_a_team_pull_with_its_secrets(kinds: Program) -> None:
    account = cast("Any", kinds.only("ServiceAccount", "workload").manifest)
    assert account["imagePullSecrets"] == [{"name": "hub"}]


def test_a_secret_of_the_cloud_is_copied_by_the_team(kinds: Program) -> None:
    external = kinds.only("ExternalSecret")
    assert cast("Any", external.manifest)["spec"] == {
        "refreshInterval": "900s",
        "secretStoreRef": {"kind": "SecretStore", "name": "aws-eu-central-1"},
        "target": {"name": "s3", "creationPolicy": "Owner", "deletionPolicy": "Retain", "template": {"type": "Opaque"}},
        "dataFrom": [{"extract": {"key": "vision/s3"}}],
    }
    store = kinds.only("SecretStore")
    assert cast("Any", store.manifest)["spec"]["provider"]["aws"] == {
        "service": "SecretsManager",
        "region": "eu-central-1",
        "auth": {"jwt": {"serviceAccountRef": {"name": "secret-reader"}}},
    }
    account = kinds.only("ServiceAccount", "secret-reader")
    assert not cast("Any", account.manifest)["automountServiceAccountToken"]
    assert account.urn in store.depends_on
    assert store.urn in external.depends_on
    for kind, name in (("Deployment", "api"), ("Job", "job")):
        needs = {one.name for one in kinds.objects if one.urn in kinds.every(kind, name)[0].depends_on}
        assert {"wandb", "s3"} <= needs


def test_only_servers_restart_when_a_value_of_the_config_changes(kinds: Program) -> None:
    having = [one for one in kinds.objects if CHECKSUM in json.dumps(one.manifest)]
    assert [(one.kind, one.name) for one in having] == [("Deployment", "api")]
    assert checksum(["a", "b"]) != checksum(["a", "c"])
    assert checksum(["ab", "c"]) != checksum(["a", "bc"])
    assert len(checksum([CANARY])) == 4


def sections() -> Data:
    made = small()
    made["teams"]["vision"]["secrets"] = {"wandb": {"config": {"TOKEN": "wandb-vision"}}}
    made["teams"]["vision"]["serving"]["api"] = server(env={"TOKEN": {"secret": "wandb", "key": "TOKEN"}})
    return made


def run_with(project: Project, config: Mapping[str, str], *, secret: bool = True) -> Rendered:
    """Runs the program as Pulumi's engine does, which decrypts the config and marks secret keys."""
    main = project.folder / "__main__.py"
    keys = json.dumps([key for key in config if secret])
    main.write_text(
        f"from pulumi.runtime import config as c\nc.set_all_config(c.CONFIG.get(), {keys})\n{main.read_text()}"
    )
    source = read_file(project.write("good", sections()))
    given = {key: value for key, value in to_config(source).items() if not key.startswith("secrets:")}
    return render(project.folder, project="gpu-tenancy", stack="good", config={**given, **config})


def test_a_value_of_the_config_is_in_its_secret_and_nowhere_else(project: Project) -> None:
    rendered = run_with(project, {"secrets:wandb-vision": CANARY})
    encoded = base64.b64encode(CANARY.encode()).decode()
    having = [one for one in rendered.registrations if encoded in json.dumps(one.inputs)]
    assert [cast("Any", one.inputs)["metadata"]["name"] for one in having] == ["wandb"]
    assert having[0].secret_paths
    assert not [one for one in rendered.registrations if CANARY in json.dumps(one.inputs)]
    stack = load(read_file(project.folder / "stacks" / "Pulumi.good.yaml"))
    seen = review(Preview("good", stack, rendered, kubernetes_objects(rendered), stack), project.folder)
    shown = [
        *(as_yaml(one.shown) for one in kubernetes_objects(rendered)),
        *(json.dumps(one.shown) for one in rendered.registrations),
        *(as_json(seen), comment(seen), page(seen), repr(rendered), json.dumps(rendered.outputs)),
    ]
    assert not [text for text in shown if CANARY in text or encoded in text]
    assert "[secret]" in json.dumps(having[0].shown)
    assert "Pulumi config" in comment(seen)


def test_a_missing_value_is_named_with_the_command_that_sets_it(project: Project) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run_with(project, {})
    assert str(refused.value).endswith(
        "teams.vision.secrets.wandb.config.TOKEN: wandb-vision is not in the Pulumi config; run"
        " `pulumi config set --secret secrets:wandb-vision`"
    )


def test_a_value_in_clear_text_is_refused_and_not_shown(project: Project) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run_with(project, {"secrets:wandb-vision": CANARY}, secret=False)
    assert "wandb-vision is in clear text in the Pulumi config; run `pulumi config set --secret" in str(refused.value)
    assert CANARY not in str(refused.value)
