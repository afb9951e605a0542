"""Facts that packs share with the catalogue: the packs' tables are generated, and quantities are parsed alike."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from itertools import product

from builders import AKS, pool, stack, team
from repository import ROOT

from cloud_rules.coverage import POOLS
from cloud_rules.pools import HOURS, Prices, table
from components.guards import forms
from gpu_tenancy.base.quantity import parse_quantity
from gpu_tenancy.engine.render import render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.packs.evaluation import resource_requests, stack_request
from gpu_tenancy.packs.facts import generated
from rule_engine import Stack, quantity
from rule_engine.resources import read


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
    evaluated = {pool.resource.name: pool for pool in Stack(resources).matching(POOLS, bool)}
    h100 = evaluated["cluster-h100"]
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
