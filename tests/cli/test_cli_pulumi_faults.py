"""Faults of a deployment by the official Pulumi CLI, and objects that exist already, on a real API server."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import psutil
import pytest
from cli_builders import Project, small
from starts import GUARD
from test_cli_pulumi import deployable, references

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.deploy.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.apply import ApplyError, apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import Live, survey
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.pulumi]

# Points at which a deployment is killed; each takes about a minute.
KILLS = int(os.environ.get("GPU_TENANCY_KILLS", "3"))

ONE_AT_A_TIME = {"PULUMI_PARALLEL": "1"}  # one object after another, so that a deployment can be killed in between

_UP = """
import sys
from pathlib import Path
from gpu_tenancy.deploy.pulumi_cli import PulumiCli

program, folder, project, kubeconfig = sys.argv[1:]
PulumiCli(program, Path(folder), Path(project)).up("good", Path(kubeconfig))
"""


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Iterator[Project]:
    with deployable(tmp_path / "project", cluster) as found:
        yield found


@pytest.fixture
def cli(tmp_path: Path, project: Project) -> PulumiCli:
    program = find_pulumi()
    assert program
    return PulumiCli(program, tmp_path / "pulumi", project.folder)


def existing(cluster: Cluster, objects: list[Reference]) -> dict[Reference, str]:
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return {one: live.uid for one, live in survey(cluster, pool, objects).items() if isinstance(live, Live)}


def kill(cli: PulumiCli, platform: Platform, cluster: Cluster, objects: list[Reference], after: int) -> None:
    """Kills a deployment with all of its processes when `after` objects exist, as when the machine fails."""
    arguments = [cli.program, str(cli.folder), str(cli.source), str(platform.kubeconfig)]
    slowly = {**os.environ, **ONE_AT_A_TIME}
    with subprocess.Popen([sys.executable, "-c", _UP, *arguments], stdout=subprocess.DEVNULL, env=slowly) as deploying:
        deadline = time.monotonic() + GUARD
        while len(existing(cluster, objects)) < after and deploying.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process = psutil.Process(deploying.pid)
        processes = [process, *process.children(recursive=True)]
        for one in processes:
            one.kill()
        psutil.wait_procs(processes[1:])


@pytest.mark.official
@pytest.mark.parametrize("after", Random(20).sample(range(1, 25), KILLS))  # noqa: S311 - the same points in each run
def test_deployment_after_a_kill_ends_in_same_objects(
    platform: Platform, cluster: Cluster, project: Project, cli: PulumiCli, after: int
) -> None:
    objects = references(project)
    kill(cli, platform, cluster, objects, after)
    before = existing(cluster, objects)
    assert 0 < len(before) < len(objects)
    cli.up("good", platform.kubeconfig, objects)
    now = existing(cluster, objects)
    assert now.keys() == {*objects}
    assert {one: now[one] for one in before} == before
    again = cli.up("good", platform.kubeconfig, objects)
    assert again == {"created": 0, "changed": 0, "replaced": 0, "pruned": 0, "unchanged": len(objects)}


@pytest.mark.official
def test_applied_objects_are_refused_with_lines_to_adopt(
    platform: Platform, cluster: Cluster, project: Project, cli: PulumiCli, tmp_path: Path
) -> None:
    objects = references(project)
    apply(cluster, manifests(project), tmp_path / "inventory.json")
    before = existing(cluster, objects)
    with pytest.raises(ApplyError) as refused:
        cli.up("good", platform.kubeconfig, objects)
    assert {failure.reference for failure in refused.value.failures} == {*objects}
    assert "Namespace vision: already exists, owned by" in str(refused.value)
    assert "add Namespace/vision to cluster.adopt to take it over" in str(refused.value)

    sections = small()
    sections["cluster"]["adopt"] = [one.adoptable for one in objects]
    project.write("good", sections)
    cli.up("good", platform.kubeconfig, objects)
    assert existing(cluster, objects) == before
    # Without the names, nothing changes: neither are objects replaced because their provider is another one.
    project.write("good", small())
    again = cli.up("good", platform.kubeconfig, objects)
    assert again == {"created": 0, "changed": 0, "replaced": 0, "pruned": 0, "unchanged": len(objects)}
    assert existing(cluster, objects) == before


def test_our_apply_refuses_objects_of_the_cli_unless_adopted(
    platform: Platform, cluster: Cluster, project: Project, cli: PulumiCli, tmp_path: Path
) -> None:
    objects = references(project)
    cli.up("good", platform.kubeconfig, objects)
    before = existing(cluster, objects)
    inventory = tmp_path / "inventory.json"
    with pytest.raises(ApplyError, match=r"already exists, owned by .*pulumi-kubernetes"):
        apply(cluster, manifests(project), inventory)
    apply(cluster, manifests(project), inventory, adopt=[one.adoptable for one in objects])
    assert existing(cluster, objects) == before


@pytest.mark.official
def test_only_named_objects_of_others_are_adopted(
    platform: Platform, cluster: Cluster, project: Project, cli: PulumiCli
) -> None:
    labels: Json = {"contact": "somebody", "app.kubernetes.io/managed-by": "somebody"}
    theirs: dict[str, Json] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "speech", "labels": labels},
    }
    cluster.create(theirs)
    uid = existing(cluster, [Reference.of(theirs)])
    with pytest.raises(ApplyError, match=r"add Namespace/speech to cluster\.adopt"):
        cli.up("good", platform.kubeconfig, references(project))
    sections = small()
    sections["cluster"]["adopt"] = ["Namespace/speech"]
    project.write("good", sections)
    cli.up("good", platform.kubeconfig, references(project))
    assert existing(cluster, [Reference.of(theirs)]) == uid
    live = at(cluster.get("v1", "Namespace", "speech") or {}, "metadata", "labels")
    assert isinstance(live, dict)
    assert (live["contact"], live["app.kubernetes.io/managed-by"]) == ("somebody", "gpu-tenancy")


def manifests(project: Project) -> list[list[dict[str, Json]]]:
    return [[dict(one.manifest) for one in wave] for wave in waves(preview("good", project.folder).objects)]
