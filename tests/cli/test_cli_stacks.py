"""Commands about stack files, and `tenancy cluster doctor --charts`."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import Data
from cli_builders import Project, git, small, tenancy
from object_server import serving
from rendered_stacks import stack_of_repository
from stand_ins import StandIn
from stand_ins import repository as serve
from typer.testing import Result

from gpu_tenancy.base import terminal
from gpu_tenancy.base.answer import Form
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output
from gpu_tenancy.cli.charts import ChartPin, chart_pins, chart_rows
from gpu_tenancy.cli.main import main
from gpu_tenancy.doctor import results
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.engine.files import helm_releases
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.names import KUEUE, STACK

pytestmark = pytest.mark.process


@pytest.fixture
def project(project: Project) -> Project:
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


def test_validates_all_stacks_and_fails_for_one(project: Project) -> None:
    assert (run(project, "stack", "validate").stdout, run(project, "stack", "validate").exit_code) == ("✓ good\n", 0)
    wrong = small()
    wrong["teams"]["speech"]["gpus"] = {"l4": {"guaranteed": 9}}
    project.write("bad", wrong)
    seen = run(project, "stack", "validate")
    assert (seen.exit_code, seen.stdout) == (1, "✓ good\n")
    assert "teams.speech.gpus.l4.guaranteed: 9 " in seen.stderr
    assert run(project, "stack", "validate", "good").exit_code == 0


def test_validate_warns_of_unknown_gpu_models(project: Project) -> None:
    sections = small()
    sections["pools"]["odd"] = {"gpu": "NVIDIA-X1", "gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 1}
    project.write("good", sections)
    seen = run(project, "stack", "validate")
    assert (seen.exit_code, seen.stdout) == (0, "✓ good\n")
    assert seen.stderr.startswith("good: pools.odd: GPU model NVIDIA-X1 is not in the catalogue (")


WRONG_PROJECT = "Pulumi.yaml: expected a mapping such as {name: my-platform, runtime: python}; change it"


@pytest.mark.parametrize(
    ("written", "arguments", "message"),
    [
        ("- a", ("stack", "validate"), WRONG_PROJECT),
        ("- a", ("preview", "good"), WRONG_PROJECT),
        ("name: [", ("stack", "render", "good", "--out", "out"), "Pulumi.yaml:1: invalid YAML: "),
        ("runtime: python", ("stack", "validate"), "Pulumi.yaml: the project has no name; add name: my-platform"),
        ("name: x", ("stack", "init", "/proc/x"), "error: /proc/x: No such file or directory; specify another one"),
        ("name: x", ("catalogue", "schema", "--out", "Pulumi.yaml/x"), "error: Pulumi.yaml: File exists; remove it"),
        ("name: x", ("catalogue", "schema", "--out", "stacks"), "error: stacks: Is a directory; specify another one"),
        ("name: x", ("stack", "validate", "-o", "foo"), "'--output' / '-o': 'foo' is not one of 'json', "),
    ],
)
def test_mistakes_of_files_and_options_have_no_traceback(
    project: Project, monkeypatch: pytest.MonkeyPatch, written: str, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(project.folder)
    Path("Pulumi.yaml").write_text(written, encoding="utf-8")
    seen = tenancy(*arguments)
    assert (seen.exit_code in {1, 2}, seen.stdout) == (True, ""), seen.exception
    assert message in seen.stderr


def test_the_traceback_of_a_program_begins_in_the_program(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.folder / "__main__.py").write_text("def mine():\n    raise RuntimeError('boom')\n\n\nmine()\n")
    monkeypatch.setattr("sys.argv", ["tenancy", "preview", "good", "--project", str(project.folder)])
    monkeypatch.setattr(terminal, "err", Output(stderr=True))
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().err
    assert "RuntimeError: boom" in shown
    assert "gpu_tenancy" not in shown


# Explain.


def test_explains_numbers_of_team_by_lines_of_its_stack(project: Project) -> None:
    seen = run(project, "stack", "explain", "speech")
    assert (seen.exit_code, seen.stderr) == (0, "")
    text = Path(project.folder, "stacks/Pulumi.good.yaml").read_text(encoding="utf-8")
    line = text.splitlines().index("        l4:") + 1
    found = [each for each in seen.stdout.splitlines() if "l4 nvidia.com/gpu nominalQuota" in each]
    assert len(found) == 1
    assert found[0].split()[-4:] == ["2", "line", str(line), "gpus.l4"]
    assert "set in the stack" not in seen.stdout
    assert "count/jobs.batch" not in seen.stdout
    assert "-v shows the reasons, and " in seen.stdout
    whole = run(project, "stack", "explain", "speech", "-v").stdout
    assert "set in the stack" in whole
    assert "count/jobs.batch" in whole
    assert run(project, "stack", "explain", "speech", "-o", "name").stdout.splitlines()[0] == "ClusterQueue speech"


def test_an_explanation_for_machines_has_the_same_numbers(project: Project) -> None:
    seen = json.loads(run(project, "stack", "explain", "speech", "--json").stdout)
    (nominal,) = [each for each in seen if each["field"] == "l4 nvidia.com/gpu nominalQuota"]
    assert (nominal["object"], nominal["value"], nominal["reason"]) == ("ClusterQueue speech", "2", "set in the stack")


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
    assert "stack good: unknown team 'speach' (did you mean 'speech'?)" in misspelt.stderr
    for stack in ("good", "other"):
        cohort = {"metadata": {"name": "org", "annotations": {STACK: stack}}}
        with serving(tmp_path, {(KUEUE, "Cohort"): [cohort]}) as kubeconfig:
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            assert f"stacks/Pulumi.{stack}.yaml\n" in run(project, "stack", "explain", "speech").stdout


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
    assert "stacks/Pulumi.other.yaml\n" in run(project, "stack", "explain", "speech").stdout


# The preview against a base.


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
    assert seen.exit_code in {0, 3}
    assert data["comparison"]["ref"] == "HEAD"
    assert data["rules"]["packs"] == ["gpu-workloads 0.1.0"]
    assert (seen.exit_code == 3) == any(
        line["outcome"] == "broken" and line["level"] == "mandatory" for line in data["rules"]["lines"]
    )


def test_a_missing_base_is_an_error_without_output(project: Project) -> None:
    seen = run(project, "preview", "good", "--base", "nowhere")
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert "error: nowhere: git rev-parse failed: " in seen.stderr


def test_file_in_the_way_of_report_is_an_error(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("mine", encoding="utf-8")
    seen = run(project, "preview", "good", "--out", file)
    assert (seen.exit_code, file.read_text(encoding="utf-8")) == (1, "mine")
    assert seen.stderr.startswith("error: ")


KEDA = StandIn("keda", "2.20.2", {"values.yaml": "{}\n"})
DIGEST = f"sha256:{hashlib.sha256(KEDA.packed()).hexdigest()}"
OTHER = f"sha256:{'0' * 64}"
IN_HTTP = ChartPin("keda", "keda", "", "2.20.2", DIGEST, "operators.keda.digest")
IN_OCI = ChartPin("kueue", "oci://example.com/kueue", "", "0.19.2", DIGEST, "operators.kueue.digest")


def test_compares_archive_of_http_repository_with_digest() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address)])
    assert (row.subject, row.needed, row.verdict, row.fix) == ("keda 2.20.2", DIGEST, "OK", "")


def test_reports_both_digests_of_changed_archive() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address, digest=OTHER)])
    assert (row.verdict, row.needed) == ("missing", OTHER)
    assert row.available == f"another archive: {address}/keda-2.20.2.tgz has {DIGEST}"
    assert row.fix == (
        "do not deploy; ask the publisher why the archive changed, and if it is right, set operators.keda.digest: "
        f"{DIGEST}"
    )


def test_names_digest_of_chart_without_one() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address, digest=None)])
    assert row.verdict == "unknown"
    assert row.fix == f"compare it with the publisher's digest, then set operators.keda.digest: {DIGEST}"
    (row,) = chart_rows([replace(IN_OCI, digest=None)])
    assert row.verdict == "unknown"
    assert "`helm pull oci://example.com/kueue --version 0.19.2`" in row.fix


def test_the_digest_of_an_oci_chart_is_left_to_helm() -> None:
    (row,) = chart_rows([IN_OCI])
    assert (row.verdict, row.available) == ("OK", "checked by Helm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2.20.3"}, r": no chart keda 2\.20\.3; correct the version"),
        ({"chart": "other"}, r": no chart other 2\.20\.2; correct the version"),
        ({"repository": "http://example.com"}, r"http://example\.com/index\.yaml: not an https URL; use"),
        ({"repository": "http://127.0.0.1:1"}, r"http://127\.0\.0\.1:1/index\.yaml: cannot be downloaded \(.*; check"),
    ],
)
def test_a_chart_that_cannot_be_compared_is_an_error(change: dict[str, str], message: str) -> None:
    with serve([KEDA]) as address, pytest.raises(ConsoleError, match=message):
        list(chart_rows([replace(replace(IN_HTTP, repository=address), **change)]))


@pytest.mark.parametrize("stack", ["prod-aws", "prod-azure", "prod-gcp"])
def test_compares_every_release_with_the_catalogue(stack: str) -> None:
    shown = stack_of_repository(stack)
    pins = chart_pins(shown.stack, helm_releases(shown.rendered))
    assert {pin.name for pin in pins} >= {"kueue", "kube-prometheus-stack", "keda"}
    rows = {**cloud_charts(), **charts()}
    for pin in pins:
        assert (pin.digest, pin.version) == (rows[pin.name].digest, rows[pin.name].version), pin.name
        assert pin.place


def test_rows_are_shown_as_those_of_the_preflight(capsys: pytest.CaptureFixture[str]) -> None:
    results.conclude(list(chart_rows([IN_OCI])), Form.JSON)
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "OK"
