"""Snapshots of storage before a real API server: the script of the CronJob, with the real kubectl and its own rights.

No driver runs here: the tests write the status in place of a snapshot controller.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from acceptance_builders import Manifest, declared, flat, in_waves, only, refusal
from builders import CREATED, Data, stack, team
from removing import remove
from starts import GUARD

from components.storage import OF
from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.spec.data import SNAPSHOTS

API: Final = "snapshot.storage.k8s.io/v1"
TEAM, OTHER = "snapped", "snapped-too"
KEEP: Final = 2

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH")


def sections() -> Data:
    """Two teams with a volume of which two snapshots are kept, in a cluster that the stack creates."""
    snapshots = {"schedule": "0 3 * * *", "keep": KEEP}
    owner = team(gpus={"h100": {"guaranteed": 0}}, storage={"ck": {"size": "1Gi", "snapshots": snapshots}})
    return stack(cluster=CREATED, teams={TEAM: owner, OTHER: owner})


@pytest.fixture(scope="module")
def ours() -> tuple[KubernetesObject, ...]:
    """The objects for snapshots, and the namespaces of the teams."""
    shared = {SNAPSHOTS, "gpu-tenancy-snapshots", TEAM, OTHER}
    return tuple(
        one
        for one in declared(sections())
        if one.namespace == SNAPSHOTS
        or (one.name in shared and one.kind not in {"ClusterQueue", "LocalQueue", "Cohort"})
        or one.kind == "VolumeSnapshotClass"
    )


@dataclass(frozen=True)
class Jobs:
    """The CronJobs of both teams, and their accounts."""

    cluster: Cluster
    objects: tuple[KubernetesObject, ...]
    folder: Path
    kubeconfig: Path

    def container(self, team: str = TEAM) -> Any:
        (found,) = (one for one in self.objects if one.kind == "CronJob" and one.name.startswith(f"{team}-ck-"))
        cron_job: Any = found.manifest
        (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        return container

    def login(self, team: str) -> Path:
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self.cluster.token(SNAPSHOTS, team, seconds=3600)}
        file = self.folder / f"{team}.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        return file

    def run(self, team: str = TEAM, account: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        """Runs the container's command, as an account."""
        container = self.container(team)
        given = {each["name"]: each["value"] for each in container["env"]}
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": str(self.login(account or team))}
        return subprocess.run(
            container["command"],
            env={**given, **own, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD,
        )

    def can(self, team: str, verb: str, resource: str, namespace: str = "") -> bool:
        where = f"--namespace={namespace}" if namespace else "--all-namespaces"
        asked = ["kubectl", f"--kubeconfig={self.login(team)}", "auth", "can-i", verb, resource, where]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=GUARD).stdout.strip()
        assert answer in {"yes", "no"}
        return answer == "yes"

    def snapshots(self, team: str = TEAM) -> list[str]:
        return sorted(
            text_at(one, "metadata", "name") for one in self.cluster.list(API, "VolumeSnapshot", namespace=team)
        )

    def taken(self, name: str, *, complete: bool = True, team: str = TEAM, claim: str = "ck", label: str = OF) -> str:
        """Creates a snapshot of an earlier day, as the controller leaves it; returns the name of its content."""
        content = f"content-{team}-{name}"
        snapshot: Manifest = {
            "apiVersion": API,
            "kind": "VolumeSnapshot",
            "metadata": {"name": name, "namespace": team, "labels": {label: claim}},
            "spec": {"volumeSnapshotClassName": "gpu-tenancy-gp3", "source": {"persistentVolumeClaimName": claim}},
        }
        self.cluster.create(snapshot)
        status: Manifest = {"readyToUse": complete, "boundVolumeSnapshotContentName": content}
        self.cluster.patch(Reference.of(snapshot), {"status": status}, subresource="status")
        spec: Manifest = {
            "driver": "ebs.csi.aws.com",
            "deletionPolicy": "Retain",
            "source": {"snapshotHandle": f"snap-{name}"},
            "volumeSnapshotRef": {"name": name, "namespace": team},
        }
        self.cluster.create(
            {"apiVersion": API, "kind": "VolumeSnapshotContent", "metadata": {"name": content}, "spec": spec}
        )
        return content

    def policy(self, content: str) -> str:
        """The deletion policy of a content."""
        return text_at(self.cluster.get(API, "VolumeSnapshotContent", content) or {}, "spec", "deletionPolicy")


@pytest.fixture(scope="module")
def applied(
    cluster: Cluster, platform: Platform, ours: tuple[KubernetesObject, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jobs]:
    manifests = flat(in_waves(ours))
    try:
        for manifest in manifests:
            cluster.apply(manifest)
        jobs = Jobs(cluster, ours, tmp_path_factory.mktemp("snapshots"), platform.kubeconfig)
        cluster.wait_for(partial(jobs.can, TEAM, "create", "volumesnapshots", TEAM), what="the rights to count")
        yield jobs
    finally:
        remove(cluster, manifests)


@pytest.fixture
def jobs(applied: Jobs) -> Iterator[Jobs]:
    yield applied
    for kind in ("VolumeSnapshot", "VolumeSnapshotContent"):
        for one in applied.cluster.list(API, kind):
            applied.cluster.delete(Reference.of(one))


def test_the_script_takes_a_snapshot_with_the_time_in_its_name(jobs: Jobs) -> None:
    done = jobs.run()
    assert done.returncode == 0, done.stderr
    (name,) = jobs.snapshots()
    time = datetime.strptime(name.removeprefix("ck-"), "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - time).total_seconds()) < 60
    live = jobs.cluster.get(API, "VolumeSnapshot", name, TEAM) or {}
    assert map_at(live, "spec") == {
        "volumeSnapshotClassName": "gpu-tenancy-gp3",
        "source": {"persistentVolumeClaimName": "ck"},
    }
    assert text_at(live, "metadata", "labels", OF) == "ck"


def test_the_oldest_snapshots_are_deleted_with_contents(jobs: Jobs) -> None:
    """Snapshots of another program, claim or team stay."""
    contents = {day: jobs.taken(f"ck-2026110{day}-030000") for day in (1, 2, 3, 4)}
    of_team_too = [jobs.taken(f"ck-2026110{day}-030000", team=OTHER) for day in (1, 2, 3)]
    others = {
        "ck-20260101-030000": jobs.taken("ck-20260101-030000", label="example.com/backup"),
        "results-20260101-030000": jobs.taken("results-20260101-030000", claim="results"),
    }
    done = jobs.run()
    assert done.returncode == 0, done.stderr
    left = [name for name in jobs.snapshots() if name not in others]
    assert left[:KEEP] == ["ck-20261103-030000", "ck-20261104-030000"]
    assert len(left) == KEEP + 1  # and the new one, which is not complete yet
    assert {*others} <= {*jobs.snapshots()}
    assert {jobs.policy(content) for content in (*others.values(), *of_team_too)} == {"Retain"}
    assert len(jobs.snapshots(OTHER)) == 3
    assert {day: jobs.policy(content) for day, content in contents.items()} == {
        1: "Delete",
        2: "Delete",
        3: "Retain",
        4: "Retain",
    }


def test_failed_ones_replace_no_complete_ones_and_do_not_pile_up(jobs: Jobs) -> None:
    for day in (1, 2):
        jobs.taken(f"ck-2026110{day}-030000")
    for day in (3, 4, 5):
        jobs.taken(f"ck-2026110{day}-030000", complete=False)
    assert jobs.run().returncode == 0
    left = jobs.snapshots()
    assert left[:3] == ["ck-20261101-030000", "ck-20261102-030000", "ck-20261105-030000"]
    assert len(left) == 4


def test_no_snapshot_is_deleted_if_none_can_be_taken(jobs: Jobs) -> None:
    for day in (1, 2, 3):
        jobs.taken(f"ck-2026110{day}-030000")
    denied = jobs.run(account=OTHER)
    assert denied.returncode != 0
    assert "forbidden" in denied.stderr
    nowhere = jobs.run(KUBECONFIG=str(jobs.folder / "none"))
    assert nowhere.returncode != 0
    assert len(jobs.snapshots()) == 3
    assert jobs.run().returncode == 0
    assert len(jobs.snapshots()) == KEEP + 1


def test_an_account_can_only_handle_snapshots_of_its_team(jobs: Jobs) -> None:
    for verb in ("create", "delete", "list"):
        assert jobs.can(TEAM, verb, "volumesnapshots.snapshot.storage.k8s.io", TEAM)
        assert not jobs.can(TEAM, verb, "volumesnapshots.snapshot.storage.k8s.io", OTHER)
        assert not jobs.can(TEAM, verb, "volumesnapshotcontents.snapshot.storage.k8s.io")
    for verb, resource in (
        ("deletecollection", "volumesnapshots.snapshot.storage.k8s.io"),
        ("create", "pods"),
        ("get", "secrets"),
        ("delete", "persistentvolumeclaims"),
        ("get", "persistentvolumeclaims"),
    ):
        assert not jobs.can(TEAM, verb, resource, TEAM), (verb, resource)
        assert not jobs.can(TEAM, verb, resource, SNAPSHOTS), (verb, resource)


@pytest.mark.parametrize(
    ("of", "change", "words"),
    [
        (OTHER, {"deletionPolicy": "Delete"}, "the snapshot is of another namespace"),
        (TEAM, {"volumeSnapshotRef": {"name": "other"}}, "only spec.deletionPolicy can be changed"),
        (TEAM, {"driver": "other.example.com"}, "only spec.deletionPolicy can be changed"),
    ],
    ids=["another team", "another snapshot", "another driver"],
)
def test_an_account_releases_contents_of_its_team_alone(jobs: Jobs, of: str, change: Data, words: str) -> None:
    content = Reference(API, "VolumeSnapshotContent", jobs.taken("ck-20261101-030000", team=of))
    with Cluster(jobs.login(TEAM)) as own:
        with pytest.raises(ApiError, match=words):
            own.patch(content, {"spec": {"deletionPolicy": "Delete", **change}})
        with pytest.raises(ApiError, match=r"only spec\.deletionPolicy|of another namespace"):
            own.patch(content, {"metadata": {"finalizers": ["example.com/held"]}})
    assert jobs.policy(content.name) == "Retain"


def test_the_pods_of_the_jobs_are_restricted_and_ask_for_little(jobs: Jobs) -> None:
    """The namespace enforces the level `restricted`, so the API server would reject other pods."""
    template = only(jobs.objects, "CronJob", cron_job_name(jobs))
    spec = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "snapshot", "namespace": SNAPSHOTS},
        "spec": spec,
    }
    jobs.cluster.create(pod, dry_run=True)
    requests = spec["containers"][0]["resources"]
    assert set(requests["requests"]) == set(requests["limits"]) == {"cpu", "memory"}
    privileged: Any = {**spec, "containers": [{**spec["containers"][0], "securityContext": {"privileged": True}}]}
    refused = refusal(lambda: jobs.cluster.create({**pod, "spec": privileged}, dry_run=True))
    assert 'violates PodSecurity "restricted' in refused


def cron_job_name(jobs: Jobs) -> str:
    return next(one.name for one in jobs.objects if one.kind == "CronJob" and re.match(rf"{TEAM}-ck-\w+$", one.name))


def test_a_claim_can_be_restored_from_a_snapshot(jobs: Jobs) -> None:
    jobs.taken("ck-20261101-030000")
    source: Data = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "ck-20261101-030000"}
    claim: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "restored", "namespace": TEAM},
        "spec": {"accessModes": ["ReadWriteOnce"], "dataSource": source, "resources": {"requests": {"storage": "1Gi"}}},
    }
    live = jobs.cluster.create(claim, dry_run=True)
    assert map_at(live, "spec", "dataSource") == source
