"""Jobs and servers: retries, deadlines, shared memory, restarts, scaling and evictions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast, get_args

import pytest
from builders import Data, environment_of, job, pool, server, stack, team
from components_builders import Program, pod_specs, tenancy
from rendered_stacks import stack_of_repository
from repository import ROOT

from components.serving import REPLACED
from gpu_tenancy.base.json import Json, at, map_at, maps_at
from gpu_tenancy.engine.details import details
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects, waves
from gpu_tenancy.model.catalogue.updates import forces_new
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.plan.signals import adapter_rules
from gpu_tenancy.model.spec.roles import Framework

LONGEST = "kueue.x-k8s.io/max-exec-time-seconds"
# The object of each framework that has its pods' JobSet.
TRAIN_JOBS = ("pytorch", "jax", "mpi", "deepspeed")
KINDS = {**{name: ("TrainingRuntime", f"job-{name}") for name in TRAIN_JOBS}, "jobset": ("JobSet", "jobset")}
FRAMEWORKS = ("job", *KINDS, "ray", "leader-worker")
GPUS: Final[Data] = {"h100": {"guaranteed": 8, "limit": 32}}


def object_kind(framework: str) -> str:
    kinds = {"job": "Job", "jobset": "JobSet", "ray": "RayJob", "leader-worker": "LeaderWorkerSet"}
    return kinds.get(framework, "TrainJob")


def sections(**fields: Any) -> Data:
    return stack(pools={"h100": pool(nodes=4)}, teams={"a": team(gpus=GPUS, training={"j": job(**fields)})})


def spec(kind: str, name: str, **fields: Any) -> Any:
    return tenancy(sections(**fields)).spec(kind, name)


def empty(value: Any) -> list[str]:
    """The keys of empty lists and objects anywhere in a spec."""
    if isinstance(value, list):
        return [key for item in cast("list[Any]", value) for key in empty(item)]
    if not isinstance(value, dict):
        return []
    items = cast("dict[str, Any]", value).items()
    return [key for key, inner in items if inner in ([], {})] + [key for _, inner in items for key in empty(inner)]


def each_framework(**fields: Any) -> Data:
    """A job of each framework, under its name; a stack with all of them is rendered once."""
    return {name: job(framework=name, command=["/train"], **fields) for name in FRAMEWORKS}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_job_without_gpus_has_no_empty_fields(framework: str) -> None:
    """Kueue removes them from a job that it starts, and `up` would see a change outside the stack."""
    jobs = each_framework(flavor="cpu", gpus=0, cpu=1, memory="1Gi", workers=2)
    made = tenancy(stack(pools={"cpu": pool("m7i.8xlarge", nodes=2)}, teams={"a": team(training=jobs)}))
    found = made.spec(object_kind(framework), framework)
    assert [key for key in empty(found) if key != "rayStartParams"] == []


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "leader-worker"])
def test_kueue_ends_jobs_after_their_deadline(framework: str) -> None:
    jobs = {name: one for name, one in each_framework().items() if name != "leader-worker"}
    teams = {
        "own": team(gpus=GPUS, training={name: {**one, "deadline": "1h"} for name, one in jobs.items()}),
        "of-team": team(gpus=GPUS, training=jobs, deadline="2h"),
        "endless": team(gpus=GPUS, training=jobs),
    }
    made = tenancy(stack(pools={"h100": pool(nodes=4)}, teams=teams))
    found: list[Any] = [made.only(object_kind(framework), framework, of_team).manifest for of_team in teams]
    assert [one["metadata"]["labels"].get(LONGEST) for one in found] == ["3660", "7260", None]


def test_a_change_of_a_runtime_replaces_its_train_job() -> None:
    """Webhooks reject changes of a TrainJob, and a running one does not read its runtime again."""
    first = spec("TrainJob", "j", framework="mpi", command=["mpirun", "/one"])
    other = spec("TrainJob", "j", framework="mpi", command=["mpirun", "/other"])
    assert first["runtimePatches"] != other["runtimePatches"]
    assert first == spec("TrainJob", "j", framework="mpi", command=["mpirun", "/one"])


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_variable_of_one_role_replaces_the_train_job(role: str) -> None:
    fields = {"framework": "mpi", "command": ["mpirun", "/one"]}
    first, other = (spec("TrainJob", "j", **fields, roles={role: {"env": {"TOKEN": token}}}) for token in ("a", "b"))
    assert first["runtimePatches"] != other["runtimePatches"]


@pytest.mark.parametrize("framework", KINDS)
def test_pods_of_a_rack_are_annotated_in_the_pod_template(framework: str) -> None:
    jobs = {name: job(framework=name, gpus=4, workers=2, together="rack") for name in KINDS}
    pools = {"h100": pool(nodes=4, topology={"rack": "example.com/rack"})}
    objects = tenancy(stack(pools=pools, teams={"a": team(gpus=GPUS, training=jobs)}))
    if framework in {"pytorch", "jax"}:  # the node's template of the runtime is patched
        (patch,) = objects.spec("TrainJob", framework)["runtimePatches"]
        found = patch["trainingRuntimeSpec"]["template"]["spec"]
    else:
        found = objects.spec(*KINDS[framework])
        found = found if framework == "jobset" else found["template"]["spec"]
    templates = {one["name"]: one["template"]["spec"]["template"] for one in found["replicatedJobs"]}
    annotations = templates.pop("worker" if framework == "jobset" else "node")["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-required-topology"] == "example.com/rack"
    for launcher in templates.values():
        assert launcher["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"


# The object with the pods of each framework's workers, and their place in it.


# Servers: what replaces them, what scales them, and what a stack with a histogram has beside others


LEADER_WORKER_SET: Final = "kubernetes:leaderworkerset.x-k8s.io/v1:LeaderWorkerSet"
WORKER: Final = "spec.leaderWorkerTemplate.workerTemplate.spec"
HISTOGRAM: Final = "inference_latency_seconds"
SERVED: Final[Data] = {"latencyP99": "inference_latency_p99_seconds"}
KEDA: Final[Data] = {"histogram": HISTOGRAM}
ADAPTER: Final[Data] = {"histogram": HISTOGRAM, "by": "adapter"}


@pytest.mark.parametrize(
    ("path", "replaces"),
    [
        ("spec.leaderWorkerTemplate.size", True),
        (f"{WORKER}.containers.0.resources.limits.cpu", True),
        (f"{WORKER}.nodeSelector", True),
        ("spec.leaderWorkerTemplate.leaderTemplate.spec.containers.0.ports", True),
        (f"{WORKER}.containers.0.image", False),
        (f"{WORKER}.containers.0.command", False),
        ("spec.replicas", False),
    ],
)
def test_changes_that_kueue_counts_replace_a_group(path: str, *, replaces: bool) -> None:
    chat = server(nodes=3, gpus=8, replicas={"min": 1, "max": 2}, command=["serve"])
    owner = team(gpus={"h100": {"guaranteed": 72}}, serving={"chat": chat})
    program = tenancy(stack(pools={"h100": pool(nodes=9)}, teams={"a": owner}))
    (made,) = (one for one in program.rendered.registrations if one.type == LEADER_WORKER_SET)
    assert made.replace_on_changes == REPLACED
    assert forces_new(LEADER_WORKER_SET, path, made.replace_on_changes, {}) is replaces


def sections_server(metrics: Data) -> Data:
    """A server that scales on CPU and latency, and one that scales on CPU alone."""
    scaled = server(replicas={"min": 3, "max": 8}, scaleOn={"cpu": 70, "latencyP99": "100ms"})
    serving = {"s": scaled, "cpu": server(replicas={"min": 1, "max": 2})}
    return stack(metrics=metrics, teams={"a": team(gpus={"h100": {"guaranteed": 16}}, serving=serving)})


def made(metrics: Data) -> Program:
    return tenancy(sections_server(metrics))


def autoscaler(metrics: Data) -> Any:
    return made(metrics).only("HorizontalPodAutoscaler", "s").manifest


def test_keda_behaves_as_an_autoscaler_does() -> None:
    config = made(KEDA).spec("ScaledObject")["advanced"]["horizontalPodAutoscalerConfig"]
    assert config == {"name": "s", "behavior": autoscaler(SERVED)["spec"]["behavior"]}


def test_the_adapter_serves_the_metric_of_the_autoscaler() -> None:
    assert autoscaler(ADAPTER) == autoscaler(SERVED)
    (rule,) = cast("list[Any]", adapter_rules(environment_of(sections_server(ADAPTER))))
    names = [each["pods"]["metric"]["name"] for each in autoscaler(ADAPTER)["spec"]["metrics"] if "pods" in each]
    assert names == [rule["name"]["as"]]


def test_a_histogram_adds_a_monitor_and_changes_no_object() -> None:
    before, after = (
        {(one.kind, one.namespace, one.name): one.manifest for one in made(metrics).objects}
        for metrics in (SERVED, ADAPTER)
    )
    assert after.keys() - before.keys() == {("ServiceMonitor", "a", "s"), ("NetworkPolicy", "a", "allow-metrics-s")}
    assert {key: after[key] for key in before} == before


def test_the_preview_shows_bounds_triggers_and_monitors() -> None:
    assert details(made(KEDA).only("ScaledObject").manifest) == "s 3 → 8 on cpu, prometheus"
    assert details(made(KEDA).only("ServiceMonitor").manifest) == "http/metrics"
    for kind, api in (("ScaledObject", "keda.sh/v1alpha1"), ("ServiceMonitor", "monitoring.coreos.com/v1")):
        assert details({"apiVersion": api, "kind": kind, "spec": "[unknown]"}) == ""


def test_server_and_burst_run_the_same_container() -> None:
    pools = {"l4": pool("g6.12xlarge", 4), "spot": pool("g6.12xlarge", {"min": 0, "max": 4}, capacity="spot")}
    pools["l4"]["labels"], pools["spot"]["labels"] = {"capacity": "reserved"}, {"capacity": "spot"}
    chat = server(flavor="l4", replicas=10, burst={"flavor": "spot", "max": 8})
    gpus = {"l4": {"guaranteed": 12}, "spot": {"guaranteed": 0, "limit": 8}}
    cpus = {"cpu": pool("m7i.8xlarge", 3)}
    program = tenancy(stack(pools=cpus | pools, teams={"a": team(gpus=gpus, serving={"chat": chat})}))
    (base,), (burst,) = (pod_specs(program.only("Deployment", name)) for name in ("chat", "chat-burst"))
    assert base["containers"] == burst["containers"]


def test_caches_come_before_their_users_and_request_their_limits() -> None:
    accelerate = {"cache": "100Gi", "flavor": "h100", "secret": "keys"}
    datasets = {"corpus": {"bucket": "s3://ml-corpus/v3", "accelerate": accelerate}}
    jobs = {"w": job(flavor="h100", datasets={"corpus": "/data/corpus"})}
    program = tenancy(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training=jobs)}, datasets=datasets))
    spec = program.spec("AlluxioRuntime")
    for part in ("master", "jobMaster", "worker", "jobWorker", "fuse"):
        assert spec[part]["resources"]["requests"] == spec[part]["resources"]["limits"]
        assert any(option.startswith("-Xmx") for option in spec[part]["jvmOptions"])
    order = [f"{one.kind} {one.namespace}" for wave in waves(program.objects) for one in wave]
    places = [order.index(name) for name in ("Dataset dataset-caches", "AlluxioRuntime dataset-caches", "Dataset a")]
    assert places == sorted(places)


# Running work stays: pods of jobs, and of servers with one replica, are not evicted by node autoscalers


STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
STACKS = sorted(file.name.split(".")[1] for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))
SERVES = "livenessProbe"  # only containers of servers have it


def templates(made: KubernetesObject) -> Iterator[Mapping[str, Json]]:
    """The pod templates of a workload; a TrainJob has patches of its runtime's."""
    kind = kind_of(made.manifest)
    if kind is None:
        return
    own: list[Mapping[str, Json]] = [pods.template for pods in kind.pod_sets(made.manifest) if "spec" in pods.template]
    for patch in maps_at(made.manifest, "spec", "runtimePatches"):
        jobs = maps_at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        own += [map_at(one, "template", "spec", "template") for one in jobs]
    yield from own


def stays(template: Mapping[str, Json]) -> bool:
    return STAYS.items() <= map_at(template, "metadata", "annotations").items()


@pytest.mark.parametrize("name", STACKS)
def test_jobs_of_a_stack_stay_and_replicas_of_servers_may_move(name: str) -> None:
    wrong: list[str] = []
    objects = kubernetes_objects(stack_of_repository(name).rendered)
    teams = {made.namespace for made in objects if made.kind == "LocalQueue"}
    for made in objects:
        # Runtimes of a priority class are for TrainJobs of users, whose JobSet is completed.
        of_class = made.kind == "TrainingRuntime" and not made.name.startswith("job-")
        for template in templates(made) if made.namespace in teams and not of_class else ():
            of_runtime = made.kind == "TrainingRuntime" and not at(template, "metadata", "annotations")
            moves = SERVES in str(template)
            if stays(template) == moves and not of_runtime:
                wrong.append(f"{made.kind}/{made.name}")
    assert wrong == []


def built(name: str, **fields: Any) -> set[bool]:
    """Whether the pods of a workload stay."""
    gpus = {"h100": {"guaranteed": 8, "limit": 16}}
    program = tenancy(stack(teams={"a": team(gpus=gpus, gangs={"h100": {"limit": 8}}, **fields)}))
    own = [made for made in program.objects if made.name in {name, f"job-{name}"}]
    found = {made.kind: {stays(one) for one in templates(made)} for made in own}
    return found.get("TrainJob") or found.get("TrainingRuntime") or {one for kind in found.values() for one in kind}


@pytest.mark.parametrize("framework", get_args(Framework))
def test_a_job_stays_unless_its_owner_lets_it_move(framework: str) -> None:
    plain = {name: job(framework=name, flavor="h100", command=["python", "/train.py"]) for name in get_args(Framework)}
    jobs = plain | {f"{name}-moves": {**one, "movable": True} for name, one in plain.items()}
    assert (built(framework, training=jobs), built(f"{framework}-moves", training=jobs)) == ({True}, {False})


def test_a_gang_stays() -> None:
    gang = job(scheduler="volcano", flavor="h100", tasks={"master": 1, "worker": 1})
    assert built("j", training={"j": gang}) == {True}


SERVERS: Final[dict[str, tuple[Data, bool]]] = {  # fields of a server, and whether its pods stay
    "one": ({"replicas": 1}, True),
    "one-movable": ({"replicas": 1, "movable": True}, False),
    "two": ({"replicas": 2}, False),
    "one-or-two": ({"replicas": {"min": 1, "max": 2}}, False),
    "two-not-movable": ({"replicas": 2, "movable": False}, True),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_stays_if_no_other_replica_answers_meanwhile(name: str) -> None:
    servers = {server: job(flavor="h100") | fields for server, (fields, _) in SERVERS.items()}
    assert built(name, serving=servers) == {SERVERS[name][1]}
