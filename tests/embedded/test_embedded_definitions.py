"""Definitions of operators, and the controllers that run locally."""

import hashlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
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
from gpu_tenancy.embedded.building import source_folder
from gpu_tenancy.embedded.certificates import make_webhook_certificates
from gpu_tenancy.embedded.controllers import Controllers, table
from gpu_tenancy.embedded.controllers.adapting import arguments_of, by_url, configured, conversion, plain, pod_of
from gpu_tenancy.embedded.controllers.table import (
    RENDERER,
    Program,
    Ready,
    chart_folder,
    module_of,
    read_rows,
    render,
    rows_of,
    wanted,
)
from gpu_tenancy.embedded.definitions import annotated, cached, fetch, install, reduced, stored
from gpu_tenancy.embedded.definitions.pins import Definitions, Module, Pin, needed, read_definitions, read_pins
from gpu_tenancy.embedded.parts import Places
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.embedded.processes import PortTakenError
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import stored_kinds
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.up import api_groups, groups_of
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.operators.gpus import merged
from gpu_tenancy.model.plan.shares import Tree
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
    """Prometheus Operator has a version of its own, JobSet is in Trainer's chart, clouds have the others."""
    # No module of External Secrets is newer than 1.3.2: later ones lack the suffix that Go requires. Volcano's
    # definitions are those of the controllers that can be built.
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


KUEUE = read_rows()["kueue"]
_DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "queue", "namespace": "queues"},
    "spec": {"template": {"spec": {"serviceAccount": "queue-account", "containers": [{"command": ["/manager"],
        "args": ["--config=/etc/queue/config.yaml", "--certs=/certs", "--level=2", "--odd={x}", "2>&1"],
        "env": [{"name": "REGION", "value": "here"}, {"name": "POD", "valueFrom": {}}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/queue/config.yaml", "subPath": "config.yaml"},
        {"name": "certs", "mountPath": "/certs"}, {"name": "scratch", "mountPath": "/scratch"}]}],
        "volumes": [{"name": "config", "configMap": {"name": "queue-config"}}, {"name": "certs",
        "secret": {"secretName": "queue-certs"}}, {"name": "scratch", "emptyDir": {}}]}}},
}  # fmt: skip
CONFIG: Any = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "queue-config"},
    "data": {"config.yaml": "a: 1\n"},
}
DEPLOYMENT: Any = _DEPLOYMENT
PLACES: dict[str, str | int] = {"files": "/f", "certificates": "/c", "temporary": "/t", "health": 81}


def program(**fields: Any) -> Program:
    return Program(program="queue", package="example.com/queue", ready=Ready(port="health", path="/"), **fields)


def test_versions_match_the_definitions_and_the_charts() -> None:
    """Volcano runs in the newest version whose modules the module proxy serves, not in its chart's version."""
    definitions = {pin.operator: pin.version for pin in read_pins()}
    for name, row in read_rows().items():
        version = module_of(row).version
        if name in definitions:
            assert version.removeprefix("v") == definitions[name].removeprefix("v"), name
        if not row.part and name in charts() and name != "volcano":
            assert version.removeprefix("v") == charts()[name].version.removeprefix("v"), name


def test_each_program_is_a_tool_or_in_its_modules_folder() -> None:
    for row in read_rows().values():
        source = source_folder(row.source)
        modules = (source / "go.mod").read_text()
        for one in row.programs.values():
            if one.package.startswith("./"):
                assert (source / one.package / "main.go").is_file()
                controllers = rf"^\s+{re.escape(row.module)}/\S+ {re.escape(row.version)}$"
                assert re.search(controllers, modules, re.MULTILINE), "the version of the chart"
            else:
                assert re.search(rf"^\s+{re.escape(one.package)}$", modules, re.MULTILINE), one.package


def test_a_deployment_becomes_arguments_files_and_certificates() -> None:
    pod = pod_of([DEPLOYMENT, CONFIG], "queue")
    assert (pod.namespace, pod.account) == ("queues", "queue-account")
    assert pod.environment == {"REGION": "here"}
    assert dict(pod.files) == {"config/config.yaml": "a: 1\n"}
    assert pod.secrets == ("queue-certs",)
    assert arguments_of(pod, program(), PLACES) == [
        "--config=/f/config/config.yaml",
        "--certs=/c",
        "--level=2",
        "--odd={x}",
    ]


def test_flags_of_the_table_replace_or_extend_the_charts() -> None:
    pod = pod_of([DEPLOYMENT, CONFIG], "queue")
    found = arguments_of(pod, program(arguments=("--level=4", "--health=127.0.0.1:{health}")), PLACES)
    assert found == ["--config=/f/config/config.yaml", "--certs=/c", "--odd={x}", "--level=4", "--health=127.0.0.1:81"]


def test_unknown_deployment_lists_those_of_the_chart() -> None:
    with pytest.raises(ValueError, match="Deployment other is not in the chart, which has queue"):
        pod_of([DEPLOYMENT, CONFIG], "other")


def test_settings_replace_keys_and_keep_ports_numeric() -> None:
    text = "health: {address: ':8081', path: /z}\nkept: [1]\n"
    settings = {"health": {"address": "127.0.0.1:{health}"}, "port": "{health}", "on": False}
    found = yaml.safe_load(configured(text, settings, PLACES))
    expected = {"health": {"address": "127.0.0.1:81", "path": "/z"}, "kept": [1], "port": 81, "on": False}
    assert found == expected


def test_webhooks_and_conversions_call_loopback() -> None:
    service = {"service": {"name": "hooks", "namespace": "queues", "path": "/mutate"}, "caBundle": "old"}
    listed: Any = [{"name": "a", "clientConfig": service, "sideEffects": "None"}]
    metadata: Any = {"name": "m", "namespace": "queues"}
    moved: Any = by_url({"kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": listed}, 94, "CA")
    assert moved["webhooks"] == [
        {"name": "a", "clientConfig": {"url": "https://127.0.0.1:94/mutate", "caBundle": "Q0E="}, "sideEffects": "None"}
    ]
    assert moved["metadata"] == {"name": "m"}
    converted: Any = {"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service}}}}
    change: Any = conversion(converted, 94, "CA")
    assert change["spec"]["conversion"]["webhook"]["clientConfig"]["url"] == "https://127.0.0.1:94/mutate"
    assert conversion({"spec": {}}, 94, "CA") is None


def test_leaves_out_pods_services_hooks_and_webhooks() -> None:
    account: Any = {"kind": "ServiceAccount", "metadata": {"name": "queue-account"}}
    hook: Any = {"kind": "Role", "metadata": {"name": "setup", "annotations": {"helm.sh/hook": "pre-install"}}}
    service: Any = {"kind": "Service", "metadata": {"name": "hooks"}}
    assert list(plain([DEPLOYMENT, account, hook, service, CONFIG])) == [account, CONFIG]


def test_values_are_merged_and_lists_are_appended() -> None:
    more = {"a": {"list": [2], "on": False}, "b": 3}
    assert merged({"a": {"list": [1], "on": True, "kept": 1}}, more, append=True) == {
        "a": {"list": [1, 2], "on": False, "kept": 1},
        "b": 3,
    }


def release(values: dict[str, Any]) -> ReleasePlan:
    return ReleasePlan("kueue", KUEUE.chart, None, module_of(KUEUE).version, "kueue-system", values=values, serves=())


def test_the_chart_of_kueue_gives_its_configuration_and_rights(platform: Platform) -> None:
    """The real chart, by the real renderer."""
    found, unavailable = table.find({"kueue": KUEUE}, platform.cache, quiet)
    assert unavailable == {}
    folder = chart_folder("kueue", KUEUE, platform.cache, quiet)
    values = {"managerConfig": {"controllerManagerConfigYaml": "kind: Configuration\n"}}
    objects = render(found[RENDERER], folder, release(merged(values, KUEUE.values, append=True)))
    pod = pod_of(objects, "kueue-controller-manager")
    assert pod.account == "kueue-controller-manager"
    assert "kind: Configuration" in pod.files["manager-config/controller_manager_config.yaml"]
    assert "--feature-gates=VisibilityOnDemand=false" in pod.arguments
    kinds = {str(item["kind"]) for item in plain(objects)}
    assert {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap"} <= kinds


def test_two_downloads_of_a_chart_at_once_make_one_copy(platform: Platform, tmp_path: Path) -> None:
    for wheel in platform.cache.glob("go-*"):  # so that nothing is downloaded
        (tmp_path / wheel.name).symlink_to(wheel)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(chart_folder, "kueue", KUEUE, tmp_path, quiet) for _ in range(2)]
    (copy,) = {one.result() for one in both}
    assert (copy / "Chart.yaml").is_file()
    assert [one.name for one in copy.parent.iterdir()] == [copy.name]


def test_rejected_chart_values_are_reported_with_helms_message(platform: Platform) -> None:
    found, _ = table.find({"kueue": KUEUE}, platform.cache, quiet)
    folder = chart_folder("kueue", KUEUE, platform.cache, quiet)
    broken = {"controllerManager": {"featureGates": [{"name": "X"}, 3]}}
    with pytest.raises(ConsoleError, match=r"(?s)cannot be rendered: .*; correct the values of kueue in `operators`"):
        render(found[RENDERER], folder, release(broken))


def test_stack_gets_its_controllers_with_its_values(tmp_path: Path) -> None:
    plain_stack = load(Source(stack()))
    assert list(rows_of(Tree(plain_stack))) == ["kueue"]
    given = {name: a_program(tmp_path, name) for name in ("kueue", RENDERER)}
    (one,) = wanted(plain_stack, given)
    assert "manageJobsWithoutQueueName: true" in one.release.values["managerConfig"]["controllerManagerConfigYaml"]
    own = load(
        Source(stack(operators={"kueue": {"install": "here", "values": {"controllerManager": {"replicas": 3}}}}))
    )
    (other,) = wanted(own, given)
    assert other.release.values["controllerManager"]["replicas"] == 3
    assert other.fingerprint != one.fingerprint


@pytest.mark.process
def test_named_folder_precedes_and_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volcano = read_rows()["volcano"]
    for one in volcano.programs.values():
        a_program(tmp_path / "own", one.program)
    renderer = a_program(tmp_path / "own", RENDERER)
    monkeypatch.setenv(table.FOLDER, str(tmp_path / "own"))
    found, unavailable = table.find({"volcano": volcano}, tmp_path / "cache", quiet)
    assert found == {RENDERER: renderer} | {
        one.program: tmp_path / "own" / one.program for one in volcano.programs.values()
    }
    assert unavailable == {}
    (tmp_path / "own" / "vc-scheduler").unlink()
    monkeypatch.setenv("PATH", f"{a_program(tmp_path / 'bin', 'go', 'echo go1.26.0; exit 1').parent}:/usr/bin:/bin")
    _, unavailable = table.find({"volcano": volcano}, tmp_path / "cache", quiet)
    assert set(unavailable) == {"vc-scheduler"}
    monkeypatch.setenv(table.FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(ConsoleError, match="nowhere is not a folder; set it to a folder with programs, or unset it"):
        table.prepared({"volcano": volcano}, tmp_path / "cache")


def test_webhook_certificates_are_made_once_and_private(tmp_path: Path) -> None:
    made = make_webhook_certificates(tmp_path / "certs", ["hooks.queues.svc"], "queue-ca")
    assert made == make_webhook_certificates(tmp_path / "certs", ["hooks.queues.svc"], "queue-ca")
    assert "BEGIN RSA PRIVATE KEY" in made["ca.key"]  # the rotator of operators reads no other
    assert {file.stat().st_mode & 0o77 for file in (tmp_path / "certs").iterdir()} == {0}


@pytest.mark.parametrize("taken", [1, 3])
def test_controllers_retry_on_other_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    started: list[object] = []

    def at_ports(ports: object) -> None:
        started.append(ports)
        if len(started) <= taken:
            raise PortTakenError("kueue exited", "try again")

    def prepared(*_others: object) -> SimpleNamespace:
        return SimpleNamespace(at_ports=at_ports)

    def launch(*_: object) -> None:
        """Starts no program."""

    monkeypatch.setattr("gpu_tenancy.embedded.controllers.prepare", prepared)
    monkeypatch.setattr(Controllers, "_launch", launch)
    row = SimpleNamespace(programs={"manager": None})
    items: Any = [SimpleNamespace(name="kueue", version="v1", fingerprint="f", row=row)]
    cluster: Any = None
    with pytest.raises(PortTakenError) if taken == 3 else nullcontext():
        Controllers(Places(tmp_path)).bring(cluster, items, tmp_path, quiet)
    assert started == [{}] * min(3, taken + 1)
