"""The pack of clouds: its tables, exemptions by tags and labels, rules over a whole stack, and foreign programs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import pytest
import yaml
from policy_builders import TODAY, UNKNOWN, Sample, all_findings, doubt, findings, messages, with_field
from samples import shared

from cloud_rules import PACK, coverage, pool_rules
from cloud_rules.coverage import EVALUATED
from cloud_rules.pools import Machines, Prices
from cloud_rules.tags import token
from document import read_set
from rule_engine.evaluator import Evaluator, Finding
from rule_engine.stacks import Stack


@pytest.mark.parametrize(
    ("machine", "gpus"),
    [
        ("p5.48xlarge", 8),
        ("p6-b200.48xlarge", 8),
        ("g6.12xlarge", 4),
        ("g5.16xlarge", 1),
        ("a3-megagpu-8g", 8),
        ("a2-megagpu-16g", 16),
        ("g2-standard-24", 2),
        ("g2-standard-32", 1),
        ("Standard_ND96isr_H100_v5", 8),
        ("Standard_NC64as_T4_v3", 4),
        ("Standard_NC80adis_H100_v5", 2),
        # The clouds' own names, in any case: Azure accepts all of them.
        ("standard_nc24ads_a100_v4", 1),
        ("STANDARD_ND96ISR_H100_V5", 8),
        ("standard_nv6ads_a10_v5", None),
        # Parts of one, new sizes of families that have them, and families of Karpenter: nobody knows how many.
        ("g6f.xlarge", None),
        ("p9.metal", None),
        ("p5.*", None),
        ("a9-ultragpu-8g", None),
        ("g4-standard-6", None),
        ("g2-custom-8-32768", None),
        ("Standard_NV6ads_A10_v5", None),
        # No GPUs, however alike the names are.
        ("m7i.large", 0),
        ("inf2.xlarge", 0),
        ("g1-small", 0),
        ("c3-standard-8", 0),
        ("Standard_NP10s", 0),
        ("Standard_D8s_v5", 0),
        ("standard_d8s_v5", 0),
        ("", 0),
    ],
)
def test_gpus_of_machines_on_all_three_clouds(machine: str, gpus: int | None) -> None:
    assert Machines().gpus_of(machine) == gpus


def test_settings_override_gpus_and_prices_of_the_table() -> None:
    prices = Prices(machines={"p5.*": 7, "Standard_X1": 2}, prices={"p5.48xlarge": 30.5, "rack-*": 1})
    assert prices.gpus_of("p5.48xlarge") == 7
    assert prices.gpus_of("Standard_X1") == 2
    assert prices.price_of("p5.48xlarge") == Decimal("30.5")
    assert prices.price_of("rack-7") == 1
    assert prices.price_of("p4d.24xlarge") == Decimal("21.957642")
    assert prices.gpus_of("standard_x1") == 2
    assert (
        prices.price_of("standard_nc24ads_a100_v4") == prices.price_of("Standard_NC24ads_A100_v4") == Decimal("3.673")
    )


def test_family_costs_as_its_most_expensive_machine() -> None:
    assert Prices().price_of("g6.*") == Decimal("13.3504")
    assert Prices().price_of("p99.*") is None
    assert Prices().price_of("a3-ultragpu-8g") is None


@pytest.mark.parametrize(
    ("pool", "field", "value", "says"),
    [
        ("node-group", "instanceTypes", ["p5e.48xlarge"], "instanceTypes.0 is p5e.48xlarge"),
        ("aks-pool", "vmSize", "Standard_X1", "vmSize is Standard_X1"),
        (
            "gke-pool",
            "nodeConfig",
            {"machineType": "n1-standard-8", "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}]},
            "nodeConfig.machineType is n1-standard-8+2xnvidia-tesla-t4",
        ),
    ],
)
def test_budget_reports_unknown_prices_and_counts_the_rest(pool: str, field: str, value: object, says: str) -> None:
    inputs = {"it": with_field(shared(pool), field, value), "cpu": shared("cpu-group")}
    diagnostics = findings(pool_rules.pool_budget, inputs, {"monthly": 100})
    path, why = says.split(" ", 1)
    why = f"{why}, whose price is unknown (add it to the setting `prices`)"
    assert messages(diagnostics, "unknown") == (doubt(inputs["it"].resource().place, path, why),)
    (broken,) = messages(diagnostics, "broken")
    assert broken.startswith(
        "NodeGroup cpu: all node pools cost up to 147 USD a month, which exceeds the cap of 100 USD;"
    )


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_configurations_limit_gpus_of_pools_without_node_count(environment: str) -> None:
    autoscaling = {"enabled": True, "resourceLimits": [{"resourceType": "nvidia-h100-80gb", "maximum": 1000}]}
    cluster = with_field(shared("gke"), "clusterAutoscaling", autoscaling)
    pool = with_field(shared("karpenter"), "spec", {"limits": {"nvidia.com/gpu": 1000}})
    caps = read_set("clouds", environment)["pool-maximum"]
    settings = {"nodes": caps["nodes"], "gpus": caps["gpus"]}
    broken = messages(findings(pool_rules.pool_maximum, {"gke": cluster, "karpenter": pool}, settings), "broken")
    places = [message.split(": ", 1)[0] for message in broken]
    assert places == ["Cluster gke, node auto-provisioning", "NodePool l4"]
    assert all(f"maximum of 1000 GPUs exceeds the limit of {caps['gpus']} GPUs" in message for message in broken)


def test_ignores_unknown_outputs_that_the_program_did_not_set() -> None:
    inputs = dict.fromkeys(shared("gke").props, ())
    computed = {**shared("gke").props, "nodePools": UNKNOWN, "nodeConfig": UNKNOWN}
    filled_in = replace(shared("gke"), props=computed, needs=inputs)
    assert findings(pool_rules.gpu_pool_tainted, {"it": filled_in}) == []
    diagnostics = findings(pool_rules.gpu_pool_tainted, {"it": replace(filled_in, needs={**inputs, "nodePools": ()})})
    assert messages(diagnostics, "unknown") == (doubt("Cluster gke", "nodePools"),)


@pytest.mark.parametrize(
    ("given", "path", "value"),
    [
        ("node-group", "tags.exempt:gpu-pool-tainted", "2027-01-31 waits for the new driver"),
        ("aks-pool", "tags.exempt:gpu-pool-tainted", "2027-01-31 waits for the new driver"),
        ("gke-pool", "nodeConfig.resourceLabels.exempt-gpu-pool-tainted", "2027-01-31_waits-for-the-new-driver"),
        ("karpenter", "metadata.annotations.'exempt.gpu-rules/gpu-pool-tainted'", "2027-01-31 waits for the driver"),
    ],
)
def test_tags_labels_and_annotations_exempt_until_their_date(given: str, path: str, value: str) -> None:
    untainted = replace(shared(given), props=_without_taints(shared(given).props))
    diagnostics = _judged(with_field(untainted, path, value))
    exempted = [finding for finding in diagnostics if finding.rule is pool_rules.gpu_pool_tainted]
    assert [finding.outcome for finding in exempted] == ["exempted"]
    assert "exempted until 2027-01-31 (waits" in exempted[0].message
    assert not [finding for finding in diagnostics if finding.rule.name == "exemptions-in-order"]


def test_a_tag_of_an_auto_scaling_group_exempts_it_too() -> None:
    tag = {"key": "exempt:size-left-to-autoscaler", "value": "2027-01-31 moves to a node group"}
    group = with_field(shared("self-managed"), "tags", [*shared("self-managed").props["tags"], tag])
    diagnostics = Evaluator(PACK, TODAY).evaluate(with_field(group, "desiredCapacity", 1).resource())
    assert [(finding.rule.name, finding.outcome) for finding in diagnostics] == [
        ("size-left-to-autoscaler", "exempted")
    ]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("aws:ec2/instance:Instance", "{instanceType: p5.48xlarge, tags: {'exempt:RULE': 2027-01-31 a test}}"),
        ("aws-native:ec2:Instance",
         "{instanceType: p5.48xlarge, tags: [{key: 'exempt:RULE', value: 2027-01-31 a test}]}"),
        ("azure-native:compute:VirtualMachine",
         "{hardwareProfile: {vmSize: Standard_NC6s_v3}, tags: {'exempt:RULE': 2027-01-31 a test}}"),
        ("gcp:compute/instance:Instance",
         "{machineType: a2-highgpu-1g, tags: [web], labels: {exempt-RULE: 2027-01-31_a-test}}"),
    ],
)  # fmt: skip
def test_exempts_resources_that_no_rule_evaluates(type_: str, text: str) -> None:
    name = coverage.gpu_machines_evaluated.name
    named = yaml.safe_load(text.replace("RULE", name))
    diagnostics = _judged(Sample(type_, named))
    assert [(finding.rule.name, finding.outcome) for finding in diagnostics] == [(name, "exempted")]


def test_aws_native_launch_template_is_exempted_by_own_tags() -> None:
    tag = {"key": "exempt:imds-v2", "value": "2027-01-31 a test"}
    template = with_field(shared("native-template"), "launchTemplateData.metadataOptions", {})
    own = [{"resourceType": "launch-template", "tags": [tag]}]
    diagnostics = _judged(with_field(template, "tagSpecifications", own))
    assert [(finding.rule.name, finding.outcome) for finding in diagnostics] == [("imds-v2", "exempted")]


def test_unknown_tags_are_reported_only_by_rules_that_read_them() -> None:
    assert _judged(Sample("aws:s3/bucket:Bucket", {"tags": UNKNOWN})) == []
    diagnostics = _judged(Sample("aws:ec2/instance:Instance", {"instanceType": "p5.48xlarge", "tags": UNKNOWN}))
    assert [(finding.rule.name, finding.outcome) for finding in diagnostics] == [("gpu-machines-evaluated", "broken")]


def _judged(*samples: Sample) -> list[Finding]:
    return all_findings(Evaluator(PACK, TODAY), samples)


def test_coverage_table_has_sources_and_dates() -> None:
    facts = coverage.table()
    for block in [*facts["clusters"], *facts["resources"], facts["properties"]]:
        assert block["source"], block
        assert date(2026, 1, 1) <= block["date"] <= TODAY + timedelta(days=1)


def test_no_type_that_rules_evaluate_is_listed_as_not_evaluated() -> None:
    listed = [pattern for row in coverage.table()["clusters"] for pattern in row["types"]]
    assert [type_ for type_ in EVALUATED for pattern in listed if fnmatchcase(type_, pattern)] == []


@pytest.mark.parametrize(
    ("type_", "plain"),
    [
        ("azure-native:containerservice/v20250501:AgentPool", "azure-native:containerservice:AgentPool"),
        (
            "azure-native:containerservice/v20240202preview:ManagedCluster",
            "azure-native:containerservice:ManagedCluster",
        ),
        ("kubernetes:karpenter.sh/v1beta1:NodePool", "kubernetes:karpenter.sh:NodePool"),
        ("aws:eks/nodeGroup:NodeGroup", "aws:eks/nodeGroup:NodeGroup"),
    ],
)
def test_api_versions_do_not_matter_for_the_type(type_: str, plain: str) -> None:
    assert token(type_) == plain


def test_valid_resources_have_no_findings() -> None:
    names = ("eks", "launch-template", "node-group", "node-class", "karpenter", "gke", "aks", "gke-pool", "aks-pool")
    system = replace(with_field(shared("gke-pool"), "nodeConfig.machineType", "n2-standard-8"), name="system")
    cpu = replace(with_field(shared("node-group"), "instanceTypes", ["m7i.large"]), name="cpu")
    diagnostics = _judged(*map(shared, names), system, cpu)
    assert [finding.message for finding in diagnostics] == []


# Values of a wrong kind.
WRONG: Final[list[Any]] = [
    UNKNOWN,
    *yaml.safe_load("[null, text, 'großer Text', '', -1.5, true, [], [text], [[]], {}, {key: text}, [{key: 1}, null]]"),
]
EVERYTHING = {
    name: shared(name)
    for name in (
        *("eks", "launch-template", "node-group", "cpu-group", "self-managed", "self-template", "karpenter"),
        "node-class",
        *("native-eks", "native-template", "native-group", "native-self", "gke", "gke-pool", "aks", "aks-pool"),
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYTHING)
def test_no_value_in_any_place_is_an_internal_error(name: str) -> None:
    evaluator = Evaluator(PACK, TODAY)
    settings: dict[str, dict[str, Any]] = {
        "pool-minimum-zero": {"required": True},
        "pool-maximum": {"nodes": 1, "gpus": 1},
        "pool-budget": {"monthly": 1, "centers": {"rd-001": 1}},
        "machine-allowed": {"allowed": ["x"]},
        "spot-outside-production": {"spot": "forbidden"},
    }
    evaluator.configure({}, settings)
    others = [
        resource
        for resource in (shared("eks"), shared("self-template"), shared("self-managed"))
        if resource is not EVERYTHING[name]
    ]
    judged = 0
    for props in _spoilt(EVERYTHING[name].props):
        resource = replace(EVERYTHING[name], props=props).resource()
        stack = Stack([resource, *(resource.resource() for resource in others)])
        diagnostics = [*evaluator.evaluate(resource), *evaluator.evaluate_stack(stack)]
        assert [finding.message for finding in diagnostics if finding.outcome == "error"] == [], props
        judged += 1
    assert judged > 2 * len(WRONG)


def _spoilt(value: object) -> Iterator[Any]:
    """The same with each part in turn replaced by a wrong value."""
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        for key, part in entries.items():
            yield from ({**entries, key: item} for item in (*WRONG, *_spoilt(part)))
    elif isinstance(value, list):
        items = cast("list[object]", value)
        for index, part in enumerate(items):
            yield from ([*items[:index], item, *items[index + 1 :]] for item in (*WRONG, *_spoilt(part)))


def _without_taints(props: dict[str, Any]) -> dict[str, Any]:
    """The same without any taint at any depth."""
    return {
        key: _without_taints(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
        for key, value in props.items()
        if key not in {"taints", "nodeTaints"}
    }
