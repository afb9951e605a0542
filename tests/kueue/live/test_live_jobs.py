"""What a researcher of the stack `local` submits, and the commands about jobs by name."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest
import yaml
from kubelet import kubelet
from queueing import Queueing
from researchers import TEAM, Researcher, identified
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.inspect.code import packed
from gpu_tenancy.inspect.jobs import read_jobs, uid_of
from gpu_tenancy.inspect.requeueing import as_submitted
from gpu_tenancy.inspect.target import KINDS as TARGETS
from gpu_tenancy.inspect.target import owners
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.manifests.code import ANNOTATION
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
    made = researcher.submit(sample["object"])
    try:
        _of_the_team(researcher.running(name, sample["pods"]), _priority(made, sample.get("priority")))
    finally:
        researcher.end(made)


@pytest.mark.parametrize(("framework", "pods"), [("job", 2), ("pytorch", 2), ("jax", 2), ("ray", 2), ("job", 1)])
def test_one_line_submits_a_job_that_runs_and_is_listed(researcher: Researcher, framework: str, pods: int) -> None:
    words = ("--image", "registry.example.com/ml/train:3.0.1", "--gpus", "4", "--nodes", pods, "--framework", framework)
    done = command(researcher, "submit", "--name", "by-word", *words, "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    kind = {"job": "Job", "ray": "RayJob"}.get(framework, "TrainJob")
    made: Manifest = {"apiVersion": api_of(kind), "kind": kind, "metadata": {"name": "by-word", "namespace": TEAM}}
    try:
        _of_the_team(researcher.running("by-word", pods + (framework == "ray")), _priority(made, None))
        (listed,) = json.loads(command(researcher, "queue", TEAM, "-o", "json").stdout)["jobs"]
        shown = {key: listed[key] for key in ("name", "kind", "state", "flavors", "user")}
        assert shown == {"name": "by-word", "kind": kind, "state": "admitted", "flavors": ["a100"], "user": "rita"}
        assert listed["requests"]["nvidia.com/gpu"] == 4 * pods
    finally:
        researcher.end(made)


@pytest.mark.parametrize("framework", ["job", "pytorch"])
def test_code_of_a_folder_comes_with_the_pods(researcher: Researcher, framework: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('step 1')", encoding="utf-8")
    words = ("--name", "with-code", "--image", "registry.example.com/ml/train:3.0.1", "--gpus", "4", "--code", tmp_path)
    done = command(researcher, "submit", *words, "--framework", framework, "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    kind = "Job" if framework == "job" else "TrainJob"
    made: Manifest = {"apiVersion": api_of(kind), "kind": kind, "metadata": {"name": "with-code", "namespace": TEAM}}
    try:
        (pod,) = researcher.running("with-code", 1)
        assert at(pod, "metadata", "annotations", ANNOTATION) == packed(tmp_path)
        (container,) = _containers(pod)
        assert container["command"][-2:] == ["python", "train.py"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"code": "/code", "code-archive": "/gpu-tenancy"}.items() <= mounts.items()
    finally:
        researcher.end(made)


@pytest.mark.usefixtures("restricted")
@pytest.mark.parametrize(("framework", "pods"), [("job", 2), ("pytorch", 2), ("ray", 2)])
def test_a_restricted_namespace_admits_submitted_jobs(researcher: Researcher, framework: str, pods: int) -> None:
    words = ("--image", "registry.example.com/ml/train:3.0.1", "--gpus", "4", "--nodes", pods, "--framework", framework)
    done = command(researcher, "submit", "--name", "rootless", *words, "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    kind = {"job": "Job", "ray": "RayJob"}.get(framework, "TrainJob")
    made: Manifest = {"apiVersion": api_of(kind), "kind": kind, "metadata": {"name": "rootless", "namespace": TEAM}}
    try:
        for pod in researcher.running("rootless", pods + (framework == "ray")):
            assert at(pod, "spec", "securityContext", "runAsNonRoot") is True
            assert at(pod, "spec", "serviceAccountName") == "workload"
            assert at(pod, "spec", "automountServiceAccountToken") is False or framework == "pytorch"
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
        (listed,) = json.loads(command(researcher, "jobs", TEAM, "-o", "json").stdout)
        assert (listed["state"], listed["user"]) == ("at 0 2 * * *", "rita")
        researcher.own.patch(cron, {"spec": {"schedule": "* * * * *"}})
        (pod,) = researcher.cluster.wait_for(
            lambda: [one for one in researcher.pods("nightly") if at(one, "spec", "nodeName")] or None,
            timeout=120,
            what="the pod of the first run",
        )
        _of_the_team([pod], "ml-high")
        jobs = json.loads(command(researcher, "queue", TEAM, "-o", "json").stdout)["jobs"]
        assert {(job["kind"], job["state"], job["user"]) for job in jobs} == {("Job", "admitted", "rita")}
    finally:
        command(researcher, "cancel", f"{TEAM}/nightly", "--yes")
        researcher.cluster.wait_for(lambda: not researcher.pods("nightly") or None, what="the end of its runs")


def test_a_job_follows_another_and_is_followed(researcher: Researcher, queueing: Queueing) -> None:
    image = ("--image", "registry.example.com/ml/train:3.0.1")
    nodes = [f"a100-{number}" for number in range(4)]
    assert command(researcher, "submit", "--name", "first", *image).exit_code == 0
    second = ("submit", "--name", "second", *image, "--after", "first", "--follow")
    followed: list[Result] = []
    reader = Thread(target=lambda: followed.append(command(researcher, *second)))
    with kubelet(queueing.platform, researcher.cluster, nodes):
        reader.start()
        for name in ("first", "second"):
            (pod,) = researcher.running(name, 1)
            assert name == "second" or researcher.pods("second") == []
            status: Any = {"phase": "Succeeded", "conditions": [], "containerStatuses": []}
            researcher.cluster.patch(Reference.of(pod), {"status": status}, subresource="status")
        reader.join(60)
    (done,) = followed
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-3:] == [f"train of {text_at(pod, 'metadata', 'name')} starts", "step 1", "step 2"]
    assert done.stderr.splitlines()[-1] == "second: complete"
    assert command(researcher, "cancel", f"{TEAM}/first", f"{TEAM}/second", "-y").exit_code == 0


def test_one_line_does_not_submit_what_can_never_be_admitted(researcher: Researcher) -> None:
    done = command(researcher, "submit", "--name", "by-word", "--image", "i:1", "--gpus", "8", "--nodes", "400")
    assert done.exit_code == 2, done.output
    assert "exceeds the limit" in done.stdout
    assert "not submitted, since it can never be admitted" in done.stderr
    assert "no jobs" in command(researcher, "queue", TEAM).stdout


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


def command(researcher: Researcher, command: str, *words: object) -> Result:
    place = ("--kubeconfig", str(researcher.kubeconfig), *(("-n", TEAM) if command == "submit" else ()))
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [command, *place, *map(str, words)])


def api_of(kind: str) -> str:
    return next(version for version, name in TARGETS if name == kind)


def _priority(made: Manifest, expected: str | None) -> str:
    """The class of its pods; those of a TrainJob have none, but its Workload has."""
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


def test_train_jobs_have_the_class_that_a_quota_requires(researcher: Researcher) -> None:
    (sample,) = (one["object"] for one in SAMPLES if one["of"] == "Trainer, without resources")
    production = Reference("v1", "Namespace", "ml-production")
    config: Any = yaml.safe_load(researcher.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] |= {"as-groups": [production.name]}
    file = researcher.kubeconfig.with_name("production")
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    with Cluster(file) as own:
        metadata = {**sample["metadata"], "namespace": production.name}
        made = own.create({**sample, "metadata": metadata}, dry_run=True)
    assert at(made, "spec", "runtimeRef", "name") == "torch-distributed-ml-critical"


def test_cpu_work_waits_for_cpu_nodes(researcher: Researcher) -> None:
    """The reason why flavors do not tolerate the taint of their nodes."""
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


# The commands about jobs by name.

REQUEUED: Final = (
    "Kueue, partial admission",
    "Kubernetes, an indexed Job, with GPUs under limits only",
    "NVIDIA, a Job that tolerates another value of the taint",
    "JobSet, pytorch with GPUs",
    "Trainer, multi-node",
    "KubeRay, ray-job.sample, with GPUs",
)
NO_KUBELET: Final = (
    'error: Internal error occurred: error sending request: Post "https://:10250/exec/ml-research/pair/node?command='
    'nvidia-smi": dial tcp :10250: connect: connection refused'
)
JOBS: Final = [sample for sample in SAMPLES if sample["of"] in REQUEUED]


def tenancy(researcher: Researcher, *words: object, kubeconfig: Path | None = None) -> Result:
    place = ("--kubeconfig", str(kubeconfig or researcher.kubeconfig), "-n", TEAM)
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [*map(str, words), *place])


@pytest.fixture
def pair(researcher: Researcher) -> Iterator[Any]:
    """A TrainJob of two running pods."""
    words = ("--image", "registry.example.com/ml/train:3.0.1", "--gpus", 4, "--nodes", 2, "--framework", "pytorch")
    done = tenancy(researcher, "submit", "--name", "pair", *words)
    assert done.exit_code == 0, done.output
    made: Any = read_jobs(researcher.own, TEAM).named("pair")
    try:
        researcher.running("pair", 2)
        yield made
    finally:
        researcher.end(made)


def test_a_job_is_listed_measured_and_cancelled(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
) -> None:
    (row,) = json.loads(tenancy(researcher, "jobs", "-o", "json").stdout)
    shown = {key: row[key] for key in ("name", "kind", "running", "pods")}
    assert shown == {"name": "pair", "kind": "TrainJob", "running": 2, "pods": 2}
    assert row["requests"]["nvidia.com/gpu"] == 8

    def measured() -> list[Any] | None:
        found = tenancy(researcher, "top", "pair", "-o", "json")
        rows: list[Any] = json.loads(found.stdout) if found.exit_code == 0 else []
        return rows if rows and all(one["used"] for one in rows) else None

    rows = researcher.cluster.wait_for(measured, timeout=60, what="metrics of both pods")
    assert [one["name"].split()[0] for one in rows] == ["0", "1"]
    assert all(0 < one["used"]["cpu"] <= one["requests"]["cpu"] for one in rows)
    (whole,) = json.loads(tenancy(researcher, "top", "-o", "json").stdout)
    assert (whole["name"], whole["where"]) == ("pair", "2 pods")
    unasked = tenancy(researcher, "cancel", "pair")
    assert (unasked.exit_code, "confirm with --yes" in unasked.stderr) == (1, True)
    part = text_at(researcher.pods("pair")[0], "metadata", "name")
    refused = tenancy(researcher, "cancel", part, "--yes")
    assert f"Pod {TEAM}/{part}: is a part of " in refused.stderr
    done = tenancy(researcher, "cancel", "pair", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"TrainJob {TEAM}/pair cancelled\n")
    researcher.cluster.wait_for(lambda: not researcher.pods("pair") or None, what="the end of its pods")


def test_what_gpus_do_is_asked_in_the_pods(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing runs in pods of simulated nodes, so another kubectl answers, for one of them as a person would.

    Of the other one it says what the real kubectl says of a node that is simulated.
    """
    first, _ = sorted(text_at(pod, "metadata", "name") for pod in researcher.running("pair", 2))
    researcher.cluster.wait_for(
        lambda: tenancy(researcher, "top", "pair").exit_code == 0 or None, timeout=60, what="metrics"
    )
    other = tmp_path / "kubectl"
    answer = f"case \"$*\" in *'exec {first} -- nvidia-smi --query-gpu='*) printf '97, 61440, 81920\\n%.0s' 1 2 3 4;;"
    other.write_text(f"#!/bin/sh\n{answer} *) echo '{NO_KUBELET}' >&2; exit 1;; esac\n", encoding="utf-8")
    other.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        rows = json.loads(tenancy(researcher, "top", "pair", "--gpus", "-o", "json").stdout)
        (whole,) = json.loads(tenancy(researcher, "top", "--gpus", "-o", "json").stdout)
        queued = json.loads(tenancy(researcher, "queue", "--gpus", "-o", "json").stdout)
        table = tenancy(researcher, "queue", "--gpus").stdout
        all_teams = ["queue", "--gpus", "--all", "--kubeconfig", str(researcher.kubeconfig)]
        everybody = CliRunner().invoke(app, all_teams)
        shown = tenancy(researcher, "top", "pair", "--gpus").stdout
        patched.setenv("PATH", str(tmp_path / "none"))
        without = tenancy(researcher, "top", "pair", "--gpus")
    told = {"percent": [97] * 4, "used": 240 * 2**30, "memory": 320 * 2**30}
    assert [row["gpus"] for row in rows] == [told, None]
    assert whole["gpus"] == told
    assert [(job["name"], job["gpus"]) for job in queued["jobs"]] == [("pair", told)]
    note = "GPU use of 1 pod unknown: simulated nodes run no containers"
    assert [one for one in queued["notes"] if one.startswith(note)]
    for screen in (table, shown):
        assert "97 %" in screen
        assert note in screen
    assert (everybody.exit_code, "asks the pods of one team" in " ".join(everybody.stderr.split())) == (1, True)
    assert "240Gi of 320Gi" in shown
    assert (without.exit_code, "kubectl not found" in without.stderr) == (1, True)


def test_logs_of_all_pods_are_numbered_and_followed(
    researcher: Researcher,
    pair: Any,  # noqa: ARG001 - it runs
    queueing: Queueing,
) -> None:
    pods = researcher.running("pair", 2)
    nodes = {text_at(pod, "spec", "nodeName") for pod in pods}
    ended = Event()
    unread = tenancy(researcher, "logs", "pair")
    assert "not readable: simulated nodes run no containers" in " ".join(unread.stderr.split())
    with kubelet(queueing.platform, researcher.cluster, nodes, ended):
        names = sorted(text_at(pod, "metadata", "name") for pod in pods)
        done = tenancy(researcher, "logs", "pair")
        assert done.stdout.splitlines() == [
            f"[{number}] {line}"
            for number, name in enumerate(names)
            for line in (f"node of {name} starts", "step 1", "step 2")
        ]
        assert tenancy(researcher, "logs", "pair", "--pod", 1, "--tail", 1).stdout == "step 2\n"
        lost = tenancy(researcher, "logs", "pair", "--pod", 2)
        assert "--pod 2: pair has no such pod; it has 2 pods; count from 0" in lost.stderr
        followed: list[Result] = []
        reader = Thread(target=lambda: followed.append(tenancy(researcher, "logs", "pair", "-f")))
        reader.start()
        for pod in pods:
            status: Any = {"phase": "Succeeded", "conditions": [], "containerStatuses": []}
            researcher.cluster.patch(Reference.of(pod), {"status": status}, subresource="status")
        ended.set()
        reader.join(60)
    (done,) = followed
    assert (done.exit_code, done.stderr) == (0, "pair: complete\n")
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{number}] {line}"
        for number, name in enumerate(names)
        for line in (f"node of {name} starts", "step 1", "step 2")
    )


@pytest.mark.parametrize("sample", JOBS, ids=[sample["of"] for sample in JOBS])
def test_a_job_is_created_again_as_it_was_submitted(researcher: Researcher, sample: Any) -> None:
    name = sample["object"]["metadata"]["name"]
    metadata = {**sample["object"]["metadata"], "namespace": TEAM}
    accepted = researcher.own.create({**sample["object"], "metadata": metadata}, dry_run=True)
    made = researcher.submit(sample["object"])
    try:
        researcher.running(name, sample["pods"])
        jobs = read_jobs(researcher.own, TEAM, queued=True)
        live = jobs.named(name)
        (workload,) = jobs.workloads_of(live)
        assert timeless(as_submitted(live, workload)) == timeless(as_submitted(accepted, None))
        done = tenancy(researcher, "requeue", name, "--yes")
        assert "deleted and created again, at the end of its queue" in done.stdout, done.output
        researcher.running(name, sample["pods"])
        again = read_jobs(researcher.own, TEAM).named(name)
        assert uid_of(again) != uid_of(live)
    finally:
        researcher.end(made)


def timeless(manifest: Any) -> Any:
    """Without the time that Trainer writes into the patches of a TrainJob."""
    for patch in manifest["spec"].get("runtimePatches", []):
        patch.pop("time", None)
    return manifest


def test_a_lead_has_kueue_evict_a_job_which_keeps_its_place(researcher: Researcher, pair: Any, tmp_path: Path) -> None:
    before = {uid_of(pod) for pod in researcher.running("pair", 2)}
    done = tenancy(
        researcher, "requeue", "pair", "-y", kubeconfig=identified(researcher, Person("user", "rosa"), tmp_path)
    )
    assert f"TrainJob {TEAM}/pair evicted by Kueue and queued again, at the place of its creation" in done.stdout

    def others() -> bool:
        found = {uid_of(pod) for pod in researcher.pods("pair") if at(pod, "spec", "nodeName")}
        return len(found) == 2 and not found & before

    researcher.cluster.wait_for(lambda: others() or None, timeout=60, what="two other pods")
    assert uid_of(read_jobs(researcher.own, TEAM).named("pair")) == uid_of(pair)
