"""docs/policies.md matches the rules, packs accept the sets of policy/config, and share facts with the catalogue."""

import ast
import json
import re
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
import yaml
from builders import AKS, pool, stack, team
from jsonschema import Draft202012Validator
from kit_builders import Refusal
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi_policy import EnforcementLevel
from repository import ROOT

import document
from cloud_rules import coverage
from cloud_rules.coverage import POOLS
from cloud_rules.pools import HOURS, Prices, table
from components.guards import forms
from gpu_tenancy.base.quantity import parse_quantity
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.packs.configuration import choose, read_config, reconciled, violations
from gpu_tenancy.packs.evaluation import resource_requests, stack_request
from gpu_tenancy.packs.facts import generated
from rule_engine import Stack, quantity
from rule_engine.evaluator import Evaluator
from rule_engine.exemptions import Exemption
from rule_engine.resources import read
from rule_engine.server import Analyzer

RULES = [
    pytest.param(name, rule, id=rule.name) for name, pack in document.PACKS.items() for rule in Evaluator(pack).rules
]
SETS = [pytest.param(pack, name, id=f"{pack}-{name}") for pack in document.PACKS for name in document.SETS]


@pytest.fixture(scope="module")
def page() -> str:
    """The generated page of all rules, though a test may ask for one."""
    return document.page()


def test_the_page_is_up_to_date(page: str) -> None:
    assert document.PAGE.read_text(encoding="utf-8") == page, "run `make facts`"


@pytest.mark.parametrize(("pack", "rule"), RULES)
def test_a_rule_has_title_rationale_fix_and_link(page: str, pack: str, rule: document.AnyRule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    for sentence in (rule.title, rule.rationale, rule.fix):
        assert re.fullmatch(r"[A-Z`{].*\.\)?", sentence), sentence
    assert re.fullmatch(r"https://\S+", rule.link)
    assert f"](#{pack}-{rule.name})" in page
    assert f'<a id="{pack}-{rule.name}"></a>' in page


@pytest.mark.parametrize("pack", document.PACKS)
def test_each_row_of_texts_is_about_a_rule(pack: str) -> None:
    (file,) = (ROOT / "policy" / pack).glob("*_rules/rules.yaml")
    assert [rule.name for rule in document.PACKS[pack].rules] == list(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("pack", "rule"), RULES)
def test_settings_have_a_description_and_a_valid_default(pack: str, rule: document.AnyRule) -> None:
    for name, schema in rule.schema().items():
        assert schema["description"].endswith("."), (pack, name)
        assert "$ref" not in json.dumps(schema), "the CLI resolves no references"
        Draft202012Validator.check_schema(schema)
        assert violations(schema, schema["default"], name) == []


@pytest.mark.parametrize(("pack", "name"), SETS)
def test_packs_accept_their_dev_and_prod_settings(pack: str, name: str) -> None:
    file = ROOT / "policy" / "config" / f"{pack}-{name}.json"
    analyzer = Analyzer(Evaluator(document.PACKS[pack]))
    info = analyzer.GetAnalyzerInfo(None, None)  # pyright: ignore[reportArgumentType] - neither is looked at
    request = reconciled(info, read_config(file), file.name)
    refusal = Refusal()
    analyzer.Configure(request, refusal)  # pyright: ignore[reportArgumentType] - what it needs of one
    assert refusal.words == ""
    configuration = json.loads(file.read_text(encoding="utf-8"))
    for rule in analyzer.evaluator.rules:
        assert analyzer.evaluator.level(rule) is document.level(rule, configuration)


@pytest.mark.parametrize("pack", list(document.PACKS))
def test_production_is_nowhere_less_strict_than_development(pack: str) -> None:
    strictness = [EnforcementLevel.DISABLED, EnforcementLevel.ADVISORY, EnforcementLevel.MANDATORY]
    dev, prod = (document.read_set(pack, name) for name in document.SETS)
    assert dev != prod
    for rule in Evaluator(document.PACKS[pack]).rules:
        weaker, stronger = (strictness.index(document.level(rule, configured)) for configured in (dev, prod))
        assert weaker <= stronger, rule.name


@pytest.mark.parametrize(("production", "name"), [(True, "prod"), (False, "dev")])
def test_stack_gets_prod_or_dev_settings(production: bool, name: str) -> None:  # noqa: FBT001
    chosen = choose("clouds", ROOT, production=production)
    assert chosen.config == ROOT / "policy" / "config" / f"clouds-{name}.json"
    assert choose("clouds=own.json", ROOT, production=production).config == Path("own.json")


def test_page_lists_resources_that_are_not_evaluated(page: str) -> None:
    facts = coverage.table()
    for row in [*facts["clusters"], *facts["resources"]]:
        assert f"\n- {row['title']}: " in page
        assert all(f"`{pattern}`" in page for pattern in row["types"])


def test_a_pack_describes_itself_the_same_way_twice() -> None:
    for pack in document.PACKS.values():
        first, second = (Analyzer(Evaluator(pack)).GetAnalyzerInfo(None, None) for _ in range(2))  # pyright: ignore[reportArgumentType] - as above
        assert isinstance(first, wire.AnalyzerInfo)
        assert first == second


def test_the_exemptions_in_the_page_are_valid(page: str) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shown = yaml.safe_load(block)
    names = {rule.name for pack in document.PACKS.values() for rule in pack.rules}
    exemptions = [*shown["metadata"]["annotations"].items(), *shown["tags"].items(), *shown["resourceLabels"].items()]
    assert len(exemptions) == 3
    for key, text in exemptions:
        prefix = next(start for start in ("exempt.gpu-rules/", "exempt:", "exempt-") if key.startswith(start))
        assert key.removeprefix(prefix) in names
        assert Exemption.of(str(text)) is not None, text


@pytest.mark.parametrize("pack", list(document.PACKS))
def test_the_requirements_of_a_pack_cover_all_its_imports(pack: str) -> None:
    folder = ROOT / "policy" / pack
    requirements = set(re.findall(r"^[a-z-]+", (folder / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE))
    # With what these require themselves: grpcio, protobuf and pyyaml; typing_extensions.
    brought = {
        "pulumi": {"pulumi", "grpc", "google", "yaml"},
        "pulumi-policy": {"pulumi_policy"},
        "pydantic": {"pydantic", "typing_extensions"},
    }
    known = set[str]().union(*(brought[name] for name in requirements if name in brought)) | sys.stdlib_module_names
    own = {file.name.removesuffix(".py") for file in folder.iterdir()}
    imported = {
        name.split(".")[0]
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        for name in imports(node)
    }
    assert imported - known - own == set()


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_the_tables_of_packs_are_generated_from_the_catalogue() -> None:
    files = {ROOT / name: text for name, text in generated().items()} | {forms.FILE: forms.generated()}
    outdated = [file for file, text in files.items() if file.read_text(encoding="utf-8") != text]
    assert outdated == [], "run `make facts`"


def test_each_table_of_machines_has_its_source_and_date() -> None:
    for cloud in table().values():
        for block in (cloud, cloud["prices"]):
            assert block["source"]
            assert date(2026, 1, 1) <= block["date"]


def test_the_budget_rule_has_the_price_that_other_screens_show() -> None:
    declared = stack(
        cluster=AKS,
        pools={"cpu": pool("Standard_D16s_v5"), "h100": pool("Standard_ND96isr_H200_v5")},
        teams={"vision": team(gpus={"h100": {"guaranteed": 8}})},
    )
    shown = {row.name: row.node_price for row in outlook(load(Source(declared))).pools}
    rendered = render(ROOT, project="p", stack="s", config=to_config(Source(declared)))
    resources = [read(request) for request in resource_requests(stack_request(rendered))]
    h100 = {pool.resource.name: pool for pool in Stack(resources).matching(POOLS, bool)}["cluster-h100"]
    assert shown["h100"] == 84.8
    assert h100.monthly(Prices(), Stack(resources)) == Decimal("84.8") * HOURS * 2


def test_packs_and_the_model_read_the_same_quantities() -> None:
    numbers = ["", "0", "1", "007", "1.5", ".5", "5.", ".", "1.2.3", "0.000000001", "9" * 30, "1_0", "٣"]
    units = ["", "n", "u", "m", "k", "K", "M", "G", "T", "P", "E", "Ki", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Gb", "i"]
    exponents = ["e3", "E3", "e+03", "e-2", "e00012", "e", "e1.5", "e123", "e3k"]
    texts = [f"{sign}{number}{unit}" for sign, number, unit in product(("", "+", "-", " "), numbers, units + exponents)]
    different = [text for text in texts if _of_pack(text) != _of_model(text)]
    assert different == []


def _of_pack(text: str) -> Fraction | None:
    number = quantity(text)
    return None if number is None else Fraction(number)


def _of_model(text: str) -> Fraction | None:
    try:
        return parse_quantity(text)
    except ValueError:
        return None
