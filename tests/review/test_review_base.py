"""A stack at another git ref, and the review of its changes since then."""

import json
from pathlib import Path

import pytest
from builders import Data
from cli_builders import Project, git, small

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.recording import UNKNOWN
from gpu_tenancy.review.base import base
from gpu_tenancy.review.build import as_json, between, review
from gpu_tenancy.review.verdict import OK, REVIEW

pytestmark = pytest.mark.process


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a repository, committed with one stack."""
    found = Project.at(tmp_path / "repository" / "platform")
    found.write("s", small())
    git(tmp_path, "init", "-q", "repository")
    git(found.folder, "add", ".")
    git(found.folder, "commit", "-qm", "first")
    return found


def raised(limit: int) -> Data:
    sections = small()
    sections["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 2, "limit": limit}}
    return sections


@pytest.mark.slow
def test_the_base_stack_is_read_from_its_ref(project: Project) -> None:
    as_it_is = preview("s", project.folder)
    project.write("s", raised(4))
    found = base("HEAD", "s", project.folder, "gpu-tenancy")
    assert found.stack == as_it_is.stack
    assert found.rendered is not None
    assert found.rendered.registrations == as_it_is.rendered.registrations
    assert found.notes == ()


@pytest.mark.slow
def test_a_review_shows_gains_with_file_and_line(project: Project) -> None:
    project.write("s", raised(4))
    found = review(preview("s", project.folder), project.folder, ref="HEAD")
    assert "Team speech: l4 limit raised from 2 to 4 GPUs" in found.verdict.sentences
    assert found.verdict.title == OK
    assert {change.place for change in found.changes} == {"ClusterQueue speech", "ResourceQuota speech/budget"}
    line = (
        Path(project.folder, "stacks/Pulumi.s.yaml").read_text(encoding="utf-8").splitlines().index("    speech:") + 1
    )
    assert found.where["team speech"] == f"stacks/Pulumi.s.yaml:{line}"


def test_a_stack_that_was_not_there_is_all_new(project: Project) -> None:
    project.write("new", small())
    found = review(preview("new", project.folder), project.folder, ref="HEAD")
    assert found.comparison is not None
    assert found.comparison.notes == ("stack new does not exist at HEAD; all resources are new",)
    assert found.comparison.before is None


@pytest.mark.slow
def test_a_stack_that_todays_rules_refuse_is_compared_without_its_promises(project: Project) -> None:
    wrong = small()
    wrong["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 99}}
    project.write("s", wrong)
    git(project.folder, "commit", "-qam", "wrong")
    project.write("s", small())
    with pytest.raises(ConsoleError, match=r"HEAD: cannot render stack s with the program at this ref \(.*99"):
        base("HEAD", "s", project.folder, "gpu-tenancy")


def test_a_ref_that_is_not_there_is_named(project: Project) -> None:
    with pytest.raises(ConsoleError, match=r"nowhere: git rev-parse failed: .*specify a branch, tag or commit"):
        base("nowhere", "s", project.folder, "gpu-tenancy")


@pytest.mark.slow
def test_two_refs_are_compared_without_the_files_of_today(project: Project) -> None:
    project.write("s", raised(3))
    git(project.folder, "commit", "-qam", "second")
    project.write("s", raised(4))
    found = between("s", "HEAD~1", "HEAD", project.folder)
    assert "Team speech: l4 limit raised from 2 to 3 GPUs" in found.verdict.sentences
    assert found.where == {}


@pytest.mark.slow
def test_machines_read_the_same_review(project: Project) -> None:
    found = review(preview("s", project.folder), project.folder, ref="HEAD")
    data = json.loads(as_json(found))
    assert data["verdict"]["line"] == found.verdict.line
    assert [team["name"] for team in data["now"]["teams"]] == ["speech", "vision"]
    assert as_json(found) == as_json(review(preview("s", project.folder), project.folder, ref="HEAD"))


# Pulumi's own preview, laid over.


def pulumi_preview(folder: Path, *steps: dict[str, object]) -> Path:
    file = folder / "preview.json"
    file.write_text(json.dumps({"steps": steps}), encoding="utf-8")
    return file


def step(op: str, urn: str, before: object = None, after: object = None, **rest: object) -> dict[str, object]:
    type_ = urn.split("::")[2].rpartition("$")[2]
    states = {"oldState": before, "newState": after}
    kept = {key: {"type": type_, "custom": True, "inputs": state} for key, state in states.items() if state is not None}
    return {"op": op, "urn": urn, **kept, **rest}


def test_pulumis_preview_is_grouped_by_team(project: Project) -> None:
    found = preview("s", project.folder)
    quota = next(resource.urn for resource in found.rendered.registrations if resource.type.endswith(":ResourceQuota"))
    whole = quota.replace("urn:pulumi:s::", "urn:pulumi:acme/gpu-tenancy/s::")
    gone = "urn:pulumi:s::gpu-tenancy::kubernetes:core/v1:Secret::old"
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}
    file = pulumi_preview(
        project.folder,
        step("same", gone.replace("old", "kept"), {}, {}),
        step(
            "update",
            whole,
            {"spec": {"hard": {"requests.nvidia.com/gpu": "2", "key": secret}}},
            {"spec": {"hard": {"requests.nvidia.com/gpu": UNKNOWN, "key": "b"}}},
            detailedDiff={
                'spec.hard["requests.nvidia.com/gpu"]': {"kind": "update"},
                "spec.hard.key": {"kind": "update"},
            },
        ),
        step("delete", gone, {}),
    )
    seen = review(found, project.folder, real=file)
    assert seen.real is not None
    assert seen.real.same == 1
    deleted, updated = seen.real.changes
    assert (deleted.action, deleted.place, deleted.group) == ("delete", "Secret old", "not in the stack file")
    assert (updated.action, updated.group) == ("update", "team speech")
    assert [(field.path, field.before, field.after) for field in updated.fields] == [
        ("spec.hard.key", "[secret]", "b"),
        ("spec.hard.requests.nvidia.com/gpu", "2", "[unknown]"),
    ]
    assert "1 resource will be deleted: Secret old" in seen.verdict.sentences


@pytest.mark.parametrize(
    ("text", "why"), [("{", "not valid JSON"), ("{}", "missing key 'steps'"), (None, "cannot read the file")]
)
def test_an_invalid_preview_file_is_refused(project: Project, text: str | None, why: str) -> None:
    file = project.folder / "p.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConsoleError, match=f"p.json: {why}.*specify a file written by `pulumi preview --json`"):
        review(preview("s", project.folder), project.folder, real=file)


@pytest.mark.slow
def test_removed_and_added_teams_have_one_sentence_each(project: Project) -> None:
    sections = small()
    sections["teams"]["third"] = {**sections["teams"].pop("speech"), "gpus": {"l4": {"guaranteed": 1, "limit": 3}}}
    project.write("s", sections)
    found = review(preview("s", project.folder), project.folder, ref="HEAD").verdict.sentences
    assert "Team speech is removed (had 2 l4 GPUs guaranteed, limit 2)" in found
    assert "Team third is added (1 l4 GPU guaranteed, limit 3)" in found
    assert len([reason for reason in found if "speech" in reason and "deleted" not in reason]) == 1


@pytest.mark.slow
def test_a_review_names_what_the_change_would_adopt(project: Project) -> None:
    sections = small()
    sections["cluster"]["adopt"] = ["Namespace/vision"]
    project.write("s", sections)
    current = preview("s", project.folder)
    for ref in ("HEAD", None):
        verdict = review(current, project.folder, ref=ref).verdict
        assert verdict.title == REVIEW
        assert verdict.sentences[0] == "1 object will be adopted if existing: Namespace/vision"
    git(project.folder, "commit", "-qam", "adopt")
    assert review(current, project.folder, ref="HEAD").verdict.title == OK
