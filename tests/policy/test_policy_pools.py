"""Node pools in terms common to all clouds: known and unknown values."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from policy_builders import Sample
from samples import shared

from cloud_rules import PACK, aws, coverage, tags
from cloud_rules.coverage import POOLS
from cloud_rules.karpenter import Requirements
from cloud_rules.pools import Machine, Machines, NodePool, Prices, highest, highest_price
from rule_engine import Stack, UnknownValueError, View
from rule_engine.evaluator import Evaluator

KNOWN: Final = Machines()
PRICES: Final = Prices(prices={"p5.48xlarge": 100, "m7i.large": 1}, machines={"p5.48xlarge": 8})
ASG, AKS_POOL = shared("self-managed").type, shared("aks-pool").type
GKE, GKE_POOL, KARPENTER = shared("gke").type, shared("gke-pool").type, shared("karpenter").type
_TEMPLATE: Final = Sample(
    shared("launch-template").type, {"id": "lt-1", "name": "a", "instanceType": "p5.48xlarge"}, "template"
)
_EMPTY: Final = Sample(shared("launch-template").type, {"id": "lt-2", "name": "b"}, "empty")


def _taints(pool: NodePool, stack: Stack) -> list[str]:
    return [f"{taint.key}:{taint.effect}" for taint in pool.all_taints(stack)]


def _machines(pool: NodePool, stack: Stack) -> list[str]:
    return [machine.name for machine in pool.all_machines(stack)]


def _gpus(pool: NodePool, stack: Stack) -> int | None:
    return pool.gpus(KNOWN, stack)


def _maximum_gpus(pool: NodePool, stack: Stack) -> Decimal | None:
    return pool.maximum_gpus(KNOWN, stack)


def _monthly(pool: NodePool, stack: Stack) -> Decimal:
    return pool.monthly(PRICES, stack)


def _fixed(pool: NodePool, _: Stack) -> str:
    return pool.fixed_size


def _bounds(pool: NodePool, _: Stack) -> list[Decimal | None]:
    return [pool.minimum, pool.maximum]


def _bounded(pool: NodePool, _: Stack) -> bool:
    return pool.bounded


READ: Final[dict[str, Callable[[NodePool, Stack], object]]] = {
    "bounded": _bounded,
    "bounds": _bounds,
    "fixed": _fixed,
    "gpus": _gpus,
    "machines": _machines,
    "maximum_gpus": _maximum_gpus,
    "monthly": _monthly,
    "taints": _taints,
}
TERMS: Final[list[tuple[str, dict[str, Any], str, object]]] = yaml.load(
    Path(__file__).with_name("pools.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)["terms"]


@pytest.mark.parametrize(("of", "props", "name", "expected"), TERMS, ids=[f"{row[2]} of {row[1]}" for row in TERMS])
def test_a_pool_is_read_in_terms_of_all_clouds(of: str, props: dict[str, Any], name: str, expected: object) -> None:
    resource = Sample(shared(of).type, props).resource()
    stack = Stack([resource, _TEMPLATE.resource(), _EMPTY.resource()])
    (pool, *_) = [pool for pool in stack.matching(POOLS, bool) if pool.resource is resource][-1:]
    if isinstance(expected, str) and " " in expected:
        with pytest.raises(UnknownValueError) as error:
            READ[name](pool, stack)
        assert expected in str(error.value)
    else:
        assert READ[name](pool, stack) == expected


def test_a_pool_without_gpus_has_at_most_none() -> None:
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    spec = {"limits": {"nvidia.com/gpu": 4, "nodes": 2}, "template": {"spec": {"requirements": [requirement]}}}
    stack = Stack([Sample(KARPENTER, {"spec": spec}).resource()])
    assert [pool.maximum_gpus(KNOWN, stack) for pool in stack.matching(POOLS, bool)] == [0]


def test_ignored_node_count_is_no_fixed_size() -> None:
    for type_, props, path in (
        (AKS_POOL, {"vmSize": "a", "enableAutoScaling": True, "count": 1}, "count"),
        (ASG, {**shared("self-managed").props, "desiredCapacity": 1}, "desiredCapacity"),
        (
            GKE,
            {"nodePools": [{"name": "a"}, {"autoscaling": {"maxNodeCount": 2}, "nodeCount": 1}]},
            "nodePools[1].nodeCount",
        ),
    ):
        (*_, pool) = Sample(type_, props, ignored=(path,)).resource().parts(POOLS)
        assert pool.fixed_size == ""


@pytest.mark.parametrize("type_", [GKE, "azure-native:containerservice:ManagedCluster"])
def test_a_cluster_whose_properties_are_not_known_has_no_pools(type_: str) -> None:
    assert Sample(type_, {}).resource().parts(POOLS) == []


# Machines.


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("{acceleratorCount: {min: 1, max: 1}}", 1),
        ("{acceleratorCount: {max: 0}, acceleratorTypes: [gpu]}", 0),
        ("{acceleratorTypes: [gpu]}", None),
        ("{acceleratorCount: {max: 0}, allowedInstanceTypes: [p5.48xlarge]}", 0),
        ("{onDemandMaxPricePercentageOverLowestPrice: 999999}", None),
        ("{onDemandMaxPricePercentageOverLowestPrice: 999999, excludedInstanceTypes: [p5.*]}", None),
        ("{onDemandMaxPricePercentageOverLowestPrice: 999999, excludedInstanceTypes: ['*']}", 0),
        ("{onDemandMaxPricePercentageOverLowestPrice: 999998}", 0),
    ],
)
def test_machines_by_attributes_have_gpus(text: str, gpus: int | None) -> None:
    view = View({"instanceRequirements": {"vCpuCount": {"min": 1.0}, **yaml.safe_load(text)}})
    assert highest(machine.gpus(KNOWN) for machine in aws.machines_at(view)) == gpus


def test_settings_add_machines_and_take_gpus_away() -> None:
    known = Machines(machines={"P99.large": 8, "g4dn.xlarge": 0})
    assert {"p99.large", "g4dn.xlarge"}.intersection(known.gpu_machines("aws")) == {"p99.large"}
    assert [known.has_gpus(pattern) for pattern in ("m5*", "*4dn.xlarge", "*4dn.2xlarge", "g99.*")] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("names", "price"),
    [
        (["m7i.large", "p5.48xlarge"], "100"),
        (["m7i.large", "x.large"], "is x.large, whose price is unknown"),
        ([], "the machine type is not set"),
    ],
)
def test_the_most_expensive_machine_counts(names: list[str], price: str) -> None:
    machines = [Machine(name, (name,)) for name in names]
    if price.isdigit():
        assert highest_price(machines, PRICES) == Decimal(price)
    else:
        with pytest.raises(UnknownValueError, match=price):
            highest_price(machines, PRICES)


def test_no_machine_has_no_gpus() -> None:
    assert [highest(iter(counts)) for counts in ([], [0, 2], [8, None])] == [0, 2, None]


_KARPENTER: Final = "karpenter.k8s.aws/instance-"


def _required(text: str) -> list[View]:
    filled = text.replace("AWS/", _KARPENTER).replace("TYPE", "node.kubernetes.io/instance-type")
    return [View(item) for item in yaml.safe_load(filled)]


@pytest.mark.parametrize(
    ("text", "gpu_machines"),
    [
        (
            "[{key: AWS/category, operator: In, values: [p]}, {key: AWS/generation, operator: Gt, values: ['98']}]",
            "p9.*",
        ),
        ("[{key: AWS/category, operator: In, values: [p]}, {key: AWS/gpu-count, operator: DoesNotExist}]", ""),
        ("[{key: TYPE, operator: In, values: [p5.48xlarge]}, {key: AWS/gpu-count, operator: In, values: ['4']}]", ""),
        ("[{key: TYPE, operator: In, values: [p5.48xlarge]}, {key: AWS/gpu-count, operator: Exists}]", "p5.48xlarge"),
    ],
)
def test_machines_with_gpus_that_meet_requirements(text: str, gpu_machines: str) -> None:
    assert {*Requirements(_required(text), "").gpu_machines(KNOWN)} == {*gpu_machines.split()}


def test_machine_that_is_in_no_table_has_no_gpus() -> None:
    requirements = Requirements(_required("[{key: TYPE, operator: In, values: [m99.large]}]"), "")
    assert requirements.cpu_machines(KNOWN) == ["m99.large"]


def test_the_node_class_tells_the_cloud() -> None:
    assert Requirements([], "karpenter.azure.com").prefix == "karpenter.azure.com/sku-"
    assert Requirements([], "karpenter.k8s.aws").prefix == _KARPENTER


@pytest.mark.parametrize(
    ("value", "operator", "values", "is_met"),
    [("abc", "Gt", ["3"], True), ("8", "Gt", [], True), ("8", "Gt", ["9"], False), ("8", "Lte", ["8"], True)],
)
def test_a_number_that_cannot_be_compared_meets_a_requirement(
    value: str, operator: str, values: list[str], *, is_met: bool
) -> None:
    requirement: Any = {"key": "a", "operator": operator, "values": values}
    assert Requirements([View(requirement)], "").admit("a", value) is is_met


@pytest.mark.parametrize(
    ("operator", "values", "most"), [("In", ["4", "8"], 8), ("Lte", ["8"], 8), ("Lt", ["8"], 7), ("Lt", [], None)]
)
def test_requirements_bound_the_gpus_of_a_machine(operator: str, values: list[str], most: int | None) -> None:
    requirement: Any = {"key": f"{_KARPENTER}gpu-count", "operator": operator, "values": values}
    assert Requirements([View(requirement)], "").most_gpus() == most


# What no rule evaluates.


@pytest.mark.parametrize(
    ("kinds", "value", "path", "names"),
    [
        ("machines", "p5.48xlarge", "a", ["p5.48xlarge"]),
        ("machines", "projects/b/zones/c/a2-highgpu-1g", "a", ["a2-highgpu-1g"]),
        ("templates", "p5.48xlarge", "a", []),
        ("families", "m5", "a", []),
        ("texts", "type: p5.48xlarge", "a", ["p5.48xlarge"]),
        ("texts", 7.0, "a", []),
        ("gpus", {"type": "b/nvidia-t4", "count": 1.0}, "a", ["nvidia-t4"]),
        ("gpus", {"type": "nvidia-t4", "count": 0.0}, "a", []),
        ("gpus", {"type": "nvidia-t4", "acceleratorCount": 0.0}, "a", []),
        ("gpus", {"type": "tpu-v4"}, "a", []),
        ("gpus", {"type": "l4"}, "gpu", ["l4"]),
        ("gpus", {"type": "l4"}, "gpus.0", ["l4"]),
        ("gpus", {"type": "l4"}, "gpus.b.c", []),
    ],
)
def test_a_property_names_machines_or_gpus(kinds: str, value: Any, path: str, names: list[str]) -> None:
    reference = coverage.MachineReference(frozenset({kinds}), View(value, tuple(path.split("."))))
    assert reference.gpus(KNOWN) == names


def test_the_name_of_a_size_is_a_machine_and_other_names_are_not() -> None:
    view = View(
        {"sku": {"name": "a", "tier": "b"}, "disk": {"name": "c"}, "tags": {"size": "d"}, "vmSize": {"name": "e"}}
    )
    found = {".".join(each.view.path): sorted(each.kinds) for each in coverage.named_values(view)}
    assert found == {
        "sku": ["named", "others"],
        "sku.name": ["named", "others"],
        "tags": ["ignored"],
        "vmSize": ["machines"],
    }


def test_an_unknown_attribute_of_machines_is_named_where_it_is() -> None:
    view = View({"acceleratorCount": {"max": "many"}}, ("launch", "instanceRequirements"))
    with pytest.raises(
        UnknownValueError, match=r"^launch\.instanceRequirements\.acceleratorCount\.max is not a number"
    ):
        coverage.MachineReference(frozenset({"attributes"}), view).gpus(KNOWN)


def test_a_template_is_found_by_any_of_its_names() -> None:
    stack = Stack([_TEMPLATE.resource(), _EMPTY.resource()])
    for reference in ({"id": "lt-2"}, {"launchTemplateId": "lt-2"}, {"name": "b"}, {"launchTemplateName": "b"}):
        template = aws.template_named(View({**reference}), stack)
        assert template is not None
        assert template.resource.name == "empty"


# Tags.


@pytest.mark.parametrize(
    ("type_", "props", "expected"),
    [
        ("gcp:a/b:C", {"resourceLabels": {"exempt-a": "b"}}, {"a": "b"}),
        ("gcp:a/b:C", {"labels": {"exempt-a": "b"}}, {"a": "b"}),
        ("aws:a/b:C", {"tags": {"exempt:a": "b"}}, {"a": "b"}),
        ("kubernetes:example.com/v1:App", {"tags": {"exempt:a": "b"}}, {}),
        (GKE, {"labels": {"exempt-a": "b"}}, {}),
        (ASG, {"tags": [{"key": "exempt:a"}]}, {"a": ""}),
    ],
)
def test_exemptions_are_read_of_the_tags_or_labels_of_a_resource(
    type_: str, props: dict[str, Any], expected: dict[str, str]
) -> None:
    assert tags.exemptions(Sample(type_, props).resource()) == expected


def test_tags_are_expected_where_a_type_has_them() -> None:
    assert [tags.where(Sample(type_, {}).resource()) for type_ in (GKE_POOL, "aws:a/b:C")] == [
        "nodeConfig.resourceLabels",
        "tags",
    ]


def test_no_rule_for_clouds_is_about_kubernetes_objects() -> None:
    assert not Evaluator(PACK).covers("kubernetes:core/v1:ConfigMap")
