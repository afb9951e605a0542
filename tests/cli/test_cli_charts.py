"""`tenancy cluster charts` compares the archives of Helm charts with their pinned digests."""

import hashlib
import json
from dataclasses import replace

import pytest
from chart_repository import StandIn
from chart_repository import repository as serve
from repository import ROOT

from gpu_tenancy.base.answer import Form
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.charts import ChartPin, chart_pins, chart_rows
from gpu_tenancy.doctor import results
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.releases import helm_releases
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.releases import cloud_charts

pytestmark = pytest.mark.process

KEDA = StandIn("keda", "2.20.2", {"values.yaml": "{}\n"})
DIGEST = f"sha256:{hashlib.sha256(KEDA.packed()).hexdigest()}"
OTHER = f"sha256:{'0' * 64}"
IN_HTTP = ChartPin("keda", "keda", "", "2.20.2", DIGEST, "operators.keda.digest")
IN_OCI = ChartPin("kueue", "oci://example.com/kueue", "", "0.19.2", DIGEST, "operators.kueue.digest")


def test_the_archive_of_an_http_repository_is_compared_with_its_digest() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address)])
    assert (row.subject, row.needed, row.verdict, row.fix) == ("keda 2.20.2", DIGEST, "OK", "")


def test_another_archive_of_the_same_version_is_an_error_with_both_digests() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address, digest=OTHER)])
    assert (row.verdict, row.needed) == ("missing", OTHER)
    assert row.available == f"another archive: {address}/keda-2.20.2.tgz has {DIGEST}"
    assert row.fix == (
        "do not deploy; ask the publisher why the archive changed, and if it is right, set operators.keda.digest: "
        f"{DIGEST}"
    )


def test_a_chart_without_a_digest_is_unknown_and_the_fix_names_the_one_that_it_has() -> None:
    with serve([KEDA]) as address:
        (row,) = chart_rows([replace(IN_HTTP, repository=address, digest=None)])
    assert row.verdict == "unknown"
    assert row.fix == f"compare it with the publisher's digest, then set operators.keda.digest: {DIGEST}"
    (row,) = chart_rows([replace(IN_OCI, digest=None)])
    assert row.verdict == "unknown"
    assert "`helm pull oci://example.com/kueue --version 0.19.2`" in row.fix


def test_the_digest_of_an_oci_chart_is_left_to_helm() -> None:
    (row,) = chart_rows([IN_OCI])
    assert (row.verdict, row.available) == ("OK", "checked by Helm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2.20.3"}, r": no chart keda 2\.20\.3; correct the version"),
        ({"chart": "other"}, r": no chart other 2\.20\.2; correct the version"),
        ({"repository": "http://example.com"}, r"http://example\.com/index\.yaml: not an https URL; use"),
        ({"repository": "http://127.0.0.1:1"}, r"http://127\.0\.0\.1:1/index\.yaml: cannot be downloaded \(.*; check"),
    ],
)
def test_a_chart_that_cannot_be_compared_is_an_error(change: dict[str, str], message: str) -> None:
    with serve([KEDA]) as address, pytest.raises(ConsoleError, match=message):
        list(chart_rows([replace(replace(IN_HTTP, repository=address), **change)]))


@pytest.mark.parametrize("stack", ["prod-aws", "prod-azure", "prod-gcp"])
def test_every_release_of_a_stack_is_compared_with_the_digest_of_the_catalogue(stack: str) -> None:
    shown = preview(stack, ROOT)
    pins = chart_pins(shown.stack, helm_releases(shown.rendered))
    assert {pin.name for pin in pins} >= {"kueue", "kube-prometheus-stack", "keda"}
    rows = {**cloud_charts(), **charts()}
    for pin in pins:
        assert (pin.digest, pin.version) == (rows[pin.name].digest, rows[pin.name].version), pin.name
        assert pin.place


def test_rows_are_shown_as_those_of_the_preflight(capsys: pytest.CaptureFixture[str]) -> None:
    results.conclude(list(chart_rows([IN_OCI])), Form.JSON)
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "OK"
