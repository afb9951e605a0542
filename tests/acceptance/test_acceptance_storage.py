"""Claims of datasets and of storage before a real API server, and pods that mount them."""

from typing import Final

from acceptance_builders import declared, moved, only
from builders import Data, job, stack, team

from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.embedded.volumes import STORAGE, bring_volumes
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.storage import ClaimPlan

SECTIONS: Final[Data] = stack(
    teams={
        "a": team(
            gpus={"h100": {"guaranteed": 8}},
            storage={"ck": {"size": "1Gi"}},
            training={"t": job(flavor="h100", volumes={"ck": "/ck"}, datasets={"corpus": "/data"}, scratch="1Gi")},
        )
    },
    datasets={"corpus": "s3://ml-corpus/v3"},
)


def phase(cluster: Cluster, name: str, namespace: str) -> str:
    return text_at(cluster.get("v1", "PersistentVolumeClaim", name, namespace) or {}, "status", "phase")


def _released(cluster: Cluster) -> bool:
    phases = [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)]
    return phases == ["Released"]


def test_claims_of_datasets_and_storage_are_bound_and_a_pod_that_mounts_them_is_accepted(
    cluster: Cluster, namespace: str
) -> None:
    objects = declared(SECTIONS)
    volume = only(objects, "PersistentVolume")
    volume["metadata"]["name"] = f"{namespace}-corpus"
    volume["spec"]["claimRef"]["namespace"] = namespace
    cluster.apply(volume)
    claim = moved(only(objects, "PersistentVolumeClaim", "corpus"), namespace)
    claim["spec"]["volumeName"] = f"{namespace}-corpus"
    cluster.apply(claim)
    cluster.apply(moved(only(objects, "PersistentVolumeClaim", "ck"), namespace))
    bring_volumes(cluster, [ClaimPlan("ck", namespace, 2**30, shared=False, storage_class=None)], default=True)
    for name in ("corpus", "ck"):
        cluster.wait_for(lambda name=name: phase(cluster, name, namespace) == "Bound", what=f"claim {name} to be bound")
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "workload", "namespace": namespace}}
    )
    spec = only(objects, "Job", "t")["spec"]["template"]["spec"]
    spec.pop("priorityClassName", None)
    pod: Data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t", "namespace": namespace}, "spec": spec}
    made = cluster.apply(pod)
    claims = [text_at(one, "persistentVolumeClaim", "claimName") for one in maps_at(made, "spec", "volumes")]
    assert sorted(filter(None, claims)) == ["ck", "corpus"]
    bring_volumes(cluster, [], default=False)
    assert [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)] == [
        "Bound"
    ]
    for kind, name in (("Pod", "t"), ("PersistentVolumeClaim", "ck"), ("PersistentVolumeClaim", "corpus")):
        cluster.delete(Reference("v1", kind, name, namespace))
    cluster.delete(Reference("v1", "PersistentVolume", f"{namespace}-corpus"))
    cluster.wait_for(lambda: _released(cluster), what="the volume to be released")
    bring_volumes(cluster, [], default=False)
    assert cluster.list("v1", "PersistentVolume", labels=STORAGE) == ()
