"""Canaries: a secret of a stack's config reaches the pods that need it, as a secret, and nothing else."""

import json
from pathlib import Path
from typing import Final

import pulumi
import pytest
from builders import job, server
from console_builders import Project, small

from gpu_tenancy.console.offline.objects import kubernetes_objects, to_yaml
from gpu_tenancy.console.offline.render import Rendered, render
from gpu_tenancy.console.offline.wire import text_at
from gpu_tenancy.console.project import Preview
from gpu_tenancy.console.review.build import as_json, review
from gpu_tenancy.console.review.comment import comment
from gpu_tenancy.console.review.page import page
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file, to_config

CANARY: Final = "hunter2-canary"
ENCRYPTED: Final = "AAABAKencrypted"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


def run(project: Project, path: tuple[str, ...] = (), value: str = CANARY) -> Rendered:
    """Runs the program with the config that Pulumi's engine gives it: secrets decrypted, and encrypted in the file."""
    container = {"env": {"TOKEN": {"secure": ENCRYPTED}}, "args": ["--key", {"secure": ENCRYPTED}]}
    sections = small()
    sections["teams"]["vision"]["serving"]["api"] = server(**container)
    sections["teams"]["vision"]["training"]["nightly"] = job(gpus=2, **container)
    if path:
        at = sections
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = {"secure": ENCRYPTED}
    source = read_file(project.write("good", sections))
    config = {key: text.replace("unread-secret", value) for key, text in to_config(source).items()}
    return render(project.folder, project="gpu-tenancy", stack="good", config=config)


def test_secrets_of_containers_reach_the_pods_as_secrets(project: Project) -> None:
    rendered = run(project)
    having = [one for one in rendered.registrations if CANARY in json.dumps(one.inputs)]
    assert {text_at(one.inputs, "kind") for one in having} == {"Deployment", "Job"}
    for one in having:
        assert len(one.secret_paths) >= 2
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


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("teams", "vision", "owner"), "hunter2 canary", "teams.vision.owner: (secret) is not a valid label value"),
        (("teams", "vision", "cohort"), CANARY, "teams.vision.cohort: "),
        (("teams", "vision", "priority"), CANARY, "teams.vision.priority: "),
        (("pools", "h100", "machine"), CANARY, "pools.h100.machine: "),
        (("pools", "h100", "nodes"), CANARY, "pools.h100.nodes: "),
        (("cluster", "cloud"), CANARY, "cluster: "),
    ],
)
def test_no_error_has_a_decrypted_value(project: Project, path: tuple[str, ...], value: str, message: str) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        run(project, path, value)
    assert message in str(refused.value)
    assert value not in str(refused.value)
