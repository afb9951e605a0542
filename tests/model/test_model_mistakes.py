"""What tutorials get wrong and an API server, Kueue or a scheduler rejects, or ignores in silence."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from builders import GPU, Data, errors, job, planned, pool, server, stack, team

from gpu_tenancy.model.plan.namespaces import LimitRange, PriorityScope, ResourceQuota
from gpu_tenancy.model.plan.queues import ClusterQueue, CohortQueue, FlavorQuota, ResourceLine
from gpu_tenancy.model.plan.workloads import Scaling
from gpu_tenancy.model.spec.teams import Preemption

BORROWS = (FlavorQuota("h100", (ResourceLine(GPU, 8, 8),)),)
H100 = {"h100": {"guaranteed": 8}}
OTHER = Preemption.model_validate({"reclaimWithinCohort": "Never"})


def with_team(**sections: object) -> Data:
    return stack(priorities={"hi": 5, "lo": 1}, teams={"a": team(gpus=H100, **sections)})


IN_A_STACK = {
    "limits of an extended resource in a quota, which nothing counts": (
        with_team(compute={"limits.nvidia.com/gpu": 8}),
        (
            "teams.a.compute.limits.nvidia.com/gpu: is counted by no quota: extended resources take only the"
            " prefix requests., and limits. is ignored in silence; leave it out: requests.nvidia.com/gpu follows"
            " from the team's GPUs"
        ),
    ),
    "a workload of a priority class that is not there": (
        with_team(serving={"s": server(priority="high")}),
        "teams.a.serving.s.priority: high is no priority class of priorities; did you mean 'hi'? Known: hi, lo",
    ),
    "a workload of a class that its namespace does not admit": (
        with_team(priority="lo", compute={"priorities": ["hi"]}, training={"j": job()}),
        (
            "teams.a.training.j.priority: lo is none of hi, and the namespace admits no other; name one of them,"
            " or add it to teams.a.compute.priorities"
        ),
    ),
    "an autoscaler on a metric that no adapter serves": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": "100ms"})}),
        (
            "teams.a.serving.s.scaleOn.latencyP99: 0.1s is a custom metric that no adapter serves, so the"
            " autoscaler would never act on it; name the histogram in seconds that your servers expose as"
            " metrics.histogram, or the pod metric in seconds that your adapter serves as metrics.latencyP99"
        ),
    ),
    "a latency target whose unit nobody wrote down": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": 100})}),
        (
            "teams.a.serving.s.scaleOn.latencyP99: 100 is no length of time with its unit; write for example"
            " 100ms, 30s, 10m, 6h or 7d"
        ),
    ),
    "a metric whose name does not say its unit": (
        stack(metrics={"latencyP99": "inference_latency_p99"}),
        (
            "metrics.latencyP99: inference_latency_p99 does not say its unit, and a latency target of 100ms is"
            " compared with whatever it counts; serve it in seconds under a name that ends in _seconds, such as"
            " inference_latency_p99_seconds"
        ),
    ),
    "replicas under an autoscaler": (
        with_team(serving={"s": server(replicas=3, scaleOn={"cpu": 70})}),
        (
            "teams.a.serving.s: has a fixed number of replicas (3) under an autoscaler, so each deployment would"
            " reset it; write replicas: {min: …, max: …}, or leave scaleOn out"
        ),
    ),
    "an image that moves": (
        with_team(training={"j": job(image="registry.example.com/train:latest")}),
        (
            "teams.a.training.j.image: registry.example.com/train:latest names no fixed version of the image, so"
            " two nodes may run two programs; pin it: a tag that is not 'latest', or a digest"
        ),
    ),
    "an image without a tag": (
        with_team(training={"j": job(image="registry.example.com:5000/train")}),
        (
            "teams.a.training.j.image: registry.example.com:5000/train names no fixed version of the image, so"
            " two nodes may run two programs; pin it: a tag that is not 'latest', or a digest"
        ),
    ),
    "a fraction of a GPU": (
        with_team(training={"j": job(gpus=0.5)}),
        "teams.a.training.j.gpus: 0.5 is no whole number; it says: GPUs of each pod, request and limit alike",
    ),
    "more GPUs than a node has": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 16}}, training={"j": job(gpus=16, cpu=1, memory="1Gi")})}),
        (
            "teams.a.training.j.gpus: 16 is more than the 8 nvidia.com/gpu of a node of h100; lower it, and raise"
            " workers where the work can be split"
        ),
    ),
    "a guarantee of more GPUs than the pools can ever have": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 24}})}),
        (
            "teams.a.gpus.h100.guaranteed: 24 is more than the 16 h100 that its pools can have (2 nodes of 8);"
            " lower it or raise pools.h100.nodes.max"
        ),
    ),
    "a rollout whose surge the quota never admits": (
        with_team(serving={"s": server(replicas=8, surge=1)}),
        (
            "teams.a.serving.s.replicas: the servers on h100 need 9 nvidia.com/gpu at their peak (s 8 + 1 surge"
            " pods of 1), but the team's limit is 8, so the last pods would never start; lower replicas.max or"
            " surge, or raise teams.a.gpus.h100.limit"
        ),
    ),
    "an autoscaler's maximum that the quota never admits": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 9})}),
        (
            "teams.a.serving.s.replicas: the servers on h100 need 9 nvidia.com/gpu at their peak (s 9 pods of 1),"
            " but the team's limit is 8, so the last pods would never start; lower replicas.max or surge, or"
            " raise teams.a.gpus.h100.limit"
        ),
    ),
    "a job that waits for ever": (
        with_team(training={"j": job(gpus=8, workers=2)}),
        (
            "teams.a.training.j.workers: 2 need 16 nvidia.com/gpu of h100 at once (2 pods of 8), but the team's"
            " limit is 8, so it would wait for ever; lower them, or gpus, or raise teams.a.gpus.h100.limit"
        ),
    ),
    "a job within a limit that the pools never reach": (
        stack(teams={"a": team(gpus={"h100": {"limit": 64}}, training={"j": job(gpus=8, workers=4)})}),
        (
            "teams.a.training.j.workers: 4 need 32 nvidia.com/gpu of h100 at once, but all that others leave the"
            " team is 16, so it would wait for ever; lower them, or gpus, or raise what there is of h100"
        ),
    ),
    "a budget of services below its servers": (
        with_team(objects={"services": 0}, serving={"s": server()}),
        "teams.a.objects.services: 0 is less than the 1 services of its servers and distributed jobs; raise it to 1",
    ),
    "a budget of pods below its servers": (
        with_team(objects={"pods": 3}, serving={"s": server(replicas=4)}),
        (
            "teams.a.objects.pods: 3 is less than the 4 pods of its servers at their peak and its largest job;"
            " raise it to 4"
        ),
    ),
    "a job of a server's name": (
        with_team(serving={"s": server()}, training={"s": job()}),
        (
            "teams.a.training.s: s is a server's name too, whose Service would send its callers to the job's pods; name"
            " one of them otherwise"
        ),
    ),
    "two volumes of one name": (
        stack(
            teams={"ml": team(), "ml-a": team()},
            datasets={"a-b": {"bucket": "s3://b", "teams": ["ml"]}, "b": {"bucket": "s3://b", "teams": ["ml-a"]}},
        ),
        "datasets.b: gives team ml-a a volume of the name ml-a-b, which team ml has already; rename one of them",
    ),
    "two flavors that nothing tells apart": (
        stack(pools={"h100": pool(), "spare": pool()}),
        (
            "pools.spare: has the same node labels as flavor h100, so nothing tells their nodes apart; give it a"
            " label of its own under pools.spare.labels, or the same flavor"
        ),
    ),
    "a flavor whose labels another's nodes have too": (
        stack(pools={"h100": pool(), "spot": pool(labels={"spot": "yes"})}),
        (
            "pools.h100: has only node labels that nodes of flavor spot have too, so its pods would land there;"
            " give it a label of its own under pools.h100.labels"
        ),
    ),
    "more node labels than Kueue takes": (
        stack(pools={"h100": pool(labels={f"l{i}": "x" for i in range(8)})}),
        (
            "pools.h100.labels: has 9 node labels, its GPU's model among them, and Kueue takes 8; leave out those"
            " that no workload chooses its nodes by"
        ),
    ),
    "the GPU's taint a second time": (
        stack(pools={"h100": pool(taints=[{"key": GPU, "value": "true"}])}),
        (
            "pools.h100.taints: taints flavor h100 with nvidia.com/gpu:NoSchedule 2 times, and a node may have it"
            " once; leave it out: GPU nodes have it already"
        ),
    ),
    "preempting to borrow without reclaiming": (
        with_team(preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": "LowerPriority"}),
        (
            "teams.a.preemption: preempts to borrow but never to reclaim, which Kueue rejects; set"
            " reclaimWithinCohort to LowerPriority or Any, or leave borrowWithinCohort out"
        ),
    ),
    "a GPU request with another limit, which no stack can say": (
        with_team(training={"j": job(gpuLimit=2)}),
        (
            "teams.a.training.j.gpuLimit: is no key here; known: args, command, cpu, deadline, env, flavor,"
            " framework, gpus, image, keep, memory, priority, retries, scheduler, sharedMemory, tasks, together,"
            " workers"
        ),
    ),
}


@pytest.mark.parametrize(("sections", "message"), IN_A_STACK.values(), ids=IN_A_STACK.keys())
def test_a_stack_that_makes_the_mistake_is_refused(sections: Data, message: str) -> None:
    assert errors(sections) == [message]


def queue(**changes: object) -> ClusterQueue:
    return replace(ClusterQueue("a", "org", ("a",), BORROWS, Preemption()), **changes)


IN_A_PLAN: dict[str, tuple[Callable[[], object], str]] = {
    "limits of an extended resource in a quota": (
        lambda: ResourceQuota("b", {"limits.nvidia.com/gpu": 8}),
        "quota b: limits.nvidia.com/gpu is never counted; write requests.nvidia.com/gpu",
    ),
    "an extended resource in a quota without its prefix": (
        lambda: ResourceQuota("b", {"nvidia.com/gpu": 8}),
        "quota b: nvidia.com/gpu is never counted; write requests.nvidia.com/gpu",
    ),
    "services under a priority scope": (
        lambda: ResourceQuota("b", {"services": 8}, PriorityScope("In", ("hi",))),
        "quota b: services under a priority scope, which counts only pods and compute",
    ),
    "storage under a priority scope": (
        lambda: ResourceQuota("b", {"requests.storage": 8}, PriorityScope("NotIn", ("hi",))),
        "quota b: requests.storage under a priority scope, which counts only pods and compute",
    ),
    "a GPU maximum without defaults of 0": (
        lambda: LimitRange(default={}, default_request={}, max={GPU: 8}),
        f"{GPU} needs default and defaultRequest of 0, or each pod that asks for none gets some",
    ),
    "a GPU default": (
        lambda: LimitRange(default={GPU: 1}, default_request={GPU: 1}),
        f"{GPU} needs default and defaultRequest of 0, or each pod that asks for none gets some",
    ),
    "a GPU minimum": (
        lambda: LimitRange(default={}, default_request={}, min={GPU: 1}),
        f"{GPU} needs default and defaultRequest of 0, or each pod that asks for none gets some",
    ),
    "a cpu maximum without defaults": (
        lambda: LimitRange(default={}, default_request={}, max={"cpu": 32_000}),
        "cpu has a max without default and defaultRequest, and each pod that names none gets all",
    ),
    "a borrowing limit without a cohort": (
        lambda: queue(cohort=None, preemption=OTHER),
        "queue a: a borrowingLimit without a cohort, which Kueue rejects; name its cohort",
    ),
    "reclaiming without a cohort": (
        lambda: queue(cohort=None, quotas=()),
        "queue a: reclaimWithinCohort without a cohort has nobody to take from; set it to Never",
    ),
    "a borrowing limit on a root cohort": (
        lambda: CohortQueue("org", None, BORROWS),
        "cohort org: a borrowingLimit on a root cohort, which Kueue rejects; leave it out",
    ),
    "lending more than one has": (
        lambda: ResourceLine(GPU, 8, 0, 9),
        f"{GPU}: lendingLimit 9 is above nominalQuota 8, which Kueue rejects",
    ),
    "an autoscaler without a target": (
        lambda: Scaling(1, 2, None, None),
        "an autoscaler needs a target: cpu, latency or both",
    ),
    "a metric whose name does not say its unit": (
        lambda: Scaling(1, 2, None, ("latency", 0.1)),
        "metric latency does not say its unit; serve it in seconds, as …_seconds",
    ),
}


@pytest.mark.parametrize(("make", "message"), IN_A_PLAN.values(), ids=IN_A_PLAN.keys())
def test_a_piece_of_a_plan_that_makes_the_mistake_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert str(caught.value) == message


def test_a_fixed_number_of_replicas_and_an_autoscaler_exclude_each_other_in_a_plan() -> None:
    (made,) = planned(with_team(serving={"s": server(replicas={"min": 1, "max": 2})})).teams[0].servers
    with pytest.raises(ValueError, match="not both and not neither"):
        replace(made, replicas=2)
    with pytest.raises(ValueError, match="not both and not neither"):
        replace(made, scaling=None)


@pytest.mark.parametrize("resource", [GPU, "amd.com/gpu", "gpu.intel.com/i915"])
def test_a_pool_of_gpus_is_always_tainted_whoever_makes_them(resource: str) -> None:
    machine = {"cpu": 64, "memory": "512Gi", "gpu": "model-x", "gpusPerNode": 8, "nodes": 1, "resource": resource}
    made = planned(stack(pools={"h100": machine}, teams={"a": team(gpus={"h100": {"guaranteed": 8}})}))
    (flavor,) = made.queues.flavors
    assert [(taint.key, taint.value, taint.effect) for taint in flavor.taints] == [(resource, "present", "NoSchedule")]
    assert made.teams[0].namespace.quotas[0].hard[f"requests.{resource}"] == 8


def test_the_bound_of_gpus_gives_none_to_pods_that_ask_for_none() -> None:
    limits = planned(with_team(containers={"max": {"gpu": 8}})).teams[0].namespace.limits
    assert (limits.max[GPU], limits.default[GPU], limits.default_request[GPU]) == (8, 0, 0)


def test_without_a_bound_of_gpus_a_namespace_has_no_default_that_a_queue_could_take_for_a_request() -> None:
    limits = planned(with_team()).teams[0].namespace.limits
    assert GPU not in {*limits.max, *limits.default, *limits.default_request}


def test_a_namespaces_budget_of_both_bounds_the_ratio_so_that_limits_never_refuse_what_requests_admit() -> None:
    compute = {"requests": {"cpu": 300, "memory": "4Ti"}, "limits": {"cpu": 450, "memory": "8Ti"}}
    limits = planned(with_team(compute=compute)).teams[0].namespace.limits
    assert limits.ratio == {"cpu": Fraction(3, 2), "memory": Fraction(2)}
    assert limits.default["cpu"] <= limits.default_request["cpu"] * Fraction(3, 2)


@pytest.mark.parametrize(
    "containers",
    [
        {"default": {"memory": "8Gi"}, "max": {"cpu": 1}},
        {"defaultRequest": {"memory": "4Gi"}, "min": {"cpu": 2}},
        {"default": {}, "defaultRequest": {}, "min": {"cpu": 3}, "max": {"cpu": 3, "memory": "1Gi"}},
        {},
    ],
)
def test_the_defaults_of_a_container_lie_within_its_bounds_as_the_api_server_demands(containers: Data) -> None:
    limits = planned(with_team(containers=containers)).teams[0].namespace.limits
    for resource in ("cpu", "memory"):
        least, most = limits.min.get(resource, 0), limits.max.get(resource, 2**62)
        assert least <= limits.default_request[resource] <= limits.default[resource] <= most


def test_a_ratio_looser_than_max_to_min_is_left_out_since_the_api_server_refuses_it() -> None:
    compute = {"requests": {"cpu": 300}, "limits": {"cpu": 900}}
    containers = {"default": {"cpu": 2}, "defaultRequest": {"cpu": 1}, "min": {"cpu": 1}, "max": {"cpu": 2}}
    limits = planned(with_team(compute=compute, containers=containers)).teams[0].namespace.limits
    assert limits.ratio == {}


def test_pods_without_a_class_have_the_default_one_and_are_admitted() -> None:
    sections = with_team(compute={"priorities": ["hi"]}, serving={"s": server()})
    sections["priorities"] = {"hi": {"value": 5, "default": True}}
    assert errors(sections) == []


def test_servers_of_teams_that_share_a_queue_count_together_against_its_limit() -> None:
    each = {"serving": {"api": server(replicas=5)}}
    owner = team(gpus={"h100": {"guaranteed": 8}}, **each)
    assert errors(stack(teams={"a": owner})) == []
    shared = stack(teams={"a": owner, "b": team(queue="a", **each)})
    (found,) = errors(shared)
    assert found == (
        "teams.a.serving.api.replicas: the servers on h100 need 10 nvidia.com/gpu at their peak (api 5 pods of 1, api 5"
        " pods of 1), but the team's limit is 8, so the last pods would never start; lower replicas.max or surge, or"
        " raise teams.a.gpus.h100.limit"
    )


def test_shared_memory_beyond_the_pods_memory_is_refused_and_within_it_is_not() -> None:
    fits = with_team(training={"j": job(memory="64Gi", sharedMemory="32Gi")})
    assert errors(fits) == []
    (found,) = errors(with_team(training={"j": job(memory="64Gi", sharedMemory="65Gi")}))
    assert found == (
        "teams.a.training.j.sharedMemory: 65Gi is part of the pod's memory, which is 64Gi, so a pod that filled it"
        " would end; lower it, or raise memory"
    )
