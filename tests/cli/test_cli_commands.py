"""The command `tenancy`, as people and pipelines run it."""

import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import yaml
from builders import pool, team
from cli_builders import FIRST_LINE, Home, Project, small, tenancy
from repository import ROOT

from gpu_tenancy.base.json import Json, at
from gpu_tenancy.engine.project import preview
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.project import stack_names

pytestmark = pytest.mark.platform


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


# Preview.


def test_preview_shows_tree_and_writes_each_object(project: Project, tmp_path: Path) -> None:
    seen = tenancy("preview", "good", "--out", tmp_path / "out", project=project.folder)
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert "gpu-tenancy/good" in seen.stdout
    for line in ("Namespace vision", "ClusterQueue vision", "Deployment api", "ResourceFlavor h100"):
        assert line in seen.stdout
    written = files(tmp_path / "out" / "objects")
    assert f"{len(written)} objects in {tmp_path / 'out' / 'objects'}" in seen.stdout
    quota = yaml.safe_load(written["vision/resourcequota-budget.yaml"])
    assert quota["spec"]["hard"]["requests.nvidia.com/gpu"] == "4"
    assert {"_cluster/namespace-vision.yaml", "_cluster/clusterqueue-speech.yaml"} <= written.keys()


def test_previews_differ_only_by_the_edit(project: Project, tmp_path: Path) -> None:
    def written() -> dict[str, bytes]:
        assert tenancy("preview", "good", "--out", tmp_path / "out", project=project.folder).exit_code == 0
        return files(tmp_path / "out")

    before = written()
    assert written() == before
    sections = small()
    sections["teams"]["speech"]["costCenter"] = "other-001"
    project.write("good", sections)
    after = written()
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == [
        "objects/_cluster/namespace-speech.yaml",
        "report.html",
        "report.json",
        "report.md",
    ]


def test_invalid_stack_reports_every_error_and_writes_no_object(project: Project, tmp_path: Path) -> None:
    sections = small()
    sections["teams"]["vision"]["gpus"]["h100"]["guaranteed"] = 24
    sections["teams"]["speech"]["teir"] = "critical"
    sections["priorities"]["low"] = {"value": "ten"}
    file = project.write("bad", sections)
    seen = tenancy("preview", "bad", "--out", tmp_path / "out", project=project.folder)
    assert (seen.exit_code, seen.stdout) == (1, "")
    lines = seen.stderr.splitlines()
    assert lines[-1] == "3 problems in stack bad; nothing was changed"
    numbered = ("", *file.read_text().splitlines())
    problems = {line.partition(": ")[2]: line.partition(": ")[0] for line in lines[:-1]}
    assert len(problems) == 3
    for key, fact, text in (
        ("priorities.low.value: ", "ten", "value: ten"),
        ("teams.speech.teir: ", "did you mean 'tier'?", "teir: critical"),
        ("teams.vision.gpus.h100.guaranteed: 24 ", "8", "guaranteed: 24"),
    ):
        ((message, place),) = ((message, place) for message, place in problems.items() if message.startswith(key))
        assert fact in message.removeprefix(key)
        name, _, number = place.partition(":")
        assert name == "stacks/Pulumi.bad.yaml"
        assert text in numbered[int(number)]
    assert files(tmp_path / "out") == {"errors.txt": seen.stderr.encode(), "exit-code": b"1\n"}


def test_a_comment_is_made_of_what_previews_write(project: Project, tmp_path: Path) -> None:
    sections = small()
    project.write("later-bad", sections)
    out = tmp_path / "out"
    for stack in ("good", "later-bad"):
        assert tenancy("preview", stack, "--out", out / stack, project=project.folder).exit_code == 0
    assert tenancy("stack", "comment", out, "--out", out / "comment.md").exit_code == 0
    sections["teams"]["speech"]["teir"] = "critical"
    project.write("later-bad", sections)
    assert tenancy("preview", "later-bad", "--out", out / "later-bad", project=project.folder).exit_code == 1
    seen = tenancy("stack", "comment", out, "--out", out / "comment.md")
    assert (seen.exit_code, seen.output) == (1, "")
    text = (out / "comment.md").read_text(encoding="utf-8")
    assert "| ✗ | `later-bad` | error, not evaluated |\n| ✓ | `good` | OK |" in text
    assert "teams.speech.teir: unknown key" in text
    refused = tenancy("stack", "comment", out / "good", "--out", tmp_path / "comment.md")
    assert refused.stderr == (
        f"error: {out / 'good'} is the folder of one preview; preview each stack to a folder in it: --out OUT/STACK\n"
    )


def test_an_internal_error_of_a_preview_is_recorded(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> float:
        return 1 / 0

    monkeypatch.setattr("gpu_tenancy.review.build.review", broken)
    tenancy("preview", "good", "--out", tmp_path / "out", project=project.folder)
    assert (tmp_path / "out" / "exit-code").read_text() == "1\n"
    assert "ZeroDivisionError: division by zero" in (tmp_path / "out" / "errors.txt").read_text()


def test_a_preview_names_what_must_run_on_arm_nodes_unchecked(project: Project) -> None:
    pools = {"cpu": pool("m7i.8xlarge", 1), "h100": pool("p6e-gb200.36xlarge", 1), "l4": pool("g6.12xlarge", 1)}
    project.write("arm", small(pools=pools))
    seen = tenancy("preview", "arm", project=project.folder)
    assert "not checked for arm64: the image of job nightly of team vision; the image of server api" in seen.output


def test_a_file_of_others_is_never_overwritten(project: Project, tmp_path: Path) -> None:
    taken = tmp_path / "out" / "objects" / "_cluster" / "namespace-vision.yaml"
    taken.parent.mkdir(parents=True)
    taken.write_text("mine\n")
    seen = tenancy("preview", "good", "--out", tmp_path / "out", project=project.folder)
    assert seen.exit_code == 1
    assert "file exists and was not written by tenancy; move it or specify another folder" in seen.stderr
    assert files(tmp_path / "out").keys() == {"errors.txt", "exit-code", "objects/_cluster/namespace-vision.yaml"}
    assert taken.read_text() == "mine\n"


# Schema.


def is_fresh(file: Path) -> bool:
    return file.read_text(encoding="utf-8") == tenancy("catalogue", "schema").stdout


def test_the_schema_is_up_to_date_and_a_stale_one_is_reported(tmp_path: Path) -> None:
    own = ROOT / "stacks" / "schema.json"
    assert is_fresh(own), "run `make schema`"
    stale = tmp_path / "schema.json"
    stale.write_text(own.read_text(encoding="utf-8").replace("guaranteed", "promised", 1), encoding="utf-8")
    assert not is_fresh(stale)
    assert tenancy("catalogue", "schema", "--out", stale).exit_code == 0
    assert is_fresh(stale)
    assert json.loads(stale.read_text())["$schema"].startswith("https://json-schema.org/")


def test_each_stacks_first_line_names_the_schema_for_editors() -> None:
    assert "local" in stack_names()
    for name in stack_names():
        with (ROOT / "stacks" / f"Pulumi.{name}.yaml").open(encoding="utf-8") as file:
            assert file.readline() == FIRST_LINE, name


# The whole way: up, up again, down; each command a process of its own.

CANARY = "hunter2-canary"
# An object that the author of a project added to the program.
SECRET = f"""
import pulumi
from pulumi_kubernetes.core.v1 import Secret

if pulumi.get_stack() == "good":
    Secret("token", metadata={{"name": "token", "namespace": "vision"}}, string_data={{"token": "{CANARY}"}})
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    found = Home.at(tmp_path_factory.mktemp("home"))
    with (found.project.folder / "__main__.py").open("a") as program:
        program.write(SECRET)
    yield found
    found.run("local", "down")


def versions(home: Home, stack: str) -> Mapping[str, tuple[object, object]]:
    """Uid and resource version of each object of a stack."""
    with Cluster(home.kubeconfig) as cluster:
        found: dict[str, tuple[object, object]] = {}
        for one in preview(stack, home.project.folder).objects:
            live = cluster.get(one.api_version, one.kind, one.name, one.namespace) or {}
            spec = json.dumps(live.get("spec"), sort_keys=True)
            found[f"{one.kind} {one.namespace}/{one.name}"] = (at(live, "metadata", "uid"), spec)
        return found


def test_up_is_idempotent_and_down_removes_everything(home: Home) -> None:
    # One test: each step needs the one before it, and a platform of its own for each would take a minute more.
    comes_up(home)
    stays(home)
    is_not_touched_by_a_bad_stack(home)
    queues_with_controllers(home, follows_an_edit_and_counts_a_server_that_is_older_than_kueue(home))
    restarts_a_controller_and_removes_a_team_whose_jobs_run_and_wait(home)
    names_what_another_stack_would_replace(home)
    replaces_it_by_a_good_stack_only(home)
    goes(home)


def comes_up(home: Home) -> None:
    asleep = home.run("local", "status")
    assert asleep.returncode == 1
    assert asleep.stdout.count("not running") == 5

    first = home.up()
    assert first.returncode == 0, first.stderr
    objects = len(preview("good", home.project.folder).objects)
    assert "good on the embedded platform, https://127.0.0.1:" in first.stdout
    assert f"{objects} created" in first.stdout
    assert "server-side apply" in first.stdout
    assert "✗" not in first.stdout
    assert first.stdout.count("✓") == 7  # two quotas, two models, the taint, preemption, the verdict
    assert f"kubeconfig  {home.kubeconfig}" in first.stdout
    assert (home.folder / "out" / "good" / "report.html").is_file()
    assert not (home.folder / "nobodys").exists()
    assert sorted(each.name for each in home.folder.iterdir()) == ["out", "project", "state"]

    shows_no_secret(home, first.stdout + first.stderr)
    awake = home.run("local", "status")
    assert awake.returncode == 0
    assert awake.stdout.count("pid ") == 5
    assert "good, deployed with server-side apply" in awake.stdout


def shows_no_secret(home: Home, text: str) -> None:
    """Only the cluster has it: no output, log, inventory, state of the platform or report."""
    with Cluster(home.kubeconfig) as cluster:
        found = cluster.get("v1", "Secret", "token", "vision") or {}
    encoded = b64encode(CANARY.encode()).decode()
    assert at(found, "data", "token") == encoded
    written = files(home.folder / "out") | files(home.folder / "state")
    assert {"gpu-tenancy/embedded/applied.json", "good/report.html"} <= written.keys()
    having = [name for name, content in written.items() if any(one.encode() in content for one in (CANARY, encoded))]
    assert [name for name in having if "/etcd/" not in name] == []
    assert CANARY not in text
    assert encoded not in text


def stays(home: Home) -> None:
    before = versions(home, "good")
    again = home.up()
    assert (again.returncode, "no changes" in again.stdout) == (0, True), again.stdout + again.stderr
    assert versions(home, "good") == before


def is_not_touched_by_a_bad_stack(home: Home) -> None:
    before, bad = versions(home, "good"), small()
    bad["teams"]["speech"]["gpus"]["l4"]["guaranteed"] = 400
    home.project.write("good", bad)
    refused = home.up()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "1 problem in stack good; nothing was changed" in refused.stderr
    home.project.write("good", small())
    assert versions(home, "good") == before


def follows_an_edit_and_counts_a_server_that_is_older_than_kueue(home: Home) -> str:
    before, edited = versions(home, "good"), small()
    edited["teams"]["speech"]["objects"] = {"services": 3}
    del edited["teams"]["vision"]["training"]
    edited["teams"]["audio"] = team()
    home.project.write("good", edited)
    third = home.up(controllers="all")
    assert third.returncode == 3, "Kueue does not count the pods of a Deployment that is older than it"
    assert "✗ no queue has more GPUs on nodes than it counts" in third.stdout
    after = versions(home, "good")
    new = {name for name in after if name not in before}
    changed = {name for name in before if name in after and after[name] != before[name]}
    # The FlowSchema lists the namespaces of service accounts.
    assert changed == {"ResourceQuota speech/budget", "FlowSchema /gpu-tenancy-teams"}
    assert {name for name in before if name not in after} == {"Job vision/nightly"}
    assert new
    assert all("audio" in name for name in new)
    assert f"{len(new)} created, {len(changed)} changed, 1 pruned" in third.stdout
    return third.stdout


def names_what_another_stack_would_replace(home: Home) -> None:
    before = versions(home, "good")
    home.project.write("other", small(teams={"audio": team(gpus={"h100": {"guaranteed": 8}})}))
    with Cluster(home.kubeconfig) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sandbox"}})
    other = home.up("other")
    assert (other.returncode, other.stdout) == (1, "")
    content = f"good ({len(before)} objects, deployed with server-side apply; running: 1 team, 1 server, 1 job, "
    assert f"the embedded platform carries stack {content}" in other.stderr
    assert "run `tenancy local up other --replace` (`make up STACK=other REPLACE=1`)" in other.stderr
    assert versions(home, "good") == before


def replaces_it_by_a_good_stack_only(home: Home) -> None:
    before = versions(home, "good")
    home.project.write("bad", small(priorities={}))
    assert home.up("bad", "--replace").returncode == 1
    assert versions(home, "good") == before

    replaced = home.up("other", "--replace")
    assert replaced.returncode == 0, replaced.stderr
    assert "deleting stack good (" in replaced.stderr
    objects = versions(home, "other")
    assert f"{len(objects)} created" in replaced.stdout
    with Cluster(home.kubeconfig) as cluster:
        assert not any(cluster.exists("v1", "Namespace", name) for name in ("vision", "speech", "sandbox"))
        assert cluster.list("kueue.x-k8s.io/v1beta2", "ClusterQueue", labels="") != ()
        # The controllers do not run any more: no webhook is left, and no conversion, which would ask one.
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            assert cluster.list("admissionregistration.k8s.io/v1", kind) == ()
        assert cluster.list("kueue.x-k8s.io/v1beta1", "LocalQueue")
    assert "other, deployed with server-side apply" in home.run("local", "status").stdout

    again = home.up("other", "--replace", controllers="all")
    assert (again.returncode, "no changes" in again.stdout) == (0, True), again.stdout + again.stderr
    assert versions(home, "other") == objects


def queues_with_controllers(home: Home, counted: str) -> None:
    (again,) = re.findall("`(kubectl delete deployment api -n vision)`", " ".join(counted.split()))
    if shutil.which("kubectl"):
        subprocess.run(["sh", "-c", again], check=True, env={**os.environ, "KUBECONFIG": str(home.kubeconfig)})
    else:  # as the command does
        with Cluster(home.kubeconfig) as cluster:
            cluster.delete(Reference("apps/v1", "Deployment", "api", "vision"))
    queued = home.up(controllers="all")
    assert queued.returncode == 0, queued.stdout + queued.stderr
    assert "✗" not in queued.stdout
    assert "speech gets 2 l4 GPUs with 23.5 CPUs and 88Gi back at once" in queued.stdout
    assert "a larger job was not tried: the limit of CPU is the guarantee" in queued.stdout
    assert " GPUs preempted" in queued.stdout
    assert "a job without a queue does not run in" in queued.stdout
    assert "of the stack run, or are pending for a reason of their quota" in queued.stdout
    assert re.search(r"\n(All \d+|\d+ of \d+) checks passed", queued.stdout)
    status = home.run("local", "status")
    assert status.returncode == 0
    assert "kueue-controller-manager" in status.stdout


def restarts_a_controller_and_removes_a_team_whose_jobs_run_and_wait(home: Home) -> None:
    """Finalizers on pods, workloads and queues do not block pruning, although Kueue has just started."""
    has_jobs(home, "speech", count=4, gpus=2)  # together twice the GPUs of the only node
    pids = dict(line.split("pid") for line in home.run("local", "status").stdout.splitlines() if "pid" in line)
    kueue = psutil.Process(int(pids[next(name for name in pids if name.startswith("kueue-controller-manager"))]))
    kueue.kill()
    psutil.wait_procs([kueue], timeout=300)
    status = home.run("local", "status")
    assert status.returncode == 1
    assert "kueue-controller-manager exited. Last log lines" in status.stderr
    assert '"level":' in status.stderr
    sections = small()
    del sections["teams"]["speech"]
    home.project.write("good", sections)
    again = home.up(controllers="all")
    assert (again.returncode, "starting kueue" in again.stderr) == (0, True), again.stdout + again.stderr
    assert home.run("local", "status").returncode == 0
    with Cluster(home.kubeconfig) as cluster:
        assert not cluster.exists("v1", "Namespace", "speech")
        assert not cluster.exists("kueue.x-k8s.io/v1beta2", "ClusterQueue", "speech")


def has_jobs(home: Home, namespace: str, count: int, gpus: int) -> None:
    """Submits jobs to the queue of a team, and waits until some of them run and others are pending."""
    with Cluster(home.kubeconfig) as cluster:
        for number in range(count):
            cluster.create(queued(f"train-{number}", namespace, gpus))

        def shared() -> bool:
            admitted = [
                is_true(workload, "Admitted")
                for workload in cluster.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=namespace)
                if "train-" in str(at(workload, "metadata", "name"))
            ]
            return len(admitted) == count and any(admitted) and not all(admitted)

        def running() -> bool:
            pods = cluster.list("v1", "Pod", namespace=namespace)
            return any(at(pod, "status", "phase") == "Running" for pod in pods)

        cluster.wait_for(shared, timeout=120, what=f"some of {count} workloads to be admitted")
        cluster.wait_for(running, timeout=120, what="a pod to run")


def queued(name: str, namespace: str, gpus: int) -> Manifest:
    amounts: Json = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    container: Json = {
        "name": "train",
        "image": "registry.example.com/train:1.0",
        "resources": {"requests": amounts, "limits": amounts},
    }
    labels: Json = {"kueue.x-k8s.io/queue-name": namespace}
    tolerations: Json = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    pod: Json = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }


def goes(home: Home) -> None:
    has_jobs(home, "audio", count=3, gpus=4)
    assert len(home.processes()) > 5
    gone = home.run("local", "down")
    assert gone.returncode == 0
    assert home.processes() == []
    assert files(home.folder / "state") == {}
    assert home.run("local", "down").returncode == 0
