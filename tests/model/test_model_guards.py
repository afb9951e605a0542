"""What the guards are told of a stack, and which exemptions are none."""

import pytest
from builders import GPU, Data, errors, job, planned, pool, stack, team

from gpu_tenancy.model.plan.guards import Bounds, GuardsPlan


def guards(**sections: object) -> GuardsPlan:
    return planned(stack(**sections)).guards


@pytest.mark.parametrize(
    ("sections", "action"),
    [
        ({"environment": "prod"}, "deny"),
        ({"environment": "prod-us"}, "deny"),
        ({"environment": "prod-us", "production": False}, "warn"),
        ({"environment": "eu", "production": True}, "deny"),
        ({"environment": "staging"}, "warn"),
        ({}, "warn"),
        ({"environment": "prod", "guards": "warn"}, "warn"),
        ({"guards": {"action": "deny"}}, "deny"),
        ({"guards": "off"}, "off"),
        ({"guards": False}, "off"),
        ({"environment": "prod", "guards": {"exempt": ["ci"]}}, "deny"),
    ],
)
def test_production_denies_and_others_warn_unless_the_stack_says_otherwise(sections: Data, action: str) -> None:
    assert guards(**sections).action == action


def test_other_exemptions_are_accepted() -> None:
    others = ["system:serviceaccounts:argo", "system:serviceaccount:ab:builder", "ci@example.com"]
    assert guards(guards={"exempt": others}).exempt == ("system:masters", "system:nodes", *others)
    assert errors(stack(guards={"action": "off", "exempt": ["system:authenticated"]})) == []


def test_only_makers_that_are_there_go_unjudged() -> None:
    usual = (
        "system:kube-controller-manager",
        "system:serviceaccounts:kube-system",
        "system:serviceaccounts:kueue-system",
    )
    assert guards().makers == usual
    assert guards().trainer is None
    with_gangs = guards(teams={"a": team(gangs={"h100": {"guaranteed": 8}})})
    assert set(with_gangs.makers) == {*usual, "system:serviceaccounts:volcano-system"}
    training = {"t": job(framework="pytorch")}
    with_trainer = guards(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training=training)})
    assert with_trainer.trainer == "system:serviceaccounts:kubeflow-system"


def test_system_namespaces_and_all_operators_are_spared() -> None:
    assert {"kube-system", "default", "kueue-system", "gpu-operator", "monitoring"} <= set(guards().spared)
    assert "watch" in guards(metrics={"histogram": "x_seconds", "prometheus": {"namespace": "watch"}}).spared


def test_the_gpus_of_the_largest_node_count_under_each_name() -> None:
    parts = {
        "small": pool("g6.12xlarge", 1),
        "large": pool("p5.48xlarge", 1),
        "cut": pool("p4de.24xlarge", 1, sharing={"mig": {"profile": "1g.10gb"}}),
        "cpu": pool("m7i.8xlarge", 1),
        "own": {
            "gpu": "npu",
            "gpusPerNode": 2,
            "resource": "example.com/npu",
            "cpu": 8,
            "memory": "64Gi",
            "nodes": 1,
            "labels": {"x": "y"},
        },
    }
    guards_plan = guards(pools=parts, teams={})
    assert guards_plan.max_per_node == {"example.com/npu": 2, GPU: 8, "nvidia.com/mig-1g.10gb": 56}
    assert guards_plan.taints == {
        "example.com/npu": ("example.com/npu",),
        "nvidia.com/gpu": (GPU,),
        "nvidia.com/mig-1g.10gb": (GPU,),
    }
    assert guards_plan.names == (
        "nvidia.com/gpu",
        "nvidia.com/mig-",
        "amd.com/gpu",
        "gpu.intel.com/",
        "deviceclass.resource.kubernetes.io/",
        "example.com/npu",
    )


def bounds(**sections: object) -> Bounds:
    priorities = {"high": 10, "low": {"value": 1, "default": True}}
    own = {"gpus": {"h100": {"guaranteed": 8}}, **sections}
    return guards(priorities=priorities, teams={"a": team(**own)}).teams["a"]


def test_a_team_may_name_the_stacks_classes_or_those_that_its_budget_counts() -> None:
    assert (bounds().classes, bounds().must_name) == (("high", "low"), False)
    counted = bounds(compute={"priorities": ["high"]})
    assert (counted.classes, counted.must_name) == (("high",), True)
    with_default = bounds(compute={"priorities": ["low"]})
    assert (with_default.classes, with_default.must_name) == (("low",), False)


def test_volcano_is_for_teams_with_gangs_or_jobs_that_start_together() -> None:
    assert (bounds().gangs, bounds().volcano) == ((), False)
    with_gangs = bounds(gangs={"a100": {"guaranteed": 1}})
    assert (with_gangs.gangs, with_gangs.volcano) == (("a-a100",), True)
    together = bounds(training={"t": job(workers=2, gang=True)})
    assert (together.gangs, together.volcano) == ((), True)


def test_the_bounds_of_a_container_are_those_of_the_namespaces_limits() -> None:
    assert (bounds().gpus, bounds().ratios) == ({}, {})
    assert bounds(containers={"max": {"gpu": 4}}).gpus == {GPU: 4}
    budget = {"requests": {"cpu": 256, "memory": "2000Gi"}, "limits": {"cpu": 384}}
    team_bounds = bounds(compute=budget)
    assert (team_bounds.ratios, team_bounds.defaults) == ({"cpu": 1.5}, {"cpu": 1500, "memory": 8 * 2**30})


def test_only_namespaces_with_a_default_of_gpus_need_requests_beside_limits() -> None:
    two = {"b": team(gpus={"a100": {"guaranteed": 8}}, containers={"max": {"gpu": 4}}), "a": team()}
    assert {name: bounds.default_gpus for name, bounds in guards(teams=two).teams.items()} == {"a": False, "b": True}


def test_the_facts_of_a_team_are_annotations_of_its_namespace() -> None:
    budget = {"requests": {"cpu": 256, "memory": "2100Gi"}, "limits": {"cpu": 384}, "priorities": ["high"]}
    own = team(
        gpus={"h100": {"guaranteed": 8}},
        gangs={"a100": {"guaranteed": 1}},
        containers={"max": {"gpu": 4}},
        compute=budget,
    )
    priorities = {"high": 10, "low": {"value": 1, "default": True}}
    made = planned(stack(priorities=priorities, teams={"a": own, "b": team(gpus={"h100": {"guaranteed": 1}})}))
    first, second = (team.namespace.annotations for team in made.teams)
    assert first == {
        f"guards.gpu-tenancy.dev/{name}": text
        for name, text in {
            "default-gpus": "0",
            "default-limits": "cpu=1500m,memory=8Gi",
            "max-gpus-per-container": f"{GPU}=4",
            "max-limit-request-ratio": "cpu=1.5",
            "priority-class-required": "true",
            "priority-classes": "high",
            "schedulers": "default-scheduler,volcano",
            "volcano-queues": "a-a100",
        }.items()
    }
    assert second == {}, "all is as in most namespaces"
