"""Datasets in workloads: what pods mount, the sidecars of Cloud Storage FUSE, and the budget that includes them."""

from typing import Any

from builders import EXISTING, Data, planned, stack, team

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.sidecars import DRIVERS
from gpu_tenancy.model.source import Source

IMAGE = "registry.example.com/train:1.0"
GIB = 2**30


def job(**fields: Any) -> Data:
    return {"image": IMAGE, "gpus": 0, "cpu": 1, "memory": "1Gi", **fields}


def mounting(bucket: str = "gs://corpus", of_team: Data | None = None, **fields: Any) -> Data:
    """A job with four pods that mount a dataset."""
    owner = team(
        gpus={},
        **{
            "compute": {"requests": {"cpu": 8, "memory": "32Gi"}},
            "training": {"train": job(workers=4, datasets={"corpus": "/data"}, **fields)},
            **(of_team or {}),
        },
    )
    return stack(
        cluster=EXISTING,
        pools={"cpu": {"cpu": 16, "memory": "64Gi", "nodes": 2}},
        teams={"a": owner},
        datasets={"corpus": bucket},
    )


def the_pod(sections: Data) -> Any:
    (training,) = planned(sections).teams[0].jobs
    return training.pod


def hard(sections: Data) -> dict[str, int]:
    (quota, *_) = planned(sections).teams[0].namespace.quotas
    return dict(quota.hard)


def test_a_pod_mounts_its_datasets_read_only_unless_they_are_writable() -> None:
    (mount,) = the_pod(mounting()).volumes.mounts
    assert (mount.claim, mount.path, mount.read_only) == ("corpus", "/data", True)
    sections = mounting() | {"datasets": {"corpus": {"bucket": "gs://corpus", "writable": True}}}
    (mount,) = the_pod(sections).volumes.mounts
    assert not mount.read_only


def test_cloud_storage_fuse_gets_its_annotation_and_the_size_of_its_sidecar() -> None:
    assert the_pod(mounting()).volumes.annotations == {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "250m",
        "gke-gcsfuse/memory-limit": "256Mi",
    }


def test_other_object_storage_is_mounted_by_the_node() -> None:
    for bucket in ("s3://corpus", "az://account/corpus"):
        pod = the_pod(mounting(bucket))
        assert pod.volumes.mounts
        assert pod.volumes.annotations == {}


def test_a_sidecar_is_not_smaller_than_the_containers_of_the_namespace() -> None:
    bounds = {"containers": {"min": {"cpu": "500m", "memory": "128Mi"}}}
    annotations = the_pod(mounting(of_team=bounds)).volumes.annotations
    assert (annotations["gke-gcsfuse/cpu-limit"], annotations["gke-gcsfuse/memory-limit"]) == ("500m", "256Mi")


def test_the_queue_leaves_room_for_the_sidecars_in_the_budget() -> None:
    quota, other = (
        Tree(load(Source(sections))).team_shares["a"]["cpu"] for sections in (mounting(), mounting("s3://corpus"))
    )
    assert ((other[CPU].limit or 0) - (quota[CPU].limit or 0)) == 4 * 250
    assert ((other[MEMORY].limit or 0) - (quota[MEMORY].limit or 0)) == GIB
    assert hard(mounting())["requests.cpu"] == 8000


def test_a_budget_by_default_includes_the_sidecars() -> None:
    quota = {"cpu": {"cpu": {"guaranteed": 4}, "memory": {"guaranteed": "8Gi"}}}
    sections = mounting(of_team={"compute": {}, "quota": quota})
    assert hard(sections)["requests.cpu"] == 4000 + 4 * 250
    assert hard(sections)["requests.memory"] == 9 * GIB


def test_network_needs_of_sidecars_are_listed() -> None:
    assert {scheme for scheme, driver in DRIVERS.items() if driver.from_pods} == {"gs"}
    assert any("169.254.169.254" in need for need in DRIVERS["gs"].from_pods)
