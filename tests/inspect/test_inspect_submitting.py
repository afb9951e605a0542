"""The object of a job that a person describes in a few words: what is filled in, from where, and what is refused."""

from typing import Any

import pytest
from live_builders import GPU, HIDDEN_QUEUES, Data, cluster_queue, flavor, local_queue, meta, node, state

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.demand import demand
from gpu_tenancy.cluster.reading import Missing, State
from gpu_tenancy.explain.fit import judge
from gpu_tenancy.jobs.submitting import Wish, job_of, scheduled, user_label
from gpu_tenancy.model.names import Runtime

IMAGE = "registry.example.com/ml/train:3.0.1"
HIDDEN_NODES = Missing("Node", "free capacity of nodes", "you may not list nodes", "an admin")


def pod_of(job: Data) -> Data:
    return job["spec"]["template"]["spec"]


def patched(job: Data) -> Data:
    (patch,) = job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]["template"]["spec"]


def test_a_job_gets_queue_tolerations_and_its_gpus_share_of_the_smallest_node() -> None:
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


def test_a_pod_gets_no_more_than_its_gpus_share_of_the_limit_and_what_the_namespace_admits() -> None:
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
    assert sizes == {
        2: {"cpu": "21", "memory": "160Gi", GPU: "2"},
        4: {"cpu": "12", "memory": "320Gi", GPU: "4"},
    }


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


def test_variables_secrets_mounts_priority_and_deadline_are_where_each_kind_has_them() -> None:
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
        ({}, state(LocalQueue=[local_queue("research", "cpus")], ClusterQueue=[
            {"metadata": meta("cpus"), "spec": {"resourceGroups": []}}]), "queue cpus has no GPUs"),
    ],
)  # fmt: skip
def test_what_the_queue_does_not_have_is_refused(wish: dict[str, Any], found: State, message: str) -> None:
    with pytest.raises(ConsoleError, match=message):
        job_of(Wish(IMAGE, **wish), "research", found)


def test_a_ray_job_has_a_head_without_gpus_and_a_worker_for_each_node() -> None:
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


def test_a_schedule_has_the_queue_on_its_jobs_and_the_user_on_both() -> None:
    job = job_of(Wish(IMAGE, name="nightly", user="anna"), "research", state())
    cron = scheduled(job, "0 2 * * *")
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
