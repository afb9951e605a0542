"""The age of the catalogue, and what a preview says about it."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from repository import ROOT

from gpu_tenancy.model.catalogue.ages import OLD, aging, dated_facts, kubernetes_versions
from gpu_tenancy.model.catalogue.releases import cloud_charts

TODAY = dt.date(2026, 11, 24)
SCALER = cloud_charts()["cluster-autoscaler"]


def test_every_fact_ages_and_the_day_after_half_a_year_is_old() -> None:
    facts = dated_facts()
    assert {fact.table.partition("/")[0] for fact in facts} >= {
        "machines",
        "operators",
        "releases",
        "gpus",
        "kubernetes",
    }
    for fact in facts:
        assert not fact.is_old(fact.date + OLD)
        assert fact.is_old(fact.date + OLD + dt.timedelta(days=1))


@pytest.mark.parametrize(
    ("version", "today", "told"),
    [
        ("1.34", dt.date(2026, 12, 1), "standard support ends on 2026-12-02"),
        ("1.34", dt.date(2026, 12, 3), "standard support ended on 2026-12-02"),
        ("1.36", dt.date(2026, 12, 3), ""),
        (None, dt.date(2026, 12, 3), ""),
    ],
)
def test_a_preview_names_the_end_of_support(version: str | None, today: dt.date, told: str) -> None:
    assert told in "; ".join(aging("aws", version, [], today))
    assert bool(told) == ("Kubernetes" in "; ".join(aging("aws", version, [], today)))


@pytest.mark.parametrize("file", sorted((ROOT / "stacks").glob("Pulumi.*.yaml")), ids=lambda file: file.name)
def test_the_version_of_a_reference_stack_is_supported_for_half_a_year_after_the_date_of_the_table(file: Path) -> None:
    cluster = cast("dict[str, Any]", yaml.safe_load(file.read_bytes()))["config"]["gpu-tenancy:cluster"]
    if version := cluster.get("create", {}).get("version"):
        table = kubernetes_versions()[cluster["cloud"]]
        assert table.versions[version] > table.date + OLD


def test_a_preview_names_only_old_facts_that_the_stack_uses() -> None:
    later = SCALER.date + OLD + dt.timedelta(days=1)
    assert any("cluster-autoscaler" in note for note in aging("aws", None, ["cluster-autoscaler"], later))
    assert not any("cluster-autoscaler" in note for note in aging("aws", None, ["kueue"], later))
    prices = next(fact for fact in dated_facts() if fact.name == "machines/azure prices")
    assert any(prices.name in note for note in aging("azure", None, [], prices.date + OLD + dt.timedelta(days=1)))
    assert not any(prices.name in note for note in aging("aws", None, [], prices.date + OLD + dt.timedelta(days=1)))
    assert not replace(prices, date=TODAY).is_old(TODAY)
