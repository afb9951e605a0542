"""Storage of teams, scratch space and snapshots."""

from typing import Any

import pytest
from builders import CREATED, Data, environment_of, errors, job, planned, stack, stack_of, team

from gpu_tenancy.base.quantity import parse_bytes
from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.plan.people import rules

GIB = 2**30


def with_storage(cluster: Data | None = None, workloads: Data | None = None, **storage: Data) -> Data:
    owner = team(gpus={"h100": {"guaranteed": 8}}, storage=storage, **(workloads or {}))
    return stack(teams={"a": owner}, **({"cluster": cluster} if cluster else {}))


def of_job(**fields: Any) -> Data:
    return {"training": {"train": job(flavor="h100", **fields)}}


def test_claims_of_created_clusters_keep_their_volume() -> None:
    made = planned(with_storage(CREATED, ck={"size": "100Gi"}))
    (claim,) = made.teams[0].claims
    assert (claim.storage_class, claim.access_mode, claim.size) == ("gpu-tenancy-gp3", "ReadWriteOnce", 100 * GIB)
    (storage_class,) = made.storage_classes
    assert (storage_class.name, storage_class.keep) == ("gpu-tenancy-gp3", True)
    assert storage_class.service.parameters == {"type": "gp3", "encrypted": "true"}


def test_each_storage_class_is_created_once() -> None:
    made = planned(with_storage(CREATED, a={"size": "1Gi"}, b={"size": "1Gi", "keep": False}, c={"size": "2Gi"}))
    assert [(one.name, one.keep) for one in made.storage_classes] == [
        ("gpu-tenancy-gp3", True),
        ("gpu-tenancy-gp3-deleted", False),
    ]


def test_existing_clusters_use_their_own_storage_classes() -> None:
    made = planned(with_storage(ck={"size": "1Gi"}, fs={"size": "1Ti", "mode": "shared", "storageClass": "efs"}))
    assert made.storage_classes == ()
    assert {one.name: (one.storage_class, one.access_mode) for one in made.teams[0].claims} == {
        "ck": (None, "ReadWriteOnce"),
        "fs": ("efs", "ReadWriteMany"),
    }


def test_workloads_mount_storage_scratch_and_datasets() -> None:
    sections = with_storage(
        CREATED,
        of_job(volumes={"ck": "/ck"}, datasets={"corpus": "/data"}, scratch={"size": "1Ti", "path": "/fast"}),
        ck={"size": "1Gi"},
    )
    (planned_job,) = planned({**sections, "datasets": {"corpus": "s3://b/v3"}}).teams[0].jobs
    volumes = planned_job.pod.volumes
    assert [(mount.claim, mount.path, mount.read_only) for mount in volumes.mounts] == [
        ("corpus", "/data", True),
        ("ck", "/ck", False),
    ]
    assert volumes.scratch is not None
    assert (volumes.scratch.size, volumes.scratch.path) == (2**40, "/fast")


def test_only_teams_that_may_write_mount_a_dataset_for_writing() -> None:
    teams = {name: team(gpus={"h100": {"guaranteed": 1}}, **of_job(datasets={"out": "/out"})) for name in "ab"}
    made = planned(stack(teams=teams, datasets={"out": {"bucket": "s3://out", "writers": ["a"]}}))
    assert [one.jobs[0].pod.volumes.mounts[0].read_only for one in made.teams] == [False, True]
    assert [one.volumes[0].writable for one in made.teams] == [True, False]


SIZES = {
    ("aws", "fsx-lustre"): {"1200Gi": "1200Gi", "1201Gi": "2400Gi", "2401Gi": "4800Gi", "4801Gi": "7200Gi"},
    ("gcp", "filestore"): {"9984Gi": "9984Gi", "9985Gi": "10Ti", "10241Gi": "12800Gi", "100Ti": "100Ti"},
    ("gcp", "managed-lustre"): {"9000Gi": "9000Gi", "9001Gi": "18000Gi"},
    ("aws", "efs"): {"1Gi": "1Gi", "1201Gi": "1201Gi"},
}


@pytest.mark.parametrize(("cloud", "name"), SIZES)
def test_sizes_are_those_of_the_service(cloud: str, name: str) -> None:
    service = storage_services()[cloud][name]
    assert {size: service.next_size(parse_bytes(size)) for size in SIZES[cloud, name]} == {
        size: parse_bytes(fitting) for size, fitting in SIZES[cloud, name].items()
    }


def test_each_storage_service_is_created_or_lists_its_needs() -> None:
    for services in storage_services().values():
        assert {mode for service in services.values() for mode in service.modes} == {"one-node", "shared"}
        for service in services.values():
            assert bool(service.parameters) != bool(service.needs)


def test_a_report_lists_data_and_who_must_grant_what() -> None:
    sections = with_storage(None, of_job(volumes={"ck": "/ck"}, datasets={"corpus": "/d"}), ck={"size": "1Gi"})
    key = "arn:aws:kms:eu-central-1:111122223333:key/1234"
    made = outlook(stack_of({**sections, "datasets": {"corpus": {"bucket": "s3://ml-corpus/v3", "key": key}}}))
    assert [(one.kind, one.name, one.place, one.right, one.mounted_by) for one in made.data] == [
        ("dataset", "corpus", "s3://ml-corpus/v3", "read", ("job train",)),
        ("storage", "ck", "default StorageClass", "read and write", ("job train",)),
    ]
    (right,) = made.data_rights
    assert right == (
        "Grant the identity of the CSI driver s3.csi.aws.com in the cluster: s3:ListBucket on"
        " arn:aws:s3:::ml-corpus for the prefix v3/*, and s3:GetObject on arn:aws:s3:::ml-corpus/v3/*"
        f", and kms:Decrypt on {key}"
    )
    created = outlook(stack_of({**sections, "cluster": CREATED, "datasets": {"corpus": "s3://ml-corpus/v3"}}))
    assert created.data_rights == ()


def costs(stored: Data, prices: Data | None = None, cluster: Data | None = CREATED) -> dict[str, float | None]:
    made = outlook(stack_of({**with_storage(cluster, **stored), "prices": prices or {}}))
    return {one.name: one.cost for one in made.data}


def test_storage_costs_its_size_at_the_price_of_its_class() -> None:
    listed = storage_services()["aws"]["gp3"].price
    assert listed is not None
    stored = {"ck": {"size": "100Gi"}, "fs": {"size": "1200Gi", "mode": "shared", "class": "fsx-lustre"}}
    assert costs(stored) == {"ck": pytest.approx(100 * listed.gib_month), "fs": None}
    own = {"gp3": {"gibMonth": 0.5}, "fsx-lustre": {"gibMonth": 0.25}}
    assert costs(stored, own) == {"ck": pytest.approx(50), "fs": pytest.approx(300)}


def test_storage_of_existing_clusters_has_prices_of_the_stack() -> None:
    stored = {"ck": {"size": "10Gi"}, "fs": {"size": "2Gi", "mode": "shared", "storageClass": "nfs"}}
    assert costs(stored, {"nfs": {"gibMonth": 2}}, None) == {"ck": None, "fs": pytest.approx(4)}


def test_costs_of_storage_add_up_by_team_and_cost_center() -> None:
    def made(**storage: Data) -> StackOutlook:
        sections = with_storage(CREATED, ck={"size": "100Gi"})
        sections["teams"]["b"] = team(gpus={}, storage=storage)
        return outlook(stack_of({**sections, "prices": {"gp3": {"gibMonth": 0.5}}}))

    known = made(ck={"size": "20Gi"})
    assert [one.cost.storage.known for one in known.teams] == [pytest.approx(50), pytest.approx(10)]
    assert [cost.storage.known for cost in known.cost_centers.values()] == [pytest.approx(60)]
    unknown = made(ck={"size": "1200Gi", "mode": "shared", "class": "fsx-lustre"})
    assert [str(one.cost.storage) for one in unknown.teams] == ["$50", "unknown"]
    assert [str(cost.storage) for cost in unknown.cost_centers.values()] == ["at least $50"]
    assert [cost.guaranteed.unpriced for cost in unknown.cost_centers.values()] == [()]


# Snapshots.

NIGHTLY = "0 3 * * *"
PLACE = "teams.a.storage.ck.snapshots"


def with_snapshots(cluster: Data | None = CREATED, snapshots: Any = NIGHTLY, **storage: Any) -> Data:
    claim = {"size": "100Gi", "snapshots": snapshots, **storage}
    owner = team(gpus={"h100": {"guaranteed": 8}}, storage={"ck": claim})
    return stack(teams={"a": owner}, **({"cluster": cluster} if cluster else {}))


def test_a_schedule_keeps_seven_snapshots_by_default() -> None:
    made = planned(with_snapshots())
    (taken,) = made.teams[0].snapshots
    assert (taken.schedule, taken.keep, taken.snapshot_class, taken.kept) == (NIGHTLY, 7, "gpu-tenancy-gp3", True)
    assert made.snapshot_classes
    (snapshot_class,) = made.snapshot_classes
    assert (snapshot_class.service.provisioner, snapshot_class.keep) == ("ebs.csi.aws.com", True)
    assert made.cluster.snapshots  # the add-on of EKS
    without = planned(stack())
    assert (without.snapshot_classes, without.cluster.snapshots) == (None, False)


def test_filestore_takes_snapshots_as_backups() -> None:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/backup-filestore-volume-snapshots."""
    rows = storage_services()
    assert rows["gcp"]["filestore"].snapshot_parameters == {"type": "backup"}
    every = [row for services in rows.values() for row in services.values()]
    others = [
        row.title for row in every if row.provisioner != "filestore.csi.storage.gke.io" and row.snapshot_parameters
    ]
    assert not others


def test_snapshots_are_kept_as_their_volume_is() -> None:
    made = planned(with_snapshots(keep=False))
    assert made.snapshot_classes
    assert [(one.name, one.keep) for one in made.snapshot_classes] == [("gpu-tenancy-gp3-deleted", False)]
    assert not made.teams[0].snapshots[0].kept


def test_cron_jobs_of_snapshots_have_short_unique_names() -> None:
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


def test_a_class_that_is_not_made_here_is_named() -> None:
    made = planned(with_snapshots(None, {"schedule": NIGHTLY, "class": "csi", "keep": 2}))
    (taken,) = made.teams[0].snapshots
    assert (taken.snapshot_class, taken.keep, taken.kept) == ("csi", 2, False)
    assert made.snapshot_classes == ()


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
        found = (rule for rule in rules(environment_of(sections), role) if "volumesnapshots" in rule.resources)
        return {verb for rule in found for verb in rule.verbs}

    for role in ("viewer", "researcher", "lead", "auditor"):
        assert verbs(with_snapshots(), role) == {"get", "list", "watch"}
        assert verbs(stack(), role) == set()


def test_the_report_has_schedule_and_number_of_snapshots() -> None:
    (access,) = outlook(stack_of(with_snapshots())).data
    assert access.snapshots == "0 3 * * * UTC, 7 kept"
