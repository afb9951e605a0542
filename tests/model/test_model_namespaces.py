"""Quotas and limits of namespaces, counts of objects, and plans that an API server would reject."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from builders import FEW_CPUS, GPU, Data, errors, job, planned, pool, server, stack, team

from gpu_tenancy import kueue
from gpu_tenancy.kueue import FlavorQuotas, Policy, Preemption, Quota, ResourceGroup
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.plan.namespaces import DEFAULTS, OTHERS, WORKLOADS, LimitRange, ResourceQuota
from gpu_tenancy.model.plan.queues import ClusterQueue, checked_cohort
from gpu_tenancy.model.plan.workloads import Scaling

BORROWS = (ResourceGroup((FlavorQuotas("h100", {GPU: Quota(8, 8)}),)),)
LENDS_MORE = (ResourceGroup((FlavorQuotas("h100", {GPU: Quota(8, 0, 9)}),)),)
H100 = {"h100": {"guaranteed": 8}}


def with_team(**sections: object) -> Data:
    return stack(priorities={"hi": 5, "lo": 1}, teams={"a": team(gpus=H100, **sections)})


def queue(**changes: object) -> ClusterQueue:
    spec = kueue.ClusterQueue("a", BORROWS, "org", preemption=Preemption(reclaim=Policy.ANY))
    # pyrefly: ignore[bad-argument-type]
    return ClusterQueue(replace(spec, **changes), ("a",))


UNCOUNTED = "is never counted; use requests.nvidia.com/gpu"
UNSCOPED = "is not supported with a PriorityClass scope; use only pods, cpu and memory"
ADDED = f"LimitRange: {GPU} would be added to pods without it; set default and defaultRequest to 0"
IN_A_PLAN: list[tuple[Callable[[], object], str]] = [
    (lambda: ResourceQuota("b", {"limits.nvidia.com/gpu": 8}), f"ResourceQuota b: limits.nvidia.com/gpu {UNCOUNTED}"),
    (lambda: ResourceQuota("b", {"nvidia.com/gpu": 8}), f"ResourceQuota b: nvidia.com/gpu {UNCOUNTED}"),
    (lambda: ResourceQuota("b", {"services": 8}, ("In", ("hi",))), f"ResourceQuota b: services {UNSCOPED}"),
    (lambda: ResourceQuota("b", {"requests.storage": 8}, ("NotIn", ("hi",))),
     f"ResourceQuota b: requests.storage {UNSCOPED}"),
    (lambda: LimitRange(default={}, default_request={}, max={GPU: 8}), ADDED),
    (lambda: LimitRange(default={GPU: 1}, default_request={GPU: 1}), ADDED),
    (lambda: LimitRange(default={}, default_request={}, min={GPU: 1}), ADDED),
    (lambda: LimitRange(default={}, default_request={}, max={"cpu": 32_000}),
     "LimitRange: pods without cpu would get its max; set default and defaultRequest"),
    (lambda: queue(cohort=None, preemption=Preemption()),
     "ClusterQueue a: Kueue rejects a borrowingLimit without a cohort; set cohort"),
    (lambda: queue(cohort=None, groups=()), "ClusterQueue a: reclaimWithinCohort needs a cohort; set it to Never"),
    (lambda: checked_cohort(kueue.Cohort("org", None, BORROWS)),
     "Cohort org: Kueue rejects a borrowingLimit for a root cohort; remove it"),
    (
        lambda: queue(groups=LENDS_MORE),
        f"ClusterQueue a: h100 {GPU}: lendingLimit 9 exceeds nominalQuota 8, which Kueue rejects; lower lendingLimit",
    ),
    (lambda: Scaling(1, 2, None, None), "the autoscaler has no target; set cpu, latency or both"),
    (lambda: Scaling(1, 2, None, ("latency", 0.1)),
     "metric latency does not end in _seconds, so its unit is unknown; serve it in seconds"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), IN_A_PLAN)
def test_a_piece_of_a_plan_that_makes_the_mistake_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        make()
    assert str(caught.value) == message


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
    unbound = planned(with_team()).teams[0].namespace.limits
    assert GPU not in {*unbound.max, *unbound.default, *unbound.default_request}


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
def test_container_defaults_lie_within_bounds(containers: Data) -> None:
    limits = planned(with_team(containers=containers)).teams[0].namespace.limits
    for resource in ("cpu", "memory"):
        least, most = limits.min.get(resource, 0), limits.max.get(resource, 2**62)
        assert least <= limits.default_request[resource] <= limits.default[resource] <= most


def test_a_ratio_beyond_max_to_min_is_left_out() -> None:
    compute = {"requests": {"cpu": 300}, "limits": {"cpu": 900}}
    containers = {"default": {"cpu": 2}, "defaultRequest": {"cpu": 1}, "min": {"cpu": 1}, "max": {"cpu": 2}}
    limits = planned(with_team(compute=compute, containers=containers)).teams[0].namespace.limits
    assert limits.ratio == {}


# Counts of objects.

GUARANTEE: Data = {"h100": {"guaranteed": 8}}


def counts_of(sections: Data, name: str = "a") -> dict[str, int]:
    namespace = next(made.namespace for made in planned(sections).teams if made.namespace.name == name)
    return dict(namespace.quotas[0].hard)


def test_teams_have_counts_of_every_kind_that_runs() -> None:
    jobs = {
        "t": job(framework="pytorch", workers=2),
        "s": job(framework="jobset"),
        "r": job(framework="ray", command=["true"]),
    }
    groups = {"g": server(nodes=2, gpus=1)}
    counts = counts_of(stack(teams={"a": team(gpus=GUARANTEE, quota=FEW_CPUS, training=jobs, serving=groups)}))
    derived = {"children", "cronjobs", "jobs", "others"}
    plain = {key: amount for key, amount in DEFAULTS.items() if key not in derived}
    assert {key: counts[key] for key in counts.keys() & DEFAULTS} == plain
    installed = {None, "trainer", "kuberay", "lws"}
    own = {"", "apps", "batch"}
    expected = {
        f"count/{kind.resource}"
        for kind in kinds().values()
        if kind.guarded
        and kind.resource != "pods"
        and kind.operator in installed
        and (kind.operator or kind.group in own)
    }
    assert {name for name in counts if name.startswith("count/")} == {*expected, *OTHERS, WORKLOADS}
    assert {
        "count/jobs.batch",
        "count/jobsets.jobset.x-k8s.io",
        "count/leaderworkersets.leaderworkerset.x-k8s.io",
    } <= expected


def test_kinds_of_operators_that_do_not_run_are_not_counted() -> None:
    off = {"trainer": {"install": "off"}, "kuberay": {"install": "off"}, "lws": {"install": "off"}}
    counts = counts_of(stack(operators=off))
    groups = {name.partition(".")[2] for name in counts if name.startswith("count/") and name not in OTHERS}
    assert groups == {"", "apps", "batch", "kueue.x-k8s.io"}


def test_counts_follow_the_keys_of_objects() -> None:
    objects = {"jobs": 7, "pods": 20, "cronjobs": 3, "others": 5}
    counts = counts_of(stack(teams={"a": team(gpus=GUARANTEE, objects=objects)}))
    of_kinds = {name: counts[name] for name in counts if name.startswith("count/") and name != WORKLOADS}
    others = {name: of_kinds.pop(name) for name in OTHERS}
    assert counts[WORKLOADS] == 7 * len(of_kinds) + counts["pods"]
    assert of_kinds["count/deployments.apps"] == 7
    assert of_kinds["count/cronjobs.batch"] == 3
    assert of_kinds["count/jobs.batch"] == of_kinds["count/statefulsets.apps"] == 27, "controllers create them too"
    assert others == {**dict.fromkeys(OTHERS, 5), "count/resourceclaims.resource.k8s.io": 165}, (
        "controllers create claims too"
    )


@pytest.mark.parametrize(("objects", "most"), [({}, 60), ({"children": 30}, 30)])
def test_bounds_of_one_object_fit_the_stack(objects: Data, most: int) -> None:
    groups = server(nodes=2, gpus=1, replicas=30, cpu=1, memory="1Gi")
    guarantee = {"h100": {"guaranteed": 64}}
    pools = {"h100": pool("p5.48xlarge", 8), "cpu": pool("m7i.8xlarge", 1)}
    sections = stack(pools=pools, teams={"a": team(gpus=guarantee, serving={"g": groups}, objects=objects)})
    assert planned(sections).teams[0].namespace.sizes == {"pods": 3000, "children": most}


def test_default_counts_fit_the_stack_twice() -> None:
    pools = {"cpu": pool("m7i.8xlarge", 500)}
    many = server(gpus=0, replicas=4000, cpu=1, memory="1Gi")
    sections = stack(pools=pools, teams={"a": team(quota={"cpu": {"cpu": {"guaranteed": 8000}}}, serving={"s": many})})
    assert counts_of(sections)["pods"] == 8000


def test_own_labels_replace_none_of_the_platform() -> None:
    (space,) = [one.namespace for one in planned(stack(teams={"a": team(gpus=H100)})).teams]
    for section, keys in (("labels", space.labels), ("annotations", space.annotations)):
        for key in keys:
            assert "is a key that the platform sets" in errors(with_team(**{section: {key: "x"}}))[0], key
    assert errors(with_team(labels=dict.fromkeys(("app.kubernetes.io/part-of", "istio.io/rev", "unit"), "x"))) == []
