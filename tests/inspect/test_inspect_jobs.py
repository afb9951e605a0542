"""What belongs to a job, in which order its pods are, and what is listed of it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from cli_builders import Screen
from live_builders import GPU, came, waits

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.workloads import Workload, read_workloads
from gpu_tenancy.jobs.jobs import Jobs
from gpu_tenancy.jobs.overview import UseRow, of_jobs, of_pods, rows, shown, used
from gpu_tenancy.jobs.requeueing import as_submitted

NOW = datetime(2026, 1, 21, tzinfo=UTC)


def made(kind: str, name: str, *above: Any, created: int = 1, **fields: Any) -> Any:
    """An object, and the one that it was made for."""
    versions = {"Pod": "v1", "TrainJob": "trainer.kubeflow.org/v1alpha1", "JobSet": "jobset.x-k8s.io/v1alpha2"}
    owners = [{"uid": one["metadata"]["uid"], "controller": True} for one in above]
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}-{kind}",
        "creationTimestamp": f"2026-01-{created:02}T00:00:00Z",
        "ownerReferences": owners,
        **fields.pop("metadata", {}),
    }
    return {"apiVersion": versions.get(kind, "batch/v1"), "kind": kind, "metadata": metadata, **fields}


def pod(name: str, above: Any, phase: str = "Running", *, index: int | None = None, created: int = 1) -> Any:
    more: Any = {} if index is None else {"labels": {"batch.kubernetes.io/job-completion-index": str(index)}}
    metadata = {"generateName": name.rpartition("-")[0] + "-", **more}
    spec = {"nodeName": "n1", "containers": [{"name": "train", "resources": {"limits": {GPU: "4"}}}]}
    return made("Pod", name, above, created=created, metadata=metadata, spec=spec, status={"phase": phase})


def names(jobs: Jobs, manifest: Any) -> list[str]:
    return [name_of(one) for one in jobs.pods(manifest)]


TRAIN = made(
    "TrainJob", "train", spec={"trainer": {"numNodes": 2}}, metadata={"labels": {"gpu-tenancy.dev/user": "anna"}}
)
SET = made("JobSet", "train", TRAIN)
JOB = made("Job", "train-node-0", SET)
PODS = [pod(f"train-node-0-{index}-x{index}", JOB, index=index) for index in (10, 9)]


def test_pods_belong_to_what_was_submitted_in_the_order_of_their_numbers() -> None:
    other = made("Job", "other")
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, other))
    assert jobs.named("train") == TRAIN
    assert jobs.roots == (TRAIN, other)
    assert names(jobs, TRAIN) == names(jobs, JOB) == ["train-node-0-9-x9", "train-node-0-10-x10"]
    assert (names(jobs, other), names(jobs, PODS[0])) == ([], ["train-node-0-10-x10"])


def test_of_pods_with_the_same_index_the_newest_counts_and_of_others_each() -> None:
    job = made("Job", "j")
    failed, again = pod("j-0-b", job, "Failed", index=0), pod("j-0-a", job, index=0, created=2)
    assert names(Jobs("ml", (job, again, failed)), job) == ["j-0-a"]
    assert names(Jobs("ml", (job, pod("j-b", job), pod("j-a", job))), job) == ["j-a", "j-b"]


def test_what_a_controller_would_create_again_names_its_owner_and_runs_of_a_cron_job_do_not() -> None:
    cron = made("CronJob", "nightly", spec={"schedule": "0 2 * * *"})
    run = made("Job", "nightly-1", cron)
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, cron, run))
    assert (jobs.owner(TRAIN), jobs.owner(SET), jobs.owner(PODS[0])) == (None, TRAIN, JOB)
    assert jobs.owner(run) is None


def test_names_that_are_not_there_or_of_several_kinds() -> None:
    jobs = Jobs("ml", (made("Job", "same"), made("JobSet", "same"), TRAIN))
    with pytest.raises(ConsoleError, match=r"ml/same: several objects have this name: Job \(batch/v1\), JobSet"):
        jobs.named("same")
    assert jobs.named("same", "jobset")["kind"] == "JobSet"
    with pytest.raises(ConsoleError, match="ml/trian: object not found, or not readable by you") as error:
        jobs.named("trian")
    assert "did you mean 'train'" in str(error.value)


def _workload(manifest: Any, job: Any) -> Workload:
    manifest["metadata"]["ownerReferences"] = [{"uid": job["metadata"]["uid"], "name": "x"}]
    (found,) = read_workloads([manifest])
    return found


def test_rows_have_states_that_people_know_running_first_and_ended_last() -> None:
    queued, off = made("Job", "queued", created=2), made("Job", "off")
    stopped = waits("off")
    stopped["spec"]["active"] = False
    done = made("Job", "done", status={"conditions": [{"type": "Complete", "status": "True"}]}, created=9)
    lost = made("Job", "lost", status={"conditions": [{"type": "Failed", "status": "True"}]})
    cron = made("CronJob", "nightly", spec={"schedule": "0 2 * * *"})
    half = made("Job", "half", spec={"parallelism": 2})
    workloads = (_workload(came("train", "ml"), TRAIN), _workload(waits("queued"), queued), _workload(stopped, off))
    found = rows(
        Jobs("ml", (done, lost, cron, queued, off, TRAIN, SET, JOB, *PODS, half, pod("half-a", half)), workloads)
    )
    assert [(row.name, row.state, row.running, row.pods) for row in found] == [
        ("train", "running", 2, 2),
        ("half", "starting", 1, 2),
        ("queued", "pending", 0, 1),
        ("off", "stopped", 0, 1),
        ("done", "complete", 0, 1),
        ("lost", "failed", 0, 1),
        ("nightly", "at 0 2 * * *", 0, 0),
    ]
    assert (found[0].user, found[0].requests[GPU], found[1].requests[GPU]) == ("anna", 8, 4)
    screen = Screen.of(80, shown(found, NOW))
    assert (screen.too_long, screen.lines[1].split()) == (
        [],
        ["train", "TrainJob", "running", "2/2", "8", GPU, "20d", "anna"],
    )
    assert Screen.of(80, shown(())).lines[0] == "no jobs"


def test_use_is_shown_of_what_is_requested_and_unknown_where_it_is_not_measured() -> None:
    jobs = Jobs("ml", (TRAIN, SET, JOB, *PODS, made("Job", "queued")))
    measured = {"train-node-0-9-x9": {"cpu": 1234, "memory": 3 * 2**30 + 1}}
    assert tuple(of_jobs(jobs, measured, {})) == (UseRow("train", "2 pods", measured["train-node-0-9-x9"], {GPU: 8}),)
    screen = Screen.of(80, used(tuple(of_pods(jobs, TRAIN, measured, {})), pods=True))
    assert [line.split() for line in screen.lines[1:3]] == [
        ["0", "train-node-0-9-x9", "n1", "1.3", "of", "0", "3.0Gi", "of", "0", "4", GPU],
        ["1", "train-node-0-10-x10", "n1", "?", "of", "0", "?", "of", "0", "4", GPU],
    ]
    assert Screen.of(80, used((), pods=False)).lines[0] == "no running pods"


def test_an_elastic_job_is_created_again_with_the_pods_that_it_asked_for() -> None:
    annotations = {
        "kueue.x-k8s.io/job-min-parallelism": "1",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    job = made("Job", "sweep", metadata={"annotations": annotations}, spec={"parallelism": 2, "completions": 2})
    manifest = waits("sweep")
    manifest["spec"]["podSets"][0]["count"] = 4
    again = as_submitted(job, Workload.of(manifest))
    assert (again["spec"]["parallelism"], again["spec"]["completions"]) == (4, 4)
    assert "uid" not in again["metadata"]
    assert job["spec"]["parallelism"] == 2
