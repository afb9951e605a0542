"""Datasets in the pods of servers, jobs and gangs."""

from typing import Any, Final, cast

import pytest
from builders import Data, job, server, stack, team
from components_builders import Program, pod_specs, tenancy

MOUNTED: Final = {"datasets": {"corpus": "/data/corpus"}}
KINDS: Final = {
    "Deployment": {"serving": {"w": server(flavor="h100", **MOUNTED)}},
    "Job": {"training": {"w": job(flavor="h100", **MOUNTED)}},
    "TrainJob": {"training": {"w": job(flavor="h100", framework="pytorch", workers=2, **MOUNTED)}},
}
GANG: Final = {"training": {"w": job(flavor="h100", scheduler="volcano", tasks={"worker": 2}, **MOUNTED)}}
EVERY: Final = pytest.mark.parametrize("kind", KINDS)


def made(workloads: Data, bucket: str, gangs: Data | None = None) -> Program:
    owner = team(gpus={"h100": {"guaranteed": 8}}, gangs=gangs or {}, **workloads)
    return tenancy(stack(teams={"a": owner}, datasets={"corpus": bucket}))


def templates(value: object) -> list[Any]:
    """The pod templates of an object: what has a spec with containers."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        inner = [template for part in entries.values() for template in templates(part)]
        return [entries, *inner] if "containers" in (entries.get("spec") or {}) else inner
    parts = cast("list[object]", value) if isinstance(value, list) else []
    return [template for part in parts for template in templates(part)]


def pod_template(kind: str, bucket: str = "gs://ml-corpus/v3") -> Any:
    (template,) = templates(made(KINDS[kind], bucket).only(kind, "w").manifest)
    return template


@EVERY
def test_a_workload_mounts_the_teams_claim_at_its_path(kind: str) -> None:
    spec = pod_template(kind)["spec"]
    (container,) = spec["containers"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == "/data/corpus")
    assert mount["readOnly"] is True
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == mount["name"])
    assert volume["persistentVolumeClaim"] == {"claimName": "corpus", "readOnly": True}
    claim = made(KINDS[kind], "gs://ml-corpus/v3").only("PersistentVolumeClaim")
    assert (claim.name, claim.namespace) == ("corpus", "a")


@EVERY
def test_pods_that_mount_cloud_storage_ask_for_the_sidecar(kind: str) -> None:
    annotations = pod_template(kind)["metadata"]["annotations"]
    assert {key: text for key, text in annotations.items() if key.startswith("gke-")} == {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "250m",
        "gke-gcsfuse/memory-limit": "256Mi",
    }


@EVERY
def test_pods_that_mount_other_object_storage_have_no_sidecar(kind: str) -> None:
    assert "gke-gcsfuse" not in str(pod_template(kind, "s3://ml-corpus/v3")["metadata"])


def test_the_pods_of_a_gang_mount_it_too() -> None:
    gangs = {"h100": {"guaranteed": 2, "cpu": 8, "memory": "32Gi"}}
    (gang,) = (
        one
        for one in made(GANG, "gs://ml-corpus/v3", gangs).every("Job", "w")
        if str(one.manifest["apiVersion"]).startswith("batch.volcano")
    )
    (template,) = templates(gang.manifest)
    assert template["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    assert any("persistentVolumeClaim" in volume for volume in template["spec"]["volumes"])


def test_a_workload_without_datasets_mounts_none() -> None:
    rendered = made({"training": {"w": job(flavor="h100")}}, "gs://ml-corpus/v3")
    (spec,) = pod_specs(rendered.only("Job", "w"))
    assert "volumes" not in spec
