"""The workflows of GitHub and GitLab: right by their own linters, with no more rights than they need, and they work."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup
from workflow_tools import FOLDER, WORKFLOWS, actionlint, commands, gitlab, run_script, script, steps, workflow

from console.cli import app
from console.embedded.toolchain import Report
from console.gitops.joined import MARK
from console.project import ROOT

BIN = Path(sys.executable).parent
PINNED = re.compile(r"\./\.github/workflows/\w+\.yaml|[\w.-]+/[\w.-]+@[0-9a-f]{40}")
STICKY = "Write the comment, or write over it"
ISSUE = "One issue, opened, written over or closed"


def test_actionlint_and_shellcheck_find_nothing(report: Report) -> None:
    linter = [str(actionlint(report)), "-shellcheck", str(BIN / "shellcheck"), "-no-color"]
    done = subprocess.run(
        [*linter, *(str(FOLDER / name) for name in WORKFLOWS)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_actionlint_would_find_a_mistake_of_a_script(report: Report, tmp_path: Path) -> None:
    broken = (FOLDER / "comment.yaml").read_text().replace('gh run download "$RUN"', "gh run download $RUN")
    (tmp_path / "broken.yaml").write_text(broken)
    linter = [str(actionlint(report)), "-shellcheck", str(BIN / "shellcheck"), "-no-color"]
    done = subprocess.run(
        [*linter, str(tmp_path / "broken.yaml")], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "SC2086" in done.stdout


def test_shellcheck_finds_nothing_in_the_script() -> None:
    done = subprocess.run(
        [str(BIN / "shellcheck"), str(FOLDER / "preview.sh")], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_pinned_by_its_commit_and_says_which_version_that_is(name: str) -> None:
    for line in (FOLDER / name).read_text().splitlines():
        if not re.match(r"\s*(- )?uses:", line):
            continue
        used, _, remark = line.split("uses:")[1].strip().partition(" ")
        assert PINNED.fullmatch(used), line
        assert used.startswith("./") or re.fullmatch(r"# v\d+\.\d+(\.\d+)?", remark), line


def test_the_same_action_is_pinned_to_the_same_commit_everywhere() -> None:
    used = {step["uses"] for name in WORKFLOWS for _, step in steps(name) if "uses" in step}
    assert len({each.partition("@")[0] for each in used}) == len(used)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_text_of_others_gets_into_a_shell_and_no_secret_into_a_workflow(name: str) -> None:
    assert [step["run"] for _, step in steps(name) if "${{" in step.get("run", "")] == []
    assert "secrets." not in (FOLDER / name).read_text()
    assert "pull_request_target" not in (FOLDER / name).read_text()


RIGHTS = {
    "comment.yaml": {"comment": {"actions": "read", "pull-requests": "write"}},
    "drift.yaml": {"issue": {"actions": "read", "issues": "write"}},
    "pull-request.yaml": {"offline": {"contents": "read"}, "together": {"contents": "read"}},
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_job_has_the_rights_that_it_needs_and_no_other(name: str) -> None:
    assert workflow(name)["permissions"] == {}
    for job, content in workflow(name)["jobs"].items():
        expected = RIGHTS.get(name, {}).get(job, {"contents": "read", "id-token": "write"})
        assert content["permissions"] == expected, job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_who_may_write_runs_nothing_of_the_repository(name: str) -> None:
    for job, content in workflow(name)["jobs"].items():
        if "write" in {right for what, right in content["permissions"].items() if what != "id-token"}:
            used = [step.get("uses", "") for step in content["steps"]]
            assert not [each for each in used if each.startswith(("actions/checkout@", "./"))], job


def test_a_fork_and_a_branch_get_no_identity_that_writes() -> None:
    real = workflow("pull-request.yaml")["jobs"]["real"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in real["if"]
    assert real["with"]["environment"] == "${{ matrix.stack }}-read"
    assert workflow("drift.yaml")["jobs"]["drift"]["with"]["environment"] == "${{ matrix.stack }}-read"


def test_environments_are_deployed_in_their_order_one_stack_at_a_time() -> None:
    jobs = workflow("deploy.yaml")["jobs"]
    assert list(jobs) == ["dev", "staging", "prod"]
    assert [jobs[each].get("needs") for each in jobs] == [None, "dev", ["dev", "staging"]]
    assert {each["strategy"]["max-parallel"] for each in jobs.values()} == {1}
    assert all("!failure()" in jobs[each]["if"] for each in ("staging", "prod"))
    assert workflow("deploy.yaml")["concurrency"] == {"group": "deploy", "cancel-in-progress": False}


def test_versions_are_those_of_the_lock_and_the_makefile() -> None:
    locked = {each["name"]: each["version"] for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    told = {
        (step["uses"].partition("@")[0], step["with"].get("version") or step["with"].get("pulumi-version"))
        for name in WORKFLOWS
        for _, step in steps(name)
        if step.get("uses", "").startswith(("pulumi/actions@", "astral-sh/setup-uv@"))
    }
    (uv,) = re.findall(r"uv==([\d.]+)", (ROOT / "Makefile").read_text())
    assert told == {("pulumi/actions", locked["pulumi"]), ("astral-sh/setup-uv", uv)}
    assert f"CLI {locked['pulumi']}" in gitlab()
    assert f"uv:{uv}-" in gitlab()


def told_commands() -> list[tuple[str, str]]:
    texts = [(name, step["run"]) for name in WORKFLOWS for _, step in steps(name) if "run" in step]
    texts += [("preview.sh", (FOLDER / "preview.sh").read_text()), (".gitlab-ci.yml", gitlab())]
    pages = ("docs/pull-requests.md", "docs/gitops.md")
    texts += [(page, "\n".join(re.findall(r"`(tenancy \w+ [^`…<]*)`", (ROOT / page).read_text()))) for page in pages]
    texts += [(page, "\n".join(re.findall(r"^tenancy .*$", (ROOT / page).read_text(), re.MULTILINE))) for page in pages]
    return sorted({(place, " ".join(words)) for place, text in texts for words in commands(text)})


@pytest.mark.parametrize(("place", "line"), told_commands())
def test_every_command_line_is_one_that_the_program_takes(place: str, line: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    name, *words = line.split()
    assert name in group.commands, place
    group.commands[name].make_context(name, words)


def test_command_lines_are_found_in_all_places() -> None:
    assert {place for place, _ in told_commands()} == {
        *("pull-request.yaml", "preview.sh", ".gitlab-ci.yml", "docs/pull-requests.md", "docs/gitops.md")
    }
    assert {line.split()[0] for _, line in told_commands()} == {"changed", "comment", "preview", "render"}


def program(folder: Path, name: str, text: str) -> None:
    """A program that a script finds in place of a real one."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def previews(tmp_path: Path) -> Path:
    """A project whose previews end as their stacks are called: `code-2` with 2."""
    ours = "from console.commands.render import register; import typer; a = typer.Typer(); register(a); a()"
    program(
        tmp_path,
        ".venv/bin/tenancy",
        f"""#!/bin/bash
if [[ $1 == comment ]]; then PYTHONPATH={ROOT} exec {sys.executable} -c '{ours}' "$@"; fi
echo "$*" >> asked
all="$*"
out=${{all##*--out }}
[[ $2 == code-1 ]] || echo "## report of $2" > "${{out%% *}}/report.md"
echo "words of $2" >&2
exit "${{2#code-}}"
""",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("stacks", "code"),
    [((), 0), (("code-0",), 0), (("code-0", "code-2"), 2), (("code-2", "code-1"), 1), (("code-3",), 3)],
)
def test_the_preview_ends_with_the_gravest_code_and_keeps_each_apart(
    previews: Path, stacks: tuple[str, ...], code: int
) -> None:
    (previews / "stacks").write_text("".join(f"{stack}\n" for stack in stacks))
    done = run_script(f"{FOLDER}/preview.sh origin/main out < stacks", previews, {})
    assert done.returncode == code, done.stderr
    assert {file.parent.name: file.read_text() for file in (previews / "out").glob("*/exit-code")} == {
        stack: f"{stack.removeprefix('code-')}\n" for stack in stacks
    }
    assert "::" not in done.stdout  # words for GitHub's runner, to nobody else
    comment = (previews / "out/comment.md").read_text()
    assert comment.startswith(MARK)
    for stack in stacks:
        assert (f"words of {stack}" if stack == "code-1" else f"## report of {stack}") in comment


def test_what_pulumi_said_is_laid_over_where_it_said_something(previews: Path) -> None:
    for stack, text in (("code-0", "{}"), ("code-2", "")):
        (previews / f"real/real-{stack}").mkdir(parents=True)
        (previews / f"real/real-{stack}/preview.json").write_text(text)
    (previews / "stacks").write_text("code-0\ncode-2\n")
    done = run_script(f"{FOLDER}/preview.sh origin/main out real < stacks", previews, {"GITHUB_ACTIONS": "true"})
    asked = "--base origin/main --policy workloads --policy clouds --out out"
    assert (previews / "asked").read_text().splitlines() == [
        f"preview code-0 {asked}/code-0 --pulumi-preview real/real-code-0/preview.json",
        f"preview code-2 {asked}/code-2",
    ]
    assert "::error title=A mandatory rule is broken::" in done.stdout


GH = """#!/bin/bash
echo "$*" >> asked
case "$*" in
  "run download"*pull-request-real*) [[ -n $REAL ]] || exit 1; mkdir found; echo "$REAL" > found/comment.md ;;
  "run download"*) mkdir found; cp text found/comment.md ;;
  *"--method GET"*pulls*) cat pulls ;;
  *--paginate*) cat there ;;
  *--input*) cp body.json sent ;;
esac
"""
BOT: dict[str, Any] = {"user": {"login": "github-actions[bot]"}}


def commented(folder: Path, *, there: list[Any], text: str = "words", real: str = "", sha: str = "abc") -> list[str]:
    """What the script of the comment asks GitHub; the pull request is 7, and ends with the commit `abc`."""
    program(folder, "bin/gh", GH)
    (folder / "text").write_text(text, encoding="utf-8")
    (folder / "pulls").write_text(json.dumps([{"number": 7, "head": {"sha": "abc"}}]))
    (folder / "there").write_text(json.dumps(there[:1]) + json.dumps(there[1:]))  # two pages, as `--paginate` has them
    names = {"REPOSITORY": "o/r", "RUN": "1", "PAGE": "https://run", "HEAD": "o:branch", "SHA": sha, "REAL": real}
    environment = {**names, "MARK": MARK, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = run_script(script("comment.yaml", STICKY), folder, environment)
    assert done.returncode == 0, done.stderr
    return [line for line in (folder / "asked").read_text().splitlines() if "--input" in line]


def test_the_first_comment_is_written(tmp_path: Path) -> None:
    assert commented(tmp_path, there=[{**BOT, "id": 1, "body": "another of the bot"}]) == [
        "api --method POST repos/o/r/issues/7/comments --input body.json --silent"
    ]
    assert json.loads((tmp_path / "sent").read_text())["body"] == (
        f"{MARK}\nwords\n\n*By the program of abc; the page of each stack is an [artifact of this run](https://run).*\n"
    )


def test_the_next_one_is_written_over_it(tmp_path: Path) -> None:
    there = [{**BOT, "id": 1, "body": "hello"}, {**BOT, "id": 2, "body": f"{MARK}\nold"}]
    assert commented(tmp_path, there=there, text=f"{MARK}\nwords", real="with what Pulumi says") == [
        "api --method PATCH repos/o/r/issues/comments/2 --input body.json --silent"
    ]
    body = json.loads((tmp_path / "sent").read_text())["body"]
    assert body.startswith(f"{MARK}\nwith what Pulumi says\n")


def test_a_comment_of_somebody_else_with_the_mark_is_left_alone(tmp_path: Path) -> None:
    there = [{"user": {"login": "mallory"}, "id": 3, "body": f"{MARK}\nmine"}]
    (asked,) = commented(tmp_path, there=there)
    assert "--method POST" in asked


def test_an_older_run_says_nothing_of_a_newer_commit(tmp_path: Path) -> None:
    assert commented(tmp_path, there=[], sha="older") == []


def test_whatever_a_fork_writes_is_short_enough_and_runs_nowhere(tmp_path: Path) -> None:
    evil = '$(touch ran) `touch ran` "; touch ran; "\n' + "é" * 100_000
    commented(tmp_path, there=[], text=evil)
    body = json.loads((tmp_path / "sent").read_text())["body"]
    assert 60_000 < len(body) <= 65_536
    assert '$(touch ran) `touch ran` "; touch ran; "' in body
    assert not (tmp_path / "ran").exists()


def drifted(folder: Path, codes: dict[str, str], *, there: list[Any]) -> list[str]:
    """What the script of the issue asks GitHub, for checks of stacks that ended so."""
    program(folder, "bin/gh", GH)
    for stack, code in codes.items():
        if code:
            (folder / f"found/drift-{stack}").mkdir(parents=True)
            (folder / f"found/drift-{stack}/exit-code").write_text(code + "\n")
            (folder / f"found/drift-{stack}/drift.txt").write_text(f"~ {stack} differs\n")
    (folder / "there").write_text(json.dumps(there))
    names = {"REPOSITORY": "o/r", "PAGE": "https://run", "STACKS": json.dumps([*codes]), "REAL": ""}
    marked = {**names, "MARK": "<!-- gpu-tenancy: drift -->", "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = run_script(script("drift.yaml", ISSUE), folder, marked)
    assert done.returncode == 0, done.stderr
    return [line for line in (folder / "asked").read_text().splitlines() if "--paginate" not in line]


OURS = {"number": 5, "body": "<!-- gpu-tenancy: drift -->\nold"}
ANOTHER = {"number": 4, "body": None}


def test_drift_opens_one_issue_and_writes_over_it(tmp_path: Path) -> None:
    for folder, there, asked in (
        (tmp_path / "first", [ANOTHER], "api --method POST repos/o/r/issues --input body.json --silent"),
        (tmp_path / "next", [ANOTHER, OURS], "api --method PATCH repos/o/r/issues/5 --input body.json --silent"),
    ):
        folder.mkdir()
        assert drifted(folder, {"dev": "0", "prod": "7", "lost": ""}, there=there) == [asked]
        sent = json.loads((folder / "sent").read_text())
        assert sent["title"] == "Drift: 2 of the stacks are not what this branch declares"
        assert sent["body"].startswith("<!-- gpu-tenancy: drift -->\n")
        assert "## prod\n\n~~~~~~text\n~ prod differs\n\n~~~~~~" in sent["body"]
        assert "## lost\n\n~~~~~~text\nThe check did not come to its end; see the run." in sent["body"]
        assert "## dev" not in sent["body"]


def test_without_drift_the_issue_is_closed_and_none_is_opened(tmp_path: Path) -> None:
    for folder, there, asked in (
        (tmp_path / "none", [ANOTHER], []),
        (
            tmp_path / "open",
            [OURS],
            ["issue close 5 --repo o/r --comment Nothing differs any more: https://run"],
        ),
    ):
        folder.mkdir()
        assert drifted(folder, {"dev": "0"}, there=there) == asked


def test_gitlabs_pipeline_is_one_by_its_schema(tmp_path: Path) -> None:
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(gitlab(), encoding="utf-8")
    checker = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    done = subprocess.run([*checker, str(file)], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    file.write_text(gitlab().replace("expose_as: Preview\n", "expose: Preview\n"), encoding="utf-8")
    done = subprocess.run([*checker, str(file)], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1


def test_gitlabs_jobs_wait_for_jobs_that_are_there_and_name_stacks_that_are() -> None:
    found: dict[str, Any] = yaml.safe_load(gitlab())
    jobs = {
        name: job for name, job in found.items() if name not in {"stages", "variables"} and not name.startswith(".")
    }
    assert [job["stage"] for job in jobs.values()] == found["stages"]
    for name, job in jobs.items():
        needs = {each if isinstance(each, str) else each["job"] for each in job.get("needs", ())}
        assert needs <= jobs.keys() - {name}
        assert job.get("extends", ".tenancy") in found
        stacks = [stack for row in job.get("parallel", {}).get("matrix", ()) for stack in row["STACK"]]
        assert all((ROOT / f"stacks/Pulumi.{stack}.yaml").is_file() for stack in stacks)


def test_scripts_of_gitlab_are_right_by_shellcheck(tmp_path: Path) -> None:
    found: dict[str, Any] = yaml.safe_load(gitlab())
    for name, job in found.items():
        if "script" in job:
            base: Any = found.get(job.get("extends", ""), {})
            lines: list[str] = [*base.get("before_script", ()), *job["script"]]
            file = tmp_path / f"{name.strip('.')}.sh"
            file.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n", encoding="utf-8")
            # SC2154: GitLab's variables; SC2086: `$packs` is several words; SC2034: and not every job asks them.
            check = [str(BIN / "shellcheck"), "--exclude", "SC2154,SC2086,SC2034", str(file)]
            done = subprocess.run(check, check=False, capture_output=True, text=True, timeout=60)
            assert (name, done.stdout) == (name, "")
