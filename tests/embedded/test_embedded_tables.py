"""Tables of scopes and of kinds, compared with the pinned definitions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
from gpu_tenancy.engine.checks import GENERATED, Scopes, documented_scopes, generated_scopes, known_scopes
from gpu_tenancy.model.kinds import Step, WorkloadKind, kinds
from gpu_tenancy.model.yaml import read_table

REMEDY = "run `make scopes`"


@pytest.fixture(scope="module")
def cache() -> Path:
    return platformdirs.user_cache_path("gpu-tenancy")


def row(definitions: str) -> Scopes:
    (scopes,) = [scopes for scopes in generated_scopes() if scopes.definitions == definitions]
    return scopes


def test_table_has_each_definition_in_its_pinned_version() -> None:
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
def test_operators_kinds_have_the_scopes_of_definitions(cache: Path, report: Report) -> None:
    """Definitions that no Go module has are compared by checksum alone, in the test above."""
    pins = [pin for pin in read_pins() if isinstance(pin.source, Module)]
    compared = list(operator_scopes(fetch(pins, cache, report)))
    assert len(compared) >= 9
    for scopes in compared:
        assert scopes == row(scopes.definitions), REMEDY


@pytest.mark.process
def test_built_in_kinds_have_the_scopes_of_the_openapi(cache: Path, report: Report) -> None:
    assert kubernetes_scopes(cache, report) == row("kubernetes"), REMEDY


def test_the_table_is_what_the_generator_writes() -> None:
    assert table(generated_scopes()) == GENERATED.read_text(encoding="utf-8"), REMEDY


def test_a_kind_is_in_one_row_only() -> None:
    kinds = [kind for scopes in generated_scopes() for kind, _ in scopes.kinds()]
    kinds += [(documented.group, documented.kind) for documented in documented_scopes()]
    assert sorted(kinds) == sorted(set(kinds))
    assert set(known_scopes()) == set(kinds)


def test_kind_is_namespaced_if_its_collection_is() -> None:
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


# The paths of kinds in `model/kinds.yaml` are fields of the pinned custom resource definitions.


OF_FORM = {"[]": "items", "{}": "additionalProperties"}


@pytest.mark.process
@pytest.mark.slow
def test_each_path_of_a_kind_is_a_field_of_its_definition(report: Report) -> None:
    groups = {kind.group for kind in kinds().values()}
    pins = [pin for pin in read_pins() if pin.file.partition("_")[0] in groups]
    files = fetch(pins, platformdirs.user_cache_path("gpu-tenancy"), report).values()
    compared: set[str] = set()
    problems: list[str] = []
    for definition in map(read_table, files):
        spec = definition["spec"]
        kind = kinds().get((spec["group"], spec["names"]["kind"]))
        if kind is None:
            continue
        compared.add(kind.kind)
        versions = {version["name"]: version["schema"]["openAPIV3Schema"] for version in spec["versions"]}
        problems += [f"{kind.kind}: {kind.version}"] if kind.version and kind.version not in versions else []
        problems += [f"{kind.kind}: {kind.plural}"] if kind.plural != spec["names"]["plural"] else []
        schema = versions.get(kind.version) or next(iter(versions.values()))
        problems += [f"{kind.kind}: {path}" for path in paths(kind) if not has(schema, path)]
    assert problems == []
    assert {"JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "RayService", "TrainJob"} <= compared


def paths(kind: WorkloadKind) -> Iterator[str]:
    """All paths of a kind, except paths that an older version of its API has."""
    steps = [*(pods.path for pods in kind.pods), kind.gang, kind.deadline, kind.named, kind.suspend, *kind.patches[:1]]
    yield from (text(path) for path in steps if path)
    for pods in kind.pods:
        fields = (*pods.count, *pods.sizes, *filter(None, (pods.resources, pods.less)))
        yield from (f"{text(pods.at)}.{field}" for field in fields)
    if kind.groups:
        yield kind.groups.count
    if kind.ready:
        yield f"status.{kind.ready}"


def text(path: tuple[Step, ...]) -> str:
    return ".".join(f"{step.field}.{OF_FORM[step.form]}" if step.form in OF_FORM else step.field for step in path)


def has(schema: Mapping[str, Any], path: str) -> bool:
    """Whether a schema has a path; the definition can leave the last part open."""
    for field in path.split("."):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        below = schema if field in OF_FORM.values() else schema.get("properties", {})
        if field not in below:
            return False
        schema = below[field]
    return True
