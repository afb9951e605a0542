"""What tutorials get wrong and an API server, Kueue or a scheduler rejects, or ignores in silence."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from builders import GPU, Data, errors, job, planned, pool, server, stack, team

from gpu_tenancy import kueue
from gpu_tenancy.kueue import FlavorQuotas, Policy, Preemption, Quota, ResourceGroup
from gpu_tenancy.model.plan.namespaces import LimitRange, PriorityScope, ResourceQuota
from gpu_tenancy.model.plan.queues import ClusterQueue, checked_cohort
from gpu_tenancy.model.plan.workloads import Scaling

BORROWS = (ResourceGroup((FlavorQuotas("h100", {GPU: Quota(8, 8)}),)),)
LENDS_MORE = (ResourceGroup((FlavorQuotas("h100", {GPU: Quota(8, 0, 9)}),)),)
H100 = {"h100": {"guaranteed": 8}}


def with_team(**sections: object) -> Data:
    return stack(priorities={"hi": 5, "lo": 1}, teams={"a": team(gpus=H100, **sections)})


IN_A_STACK = {
    "limits of an extended resource in a quota, which nothing counts": (
        with_team(compute={"limits.nvidia.com/gpu": 8}),
        (
            "teams.a.compute.limits.nvidia.com/gpu: a ResourceQuota ignores this key: for extended resources it"
            " supports only requests.<resource>; remove it: requests.nvidia.com/gpu is derived from the team's"
            " GPUs"
        ),
    ),
    "a workload of a priority class that is not there": (
        with_team(serving={"s": server(priority="high")}),
        "teams.a.serving.s.priority: unknown priority class 'high' (did you mean 'hi'?); use one of: hi, lo",
    ),
    "a workload of a class that its namespace does not admit": (
        with_team(priority="lo", compute={"priorities": ["hi"]}, training={"j": job()}),
        (
            "teams.a.training.j.priority: lo is not among the priority classes that the namespace allows (hi);"
            " set one of them, or add it to teams.a.compute.priorities"
        ),
    ),
    "an autoscaler on a metric that no adapter serves": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": "100ms"})}),
        (
            "teams.a.serving.s.scaleOn.latencyP99: 0.1s needs a latency metric, but the stack defines none, so"
            " the autoscaler would never scale; set metrics.histogram to the histogram (in seconds) that your"
            " servers expose, or metrics.latencyP99 to the pod metric (in seconds) that your adapter serves"
        ),
    ),
    "a latency target whose unit nobody wrote down": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 2}, scaleOn={"latencyP99": 100})}),
        (
            "teams.a.serving.s.scaleOn.latencyP99: 100 is not a duration with a unit; set a duration such as"
            " 100ms, 30s, 10m, 6h or 7d"
        ),
    ),
    "a metric whose name does not say its unit": (
        stack(metrics={"latencyP99": "inference_latency_p99"}),
        (
            "metrics.latencyP99: inference_latency_p99 does not end in _seconds, so its unit is unknown and a"
            " latency target cannot be compared with it; serve the metric in seconds, with a name such as"
            " inference_latency_p99_seconds"
        ),
    ),
    "replicas under an autoscaler": (
        with_team(serving={"s": server(replicas=3, scaleOn={"cpu": 70})}),
        (
            "teams.a.serving.s: sets scaleOn with a fixed number of replicas (3), so each deployment would"
            " override the autoscaler; set replicas: {min: …, max: …}, or remove scaleOn"
        ),
    ),
    "an image that moves": (
        with_team(training={"j": job(image="registry.example.com/train:latest")}),
        (
            "teams.a.training.j.image: registry.example.com/train:latest has no fixed tag, so nodes may run"
            " different versions; add a tag other than 'latest', or a digest"
        ),
    ),
    "an image without a tag": (
        with_team(training={"j": job(image="registry.example.com:5000/train")}),
        (
            "teams.a.training.j.image: registry.example.com:5000/train has no fixed tag, so nodes may run"
            " different versions; add a tag other than 'latest', or a digest"
        ),
    ),
    "a fraction of a GPU": (
        with_team(training={"j": job(gpus=0.5)}),
        "teams.a.training.j.gpus: 0.5 is not an integer; set an integer: GPUs per pod, as request and limit",
    ),
    "more GPUs than a node has": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 16}}, training={"j": job(gpus=16, cpu=1, memory="1Gi")})}),
        (
            "teams.a.training.j.gpus: 16 exceeds the 8 nvidia.com/gpu of a node of flavor h100; lower it, and"
            " raise workers if the job can be distributed"
        ),
    ),
    "a guarantee of more GPUs than the pools can ever have": (
        stack(teams={"a": team(gpus={"h100": {"guaranteed": 24}})}),
        (
            "teams.a.gpus.h100.guaranteed: 24 exceeds the 16 h100 GPUs of the pools (2 nodes with 8 each); lower"
            " it, or raise pools.h100.nodes.max"
        ),
    ),
    "a rollout whose surge the quota never admits": (
        with_team(serving={"s": server(replicas=8, surge=1)}),
        (
            "teams.a.serving.s.replicas: the servers on flavor h100 need 9 nvidia.com/gpu at their peak (s: 8 +"
            " 1 surge pods with 1 each), which exceeds the team's limit of 8: the last pods would stay pending;"
            " lower replicas.max or surge, or raise teams.a.gpus.h100.limit"
        ),
    ),
    "an autoscaler's maximum that the quota never admits": (
        with_team(serving={"s": server(replicas={"min": 1, "max": 9})}),
        (
            "teams.a.serving.s.replicas: the servers on flavor h100 need 9 nvidia.com/gpu at their peak (s: 9"
            " pods with 1 each), which exceeds the team's limit of 8: the last pods would stay pending; lower"
            " replicas.max or surge, or raise teams.a.gpus.h100.limit"
        ),
    ),
    "a job that waits for ever": (
        with_team(training={"j": job(gpus=8, workers=2)}),
        (
            "teams.a.training.j.workers: 2 pods need 16 nvidia.com/gpu of flavor h100 at once (8 each), which"
            " exceeds the team's limit of 8: the job would stay pending; lower the number of pods or gpus, or"
            " raise teams.a.gpus.h100.limit"
        ),
    ),
    "a job within a limit that the pools never reach": (
        stack(teams={"a": team(gpus={"h100": {"limit": 64}}, training={"j": job(gpus=8, workers=4)})}),
        (
            "teams.a.training.j.workers: 4 pods need 32 nvidia.com/gpu of flavor h100 at once, but the team can"
            " never get more than 16: the job would stay pending; lower the number of pods or gpus, or add nodes"
            " of flavor h100"
        ),
    ),
    "a budget of services below its servers": (
        with_team(objects={"services": 0}, serving={"s": server()}),
        (
            "teams.a.objects.services: 0 is less than the number of Services of the team's servers and"
            " distributed jobs (1); raise it to 1"
        ),
    ),
    "a budget of pods below its servers": (
        with_team(objects={"pods": 3}, serving={"s": server(replicas=4)}),
        (
            "teams.a.objects.pods: 3 is less than the number of pods of the team's servers at their peak and its"
            " largest job (4); raise it to 4"
        ),
    ),
    "a job of a server's name": (
        with_team(serving={"s": server()}, training={"s": job()}),
        (
            "teams.a.training.s: s is also the name of a server, whose Service would select the job's pods;"
            " rename one of them"
        ),
    ),
    "two volumes of one name": (
        stack(
            teams={"ml": team(), "ml-a": team()},
            datasets={"a-b": {"bucket": "s3://b", "teams": ["ml"]}, "b": {"bucket": "s3://b", "teams": ["ml-a"]}},
        ),
        "datasets.b: the volume of team ml-a would be named ml-a-b, like one of team ml; rename one of them",
    ),
    "two flavors that nothing tells apart": (
        stack(pools={"h100": pool(), "spare": pool()}),
        (
            "pools.spare: has the same node labels as flavor h100, so their nodes cannot be distinguished; add a"
            " distinct label under pools.spare.labels, or set the same flavor for both"
        ),
    ),
    "a flavor whose labels another's nodes have too": (
        stack(pools={"h100": pool(), "spot": pool(labels={"spot": "yes"})}),
        (
            "pools.h100: has only node labels that nodes of flavor spot have too, so its pods could run there;"
            " add a distinct label under pools.h100.labels"
        ),
    ),
    "more node labels than Kueue takes": (
        stack(pools={"h100": pool(labels={f"l{i}": "x" for i in range(8)})}),
        (
            "pools.h100.labels: has 9 node labels (with the GPU model's), but Kueue supports 8; remove labels"
            " that no workload selects nodes by"
        ),
    ),
    "the GPU's taint a second time": (
        stack(pools={"h100": pool(taints=[{"key": GPU, "value": "true"}])}),
        (
            "pools.h100.taints: flavor h100 has taint nvidia.com/gpu:NoSchedule 2 times, but a node can have it"
            " only once; remove it: GPU nodes have this taint already"
        ),
    ),
    "preempting to borrow without reclaiming": (
        with_team(preemption={"reclaimWithinCohort": "Never", "borrowWithinCohort": "LowerPriority"}),
        (
            "teams.a.preemption: borrowWithinCohort is set but reclaimWithinCohort is Never, which Kueue"
            " rejects; set reclaimWithinCohort to LowerPriority or Any, or remove borrowWithinCohort"
        ),
    ),
    "a GPU request with another limit, which no stack can say": (
        with_team(training={"j": job(gpuLimit=2)}),
        (
            "teams.a.training.j.gpuLimit: unknown key 'gpuLimit'; use one of: priority, gpus, cpu, image, groups,"
            " … (30 in total; list them with: tenancy schema)"
        ),
    ),
}


@pytest.mark.parametrize(("sections", "message"), IN_A_STACK.values(), ids=IN_A_STACK.keys())
def test_a_stack_that_makes_the_mistake_is_refused(sections: Data, message: str) -> None:
    assert errors(sections) == [message]


def queue(**changes: object) -> ClusterQueue:
    spec = kueue.ClusterQueue("a", BORROWS, "org", preemption=Preemption(reclaim=Policy.ANY))
    # pyrefly: ignore[bad-argument-type]
    return ClusterQueue(replace(spec, **changes), ("a",))


IN_A_PLAN: dict[str, tuple[Callable[[], object], str]] = {
    "limits of an extended resource in a quota": (
        lambda: ResourceQuota("b", {"limits.nvidia.com/gpu": 8}),
        "ResourceQuota b: limits.nvidia.com/gpu is never counted; use requests.nvidia.com/gpu",
    ),
    "an extended resource in a quota without its prefix": (
        lambda: ResourceQuota("b", {"nvidia.com/gpu": 8}),
        "ResourceQuota b: nvidia.com/gpu is never counted; use requests.nvidia.com/gpu",
    ),
    "services under a priority scope": (
        lambda: ResourceQuota("b", {"services": 8}, PriorityScope("In", ("hi",))),
        "ResourceQuota b: services is not supported with a PriorityClass scope; use only pods, cpu and memory",
    ),
    "storage under a priority scope": (
        lambda: ResourceQuota("b", {"requests.storage": 8}, PriorityScope("NotIn", ("hi",))),
        "ResourceQuota b: requests.storage is not supported with a PriorityClass scope; use only pods, cpu and memory",
    ),
    "a GPU maximum without defaults of 0": (
        lambda: LimitRange(default={}, default_request={}, max={GPU: 8}),
        f"LimitRange: {GPU} would be added to pods without it; set default and defaultRequest to 0",
    ),
    "a GPU default": (
        lambda: LimitRange(default={GPU: 1}, default_request={GPU: 1}),
        f"LimitRange: {GPU} would be added to pods without it; set default and defaultRequest to 0",
    ),
    "a GPU minimum": (
        lambda: LimitRange(default={}, default_request={}, min={GPU: 1}),
        f"LimitRange: {GPU} would be added to pods without it; set default and defaultRequest to 0",
    ),
    "a cpu maximum without defaults": (
        lambda: LimitRange(default={}, default_request={}, max={"cpu": 32_000}),
        "LimitRange: pods without cpu would get its max; set default and defaultRequest",
    ),
    "a borrowing limit without a cohort": (
        lambda: queue(cohort=None, preemption=Preemption()),
        "ClusterQueue a: Kueue rejects a borrowingLimit without a cohort; set cohort",
    ),
    "reclaiming without a cohort": (
        lambda: queue(cohort=None, groups=()),
        "ClusterQueue a: reclaimWithinCohort needs a cohort; set it to Never",
    ),
    "a borrowing limit on a root cohort": (
        lambda: checked_cohort(kueue.Cohort("org", None, BORROWS)),
        "Cohort org: Kueue rejects a borrowingLimit for a root cohort; remove it",
    ),
    "lending more than one has": (
        lambda: queue(groups=LENDS_MORE),
        f"ClusterQueue a: h100 {GPU}: lendingLimit 9 exceeds nominalQuota 8, which Kueue rejects; lower lendingLimit",
    ),
    "an autoscaler without a target": (
        lambda: Scaling(1, 2, None, None),
        "the autoscaler has no target; set cpu, latency or both",
    ),
    "a metric whose name does not say its unit": (
        lambda: Scaling(1, 2, None, ("latency", 0.1)),
        "metric latency does not end in _seconds, so its unit is unknown; serve it in seconds",
    ),
}


@pytest.mark.parametrize(("make", "message"), IN_A_PLAN.values(), ids=IN_A_PLAN.keys())
def test_a_piece_of_a_plan_that_makes_the_mistake_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert str(caught.value) == message


def test_a_fixed_number_of_replicas_and_an_autoscaler_exclude_each_other_in_a_plan() -> None:
    (plan,) = planned(with_team(serving={"s": server(replicas={"min": 1, "max": 2})})).teams[0].servers
    with pytest.raises(ValueError, match="set exactly one"):
        replace(plan, replicas=2)
    with pytest.raises(ValueError, match="set exactly one"):
        replace(plan, scaling=None)


@pytest.mark.parametrize("resource", [GPU, "amd.com/gpu", "gpu.intel.com/i915"])
def test_gpu_pools_are_always_tainted(resource: str) -> None:
    machine = {"cpu": 64, "memory": "512Gi", "gpu": "model-x", "gpusPerNode": 8, "nodes": 1, "resource": resource}
    plan = planned(stack(pools={"h100": machine}, teams={"a": team(gpus={"h100": {"guaranteed": 8}})}))
    (flavor,) = plan.queues.flavors
    assert [(taint.key, taint.value, taint.effect) for taint in flavor.taints] == [(resource, "present", "NoSchedule")]
    assert plan.teams[0].namespace.quotas[0].hard[f"requests.{resource}"] == 8


def test_the_bound_of_gpus_gives_none_to_pods_that_ask_for_none() -> None:
    limits = planned(with_team(containers={"max": {"gpu": 8}})).teams[0].namespace.limits
    assert (limits.max[GPU], limits.default[GPU], limits.default_request[GPU]) == (8, 0, 0)


def test_without_a_bound_of_gpus_a_namespace_has_no_default_that_a_queue_could_take_for_a_request() -> None:
    limits = planned(with_team()).teams[0].namespace.limits
    assert GPU not in {*limits.max, *limits.default, *limits.default_request}


def test_a_budget_of_requests_and_limits_bounds_the_ratio() -> None:
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
    sections = {"serving": {"api": server(replicas=5)}}
    owner = team(gpus={"h100": {"guaranteed": 8}}, **sections)
    assert errors(stack(teams={"a": owner})) == []
    shared = stack(teams={"a": owner, "b": team(queue="a", **sections)})
    (problem,) = errors(shared)
    assert problem == (
        "teams.a.serving.api.replicas: the servers on flavor h100 need 10 nvidia.com/gpu at their peak (api: 5"
        " pods with 1 each, api: 5 pods with 1 each), which exceeds the team's limit of 8: the last pods would"
        " stay pending; lower replicas.max or surge, or raise teams.a.gpus.h100.limit"
    )


def test_shared_memory_beyond_the_pods_memory_is_refused_and_within_it_is_not() -> None:
    fits = with_team(training={"j": job(memory="64Gi", sharedMemory="32Gi")})
    assert errors(fits) == []
    (problem,) = errors(with_team(training={"j": job(memory="64Gi", sharedMemory="65Gi")}))
    assert problem == (
        "teams.a.training.j.sharedMemory: 65Gi exceeds the pod's memory (64Gi), so the pod could be OOM-killed;"
        " lower it, or raise memory"
    )
