"""Whether pods can mount their claims, and why not."""

from typing import Any

import pytest
from live_builders import Data, job, meta, node, only_gpus, pod, state

from gpu_tenancy.inspect.answers import Answer, Check
from gpu_tenancy.inspect.demand import demand
from gpu_tenancy.inspect.fit import judge
from gpu_tenancy.inspect.reading import Missing

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


def answers(manifest: Data, missing: tuple[Missing, ...] = (), **objects: list[Data]) -> list[Answer]:
    found = judge(state(missing, **objects), TEAM, demand(manifest, TEAM))
    return [each for each in found.answers if each.check is Check.VOLUMES]


def only(manifest: Data, *claims: Data, **objects: list[Data]) -> tuple[str, str]:
    (answer,) = answers(manifest, (), PersistentVolumeClaim=list(claims), **objects)
    return answer.verdict, answer.lines[0]


def storage_class(mode: str) -> list[Data]:
    return [{"metadata": meta("disk"), "volumeBindingMode": mode}]


def test_a_workload_without_claims_is_not_checked() -> None:
    assert answers(only_gpus(job())) == []


def test_a_claim_that_is_bound_can_be_mounted() -> None:
    assert only(mounting(pods=4), claim()) == ("now", "claim ck is bound (ReadWriteMany)")


def test_a_claim_that_does_not_exist_is_named_with_those_that_do() -> None:
    verdict, line = only(mounting("kc"), claim("corpus"))
    assert verdict == "never"
    assert line == "claim kc not found in namespace research; known: corpus"


def test_a_claim_that_is_being_deleted_or_lost_is_mounted_by_no_new_pod() -> None:
    gone = claim()
    gone["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
    assert only(mounting(), gone) == ("never", "claim ck is being deleted; new pods cannot mount it")
    assert only(mounting(), claim(phase="Lost"))[0] == "never"


@pytest.mark.parametrize(
    ("mode", "verdict", "words"),
    [("WaitForFirstConsumer", "now", "when its first pod is scheduled"), ("Immediate", "later", "is not bound")],
)
def test_a_claim_that_is_not_bound_depends_on_its_class(mode: str, verdict: str, words: str) -> None:
    found = only(mounting(), claim(phase="Pending", storageClassName="disk"), StorageClass=storage_class(mode))
    assert found[0] == verdict
    assert words in found[1]


def test_a_claim_whose_class_does_not_exist_is_never_bound() -> None:
    found = only(mounting(), claim(phase="Pending", storageClassName="nvme"), StorageClass=storage_class("Immediate"))
    assert found == ("never", "claim ck is not bound, and its StorageClass nvme does not exist")


def test_several_pods_cannot_mount_a_claim_of_one_node() -> None:
    assert only(mounting(pods=4), claim(mode="ReadWriteOnce")) == (
        "never",
        "claim ck is ReadWriteOnce: only pods of one node can mount it, not 4 pods; use a claim with ReadWriteMany",
    )


def test_a_claim_of_one_node_that_a_pod_mounts_is_free_later() -> None:
    running = pod("other", TEAM, on="n1", phase="Running")
    running["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "ck"}}]
    found = only(mounting(), claim(mode="ReadWriteOnce"), Pod=[running], Node=[node("n1", 16)])
    assert found == (
        "later",
        "claim ck is ReadWriteOnce and mounted by pod other on node n1; end it, or run on the same node",
    )


def test_a_read_only_claim_that_is_mounted_for_writing_is_mentioned() -> None:
    (answer,) = answers(mounting(), PersistentVolumeClaim=[claim(mode="ReadOnlyMany")])
    assert answer.lines[-1] == ("claim ck is read-only (ReadOnlyMany): writing fails; set readOnly: true for its mount")
    (answer,) = answers(mounting(read_only=True), PersistentVolumeClaim=[claim(mode="ReadOnlyMany")])
    assert answer.lines == ("claim ck is bound (ReadOnlyMany)",)


def test_without_the_right_to_read_claims_it_is_unknown() -> None:
    hidden = Missing("PersistentVolumeClaim", "state of volumes", "you may not list them", "a viewer")
    (answer,) = answers(mounting(), (hidden,))
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
