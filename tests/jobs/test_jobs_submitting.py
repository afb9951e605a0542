"""Jobs that a person submits, by options or in a file, and requirements of a namespace."""

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest
from builders import FEW_CPUS, errors, planned, pool, stack, team
from cli_builders import Screen
from live_builders import GPU, HIDDEN_QUEUES, Data, cluster_queue, flavor, local_queue, meta, node, state
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.jobs.job_files import read_job
from gpu_tenancy.jobs.overview import claims, data, shown_claims
from gpu_tenancy.jobs.submitting import Terms, Wish, job_of, read_terms, scheduled, user_label
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.names import Runtime
from gpu_tenancy.model.plan.namespaces import NamespacePlan
from gpu_tenancy.model.source import Source, read_file, to_config
from gpu_tenancy.model.yaml import read_yaml

IMAGE = "registry.example.com/ml/train:3.0.1"
HIDDEN_NODES = Missing("Node", "free capacity of nodes", "you may not list nodes", "an admin")


def pod_of(job: Data) -> Data:
    return job["spec"]["template"]["spec"]


def patched(job: Data) -> Data:
    (patch,) = job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]["template"]["spec"]


def test_job_gets_queue_tolerations_and_share_of_a_node() -> None:
    small = node("n2")
    small["status"]["allocatable"] |= {"cpu": "48", "memory": "500Gi"}
    job = job_of(Wish(IMAGE, ("python", "train.py"), "x", gpus=4, nodes=2), "research", state(Node=[node(), small]))
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "research"}
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 2)
    pod = pod_of(job)
    assert pod["tolerations"] == [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["nodeSelector"] == {"model": "a100"}, "the only flavor of the queue, as in a stack"
    (container,) = pod["containers"]
    amounts = {"cpu": "21", "memory": "225Gi", GPU: "4"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["command"] == ["python", "train.py"]
    memory = {"medium": "Memory", "sizeLimit": "57600Mi"}
    assert pod["volumes"] == [{"name": "shared-memory", "emptyDir": memory}]


def with_cpu(cpu: str, memory: str) -> Data:
    """A queue of 8 A100s that borrows up to 24, with CPU and memory that it borrows too."""
    queue = cluster_queue("research", "org", borrowingLimit=24)
    group = queue["spec"]["resourceGroups"][0]
    group["coveredResources"] += ["cpu", "memory"]
    more = [("cpu", cpu), ("memory", memory)]
    group["flavors"][0]["resources"] += [{"name": name, "nominalQuota": quota} for name, quota in more]
    return queue


def test_pod_size_respects_queue_and_namespace_limits() -> None:
    limits = {"type": "Container", "max": {"cpu": "12", "memory": "1Ti"}}
    bounds = {"metadata": meta("containers", "research"), "spec": {"limits": [limits]}}
    queue = with_cpu("128", "640Gi")
    sizes = {
        gpus: pod_of(job_of(Wish(IMAGE, gpus=gpus), "research", found))["containers"][0]["resources"]["limits"]
        for gpus, found in {
            2: state(ClusterQueue=[queue], Cohort=[]),
            4: state(ClusterQueue=[queue], Cohort=[], LimitRange=[bounds]),
        }.items()
    }
    assert sizes == {2: {"cpu": "21", "memory": "160Gi", GPU: "2"}, 4: {"cpu": "12", "memory": "320Gi", GPU: "4"}}


@pytest.mark.parametrize("framework", ["job", "pytorch", "jax"])
@pytest.mark.parametrize("wish", [{}, {"gpus": 8, "nodes": 2}, {"flavor": "a100"}], ids=str)
def test_what_is_made_fits_by_the_rules_of_fit(framework: Runtime, wish: dict[str, Any]) -> None:
    queue = with_cpu("1k", "10Ti")
    found = state(ClusterQueue=[queue], Node=[node("n1"), node("n2")], PersistentVolumeClaim=[], LimitRange=[])
    job = job_of(Wish(IMAGE, ("train",), name="x", framework=framework, **wish), "research", found)
    fitting = judge(found, "research", demand(job, "research"))
    assert fitting.verdict == "now", fitting.answers


def test_a_flavor_is_chosen_by_its_labels() -> None:
    job = job_of(Wish(IMAGE, flavor="a100"), "research", state())
    assert pod_of(job)["nodeSelector"] == {"model": "a100"}
    assert patched(job_of(Wish(IMAGE, flavor="a100", framework="jax"), "research", state()))["nodeSelector"] == {
        "model": "a100"
    }


def test_options_are_where_each_kind_has_them() -> None:
    words: dict[str, Any] = {
        "env": {"LR": "0.1"},
        "secrets": {"TOKEN": ("wandb", "key")},
        "mounts": {"corpus": "/data"},
        "priority": "ml-high",
        "deadline": 3600,
    }
    env = [
        {"name": "LR", "value": "0.1"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}},
    ]
    claim = [{"name": "storage-0", "persistentVolumeClaim": {"claimName": "corpus", "readOnly": False}}]
    mount = [{"name": "storage-0", "mountPath": "/data", "readOnly": False}]
    job = job_of(Wish(IMAGE, **words), "research", state())
    assert job["metadata"]["generateName"] == "train-"
    assert job["spec"]["activeDeadlineSeconds"] == 3600
    pod = pod_of(job)
    assert (pod["priorityClassName"], pod["volumes"]) == ("ml-high", claim)
    assert (pod["containers"][0]["env"], pod["containers"][0]["volumeMounts"]) == (env, mount)
    train = job_of(Wish(IMAGE, framework="pytorch", **words), "research", state())
    assert train["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "ml-high"
    assert train["spec"]["runtimeRef"] == {"kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    assert (train["spec"]["activeDeadlineSeconds"], train["spec"]["trainer"]["env"]) == (3600, env)
    assert patched(train)["volumes"] == claim
    (node_,) = patched(train)["containers"]
    assert (node_["name"], node_["volumeMounts"]) == ("node", mount)


def test_what_may_not_be_read_is_left_to_the_namespace() -> None:
    unread = state((HIDDEN_QUEUES, HIDDEN_NODES), ClusterQueue=[], Node=[])
    pod = pod_of(job_of(Wish(IMAGE, gpus=2), "research", unread))
    assert pod["containers"][0]["resources"]["limits"] == {GPU: "2"}
    assert pod["tolerations"] == [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    sized = pod_of(job_of(Wish(IMAGE, gpus=2, cpu="8", memory="64Gi"), "research", unread))
    assert sized["containers"][0]["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", GPU: "2"}


def test_a_job_without_gpus_gets_what_the_namespace_gives() -> None:
    pod = pod_of(job_of(Wish(IMAGE, gpus=0), "research", state()))
    assert "nodeSelector" not in pod, "the queue has nodes with GPUs only"
    (container,) = pod["containers"]
    assert (container["name"], container["image"], "resources" in container) == ("train", IMAGE, False)


def mig() -> State:
    queue = cluster_queue("research")
    line = {"name": "nvidia.com/mig-1g.10gb", "nominalQuota": "7"}
    more = {"coveredResources": [line["name"]], "flavors": [{"name": "parts", "resources": [line]}]}
    queue["spec"]["resourceGroups"].append(more)
    return state(ClusterQueue=[queue], ResourceFlavor=[flavor(), flavor("parts")])


def test_parts_of_gpus_are_requested_by_their_flavor() -> None:
    limits = {
        name: pod_of(job_of(Wish(IMAGE, flavor=name), "research", mig()))["containers"][0]["resources"]["limits"]
        for name in ("", "a100", "parts")
    }
    assert GPU in limits[""]
    assert GPU in limits["a100"]
    assert limits["parts"] == {"nvidia.com/mig-1g.10gb": "1"}


@pytest.mark.parametrize(
    ("wish", "found", "message"),
    [
        ({"flavor": "h100"}, state(), "flavor h100: queue research has no GPUs of it"),
        ({"flavor": "a100", "gpus": 0}, state(), "flavor a100: queue research has no CPUs of it"),
        ({}, state(LocalQueue=[]), "namespace research: no queue to submit to"),
        ({"memory": "16"}, state(), "memory: 16 is 16 bytes; write its unit: 16Gi"),
        ({}, state(LocalQueue=[local_queue("research", "cpus")], ClusterQueue=[
            {"metadata": meta("cpus"), "spec": {"resourceGroups": []}}]), "queue cpus has no GPUs"),
    ],
)  # fmt: skip
def test_what_the_queue_does_not_have_is_refused(wish: dict[str, Any], found: State, message: str) -> None:
    with pytest.raises(ConsoleError, match=message):
        job_of(Wish(IMAGE, **wish), "research", found)


def test_ray_job_has_a_cpu_head_and_gpu_workers() -> None:
    wish = Wish(
        IMAGE, ("python", "a b.py"), "x", gpus=4, nodes=3, framework="ray", priority="low", mounts={"home": "/h"}
    )
    job = job_of(wish, "research", state(Node=[node()]))
    assert job["spec"]["entrypoint"] == "python 'a b.py'"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "low"
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    worker = group["template"]["spec"]
    assert (group["replicas"], "tolerations" in head, "tolerations" in worker) == (3, True, True)
    limits = [pod["containers"][0]["resources"]["limits"].get(GPU) for pod in (head, worker)]
    assert limits == [None, "4"]
    paths = [[mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]] for pod in (head, worker)]
    assert paths == [["/h"], ["/dev/shm", "/h"]]  # noqa: S108 - where NCCL looks
    with pytest.raises(ConsoleError, match="--framework ray: no command"):
        job_of(Wish(IMAGE, framework="ray"), "research", state())


def test_schedule_labels_its_jobs_with_queue_and_user() -> None:
    cron = scheduled(job_of(Wish(IMAGE, name="nightly", user="anna"), "research", state()), "0 2 * * *")
    assert cron["metadata"]["labels"] == {"gpu-tenancy.dev/user": "anna"}
    assert cron["spec"]["jobTemplate"]["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "research",
        "gpu-tenancy.dev/user": "anna",
    }
    with pytest.raises(ConsoleError, match="--schedule: no name"):
        scheduled(job_of(Wish(IMAGE), "research", state()), "0 2 * * *")
    with pytest.raises(ConsoleError, match="--schedule: a CronJob creates Jobs only"):
        scheduled(job_of(Wish(IMAGE, name="x", framework="jax"), "research", state()), "0 2 * * *")


@pytest.mark.parametrize(
    ("username", "expected"),
    [
        ("rita", "rita"),
        ("anna.b@example.com", "anna.b"),
        ("system:serviceaccount:ml:ci", "ci"),
        ("arn:aws:sts::111122223333:assumed-role/Team/anna@example.com", "anna"),
        ("Ännä b", "nn--b"),
        ("x" * 80, "x" * 63),
        ("@", ""),
    ],
)
def test_a_user_is_a_label(username: str, expected: str) -> None:
    assert user_label(username) == expected


# Jobs in files with the keys of a stack: what is submitted, what is refused, and that the same text is valid there.


JOB = """\
nightly:
  image: registry.example.com/ml/train:3.0.1
  framework: pytorch
  flavor: h100
  workers: 2
  gpus: 4
  cpu: 8
  memory: 64Gi
  command: [torchrun]
  args: [train.py]
  env: {STEPS: "100", TOKEN: {secret: tracking, key: TOKEN}}
  volumes: {checkpoints: /checkpoints}
  priority: ml-high
  deadline: 90m
"""


def read(text: str, folder: Path) -> Wish:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return read_job(file, "a")


def refused(text: str, folder: Path) -> str:
    with pytest.raises((StackError, ConsoleError)) as error:
        read(text, folder)
    return str(error.value).replace(f"{folder}/", "")


def test_job_of_a_file_equals_options_and_fits_a_stack(tmp_path: Path) -> None:
    assert read(JOB, tmp_path) == Wish(
        "registry.example.com/ml/train:3.0.1", ("torchrun",), "nightly", 4, 2, "h100", "pytorch", "ml-high", 5400, "8",
        "64Gi", {"STEPS": "100"}, {"TOKEN": ("tracking", "TOKEN")}, {"checkpoints": "/checkpoints"}, args=("train.py",),
    )  # fmt: skip
    owner = team(
        gpus={"h100": {"guaranteed": 8}},
        storage={"checkpoints": {"size": "1Gi", "mode": "shared", "storageClass": "efs"}},
        training=read_yaml(tmp_path / "job.yaml", "job.yaml", instead="").data,
    )
    sections = stack(teams={"a": owner}, priorities={"ml-high": 1000}, operators={"trainer": "installed"})
    assert errors(sections) == []


def test_arguments_go_to_container_or_ray_entrypoint(tmp_path: Path) -> None:
    small = "j: {image: 'i:1', gpus: 0, command: [python], args: [train.py, --steps, '1']}"
    made: Data = job_of(read(small, tmp_path), "research", state())
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["args"]) == (["python"], ["train.py", "--steps", "1"])
    made = job_of(read(small.replace("gpus: 0", "gpus: 1, framework: ray"), tmp_path), "research", state())
    assert made["spec"]["entrypoint"] == "python train.py --steps 1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("j:\n  image: i:1\n  gpu: 1\n",
         "job.yaml:3: teams.a.training.j.gpu: unknown key 'gpu' (did you mean 'gpus'?); use one of: "),
        ("j:\n  gpus: 1\n", "job.yaml:1: teams.a.training.j.image: required key is missing; add it: "),
        ("j:\n  image: i:1\n  gang: true\n",
         "job.yaml:3: teams.a.training.j.gang: is not a key of jobs that you submit; remove it, or add the job"),
        ("j:\n  image: i:1\n  retries: 1\n  framework: jax\n",
         "job.yaml:3: teams.a.training.j.retries: is not a key of jobs that you submit with framework: jax; remove"),
        ("j:\n  image: i:1\n  framework: jobset\n",
         "job.yaml:3: teams.a.training.j.framework: jobset is not a kind of "),
        ("j:\n  image: i:1\n  framework: mpi\n  command: [mpirun]\n",
         "job.yaml:3: teams.a.training.j.framework: mpi is not a kind of jobs that you submit: a TrainJob sets"),
        ("j:\n  image: i:1\n  workers: {min: 1, max: 2}\n", "job.yaml:3: teams.a.training.j.workers: sets min and max"),
        ("j:\n  image: i:1\n  env:\n    N: {field: metadata.name}\n",
         "job.yaml:4: teams.a.training.j.env.N: is neither a text nor a key of a Secret"),
        ("j: {image: 'i:1'}\nk: {image: 'i:1'}\n", "job.yaml: has 2 jobs; write one, as NAME: KEYS"),
        ("{}", "job.yaml: has 0 jobs; write one, as NAME: KEYS"),
        ("", "job.yaml: has 0 jobs; write one, as NAME: KEYS"),
        ("- j", "job.yaml:1: teams.a.training: expected a mapping such as {NAME: …}, got a list; "),
        ("j: [", "job.yaml:1: "),
    ],
)  # fmt: skip
def test_what_cannot_be_submitted_has_its_place_rule_and_fix(text: str, problem: str, tmp_path: Path) -> None:
    assert problem in refused(text, tmp_path)


def test_jobs_of_the_stack_local_are_submitted_or_say_why_not(tmp_path: Path) -> None:
    source = read_file(Path(__file__).parents[2] / "stacks" / "Pulumi.local.yaml")
    jobs = source.sections["teams"]["ml-research"]["training"]
    submitted = {name for name in jobs if _is_submitted(name, jobs[name], tmp_path)}
    assert submitted >= {"nightly", "evaluate", "finetune", "simulate", "tune"}
    assert submitted.isdisjoint({"render", "label", "rollout", "sweep", "gang"})


def _is_submitted(name: str, job: Data, folder: Path) -> bool:
    text = json.dumps({name: job})  # JSON is YAML
    try:
        wish = read(text, folder)
    except StackError:
        return False
    return (wish.name, wish.image) == (name, job["image"])


# A job of a file that is submitted and the same section of a stack become the same object, but for what is listed.


NAME: Final = "app.kubernetes.io/name"
TTL: Final = "ttlSecondsAfterFinished"
SMALL: Final[Data] = {"image": "registry.example.com/ml/train:3.0.1", "command": ["python"], "args": ["train.py"]}
SIZED: Final[Data] = {**SMALL, "gpus": 4, "cpu": 8, "memory": "64Gi"}
DISTRIBUTED: Final[Data] = {**SIZED, "workers": 2, "volumes": {"checkpoints": "/checkpoints"}, "priority": "ml-high"}
JOBS: Final[dict[str, Data]] = {
    "a job of one GPU": {**SMALL, "cpu": 8, "memory": "64Gi"},
    "a job without GPUs": {**SMALL, "gpus": 0},
    "a job of several GPUs and pods": DISTRIBUTED,
    "a job with its own deadline and priority": {**SIZED, "deadline": "90m", "priority": "ml-high"},
    "a job with its own retries": {**SIZED, "retries": 0},
    "a job with its own shared memory and scratch space": {**SIZED, "sharedMemory": "1Gi", "scratch": "10Gi"},
    "a job that node autoscalers may move": {**SIZED, "movable": True},
    "a job with variables and a key of a Secret": {**SIZED, "env": {"STEPS": "1", "TOKEN": {"secret": "tracking",
        "key": "T"}}},
    "a job with storage and a dataset": {**SIZED, "volumes": {"checkpoints": "/checkpoints"},
        "datasets": {"corpus": "/data"}},
    "a TrainJob of PyTorch": {**DISTRIBUTED, "framework": "pytorch"},
    "a TrainJob of JAX": {**DISTRIBUTED, "framework": "jax", "deadline": "1h"},
    "a RayJob": {**DISTRIBUTED, "framework": "ray"},
    "a RayJob with its own retries": {**SIZED, "framework": "ray", "retries": 1},
}  # fmt: skip
# All differences, and why:
# app.kubernetes.io/name, also in the template: what a person submits must not answer for a Service of that name
# runtimeRef: researchers may not create a TrainingRuntime, so they name one of the cluster
# trainingRuntimeSpec.template.metadata: the digest of the runtime, by which a stack replaces its TrainJobs


def sections(job: Data, security: str = "baseline") -> Data:
    owner = team(
        gpus={"h100": {"guaranteed": 8}},
        quota=FEW_CPUS,
        storage={"checkpoints": {"size": "1Gi", "mode": "shared", "storageClass": "efs"}},
        podSecurity=security,
        training={"nightly": job},
    )
    return stack(
        teams={"a": owner},
        datasets={"corpus": {"bucket": "s3://corpus", "teams": ["a"]}},
        priorities={"ml-high": 1000},
        operators={"trainer": "installed", "kuberay": "installed"},
    )


def seen(space: NamespacePlan, labels: Any) -> State:
    """A researcher's view of that stack."""
    bounds = {"type": "Container", "defaultRequest": {"cpu": "1", "memory": "4Gi"}}
    queue = cluster_queue("a")
    (group,) = queue["spec"]["resourceGroups"]
    group["coveredResources"] += ["cpu", "memory"]
    more = [{"name": "cpu", "nominalQuota": "172"}, {"name": "memory", "nominalQuota": "1800Gi"}]
    (line,) = group["flavors"]
    line["name"] = "h100"
    line["resources"] += more
    group["flavors"].append(
        {"name": "cpu", "resources": [*more, {"name": GPU, "nominalQuota": "0", "borrowingLimit": "0"}]}
    )
    cpu: Data = {"metadata": meta("cpu"), "spec": {"nodeLabels": {}}}
    corpus = meta("corpus", "a", annotations={"gpu-tenancy.dev/bucket": "s3://corpus"})
    return state(
        ClusterQueue=[queue],
        LocalQueue=[local_queue("a")],
        ResourceFlavor=[flavor("h100", **labels), cpu],
        Node=[node(**labels)],
        LimitRange=[{"metadata": meta("containers", "a"), "spec": {"limits": [bounds]}}],
        PersistentVolumeClaim=[
            {"metadata": corpus, "spec": {"accessModes": ["ReadOnlyMany"]}},
            {"metadata": meta("checkpoints", "a"), "spec": {"accessModes": ["ReadWriteMany"]}},
        ],
        Namespace=[{"metadata": meta("a", labels=space.labels)}],
    )


def both(job: Data, folder: Path, security: str = "baseline") -> tuple[Data, Data]:
    """The stack's object, and the file's."""
    (made,) = planned(sections(job, security)).teams
    (declared,) = made.jobs
    file = folder / "job.yaml"
    file.write_text(json.dumps({"nightly": job}), encoding="utf-8")
    labels = next(role.pod.node_labels for role in declared.roles if role.pod.gpus or len(declared.roles) == 1)
    gpu_labels = labels if any(role.pod.gpus for role in declared.roles) else {"model": "h100"}
    terms = Terms(made.namespace.labels["pod-security.kubernetes.io/enforce"] == "restricted", "workload")
    return job_manifest(declared), job_of(read_job(file, "a"), "a", seen(made.namespace, gpu_labels), terms)


def without_differences(value: Any) -> Any:
    if isinstance(value, list):
        return [without_differences(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    named = cast("dict[str, Any]", value).items()
    fields = {key: without_differences(item) for key, item in named if key not in {NAME, TTL, "runtimeRef"}}
    if "metadata" in fields and "gpu-tenancy.dev/runtime" in fields["metadata"].get("annotations", {}):
        del fields["metadata"]
    return {key: item for key, item in fields.items() if item != {} or key in {"rayStartParams", "emptyDir"}}


@pytest.mark.parametrize("security", ["baseline", "restricted"])
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_file_and_a_stack_make_the_same_object(job: Data, security: str, tmp_path: Path) -> None:
    declared, submitted = both(job, tmp_path, security)
    assert without_differences(submitted) == without_differences(declared)
    assert security == "baseline" or '"runAsNonRoot": true' in json.dumps(submitted)


def test_what_differs_is_listed(tmp_path: Path) -> None:
    declared, submitted = both(JOBS["a TrainJob of PyTorch"], tmp_path)
    assert declared["spec"]["runtimeRef"] != submitted["spec"]["runtimeRef"]
    assert NAME in declared["metadata"]["labels"]
    assert NAME not in json.dumps(submitted)
    assert "gpu-tenancy.dev/runtime" not in json.dumps(submitted)
    declared, submitted = both(JOBS["a job of several GPUs and pods"], tmp_path)
    assert (declared["spec"].get(TTL), submitted["spec"][TTL]) == (None, 86_400)
    assert GPU in json.dumps(submitted)


# What a namespace asks of pods and gives them, as a researcher may read it.


LEVEL: Final = "pod-security.kubernetes.io/enforce"
FACTS: Final = "guards.gpu-tenancy.dev/"
TERMS_ROOT: Final = 'pods "train-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'


class Api:
    """An API server that has an account, and refuses pods with a message."""

    def __init__(self, *, account: bool = True, readable: bool = True, refusal: str = "") -> None:
        self.account, self.readable, self.refusal, self.asked = account, readable, refusal, list[Data]()

    def exists(self, *_: str) -> bool:
        if not self.readable:
            raise ApiError(FORBIDDEN, "Forbidden", "you may not")
        return self.account

    def create(self, manifest: Data, *, dry_run: bool) -> Data:
        assert dry_run
        self.asked.append(manifest)
        if self.refusal:
            raise ApiError(FORBIDDEN, "Forbidden", self.refusal)
        return manifest


def terms(api: Api, *spaces: Data) -> Terms:
    hidden = () if spaces else (Missing("Namespace", "namespaces", "you may not list namespaces", "an admin"),)
    return read_terms(cast("Cluster", api), "research", state(hidden, Namespace=[*spaces]), "i:1")


def space(level: str, **facts: str) -> Data:
    return {"metadata": meta("research", labels={LEVEL: level}, annotations={FACTS + k: v for k, v in facts.items()})}


CASES: Final[dict[str, tuple[Api, tuple[Data, ...], Terms]]] = {
    "a readable namespace that rejects root": (Api(), (space("restricted"), ), Terms(restricted=True,
        account="workload")),
    "a readable namespace that admits root": (Api(), (space("baseline"), ), Terms(account="workload")),
    "facts of the guards": (Api(), (space("baseline", **{"default-priority": "low", "default-deadline": "60"}), ),
        Terms(account="workload", priority="low", deadline=60)),
    "a hidden namespace that rejects root": (Api(refusal=TERMS_ROOT), (), Terms(restricted=True, account="workload")),
    "a hidden namespace that admits root": (Api(), (), Terms(account="workload")),
    "a hidden namespace with another refusal": (Api(refusal="exceeded quota"), (), Terms(account="workload")),
    "a namespace without the account of a stack": (Api(account=False), (space("baseline"), ), Terms()),
    "accounts that may not be read": (Api(readable=False), (space("baseline"), ), Terms()),
}  # fmt: skip


@pytest.mark.parametrize(("api", "spaces", "expected"), CASES.values(), ids=CASES)
def test_terms_come_from_namespace_or_api_server(api: Any, spaces: tuple[Data, ...], expected: Terms) -> None:
    assert terms(api, *spaces) == expected
    assert len(api.asked) == (0 if spaces else 1)


# The claims that a researcher sees: made by the stack, as the API server has them.


SECTIONS: Data = stack(
    pools={"h100": pool()},
    teams={"a": team(gpus={"h100": {"guaranteed": 8}}, storage={"scratch": {"size": "1Ti"}})},
    datasets={"corpus": {"bucket": "s3://corpora/v2"}, "models": {"bucket": "s3://models", "writable": True}},
)


def _claims() -> list[Any]:
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="s", config=to_config(Source(SECTIONS))))
    return [dict(item.manifest) for item in made if item.kind == "PersistentVolumeClaim"]


def _pod(name: str, claim: str, phase: str = "Running") -> Any:
    volumes: Any = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}, {"name": "w", "emptyDir": {}}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"volumes": volumes}, "status": {"phase": phase}}


def test_claims_show_buckets_and_access() -> None:
    found = _claims()
    scratch = next(one for one in found if one["metadata"]["name"] == "scratch")
    scratch["status"] = {"phase": "Bound", "capacity": {"storage": "2Ti"}}
    rows = claims(found, [_pod("train", "corpus"), _pod("eval", "corpus"), _pod("done", "scratch", "Succeeded")])
    assert [(row.name, row.bucket, row.access, row.state, row.pods) for row in rows] == [
        ("corpus", "s3://corpora/v2", "read", "", ("train", "eval")),
        ("models", "s3://models", "read and write", "", ()),
        ("scratch", "", "one node", "Bound", ()),
    ]
    screen = Screen.of(80, shown_claims(rows))
    assert screen.too_long == []
    assert [line.split() for line in screen.lines[1:4]] == [
        ["corpus", "s3://corpora/v2", "read", "2"],
        ["models", "s3://models", "read", "and", "write"],
        ["scratch", "one", "node", "2Ti", "Bound"],
    ]
    assert data(rows)[2]["size"] == "2Ti"


def test_a_team_without_claims_is_told_so() -> None:
    assert Screen.of(80, shown_claims(claims([], []))).lines[0] == "no claims"
