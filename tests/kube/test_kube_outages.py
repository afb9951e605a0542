"""Outages of an API server or of its webhooks, and an apply that is killed."""

import json
import os
import ssl
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from pathlib import Path
from random import Random
from threading import Lock
from time import monotonic, sleep

import pytest
from cluster_builders import Manifest, a_bare_account, a_config_map, a_job, a_kubeconfig
from loopback import LOOPBACK, Handler, serving
from stand_ins import webhook
from starts import GUARD

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.embedded.certificates import make_webhook_certificates
from gpu_tenancy.embedded.parts import read_ports
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.apply import ApplyError, apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, UnreachableError
from gpu_tenancy.kube.references import Reference


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in place of, or before, the server's answer."""

    status: int = 0  # answered instead of the server; 0 for none
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False  # the connection is closed without an answer
    cut_after: bool = False  # the server does the work, but its answer is lost
    delay: float = 0  # seconds before anything else


@dataclass
class Proxy:
    """A running proxy on the loopback before a real API server: it answers some requests itself, late or never."""

    kubeconfig: Path
    choose: Callable[[str, str], Fault | None] = lambda _method, _path: None  # by method and path
    seen: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])  # method, path, moment

    def first(self, number: int, fault: Fault, method: str = "PATCH") -> None:
        """Applies a fault to the next `number` requests of a method."""
        left, lock = [number], Lock()

        def choose(asked: str, _path: str) -> Fault | None:
            with lock:
                if asked != method or not left[0]:
                    return None
                left[0] -= 1
                return fault

        self.choose = choose

    def times(self, method: str) -> list[float]:
        return [moment for one, _, moment in self.seen if one == method]


@contextmanager
def proxied(platform: Platform, folder: Path) -> Generator[Proxy]:
    places = platform.places
    target = f"{LOOPBACK}:{read_ports(places).api}"
    trust = ssl.create_default_context(cafile=places.certificate("authority"))
    trust.load_cert_chain(places.certificate("admin"), places.key("admin"))

    class Forward(Handler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            found.seen.append((self.command, self.path, monotonic()))
            body = self.body()
            fault = found.choose(self.command, self.path) or Fault()
            sleep(fault.delay)
            if fault.cut:
                self.close_connection = True
                return
            if fault.status:
                self.answer(fault.status, b"a proxy's own words", *fault.headers)
                return
            connection = HTTPSConnection(target, context=trust, timeout=GUARD)
            names = ("Accept", "Content-Type")
            connection.request(self.command, self.path, body, {name: self.headers[name] for name in names})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault.cut_after:
                self.close_connection = True
                return
            self.answer(answer.status, content, ("Content-Type", answer.headers["Content-Type"]))

        do_GET = do_PATCH = do_DELETE = do_POST = forward  # noqa: N815 - the base class names them so

    with serving(Forward) as address:
        found = Proxy(a_kubeconfig(folder / "proxy.kubeconfig", {"server": address}, {"token": "proxy"}))
        yield found


RETRY_SECONDS = 3.0


@pytest.fixture
def proxy(platform: Platform, tmp_path: Path) -> Iterator[Proxy]:
    with proxied(platform, tmp_path) as found:
        yield found


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[Cluster]:
    with Cluster(proxy.kubeconfig, retry_seconds=RETRY_SECONDS) as found:
        yield found


@pytest.mark.parametrize(
    "fault",
    [
        Fault(429, (("Retry-After", "1"),)),
        Fault(500),
        Fault(503),
        Fault(504),
        Fault(cut=True),
        Fault(cut_after=True),
        Fault(delay=0.3),
    ],
    ids=["429", "500", "503", "504", "cut", "answer lost", "slow"],
)
def test_transient_failures_are_retried(
    behind: Cluster, proxy: Proxy, namespace: str, inventory: Path, fault: Fault
) -> None:
    wave = [a_config_map(f"n{number}", namespace) for number in range(6)]
    proxy.first(4, fault)
    changes = apply(behind, [wave], inventory)
    assert len(changes) == 6
    listed = behind.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests")
    assert [text_at(one, "metadata", "name") for one in listed] == [f"n{number}" for number in range(6)]
    assert {one.action for one in apply(behind, [wave], inventory)} == {"unchanged"}


@pytest.mark.parametrize("after", ["1", "3600"])  # an hour is too long
def test_retry_after_is_respected_for_a_minute(behind: Cluster, proxy: Proxy, namespace: str, after: str) -> None:
    proxy.first(1, Fault(429, (("Retry-After", after),)))
    behind.apply(a_config_map("settings", namespace))
    first, second = proxy.times("PATCH")
    assert 1 <= second - first < 60


def test_a_possibly_created_object_is_not_created_again(behind: Cluster, proxy: Proxy, namespace: str) -> None:
    proxy.first(1, Fault(503), "POST")
    with pytest.raises(ApiError, match="503"):
        behind.create(a_config_map("settings", namespace))
    assert len(proxy.times("POST")) == 1


def test_next_apply_continues_after_server_failure(
    behind: Cluster, cluster: Cluster, proxy: Proxy, namespace: str, inventory: Path
) -> None:
    waves = [[a_config_map(f"n{number}", namespace) for number in range(40)]]
    writes = [0]

    def after_ten(method: str, _path: str) -> Fault | None:
        writes[0] += method == "PATCH"
        return Fault(cut=True) if writes[0] > 10 else None

    proxy.choose = after_ten
    with pytest.raises(UnreachableError, match="is not reachable"):
        apply(behind, waves, inventory)
    proxy.choose = lambda _method, _path: None
    again = apply(behind, waves, inventory)
    assert {one.action for one in again} <= {"created", "unchanged"}
    assert len(cluster.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests")) == 40


def test_a_thousand_failures_take_as_long_as_one(proxy: Proxy, namespace: str, inventory: Path) -> None:
    proxy.choose = lambda method, _path: Fault(503) if method == "PATCH" else None
    wave = [a_config_map(f"n{number}", namespace) for number in range(100)]
    with Cluster(proxy.kubeconfig, retry_seconds=0.5) as hasty, pytest.raises(ApplyError) as refused:
        apply(hasty, [wave], inventory)
    assert len(refused.value.failures) == 100
    # Each would be sent twice by itself; of all, only those in flight at the end of that time are.
    assert len(proxy.times("PATCH")) < 150


@contextmanager
def rejecting(cluster: Cluster, namespace: str, folder: Path, refusals: int) -> Generator[None]:
    """Registers a webhook for the ConfigMaps of a namespace, which does not answer at first."""
    made = make_webhook_certificates(folder, ["webhook.example.com"], "")
    name = Reference("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", namespace)
    with webhook(folder / "tls.crt", folder / "tls.key", refusals) as asked:
        rule: Json = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        one: Json = {
            "name": "webhook.example.com",
            "clientConfig": {"url": asked.address, "caBundle": b64encode(made["ca.crt"].encode()).decode()},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        cluster.apply(
            {"apiVersion": name.api_version, "kind": name.kind, "metadata": {"name": name.name}, "webhooks": [one]}
        )
        yield
        cluster.delete(name)


def test_an_unavailable_webhook_is_retried(
    platform: Platform, cluster: Cluster, namespace: str, tmp_path: Path, inventory: Path
) -> None:
    waves = [[a_config_map("settings", namespace)]]
    with rejecting(cluster, namespace, tmp_path, 4), Cluster(platform.kubeconfig, retry_seconds=20) as patient:
        _until_known(platform, namespace)
        assert [change.action for change in apply(patient, waves, inventory)] == ["created"]


def test_a_webhook_that_never_answers_is_named(
    platform: Platform, cluster: Cluster, namespace: str, tmp_path: Path, inventory: Path
) -> None:
    waves = [[a_config_map("settings", namespace)]]
    with rejecting(cluster, namespace, tmp_path, 1000), Cluster(platform.kubeconfig, retry_seconds=1) as patient:
        _until_known(platform, namespace)
        with pytest.raises(ApplyError, match=r'settings: .*failed calling webhook "webhook\.example\.com"'):
            apply(patient, waves, inventory)


def _until_known(platform: Platform, namespace: str) -> None:
    with Cluster(platform.kubeconfig, retry_seconds=0) as hasty:
        probe = a_config_map("probe", namespace)
        hasty.wait_for(lambda: _fails(hasty, probe), what="the server to know the webhook")


def _fails(cluster: Cluster, probe: dict[str, Json]) -> bool:
    try:
        cluster.apply(probe, dry_run=True)
    except ApiError as error:
        return error.status == 500
    return False


def test_an_outage_is_over_when_what_failed_succeeds(proxy: Proxy, namespace: str) -> None:
    with Cluster(proxy.kubeconfig, retry_seconds=1) as client:
        for _ in range(3):  # together longer than the limit of one outage
            proxy.first(2, Fault(503))
            client.apply(a_config_map("settings", namespace))
            time.sleep(0.2)
        assert len(proxy.times("PATCH")) == 9


KILLS = int(os.environ.get("GPU_TENANCY_KILLS", "3"))  # points at which an apply is killed; 20 take half a minute

_APPLYING = """
import json, sys
from pathlib import Path
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster

def progress(change):
    print(change.reference.name, flush=True)

kubeconfig, manifests, inventory = map(Path, sys.argv[1:])
apply(Cluster(kubeconfig), json.loads(manifests.read_text()), inventory, progress)
"""


def waves(namespace: str) -> list[list[Manifest]]:
    return [
        [a_config_map(f"a{number}", namespace) for number in range(30)],
        [*(a_bare_account(f"b{number}", namespace) for number in range(30)), a_job("train", namespace, "pytorch:2")],
        [a_config_map(f"c{number}", namespace) for number in range(30)],
    ]


def kill(platform: Platform, given: list[list[Manifest]], inventory: Path, after: int) -> None:
    """Kills an apply after it has reported `after` objects; more may be in progress."""
    manifests = inventory.with_suffix(".manifests")
    manifests.write_text(json.dumps(given))
    command = [sys.executable, "-c", _APPLYING, str(platform.kubeconfig), str(manifests), str(inventory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as applying:
        assert applying.stdout
        for _ in range(after):
            applying.stdout.readline()
        applying.kill()
    assert applying.returncode == -9


@pytest.mark.parametrize("after", Random(20).sample(range(91), KILLS))  # noqa: S311 - the same points in each run
def test_the_next_one_ends_in_the_same_objects(
    platform: Platform, cluster: Cluster, namespace: str, inventory: Path, after: int
) -> None:
    given = waves(namespace)
    kill(platform, given, inventory, after)
    edited = [given[0], given[1][3:], given[2][5:]]  # what a killed run left must also go
    changes = apply(cluster, edited, inventory)
    wanted = {Reference.of(manifest) for wave in edited for manifest in wave}
    assert {change.action for change in changes} <= {"created", "unchanged", "pruned"}
    assert len([change for change in changes if change.action != "pruned"]) == len(wanted)
    assert {change.action for change in apply(cluster, edited, inventory)} == {"unchanged"}
    kinds = {(reference.api_version, reference.kind) for reference in wanted}
    ours = {Reference.of(one) for kind in kinds for one in cluster.list(*kind, namespace=namespace)}
    of_kubernetes = {"default", "kube-root-ca.crt"}
    assert {one for one in ours if one.name not in of_kubernetes} == wanted
    listed = json.loads(inventory.read_text())["objects"]
    assert sorted(row["name"] for row in listed) == sorted(one.name for one in wanted)
    assert all(row["uid"] for row in listed)
    assert all(text_at(cluster.get(*one) or {}, "metadata", "uid") for one in wanted)
