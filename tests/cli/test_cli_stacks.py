"""Commands about stack files, as people and pipelines run them."""

import json
from pathlib import Path

import pytest
from builders import Data
from cli_builders import Project, git, small, tenancy
from object_server import serving
from typer.testing import Result

from gpu_tenancy.cluster.reading import KUEUE
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.model.names import STACK

pytestmark = pytest.mark.process


@pytest.fixture
def project(project: Project) -> Project:
    """A project in a repository, with one stack committed."""
    git(project.folder, "init", "-q")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-qm", "first")
    return project


def run(project: Project, *arguments: object) -> Result:
    return tenancy(*arguments, project=project.folder)


def raised() -> Data:
    sections = small()
    sections["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 2, "limit": 4}}
    return sections


# Validate.


def test_all_stacks_are_validated_and_a_wrong_one_among_them_is_exit_code_1(project: Project) -> None:
    assert (run(project, "stack", "validate").stdout, run(project, "stack", "validate").exit_code) == ("✓ good\n", 0)
    wrong = small()
    wrong["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 9}}
    project.write("bad", wrong)
    seen = run(project, "stack", "validate")
    assert (seen.exit_code, seen.stdout) == (1, "✓ good\n")
    assert "teams.speech.gpus.l4.guaranteed: 9 " in seen.stderr
    assert run(project, "stack", "validate", "good").exit_code == 0


# Explain.


def test_a_teams_numbers_are_explained_by_the_lines_of_the_only_stack_that_has_it(project: Project) -> None:
    seen = run(project, "stack", "explain", "speech")
    assert (seen.exit_code, seen.stderr) == (0, "")
    text = Path(project.folder, "stacks/Pulumi.good.yaml").read_text(encoding="utf-8")
    line = text.splitlines().index("        l4:") + 1
    found = [each for each in seen.stdout.splitlines() if "l4 nvidia.com/gpu nominalQuota" in each]
    assert len(found) == 1
    for part in ("2", "set in the stack", f"stacks/Pulumi.good.yaml:{line} teams.speech.gpus.l4"):
        assert part in found[0]


def test_an_explanation_for_machines_has_the_same_numbers(project: Project) -> None:
    seen = json.loads(run(project, "stack", "explain", "speech", "--json").stdout)
    (nominal,) = [each for each in seen if each["field"] == "l4 nvidia.com/gpu nominalQuota"]
    assert (nominal["object"], nominal["value"], nominal["reason"]) == (
        "ClusterQueue speech",
        "2",
        "set in the stack",
    )


def test_an_ambiguous_team_requires_the_stack(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    project.write("other", small())
    seen = run(project, "stack", "explain", "speech")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "2 stacks have a team 'speech'; specify --stack good or --stack other" in seen.stderr
    assert run(project, "stack", "explain", "speech", "--stack", "good").exit_code == 0
    assert "no stack has a team 'nobody'; specify a stack" in run(project, "stack", "explain", "nobody").stderr
    misspelt = run(project, "stack", "explain", "speach", "--stack", "good")
    assert "stack good: unknown team 'speach'; did you mean 'speech'?" in misspelt.stderr
    for stack in ("good", "other"):
        cohort = {"metadata": {"name": "org", "annotations": {STACK: stack}}}
        with serving(tmp_path, {(KUEUE, "Cohort"): [cohort]}) as kubeconfig:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            assert f"stacks/Pulumi.{stack}.yaml:" in run(project, "stack", "explain", "speech").stdout


def test_the_stack_of_the_embedded_platform_explains_a_team(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("other", small())
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    platform = Platform()
    platform.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
    platform.kubeconfig.touch()
    platform.places.carried.parent.mkdir(parents=True, exist_ok=True)
    platform.carry(Carried("other", "server-side apply", 1))
    assert "stacks/Pulumi.other.yaml:" in run(project, "stack", "explain", "speech").stdout


# Diff, and the preview against a base.


@pytest.mark.slow
def test_a_diff_shows_the_verdict_and_each_changed_value(project: Project) -> None:
    project.write("good", raised())
    seen = run(project, "stack", "diff", "good", "HEAD")
    assert (seen.exit_code, seen.stderr) == (0, "")
    verdict = seen.stdout.partition("compared with HEAD")[0]
    assert "- Team speech: l4 limit raised from 2 to 4 GPUs\n" in verdict
    assert "  ~ ResourceQuota speech/budget" in seen.stdout
    assert "spec.hard.requests.nvidia.com/gpu: 2 → 4" in seen.stdout
    assert "4 (was 2)" in seen.stdout


@pytest.mark.slow
def test_the_preview_against_a_base_shows_only_changes(project: Project, tmp_path: Path) -> None:
    project.write("good", raised())
    out = tmp_path / "out"
    seen = run(project, "preview", "good", "--base", "HEAD", "--out", out)
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert "team speech" in seen.stdout
    assert "Deployment api" not in seen.stdout
    data = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert {each["name"] for each in data["changes"]} == {"speech", "speech/budget"}
    for name in ("report.html", "report.md"):
        text = (out / name).read_text(encoding="utf-8")
        assert "Team speech: l4 limit raised from 2 to 4 GPUs" in text
        assert "speech/budget" in text


@pytest.mark.slow
def test_no_change_is_reported_in_words(project: Project) -> None:
    seen = run(project, "preview", "good", "--base", "HEAD")
    assert (seen.exit_code, "no changes" in seen.stdout) == (0, True)


@pytest.mark.slow
def test_the_review_for_machines_is_all_that_is_printed(project: Project) -> None:
    seen = run(project, "preview", "good", "--base", "HEAD", "--json", "--policy", "workloads")
    data = json.loads(seen.stdout)
    assert seen.exit_code in {0, 2}
    assert data["comparison"]["ref"] == "HEAD"
    assert data["rules"]["packs"] == ["gpu-workloads 0.1.0"]
    assert (seen.exit_code == 2) == any(
        line["outcome"] == "broken" and line["level"] == "mandatory" for line in data["rules"]["lines"]
    )


def test_a_missing_base_is_an_error_without_output(project: Project) -> None:
    seen = run(project, "preview", "good", "--base", "nowhere")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "error: nowhere: git rev-parse failed: " in seen.stderr


def test_a_file_in_the_way_of_the_report_is_an_error_and_not_a_trace(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("mine", encoding="utf-8")
    seen = run(project, "preview", "good", "--out", file)
    assert (seen.exit_code, file.read_text(encoding="utf-8")) == (1, "mine")
    assert seen.stderr.startswith("error: ")
