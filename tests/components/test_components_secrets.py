"""Canaries: a secret of a stack's config reaches the pod or release that needs it, as a secret, and nothing else."""

import json
from pathlib import Path
from typing import Any, Final

import pulumi
import pytest
from builders import job, server
from cli_builders import Project, small

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.files import to_yaml
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file, to_config
from gpu_tenancy.review.build import as_json, review
from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.page import page

CANARY: Final = "hunter2-canary"
ENCRYPTED: Final = "AAABAKencrypted"


REASON: Final = (
    "is secret, but the names and amounts of a plan are plain values; pass a plain value; only image, command, args and"
    " env of a server or job, and texts in the values of an operator, can be secret"
)
LANGUAGE_HOST: Final = """
from pulumi.runtime import config
config.set_all_config(config.CONFIG.get(), ["gpu-tenancy:teams"])
"""
"""What Pulumi's language host does for a section that has a secret at any depth."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


def stack() -> dict[str, Any]:
    """A stack with each kind of secret that stays one."""
    container = {"env": {"TOKEN": {"secure": ENCRYPTED}}, "args": ["--key", {"secure": ENCRYPTED}]}
    values = {"grafana": {"adminPassword": {"secure": ENCRYPTED}}}
    sections = small(operators={"prometheus": {"install": "here", "values": values}, "gpuOperator": "off"})
    sections["teams"]["vision"]["serving"]["api"] = server(**container)
    sections["teams"]["vision"]["training"]["nightly"] = job(gpus=2, **container)
    return sections


def run(project: Project, *places: tuple[str, ...], value: str = CANARY) -> Rendered:
    """Runs the program with the config that Pulumi's engine gives it: secrets decrypted, and encrypted in the file."""
    sections = stack()
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
        *(to_yaml(one) for one in kubernetes_objects(rendered)),
        *(as_json(seen), comment(seen), page(seen), repr(rendered), json.dumps(rendered.outputs)),
    ]
    assert not [text for text in outputs if CANARY in text or ENCRYPTED in text]


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
"""Places whose values would be readable in objects, names or outputs."""


@pytest.mark.parametrize("value", [CANARY, "{}"], ids=["text", "mapping"])
@pytest.mark.parametrize("path", SHOWN, ids=".".join)
def test_a_secret_that_objects_would_show_is_refused_with_its_line(
    project: Project, path: tuple[str, ...], value: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run(project, path, value=value)
    source = read_file(project.folder / "stacks" / "Pulumi.good.yaml")
    assert str(refused.value) == f"stacks/Pulumi.good.yaml:{source.line(path)}: {'.'.join(path)}: {REASON}"


def test_all_are_refused_at_once_with_the_other_problems_of_the_stack(project: Project) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run(project, ("teams", "vision", "costCenter"), ("pools", "l4", "nodes"), ("teams", "vision", "ownr"))
    problems = str(refused.value).splitlines()
    assert [problem.split(": ")[1] for problem in problems] == [
        "pools.l4.nodes",
        "teams.vision.costCenter",
        "teams.vision.ownr",
    ]
    assert CANARY not in str(refused.value)


def test_the_text_of_a_section_that_only_the_engine_knows_as_secret_is_not_shown(project: Project) -> None:
    """Where a section can be the name of a file, its text is in the error about the file."""
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
