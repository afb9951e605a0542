import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import pool, stack, team
from cluster_builders import a_definition
from documented_definitions import DOCUMENTED
from embedded_builders import a_program, quiet
from loopback import serving_content
from rendered_stacks import stack_of_repository

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.embedded import definitions
from gpu_tenancy.embedded.definitions import annotated, cached, fetch, install, reduced, stored
from gpu_tenancy.embedded.definitions.pins import Definitions, Module, Pin, needed, read_definitions, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import stored_kinds
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.up import api_groups, groups_of
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.source import Source

CONTENT = b"kind: CustomResourceDefinition\n"
OTHER = b"something else"
SUM = hashlib.sha256(CONTENT).hexdigest()
MODULE = Module("example.com/operator", "v1.0.0", "config/crd", ("h1:a=", "h1:b="))
PIN = Pin("operator", "v1.0.0", "example.com_things.yaml", SUM, MODULE)


Downloads = tuple[dict[str, bytes], Pin]


@pytest.fixture(autouse=True)
def without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_TENANCY_UPSTREAM", raising=False)


@pytest.fixture
def downloads() -> Iterator[Downloads]:
    files: dict[str, bytes] = {}
    with serving_content(lambda path: files.get(path.removeprefix("/"))) as address:
        yield files, replace(PIN, source=f"{address}/{PIN.file}")


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a module, with a Go that prints it as downloaded, and writes each call to a file."""
    module = tmp_path / "module"
    (module / MODULE.folder).mkdir(parents=True)
    (module / MODULE.folder / PIN.file).write_bytes(CONTENT)
    answer = f'{{"Path": "{MODULE.name}", "Version": "{MODULE.version}", "Dir": "{module}"}}'
    environment = 'if [ "$1" = env ]; then echo go1.26.0; exit; fi'
    program = a_program(tmp_path / "bin", "go", environment, f'echo "$@" >> {tmp_path}/calls', f"echo '{answer}'")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return module


@pytest.mark.process
def test_each_definition_is_read_from_its_module_once(tmp_path: Path, go: Path) -> None:
    assert go.is_dir()
    cache, told = tmp_path / "cache", list[str]()
    for _ in range(2):
        assert {pin: file.read_bytes() for pin, file in fetch([PIN], cache, told.append).items()} == {PIN: CONTENT}
    assert told == ["downloading custom resource definitions: operator v1.0.0"]
    assert (tmp_path / "calls").read_text() == "mod download -json example.com/operator@v1.0.0\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (OTHER, f"checksum mismatch: sha256 {hashlib.sha256(OTHER).hexdigest()}, but {SUM} is pinned"),
        (None, r"operator@v1\.0\.0 has no file config/crd/example\.com_things\.yaml"),
    ],
    ids=["another checksum", "no file"],
)
def test_refuses_a_module_with(content: bytes | None, message: str, tmp_path: Path, go: Path) -> None:
    file = go / MODULE.folder / PIN.file
    file.write_bytes(content) if content else file.unlink()
    with pytest.raises(ConsoleError, match=message):
        fetch([PIN], tmp_path / "cache", quiet)
    assert not list((tmp_path / "cache").rglob("*"))


@pytest.mark.process
@pytest.mark.parametrize(
    ("proxy", "message"),
    [("off", r"Go module sigs\.k8s\.io/kueue@v\S+ cannot be downloaded: .*GOPROXY=off"), ("", "checksum mismatch")],
    ids=["no proxy", "a proxy with another module of the same version"],
)
def test_refuses_a_download(proxy: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "proxy" / "sigs.k8s.io" / "kueue" / "@v"
    folder.mkdir(parents=True)
    (kueue,) = (pin for pin in read_pins() if pin.file == "kueue.x-k8s.io_clusterqueues.yaml")
    (folder / f"{kueue.version}.info").write_text(f'{{"Version": "{kueue.version}"}}')
    (folder / f"{kueue.version}.mod").write_text("module sigs.k8s.io/kueue\n")
    monkeypatch.setenv("GOPROXY", proxy or (tmp_path / "proxy").as_uri())
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(ConsoleError, match=message):
        fetch([kueue], tmp_path / "cache", quiet)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "copies" / PIN.path
    copy.parent.mkdir(parents=True)
    copy.write_bytes(CONTENT)
    monkeypatch.setenv("GPU_TENANCY_UPSTREAM", str(tmp_path / "copies"))
    return copy


def test_a_folder_of_copies_is_read_before_anything_is_fetched(tmp_path: Path, copied: Path) -> None:
    assert fetch([PIN], tmp_path / "cache", quiet) == {PIN: copied}
    assert not (tmp_path / "cache").exists()


@pytest.mark.process
@pytest.mark.usefixtures("go")
def test_fetches_again_after_a_wrong_copy_or_a_damaged_file(tmp_path: Path, copied: Path) -> None:
    copied.write_bytes(b"an older one")
    cache = tmp_path / "cache"
    assert fetch([PIN], cache, quiet)[PIN].read_bytes() == CONTENT
    cached(PIN, cache).write_bytes(b"half of")
    assert fetch([PIN], cache, quiet)[PIN].read_bytes() == CONTENT


def test_copies_are_in_a_folder_and_addresses_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConsoleError, match="is not an https URL"):
        fetch([replace(PIN, source="http://example.com/one.yaml")], tmp_path, quiet)
    monkeypatch.setenv("GPU_TENANCY_UPSTREAM", str(tmp_path / "nowhere"))
    with pytest.raises(ConsoleError, match=f"GPU_TENANCY_UPSTREAM: {tmp_path / 'nowhere'} is not a folder"):
        fetch([PIN], tmp_path / "cache", quiet)


@pytest.mark.process
def test_definitions_without_a_module_are_downloaded_once(tmp_path: Path, downloads: Downloads) -> None:
    files, pin = downloads
    files[pin.file] = CONTENT
    cache = tmp_path / "cache"
    assert fetch([pin], cache, quiet)[pin].read_bytes() == CONTENT
    del files[pin.file]
    assert fetch([pin], cache, quiet)[pin].read_bytes() == CONTENT


@pytest.mark.process
def test_a_download_with_another_checksum_is_refused_and_deleted(tmp_path: Path, downloads: Downloads) -> None:
    files, pin = downloads
    files[pin.file] = OTHER
    with pytest.raises(ConsoleError, match=f"but {SUM} is pinned; do not use the file") as refused:
        fetch([pin], tmp_path / "cache", quiet)
    assert hashlib.sha256(OTHER).hexdigest() in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*"))


@pytest.mark.process
def test_failed_download_names_where_to_put_the_file(
    tmp_path: Path, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_PAUSES", (0.0, 0.0))
    _, pin = downloads
    cache = tmp_path / "cache"
    with pytest.raises(ConsoleError, match=rf"{pin.file} of operator v1\.0\.0 cannot be downloaded .* 404") as refused:
        fetch([pin], cache, quiet)
    place = cached(pin, cache)
    assert f"put the file at {place}" in str(refused.value)
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    assert fetch([pin], cache, quiet) == {pin: place}


# The pins themselves.


def test_each_pin_has_one_file_and_an_encrypted_source() -> None:
    assert len(read_pins()) > 30
    assert len({pin.path for pin in read_pins()}) == len(read_pins())
    for pin in read_pins():
        assert isinstance(pin.source, Module) or pin.source.startswith("https://")


def test_definitions_have_the_versions_of_the_charts() -> None:
    """Prometheus Operator has a version of its own, JobSet is in Trainer's chart, clouds have the others.

    No module of External Secrets is newer than 1.3.2: later ones lack the suffix that Go requires. Volcano's
    definitions are those of the controllers that can be built.
    """
    pinned, installed = {pin.operator: pin.version for pin in read_pins()}, {**cloud_charts(), **charts()}
    assert (pinned.pop("volcano"), charts()["volcano"].version) == ("v1.14.1", "1.15.2")
    assert (pinned.pop("external-secrets"), charts()["external-secrets"].version) == ("v1.3.2", "2.10.0")
    assert {"external-snapshotter", "gateway-api", "jobset", "prometheus-operator"} == {
        name for name in pinned if name not in installed
    }
    assert {name: installed[name].version.removeprefix("v") for name in pinned if name in installed} == {
        name: version.removeprefix("v") for name, version in pinned.items() if name in installed
    }


def test_definitions_have_one_source() -> None:
    module = {"module": "m", "folder": "f", "sum": "h1:a=", "goModSum": "h1:b="}
    for broken in ({}, {**module, "url": "https://example.com"}, {"module": "m", "folder": "f"}):
        with pytest.raises(ValueError, match="a: set 'module', 'folder', 'sum' and 'goModSum', or 'url'"):
            Definitions.model_validate({"name": "a", "version": "v1", "files": {}, **broken})


def test_stack_needs_definitions_of_its_operators() -> None:
    assert {pin.operator for pin in needed(read_pins(), {"kueue.x-k8s.io", "apps", ""})} == {"kueue"}
    assert len(needed(read_pins(), {"batch.volcano.sh"})) == sum(pin.operator == "volcano" for pin in read_pins())
    assert needed(read_pins(), {"apps", ""}) == ()


@pytest.mark.parametrize("stack", stack_names())
def test_no_stack_needs_a_definition_that_no_module_carries(stack: str) -> None:
    pins = needed(read_pins(), api_groups(stack_of_repository(stack).objects))
    assert {pin.operator for pin in pins} >= {"kueue"}
    assert [pin.file for pin in pins if isinstance(pin.source, str)] == []


def test_strips_descriptions_but_not_fields_of_that_name(tmp_path: Path) -> None:
    text = {"type": "string", "description": "A text."}
    schema = {"type": "object", "description": "All.", "properties": {"description": text, "properties": text}}
    definition: Any = a_definition("embedded.example.com", "Pin", scope="Cluster")
    version = {"name": "v1", "schema": {"openAPIV3Schema": {**schema, "anyOf": [schema], "items": schema}}}
    file = tmp_path / "one.yaml"
    spec: Any = {**definition["spec"], "conversion": {}, "versions": [version]}
    file.write_text(yaml.safe_dump({**definition, "status": {}, "spec": spec}))
    pin = replace(PIN, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    plain = {"type": "object", "properties": {name: {"type": "string"} for name in ("description", "properties")}}
    served = {"name": "v1", "schema": {"openAPIV3Schema": {**plain, "anyOf": [plain], "items": plain}}}
    expected = {**definition, "spec": {**definition["spec"], "versions": [served]}}
    assert reduced(pin, file, tmp_path) == expected
    (copy,) = (tmp_path / "definitions").glob(f"*/{pin.sha256}.json")
    copied = copy.read_text()
    copy.write_text("{")
    assert reduced(pin, file, tmp_path) == expected
    assert copy.read_text() == copied
    file.unlink()
    assert reduced(pin, file, tmp_path) == expected


# On a cluster.


def test_second_install_sends_nothing(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition: Any = a_definition("embedded.example.com", "Pin", scope="Cluster")
    definition["spec"]["conversion"] = {"strategy": "Webhook"}
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump(definition))
    files = {replace(PIN, sha256=hashlib.sha256(file.read_bytes()).hexdigest()): file}
    told: list[str] = []
    try:
        install(cluster, files, tmp_path / "cache", told.append)
        assert told == ["installing 1 custom resource definitions"]
        assert cluster.list("embedded.example.com/v1", "Pin") == ()
        monkeypatch.delattr(Cluster, "apply")
        install(cluster, files, tmp_path / "cache", told.append)
        assert len(told) == 1
    finally:
        cluster.delete(Reference.of(definition))
        cluster.forget_kinds()


def test_each_definition_of_the_modules_is_on_the_platform(cluster: Cluster) -> None:
    there = {
        text_at(definition, "metadata", "name")
        for definition in cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata_only=True)
    }
    assert there - DOCUMENTED == {
        f"{plural}.{pin.group}"
        for pin in read_pins()
        if isinstance(pin.source, Module)
        for plural in [pin.file.partition("_")[2].removesuffix(".yaml")]
    }


def test_starting_definitions_equal_stored_ones(cluster: Cluster, platform: Platform) -> None:
    pins = [pin for pin in read_pins() if isinstance(pin.source, Module)]
    for definition in annotated(fetch(pins, platform.cache, quiet), platform.cache):
        live: Any = cluster.get(*Reference.of(definition))
        made: Any = cluster.apply(definition, dry_run=True)
        assert made["spec"] == live["spec"]
        assert (live["metadata"]["generation"], made["metadata"]["generation"]) == (1, 1)
        expected: Any = stored(definition)
        assert live["status"]["acceptedNames"] == expected["status"]["acceptedNames"]
        assert live["status"]["storedVersions"] == expected["status"]["storedVersions"]


def test_stored_status_equals_that_of_a_created_definition(cluster: Cluster) -> None:
    definition: Any = a_definition("embedded.example.com", "Pin", scope="Cluster")

    def told(of: Any) -> Any:
        conditions = [{**one, "lastTransitionTime": ""} for one in of["status"]["conditions"]]
        return {**of["status"], "conditions": sorted(conditions, key=lambda one: one["type"])}

    try:
        cluster.create(definition)
        assert await_kinds(cluster, [definition]) == []
        created: Any = cluster.get(*Reference.of(definition))
        expected: Any = stored(definition)
        assert told(created) == told(expected)
        assert created["spec"] == expected["spec"]
    finally:
        cluster.delete(Reference.of(definition))
        cluster.forget_kinds()


CLAIM = {"size": "1Gi", "snapshots": {"schedule": "0 3 * * *", "class": "csi"}}
GB200 = {"cpu": pool("m7i.8xlarge", 1), "gb200": pool("p6e-gb200.36xlarge", 2)}


@pytest.mark.parametrize(
    ("sections", "operators"),
    [
        ({"teams": {"a": team(gpus={"h100": {"guaranteed": 0}}, storage={"ck": CLAIM})}}, {"external-snapshotter"}),
        ({"teams": {"a": team(gpus={"h100": {"guaranteed": 0}})}}, set[str]()),
        ({"pools": GB200, "teams": {"a": team(gpus={"gb200": {"guaranteed": 8}})}}, {"dra-driver-nvidia-gpu"}),
    ],
    ids=["snapshots, which CronJobs make", "neither", "domains, which teams make"],
)
def test_kinds_without_objects_need_their_definitions(sections: dict[str, Any], operators: set[str]) -> None:
    planned = plan(load(Source(stack(**sections))))
    assert {pin.operator for pin in needed(read_pins(), groups_of(planned, ()))} == operators


def test_served_versions_match_their_descriptions(cluster: Cluster) -> None:
    described = {pin.group: set(one.versions) for one in read_definitions() if one.versions for pin in one.pins()}
    served = {kind.name: (kind.group, set(kind.served)) for kind in stored_kinds(cluster, described)}
    assert {group for group, _ in served.values()} == described.keys()
    assert {name: versions for name, (_, versions) in served.items()} == {
        name: described[group] for name, (group, _) in served.items()
    }
