"""Storage of teams as objects: classes that keep volumes, claims, and the pods of every kind of workload."""

from typing import Any, Final

import pytest
from builders import EKS, PROVIDED, Data, job, server, stack, team
from components_builders import Program, tenancy
from test_components_datasets import templates

CREATED: Final[Data] = {
    **EKS,
    **PROVIDED,
    "subnets": {"eu-central-1a": "subnet-0123456789abcdef0", "eu-central-1b": "subnet-0123456789abcdef1"},
    "create": {
        "version": "1.35",
        "admins": ["arn:aws:iam::111122223333:role/deploy"],
        "system": {"machine": "m7i.4xlarge"},
    },
}
MOUNTED: Final[Data] = {"flavor": "h100", "volumes": {"ck": "/ck"}, "scratch": "1Ti"}
KINDS: Final[dict[str, Data]] = {
    "Deployment": {"serving": {"w": server(**MOUNTED)}},
    "Job": {"training": {"w": job(**MOUNTED)}},
    "TrainJob": {"training": {"w": job(framework="pytorch", **MOUNTED)}},
    "RayJob": {"training": {"w": job(framework="ray", command=["python"], **MOUNTED)}},
    "JobSet": {"training": {"w": job(framework="jobset", **MOUNTED)}},
    "TrainingRuntime": {"training": {"w": job(framework="mpi", command=["mpirun"], **MOUNTED)}},
}


def made(workloads: Data, cluster: Data | None = None, **storage: Any) -> Program:
    owner = team(
        gpus={"h100": {"guaranteed": 8}},
        storage=storage or {"ck": {"size": "1Gi", "mode": "shared", "storageClass": "fs"}},
        **workloads,
    )
    return tenancy(stack(teams={"a": owner}, **({"cluster": cluster} if cluster else {})))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_workload_mounts_storage_for_writing_and_has_scratch_space(kind: str) -> None:
    for template in templates(made(KINDS[kind]).only(kind, "job-w" if kind == "TrainingRuntime" else "w").manifest):
        spec = template["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert volumes["storage-0"]["persistentVolumeClaim"] == {"claimName": "ck", "readOnly": False}
        assert volumes["scratch"]["emptyDir"] == {"sizeLimit": "1Ti"}
        mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
        assert (mounts["storage-0"]["mountPath"], mounts["storage-0"]["readOnly"]) == ("/ck", False)
        assert mounts["scratch"]["mountPath"] == "/scratch"
        security = spec["securityContext"]
        assert (security["fsGroup"], security["fsGroupChangePolicy"]) == (1000, "OnRootMismatch")


def test_the_class_of_a_created_cluster_keeps_volumes_unless_told_otherwise() -> None:
    rendered = made({}, CREATED, ck={"size": "1Gi"}, tmp={"size": "1Gi", "keep": False})
    classes: dict[str, Any] = {one.name: one.manifest for one in rendered.every("StorageClass")}
    assert {name: one["reclaimPolicy"] for name, one in classes.items()} == {
        "gpu-tenancy-gp3": "Retain",
        "gpu-tenancy-gp3-deleted": "Delete",
    }
    kept = classes["gpu-tenancy-gp3"]
    assert (kept["provisioner"], kept["volumeBindingMode"]) == ("ebs.csi.aws.com", "WaitForFirstConsumer")
    claim = rendered.spec("PersistentVolumeClaim", "ck")
    assert claim["storageClassName"] == "gpu-tenancy-gp3"
    assert claim["accessModes"] == ["ReadWriteOnce"]


def test_a_claim_without_a_class_leaves_the_choice_to_the_cluster() -> None:
    assert "storageClassName" not in made({}, None, ck={"size": "1Gi"}).spec("PersistentVolumeClaim", "ck")
