"""Gangs on the real Volcano, alone and behind the real Kueue, as a researcher of the stack `local` submits them."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from researchers import TEAM, Researcher
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.quantity import amounts
from gpu_tenancy.cli.main import app
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference

QUEUE: Final = "ml-research-l4"  # Volcano's queue of the team: 4 L4 GPUs, guaranteed and limit
GPU: Final = "nvidia.com/gpu"
L4, A100 = "NVIDIA-L4", "NVIDIA-A100-SXM4-80GB"


def pod(product: str, gpus: int, **more: Json) -> dict[str, Json]:
    amounts: Json = {"cpu": "250m", "memory": "1Gi", GPU: str(gpus)}
    container: Json = {"name": "c", "image": "busybox", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/gpu.product": product},
        "tolerations": [{"key": GPU, "operator": "Exists"}],
        "containers": [container],
        **more,
    }


def gang(name: str, pods: int, queue: str = QUEUE) -> Manifest:
    """A Volcano Job whose pods have one L4 each, and start together."""
    task: Json = {"name": "worker", "replicas": pods, "template": {"spec": pod(L4, 1)}}
    spec: Json = {"schedulerName": "volcano", "queue": queue, "minAvailable": pods, "tasks": [task]}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def queued(name: str, pods: int, gpus: int) -> Manifest:
    """A Job that Kueue admits and whose pods Volcano starts together, as a job of a stack with `gang: true`."""
    metadata: Json = {
        "name": name,
        "labels": {"kueue.x-k8s.io/queue-name": TEAM},
        "annotations": {"scheduling.volcano.sh/group-min-member": str(pods)},
    }
    spec: dict[str, Json] = {"parallelism": pods, "completions": pods, "suspend": True}
    template: Json = {"spec": pod(A100, gpus, schedulerName="volcano")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}


def asked(rita: Researcher, *words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--kubeconfig", str(rita.kubeconfig)], env={"COLUMNS": "200"})
    assert done.exit_code in {0, 3}, done.output
    return done.output


def answered(rita: Researcher, *words: str) -> Any:
    return json.loads(asked(rita, *words, "-o", "json"))


def rows(rita: Researcher, scheduler: str) -> dict[str, int]:
    """GPUs in use by flavor, as `tenancy usage` counts them for one scheduler."""
    found = answered(rita, "usage", TEAM)["rows"]
    return {one["flavor"]: one["used"] for one in found if (one["resource"], one["scheduler"]) == (GPU, scheduler)}


def why(rita: Researcher, name: str, reason: str) -> str:
    """The output of `tenancy why` once it gives a reason: controllers need a moment."""

    def said() -> str | None:
        text = " ".join(asked(rita, "why", f"{TEAM}/{name}").split())
        return text if reason in text else None

    return rita.cluster.wait_for(said, timeout=60, what=f"why {name}: {reason}")


@pytest.fixture
def rita(researcher: Researcher) -> Iterator[Researcher]:
    """A researcher, whose jobs are deleted afterwards."""
    yield researcher
    for kind in (("batch.volcano.sh/v1alpha1", "Job"), ("batch/v1", "Job")):
        for one in researcher.cluster.list(*kind, namespace=TEAM, metadata_only=True):
            researcher.end(one)


def test_gang_waits_for_all_its_gpus(rita: Researcher) -> None:
    first = rita.submit(gang("first", 3))
    why(rita, "first", "not pending: 3 pods running")
    rita.submit(gang("second", 2))
    text = why(rita, "second", f"Volcano queue {QUEUE} is at capacity")
    assert "pending in it" not in text  # it is the only one
    assert [one for one in rita.pods("second") if text_at(one, "spec", "nodeName")] == []
    assert rows(rita, "Volcano") == {"l4": 3}
    jobs = {one["name"]: one for one in answered(rita, "queue", TEAM)["jobs"]}
    assert {name: (one["state"], one["requests"][GPU]) for name, one in jobs.items()} == {
        "first": ("admitted", 3),
        "second": ("pending", 2),
    }
    assert {tuple(one["flavors"]) for one in jobs.values()} == {("l4",)}
    assert not [name for one in jobs.values() for name in one["requests"] if "." in name and name != GPU]
    rita.end(first)
    rita.running("second", 2)


def test_gang_with_a_smaller_minimum_starts_with_it(rita: Researcher, tmp_path: Any) -> None:
    made: Any = gang("partial", 8)
    made["spec"]["minAvailable"] = 2
    file = tmp_path / "gang.json"
    file.write_text(json.dumps(made))
    rita.cluster.wait_for(lambda: not rows(rita, "Volcano").get("l4"), timeout=60, what="no gang left in the queue")
    found = asked(rita, "fit", TEAM, "--file", str(file))
    assert f"{GPU} 2 requested, 4 of 4 free" in found
    assert "API server: accepts a pod of Job partial" in found  # with the queue that its controller gives it
    rita.submit(made)
    rita.cluster.wait_for(
        lambda: len([one for one in rita.pods("partial") if text_at(one, "spec", "nodeName")]) == 4 or None,
        timeout=60,
        what="as many pods as the queue has GPUs",
    )


@pytest.mark.parametrize("left", [4, 0])
def test_guaranteed_gpus_are_not_given_to_another_queue(rita: Researcher, left: int) -> None:
    """An administrator's gang in Volcano's own queue can have all GPUs but the 4 that are guaranteed.

    It can have GPUs of any flavor: Volcano counts those of all flavors together.
    """
    cluster, namespace = rita.cluster, f"test-gang-{left}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    gpus = sum(amounts(at(node, "status", "allocatable")).get(GPU, 0) for node in cluster.list("v1", "Node"))
    other: Any = gang("other", (gpus - left) // 4, "default")
    task = other["spec"]["tasks"][0]
    task["template"]["spec"] = {**pod("", 4), "nodeSelector": {}}
    made = cluster.create({**other, "metadata": {"name": "other", "namespace": namespace}})

    def placed() -> int:
        return sum(1 for one in cluster.list("v1", "Pod", namespace=namespace) if text_at(one, "spec", "nodeName"))

    try:
        if left:
            cluster.wait_for(lambda: placed() == task["replicas"] or None, timeout=60, what="all pods of a gang")
        else:
            group = ("scheduling.volcano.sh/v1beta1", "PodGroup")
            known = lambda: [one for one in cluster.list(*group, namespace=namespace) if at(one, "status", "phase")]  # noqa: E731
            cluster.wait_for(known, timeout=60, what="Volcano to consider the gang")
            mine = rita.submit(gang("mine", 4))  # it is considered later, and starts
            rita.running("mine", 4)
            assert placed() == 0
            rita.end(mine)
    finally:
        cluster.delete(Reference.of(made), wait=60)
        cluster.wait_for(lambda: not cluster.list("v1", "Pod", namespace=namespace) or None, what="the end of its pods")


def test_gang_of_kueue_is_counted_and_listed_once(rita: Researcher) -> None:
    rita.submit(queued("both", 2, 4))
    rita.running("both", 2)
    (job,) = answered(rita, "queue", TEAM)["jobs"]
    assert (job["name"], job["state"], job["requests"][GPU], job["flavors"]) == ("both", "admitted", 8, ["a100"])
    rita.cluster.wait_for(lambda: rows(rita, "Kueue")["a100"] == 8 or None, what="Kueue to report its usage")
    assert rows(rita, "Volcano") == {"l4": 0}
    assert "not pending: 2 pods running" in why(rita, "both", "Running, 2 pods start together")


def test_gang_of_kueue_that_has_no_quota_waits_for_kueue(rita: Researcher, tmp_path: Any) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(queued("large", 5, 8)))
    fit = asked(rita, "fit", TEAM, "--file", str(file))
    assert "a100 nvidia.com/gpu: 40 requested" in fit
    assert "Volcano queue" not in fit, fit
    rita.submit(queued("large", 5, 8))
    assert "Volcano" not in why(rita, "large", "40 requested")


def test_gang_of_kueue_whose_pods_do_not_all_fit_starts_none(rita: Researcher) -> None:
    nodes = [Reference("v1", "Node", f"a100-{index}") for index in range(3)]  # of four

    def cordon(*, on: bool) -> None:
        for node in nodes:
            rita.cluster.patch(node, {"spec": {"unschedulable": on}})

    cordon(on=True)
    try:
        rita.submit(queued("both", 2, 8))
        text = why(rita, "both", "2 pods unschedulable")
        assert "1 suitable node, room for 1 such pod now" in text
        assert "Inqueue, 2 pods start together" in text
        assert [one for one in rita.pods("both") if text_at(one, "spec", "nodeName")] == []
    finally:
        cordon(on=False)
    rita.running("both", 2)
