"""`tenancy up STACK` with the official Pulumi CLI."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_builders import Project, small
from cli_builders import tenancy as in_process
from deploy_builders import sections
from pulumi_tool import at_80_columns, pulumi, run_here, succeeded, tenancy
from repository import ROOT
from test_cli_pulumi import references, remove

from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

pytestmark = pytest.mark.process


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


@pytest.fixture
def deployed(project: Project, cluster: Cluster) -> Iterator[Project]:
    """A project whose stack `good` is deleted from the cluster afterwards."""
    yield project
    project.write("good", sections())
    remove(cluster, references(project))


def test_a_missing_pulumi_cli_is_an_error_with_the_fix(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("good", sections(split=True))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = in_process("up", "good", project=project.folder)
    told = "error: pulumi is not on the PATH; install the Pulumi CLI, then run `pulumi login`\n"
    assert (done.exit_code, done.stderr) == (1, told)


def write(project: Project, platform: Platform, *, split: bool = False, **cohorts: str) -> None:
    """Writes the stack, with the salt that is in the file already."""
    file = project.folder / "stacks" / "Pulumi.good.yaml"
    before: dict[str, Any] = yaml.safe_load(file.read_text()) if file.exists() else {}
    content = sections(split=split, **cohorts)
    project.write("good", {**content, "cluster": {**content["cluster"], "kubeconfig": str(platform.kubeconfig)}})
    if salt := before.get("encryptionsalt"):
        with file.open("a") as text:
            text.write(f"encryptionsalt: {salt}\n")


def counts(output: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for stack, said in re.findall(r"^· (good[^:]*): (\d.*) \(\d+ s\)$", output, re.MULTILINE):
        found.setdefault(stack, set()).update(re.findall(r"[a-z]+", said))
    return found


def uid(cluster: Cluster, one: Reference) -> str:
    live: Any = cluster.get(*one)
    return live["metadata"]["uid"]


@pytest.mark.pulumi
def test_deploys_asks_splits_joins_and_destroys(deployed: Project, platform: Platform, cluster: Cluster) -> None:
    # One test: each step needs the one before it, and a deployment of its own for each would take a minute more.
    asks_with_changes_and_verdict(deployed, platform, cluster)
    done = tenancy(deployed, "up", "good", "--yes")
    assert counts(done.stderr) == {"good": {"create"}}, done.stderr
    assert "encryptionsalt: " in (deployed.folder / "stacks" / "Pulumi.good.yaml").read_text()
    uids = {one: uid(cluster, one) for one in references(deployed)}
    splits_and_joins(deployed, platform)
    shows_a_change_and_deploys_it(deployed, platform)
    assert {one: uid(cluster, one) for one in uids} == uids
    assert succeeded(tenancy(deployed, "stack", "repair", "good")).startswith("OK: ")
    done = tenancy(deployed, "destroy", "good", "--yes")
    assert counts(done.stderr) == {"good": {"delete"}}, done.stderr
    assert not [one for one in references(deployed) if cluster.get(*one)]


def asks_with_changes_and_verdict(deployed: Project, platform: Platform, cluster: Cluster) -> None:
    write(deployed, platform)
    code, shown = at_80_columns(deployed, "n", "up", "good")
    assert code == 1, shown
    assert "good: new\n" in shown
    assert re.search(r"Policies: \d+ passed, no mandatory violations", shown), shown
    assert "Deploy stack good to the cluster of kubeconfig" in " ".join(shown.split())
    assert [one for one in references(deployed) if cluster.get(*one)] == []


def splits_and_joins(deployed: Project, platform: Platform) -> None:
    write(deployed, platform, split=True)
    done = tenancy(deployed, "up", "good", "--yes")
    assert re.search(r"stack good has \d+ resources, but the environment is deployed as good\.tenancy;", done.stderr)
    rename(deployed, "good", "good.tenancy")
    done = tenancy(deployed, "up", "good", "--yes")
    assert counts(done.stderr) == {"good.tenancy": {"same"}}, done.stderr
    rename(deployed, "good.tenancy", "good")


def shows_a_change_and_deploys_it(deployed: Project, platform: Platform) -> None:
    write(deployed, platform, one="b")  # a team changes its cohort
    code, shown = at_80_columns(deployed, "y", "up", "good")
    assert code == 0, shown
    before, _, after = shown.partition("[y/N]")
    assert re.search(r"^team of good +update$", before, re.MULTILINE), shown
    assert re.search(r"good: \d+ same, 1 update \(\d+ s\)", after), shown
    long = [line for line in shown.splitlines() if len(line) > 80 and "[y/N]" not in line]
    assert long == []


def rename(project: Project, before: str, after: str) -> None:
    folder = str(project.folder / "out" / "pulumi" / "good")
    succeeded(pulumi(project, "stack", "rename", after, "--cwd", folder, stack=before))


@pytest.mark.pulumi
def test_nothing_happens_without_a_confirmation(project: Project, platform: Platform) -> None:
    write(project, platform, split=True)
    done = tenancy(project, "up", "good")
    assert done.returncode == 1
    assert "nothing was changed; confirm with --yes, because there is no terminal to ask" in done.stderr
    assert not list((project.folder / "backend").rglob("good*.json"))


@pytest.mark.pulumi
def test_a_truncated_state_is_an_error_that_names_its_backup(project: Project) -> None:
    run_here(project)
    project.write("good", small())
    succeeded(pulumi(project, "stack", "init"))
    (state,) = (project.folder / "backend").rglob("good.json")
    state.write_text(state.read_text()[:100])
    done = tenancy(project, "up", "good", "--yes")
    fix = f"copy {state}.bak over it, the state before the last operation; then run the same command again"
    assert (done.returncode, done.stderr) == (1, f"error: the state {state} is not complete; {fix}\n")


@pytest.mark.pulumi
def test_a_blocked_stack_is_not_deployed(project: Project) -> None:
    project.write("good", small())
    rules = {"image-pinned": {"enforcementLevel": "mandatory", "mutable": ["*"]}}
    (project.folder / "strict.json").write_text(json.dumps(rules))
    done = tenancy(project, "up", "good", "--yes", "--policy", "workloads=strict.json")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Blocked" in done.stdout
    assert "image-pinned" in done.stdout
    assert not list((project.folder / "backend").rglob("good*.json"))


# A preview does not know the kubeconfig of a cluster that the stack creates.
LATE = """
import asyncio

import pulumi
import pulumi_kubernetes

known = pulumi_kubernetes.Provider.__init__


def late(self, name, **options):
    if pulumi.runtime.is_dry_run():
        nothing, unknown = asyncio.sleep(0, None), asyncio.sleep(0, False)
        options["kubeconfig"] = pulumi.Output(set(), nothing, unknown, asyncio.sleep(0, False))
    known(self, name, **options)


pulumi_kubernetes.Provider.__init__ = late
"""


@pytest.mark.pulumi
def test_packs_of_the_engine_allow_a_first_deployment(project: Project, platform: Platform, cluster: Cluster) -> None:
    run_here(project)
    content = small()
    content["teams"]["vision"]["training"]["nightly"]["deadline"] = "8h"
    project.write("good", {**content, "cluster": {**content["cluster"], "kubeconfig": str(platform.kubeconfig)}})
    program = project.folder / "__main__.py"
    own = program.read_text()
    program.write_text(LATE + own)
    packs = [f"--policy-pack={ROOT / 'policy' / name}" for name in ("workloads", "clouds")]
    configs = [f"--policy-pack-config={ROOT / 'policy/config' / name}-dev.json" for name in ("workloads", "clouds")]
    succeeded(pulumi(project, "stack", "init"))
    try:
        refused = pulumi(project, "preview", *packs)
        assert refused.returncode != 0
        # At the levels of production; the guards of this stack only warn.
        assert set(re.findall(r"\[mandatory\].*  ([a-z-]+)  \(", refused.stdout)) == {"guards-not-weakened"}
        shown = succeeded(pulumi(project, "up", "--yes", *packs, *configs))
        assert shown.count("✅ gpu-workloads") == shown.count("✅ gpu-clouds") == 2, shown  # preview and update
        assert "[advisory]" not in shown
    finally:
        program.write_text(own)  # it runs in this process now, where other tests use the provider too
        remove(cluster, references(project))
