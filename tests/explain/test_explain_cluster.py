"""The commands on a real API server that carries the stack `local`, with Workloads as Kueue 0.19.2 writes them.

Kueue itself does not run here: the tests write its status, with recorded messages.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from live_builders import A100, GPU, Data, condition, job, meta, pod_spec, resources, workload
from typer.testing import CliRunner, Result

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.quantity import format_amounts, times
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.engine.objects import waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.jobs.jobs import look_up
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import Request
from gpu_tenancy.kube.transport import Transport

KUEUE = "kueue.x-k8s.io/v1beta2"
# Kinds that would have pods or need a cloud: the tests create their own.
RUNNING = {"Job", "Deployment", "TrainJob", "HorizontalPodAutoscaler", "PersistentVolume", "PersistentVolumeClaim"}


@dataclass(frozen=True)
class Local:
    cluster: Cluster
    kubeconfig: Path

    def run(self, *arguments: object, kubeconfig: Path | None = None) -> Result:
        given = [str(each) for each in (*arguments, "--kubeconfig", kubeconfig or self.kubeconfig)]
        return CliRunner().invoke(app, given)

    def lines(self, *arguments: object) -> list[str]:
        seen = self.run(*arguments)
        assert seen.stderr == ""
        return [line.rstrip() for line in seen.stdout.splitlines()]

    def play(self, reference: Reference, status: Data) -> None:
        self.cluster.patch(reference, {"status": status}, subresource="status")


@pytest.fixture(scope="module")
def local(cluster: Cluster, platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    found = preview("local", onto=platform.kubeconfig)
    ordered = [[dict(one.manifest) for one in wave if one.kind not in RUNNING] for wave in waves(found.objects)]
    bring_nodes(cluster, node_shapes(found.stack))
    apply(cluster, ordered, tmp_path_factory.mktemp("live") / "inventory.json")
    # Until its controller has counted a quota, no pod may ask for anything.
    for one in (Reference.of(manifest) for wave in ordered for manifest in wave if manifest["kind"] == "ResourceQuota"):
        cluster.wait_for(partial(_counted, cluster, one), what=f"{one} to be counted")
    yield Local(cluster, platform.kubeconfig)
    references = [Reference.of(manifest) for wave in ordered for manifest in wave]
    for one in reversed(references):
        cluster.delete(one, wait=0)
    for one in references:
        if not one.namespace:
            cluster.wait_gone(one, timeout=120)
    bring_nodes(cluster, ())


def _counted(cluster: Cluster, quota: Reference) -> bool:
    return at(cluster.get(*quota) or {}, "status", "hard") is not None


def spec(gpus: int, **more: Any) -> Data:
    return pod_spec(gpus, **{"nodeSelector": {"nvidia.com/gpu.product": A100}, **more})


def a_job(name: str, namespace: str, pods: int, gpus: int, **more: Any) -> Data:
    """A job as its author writes it, for A100s of the stack."""
    found = job(name, namespace, pods, gpus)
    del found["metadata"]["uid"]
    found["spec"]["template"]["spec"] = spec(gpus, **more)
    return found


WAITS = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor cpu,"
    " previously considered podsets requests (0) + current podset request (8) > maximum capacity (0),"
    " insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
)


def queued(local: Local, about: Data, priority: int, *, admitted: bool) -> Reference:
    """A Job with Kueue's Workload."""
    made: Any = local.cluster.create(about)
    found = workload({**about, "metadata": made["metadata"]}, priority=priority, admitted=admitted)
    status = found.pop("status")
    if not admitted:
        total = format_amounts(times(requests(about["spec"]["template"]["spec"]), about["spec"]["parallelism"]))
        waiting = [condition("QuotaReserved", "False", "Pending", WAITS)]
        status = {"conditions": waiting, "resourceRequests": [{"name": "main", "resources": total}]}
    wanted: Any = {"apiVersion": KUEUE, "kind": "Workload", **found}
    local.cluster.create(wanted)
    reference = Reference.of(wanted)
    local.play(reference, status)
    return reference


def used(gpus: int, pods: int) -> Data:
    lines = [
        {"name": GPU, "total": str(gpus)},
        {"name": "cpu", "total": str(pods)},
        {"name": "memory", "total": f"{4 * pods}Gi"},
    ]
    return {
        "conditions": [condition("Active", "True", "Ready", "Can admit new workloads")],
        "flavorsReservation": [{"name": "a100", "resources": lines}],
    }


@pytest.fixture(scope="module")
def busy(local: Local) -> Iterator[Local]:
    """ml-research runs 24 A100s and ml-experiments 8; 8 and 40 more are pending in ml-research."""
    jobs = [
        (a_job("r1", "ml-research", 3, 8), 100_000, True),
        (a_job("e1", "ml-experiments", 1, 8), 1000, True),
        (a_job("huge", "ml-research", 5, 8), 100_000, False),
        (a_job("r2", "ml-research", 1, 8), 50_000, False),
    ]
    made = [queued(local, manifest, priority, admitted=admitted) for manifest, priority, admitted in jobs]
    local.play(Reference(KUEUE, "ClusterQueue", "ml-research"), used(24, 3))
    local.play(Reference(KUEUE, "ClusterQueue", "ml-experiments"), used(8, 1))
    for other in ("ml-production", "ml-serving"):
        status = {"conditions": [condition("Active", "True", "Ready", "Can admit new workloads")]}
        local.play(Reference(KUEUE, "ClusterQueue", other), status)
    yield local
    for manifest, _, _ in jobs:
        local.cluster.delete(Reference.of(manifest), wait=0)
    for one in made:
        local.cluster.delete(one, wait=0)


def test_usage_shows_each_team_flavor_by_flavor(busy: Local) -> None:
    lines = busy.lines("usage")
    rows = [" ".join(line.split()) for line in lines]
    gpus = [row for row in rows if "nvidia.com/gpu Kueue" in row or "nvidia.com/gpu Volcano" in row]
    assert gpus == [
        "ml-experiments a100 nvidia.com/gpu Kueue 0 8 8 8 0 0",
        "ml-production h100 nvidia.com/gpu Kueue 16 112 CPUs and 448Gi 16 0 0 0 0",
        "ml-research a100 nvidia.com/gpu Kueue 8 32 CPUs and 128Gi 32 24 16 0 8 1",
        "ml-research - nvidia.com/gpu Kueue 0 0 0 0 0 40 1",
        "ml-serving l4 nvidia.com/gpu Kueue 50 587.5 CPUs and 2200Gi 50 0 0 0 0",
        "ml-research l4 nvidia.com/gpu Volcano 4 4 0 0 0 0",
    ]
    assert (
        "total nvidia.com/gpu: 78 guaranteed, 32 used, 24 borrowed, 48 pending; 2 workloads pending (48 nvidia.com/gpu)"
    ) in lines


def test_usage_of_one_team_shows_all_of_its_quota(busy: Local) -> None:
    lines = busy.lines("usage", "ml-research", "-v")
    assert not [line for line in lines if line.startswith("ml-experiments")]
    assert ["ml-research", "budget", "limits.cpu", "0", "128"] in [line.split() for line in lines]


def test_usage_as_data_has_numbers_in_base_units(busy: Local) -> None:
    found = json.loads(busy.run("usage", "ml-research", "--json").stdout)
    (row,) = (each for each in found["rows"] if (each["flavor"], each["resource"]) == ("a100", "memory"))
    assert (row["guaranteed"], row["limit"], row["used"]) == (128 * 2**30, 160 * 2**30, 12 * 2**30)


FULL: Final = (
    "Job ml-research/r2: queue ml-research cannot borrow enough: 8 of 8 a100 GPUs missing (24 in use, 8 guaranteed)"
)
NUMBERS: Final = [
    "  Workload job-r2-abcde in LocalQueue ml-research (ClusterQueue ml-research), priority 50000",
    "  1 workload is ahead of it, requesting 40 nvidia.com/gpu: ml-research/huge",
    "  a100 nvidia.com/gpu: 8 requested, 8 missing (guaranteed 8, unused 0; limit 32, used 24)",
    "  a100 nvidia.com/gpu borrowed now by: ml-experiments 8",
]


def test_why_names_who_is_ahead_and_who_borrows(busy: Local) -> None:
    assert busy.lines("why", "ml-research/r2") == [
        FULL,
        (
            "fix: wait until one of these ends: ml-research/r1, ml-experiments/e1; or request less, or ask the"
            " platform team to raise the guarantee"
        ),
        "  wait unknown: no deadline and no recorded job tells the end of ml-research/r1, ml-experiments/e1",
        *NUMBERS,
        (
            "  simulation: admitted after the end of any one of these: ml-research/r1, ml-experiments/e1"
            " (tested 2 of 2 running workloads)"
        ),
    ]
    assert busy.lines("why", "ml-research/r2", "-v")[-1] == f"  Kueue condition QuotaReserved (Pending): {WAITS}"
    unblock = json.loads(busy.run("why", "ml-research/r2", "--json").stdout)["unblock"]
    assert unblock["ends"] == ["ml-research/r1", "ml-experiments/e1"]


def test_recorded_jobs_tell_how_long_a_job_waits(busy: Local, tmp_path: Path) -> None:
    """Ten years each: running jobs began on the first of January 2026."""
    file = tmp_path / "jobs.jsonl"
    jobs = [
        {"at": 0, "duration": "3650d", "team": f"ml-{team}"} for team in ("research", "experiments") for _ in range(12)
    ]
    file.write_text("\n".join(map(json.dumps, jobs)), encoding="utf-8")
    (wait,) = (line for line in busy.lines("why", "ml-research/r2", "--used", str(file)) if "expected" in line)
    assert re.fullmatch(r"  expected wait: about \d+ d", wait)
    unblock = json.loads(busy.run("why", "ml-research/r2", "--json", "--used", str(file)).stdout)["unblock"]
    assert 0 < unblock["estimate"]["low"] <= unblock["estimate"]["high"] < 3650 * 86_400
    assert "about" in busy.run("queue", "ml-research", "--used", str(file)).stdout
    missing = busy.run("why", "ml-research/r2", "--used", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert "--used:" in missing.output


def test_why_requires_a_namespace_and_suggests_similar_names(busy: Local) -> None:
    seen = busy.run("why", "r2")
    assert (seen.exit_code, "r2: no namespace; specify NAMESPACE/NAME or -n NAMESPACE" in seen.stderr) == (1, True)
    lost = busy.run("why", "ml-research/r11")
    assert "ml-research/r11: object not found, or not readable by you" in lost.stderr
    assert "did you mean 'r1'? Known: huge, label, r1, r2" in lost.stderr


def test_a_name_means_the_owner_rather_than_its_children(cluster: Cluster, namespace: str) -> None:
    made = cluster.create(a_job("same", namespace, 1, 0))
    metadata: Any = meta("same", namespace)
    pod: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(0, schedulerName="none")}
    cluster.create(pod)
    with pytest.raises(ConsoleError, match=r"several objects have this name: Job \(batch/v1\), Pod \(v1\); set --kind"):
        look_up(cluster, namespace, "same")
    cluster.delete(Reference("v1", "Pod", "same", namespace), grace=0)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "same", "uid": text_at(made, "metadata", "uid")}
    owned: Any = {**metadata, "ownerReferences": [{**owner, "controller": True}]}
    cluster.create({**pod, "metadata": owned})
    assert look_up(cluster, namespace, "same")["kind"] == "Job"


# Fit.


def write(folder: Path, *manifests: Data) -> Path:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return file


def test_fit_shows_every_check_and_the_api_servers_answer(busy: Local, tmp_path: Path) -> None:
    file = write(tmp_path, a_job("new", "ml-research", 1, 4, priorityClassName="ml-high"))
    seen = busy.run("fit", "ml-research", "-f", file)
    later = "fits when other queues release 4 (guaranteed 8, unused 0; limit 32, used 24)"
    queue = f"queue ml-research: a100 nvidia.com/gpu: 4 requested, {later}"
    assert seen.exit_code == 0
    assert [line.rstrip() for line in seen.stdout.splitlines()] == [
        f"Job new fits, but not now: {queue}",
        "Job new requests 1 pod, 4 nvidia.com/gpu, 1 cpu, 4Gi memory in total",
        f"… {queue}",
        "  2 workloads already pending (48 nvidia.com/gpu); those of higher or equal priority are admitted first",
        "  wait unknown: no deadline and no recorded job tells the end",
        "✓ namespace quota: ResourceQuota budget: requests.nvidia.com/gpu 4 requested, 36 of 36 free",
        "  ResourceQuota budget: limits.cpu 1 requested, 128 of 128 free",
        "  ResourceQuota budget: requests.cpu 1 requested, 64 of 64 free",
        "  ResourceQuota budget: limits.memory 4Gi requested, 512Gi of 512Gi free",
        "  ResourceQuota budget: requests.memory 4Gi requested, 256Gi of 256Gi free",
        "  ResourceQuota budget: pods 1 requested, 50 of 50 free",
        "✓ nodes: 4 suitable nodes, room for 8 such pods now and 8 when empty",
        "✓ priority: PriorityClass ml-high (100000)",
        "  scheduler default-scheduler",
        "✓ API server: accepts Job new (dry run)",
        "✓ API server: accepts a pod of Job new (dry run)",
    ]
    assert busy.cluster.get("batch/v1", "Job", "new", "ml-research") is None


@pytest.mark.parametrize(
    ("change", "said", "refusal"),
    [
        ({"containers": [{"name": "main", "image": "registry.example.com/x:1", "resources": resources(9)}]},
         "✗ API server: rejects Pod p: ", "maximum nvidia.com/gpu usage per Container is 8, but limit is 9"),
        ({"containers": [{"name": "main", "image": "registry.example.com/x:1", "resources": {"requests": {"cpu": "1"},
         "limits": {"cpu": "4"}}}]}, "✗ API server: rejects Pod p: ",
         "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"),
        ({"containers": [{"name": f"c{at}", "image": "registry.example.com/x:1", "resources": resources(8)} for
         at in range(5)]},
         "✗ namespace quota: ResourceQuota budget: requests.nvidia.com/gpu 40 requested, exceeds the quota of 36",
         "ResourceQuota budget has 0 of 36 requests.nvidia.com/gpu in use, 40 more requested"),
        ({"priorityClassName": "ml-hihg"}, "✗ priority: PriorityClass ml-hihg not found; did you mean 'ml-high'?",
         "no PriorityClass with name ml-hihg was found"),
    ],
    ids=["too many GPUs", "too wide a ratio", "more than the quota", "no such class"],
)  # fmt: skip
def test_the_api_server_rejects_what_fit_rejects(
    busy: Local, tmp_path: Path, change: Data, said: str, refusal: str
) -> None:
    pod = {**a_job("p", "ml-research", 1, 1), "apiVersion": "v1", "kind": "Pod", "spec": spec(1, **change)}
    seen = busy.run("fit", "ml-research", "-f", write(tmp_path, pod))
    assert seen.exit_code == 3
    assert said in seen.stdout
    (word,) = (line for line in seen.stdout.splitlines() if " API server: rejects Pod p: " in line)
    assert refusal in word


def test_a_quota_of_limits_refuses_a_container_without_one(busy: Local, tmp_path: Path) -> None:
    namespace: Data = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "no-defaults"}}
    quota: Data = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "budget", "namespace": "no-defaults"},
        "spec": {"hard": {"limits.cpu": "8"}},
    }
    for manifest in (namespace, quota):
        busy.cluster.apply(manifest)
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": {"requests": {"cpu": "1"}}}
    pod = {**a_job("p", "no-defaults", 1, 1), "apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    try:
        seen = busy.run("fit", "no-defaults", "-f", write(tmp_path, pod))
    finally:
        busy.cluster.delete(Reference.of(namespace), wait=120)
    assert seen.exit_code == 3
    assert "✗ API server: rejects Pod p: " in seen.stdout
    assert "must specify limits.cpu for: main" in seen.stdout


def test_the_api_servers_own_rejections_are_shown(busy: Local, tmp_path: Path) -> None:
    odd = a_job("odd", "ml-research", 1, 1)
    odd["spec"]["paralelism"] = 3
    seen = busy.run("fit", "ml-research", "-f", write(tmp_path, odd))
    assert seen.exit_code == 3
    assert seen.stdout.splitlines()[0].startswith("Job odd does not fit: API server: rejects Job odd:")
    assert 'unknown field "spec.paralelism"' in seen.stdout


def test_an_existing_name_is_tried_under_another_one(busy: Local, tmp_path: Path) -> None:
    seen = busy.run("fit", "ml-research", "-f", write(tmp_path, a_job("r1", "ml-research", 1, 1)))
    assert "✓ API server: accepts Job r1 (dry run with another name, since the name is in use)" in seen.stdout


def test_several_documents_are_judged_each_and_as_data(busy: Local, tmp_path: Path) -> None:
    file = write(tmp_path, a_job("a", "ml-research", 1, 1), a_job("b", "ml-research", 5, 8))
    seen = busy.run("fit", "ml-research", "-f", file, "--json")
    assert seen.exit_code == 3
    assert [(each["title"], each["verdict"]) for each in json.loads(seen.stdout)] == [
        ("Job a", "later"),
        ("Job b", "never"),
    ]


KEY: Final = "hunter2-key"


def with_secrets(name: str, **variables: tuple[str, str]) -> Data:
    found = a_job(name, "ml-research", 1, 1)
    found["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, (secret, key) in variables.items()
    ]
    return found


@pytest.fixture
def wandb(busy: Local) -> Iterator[Reference]:
    """A Secret of which two managers wrote a key each."""
    name = meta("wandb", "ml-research")
    secret: Data = {"apiVersion": "v1", "kind": "Secret", "metadata": name, "stringData": {"TOKEN": KEY}}
    reference = Reference.of(secret)
    busy.cluster.apply(secret)
    busy.cluster.patch(reference, {"stringData": {"ENTITY": KEY}})
    yield reference
    busy.cluster.delete(reference)


@pytest.mark.usefixtures("wandb")
def test_fit_names_secrets_and_keys_that_are_missing(busy: Local, tmp_path: Path) -> None:
    def seen(**variables: tuple[str, str]) -> tuple[int, str]:
        result = busy.run("fit", "ml-research", "-f", write(tmp_path, with_secrets("new", **variables)))
        (line,) = (line for line in result.stdout.splitlines() if line[2:].startswith("Secrets and ConfigMaps: "))
        return result.exit_code, line

    assert seen(A=("wandb", "TOKEN"), B=("wandb", "ENTITY")) == (
        0,
        "✓ Secrets and ConfigMaps: Secret wandb has the key TOKEN",
    )
    code, line = seen(A=("wandb", "TOKN"))
    assert code == 3
    assert line.startswith("✗ Secrets and ConfigMaps: Secret wandb has no key TOKN (env A of container main)")
    assert line.endswith("did you mean 'TOKEN'? Known: ENTITY, TOKEN")
    code, line = seen(A=("wanb", "TOKEN"))
    assert code == 3
    assert "Secret wanb not found (env A of container main), so pods do not start; create it" in line
    assert "did you mean 'wandb'?" in line


def test_a_key_that_no_manager_recorded_is_unknown(busy: Local, wandb: Reference, tmp_path: Path) -> None:
    busy.cluster.patch(wandb, {"metadata": {"managedFields": [{}]}})
    found = busy.run("fit", "ml-research", "-f", write(tmp_path, with_secrets("new", A=("wandb", "TOKEN")))).stdout
    unknown = "unknown whether it has the key TOKEN (not in its managedFields)"
    assert f"? Secrets and ConfigMaps: Secret wandb exists; {unknown}" in found


@pytest.mark.usefixtures("wandb")
def test_the_api_server_sends_no_value_of_a_secret(
    busy: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bytes] = []
    send = Transport.send

    def listening(transport: Transport, request: Request) -> bytes:
        answers.append(send(transport, request))
        return answers[-1]

    monkeypatch.setattr(Transport, "send", listening)
    busy.run("fit", "ml-research", "-f", write(tmp_path, with_secrets("new", A=("wandb", "TOKEN"))))
    assert any(b"f:TOKEN" in answer for answer in answers)
    encoded = base64.b64encode(KEY.encode())
    assert not [answer for answer in answers if KEY.encode() in answer or encoded in answer]


# The rights of the stack's roles.


@pytest.fixture(
    scope="module", params=[("gpu-tenancy:member", "ml-research"), ("rosa", "")], ids=["researcher", "lead"]
)
def member(request: pytest.FixtureRequest, busy: Local, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of a researcher or a lead of ml-research, with the stack's rights and the team's namespace."""
    user, group = request.param
    config = yaml.safe_load(busy.kubeconfig.read_text())
    for one in config["users"]:
        one["user"] |= {"as": user, **({"as-groups": [group]} if group else {})}
    for context in config["contexts"]:
        context["context"]["namespace"] = "ml-research"
    file = tmp_path_factory.mktemp("member") / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that the API server refuses to a command, without lists of the whole cluster."""
    paths: list[str] = []
    send = Transport.send

    def listening(transport: Transport, request: Request) -> bytes:
        try:
            return send(transport, request)
        except ApiError as error:
            of_team = "/namespaces/" in request.path or not whole(request.path)
            # Fluid is not installed by the stack, but this server serves its kinds.
            if error.status == 403 and of_team and "/data.fluid.io/" not in request.path:
                paths.append(request.path)
            raise

    monkeypatch.setattr(Transport, "send", listening)
    return paths


def whole(path: str) -> bool:
    """Whether a path lists objects of all namespaces, which a command then lists in the team's own, or Namespaces."""
    return path.rpartition("/")[2] in {
        "events", "jobs", "limitranges", "localqueues", "namespaces", "persistentvolumeclaims", "podgroups", "pods",
        "resourcequotas", "trainingruntimes", "workloads",
    }  # fmt: skip


def test_a_member_sees_all_numbers_of_the_team(busy: Local, member: Path, refused: list[str]) -> None:
    seen = busy.run("usage", kubeconfig=member)
    whole_team = busy.run("usage", "ml-research")
    assert (seen.exit_code, seen.stderr, refused) == (0, "", [])
    assert seen.stdout == whole_team.stdout


def test_fit_answers_a_member_as_an_administrator(
    busy: Local, member: Path, refused: list[str], tmp_path: Path
) -> None:
    file = write(tmp_path, a_job("new", "ml-research", 1, 4))
    seen = busy.run("fit", "-f", file, kubeconfig=member)
    everything = busy.run("fit", "ml-research", "-f", file)
    assert (seen.exit_code, seen.stderr, refused) == (0, "", [])
    lines = [line.replace("beside the pods of your team", "now") for line in seen.stdout.splitlines()]
    # What a member submits is completed; what an administrator submits is left as it is.
    assert "✓ priority: PriorityClass ml-high (100000)" in lines
    assert [line for line in lines if "priority: " not in line] == [
        line for line in everything.stdout.splitlines() if "priority: " not in line
    ]


# A team leader of a cluster without the stack's roles.


@pytest.fixture(scope="module")
def leader(busy: Local, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with the rights of kueue-batch-user-role and view in ml-research, and no others."""
    cluster, namespace = busy.cluster, "ml-research"
    role = {"apiGroup": "rbac.authorization.k8s.io"}
    rules = [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["localqueues", "workloads"], "verbs": ["get", "list", "watch"]}
    ]
    account = [{"kind": "ServiceAccount", "name": "leader", "namespace": namespace}]
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    made: list[Any] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("leader", namespace)},
        {**rbac, "kind": "Role", "metadata": meta("batch-user", namespace), "rules": rules},
        *(
            {
                **rbac,
                "kind": "RoleBinding",
                "metadata": meta(name, namespace),
                "roleRef": {**role, "kind": kind, "name": name},
                "subjects": account,
            }
            for kind, name in (("Role", "batch-user"), ("ClusterRole", "view"))
        ),
    ]
    for one in made:
        cluster.apply(one)
    config = yaml.safe_load(busy.kubeconfig.read_text())
    config["users"] = [{"name": "leader", "user": {"token": cluster.token(namespace, "leader", seconds=3600)}}]
    for context in config["contexts"]:
        context["context"]["user"] = "leader"
    file = tmp_path_factory.mktemp("leader") / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    cluster.wait_for(lambda: busy.run("usage", namespace, kubeconfig=file).exit_code == 0, what="rights to count")
    return file


HIDDEN = (
    "ClusterQueues not readable (guaranteed, limit, borrowed by other teams): you may not list"
    " clusterqueues.kueue.x-k8s.io in the whole cluster; ask a user with the role kueue-batch-admin-role"
)


def test_a_lead_sees_the_team_and_who_can_read_the_rest(busy: Local, leader: Path) -> None:
    reference = Reference(KUEUE, "LocalQueue", "ml-research", "ml-research")
    busy.play(reference, {"flavorsReservation": used(24, 3)["flavorsReservation"]})
    seen = busy.run("usage", "ml-research", kubeconfig=leader)
    lines = [line.rstrip() for line in seen.stdout.splitlines()]
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert "ml-research a100 nvidia.com/gpu Kueue ? ? 24 ? ? 0" in [" ".join(line.split()) for line in lines]
    assert (
        "total nvidia.com/gpu: unknown guaranteed, 24 used, unknown borrowed, 48 pending; 2 workloads"
        " pending (48 nvidia.com/gpu)"
    ) in lines
    assert HIDDEN in lines
    waits = busy.run("why", "ml-research/r2", kubeconfig=leader).stdout.splitlines()
    assert waits[0] == ("Job ml-research/r2: pending for quota; you may not see how much is free")
    assert waits[1] == "fix: ask a user with the role kueue-batch-admin-role"
    assert f"  {HIDDEN}" in waits


def test_a_leads_forbidden_query_is_unknown(busy: Local, leader: Path, tmp_path: Path) -> None:
    seen = busy.run("fit", "ml-research", "-f", write(tmp_path, a_job("new", "ml-research", 1, 4)), kubeconfig=leader)
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert f"? queue ml-research: {HIDDEN}" in seen.stdout
    assert "? API server: Job new not evaluated, you may not create it: " in seen.stdout
    assert seen.stdout.splitlines()[0] == f"Job new fits as far as you may see: queue ml-research: {HIDDEN}"


def test_secrets_that_a_team_leader_may_not_list_are_unknown(busy: Local, leader: Path, tmp_path: Path) -> None:
    file = write(tmp_path, with_secrets("new", A=("wandb", "TOKEN")))
    seen = busy.run("fit", "ml-research", "-f", file, kubeconfig=leader)
    assert (seen.exit_code, seen.stderr) == (0, "")
    assert "? Secrets and ConfigMaps: Secrets not readable (names and keys of Secrets): you may not list" in seen.stdout


def test_a_lead_must_name_a_team(busy: Local, leader: Path) -> None:
    seen = busy.run("usage", kubeconfig=leader)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert seen.stderr.replace("\n", " ").strip() == (
        "error: teams not readable: you may not list localqueues.kueue.x-k8s.io in the whole cluster;"
        " specify your team: `tenancy usage TEAM`"
    )
