"""`tenancy catalogue outdated`: the age of the catalogue, what publishers answer, and who could not be asked."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from cli_builders import Screen
from repository import ROOT

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.outdated import Answers, Entry, answers, entries, shown
from gpu_tenancy.model.catalogue.ages import OLD, aging, dated_facts, kubernetes_versions
from gpu_tenancy.model.catalogue.releases import cloud_charts

TODAY = dt.date(2026, 11, 24)
SCALER = cloud_charts()["cluster-autoscaler"]
KARPENTER = "karpenter"


def by_name(known: Answers, today: dt.date = TODAY) -> dict[str, Entry]:
    """The entries by what they are about."""
    return {entry.what: entry for entry in entries(known, today)}


def publishers(address: str) -> bytes:
    """Answers with a newer autoscaler, a release candidate of it, and a version of Kubernetes that nobody knew."""
    if address == f"{SCALER.repository}/index.yaml":
        versions = ["9.9.0", SCALER.version, "99.1.0", "100.0.0-rc.1"]
        return json.dumps({"entries": {SCALER.chart: [{"version": version} for version in versions]}}).encode()
    if address == kubernetes_versions()["gcp"].upstream:
        known = [{"cycle": "1.9", "eol": "2020-01-01"}, {"cycle": "1.36", "eol": "2027-09-09"}]
        return json.dumps([*known, {"cycle": "1.99", "eol": "2033-01-01"}]).encode()
    if address == kubernetes_versions()["aws"].upstream:
        return b"<html>a proxy wants a login</html>"
    raise ConsoleError(f"{address}: cannot be downloaded", "check the network")


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


def test_publishers_tell_what_is_newer_and_who_cannot_be_asked_is_named() -> None:
    known = answers(publishers)
    found = by_name(known)
    scaler = found["chart cluster-autoscaler"]
    assert (scaler.here, scaler.newest, scaler.reported) == (SCALER.version, "99.1.0", True)
    assert found["Kubernetes 1.36 on GKE"].newest == "until 2027-09-09"
    assert (found["Kubernetes 1.99 on GKE"].here, found["Kubernetes 1.99 on GKE"].newest) == ("", "until 2033-01-01")
    assert "Kubernetes 1.9 on GKE" not in found
    assert found["Kubernetes 1.36 on EKS"].newest == ""
    named = "\n".join(known.not_asked)
    assert kubernetes_versions()["azure"].upstream in named
    assert KARPENTER in named
    assert str(SCALER.repository) not in named


def test_without_network_ages_and_ends_of_support_remain() -> None:
    known = answers(None)
    found = by_name(known)
    assert known.not_asked == ["all publishers (--offline)"]
    assert not any(entry.newest for entry in found.values())
    assert found["Kubernetes 1.34 on GKE"].reported
    assert not found["Kubernetes 1.36 on GKE"].reported
    late = by_name(known, TODAY + dt.timedelta(days=3650))
    assert all(entry.reported for entry in late.values())


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


def test_a_fact_takes_at_most_two_lines_of_a_narrow_terminal() -> None:
    listed, screen = entries(answers(publishers), TODAY), Screen.of(80)
    screen.output.print(shown(listed, TODAY))
    assert len(screen.lines) <= 2 * len(listed) + 3


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
