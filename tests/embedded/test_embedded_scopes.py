"""The table of scopes is what the pinned definitions and the OpenAPI document of Kubernetes say."""

from pathlib import Path

import platformdirs
import pytest

from gpu_tenancy.base.json import Json
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import KUBERNETES
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import Module, Pin, read_pins
from gpu_tenancy.embedded.definitions.scopes import (
    built_in_kinds,
    kubernetes_scopes,
    operator_scopes,
    pins_checksum,
    table,
)
from gpu_tenancy.engine.scopes import GENERATED, Scopes, documented_scopes, generated_scopes, known_scopes

REMEDY = "run `make scopes`"


@pytest.fixture(scope="module")
def cache() -> Path:
    return platformdirs.user_cache_path("gpu-tenancy")


def row(definitions: str) -> Scopes:
    """The row of one set of definitions in the table."""
    (scopes,) = [scopes for scopes in generated_scopes() if scopes.definitions == definitions]
    return scopes


def test_the_table_has_each_pinned_definition_in_its_pinned_version() -> None:
    pins: dict[str, list[Pin]] = {}
    for pin in read_pins():
        pins.setdefault(pin.operator, []).append(pin)
    assert {scopes.definitions: scopes.sha256 for scopes in generated_scopes()[1:]} == {
        operator: pins_checksum(listed) for operator, listed in pins.items()
    }, REMEDY
    assert {scopes.definitions: scopes.version for scopes in generated_scopes()} == {
        "kubernetes": KUBERNETES,
        **{pin.operator: pin.version for pin in read_pins()},
    }, REMEDY
    for scopes in generated_scopes()[1:]:
        assert len(list(scopes.kinds())) == len(pins[scopes.definitions]), REMEDY


@pytest.mark.process
@pytest.mark.slow
def test_the_kinds_of_operators_have_the_scopes_of_their_definitions(cache: Path, report: Report) -> None:
    """Those whose definitions no Go module has are compared by checksum alone, in the test above."""
    pins = [pin for pin in read_pins() if isinstance(pin.source, Module)]
    compared = list(operator_scopes(fetch(pins, cache, report)))
    assert len(compared) >= 9
    for scopes in compared:
        assert scopes == row(scopes.definitions), REMEDY


@pytest.mark.process
def test_the_built_in_kinds_have_the_scopes_of_the_openapi_document(cache: Path, report: Report) -> None:
    assert kubernetes_scopes(cache, report) == row("kubernetes"), REMEDY


def test_the_table_is_what_the_generator_writes() -> None:
    assert table(generated_scopes()) == GENERATED.read_text(encoding="utf-8"), REMEDY


def test_a_kind_is_in_one_row_only() -> None:
    kinds = [kind for scopes in generated_scopes() for kind, _ in scopes.kinds()]
    kinds += [(documented.group, documented.kind) for documented in documented_scopes()]
    assert sorted(kinds) == sorted(set(kinds))
    assert set(known_scopes()) == set(kinds)


def test_a_kind_is_namespaced_if_its_collection_is_in_a_namespace() -> None:
    def created(group: str, kind: str) -> Json:
        return {"post": {"x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": kind}}}

    paths: dict[str, Json] = {
        "/api/v1/namespaces": created("", "Namespace"),
        "/api/v1/namespaces/{namespace}/pods": created("", "Pod"),
        "/api/v1/namespaces/{namespace}/pods/{name}/eviction": created("policy", "Eviction"),
        "/api/v1/pods": {"get": {"x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Pod"}}},
        "/apis/storage.k8s.io/v1/storageclasses": created("storage.k8s.io", "StorageClass"),
        "/version/": {"get": {}},
    }
    assert built_in_kinds({"paths": paths}) == {
        ("", "Namespace"): True,
        ("", "Pod"): False,
        ("storage.k8s.io", "StorageClass"): True,
    }
