"""Tables of scopes and of kinds, compared with the pinned definitions."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import platformdirs
import pytest
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.json import Json, map_at, maps_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import KUBERNETES, SOURCE, find_go, needed_go
from gpu_tenancy.embedded.definitions import fetch, module_folders
from gpu_tenancy.embedded.definitions.pins import Module, Pin, read_pins
from gpu_tenancy.embedded.definitions.scopes import (
    OPENAPI,
    built_in_kinds,
    kubernetes_scopes,
    operator_scopes,
    pins_checksum,
    table,
)
from gpu_tenancy.engine.checks import GENERATED, Scopes, documented_scopes, generated_scopes, known_scopes
from gpu_tenancy.model.catalogue.updates import cloud_type, forces_new
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


@pytest.fixture(scope="module")
def definitions(cache: Path, report: Report) -> list[Any]:
    """The pinned definitions of the groups of all kinds."""
    groups = {kind.group for kind in kinds().values()}
    pins = [pin for pin in read_pins() if pin.file.partition("_")[0] in groups]
    return [read_table(file) for file in fetch(pins, cache, report).values()]


@pytest.mark.process
@pytest.mark.slow
def test_each_path_of_a_kind_is_a_field_of_its_definition(definitions: list[Any]) -> None:
    compared: set[str] = set()
    problems: list[str] = []
    for definition in definitions:
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


@pytest.mark.process
@pytest.mark.slow
def test_immutable_fields_are_replaced_or_blocked(cache: Path, report: Report) -> None:
    """The API server refuses other values, so an update in place would end a deployment."""
    pins = [pin for pin in read_pins() if isinstance(pin.source, Module)]
    served: dict[str, Any] = {}
    for spec in (read_table(file)["spec"] for file in fetch(pins, cache, report).values()):
        for version in spec["versions"]:
            token = f"kubernetes:{spec['group']}/{version['name']}:{spec['names']['kind']}"
            served[token] = version["schema"]["openAPIV3Schema"]
    updated: set[str] = set()
    for one in stack_of_repository("local").rendered.registrations:
        for path in immutable(served.get(one.type, {}), ""):
            if not forces_new(one.type, path, one.replace_on_changes, {}) and not cloud_type(one.type).kept(path):
                updated.add(f"{one.type}: {path}")
    assert not {entry for entry in updated if "volumeClaimPolicies" not in entry}, "no runtime has claims"


def immutable(schema: Mapping[str, Json], path: str) -> Iterator[str]:
    if any(rule["rule"] == "self == oldSelf" for rule in maps_at(schema, "x-kubernetes-validations")):
        yield path
    for key, below in map_at(schema, "properties").items():
        yield from immutable(map_at({"": below}, ""), f"{path}.{key}".lstrip("."))
    if below := map_at(schema, "items"):
        yield from immutable(below, path)


def paths(kind: WorkloadKind) -> Iterator[str]:
    """All paths of a kind, except paths that an older version of its API has."""
    steps = [*(pods.path for pods in kind.pods), kind.gang, kind.deadline, *kind.named, kind.suspend, *kind.patches[:1]]
    steps += [(*secrets.at, *name) for secrets in kind.secrets for name in secrets.names]
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


# Fields of pod specs that name a Secret and that the guard `secrets` reads.
READ: Final = re.compile(
    r"((init|ephemeral)?[cC]ontainers\[\]\.(env\[\]\.valueFrom\.secretKeyRef|envFrom\[\]\.secretRef)\.name"
    r"|volumes\[\]\.(\w+\.(secretName|(nodePublishS|s)ecretRef\.name)|projected\.sources\[\]\.secret\.name))"
)
# Ends of other paths that look like one, and why no container gets a Secret by them.
HARMLESS: Final = {
    r"imagePullSecrets\[\]\.name": "only the kubelet reads it",
    r"cephfs\.secretFile": "a file of the node, of a type of volume that the guard devices refuses",
    r"configMap\w*\.name": "a ConfigMap",
    r"authenticationRef\.name": "KEDA reads it, of a TriggerAuthentication; no role of people has these kinds",
    r"(os|schedulingGates\[\])\.name": "no object",
}


@pytest.mark.process
@pytest.mark.slow
def test_guards_read_every_field_that_names_a_secret(definitions: list[Any], cache: Path, report: Report) -> None:
    folder = module_folders([OPENAPI], find_go(needed_go(), cache, report), SOURCE)[OPENAPI]
    built_in = json.loads((folder / OPENAPI.folder / "swagger.json").read_bytes())["definitions"]
    schemas = [
        *(
            (name["group"], name["kind"], schema)
            for schema in built_in.values()
            for name in schema.get("x-kubernetes-group-version-kind", ())
        ),
        *(
            (definition["spec"]["group"], definition["spec"]["names"]["kind"], version["schema"]["openAPIV3Schema"])
            for definition in definitions
            for version in definition["spec"]["versions"]
        ),
    ]
    seen: set[str] = set()
    unread: set[str] = set()
    for kind, schema in ((kinds().get((group, name)), schema) for group, name, schema in schemas):
        if kind is None or not kind.guarded:
            continue
        for path in naming(schema, built_in):
            seen.add(path.rpartition("pec.")[2])
            if not is_read(kind, path) and not any(re.search(f"{end}$", path) for end in HARMLESS):
                unread.add(f"{kind.kind}: {path}")
    assert sorted(unread) == []
    assert {"volumes[].azureFile.secretName", "authOptions.secretName", "initializer.model.secretRef.name"} <= seen
    assert all(any(re.search(f"{end}$", path) for path in seen) for end in HARMLESS)


def naming(schema: Mapping[str, Any], built_in: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of texts that can name a Secret: by their own name, or as the name of a reference."""
    if "$ref" in schema:
        schema = built_in[schema["$ref"].rpartition("/")[2]]
    properties = schema.get("properties", {})
    for name, below in properties.items():
        is_reference = name == "name" and properties.keys() <= {"key", "kind", "name", "namespace", "optional"}
        of_secret = name == "name" and "secret" in path[:-1].rpartition(".")[2].lower()
        if below.get("type") == "string" and ("secret" in name.lower() or is_reference or of_secret):
            yield f"{path}{name}"
        yield from naming(below, built_in, f"{path}{name}.")
    for form, field in OF_FORM.items():
        if isinstance(schema.get(field), dict):
            yield from naming(schema[field], built_in, f"{path.removesuffix('.')}{form}.")


def is_read(kind: WorkloadKind, path: str) -> bool:
    """Whether the guard `secrets` reads a path: in a pod spec, as the options of Ray's autoscaler, or by the table."""
    specs = [f"{plain(pods.path)}.spec." for pods in kind.pods if pods.template or not pods.at]
    specs += [f"{plain(patch)}." for patch in kind.patches]
    read = any(READ.fullmatch(path.removeprefix(spec)) for spec in (one.removeprefix(".") for one in specs))
    rays = [f"{plain(pods.at)}.autoscalerOptions." for pods in kind.pods if pods.adds]
    read |= any(READ.fullmatch(f"containers[].{path.removeprefix(ray)}") for ray in rays)
    return read or path in {plain((*secrets.at, *name)) for secrets in kind.secrets for name in secrets.names}


def plain(path: tuple[Step, ...]) -> str:
    return ".".join(f"{step.field}{step.form.removeprefix('?')}" for step in path)
