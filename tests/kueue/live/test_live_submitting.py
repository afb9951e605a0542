"""A researcher's submissions in the stack `local`: samples, jobs by one line, and jobs that follow others."""

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
import yaml
from kubelet import kubelet
from queueing import Queueing
from researchers import TEAM, Researcher, identified
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.demand import KINDS as TARGETS
from gpu_tenancy.cluster.demand import owners
from gpu_tenancy.jobs.job_files import packed
from gpu_tenancy.jobs.jobs import read_jobs, uid_of
from gpu_tenancy.jobs.requeueing import as_submitted
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.manifests.pods import ANNOTATION
from gpu_tenancy.model.spec.people import Person

pytestmark = pytest.mark.platform
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
SAMPLES: Final[list[Any]] = yaml.safe_load(Path(__file__).with_name("submitted.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample["of"] for sample in SAMPLES])
def test_examples_of_upstream_run_or_are_refused_with_a_fix(researcher: Researcher, sample: Any) -> None:
    name = sample["object"]["metadata"]["name"]
    if "refused" in sample:
        with pytest.raises(ApiError) as refused:
            researcher.submit(sample["object"])
        assert str(refused.value).rpartition("denied request: ")[2].startswith(sample["refused"])
        return
    accepted = researcher.submit(sample["object"], dry_run="requeued" in sample)
    made = researcher.submit(sample["object"]) if "requeued" in sample else accepted
    try:
        _of_the_team(researcher.running(name, sample["pods"]), _priority(made, sample.get("priority")))
        if "requeued" in sample:
            _is_created_again(researcher, accepted)
            researcher.running(name, sample["pods"])
    finally:
        researcher.end(made)


def _is_created_again(researcher: Researcher, accepted: Manifest) -> None:
    """`tenancy requeue` creates a job again as it was submitted."""
    jobs = read_jobs(researcher.own, TEAM, queued=True)
    live = jobs.named(Reference.of(accepted).name)
    (workload,) = jobs.workloads_of(live)
    assert _timeless(as_submitted(live, workload)) == _timeless(as_submitted(accepted, None))
    done = command(researcher, "requeue", f"{TEAM}/{Reference.of(accepted).name}", "--yes")
    assert "deleted and created again, at the end of its queue" in done.stdout, done.output
    again = read_jobs(researcher.own, TEAM).named(Reference.of(accepted).name)
    assert uid_of(again) != uid_of(live)


def _timeless(manifest: Any) -> Any:
    """Without the time that Trainer writes into the patches of a TrainJob."""
    for patch in manifest["spec"].get("runtimePatches", []):
        patch.pop("time", None)
    return manifest


def submitted(researcher: Researcher, name: str, framework: str, *words: object) -> Manifest:
    """A job of the command, with four GPUs in each pod."""
    options = ("--image", "registry.example.com/ml/train:3.0.1", "--gpus", "4", "--framework", framework, *words)
    done = command(researcher, "submit", "--name", name, *options, "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    kind = {"job": "Job", "ray": "RayJob"}.get(framework, "TrainJob")
    return {"apiVersion": api_of(kind), "kind": kind, "metadata": {"name": name, "namespace": TEAM}}


@pytest.mark.usefixtures("restricted")
@pytest.mark.parametrize(("framework", "pods"), [("job", 2), ("pytorch", 2), ("ray", 2)])
def test_one_line_submits_a_job_that_runs_and_is_listed(researcher: Researcher, framework: str, pods: int) -> None:
    """In a namespace of the strictest level; the tests below are in one of the level `baseline`."""
    made = submitted(researcher, "by-word", framework, "--nodes", pods)
    try:
        running = researcher.running("by-word", pods + (framework == "ray"))
        _of_the_team(running, _priority(made, None))
        for pod in running:
            assert at(pod, "spec", "securityContext", "runAsNonRoot") is True
            assert at(pod, "spec", "serviceAccountName") == "workload"
            assert at(pod, "spec", "automountServiceAccountToken") is False or made["kind"] == "TrainJob"
        (listed,) = json.loads(command(researcher, "queue", TEAM, "-o", "json").stdout)["jobs"]
        shown = {key: listed[key] for key in ("name", "kind", "state", "flavors", "user")}
        assert shown == {
            "name": "by-word", "kind": made["kind"], "state": "admitted", "flavors": ["a100"], "user": "rita",
        }  # fmt: skip
        assert listed["requests"]["nvidia.com/gpu"] == 4 * pods
    finally:
        researcher.end(made)


@pytest.mark.parametrize("framework", ["job", "pytorch"])
def test_code_of_a_folder_comes_with_the_pods(researcher: Researcher, framework: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step 1')", encoding="utf-8")
    made = submitted(researcher, "with-code", framework, "--code", tmp_path)
    try:
        (pod,) = researcher.running("with-code", 1)
        assert at(pod, "spec", "securityContext", "runAsNonRoot") is None
        assert at(pod, "metadata", "annotations", ANNOTATION) == packed(tmp_path)
        (container,) = _containers(pod)
        assert container["command"][-2:] == ["python", "train.py"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"code": "/code", "code-archive": "/gpu-tenancy"}.items() <= mounts.items()
    finally:
        researcher.end(made)


@pytest.fixture
def restricted(researcher: Researcher) -> Iterator[None]:
    """The namespace of the team while it enforces the strictest level of Pod Security."""
    level = "pod-security.kubernetes.io/enforce"
    space = Reference("v1", "Namespace", TEAM)
    found = researcher.cluster.get(*space) or {}
    researcher.cluster.patch(space, {"metadata": {"labels": {level: "restricted"}}})
    yield
    researcher.cluster.patch(space, {"metadata": {"labels": {level: text_at(found, "metadata", "labels", level)}}})


def test_scheduled_jobs_are_admitted_for_their_submitter(researcher: Researcher) -> None:
    words = ("--name", "nightly", "--image", "registry.example.com/ml/train:3.0.1", "--gpus", "1")
    done = command(researcher, "submit", *words, "--schedule", "0 2 * * *")
    assert f"CronJob {TEAM}/nightly submitted" in done.stdout, done.output
    cron = Reference("batch/v1", "CronJob", "nightly", TEAM)
    try:
        (listed,) = json.loads(command(researcher, "queue", TEAM, "-v", "-o", "json").stdout)["others"]
        assert (listed["state"], listed["user"]) == ("at 0 2 * * *", "rita")
        researcher.own.patch(cron, {"spec": {"schedule": "0 1 * * *"}})
        # The controller makes up for a run that it missed.
        missed: Any = {"status": {"lastScheduleTime": f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"}}
        researcher.cluster.patch(cron, missed, subresource="status")
        (pod,) = researcher.cluster.wait_for(
            lambda: [one for one in researcher.pods("nightly") if at(one, "spec", "nodeName")] or None,
            what="the pod of the first run",
        )
        _of_the_team([pod], "ml-high")
        jobs = json.loads(command(researcher, "queue", TEAM, "-o", "json").stdout)["jobs"]
        assert {(job["kind"], job["state"], job["user"]) for job in jobs} == {("Job", "admitted", "rita")}
    finally:
        command(researcher, "cancel", f"{TEAM}/nightly", "--yes")
        researcher.cluster.wait_for(lambda: not researcher.pods("nightly") or None, what="the end of its runs")


def test_a_submitted_job_is_followed(researcher: Researcher, queueing: Queueing) -> None:
    image = ("--image", "registry.example.com/ml/train:3.0.1")
    nodes = [f"a100-{number}" for number in range(4)]
    second = ("submit", "--name", "second", *image, "--follow")
    followed: list[Result] = []
    reader = Thread(target=lambda: followed.append(command(researcher, *second)))
    with kubelet(queueing.platform, researcher.cluster, nodes):
        reader.start()
        (pod,) = researcher.running("second", 1)
        status: Any = {"phase": "Succeeded", "conditions": [], "containerStatuses": []}
        researcher.cluster.patch(Reference.of(pod), {"status": status}, subresource="status")
        reader.join(60)
    (done,) = followed
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-3:] == [f"train of {text_at(pod, 'metadata', 'name')} starts", "step 1", "step 2"]
    assert done.stderr.splitlines()[-1] == "second: complete"
    assert command(researcher, "cancel", f"{TEAM}/second", "-y").exit_code == 0


@pytest.mark.parametrize("framework", ["mpi", "deepspeed"])
def test_frameworks_without_rights_are_refused_with_a_fix(researcher: Researcher, framework: str) -> None:
    done = command(researcher, "submit", "--name", "by-word", "--image", "i:1", "--framework", framework)
    assert done.exit_code == 1, done.output
    said = " ".join(done.stderr.split())
    assert f"--framework {framework}: a TrainJob sets image and resources of the launcher only" in said
    assert f"add the job to `training` of the stack with `framework: {framework}`" in said
    runtime: Any = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": []}}}
    with pytest.raises(ApiError, match="cannot create resource"):
        researcher.submit(
            {"apiVersion": api_of("TrainJob"), "kind": "TrainingRuntime", "metadata": {"name": "own"}, "spec": runtime}
        )


_OTHERS: Final[Any] = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": {}}
_APART: Final[Any] = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OTHERS]}}}
_LOCKING: Final[Any] = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
REFUSED: Final = {
    "Trainer, without resources": "its JobSet is refused: sets affinity.podAntiAffinity to pods of other namespaces",
    "kubectl create job --image": 'its pods are refused: violates PodSecurity "baseline:latest": non-default',
}


@pytest.mark.parametrize("sample", REFUSED)
def test_refusals_behind_operators_reach_their_submitter(researcher: Researcher, sample: str) -> None:
    """Objects that are accepted, and whose JobSet or pods are refused later; the samples as they are run above."""
    (found,) = (deepcopy(one["object"]) for one in SAMPLES if one["of"] == sample)
    found["metadata"]["name"] = name = "behind"
    if found["kind"] == "TrainJob":
        node = {"name": "node", "template": {"spec": {"template": {"spec": _APART}}}}
        runtime = {"template": {"spec": {"replicatedJobs": [node]}}}
        found["spec"]["runtimePatches"] = [{"manager": "example.com/me", "trainingRuntimeSpec": runtime}]
    else:
        found["spec"]["template"]["spec"]["containers"][0] |= _LOCKING
    words, made = f"admitted, but {REFUSED[sample]}", researcher.submit(found)

    def told() -> str:
        return " ".join(command(researcher, "why", f"{TEAM}/{name}", "-o", "json").stdout.replace('\\"', '"').split())

    try:
        researcher.cluster.wait_for(lambda: words in told() or None, timeout=60, what=words)
        (note, *_) = json.loads(command(researcher, "queue", TEAM, "-o", "json").stdout)["notes"]
        assert note.startswith(f"{name}: {words}")
    finally:
        researcher.end(made)


def command(researcher: Researcher, command: str, *words: object) -> Result:
    place = ("--kubeconfig", str(researcher.kubeconfig), *(("-n", TEAM) if command == "submit" else ()))
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [command, *place, *map(str, words)])


def api_of(kind: str) -> str:
    return next(version for version, name in TARGETS if name == kind)


def _priority(made: Manifest, expected: str | None) -> str:
    """The priority class of its pods; a TrainJob's is in its Workload."""
    return expected if expected is not None else "" if made["kind"] == "TrainJob" else "ml-high"


def _of_the_team(pods: list[Manifest], priority: str) -> None:
    """Pods with GPUs are on nodes with GPUs, all others are not, and all have the same priority."""
    for pod in pods:
        resources = [container["resources"] for container in _containers(pod)]
        has_gpus = any(each["limits"].get("nvidia.com/gpu", "0") != "0" for each in resources)
        assert text_at(pod, "spec", "nodeName").startswith("a100-" if has_gpus else "cpu-")
        assert text_at(pod, "spec", "priorityClassName") == priority


def _containers(pod: Any) -> list[Any]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def test_train_jobs_have_the_class_that_a_quota_requires(researcher: Researcher, tmp_path: Path) -> None:
    (sample,) = (one["object"] for one in SAMPLES if one["of"] == "Trainer, without resources")
    production = "ml-production"
    with Cluster(identified(researcher, Person("group", production), tmp_path)) as own:
        made = own.create({**sample, "metadata": {**sample["metadata"], "namespace": production}}, dry_run=True)
    assert at(made, "spec", "runtimeRef", "name") == "torch-distributed-ml-critical"


def test_cpu_work_waits_for_cpu_nodes(researcher: Researcher) -> None:
    """This is why flavors do not tolerate the taint of their nodes."""
    (sample,) = (one["object"] for one in SAMPLES if one["of"] == "Kueue, sample-job")
    spec: Any = {**sample["spec"], "parallelism": 30, "completions": 30}
    made = researcher.submit({**sample, "metadata": {"name": "many"}, "spec": spec})
    try:

        def refused() -> str | None:
            found = researcher.own.list(KUEUE, "Workload", namespace=TEAM)
            (mine,) = [one for one in found if text_at(made, "metadata", "uid") in owners(one)] or [{}]
            reasons: Any = at(mine, "status", "conditions") or []
            return next((one["message"] for one in reasons if one["type"] == "QuotaReserved"), None)

        reason = researcher.cluster.wait_for(refused, timeout=60, what="Kueue's answer")
        assert "untolerated taint {nvidia.com/gpu present NoSchedule" in reason
        assert researcher.pods("many") == []
    finally:
        researcher.end(made)


def test_nobody_needs_to_write_a_toleration() -> None:
    assert "tolerations" not in yaml.safe_dump([one["object"] for one in SAMPLES if one["of"][:6] != "NVIDIA"])
