"""Serving objects, training objects and teams without GPUs, as Kubernetes' API server handles them."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, cast

import pytest
from acceptance_builders import (
    Manifest,
    Server,
    admitted,
    an_account,
    declared,
    flat,
    in_waves,
    moved,
    only,
    refusal,
    refused_soon,
    sections_of,
)
from builders import Data, job, pool, server, stack, team
from removing import remove

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.embedded.drivers import STORAGE, bring_volumes
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks.placement import NAMESPACE, check_placement
from gpu_tenancy.local.settling import settle
from gpu_tenancy.local.summary import summarise
from gpu_tenancy.model.catalogue.operators import Probe, charts
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import ClaimPlan
from gpu_tenancy.model.source import Source

MADE = {"HorizontalPodAutoscaler", "NetworkPolicy", "ScaledObject", "Service", "ServiceMonitor"}


def measured(metrics: Data, **fields: object) -> Data:
    scaled = server(replicas={"min": 1, "max": 4}, scaleOn={"cpu": 70, "latencyP99": "100ms"}, **fields)
    return stack(metrics=metrics, teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": scaled})})


@pytest.fixture(scope="module")
def by_keda() -> tuple[KubernetesObject, ...]:
    return declared(measured({"histogram": "inference_latency_seconds"}, metricsPort=9400))


@pytest.fixture(scope="module")
def by_adapter() -> tuple[KubernetesObject, ...]:
    return declared(measured({"histogram": "inference_latency_seconds", "by": "adapter"}))


@pytest.fixture(scope="module")
def by_signals() -> tuple[KubernetesObject, ...]:
    series = {"running": "running", "waiting": "waiting", "cache": "cache_used", "requests": "requests_total"}
    query = {"expr": "sum(rate(gateway_requests_total[2m]))", "perReplica": 200}
    signals = {"queue": 4, "concurrency": 8, "rate": "20/s", "cache": 80, "gpu": 70, "query": query}
    scaled = server(replicas={"min": 0, "max": 4}, scaleOn={"cpu": None, **signals}, metrics=series)
    made = declared(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": scaled})}))
    triggers = at(only(made, "ScaledObject"), "spec", "triggers")
    assert isinstance(triggers, list)
    assert len(triggers) == len(signals)
    return made


@pytest.mark.parametrize("form", ["by_keda", "by_signals", "by_adapter"])
def test_objects_of_measured_servers_are_kept_as_written(
    cluster: Cluster, namespace: str, form: str, request: pytest.FixtureRequest
) -> None:
    objects: tuple[KubernetesObject, ...] = request.getfixturevalue(form)
    made = [moved(dict(one.manifest), namespace) for one in objects if one.kind in MADE and one.namespace == "a"]
    scaler = "HorizontalPodAutoscaler" if form == "by_adapter" else "ScaledObject"
    assert {one["kind"] for one in made} == MADE - {"ScaledObject", "HorizontalPodAutoscaler"} | {scaler}
    for one in made:
        cluster.apply(one)
    for one in made:
        kept = cluster.get(*Reference.of(one))
        assert kept
        if one["kind"] in {"ScaledObject", "ServiceMonitor"}:
            assert at(kept, "spec") == one["spec"]


def free() -> Data:
    """A stack with the keys whose defaults builders have: of a namespace, probes, paces, limits and an endpoint."""
    chat = server(
        replicas={"min": 1, "max": 2},
        scaleOn={"up": {"stabilizationWindow": "0s", "pods": 4}, "down": {"percent": 50, "period": "30m"}},
        cpu=2,
        memory="16Gi",
        limits={"cpu": 3, "memory": "24Gi"},
        probes={"period": "5s", "timeout": "2s", "failures": 6, "readyAfter": "0s", "aliveAfter": "2m"},
        surge=0,
    )
    budget = {"requests": {"cpu": 4, "memory": "32Gi"}, "limits": {"cpu": 6, "memory": "48Gi"}}
    of_namespace = {"labels": {"example.com/unit": "vision"}, "annotations": {"example.com/contact": "x" * 1000}}
    quota = {"h100": {"cpu": {"guaranteed": 4}, "memory": {"guaranteed": "32Gi"}}}
    own = team(gpus={"h100": {"guaranteed": 2}}, quota=quota, serving={"s": chat}, compute=budget, **of_namespace)
    endpoint = {"bucket": "s3://ml/v3", "endpoint": "http://minio.storage.svc:9000"}
    return stack(teams={"a": own}, datasets={"d": endpoint})


def test_own_settings_of_a_team_are_accepted(cluster: Cluster, namespace: str) -> None:
    assert Server(cluster, namespace).refusals(declared(free())) == []


def test_limits_above_requests_fit_the_quota(cluster: Cluster, namespace: str) -> None:
    made = declared(free())
    bounds = [moved(dict(only(made, kind)), namespace) for kind in ("ResourceQuota", "LimitRange")]
    template = only(made, "Deployment")["spec"]["template"]
    try:
        an_account(cluster, namespace)
        for one in bounds:
            cluster.apply(one)
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        for number in range(2):  # as many as the server can have
            cluster.create(admitted(cluster, {**pod, "metadata": {"name": f"s-{number}", "namespace": namespace}}))
        refused_soon(cluster, "exceeded quota", {**pod, "metadata": {"name": "s-2", "namespace": namespace}})
        greedy: Any = deepcopy(pod)
        greedy["spec"]["containers"][0]["resources"]["limits"]["memory"] = "25Gi"
        place: Any = {"name": "greedy", "namespace": namespace}
        assert "limit to request ratio" in refusal(lambda: cluster.create({**greedy, "metadata": place}, dry_run=True))
    finally:
        remove(cluster, bounds)


# The kind of an object, a place in it, the value there, and the words of the refusal.
WRONG: list[tuple[str, str, object, str]] = [
    ("ScaledObject", "spec.fallback.behavior", "keep", "spec.fallback.behavior: Unsupported value"),
    ("ScaledObject", "spec.maxReplicas", 4, ".spec.maxReplicas: field not declared in schema"),
    ("ScaledObject", "spec.triggers.0.metadata.value", 70, "metadata.value"),  # KEDA reads text
    (
        "ScaledObject",
        "spec.advanced.horizontalPodAutoscalerConfig.behavior.scale_up",  # as SDKs spell it
        {},
        "scale_up: field not declared in schema",
    ),
    ("ServiceMonitor", "spec.endpoints.0.interval", "15", "spec.endpoints[0].interval"),
    ("ServiceMonitor", "spec.selector.labels", {}, "labels: field not declared in schema"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong[1])
def test_a_rejected_object_has_an_accepted_twin(
    cluster: Cluster, namespace: str, by_keda: tuple[KubernetesObject, ...], wrong: tuple[str, str, object, str]
) -> None:
    kind, place, value, words = wrong
    one: Any = moved(only(by_keda, kind), namespace)
    cluster.apply(one, dry_run=True)
    *way, last = place.split(".")
    part = one
    for key in way:
        part = part[int(key) if key.isdigit() else key]
    part[last] = value
    assert words in refusal(lambda: cluster.apply(one, dry_run=True))


# Routes.

TEAM = "exposed"
HTTP_ROUTE = "gateway.networking.k8s.io/v1", "HTTPRoute"


@pytest.fixture(scope="module")
def objects() -> list[Manifest]:
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"]}}
    offer: Data = {
        "images": ["registry.example.com/lab:1"],
        "sizes": {"small": {}},
        "home": {"size": "1Gi"},
        "expose": {"domain": "lab.ml.example.com", "gateway": "infra/edge", "names": ["ann"]},
    }
    expose = {"host": "chat.ml.example.com", "gateway": "infra/edge", "timeout": "24h", "fromCidrs": ["10.1.0.0/16"]}
    serving = {"chat": server(expose=expose), "next": server(canary={"of": "chat", "weight": 0})}
    owner = team(gpus={"h100": {"guaranteed": 8}}, network=network, serving=serving, notebooks=offer)
    kinds = {"Namespace", "NetworkPolicy", "Service", "HTTPRoute"}
    made = declared(stack(teams={TEAM: owner}))
    return flat(in_waves([one for one in made if one.kind in kinds and TEAM in {one.name, one.namespace}]))


@pytest.fixture(scope="module")
def applied(cluster: Cluster, objects: list[Manifest]) -> Iterator[Cluster]:
    try:
        for manifest in objects:
            cluster.apply(manifest)
        yield cluster
    finally:
        remove(cluster, objects)


def test_routes_keep_a_weight_of_zero(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "chat", TEAM)
    (rule,) = route["spec"]["rules"]
    assert [(one["name"], one["kind"], one["weight"]) for one in rule["backendRefs"]] == [
        ("chat", "Service", 100),
        ("next", "Service", 0),
    ]
    assert rule["timeouts"] == {"request": "86400s"}


def test_routes_of_notebooks_have_no_timeout(applied: Cluster) -> None:
    route: Any = applied.get(*HTTP_ROUTE, "ann", TEAM)
    assert route["spec"]["hostnames"] == ["ann.lab.ml.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    service: Any = applied.get("v1", "Service", "ann", TEAM)
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("hostnames", ["chat_1.example.com"], "hostnames[0]"),
        ("backendRefs", [{"name": "chat"}], "Must have port for Service reference"),
        ("timeouts", {"request": "100000s"}, "timeouts.request"),
        ("timeout", "10s", "timeout"),
    ],
)
def test_the_definition_refuses_another_route(
    applied: Cluster, objects: list[Manifest], field: str, value: Any, words: str
) -> None:
    route: Any = deepcopy(
        next(one for one in objects if Reference.of(one).name == "chat" and one["kind"] == "HTTPRoute")
    )
    target = route["spec"] if field == "hostnames" else route["spec"]["rules"][0]
    target[field] = value
    assert words in refusal(lambda: applied.apply(route, dry_run=True))
    assert applied.exists(*Reference.of(route))


# Gates.

PROBES = {name: chart.probe for name, chart in charts().items() if chart.probe}


def asked(probe: Probe, namespace: str) -> Any:
    """The object in the pod's namespace, which kubectl uses if a manifest names none."""
    manifest: Any = deepcopy(dict(probe.manifest))
    if probe.resource in {"trainjobs", "leaderworkersets", "secretstores"}:
        manifest["metadata"] = {**manifest["metadata"], "namespace": namespace}
    return manifest


@pytest.mark.parametrize("name", PROBES)
def test_a_gate_has_a_right_to_a_valid_object(cluster: Cluster, namespace: str, name: str) -> None:
    manifest, probe = asked(PROBES[name], namespace), PROBES[name]
    assert cluster.apply(manifest, dry_run=True)["kind"] == manifest["kind"]
    broken = {**manifest, "spec": {**manifest["spec"], "naem": "x"}}
    assert "naem" in refusal(lambda: cluster.apply(broken, dry_run=True))
    definition = "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{probe.resource}.{probe.group}"
    assert at(cluster.get(*definition) or {}, "spec", "names", "kind") == manifest["kind"]


CLASS: Final = "training-high"
FIT: Final = job(framework="pytorch", workers=2, gpus=4)


def sections(**of_team: object) -> Data:
    gpus = {"h100": {"guaranteed": 8, "limit": 16}}
    return stack(priorities={CLASS: 5}, teams={"a": team(gpus=gpus, priority=CLASS, training={"fit": FIT}, **of_team)})


@pytest.fixture(scope="module")
def ours() -> tuple[KubernetesObject, ...]:
    """A namespace that admits pods of one class, with a TrainJob."""
    return declared(sections(compute={"priorities": [CLASS]}))


@pytest.fixture
def home(cluster: Cluster, namespace: str, ours: tuple[KubernetesObject, ...]) -> Iterator[str]:
    cluster.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": CLASS}, "value": 5}
    )
    for name in ("default", "workload"):
        an_account(cluster, namespace, name)
    for quota in (item for item in ours if item.kind == "ResourceQuota"):
        cluster.apply(moved(dict(quota.manifest), namespace))
        cluster.wait_for(
            lambda name=quota.name: at(cluster.get("v1", "ResourceQuota", name, namespace) or {}, "status", "hard"),
            what=f"quota {quota.name}",
        )
    yield namespace
    cluster.delete(Reference("scheduling.k8s.io/v1", "PriorityClass", CLASS))


def pod_of(runtime: Any, train_job: Any, namespace: str) -> Any:
    """The runtime's pod with the TrainJob's patch and trainer; lists of named items are merged by name."""
    # https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go.
    (patch,) = train_job["spec"]["runtimePatches"]
    template = merged(runtime["spec"]["template"], patch["trainingRuntimeSpec"]["template"])
    (replicated,) = template["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]
    (node,) = pod["spec"]["containers"]
    trainer = train_job["spec"]["trainer"]
    node |= {"image": trainer["image"], "resources": trainer["resourcesPerNode"]}
    spec = {**pod["spec"], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fit-node-0", "namespace": namespace}, "spec": spec}


def merged(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        below, over = cast("Data", base), cast("Data", patch)
        return {key: merged(below.get(key), over[key]) if key in over else below[key] for key in (*below, *over)}
    if isinstance(base, list) and isinstance(patch, list):
        items, changes = cast("list[Any]", base), cast("list[Any]", patch)
        if all("name" in item for item in [*items, *changes]):
            named: Data = {item["name"]: item for item in items}
            for change in changes:
                named[change["name"]] = merged(named.get(change["name"]), change)
            return list(named.values())
    return deepcopy(cast("Any", patch))


def test_train_jobs_and_runtimes_are_accepted(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    runtime, train_job = moved(only(ours, "TrainingRuntime", "job-fit"), home), moved(only(ours, "TrainJob"), home)
    assert train_job["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}
    live: Any = cluster.apply(runtime)
    (replicated,) = live["spec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1, "Trainer's webhook accepts no other number"
    cluster.apply(train_job, dry_run=True)


def test_a_train_job_cannot_set_the_class_itself(
    cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str
) -> None:
    train_job = moved(only(ours, "TrainJob"), home)
    (patch,) = train_job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    replicated["template"]["spec"]["template"]["spec"]["priorityClassName"] = CLASS
    assert "priorityClassName" in refusal(lambda: cluster.apply(train_job, dry_run=True))


def test_the_quota_admits_pods_of_train_jobs(cluster: Cluster, ours: tuple[KubernetesObject, ...], home: str) -> None:
    pod = pod_of(only(ours, "TrainingRuntime", "job-fit"), only(ours, "TrainJob"), home)
    taken = admitted(cluster, pod)
    assert taken["spec"]["priorityClassName"] == CLASS
    assert taken["spec"]["priority"] == 5
    assert taken["spec"]["serviceAccountName"] == "workload"
    assert taken["spec"]["automountServiceAccountToken"] is False
    assert taken["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (node,) = taken["spec"]["containers"]
    assert node["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

    del pod["spec"]["priorityClassName"]
    words = "exceeded quota: budget-no-other-priority, requested: pods=1, used: pods=0, limited: pods=0"
    refused_soon(cluster, words, pod)


def test_namespaces_of_every_class_have_their_own_runtimes() -> None:
    names = {item.name for item in declared(sections()) if item.kind == "TrainingRuntime"}
    assert names == {"job-fit"}


# Queued nodes.

QUEUED: Final = {"kind": "queued", "maxRun": "2d"}


def queued() -> tuple[KubernetesObject, ...]:
    cpu = pool("n2-standard-32", 3, labels={"node-type": "cpu"})
    return declared(
        stack(
            cluster={"cloud": "existing", "provider": "gcp"},
            pools={"cpu": cpu, "h100": pool("a3-highgpu-8g", {"min": 0, "max": 2}, capacity=QUEUED)},
            teams={"a": team(gpus={"h100": {"guaranteed": 8}})},
        )
    )


def test_objects_of_queued_provisioning_are_accepted(cluster: Cluster, tmp_path: Path) -> None:
    waves = in_waves(queued())
    apply(cluster, waves, tmp_path / "inventory.json")
    found: Any = cluster.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", "a")
    remove(cluster, flat(waves))
    (held,) = found["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert held == {"name": "provision-h100", "onFlavors": ["h100"]}


def test_checks_are_applied_before_their_queue() -> None:
    kinds = [manifest["kind"] for manifest in flat(in_waves(queued()))]
    assert kinds.index("ProvisioningRequestConfig") < kinds.index("AdmissionCheck") < kinds.index("ClusterQueue")


def test_a_parameter_longer_than_kueue_takes_is_refused(cluster: Cluster) -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    config["spec"]["parameters"]["maxRunDurationSeconds"] = "1" * 256
    assert "Too long" in refusal(lambda: cluster.apply(config, dry_run=True))


def test_the_queue_asks_for_the_nodes_in_gkes_own_words() -> None:
    config = only(queued(), "ProvisioningRequestConfig")
    assert config["spec"] == {
        "provisioningClassName": "queued-provisioning.gke.io",
        "parameters": {"maxRunDurationSeconds": "172800"},
        "managedResources": ["nvidia.com/gpu"],
        "podSetUpdates": {
            "nodeSelector": [
                {
                    "key": "autoscaling.gke.io/provisioning-request",
                    "valueFromProvisioningClassDetail": "ResizeRequestName",
                }
            ]
        },
    }


# Claims of storage.

SECTIONS: Final[Data] = stack(
    teams={
        "a": team(
            gpus={"h100": {"guaranteed": 8}},
            storage={"ck": {"size": "1Gi"}},
            training={"t": job(flavor="h100", volumes={"ck": "/ck"}, datasets={"corpus": "/data"}, scratch="1Gi")},
        )
    },
    datasets={"corpus": "s3://ml-corpus/v3"},
)


def phase(cluster: Cluster, name: str, namespace: str) -> str:
    return text_at(cluster.get("v1", "PersistentVolumeClaim", name, namespace) or {}, "status", "phase")


def _released(cluster: Cluster) -> bool:
    phases = [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)]
    return phases == ["Released"]


def test_claims_are_bound_and_mounted(cluster: Cluster, namespace: str) -> None:
    objects = declared(SECTIONS)
    volume = only(objects, "PersistentVolume")
    volume["metadata"]["name"] = f"{namespace}-corpus"
    volume["spec"]["claimRef"]["namespace"] = namespace
    cluster.apply(volume)
    claim = moved(only(objects, "PersistentVolumeClaim", "corpus"), namespace)
    claim["spec"]["volumeName"] = f"{namespace}-corpus"
    cluster.apply(claim)
    cluster.apply(moved(only(objects, "PersistentVolumeClaim", "ck"), namespace))
    bring_volumes(cluster, [ClaimPlan("ck", namespace, 2**30, "ReadWriteOnce", None, "")], default=True)
    for name in ("corpus", "ck"):
        cluster.wait_for(lambda name=name: phase(cluster, name, namespace) == "Bound", what=f"claim {name} to be bound")
    an_account(cluster, namespace)
    spec = only(objects, "Job", "t")["spec"]["template"]["spec"]
    spec.pop("priorityClassName", None)
    pod: Data = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t", "namespace": namespace}, "spec": spec}
    made = cluster.apply(pod)
    claims = [text_at(one, "persistentVolumeClaim", "claimName") for one in maps_at(made, "spec", "volumes")]
    assert sorted(filter(None, claims)) == ["ck", "corpus"]
    bring_volumes(cluster, [], default=False)
    assert [text_at(one, "status", "phase") for one in cluster.list("v1", "PersistentVolume", labels=STORAGE)] == [
        "Bound"
    ]
    for kind, name in (("Pod", "t"), ("PersistentVolumeClaim", "ck"), ("PersistentVolumeClaim", "corpus")):
        cluster.delete(Reference("v1", kind, name, namespace))
    cluster.delete(Reference("v1", "PersistentVolume", f"{namespace}-corpus"))
    cluster.wait_for(lambda: _released(cluster), what="the volume to be released")
    bring_volumes(cluster, [], default=False)
    assert cluster.list("v1", "PersistentVolume", labels=STORAGE) == ()


# Teams without GPUs.

TEAMS = ("namespace1", "namespace2", "namespace3", "namespace4")


@pytest.fixture(scope="module")
def elastic(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plan, Tree]]:
    sections = sections_of("example-elastic")
    stack = load(Source(sections))
    made = plan(stack)
    waves = in_waves(declared(sections))
    bring_nodes(cluster, node_shapes(stack))
    apply(cluster, waves, tmp_path_factory.mktemp("elastic") / "inventory.json")
    settle(cluster, made)
    yield made, Tree(stack)
    remove(cluster, flat(waves))
    bring_nodes(cluster, ())


def test_no_team_can_request_more_cpus_than_may_run_and_wait(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = check_placement(cluster, *elastic)
    assert [check.promise for check in found] == [f"{team} cannot request more than its 80 CPUs" for team in TEAMS]
    assert [check.seen for check in found if not check.holds] == []
    for check in found:
        assert check.seen == "0 used; a pod with 80 is admitted, a pod with 81 is rejected"
        assert "exceeded quota: budget, requested: requests.cpu=81, used: requests.cpu=0" in check.message
    cluster.wait_gone(Reference("v1", "Namespace", NAMESPACE))


def test_the_summary_counts_cpus_and_memory(cluster: Cluster, elastic: tuple[Plan, Tree]) -> None:
    found = summarise(cluster, *elastic)
    assert {(holding.team, holding.flavor): (holding.guaranteed, holding.limit) for holding in found.holdings} == {
        key: value
        for team in TEAMS
        for key, value in {(team, "CPUs"): (10_000, 20_000), (team, "memory"): (40 * 2**30, 80 * 2**30)}.items()
    }
    assert {supply.flavor: (supply.nodes, supply.capacity) for supply in found.supply} == {
        "CPUs": (4, 40_000),
        "memory": (4, 160 * 2**30),
    }
