"""Why jobs do not run: what researchers, leads and administrators are told, and that its fix works."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from queueing import Queueing
from researchers import TEAM, Researcher, identified
from test_live_gangs import A100, QUEUE, gang, pod, queued
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.errors import WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.names import HOLD
from gpu_tenancy.model.spec.people import Person

pytestmark = [
    pytest.mark.platform,
    pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl on the PATH"),
]
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
ROWS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"))
SUBMIT: Final = f"tenancy submit -n {TEAM} --image registry.example.com/ml/train:3.0.1 --name"
READERS: Final = ("researcher", "lead", "admin")
OTHER: Final = "ml-experiments"
LABEL: Final = "kueue.x-k8s.io/queue-name"
ENDED: Final = (
    ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("batch.volcano.sh/v1alpha1", "Job"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("v1", "Pod"),
)  # fmt: skip
HOST: Final = "kubernetes.io/hostname"


def job(spec: Json, queue: str = TEAM, **labels: str) -> Manifest:
    metadata: Json = {"labels": {LABEL: queue, **labels}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": spec}}}


def of(kind: str, version: str, **spec: Json) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {}, "spec": spec}


_SHORT: Final[Any] = queued("short", 2, 4)
_SHORT["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] = "5"
_ONE: Final[Json] = ["ReadWriteOnce"]
_SIZE: Final[Json] = {"storage": "1Gi"}
_MOUNT: Final[Json] = [{"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}]
GANGS: Final = {"gang-5": 5, "gang-4": 4, "gang-full": 4, "gang-2": 2, "gang-known": 2, "gang-job": 2}
OBJECTS: Final[Mapping[str, Any]] = {
    "labelled": job(pod(A100, 1)),
    "elsewhere": job(pod(A100, 1), "ml-production"),
    "classless": job(pod(A100, 1), **{"kueue.x-k8s.io/priority-class": "nope"}),
    "mounts": job(pod(A100, 1, volumes=_MOUNT)),
    "scratch": of("PersistentVolumeClaim", "v1", storageClassName="", accessModes=_ONE, resources={"requests": _SIZE}),
    "volume": of("PersistentVolume", "v1", accessModes=_ONE, capacity=_SIZE, hostPath={"path": "/mnt"}),
    "borrows": job(pod(A100, 8, priorityClassName="ml-low"), OTHER),
    **{f"on-{node}": job(pod(A100, 1, nodeSelector={HOST: f"a100-{node}"})) for node in range(4)},
    # Each row has its own: Volcano can lose a Job that has the name of one deleted seconds before.
    **{name: gang(name, pods) for name, pods in GANGS.items()},
    "gang-lost": gang("gang-lost", 1, "nope"),
    "short": _SHORT,
    "together": queued("together", 2, 4),
    "surges": of(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io/v1",
        replicas=2,
        rolloutStrategy={
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxSurge": "100%", "maxUnavailable": 0},
        },
        leaderWorkerTemplate={"size": 1, "workerTemplate": {"spec": {**pod(A100, 1), "restartPolicy": "Always"}}},
    ),
    "single": {
        **of("Pod", "v1", **pod("NVIDIA-L4", 1, schedulerName="volcano")),
        "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": QUEUE}},
    },
}


@pytest.fixture(scope="module")
def readers(researcher: Researcher, queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kubeconfigs, in a folder with the files of `OBJECTS`."""
    folder = tmp_path_factory.mktemp("answers")
    for name, made in OBJECTS.items():
        made["metadata"] = {
            "name": name,
            "namespace": {"borrows": OTHER, "volume": ""}.get(name, TEAM),
            **({"labels": {LABEL: TEAM}} if name == "surges" else {}),
            **made["metadata"],
        }
        (folder / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
    people = {"lead": Person("user", "rosa"), "admin": Person("group", "ml-platform")}
    files = {name: identified(researcher, who, tmp_path_factory.mktemp(name)) for name, who in people.items()}
    return {**files, "researcher": researcher.kubeconfig, "root": queueing.platform.kubeconfig, "folder": folder}


@pytest.fixture
def rita(researcher: Researcher, readers: dict[str, Path]) -> Iterator[Researcher]:
    """A researcher, whose jobs are deleted afterwards, and holds that a failed test left are released."""
    yield researcher
    for kind in ("ClusterQueue", "ResourceFlavor"):
        for one in researcher.cluster.list(KUEUE, kind, metadata_only=True):
            if text_at(one, "metadata", "annotations", HOLD):
                run(readers, "admin", f"tenancy cluster release {name_of(one)}")
    for namespace in (TEAM, OTHER):
        for kind in ENDED:
            for one in researcher.cluster.list(*kind, namespace=namespace, metadata_only=True):
                researcher.cluster.delete(Reference.of(one), grace=0)
    researcher.cluster.delete(Reference("v1", "PersistentVolumeClaim", "scratch", TEAM))
    researcher.cluster.delete(Reference("v1", "PersistentVolume", "volume"))


def run(readers: Mapping[str, Path], who: str, line: str) -> tuple[int, str]:
    """Exit code and output of a command line."""
    program, *words = shlex.split(line)
    words = [str(readers["folder"] / word) if word.endswith(".json") else word for word in words]
    if program == "kubectl":
        place = ("kubectl", "--kubeconfig", str(readers[who]))
        done = subprocess.run([*place, *words], capture_output=True, text=True, check=False)
        return done.returncode, f"{done.stdout}{done.stderr}"
    asks = words[0] == "requeue" or words[:2] == ["cluster", "release"]
    told = [*words, *(["--yes"] if asks else []), "--kubeconfig", str(readers[who])]
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, told)
    return result.exit_code, f"{result.stdout}{result.stderr}".lstrip()


def follow(rita: Researcher, readers: Mapping[str, Path], step: str, answers: Mapping[str, str]) -> None:
    who, _, line = step.partition(": ")
    if line == "stop":
        (workload,) = rita.cluster.wait_for(lambda: rita.cluster.list(KUEUE, "Workload", namespace=TEAM) or None)
        rita.cluster.patch(Reference.of(workload), {"spec": {"active": False}})
        return
    if line.startswith("running "):
        rita.running(line.split()[1], int(line.split()[2]))
        return
    if line == "told":
        (line, *_) = re.findall("`((?:kubectl|tenancy) [^`]+)`", answers[who])
    code, output = run(readers, who, line.replace("{submit}", SUBMIT))
    assert code == 0, f"{line}: {output}"


def _of(who: str, words: Any) -> str:
    return words if isinstance(words, str) else words.get(who, words.get("others"))


@pytest.mark.parametrize("reason", ROWS)
def test_reason_is_told_first_and_its_fix_works(rita: Researcher, readers: dict[str, Path], reason: str) -> None:
    row: Any = {"given": [], "fix": "", **ROWS[reason]}
    runs = row.get("runs", ["waits" if "waits" in str(row["given"]) else "again", 1])
    for step in row["given"]:
        follow(rita, readers, step, {})
    line, answers = f"tenancy {row['ask']}".replace("tenancy {submit}", SUBMIT), dict[str, str]()
    for who in READERS:
        first, fix = (_of(who, row[key]) for key in ("first", "fix"))

        def told(who: str = who, first: str = first) -> str | None:
            answers[who] = run(readers, who, line)[1]
            return answers[who] if first in answers[who].partition("\n")[0] else None

        try:
            assert fix in rita.cluster.wait_for(told, timeout=20, what=first), answers[who]
        except WaitTimeoutError:
            pytest.fail(f"{who}: {first!r} is not in the first line of {answers[who]}")
    for step in row["then"]:
        follow(rita, readers, step, answers)
    if runs:
        rita.running(*runs)
