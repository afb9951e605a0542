"""Charts of operators, adapted to processes on loopback."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from builders import stack
from embedded_builders import a_program, quiet

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.embedded.building import source_folder
from gpu_tenancy.embedded.certificates import make_webhook_certificates
from gpu_tenancy.embedded.controllers import Controllers, table
from gpu_tenancy.embedded.controllers.adapting import (
    arguments_of,
    by_url,
    configured,
    conversion,
    plain,
    pod_of,
)
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
    with_more,
)
from gpu_tenancy.embedded.definitions.pins import read_pins
from gpu_tenancy.embedded.parts import Places
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.embedded.processes import PortTakenError
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

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
    assert with_more({"a": {"list": [1], "on": True, "kept": 1}}, more) == {
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
    objects = render(found[RENDERER], folder, release(with_more(values, KUEUE.values)))
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

    def launch(_: Controllers, _cluster: object, _wanted: object, ports: object, *_others: object) -> None:
        started.append(ports)
        if len(started) <= taken:
            raise PortTakenError("kueue exited", "try again")

    monkeypatch.setattr(Controllers, "_launch", launch)
    row = SimpleNamespace(programs={"manager": None})
    items: Any = [SimpleNamespace(name="kueue", version="v1", fingerprint="f", row=row)]
    cluster: Any = None
    with pytest.raises(PortTakenError) if taken == 3 else nullcontext():
        Controllers(Places(tmp_path)).bring(cluster, items, tmp_path, quiet)
    assert started == [{}] * min(3, taken + 1)
