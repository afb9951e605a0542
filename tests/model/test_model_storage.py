"""Storage of teams and scratch space: classes by cloud, budgets, who mounts what, and what is refused."""

from typing import Any

import pytest
from builders import Data, job, planned, stack, team

from gpu_tenancy.base.quantity import parse_bytes
from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.source import Source

GIB = 2**30
CREATED: Data = {
    "cloud": "aws",
    "name": "ml",
    "region": "eu-central-1",
    "subnets": {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"},
    "create": {
        "version": "1.35",
        "admins": ["arn:aws:iam::111122223333:role/deploy"],
        "system": {"machine": "m7i.4xlarge"},
    },
}


def with_storage(cluster: Data | None = None, workloads: Data | None = None, **storage: Data) -> Data:
    """A stack whose team has storage."""
    owner = team(gpus={"h100": {"guaranteed": 8}}, storage=storage, **(workloads or {}))
    return stack(teams={"a": owner}, **({"cluster": cluster} if cluster else {}))


def of_job(**fields: Any) -> Data:
    return {"training": {"train": job(flavor="h100", **fields)}}


def test_a_claim_in_a_created_cluster_has_a_class_that_keeps_its_volume() -> None:
    made = planned(with_storage(CREATED, ck={"size": "100Gi"}))
    (claim,) = made.teams[0].claims
    assert (claim.storage_class, claim.access_mode, claim.size) == ("gpu-tenancy-gp3", "ReadWriteOnce", 100 * GIB)
    (storage_class,) = made.storage_classes
    assert (storage_class.name, storage_class.keep) == ("gpu-tenancy-gp3", True)
    assert storage_class.service.parameters == {"type": "gp3", "encrypted": "true"}


def test_a_class_that_deletes_is_another_one_and_each_is_made_once() -> None:
    made = planned(with_storage(CREATED, a={"size": "1Gi"}, b={"size": "1Gi", "keep": False}, c={"size": "2Gi"}))
    assert [(one.name, one.keep) for one in made.storage_classes] == [
        ("gpu-tenancy-gp3", True),
        ("gpu-tenancy-gp3-deleted", False),
    ]


def test_a_cluster_that_exists_uses_its_default_class_or_one_by_name() -> None:
    made = planned(with_storage(ck={"size": "1Gi"}, fs={"size": "1Ti", "mode": "shared", "storageClass": "efs"}))
    assert made.storage_classes == ()
    assert {one.name: (one.storage_class, one.access_mode) for one in made.teams[0].claims} == {
        "ck": (None, "ReadWriteOnce"),
        "fs": ("efs", "ReadWriteMany"),
    }


def test_a_workload_mounts_storage_and_scratch_space_beside_its_datasets() -> None:
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
    made = outlook(load(Source({**sections, "datasets": {"corpus": "s3://ml-corpus/v3"}})))
    assert [(one.kind, one.name, one.place, one.right, one.mounted_by) for one in made.data] == [
        ("dataset", "corpus", "s3://ml-corpus/v3", "read", ("job train",)),
        ("storage", "ck", "default StorageClass", "read and write", ("job train",)),
    ]
    assert made.data_rights == (
        (
            "Grant the identity of the CSI driver s3.csi.aws.com in the cluster: s3:ListBucket on"
            " arn:aws:s3:::ml-corpus for the prefix v3/*, and s3:GetObject on arn:aws:s3:::ml-corpus/v3/*"
        ),
    )
    created = outlook(load(Source({**sections, "cluster": CREATED, "datasets": {"corpus": "s3://ml-corpus/v3"}})))
    assert created.data_rights == ()


def costs(stored: Data, prices: Data | None = None, cluster: Data | None = CREATED) -> dict[str, float | None]:
    made = outlook(load(Source({**with_storage(cluster, **stored), "prices": prices or {}})))
    return {one.name: one.cost for one in made.data}


def test_storage_costs_its_size_at_the_price_of_its_class() -> None:
    listed = storage_services()["aws"]["gp3"].price
    assert listed is not None
    stored = {"ck": {"size": "100Gi"}, "fs": {"size": "1200Gi", "mode": "shared", "class": "fsx-lustre"}}
    assert costs(stored) == {"ck": pytest.approx(100 * listed.gib_month), "fs": None}
    own = {"gp3": {"gibMonth": 0.5}, "fsx-lustre": {"gibMonth": 0.25}}
    assert costs(stored, own) == {"ck": pytest.approx(50), "fs": pytest.approx(300)}


def test_storage_of_an_existing_cluster_has_the_price_of_its_class_in_the_stack() -> None:
    stored = {"ck": {"size": "10Gi"}, "fs": {"size": "2Gi", "mode": "shared", "storageClass": "nfs"}}
    assert costs(stored, {"nfs": {"gibMonth": 2}}, None) == {"ck": None, "fs": pytest.approx(4)}


def test_costs_of_storage_add_up_by_team_and_cost_center_and_one_unknown_price_makes_a_sum_unknown() -> None:
    def made(**storage: Data) -> StackOutlook:
        sections = with_storage(CREATED, ck={"size": "100Gi"})
        sections["teams"]["b"] = team(gpus={}, storage=storage)
        return outlook(load(Source({**sections, "prices": {"gp3": {"gibMonth": 0.5}}})))

    known = made(ck={"size": "20Gi"})
    assert [one.cost.storage for one in known.teams] == [pytest.approx(50), pytest.approx(10)]
    assert [cost.storage for cost in known.cost_centers.values()] == [pytest.approx(60)]
    unknown = made(ck={"size": "1200Gi", "mode": "shared", "class": "fsx-lustre"})
    assert [one.cost.storage for one in unknown.teams] == [pytest.approx(50), None]
    assert [cost.storage for cost in unknown.cost_centers.values()] == [None]
    assert [cost.guaranteed for cost in unknown.cost_centers.values()] != [None]
