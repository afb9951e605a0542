"""One pass over a real API server with the real Kueue: the stack `local`, deployed, checked, and guarded."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance_guards import (
    PRODUCTION,
    RESEARCH,
    TEAMS,
    TOLERATION,
    Door,
    bounded,
    gang,
    job,
    pod,
    pod_of,
    train_job,
)
from cli_builders import Project
from repository import ROOT

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.local.up import Outcome, up

pytestmark = [pytest.mark.platform, pytest.mark.smoke]

REFUSED: dict[str, tuple[Any, str]] = {
    "the queue of another team": (job(RESEARCH, PRODUCTION), "queue"),
    "a toleration without GPUs": (pod(RESEARCH, None, pod_of(0, tolerations=[TOLERATION])), "requests no GPU"),
    "another scheduler": (job(RESEARCH, RESEARCH, pod_of(schedulerName="mine")), "sets schedulerName mine"),
    "a node by name": (job(RESEARCH, RESEARCH, pod_of(nodeName="l4-0")), "bypasses schedulers and taints"),
    "a priority of the system": (
        job(RESEARCH, RESEARCH, pod_of(priorityClassName="system-cluster-critical")),
        "uses priority class system-cluster-critical",
    ),
    "more GPUs than a container may have": (job(RESEARCH, RESEARCH, pod_of(16)), "16"),
    "more limit than its request allows": (job(RESEARCH, RESEARCH, bounded(cpu=("1", "4"))), "cpu"),
}
"""What each guard is for, and words of its message."""
ADMITTED: tuple[Any, ...] = (
    pod(RESEARCH, RESEARCH),
    job(RESEARCH, RESEARCH),
    job(RESEARCH, None),
    train_job(RESEARCH, RESEARCH),
    gang(RESEARCH, "ml-research-l4"),
)


@pytest.fixture(scope="module")
def platform_of_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    platform = Platform(tmp_path_factory.mktemp("smoke") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOGC", "400")
        yield platform
        platform.down()


@pytest.fixture(scope="module")
def deployed(platform_of_local: Platform, tmp_path_factory: pytest.TempPathFactory, report: Report) -> Outcome:
    """The stack `local`, whose guards deny, as `tenancy local up` deploys it."""
    project = Project.at(tmp_path_factory.mktemp("project") / "local")
    file = project.folder / "stacks/Pulumi.local.yaml"
    shutil.copy(ROOT / "stacks/Pulumi.local.yaml", file)
    with file.open("a", encoding="utf-8") as stack:
        stack.write("\n  gpu-tenancy:guards: deny\n")
    return up("local", platform_of_local, report, project.folder)


def test_kueue_runs_and_every_check_of_the_stack_passes(deployed: Outcome, platform_of_local: Platform) -> None:
    assert "kueue" in platform_of_local.controllers.running()
    assert [check for check in deployed.checks if check.holds is False] == []
    assert deployed.verdict.tone != "bad"


def test_the_guards_deny_what_each_is_for_and_admit_what_keeps_their_rules(
    deployed: Outcome, platform_of_local: Platform, tmp_path: Path
) -> None:
    with platform_of_local.cluster() as cluster:
        door = Door(cluster, deployed.kubeconfig, tmp_path)
        with door.let_in("alice", "edit", *TEAMS) as alice:
            cluster.wait_for(lambda: not alice.refusal(pod(RESEARCH, RESEARCH)), what="her rights")
            messages = {name: alice.refusal(manifest) for name, (manifest, _) in REFUSED.items()}
            denied = {
                name
                for name, (_, words) in REFUSED.items()
                if "denied request" in messages[name] and words in messages[name]
            }
            assert denied == set(REFUSED), messages
            assert [message for manifest in ADMITTED if (message := alice.refusal(manifest))] == []
