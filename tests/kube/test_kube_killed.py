"""An apply that is killed at any point, and the next one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, a_job

from gpu_tenancy.base.json import text_at
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

KILLS = int(os.environ.get("GPU_TENANCY_KILLS", "3"))
"""Number of points at which an apply is killed; 20 take half a minute."""

_APPLYING = """
import json, sys
from pathlib import Path
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster

def progress(change):
    print(change.name, flush=True)

kubeconfig, manifests, inventory = map(Path, sys.argv[1:])
apply(Cluster(kubeconfig), json.loads(manifests.read_text()), inventory, progress)
"""


def waves(namespace: str) -> list[list[Manifest]]:
    return [
        [a_config_map(f"a{number}", namespace) for number in range(30)],
        [*(a_bare_account(f"b{number}", namespace) for number in range(30)), a_job("train", namespace, "pytorch:2")],
        [a_config_map(f"c{number}", namespace) for number in range(30)],
    ]


def kill(platform: Platform, given: list[list[Manifest]], inventory: Path, after: int) -> None:
    """Kills an apply when it has said that many objects are done; more may be under way."""
    manifests = inventory.with_suffix(".manifests")
    manifests.write_text(json.dumps(given))
    command = [sys.executable, "-c", _APPLYING, str(platform.kubeconfig), str(manifests), str(inventory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as applying:
        assert applying.stdout
        for _ in range(after):
            applying.stdout.readline()
        applying.kill()
    assert applying.returncode == -9


@pytest.mark.parametrize("after", Random(20).sample(range(91), KILLS))  # noqa: S311 - the same points in each run
def test_the_next_one_ends_in_the_same_objects(
    platform: Platform, cluster: Cluster, namespace: str, inventory: Path, after: int
) -> None:
    given = waves(namespace)
    kill(platform, given, inventory, after)
    edited = [given[0], given[1][3:], given[2][5:]]  # what a killed run left must also go
    changes = apply(cluster, edited, inventory)
    wanted = {Reference.of(manifest) for wave in edited for manifest in wave}
    assert {change.action for change in changes} <= {"created", "unchanged", "pruned"}
    assert len([change for change in changes if change.action != "pruned"]) == len(wanted)
    assert {change.action for change in apply(cluster, edited, inventory)} == {"unchanged"}
    kinds = {(reference.api_version, reference.kind) for reference in wanted}
    ours = {Reference.of(one) for kind in kinds for one in cluster.list(*kind, namespace=namespace)}
    of_kubernetes = {"default", "kube-root-ca.crt"}
    assert {one for one in ours if one.name not in of_kubernetes} == wanted
    listed = json.loads(inventory.read_text())["objects"]
    assert sorted(row["name"] for row in listed) == sorted(one.name for one in wanted)
    assert all(row["uid"] for row in listed)
    assert all(text_at(cluster.get(*one) or {}, "metadata", "uid") for one in wanted)
