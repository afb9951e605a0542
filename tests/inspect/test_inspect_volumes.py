"""Whether pods can mount their claims, and why not."""

from typing import Any

import pytest
from live_builders import Data, checked, job, meta, node, only_gpus, pod

from gpu_tenancy.cluster.answers import Check
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.dry_run import pod_of
from gpu_tenancy.cluster.reading import Missing

TEAM = "research"


def claim(name: str = "ck", mode: str = "ReadWriteMany", phase: str = "Bound", **spec: Any) -> Data:
    return {"metadata": meta(name, TEAM), "spec": {"accessModes": [mode], **spec}, "status": {"phase": phase}}


def mounting(name: str = "ck", pods: int = 1, *, read_only: bool = False) -> Data:
    """A job whose pods mount a claim."""
    manifest = only_gpus(job())
    manifest["spec"] |= {"parallelism": pods, "completions": pods}
    spec = manifest["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/ck", "readOnly": read_only}]
    return manifest


def only(manifest: Data, *claims: Data, **objects: list[Data]) -> tuple[str, str]:
    (answer,) = checked(manifest, Check.VOLUMES, PersistentVolumeClaim=list(claims), **objects)
    return answer.verdict, answer.lines[0]


def test_a_workload_without_claims_is_not_checked() -> None:
    assert checked(only_gpus(job()), Check.VOLUMES) == []


DELETED = claim()
DELETED["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
ONE_NODE = "claim ck is ReadWriteOnce: only pods of one node can mount it, not 4 pods; use a claim with ReadWriteMany"


@pytest.mark.parametrize(
    ("manifest", "claimed", "verdict", "words"),
    [
        (mounting(pods=4), claim(), "now", "claim ck is bound (ReadWriteMany)"),
        (mounting("kc"), claim("corpus"), "never", "claim kc not found in namespace research; known: corpus"),
        (mounting(), DELETED, "never", "claim ck is being deleted; new pods cannot mount it"),
        (mounting(), claim(phase="Lost"), "never", "claim ck has lost its PersistentVolume; recreate the claim"),
        (mounting(pods=4), claim(mode="ReadWriteOnce"), "never", ONE_NODE),
    ],
    ids=["bound", "missing", "deleted", "lost", "of one node"],
)
def test_a_claim_can_be_mounted_or_not(manifest: Data, claimed: Data, verdict: str, words: str) -> None:
    assert only(manifest, claimed) == (verdict, words)


@pytest.mark.parametrize(
    ("name", "mode", "verdict", "words"),
    [
        ("disk", "WaitForFirstConsumer", "now", "when its first pod is scheduled"),
        ("disk", "Immediate", "later", "is not bound"),
        ("nvme", "Immediate", "never", "claim ck is not bound, and its StorageClass nvme does not exist"),
    ],
)
def test_a_claim_that_is_not_bound_depends_on_its_class(name: str, mode: str, verdict: str, words: str) -> None:
    disk = {"metadata": meta("disk"), "volumeBindingMode": mode}
    found = only(mounting(), claim(phase="Pending", storageClassName=name), StorageClass=[disk])
    assert found[0] == verdict
    assert words in found[1]


def test_a_claim_of_one_node_that_a_pod_mounts_is_free_later() -> None:
    running = pod("other", TEAM, on="n1", phase="Running")
    running["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "ck"}}]
    found = only(mounting(), claim(mode="ReadWriteOnce"), Pod=[running], Node=[node("n1", 16)])
    assert found == (
        "later",
        "claim ck is ReadWriteOnce and mounted by pod other on node n1; end it, or run on the same node",
    )


def test_a_read_only_claim_that_is_mounted_for_writing_is_mentioned() -> None:
    read_only = [claim(mode="ReadOnlyMany")]
    (answer,) = checked(mounting(), Check.VOLUMES, PersistentVolumeClaim=read_only)
    assert answer.lines[-1] == ("claim ck is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount")
    (answer,) = checked(mounting(read_only=True), Check.VOLUMES, PersistentVolumeClaim=read_only)
    assert answer.lines == ("claim ck is bound (ReadOnlyMany)",)


def test_without_the_right_to_read_claims_it_is_unknown() -> None:
    hidden = Missing("PersistentVolumeClaim", "state of volumes", "you may not list them", "a viewer")
    (answer,) = checked(mounting(), Check.VOLUMES, (hidden,))
    assert answer.verdict == "unknown"


def reference(phase: str = "NotBound") -> Data:
    """A team's Dataset of Fluid, which refers to a cache."""
    mounts = [{"mountPoint": "dataset://dataset-caches/ck/data", "name": "ck"}]
    return {"metadata": meta("ck", TEAM), "spec": {"mounts": mounts}, "status": {"phase": phase}}


def test_a_claim_that_fluid_has_not_made_waits_for_its_cache() -> None:
    waits = "claim ck waits for cache dataset-caches/ck: "
    assert only(mounting(), Dataset=[reference()]) == ("later", f"{waits}it is not ready")
    assert only(mounting(), Dataset=[reference("Failed")]) == ("later", f"{waits}it is Failed")
    assert only(mounting(), Dataset=[reference("")]) == ("later", f"{waits}Fluid has not seen it")
    # Its class has no StorageClass: Fluid makes the volume, too.
    pending = claim(mode="ReadOnlyMany", phase="Pending", storageClassName="fluid")
    assert only(mounting(), pending, Dataset=[reference()])[0] == "later"
    assert only(mounting(read_only=True), claim(mode="ReadOnlyMany"), Dataset=[reference("Bound")])[0] == "now"


def test_the_pod_of_a_dry_run_has_the_volumes_that_a_stateful_set_makes_claims_for() -> None:
    spec: Data = {
        "containers": [{"name": "c", "image": "i:1", "volumeMounts": [{"name": "home", "mountPath": "/home"}]}]
    }
    written: Data = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "lab"},
        "spec": {
            "template": {"spec": {**spec, "volumes": [{"name": "data", "emptyDir": {}}]}},
            "volumeClaimTemplates": [],
        },
    }
    written["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "home"}, "spec": {}}]
    wanted = demand(written, "research")
    made: Data = pod_of(wanted, wanted.templates[0])
    assert made["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}, {"name": "home", "emptyDir": {}}]
