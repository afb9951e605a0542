"""Production, and the guards' facts about a stack."""

import ast
from collections.abc import Iterator

import pytest
from builders import GPU, Data, errors, job, planned, pool, stack, stack_of, team
from repository import ROOT

from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.guards import FACTS, Bounds, GuardsPlan, is_allowed, own_images

DEFINITION = ROOT / "gpu_tenancy" / "model" / "spec" / "__init__.py"


@pytest.mark.parametrize(
    ("sections", "production"),
    [
        ({"environment": "prod"}, True),
        ({"environment": "prod-us"}, True),
        ({"environment": "production-eu"}, True),
        ({"environment": "live"}, True),
        ({"environment": "prd-eu"}, True),
        ({"environment": "dev"}, False),
        ({"environment": "staging"}, False),
        ({}, False),
        ({"environment": "prod-us", "production": False}, False),
        ({"environment": "eu", "production": True}, True),
        ({"environment": "eu", "production": "true"}, True),
    ],
)
def test_protection_guards_and_summary_agree(sections: Data, production: bool) -> None:  # noqa: FBT001
    given = stack(**sections)
    loaded, plan = stack_of(given), planned(given)
    action = "deny" if production else "warn"
    assert (loaded.is_production, plan.cluster.protect, plan.guards.action) == (production, production, action)
    kind = "production (protected" if production else "not production (not protected"
    assert outlook(loaded).standing == f"environment {loaded.environment}: {kind}, guards {action})"


def judges(tree: ast.AST) -> Iterator[int]:
    """Lines that depend on an environment's name: compare it with a constant, or call a method of its string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            constants = (ast.unparse(side).isupper() or any(_text(part) for part in ast.walk(side)) for side in sides)
            if any(map(_environment, sides)) and any(constants):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _environment(node.func.value):
            yield node.lineno


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environment"


def test_only_the_definition_judges_an_environment_by_its_name() -> None:
    folders = (ROOT / name for name in ("gpu_tenancy", "components", "policy", "provider"))
    files = [file for folder in folders for file in folder.rglob("*.py") if file != DEFINITION]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    naming = {file: text for file, text in texts.items() if ".environment" in text}
    found = [f"{file}:{line}" for file, text in naming.items() for line in judges(ast.parse(text))]
    assert naming
    assert not found
    old = "stack.environment == PROTECTED; stack.environment == 'prod'; stack.environment.startswith('prod')"
    assert len(list(judges(ast.parse(old)))) == len(old.split("; "))


# The guards.


def guards(**sections: object) -> GuardsPlan:
    return planned(stack(**sections)).guards


@pytest.mark.parametrize(
    ("sections", "action"),
    [
        ({"environment": "prod", "guards": "warn"}, "warn"),
        ({"guards": {"action": "deny"}}, "deny"),
        ({"guards": "off"}, "off"),
        ({"guards": False}, "off"),
        ({"environment": "prod", "guards": {"exempt": ["ci"]}}, "deny"),
    ],
)
def test_an_action_of_the_stack_goes_before_that_of_production(sections: Data, action: str) -> None:
    assert guards(**sections).action == action


def test_other_exemptions_are_accepted() -> None:
    others = ["system:serviceaccounts:argo", "system:serviceaccount:ab:builder", "ci@example.com"]
    assert guards(guards={"exempt": others}).exempt == ("system:masters", "system:nodes", *others)
    assert errors(stack(guards={"action": "off", "exempt": ["system:authenticated"]})) == []


def test_only_makers_that_are_there_go_unjudged() -> None:
    namespaces = ("kube-system", "kueue-system")
    usual = ("system:kube-controller-manager", *(f"system:serviceaccounts:{name}" for name in namespaces))
    assert guards().makers == usual
    assert guards().trainer is None
    with_gangs = guards(teams={"a": team(gangs={"h100": {"guaranteed": 8}})})
    assert set(with_gangs.makers) == {*usual, "system:serviceaccounts:volcano-system"}
    training = {"t": job(framework="pytorch")}
    with_trainer = guards(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training=training)})
    assert with_trainer.trainer == "system:serviceaccounts:kubeflow-system"


def test_system_namespaces_and_all_operators_are_spared() -> None:
    assert {"kube-system", "default", "kueue-system", "gpu-operator", "monitoring"} <= set(guards().spared)
    watched = {"operators": {"prometheus": "installed"}, "metrics": {"prometheus": {"namespace": "watch"}}}
    assert "watch" in guards(**watched).spared


def test_the_gpus_of_the_largest_node_count_under_each_name() -> None:
    size = {"cpu": 8, "memory": "64Gi", "nodes": 1}
    parts = {
        "small": pool("g6.12xlarge", 1),
        "large": pool("p5.48xlarge", 1),
        "cut": pool("p4de.24xlarge", 1, sharing={"mig": {"profile": "1g.10gb"}}),
        "cpu": pool("m7i.8xlarge", 1),
        "own": {"gpu": "npu", "gpusPerNode": 2, "resource": "example.com/npu", **size, "labels": {"x": "y"}},
    }
    guards_plan = guards(pools=parts, teams={})
    assert guards_plan.max_per_node == {"example.com/npu": 2, GPU: 8, "nvidia.com/mig-1g.10gb": 56}
    own = "example.com/npu"
    assert guards_plan.taints == {own: (own,), "nvidia.com/gpu": (GPU,), "nvidia.com/mig-1g.10gb": (GPU,)}
    prefixes = "nvidia.com/gpu nvidia.com/mig- amd.com/gpu gpu.intel.com/ deviceclass.resource.kubernetes.io/"
    assert guards_plan.names == (*prefixes.split(), own)


def bounds(**sections: object) -> Bounds:
    priorities = {"high": 10, "low": {"value": 1, "default": True}}
    own = {"gpus": {"h100": {"guaranteed": 8}}, **sections}
    return guards(priorities=priorities, teams={"a": team(**own)}).teams["a"]


def test_teams_name_the_classes_that_their_budget_counts() -> None:
    assert (bounds().classes, bounds().must_name) == (("high", "low"), False)
    counted = bounds(compute={"priorities": ["high"]})
    assert (counted.classes, counted.must_name) == (("high",), True)
    with_default = bounds(compute={"priorities": ["low"]})
    assert (with_default.classes, with_default.must_name) == (("low",), False)


def facts(made: Bounds) -> dict[str, str]:
    """The annotations of the team's Namespace, without their prefix."""
    return {key.removeprefix(FACTS): text for key, text in made.annotations.items()}


def test_only_teams_with_gangs_use_volcano() -> None:
    assert facts(bounds()) == {}
    both = {"schedulers": "default-scheduler,volcano"}
    nodes = "a-a100=nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"
    own = {"volcano-nodes": nodes, "volcano-queues": "a-a100"}
    assert facts(bounds(gangs={"a100": {"guaranteed": 1}})) == {**both, **own}
    assert facts(bounds(training={"t": job(workers=2, gang=True)})) == both


def test_bounds_of_containers_are_those_of_the_limits() -> None:
    assert facts(bounds()) == {}
    assert facts(bounds(containers={"max": {"gpu": 4}}))["max-gpus-per-container"] == f"{GPU}=4"
    budget = {"requests": {"cpu": 256, "memory": "2000Gi"}, "limits": {"cpu": 384}}
    own = facts(bounds(compute=budget))
    assert (own["max-limit-request-ratio"], own["default-limits"]) == ("cpu=1.5", "cpu=1500m,memory=8Gi")


def test_only_a_default_of_gpus_needs_requests_beside_limits() -> None:
    two = {"b": team(gpus={"a100": {"guaranteed": 8}}, containers={"max": {"gpu": 4}}), "a": team()}
    teams = guards(teams=two).teams
    assert {name: own.namespace.limits.gives_gpus for name, own in teams.items()} == {"a": False, "b": True}


def test_the_facts_of_a_team_are_annotations_of_its_namespace() -> None:
    budget = {"requests": {"cpu": 256, "memory": "2100Gi"}, "limits": {"cpu": 384}, "priorities": ["high"]}
    gpus = {"gpus": {"h100": {"guaranteed": 8}}, "gangs": {"a100": {"guaranteed": 1}}}
    own = team(**gpus, containers={"max": {"gpu": 4}}, compute=budget)
    priorities = {"high": 10, "low": {"value": 1, "default": True}}
    made = planned(stack(priorities=priorities, teams={"a": own, "b": team(gpus={"h100": {"guaranteed": 1}})}))
    first, second = (team.namespace.annotations for team in made.teams)
    expected = {
        "default-gpus": "0",
        "default-limits": "cpu=1500m,memory=8Gi",
        "max-gpus-per-container": f"{GPU}=4",
        "max-limit-request-ratio": "cpu=1.5",
        "priority-class-required": "true",
        "priority-classes": "high",
        "schedulers": "default-scheduler,volcano",
        "volcano-nodes": "a-a100=nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB",
        "volcano-queues": "a-a100",
    }
    assert first == {f"guards.gpu-tenancy.dev/{name}": text for name, text in expected.items()}
    assert second == {}, "all is as in most namespaces"


# Registries of images.

ALLOWED = ["registry.example.com", "*.pkg.dev/ml-prod", "docker.io/library", "ghcr.io/org/a*", "localhost:5000/x"]
IMAGES: dict[str, bool] = {
    "registry.example.com/a:1": True,
    "registry.example.com:5000/a:1": False,
    "sub.registry.example.com/a:1": False,
    "registry.example.community/a:1": False,
    "evil.com/registry.example.com/a:1": False,
    "eu-docker.pkg.dev/ml-prod/x/y:2": True,
    f"eu-docker.pkg.dev/ml-prod/x@sha256:{'0' * 64}": True,
    "eu-docker.pkg.dev/ml-prod-test/y:1": False,
    "python:3.12": True,
    "docker.io/python:3.12": True,
    "index.docker.io/python:3.12": True,
    "org/x:1": False,
    "ghcr.io/org/abc/d:1": True,
    "ghcr.io/org/b:1": False,
    "localhost:5000/x:1": True,
    "localhost:5000/xy:1": False,
}


@pytest.mark.parametrize(("image", "allowed"), IMAGES.items())
def test_whole_segments_of_an_image_are_compared(image: str, *, allowed: bool) -> None:
    assert is_allowed(image, ALLOWED) is allowed


def test_images_that_this_program_adds_to_pods_are_allowed() -> None:
    assert own_images()
    assert all("/" in image and "@" not in image for image in own_images())
