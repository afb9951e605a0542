"""The workflows of GitHub and GitLab: valid for their own linters, with the fewest rights."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_lines import command_of
from repository import ROOT
from workflow_tools import ACTION, FOLDER, WORKFLOWS, actionlint, commands, gitlab, run, steps, workflow

from gpu_tenancy.base.progress import Report

BIN = Path(sys.executable).parent
SHELLCHECK = BIN / "shellcheck"
# All that GitHub runs: the workflows, and the action that they share.
FILES = {file.name: file for file in (*(FOLDER / name for name in WORKFLOWS), ACTION)}
PINNED = re.compile(r"\./(?:\.github/workflows/\w+\.yaml)?|[\w.-]+/[\w.-]+@[0-9a-f]{40}")


@pytest.mark.process
@pytest.mark.slow
def test_actionlint_and_shellcheck_find_no_problems(report: Report) -> None:
    done = run(actionlint(report), "-shellcheck", SHELLCHECK, "-no-color", *(FOLDER / name for name in WORKFLOWS))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.process
def test_actionlint_would_find_a_mistake_of_a_script(report: Report, tmp_path: Path) -> None:
    broken = (FOLDER / "pulumi.yaml").read_text().replace('pulumi up --stack "$STACK"', "pulumi up --stack $STACK")
    (tmp_path / "broken.yaml").write_text(broken)
    done = run(actionlint(report), "-shellcheck", SHELLCHECK, "-no-color", tmp_path / "broken.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "SC2086" in done.stdout


@pytest.mark.process
def test_shellcheck_finds_no_problems_in_scripts(tmp_path: Path) -> None:
    scripts = [step["run"] for _, step in steps(ACTION.name) if "run" in step]
    for number, text in enumerate(scripts):
        (tmp_path / f"{number}.sh").write_text(f"#!/bin/bash\n{text}", encoding="utf-8")
    done = run(SHELLCHECK, FOLDER / "packages.sh", *sorted(tmp_path.glob("*.sh")))
    assert (len(scripts), done.returncode, done.stdout) == (2, 0, "")
    done = run(SHELLCHECK, "--shell=sh", *sorted((ROOT / "components").glob("*.sh")))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.process
def test_the_action_is_one_by_its_schema() -> None:
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-actions", ACTION)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", FILES)
def test_every_action_is_pinned_by_commit_with_its_version(name: str) -> None:
    for line in FILES[name].read_text().splitlines():
        if not re.match(r"\s*(- )?uses:", line):
            continue
        used, _, remark = line.split("uses:")[1].strip().partition(" ")
        assert PINNED.fullmatch(used), line
        assert used.startswith("./") or re.fullmatch(r"# v\d+\.\d+(\.\d+)?", remark), line


def test_the_same_action_is_pinned_to_the_same_commit_everywhere() -> None:
    used = {step["uses"] for name in FILES for _, step in steps(name) if "uses" in step}
    assert len({each.partition("@")[0] for each in used}) == len(used)


@pytest.mark.parametrize("name", FILES)
def test_workflows_keep_foreign_text_from_shells_and_secrets(name: str) -> None:
    assert [step["run"] for _, step in steps(name) if "${{" in step.get("run", "")] == []
    assert "secrets." not in FILES[name].read_text()
    assert "pull_request_target" not in FILES[name].read_text()


RIGHTS = {
    "comment.yaml": {"comment": {"actions": "read", "contents": "read", "pull-requests": "write"}},
    "drift.yaml": {"issue": {"actions": "read", "issues": "write"}},
    "pull-request.yaml": {"offline": {"contents": "read"}, "together": {"contents": "read"}},
    "tests.yaml": {"tests": {"contents": "read"}},
}
READS = {"contents": "read"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_job_has_the_rights_that_it_needs_and_no_other(name: str) -> None:
    assert workflow(name)["permissions"] == {}
    for job, content in workflow(name)["jobs"].items():
        own = READS if job == "packages" else {**READS, "id-token": "write"}
        expected = RIGHTS.get(name, {}).get(job, own)
        assert content["permissions"] == expected, job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_that_write_run_only_the_action_of_main(name: str) -> None:
    for job, content in workflow(name)["jobs"].items():
        if "write" in {right for what, right in content["permissions"].items() if what != "id-token"}:
            used = [(step.get("uses", ""), step.get("with", {})) for step in content["steps"]]
            local = [(uses, given) for uses, given in used if uses.startswith(("actions/checkout@", "./"))]
            if name == "comment.yaml":  # `workflow_run` checks out the default branch if no other ref is given.
                (_, given), action = local
                assert (given["sparse-checkout"], "ref" in given, action) == ("/action.yml", False, ("./", {}))
            else:
                assert local == [], job


def test_action_posts_on_main_and_previews_in_pull_requests() -> None:
    preview, upload, comment = [step["if"] for _, step in steps(ACTION.name)]
    assert preview == "github.event_name == 'pull_request'"
    assert upload == f"always() && {preview}"
    assert comment == "github.event_name == 'workflow_run'"


def test_a_fork_and_a_branch_get_no_identity_that_writes() -> None:
    real = workflow("pull-request.yaml")["jobs"]["real"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in real["if"]
    assert real["with"]["environment"] == "${{ matrix.stack }}-read"
    assert workflow("drift.yaml")["jobs"]["drift"]["with"]["environment"] == "${{ matrix.stack }}-read"


def jobs_with_an_identity() -> Iterator[tuple[str, str, Any]]:
    for name in WORKFLOWS:
        for job, content in workflow(name)["jobs"].items():
            if "id-token" in content["permissions"] and "steps" in content:
                yield name, job, content


def test_a_job_with_an_identity_downloads_no_python_packages() -> None:
    found = {(name, job): content for name, job, content in jobs_with_an_identity()}
    assert set(found) == {("pulumi.yaml", "pulumi"), ("policy.yaml", "publish"), ("policy.yaml", "enable")}
    for place, content in found.items():
        scripts = "\n".join(step.get("run", "") for step in content["steps"])
        assert not re.search(r"uv sync|pip|pulumi install", scripts), place
        if "packages.sh" in scripts:
            assert content["env"]["UV_OFFLINE"] == 1, place
            (fetched,) = (step for step in content["steps"] if "download-artifact" in step.get("uses", ""))
            assert fetched["with"] == {"name": "packages"}


def test_pulumi_installs_no_packages_at_start() -> None:
    # https://github.com/pulumi/pulumi/blob/master/sdk/python/toolchain/uv.go: `uv sync --inexact` before each start.
    job = workflow("pulumi.yaml")["jobs"]["pulumi"]
    names = ("UV_OFFLINE", "UV_FROZEN", "UV_NO_DEV", "UV_NO_INSTALL_PROJECT")
    assert {name: job["env"].get(name) for name in names} == dict.fromkeys(names, 1)


def test_deployment_compares_charts_before_the_cloud_login() -> None:
    job = workflow("pulumi.yaml")["jobs"]["pulumi"]
    texts = [f"{step.get('uses', '')} {step.get('run', '')}" for step in job["steps"]]
    (compared,) = (index for index, text in enumerate(texts) if "gpu_tenancy cluster doctor" in text)
    assert job["steps"][compared]["if"] == "inputs.command == 'up'"
    later = " ".join(texts[compared:])
    for name in ("pulumi up", "auth-actions", "configure-aws-credentials", "google-github-actions/auth", "azure/login"):
        assert name in later
        assert name not in " ".join(texts[:compared])


def test_packages_are_installed_by_hash_and_none_is_built() -> None:
    text = (FOLDER / "packages.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    (sync,) = re.findall(r"^uv sync .*$", text, re.MULTILINE)
    assert {"--frozen", "--no-build", "--no-dev", "--no-install-project"} <= set(sync.split())
    (install,) = re.findall(r"^\s*uv pip install .*$", text, re.MULTILINE)
    assert "--require-hashes" in install
    assert "--only-binary :all:" in install


@pytest.mark.parametrize("name", ["deploy.yaml", "drift.yaml", "pull-request.yaml", "policy.yaml"])
def test_jobs_that_use_the_packages_need_the_download_job(name: str) -> None:
    jobs = workflow(name)["jobs"]
    assert jobs["packages"]["uses"] == "./.github/workflows/packages.yaml"
    for job, content in jobs.items():
        takes = "pulumi.yaml" in content.get("uses", "") or "packages.sh" in str(content.get("steps", ""))
        assert not takes or "packages" in content["needs"], job
    (downloading,) = workflow("packages.yaml")["jobs"].values()
    assert downloading["permissions"] == READS
    assert "environment" not in downloading


def test_deployment_runners_run_no_code_of_pull_requests() -> None:
    runners = {
        name: {job: content["with"]["runner"] for job, content in workflow(name)["jobs"].items() if "with" in content}
        for name in ("deploy.yaml", "drift.yaml", "pull-request.yaml")
    }
    deploy, preview = (f"${{{{ vars.{name} || 'ubuntu-24.04' }}}}" for name in ("RUNNER_DEPLOY", "RUNNER_PREVIEW"))
    assert runners == {
        "deploy.yaml": dict.fromkeys(("dev", "staging", "prod"), deploy),
        "drift.yaml": {"drift": preview},
        "pull-request.yaml": {"real": preview},
    }


def test_code_of_a_fork_runs_on_runners_of_github_only() -> None:
    jobs = workflow("pull-request.yaml")["jobs"]
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    of_forks = {job: content for job, content in jobs.items() if own not in content.get("if", "")}
    assert {job: content["runs-on"] for job, content in of_forks.items()} == dict.fromkeys(
        ("offline", "together"), "ubuntu-24.04"
    )


def test_environments_are_deployed_in_order_one_at_a_time() -> None:
    jobs = workflow("deploy.yaml")["jobs"]
    assert list(jobs) == ["packages", "dev", "staging", "prod"]
    needs = [None, "packages", ["packages", "dev"], ["packages", "dev", "staging"]]
    assert [jobs[each].get("needs") for each in jobs] == needs
    assert {jobs[each]["strategy"]["max-parallel"] for each in ("dev", "staging", "prod")} == {1}
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
    (uv,) = re.findall(r"^UV_VERSION := ([\d.]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert told == {("pulumi/actions", locked["pulumi"]), ("astral-sh/setup-uv", uv)}
    assert f"CLI {locked['pulumi']}" in gitlab()
    assert f"/pulumi-base:{locked['pulumi']}\n" in (ROOT / "Containerfile").read_text()
    assert f"uv:{uv}-" in gitlab()


def told_commands() -> list[tuple[str, str]]:
    texts = [(name, step["run"]) for name in FILES for _, step in steps(name) if "run" in step]
    texts += [(".gitlab-ci.yml", gitlab())]
    pages = ("docs/pull-requests.md", "docs/gitops.md")
    texts += [
        (page, "\n".join(re.findall(r"`(tenancy (?:stack )?+\w+ [^`…<]*)`", (ROOT / page).read_text())))
        for page in pages
    ]
    texts += [(page, "\n".join(re.findall(r"^tenancy .*$", (ROOT / page).read_text(), re.MULTILINE))) for page in pages]
    return sorted({(place, " ".join(words)) for place, text in texts for words in commands(text)})


@pytest.mark.parametrize(("place", "line"), told_commands())
def test_every_command_line_is_one_that_the_program_takes(place: str, line: str) -> None:
    command, words = command_of(line.split())
    command.make_context(place, list(words))


def test_command_lines_are_found_in_all_places() -> None:
    assert {place for place, _ in told_commands()} == {
        *("action.yml", "pull-request.yaml", ".gitlab-ci.yml", "docs/pull-requests.md", "docs/gitops.md")
    }
    assert {line.split()[0] for _, line in told_commands()} == {"cluster", "preview", "stack", "up"}


@pytest.mark.process
def test_gitlabs_pipeline_is_one_by_its_schema(tmp_path: Path) -> None:
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(gitlab(), encoding="utf-8")
    checker = (BIN / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci")
    done = run(*checker, file)
    assert done.returncode == 0, done.stdout
    file.write_text(gitlab().replace("expose_as: Preview\n", "expose: Preview\n"), encoding="utf-8")
    done = run(*checker, file)
    assert done.returncode == 1


def test_gitlab_jobs_name_existing_jobs_and_stacks() -> None:
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


def test_gitlab_job_with_identity_downloads_no_packages() -> None:
    found: dict[str, Any] = yaml.safe_load(gitlab())
    with_identity = [name for name, job in found.items() if isinstance(job, dict) and "id_tokens" in job]
    assert with_identity == [".pulumi"]
    base = found[".pulumi"]
    assert {name: base["variables"].get(name) for name in ("UV_OFFLINE", "UV_FROZEN", "UV_NO_DEV")} == {
        "UV_OFFLINE": "1",
        "UV_FROZEN": "1",
        "UV_NO_DEV": "1",
    }
    assert not [line for line in base["before_script"] if re.search(r"uv sync|pip|pulumi install", line)]
    assert {"extends", "id_tokens", "environment"}.isdisjoint(found["packages"])


def test_gitlab_deployment_compares_charts_and_repairs_first() -> None:
    compared, repaired, deployed = yaml.safe_load(gitlab())[".up"]["script"]
    assert compared == '.venv/bin/python -m gpu_tenancy cluster doctor "$STACK" --charts'
    assert repaired == '.venv/bin/python -m gpu_tenancy stack repair "$STACK"'
    assert deployed.startswith("pulumi up ")


def test_a_deployment_of_gitlab_waits_for_the_stages_before_it() -> None:
    found: dict[str, Any] = yaml.safe_load(gitlab())
    for name in ("dev", "prod", ".up", ".pulumi"):
        assert "needs" not in found[name], name
    assert found[".pulumi"]["dependencies"] == ["packages"]
    assert set(found["pulumi-preview"]["dependencies"]) == set(found["pulumi-preview"]["needs"])


@pytest.mark.process
@pytest.mark.slow
def test_scripts_of_gitlab_are_right_by_shellcheck(tmp_path: Path) -> None:
    found: dict[str, Any] = yaml.safe_load(gitlab())
    for name, job in found.items():
        if "script" in job:
            base: Any = found.get(job.get("extends", ""), {})
            lines: list[str] = [*base.get("before_script", ()), *job["script"]]
            file = tmp_path / f"{name.strip('.')}.sh"
            file.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n", encoding="utf-8")
            # SC2154: GitLab's variables; SC2086: `$packs` is several words; SC2034: and not every job asks them.
            assert run(SHELLCHECK, "--exclude", "SC2154,SC2086,SC2034", file).stdout == "", name


def test_pull_requests_run_oldest_and_newest_python() -> None:
    job = workflow("tests.yaml")["jobs"]["tests"]
    (oldest, newest) = re.findall(r"^PYTHONS := (\S+) to (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0]
    assert job["strategy"]["matrix"] == {"runner": ["ubuntu-24.04", "macos-15"], "python": [oldest, newest]}
    runs = {step["if"].split("'")[1]: step["run"] for step in job["steps"] if "run" in step}
    assert runs == {"pull_request": "make test", "push": "make test check"}
