"""The objects of each kind of job: roles, retries, deadlines, and what a preemption costs."""

from typing import Any, cast

import pytest
from builders import Data, job, pool, stack, team
from components_builders import tenancy

LONGEST = "kueue.x-k8s.io/max-exec-time-seconds"
KINDS = {
    "pytorch": ("TrainingRuntime", "job-j"),
    "jax": ("TrainingRuntime", "job-j"),
    "mpi": ("TrainingRuntime", "job-j"),
    "deepspeed": ("TrainingRuntime", "job-j"),
    "jobset": ("JobSet", "j"),
}
"""The object of each framework that has its pods' JobSet."""


def kind_of(framework: str) -> str:
    """The kind of the object that has a job's pods."""
    kinds = {"job": "Job", "jobset": "JobSet", "ray": "RayJob", "leader-worker": "LeaderWorkerSet"}
    return kinds.get(framework, "TrainJob")


def sections(**fields: Any) -> Data:
    gpus = {"h100": {"guaranteed": 8, "limit": 32}}
    return stack(pools={"h100": pool(nodes=4)}, teams={"a": team(gpus=gpus, training={"j": job(**fields)})})


def spec(kind: str, name: str, **fields: Any) -> Any:
    return tenancy(sections(**fields)).spec(kind, name)


def set_of(framework: str, **fields: Any) -> Any:
    """The spec of the JobSet that a job becomes: its own, or that of its runtime."""
    kind, name = KINDS[framework]
    found = spec(kind, name, framework=framework, **fields)
    return found if kind == "JobSet" else found["template"]["spec"]


@pytest.mark.parametrize("framework", KINDS)
def test_an_eviction_restarts_all_pods_and_uses_up_no_retry(framework: str) -> None:
    found = set_of(framework, retries=2)
    assert found["failurePolicy"]["maxRestarts"] == 2
    evicted = found["failurePolicy"]["rules"][0]
    assert (evicted["action"], evicted["onJobFailureReasons"]) == (
        "RestartJobSetAndIgnoreMaxRestarts",
        ["PodFailurePolicy"],
    )
    for replicated in found["replicatedJobs"]:
        one = replicated["template"]["spec"]
        assert one["backoffLimit"] == 0
        assert one["template"]["spec"]["restartPolicy"] == "Never", "the API server accepts the policy for no other"
        (rule,) = one["podFailurePolicy"]["rules"]
        assert (rule["action"], rule["onPodConditions"][0]["type"]) == ("FailJob", "DisruptionTarget")


def empty(value: Any) -> list[str]:
    """The keys of empty lists and objects anywhere in a spec."""
    if isinstance(value, list):
        return [key for item in cast("list[Any]", value) for key in empty(item)]
    if not isinstance(value, dict):
        return []
    items = cast("dict[str, Any]", value).items()
    return [key for key, inner in items if inner in ([], {})] + [key for _, inner in items for key in empty(inner)]


@pytest.mark.parametrize("framework", ["job", *KINDS, "ray", "leader-worker"])
def test_a_job_without_gpus_has_no_empty_fields(framework: str) -> None:
    """Kueue removes them from a job that it starts, and `up` would take them for changed outside the stack."""
    plain = {"cpu": pool("m7i.8xlarge", nodes=2)}
    own = job(framework=framework, flavor="cpu", gpus=0, cpu=1, memory="1Gi", workers=2, command=["/train"])
    sections = stack(pools=plain, teams={"a": team(training={"j": own})})
    assert [key for key in empty(tenancy(sections).spec(kind_of(framework), "j")) if key != "rayStartParams"] == []


def test_an_evicted_pod_of_a_job_is_no_retry() -> None:
    (rule,) = spec("Job", "j")["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_a_job_set_ends_at_its_deadline_and_is_not_restarted() -> None:
    found = set_of("jobset", deadline="1h", roles={"driver": {}, "worker": {"pods": 2}})
    ends = [one["template"]["spec"]["activeDeadlineSeconds"] for one in found["replicatedJobs"]]
    assert ends == [3600, 3600]
    assert {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]} in found[
        "failurePolicy"
    ]["rules"]


@pytest.mark.parametrize("framework", ["job", *KINDS, "ray"])
def test_kueue_ends_what_runs_longer_than_its_deadline_over_all_admissions(framework: str) -> None:
    kind = kind_of(framework)
    fields = {"framework": framework, "command": ["/train"]}
    found = cast("Any", tenancy(sections(**fields, deadline="1h")).only(kind).manifest)
    assert found["metadata"]["labels"][LONGEST] == "3660"
    of_team = sections(**fields)
    of_team["teams"]["a"]["deadline"] = "2h"
    assert cast("Any", tenancy(of_team).only(kind).manifest)["metadata"]["labels"][LONGEST] == "7260"
    endless = cast("Any", tenancy(sections(**fields)).only(kind).manifest)
    assert LONGEST not in endless["metadata"]["labels"]


def test_a_job_set_is_complete_when_the_roles_are_that_it_names() -> None:
    roles = {"server": {}, "worker": {"pods": 2}}
    assert set_of("jobset", roles=roles, successRoles=["worker"])["successPolicy"] == {
        "operator": "All",
        "targetReplicatedJobs": ["worker"],
    }
    assert "successPolicy" not in set_of("jobset", roles=roles)


@pytest.mark.parametrize(("gpus", "nodes"), [(0, 3), (4, 4)])
def test_a_launcher_with_gpus_is_one_of_the_nodes(gpus: int, nodes: int) -> None:
    fields = {"framework": "mpi", "gpus": 4, "roles": {"launcher": {"gpus": gpus}, "worker": {"pods": 3}}}
    assert spec("TrainJob", "j", **fields)["trainer"] == {"numNodes": nodes}
    mpi = spec("TrainingRuntime", "job-j", **fields)["mlPolicy"]["mpi"]
    assert (mpi["numProcPerNode"], mpi["runLauncherAsNode"]) == (4, gpus > 0)


def test_a_launcher_starts_when_its_workers_listen_and_its_end_is_that_of_the_job() -> None:
    found = set_of("mpi", gpus=4, workers=2, command=["mpirun", "/train"])
    worker, launcher = found["replicatedJobs"]
    assert launcher["dependsOn"] == [{"name": "node", "status": "Ready"}]
    assert found["successPolicy"]["targetReplicatedJobs"] == ["launcher"]
    (of_worker,) = worker["template"]["spec"]["template"]["spec"]["containers"]
    (of_launcher,) = launcher["template"]["spec"]["template"]["spec"]["containers"]
    assert of_worker["readinessProbe"]["tcpSocket"]["port"] == 2222
    assert (of_worker["command"][0], of_launcher["command"]) == ("/usr/sbin/sshd", ["mpirun", "/train"])
    assert {one["securityContext"]["runAsUser"] for one in (of_worker, of_launcher)} == {1000}


def test_a_change_of_a_runtime_replaces_its_train_job() -> None:
    """Webhooks reject changes of a TrainJob, and a running one does not read its runtime again."""
    first = spec("TrainJob", "j", framework="mpi", command=["mpirun", "/one"])
    other = spec("TrainJob", "j", framework="mpi", command=["mpirun", "/other"])
    assert first["runtimePatches"] != other["runtimePatches"]
    assert first == spec("TrainJob", "j", framework="mpi", command=["mpirun", "/one"])


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_change_of_a_variable_of_one_role_replaces_the_train_job(role: str) -> None:
    fields = {"framework": "mpi", "command": ["mpirun", "/one"]}
    first, other = (spec("TrainJob", "j", **fields, roles={role: {"env": {"TOKEN": token}}}) for token in ("a", "b"))
    assert first["runtimePatches"] != other["runtimePatches"]


def test_an_elastic_job_has_as_many_completions_as_kueue_admits_pods() -> None:
    found = cast("Any", tenancy(sections(workers={"min": 1, "max": 4})).only("Job").manifest)
    annotations = found["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/job-min-parallelism"] == "1"
    assert annotations["kueue.x-k8s.io/job-completions-equal-parallelism"] == "true"
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (4, 4)


def test_jax_finds_its_coordinator_by_trainers_policy() -> None:
    assert spec("TrainingRuntime", "job-j", framework="jax")["mlPolicy"] == {"numNodes": 1, "jax": {}}


@pytest.mark.parametrize("framework", KINDS)
def test_pods_of_a_rack_say_so_in_the_template_that_kueue_reads(framework: str) -> None:
    of_team = team(
        gpus={"h100": {"guaranteed": 8, "limit": 32}},
        training={"j": job(framework=framework, gpus=4, workers=2, together="rack")},
    )
    pools = {"h100": pool(nodes=4, topology={"rack": "example.com/rack"})}
    objects = tenancy(stack(pools=pools, teams={"a": of_team}))
    if framework in {"pytorch", "jax"}:  # the node's template of the runtime is patched
        (patch,) = objects.spec("TrainJob", "j")["runtimePatches"]
        found = patch["trainingRuntimeSpec"]["template"]["spec"]
    else:
        found = objects.spec(*KINDS[framework])
        found = found if framework == "jobset" else found["template"]["spec"]
    templates = {one["name"]: one["template"]["spec"]["template"] for one in found["replicatedJobs"]}
    annotations = templates.pop("worker" if framework == "jobset" else "node")["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-required-topology"] == "example.com/rack"
    for launcher in templates.values():
        assert launcher["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"


def ray(**fields: Any) -> Any:
    return spec("RayJob", "j", **{"framework": "ray", "gpus": 4, "command": ["python", "/tune.py", "a b"]} | fields)


def test_kuberay_itself_submits_a_ray_job_so_that_no_pod_or_container_does() -> None:
    found = ray(workers=2)
    assert (found["submissionMode"], found["entrypoint"]) == ("HTTPMode", "python /tune.py 'a b'")
    assert "command" not in found["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]


def test_a_ray_cluster_ends_with_its_job() -> None:
    """Kueue refuses a RayJob otherwise; with a time to live, its pods would outlive their quota."""
    found = ray(retries=2, deadline="1h")
    assert found["shutdownAfterJobFinishes"] is True
    assert (found["backoffLimit"], found["activeDeadlineSeconds"]) == (2, 3600)
    assert found.keys().isdisjoint({"ttlSecondsAfterFinished", "suspend", "clusterSelector", "submitterPodTemplate"})


def test_ray_runs_tasks_where_the_gpus_are() -> None:
    cluster = ray(roles={"worker": {"pods": 2}, "env": {"gpus": 0}})["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    groups = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert {name: group["rayStartParams"]["num-gpus"] for name, group in groups.items()} == {"worker": "4", "env": "0"}
    worker = groups["worker"]
    assert worker["replicas"] == worker["minReplicas"] == worker["maxReplicas"] == 2
    computing = ray(roles={"head": {"gpus": 4}})["rayClusterSpec"]["headGroupSpec"]
    assert computing["rayStartParams"] == {"num-gpus": "4"}


def test_kuberay_reaches_only_the_dashboards_of_heads() -> None:
    objects = tenancy(sections(framework="ray", command=["/run"]))
    policy = objects.spec("NetworkPolicy", "allow-ray-dashboard")
    assert policy["podSelector"] == {"matchLabels": {"ray.io/node-type": "head"}}
    (rule,) = policy["ingress"]
    namespace = rule["from"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    assert (namespace, rule["ports"]) == ("kuberay-system", [{"port": 8265, "protocol": "TCP"}])
    assert "allow-ray-dashboard" not in {item.name for item in tenancy(sections()).every("NetworkPolicy")}


def test_a_group_is_a_leader_and_workers_that_restart_together() -> None:
    found = spec(
        "LeaderWorkerSet", "j", framework="leader-worker", gpus=4, workers=3, groups=2, roles={"leader": {"cpu": 9}}
    )
    group = found["leaderWorkerTemplate"]
    assert (found["replicas"], group["size"], group["restartPolicy"]) == (2, 4, "RecreateGroupOnPodRestart")
    leader, worker = (
        group[key]["spec"]["containers"][0]["resources"]["limits"] for key in ("leaderTemplate", "workerTemplate")
    )
    assert leader["cpu"] == "9"
    assert leader["nvidia.com/gpu"] == worker["nvidia.com/gpu"] == "4"
    assert worker["cpu"] != "9"


@pytest.mark.parametrize("framework", ["ray", "leader-worker"])
def test_kueue_reads_where_the_pods_of_a_cluster_or_group_run(framework: str) -> None:
    of_team = team(
        gpus={"h100": {"guaranteed": 8, "limit": 32}},
        training={"j": job(framework=framework, gpus=4, workers=2, together="rack", command=["/run"])},
    )
    objects = tenancy(stack(pools={"h100": pool(nodes=4, topology={"rack": "example.com/rack"})}, teams={"a": of_team}))
    if framework == "ray":
        cluster = objects.spec("RayJob", "j")["rayClusterSpec"]
        first, other = cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]
        assert first["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
    else:
        group = objects.spec("LeaderWorkerSet", "j")["leaderWorkerTemplate"]
        first, other = group["leaderTemplate"], group["workerTemplate"]
        both = [one["metadata"]["annotations"]["kueue.x-k8s.io/podset-group-name"] for one in (first, other)]
        assert both[0] == both[1]
    assert other["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] == "example.com/rack"
