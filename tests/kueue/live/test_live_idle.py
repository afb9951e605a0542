"""Idle GPUs with a real Prometheus, Kueue and kubectl: the CronJob tells, requeues and cancels; busy jobs stay.

The exporter is that of `tenancy local metrics`, with GPUs that an annotation of a pod makes idle. Seconds are in place
of hours: rules are evaluated each second, and `for` is in the variables of the CronJob.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from builders import Data
from loopback import LOOPBACK, serving_content
from prometheus_tool import running
from queueing import Queueing, a_job, workload_of
from researchers import TEAM, Researcher, researching, sections
from scheduled import Scheduled

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cost.prometheus import Prometheus
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.metrics import serving
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import IDLE
from gpu_tenancy.model.plan.idle import IDLE_GPUS, RECLAIMER
from gpu_tenancy.model.source import Source

pytestmark = [
    pytest.mark.platform,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no `kubectl` on the PATH"),
]
BUSY_AT: Final = "gpu_tenancy:pod_busy_at"
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
SETS: Final = "jobset.x-k8s.io/v1alpha2"
USE: Final = "gpu-tenancy.dev/simulated-gpu-use"  # percent, of a pod
ONE: Final[Data] = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}


def with_idle() -> Data:
    found = sections()
    operators = {**found["operators"], "prometheus": "installed"}
    return {**found, "operators": operators, "idle": {"then": "requeue", "grace": "0m"}}


@pytest.fixture(scope="module")
def rita(queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    """A researcher of the stack `local` with `idle`, without a grace period."""
    with researching(queueing, tmp_path_factory.mktemp("idle"), with_idle()) as researcher:
        yield researcher


@pytest.fixture(scope="module")
def server(rita: Researcher, queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the rules of the stack."""
    folder = tmp_path_factory.mktemp("prometheus")
    stack = load(Source(with_idle()))
    del rita
    with serving(queueing.platform, stack, 0, folder) as metrics:
        Thread(target=metrics.serve_forever, daemon=True).start()
        for file, seconds in (("prometheus.yml", "15s"), ("rules.yml", "interval: 1m")):
            text = (folder / file).read_text(encoding="utf-8")
            (folder / file).write_text(text.replace(seconds, seconds.replace("15s", "1s").replace("1m", "1s")))
        with running(folder / "prometheus.yml", folder / "data") as url:
            yield url
        metrics.shutdown()


def idle_jobs(rita: Researcher, server: str, folder: Path, policy: str, *spared: str, after: int = 4) -> Scheduled:
    teams = " ".join((TEAM, policy, str(after), "5", *spared))
    return Scheduled(rita, folder, IDLE_GPUS, RECLAIMER.name, SERVER=server, TEAMS=teams)


def submit(rita: Researcher, name: str, use: int) -> Manifest:
    job: Any = a_job(name, TEAM, ONE)
    job["spec"]["template"]["metadata"] = {"annotations": {USE: str(use)}}
    rita.submit(job)
    rita.running(name, 1)
    return job


def told(rita: Researcher, run: Scheduled) -> str:
    """The output of the first run that says something: a pod has no metrics while a scrape takes too long."""
    return rita.cluster.wait_for(lambda: run() or None, timeout=20, what="a job that is told")


def note(rita: Researcher, name: str) -> str:
    return text_at(workload_of(rita.cluster, name, TEAM), "metadata", "annotations", IDLE)


def measured(rita: Researcher, server: str, *names: str, idle: str = "idle", after: int = 4) -> None:
    """Waits until Prometheus knows when the pods of jobs were busy: those with `idle` in their name long ago."""
    pods = {text_at(pod, "metadata", "name") for name in names for pod in rita.pods(name)}

    def known() -> bool:
        found = Prometheus(server).query(f"time() - {BUSY_AT} >= 0", time.time())
        ago = {labels["pod"]: seconds for labels, seconds in found if labels["pod"] in pods}
        return set(ago) == pods and all(seconds > after for name, seconds in ago.items() if idle in name)

    rita.cluster.wait_for(known, timeout=60, what="metrics of the pods")


@pytest.fixture
def jobs(rita: Researcher, server: str) -> Iterator[tuple[Manifest, Manifest]]:
    both = submit(rita, "idle", 0), submit(rita, "busy", 100)
    measured(rita, server, "idle", "busy")
    yield both
    for job in both:
        rita.end(job)


def events(rita: Researcher) -> list[tuple[str, str]]:
    found = rita.own.list("v1", "Event", namespace=TEAM)
    own = [one for one in found if text_at(one, "source", "component") == "gpu-tenancy"]
    return [(text_at(one, "reason"), text_at(one, "message")) for one in own]


@pytest.mark.usefixtures("jobs")
def test_an_idle_job_is_told_then_requeued(rita: Researcher, server: str, tmp_path: Path) -> None:
    run = idle_jobs(rita, server, tmp_path, "requeue")
    (before,) = rita.running("idle", 1)
    assert "annotated" in told(rita, run)
    assert note(rita, "idle").startswith("since 2")
    assert ", requeue at 2" in note(rita, "idle")
    ((reason, message),) = events(rita)
    assert reason == "IdleGPUs"
    assert message.startswith("1 GPUs below 5 % since ")
    assert "patched" in told(rita, run)
    (again,) = rita.running("idle", 1)
    assert text_at(again, "metadata", "uid") != text_at(before, "metadata", "uid")
    assert note(rita, "idle").startswith("requeued, stopped at ")
    assert "IdleGPUsStopped" in dict(events(rita))
    assert note(rita, "busy") == ""
    assert at(workload_of(rita.cluster, "busy", TEAM), "status", "schedulingStats") is None
    # Its new pod has the time of its own start.
    measured(rita, server, "busy")
    assert "patched" not in run()


def test_a_single_pod_names_its_workload(rita: Researcher) -> None:
    """By this annotation of Kueue, the CronJob finds the pods of a Workload; Jobs have it in the tests above."""
    job: Any = a_job("alone", TEAM, ONE)
    made: Any = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": job["metadata"],
        "spec": job["spec"]["template"]["spec"],
    }
    rita.submit(made)
    (pod,) = rita.running("alone", 1)
    named = text_at(pod, "metadata", "annotations", "kueue.x-k8s.io/workload")
    assert named in {text_at(one, "metadata", "name") for one in rita.cluster.list(KUEUE, "Workload", namespace=TEAM)}
    rita.end(made)


def test_a_job_set_is_idle_when_all_its_pods_are(rita: Researcher, server: str, tmp_path: Path) -> None:
    def role(name: str, use: int) -> Data:
        job: Any = a_job(name, TEAM, ONE)["spec"]
        pod = {**job["template"], "metadata": {"annotations": {USE: str(use)}}}
        return {"name": name, "template": {"spec": {"template": pod}}}

    spec: Any = {"replicatedJobs": [role("idle", 0), role("busy", 100)]}
    made = rita.submit({"apiVersion": SETS, "kind": "JobSet", "metadata": {"name": "pair"}, "spec": spec})
    pods = {text_at(pod, "metadata", "name"): pod for pod in rita.running("pair", 2)}
    measured(rita, server, "pair")
    run = idle_jobs(rita, server, tmp_path, "requeue")
    assert run() == ""
    (busy,) = (pod for name, pod in pods.items() if "busy" in name)
    rita.cluster.patch(Reference.of(busy), {"metadata": {"annotations": {USE: "0"}}})
    measured(rita, server, "pair", idle="pair")
    assert "annotated" in told(rita, run)
    assert "patched" in told(rita, run)
    again = {text_at(pod, "metadata", "name") for pod in rita.running("pair", 2)}
    assert not again & set(pods)
    rita.end(made)


@pytest.mark.usefixtures("jobs")
def test_notify_only_tells(rita: Researcher, server: str, tmp_path: Path) -> None:
    run = idle_jobs(rita, server, tmp_path, "notify")
    assert "annotated" in told(rita, run)
    run()
    assert ", notify at 2" in note(rita, "idle")
    assert at(workload_of(rita.cluster, "idle", TEAM), "spec", "active") is True
    assert note(rita, "busy") == ""


@pytest.mark.usefixtures("jobs")
def test_cancel_stops_until_somebody_resumes(rita: Researcher, server: str, tmp_path: Path) -> None:
    run = idle_jobs(rita, server, tmp_path, "cancel")
    assert "annotated" in told(rita, run)
    assert "patched" in told(rita, run)
    rita.cluster.wait_for(lambda: not rita.pods("idle") or None, what="the end of the idle job")
    assert run() == ""
    assert note(rita, "idle").startswith("cancel: stopped at ")
    assert at(workload_of(rita.cluster, "idle", TEAM), "spec", "active") is False
    assert len(rita.pods("busy")) == 1


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("spared", ["idle", "Job", "ml-high"])
def test_exceptions_by_name_kind_and_class(rita: Researcher, server: str, tmp_path: Path, spared: str) -> None:
    assert idle_jobs(rita, server, tmp_path, "cancel", spared)() == ""
    assert note(rita, "idle") == ""


@pytest.mark.usefixtures("jobs")
def test_an_annotation_of_somebody_else_stops_nothing(rita: Researcher, server: str, tmp_path: Path) -> None:
    busy = Reference.of(workload_of(rita.cluster, "busy", TEAM))
    text = "since 2026-01-01T00:00:00Z, requeue at 2026-01-01T00:00:00Z"
    forged: Manifest = {"metadata": {"annotations": {IDLE: text}}}
    with pytest.raises(ApiError):
        rita.own.patch(busy, forged)
    rita.cluster.patch(busy, forged)
    run = idle_jobs(rita, server, tmp_path, "requeue", "idle")
    assert "annotated" in told(rita, run)
    assert note(rita, "busy") == ""
    assert at(workload_of(rita.cluster, "busy", TEAM), "spec", "active") is True


_SERIES: Final = '[{"metric":{"__name__":"x","namespace":"ml-research","pod":"POD"},"value":[1000.5,"10"]}]'


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no answer from Prometheus"),
        ("not JSON", "no answer from Prometheus"),
        ('{"status":"error","error":"busy"}', "no answer from Prometheus"),
        ('{"status":"success","data":{"result":' + _SERIES + "}}", "clock of Prometheus differs"),
        ('{"status":"success","data":{"result":[]}}', "has no metrics"),
    ],
)
def test_without_answers_nothing_is_stopped(rita: Researcher, tmp_path: Path, text: str, message: str) -> None:
    (pod,) = rita.running("idle", 1)
    rita.cluster.patch(Reference.of(pod), {"status": {"startTime": "2026-01-01T00:00:00Z"}}, subresource="status")
    given = text.replace("POD", text_at(pod, "metadata", "name")).encode()
    with serving_content(lambda _: given) as address:
        done = idle_jobs(rita, address if text else f"http://{LOOPBACK}:9", tmp_path, "cancel", after=1).run()
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert note(rita, "idle") == ""


def test_the_account_can_do_nothing_else(rita: Researcher, server: str, tmp_path: Path) -> None:
    run = idle_jobs(rita, server, tmp_path, "requeue")
    refused = {
        "get": ("secrets", "configmaps", "pods/log", "services/proxy"),
        "create": ("pods", "pods/exec", "workloads.kueue.x-k8s.io", "jobs.batch", "pods/eviction"),
        "delete": ("workloads.kueue.x-k8s.io", "pods", "jobs.batch", "events"),
        "patch": ("jobs.batch", "pods", "events", "workloads.kueue.x-k8s.io/status", "localqueues.kueue.x-k8s.io"),
    }
    assert [(verb, one) for verb, names in refused.items() for one in names if run.can(verb, one, TEAM)] == []
    assert run.can("patch", "workloads.kueue.x-k8s.io", TEAM)
    assert not run.can("patch", "workloads.kueue.x-k8s.io", "kube-system")
    assert not run.can("list", "pods", IDLE_GPUS)
