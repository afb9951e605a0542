"""Snapshots of storage: schedules, classes by cloud, who may see them, and what is refused."""

from typing import Any

import pytest
from builders import Data, errors, planned, stack, team
from test_model_storage import CREATED

from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.people import rules
from gpu_tenancy.model.source import Source

NIGHTLY = "0 3 * * *"
PLACE = "teams.a.storage.ck.snapshots"


def with_snapshots(cluster: Data | None = CREATED, snapshots: Any = NIGHTLY, **storage: Any) -> Data:
    """A stack whose team has one claim with snapshots."""
    claim = {"size": "100Gi", "snapshots": snapshots, **storage}
    owner = team(gpus={"h100": {"guaranteed": 8}}, storage={"ck": claim})
    return stack(teams={"a": owner}, **({"cluster": cluster} if cluster else {}))


def existing(*provides: str) -> Data:
    """A cluster that has some of what its snapshots need."""
    others = [name for name in stack()["cluster"]["provides"] if name != "volumeSnapshots"]
    return {**stack()["cluster"], "provides": [*others, *provides]}


def test_a_schedule_alone_keeps_seven_snapshots_with_the_class_of_the_driver() -> None:
    made = planned(with_snapshots())
    (taken,) = made.teams[0].snapshots
    assert (taken.schedule, taken.keep, taken.snapshot_class, taken.kept) == (NIGHTLY, 7, "gpu-tenancy-gp3", True)
    assert made.snapshots
    (snapshot_class,) = made.snapshots.classes
    assert (snapshot_class.driver, snapshot_class.keep) == ("ebs.csi.aws.com", True)
    assert made.cluster.snapshots  # the add-on of EKS


def test_filestore_takes_snapshots_as_backups() -> None:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/backup-filestore-volume-snapshots."""
    rows = storage_services()
    assert rows["gcp"]["filestore"].snapshot_parameters == {"type": "backup"}
    others = [
        row
        for services in rows.values()
        for row in services.values()
        if row.provisioner != "filestore.csi.storage.gke.io"
    ]
    assert not [row.title for row in others if row.snapshot_parameters]


def test_snapshots_of_a_volume_that_is_not_kept_are_not_kept_either() -> None:
    made = planned(with_snapshots(keep=False))
    assert made.snapshots
    assert [(one.name, one.keep) for one in made.snapshots.classes] == [("gpu-tenancy-gp3-deleted", False)]
    assert not made.teams[0].snapshots[0].kept


def test_a_stack_without_snapshots_has_no_snapshot_objects() -> None:
    made = planned(stack())
    assert (made.snapshots, made.cluster.snapshots) == (None, False)


def test_cron_jobs_of_all_teams_have_names_of_their_own_that_are_short_enough() -> None:
    def claims(*names: str) -> Data:
        storage = {name: {"size": "1Gi", "snapshots": NIGHTLY} for name in names}
        return team(gpus={"h100": {"guaranteed": 0}}, storage=storage)

    long = "checkpoints-of-a-very-long-experiment-with-a-name-to-match-it"
    made = planned(
        stack(cluster=CREATED, teams={"ml": claims("a-b", long), "ml-a": claims("b"), "m" * 60: claims("b")})
    )
    names = [one.name for each in made.teams for one in each.snapshots]
    assert len({*names}) == len(names) == 4
    assert max(map(len, names)) <= 52


@pytest.mark.parametrize("schedule", ["*/15 * * * *", "0,30 8-18/2 * * 1-5", "0 3 1 1,7 *"])
def test_lists_ranges_and_steps_are_schedules(schedule: str) -> None:
    assert planned(with_snapshots(snapshots=schedule)).teams[0].snapshots[0].schedule == schedule


def test_a_class_that_is_not_made_here_must_be_named() -> None:
    cluster = existing("volumeSnapshots")
    (problem,) = errors(with_snapshots(cluster))
    assert problem == (
        f"{PLACE}: {NIGHTLY} has no class, and none is made for the cluster's StorageClass, which is not made here;"
        " set snapshots.class to a VolumeSnapshotClass of the cluster for the same driver"
    )
    (problem,) = errors(with_snapshots(storageClass="efs", mode="shared"))
    assert "none is made for StorageClass efs" in problem
    made = planned(with_snapshots(cluster, {"schedule": NIGHTLY, "class": "csi", "keep": 2}))
    (taken,) = made.teams[0].snapshots
    assert (taken.snapshot_class, taken.keep, taken.kept) == ("csi", 2, False)
    assert made.snapshots
    assert made.snapshots.classes == ()


def test_snapshots_of_a_driver_that_takes_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = storage_services()["aws"]
    without = rows["gp3"].model_copy(update={"snapshots": False})
    monkeypatch.setitem(rows, "gp3", without)  # pyright: ignore[reportArgumentType] - a table is read-only
    (problem,) = errors(with_snapshots())
    assert problem.startswith(
        f"{PLACE}: {NIGHTLY} is set, but ebs.csi.aws.com, the driver of EBS gp3, takes no VolumeSnapshots;"
    )


def test_members_can_list_snapshots_and_not_delete_them() -> None:
    def verbs(sections: Data, role: str) -> set[str]:
        found = (
            rule for rule in rules(Environment(load(Source(sections))), role) if "volumesnapshots" in rule.resources
        )
        return {verb for rule in found for verb in rule.verbs}

    for role in ("viewer", "researcher", "lead", "auditor"):
        assert verbs(with_snapshots(), role) == {"get", "list", "watch"}
        assert verbs(stack(), role) == set()


def test_the_report_says_when_snapshots_are_taken_and_how_many_stay() -> None:
    (access,) = outlook(load(Source(with_snapshots()))).data
    assert access.snapshots == "0 3 * * * UTC, 7 kept"
