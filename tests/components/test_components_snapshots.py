"""Snapshots of storage: where their objects are, whose rights they have, and in which order they are made."""

from typing import Any, cast

from builders import Data, stack, team
from components_builders import Program, tenancy
from test_components_storage import CREATED

from components.storage import OF
from gpu_tenancy.model.spec.data import SNAPSHOTS

NIGHTLY = {"schedule": "0 3 * * *", "keep": 3}


def sections(**storage: Any) -> Data:
    """A team with a volume that has snapshots, and one that has none."""
    claims = {"ck": {"size": "1Gi", "snapshots": NIGHTLY, **storage}, "results": {"size": "1Gi"}}
    return stack(cluster=CREATED, teams={"a": team(gpus={"h100": {"guaranteed": 8}}, storage=claims)})


def manifest(program: Program, kind: str, name: str = "", namespace: str | None = None) -> Any:
    return cast("Any", program.only(kind, name, *([] if namespace is None else [namespace])).manifest)


def test_cron_jobs_are_outside_of_the_teams_namespace_with_an_account_for_each_team() -> None:
    made = tenancy(sections())
    cron_job = manifest(made, "CronJob")
    assert cron_job["metadata"]["namespace"] == SNAPSHOTS
    assert (cron_job["spec"]["schedule"], cron_job["spec"]["timeZone"]) == ("0 3 * * *", "Etc/UTC")
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "a"
    assert manifest(made, "ServiceAccount", "a")["metadata"]["namespace"] == SNAPSHOTS
    environment = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert {key: environment[key] for key in ("TEAM", "CLAIM", "CLASS", "KEEP", "KEPT")} == {
        "TEAM": "a",
        "CLAIM": "ck",
        "CLASS": "gpu-tenancy-gp3",
        "KEEP": "3",
        "KEPT": "true",
    }
    assert OF in pod["containers"][0]["command"][-1]
    assert "nvidia.com/gpu" not in str(pod)


def test_rights_are_on_snapshots_of_the_team_alone() -> None:
    made = tenancy(sections())
    role = manifest(made, "Role", SNAPSHOTS)
    assert role["metadata"]["namespace"] == "a"
    assert role["rules"] == [
        {
            "apiGroups": ["snapshot.storage.k8s.io"],
            "resources": ["volumesnapshots"],
            "verbs": ["create", "delete", "list"],
        }
    ]
    binding = manifest(made, "RoleBinding", SNAPSHOTS)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "a", "namespace": SNAPSHOTS}]


def test_a_class_that_keeps_snapshots_needs_the_right_to_release_them_after_its_policy() -> None:
    kept, deleted = tenancy(sections()), tenancy(sections(keep=False))
    assert manifest(kept, "VolumeSnapshotClass")["deletionPolicy"] == "Retain"
    binding = kept.only("ClusterRoleBinding", "gpu-tenancy-snapshots")
    assert kept.only("ValidatingAdmissionPolicyBinding", "gpu-tenancy-snapshots").urn in binding.depends_on
    assert manifest(deleted, "VolumeSnapshotClass")["deletionPolicy"] == "Delete"
    assert deleted.every("ClusterRoleBinding", "gpu-tenancy-snapshots") == []


def test_nothing_is_made_without_snapshots() -> None:
    made = tenancy(stack())
    for kind in ("CronJob", "VolumeSnapshotClass"):
        assert made.every(kind) == []
    assert made.every("Namespace", SNAPSHOTS) == []
