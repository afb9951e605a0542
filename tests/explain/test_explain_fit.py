"""Whether a workload fits: the requests of a file, and all checks together."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_builders import (
    GPU,
    HIDDEN_QUEUES,
    Data,
    came,
    changed,
    cluster_queue,
    cohort,
    cpu_job,
    flavor,
    job,
    local_queue,
    node,
    only_gpus,
    pod_spec,
    resources,
    state,
    waits,
    with_cpu,
    workload,
)

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.demand import Demand, demand, read_demands, volcano_queue
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.reading import Answer, Check, require_team
from gpu_tenancy.explain.fit import Fitting, judge


def judged(manifest: Data | None = None, **objects: list[Data]) -> Fitting:
    return judge(state(**objects), "research", demand(manifest or only_gpus(job()), "research"))


def answer(found: Fitting, about: str) -> Answer:
    (one,) = (each for each in found.answers if each.about.startswith(about))
    return one


def test_a_fitting_job_passes_every_check() -> None:
    found = judged()
    assert found.asks == "1 pod, 8 nvidia.com/gpu in total"
    assert [(each.about, each.verdict, each.lines) for each in found.answers] == [
        ("queue research", "now", ("a100 nvidia.com/gpu: 8 requested, fits now (guaranteed 8, unused 8)",)),
        ("namespace quota", "now", ("no ResourceQuota of the namespace applies to these pods",)),
        ("nodes", "now", ("1 suitable node, room for 1 such pod now and 1 when empty",)),
        ("priority", "now", ("no priority class: priority 0", "scheduler default-scheduler")),
    ]
    assert found.conclusion == "Job train fits now"


# kueue#4848: Kueue ignores them by `excludeResourcePrefixes`; the nodes decide.
IGNORED = [
    ("ephemeral-storage", "10Gi", "200Gi"),
    ("hugepages-2Mi", "1Gi", "4Gi"),
    ("vpc.amazonaws.com/efa", "4", "4"),
    ("rdma/ib", "1", "1"),
]


@pytest.mark.parametrize(("resource", "requested", "on_node"), IGNORED)
def test_fits_with_resources_that_kueue_ignores(resource: str, requested: str, on_node: str) -> None:
    asking, there = only_gpus(job()), node()
    for amounts in asking["spec"]["template"]["spec"]["containers"][0]["resources"].values():
        amounts[resource] = requested
    there["status"]["allocatable"][resource] = on_node
    found = judged(asking, Node=[there])
    assert found.conclusion == "Job train fits now"
    assert answer(found, "queue research").lines == (
        "a100 nvidia.com/gpu: 8 requested, fits now (guaranteed 8, unused 8)",
    )
    assert answer(judged(asking), "nodes").verdict == "never"


SUBMITTED = "simulation: if submitted now, the workload would be"
BOTH = [local_queue("research"), local_queue("other")]


def lender(used: int) -> list[Data]:
    """The team's queue, with 8 GPUs of its own, beside another that borrowed."""
    return [
        cluster_queue("research", "org", borrowingLimit=24),
        cluster_queue("other", "org", used=used, nominalQuota=0, borrowingLimit=32),
    ]


def evicted() -> Data:
    """A workload of the other team that Kueue stops, so that its quota is free soon."""
    leaving = workload(only_gpus(job("leaving", "other", pods=4)), admitted=True)
    leaving["status"]["conditions"].append({"type": "Evicted", "status": "True", "reason": "Deactivated"})
    return leaving


STRICT = changed(cluster_queue("research", "org", borrowingLimit=24), queueingStrategy="StrictFIFO")
CHECKED = changed(
    cluster_queue("research", "org", borrowingLimit=24),
    admissionChecksStrategy={"admissionChecks": [{"name": "provision"}]},
)
ASKS = "a100 nvidia.com/gpu: 8 requested,"
FITS = f"{ASKS} fits now (guaranteed 8, unused 8)"
PENDING = "already pending ({} nvidia.com/gpu); those of higher or equal priority are admitted first"
NOT_SIMULATED = "admission checks: a workload with quota may still wait for a check, and be evicted by it"
PATCH = """`kubectl -n research patch localqueue research --type merge -p '{"spec": {"stopPolicy": "None"}}'`"""
OPENED = f"ask a lead of the team for {PATCH}"
MORE = "request at most {}, or ask the platform team to raise the limit of the team"
HOLD = {"by": "ada", "since": "2026-11-24T18:00:00Z", "until": "", "before": None, "after": None}
HELD_FLAVOR = changed(flavor(), nodeTaints=[{"key": "gpu-tenancy.dev/hold", "value": "held", "effect": "NoSchedule"}])
HELD_FLAVOR["metadata"]["annotations"] = {"gpu-tenancy.dev/hold": json.dumps(HOLD)}
HIGH = job(labels={"kueue.x-k8s.io/priority-class": "high"})


@pytest.mark.parametrize(
    ("manifest", "objects", "verdict", "lines"),
    [
        pytest.param(job(), {"ClusterQueue": lender(16), "Cohort": [cohort("org", nominal=8)], "LocalQueue": BOTH,
         "Workload": [came("old", "other"), came("new", "other", day=2)]}, "later",
         (f"{ASKS} fits after reclaiming 8 that other queues borrowed (guaranteed 8, unused 8)",
         f"{SUBMITTED} admitted and preempt other/new"), id="reclaims"),
        pytest.param(job(), {"ClusterQueue": lender(32), "LocalQueue": BOTH, "Workload": [evicted()]}, "now",
         (f"{SUBMITTED} admitted without preemption", f"{ASKS} 8 missing (guaranteed 8, unused 8; limit 32, used 0)"),
         id="quota of an evicted workload"),
        pytest.param(HIGH, {"ClusterQueue": [cluster_queue("research", used=8)], "Workload": [came("meek",
         "research")], "WorkloadPriorityClass": [{"metadata": {"name": "high"}, "value": 10}]}, "later",
         (f"{SUBMITTED} admitted and preempt research/meek",
         f"{ASKS} 8 missing (guaranteed 8, unused 0; limit 8, used 8)"), id="preempts in its own queue"),
        pytest.param(job(), {"ClusterQueue": [STRICT], "Workload": [waits("huge", gpus=72)]}, "later",
         ((f"{SUBMITTED} pending: behind research/huge, the head of a StrictFIFO queue: insufficient quota for"
         " nvidia.com/gpu in flavor a100, request > maximum capacity (72 > 32)"),
         f"{ASKS} 32 available (guaranteed 8, unused 8; limit 32, used 0)", f"1 workload {PENDING.format(72)}",
         "wait unknown: no deadline and no recorded job tells the end"), id="behind the head of a strict queue"),
        pytest.param(job(), {"Workload": [waits("first")]}, "now", (FITS, f"1 workload {PENDING.format(8)}"),
         id="after another"),
        pytest.param(job(), {"ClusterQueue": [CHECKED]}, "now", (FITS,
         f"used by this queue but not simulated: {NOT_SIMULATED}"), id="limits of the simulation"),
        pytest.param(job(), {"LocalQueue": [changed(local_queue("research"), stopPolicy="Hold")]}, "later",
         (f"LocalQueue research is stopped (stopPolicy Hold); {OPENED}", FITS), id="a stopped LocalQueue"),
        pytest.param(job(), {"ClusterQueue": [changed(cluster_queue("research"), stopPolicy="HoldAndDrain")]}, "later",
         (("ClusterQueue research admits no workloads: stopPolicy is HoldAndDrain; fix this; Kueue then admits the"
         " workload without further action"), FITS), id="a stopped ClusterQueue"),
        pytest.param(job(pods=2), {"ClusterQueue": [changed(cluster_queue("research"), stopPolicy="Hold")]}, "never",
         (f"{ASKS.replace('8', '16')} exceeds the limit of 8; {MORE.format(8)}", ), id="too large for a stopped queue"),
        pytest.param(job(), {"ResourceFlavor": [HELD_FLAVOR]}, "later",
         (("flavor a100 is held by ada since 2026-11-24 18:00 UTC; ask the platform team for"
         " `tenancy cluster release a100`"), "wait unknown: no deadline and no recorded job tells the end"),
         id="a held flavor"),
    ],
)  # fmt: skip
def test_the_queue_is_simulated(
    manifest: Data, objects: dict[str, list[Data]], verdict: str, lines: tuple[str, ...]
) -> None:
    queue = answer(judged(only_gpus(manifest), **objects), "queue")
    assert (queue.verdict, queue.lines) == (verdict, lines)


@pytest.mark.parametrize(("pods", "unit"), [(0, ""), (2, "each pod is admitted separately: 0 of 2 pods now")])
def test_names_cpu_that_the_guarantee_does_not_cover(pods: int, unit: str) -> None:
    about = cpu_job("train")
    if pods:
        del about["spec"]["parallelism"], about["spec"]["completions"], about["spec"]["suspend"]
        about |= {"apiVersion": "apps/v1", "kind": "Deployment"}
        about["spec"]["replicas"] = pods
    owned = [with_cpu(queue, cpus) for queue, cpus in zip(lender(32), (10, 120), strict=True)]
    held = workload(cpu_job("lent", "other", gpus=32, cpu=0), admitted=True)
    found = judged(about, ClusterQueue=owned, Cohort=[cohort("org", nominal=24)], LocalQueue=BOTH, Workload=[held])
    queue = answer(found, "queue")
    assert queue.lines[0] == (
        "needs 22 CPUs more than research is guaranteed (10), so it cannot reclaim a100 GPUs from borrowers; request"
        " up to 10 CPUs, or raise teams.research.quota.a100.cpu.guaranteed"
    )
    assert (queue.verdict, unit in queue.lines or not unit) == ("later", True)
    assert found.conclusion == f"{found.title} fits, but not now: queue research: {queue.lines[0]}"


def test_what_the_simulation_repeats_of_the_numbers_is_left_out() -> None:
    held = [came("all", "other", 32)]
    queue = answer(judged(only_gpus(job(pods=2)), ClusterQueue=lender(32), LocalQueue=BOTH, Workload=held), "queue")
    assert queue.verdict == "later"
    assert not [line for line in queue.lines if line.startswith("simulation")]


def test_a_state_that_could_not_come_about_is_not_simulated() -> None:
    found = judged(ClusterQueue=lender(32), LocalQueue=BOTH, Workload=[came("all", "other", 72)])
    assert answer(found, "queue").lines[-1] == (
        "not simulated: Kueue reports 32 nvidia.com/gpu of a100 in use in queue other, but its"
        " workloads hold 72; retry in a moment"
    )


def test_the_first_check_that_says_never_decides() -> None:
    found = judged(only_gpus(job(pods=5)))
    assert (found.verdict, found.conclusion) == (
        "never",
        "Job train does not fit: queue research: a100 nvidia.com/gpu: 40 requested, exceeds the limit of 32; "
        + MORE.format(32),
    )
    found = judged(only_gpus(job(pods=5)), Node=[node(gpus=4)])
    assert found.conclusion == (
        "Job train does not fit: nodes: a pod requests 8 nvidia.com/gpu, but the largest of 1 suitable node has 4"
        " nvidia.com/gpu; request less in each of more pods"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {},
            (
                "no queue set, so it stays pending for ever in a team's namespace; add the label"
                " kueue.x-k8s.io/queue-name: research"
            ),
        ),
        (
            {"kueue.x-k8s.io/queue-name": "resaerch"},
            "LocalQueue resaerch not found in namespace research; did you mean 'research'? Known: research",
        ),
    ],
)
def test_a_job_without_a_queue_of_its_namespace_never_starts(change: dict[str, str], words: str) -> None:
    asked = only_gpus(job())
    asked["metadata"]["labels"] = change
    assert answer(judged(asked), "queue") == Answer(Check.QUEUE, "never", (words,))


def test_a_missing_or_foreign_queue_admits_nothing() -> None:
    gone = judged(LocalQueue=[local_queue("research", "reserch")])
    assert answer(gone, "queue").lines == ("ClusterQueue reserch of LocalQueue research not found",)
    shut = cluster_queue("research")
    shut["spec"]["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "other"}}
    assert answer(judged(ClusterQueue=[shut]), "queue").lines == (
        "namespaceSelector of ClusterQueue research does not match namespace research",
    )
    del shut["spec"]["namespaceSelector"]  # An API server takes it so, and nothing is ever admitted.
    assert answer(judged(ClusterQueue=[shut]), "queue").verdict == "never"


def test_unreadable_queue_names_who_can_read_it() -> None:
    local = local_queue("research")
    local["status"] = {"flavorsReservation": [{"name": "a100", "resources": [{"name": GPU, "total": "8"}]}]}
    found = judge(
        state((HIDDEN_QUEUES,), ClusterQueue=[], LocalQueue=[local]), "research", demand(only_gpus(job()), "research")
    )
    assert answer(found, "queue") == Answer(
        Check.QUEUE,
        "unknown",
        (
            "ClusterQueues not readable (guaranteed and limit): you may not list clusterqueues; ask an admin",
            "your namespace uses 8 nvidia.com/gpu of a100",
        ),
        "research",
    )
    assert found.conclusion.startswith(
        "Job train fits as far as you may see: queue research: ClusterQueues not readable"
    )


def test_a_deployment_starts_pod_by_pod() -> None:
    spec = {"replicas": 5, "template": {"spec": pod_spec()}}
    named = {**job()["metadata"], "name": "api"}
    server = only_gpus({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": named, "spec": spec})
    found = answer(judged(server), "queue")
    assert (found.verdict, found.lines[1:]) == ("never", ("each pod is admitted separately: 4 of 5 pods now",))


def test_a_leader_worker_set_starts_group_by_group() -> None:
    """Four GPUs are free, and each group needs two."""
    template = only_gpus({"spec": {"template": {"spec": pod_spec()}}})["spec"]["template"]
    spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    named = {**job()["metadata"], "name": "api"}
    groups = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": named, "spec": spec}
    found = answer(judged(groups), "queue")
    assert (found.verdict, found.lines[1:]) == ("never", ("each group is admitted separately: 2 of 3 groups now",))


def test_classes_that_are_not_there_are_named() -> None:
    asked = only_gpus(job(labels={"kueue.x-k8s.io/priority-class": "high"}))
    asked["spec"]["template"]["spec"]["priorityClassName"] = "hihg"
    found = judged(asked, WorkloadPriorityClass=[{"metadata": {"name": "high"}, "value": 1000}])
    assert answer(found, "priority").lines == (
        "PriorityClass hihg not found; did you mean 'high'? Known: high",
        "WorkloadPriorityClass high (1000)",
        "scheduler default-scheduler",
    )


def test_a_namespace_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ConsoleError, match="namespace reserch not found; did you mean 'research'"):
        require_team(state(), "reserch", "queues")


# What a file asks for.


def counts(manifest: Data) -> list[tuple[str, int, int]]:
    """Name, pods, and GPUs of a pod, for each kind."""
    return [(each.name, each.count, requests(each.spec).get(GPU, 0)) for each in demand(manifest, "research").templates]


def of(version: str, kind: str, **spec: Any) -> Data:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


TEMPLATE = {"spec": pod_spec(4)}
TEMPLATE_PATCH = {
    "template": {
        "spec": {
            "replicatedJobs": [{"template": {"spec": {"template": {"spec": {"nodeSelector": {"model": "a100"}}}}}}]
        }
    }
}

RAY_CLUSTER: Data = {
    "headGroupSpec": {"template": {"spec": pod_spec(0)}},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 3, "numOfHosts": 2, "template": TEMPLATE}],
}


def test_kuberays_additions_to_the_head_are_counted() -> None:
    sidecar = of("ray.io/v1", "RayJob", submissionMode="SidecarMode", rayClusterSpec=RAY_CLUSTER)
    scaled = of("ray.io/v1", "RayCluster", enableInTreeAutoscaling=True, **RAY_CLUSTER)
    plain = of("ray.io/v1", "RayCluster", **RAY_CLUSTER)
    of_head = [requests(demand(manifest, "research").templates[0].spec) for manifest in (plain, sidecar, scaled)]
    cpus = [amounts.get("cpu", 0) for amounts in of_head]
    assert (cpus[1] - cpus[0], cpus[2] - cpus[0]) == (500, 500)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (of("v1", "Pod", **pod_spec(4)), [("pod", 1, 4)]),
        (of("batch/v1", "Job", template=TEMPLATE), [("pod", 1, 4)]),
        (of("batch/v1", "Job", template=TEMPLATE, parallelism=4, completions=2), [("pod", 2, 4)]),
        (of("apps/v1", "StatefulSet", template=TEMPLATE, replicas=3), [("pod", 3, 4)]),
        (of("batch.volcano.sh/v1alpha1", "Job", tasks=[{"name": "w", "replicas": 3, "template": TEMPLATE},
         {"name": "m", "template": TEMPLATE}]), [("w", 3, 4), ("m", 1, 4)]),
        (of("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{"name": "j", "replicas": 2,
         "template": {"spec": {"parallelism": 3, "template": TEMPLATE}}}]), [("j", 6, 4)]),
        (of("trainer.kubeflow.org/v1alpha1", "TrainJob", trainer={"numNodes": 2, "resourcesPerNode": resources(4)}),
         [("node", 2, 4)]),
        (of("ray.io/v1", "RayJob", submissionMode="HTTPMode", rayClusterSpec=RAY_CLUSTER), [("head", 1, 0), ("w", 6,
         4)]),
        (of("ray.io/v1", "RayJob", rayClusterSpec=RAY_CLUSTER), [("head", 1, 0), ("w", 6, 4), ("submitter", 1, 0)]),
        (of("ray.io/v1", "RayCluster", **RAY_CLUSTER), [("head", 1, 0), ("w", 6, 4)]),
        (of("ray.io/v1", "RayService", rayClusterConfig=RAY_CLUSTER), [("head", 1, 0), ("w", 6, 4)]),
        (of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", replicas=2, leaderWorkerTemplate={"size": 3,
         "leaderTemplate": {"spec": pod_spec(0)}, "workerTemplate": TEMPLATE}), [("leader", 2, 0), ("worker", 4, 4)]),
        (of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"workerTemplate": TEMPLATE}),
         [("main", 1, 4)]),
        (of("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs={"Worker": {"replicas": 3, "template": TEMPLATE},
         "Master": {"template": TEMPLATE}}), [("master", 1, 4), ("worker", 3, 4)]),
    ],
    ids=[
        *("Pod", "Job", "Job with completions", "StatefulSet", "Volcano's Job", "JobSet", "TrainJob"),
        *("RayJob", "RayJob with a submitter", "RayCluster", "RayService"),
        *("LeaderWorkerSet", "LeaderWorkerSet without a leader's template", "PyTorchJob"),
    ],
)  # fmt: skip
def test_each_kind_is_read_as_its_pods(manifest: Data, expected: list[tuple[str, int, int]]) -> None:
    assert counts(manifest) == expected


def test_runtime_patches_of_a_train_job_select_its_nodes() -> None:
    manifest = of(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        trainer={},
        runtimePatches=[{"trainingRuntimeSpec": TEMPLATE_PATCH}],
    )
    (template,) = demand(manifest, "research").templates
    assert template.spec["nodeSelector"] == {"model": "a100"}


def test_gangs_are_volcano_jobs_or_pods_with_its_scheduler() -> None:
    gang = of("batch.volcano.sh/v1alpha1", "Job", queue="research-l4", tasks=[])
    assert demand(gang, "research").gang == "research-l4"
    assert demand(of("v1", "Pod", **pod_spec(schedulerName="volcano")), "research").gang == "default"
    assert demand(of("v1", "Pod", **pod_spec()), "research").gang is None
    queued: Any = of("v1", "Pod", **pod_spec(schedulerName="volcano"))
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    assert demand(queued, "research").gang is None  # Kueue has its quota
    several = of("batch.volcano.sh/v1alpha1", "Job", queue="research-l4", tasks=[], minAvailable=3)
    assert demand(several, "research").together == 3


def test_kueue_has_the_quota_of_jobs_where_it_runs() -> None:
    of_volcano = demand(of("batch.volcano.sh/v1alpha1", "Job", queue="research-l4", tasks=[]), "research")
    plain = demand(of("batch/v1", "Job", template={"spec": pod_spec(schedulerName="volcano")}), "research")
    assert [volcano_queue(one, kueue=True) for one in (of_volcano, plain)] == ["research-l4", None]
    assert volcano_queue(plain, kueue=False) == "default"


def test_several_documents_and_lists_are_read_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    listed = {"apiVersion": "v1", "kind": "List", "items": [job("b"), job("c")]}
    file.write_text("---\n" + yaml.safe_dump_all([job("a"), None, listed]))
    assert [each.title for each in read_demands(file, "research")] == ["Job a", "Job b", "Job c"]
    chart = ({"apiVersion": "v1", "kind": "Service"}, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"})
    file.write_text(yaml.safe_dump_all([*chart, job()]))
    assert [each.title for each in read_demands(file, "research")] == ["Job train"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "FILE: empty file; add a Pod, a Job or another workload"),
        ("- 1", "FILE: a document is not a Kubernetes object; add apiVersion, kind and metadata"),
        ("a: [", "FILE:1: invalid YAML: "),
        ("{apiVersion: v1, kind: Secret}", "Secret (v1): unsupported kind; use one of: "),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: other}}",
         "Pod p: namespace other does not match team research; run `tenancy fit other`"),
    ],
)  # fmt: skip
def test_a_file_without_pods_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(ConsoleError) as refused:
        read_demands(file, "research")
    assert words.replace("FILE", str(file)) in str(refused.value)


def test_a_demand_is_placed_in_the_teams_namespace() -> None:
    found: Demand = demand(of("v1", "Pod", **pod_spec()), "research")
    assert found.manifest["metadata"] == {"name": "x", "namespace": "research"}


def test_pods_beyond_the_guarantee_borrow_from_the_group() -> None:
    found = judged(only_gpus(job(pods=2)), Cohort=[cohort("org", nominal=8)], Node=[node("n1"), node("n2")])
    assert (found.verdict, answer(found, "queue").lines) == (
        "now",
        ("a100 nvidia.com/gpu: 16 requested, fits now by borrowing 8 (guaranteed 8, unused 8; 16 available in total)",),
    )
