import os
import re
import signal
import ssl
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest
import yaml
from embedded_builders import a_program, quiet
from starts import GUARD

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.embedded import platform as embedded
from gpu_tenancy.embedded.certificates import make_certificates
from gpu_tenancy.embedded.parts import API_SERVER, PARTS, SCHEDULER, Places, read_ports
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.embedded.processes import PortTakenError
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.waiting import wait_for


def server(platform: Platform) -> str:
    return yaml.safe_load(platform.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]


def pids(platform: Platform) -> dict[str, int | None]:
    return {part.part: part.pid for part in platform.status()}


def processes_of(home: Path) -> list[int]:
    found = psutil.process_iter(["cmdline"])
    return [one.pid for one in found if any(str(home) in each for each in one.info["cmdline"] or ())]


def test_every_part_runs(platform: Platform) -> None:
    assert tuple(pids(platform)) == PARTS
    assert all(pids(platform).values())


def test_up_again_keeps_every_process(platform: Platform) -> None:
    before, told = pids(platform), list[str]()
    platform.up(told.append)
    assert (pids(platform), told) == (before, [])


def test_a_strict_client_without_a_certificate_is_rejected(platform: Platform) -> None:
    """By the API server, whose own certificate satisfies it."""
    strict = ssl.create_default_context(cafile=platform.places.certificate("authority"))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{server(platform)}/api/v1/namespaces", context=strict, timeout=GUARD)  # noqa: S310
    refused.value.close()
    assert refused.value.code == 401


def test_clients_without_the_authority_reject_the_server(platform: Platform) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{server(platform)}/api", timeout=GUARD)  # noqa: S310


@pytest.mark.parametrize("client", ["kwok", "scheduler"])
def test_a_part_may_not_read_secrets(platform: Platform, client: str) -> None:
    with (
        Cluster(platform.places.client_config(client)) as cluster,
        pytest.raises(ApiError, match=r"cannot list resource .secrets.") as refused,
    ):
        cluster.list("v1", "Secret")
    assert refused.value.status == 403


def test_its_kubeconfig_and_keys_are_their_owners_alone(platform: Platform) -> None:
    keys = list(platform.places.certificates.glob("*.key"))
    clients = [platform.places.client_config(client) for client in ("kwok", "scheduler", "controller-manager")]
    assert keys
    assert {stat.S_IMODE(file.stat().st_mode) for file in (platform.kubeconfig, *keys, *clients)} == {0o600}
    assert stat.S_IMODE(platform.places.home.stat().st_mode) == 0o700


def test_it_listens_on_the_loopback_only(platform: Platform) -> None:
    listening = [
        connection.laddr.ip
        for pid in pids(platform).values()
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 3
    assert set(listening) == {"127.0.0.1"}


def test_the_proxy_forwards_nothing_without_a_rule(tmp_path: Path) -> None:
    platform = Platform(tmp_path / "home", tmp_path / "cache")
    assert platform.carried() is None
    platform.carry(Carried("local", "server-side apply", 97))
    assert platform.carried() == Carried("local", "server-side apply", 97)
    assert not any(part.pid for part in platform.status())


def test_makes_all_certificates_again_if_one_is_missing(tmp_path: Path) -> None:
    places = Places(tmp_path)
    make_certificates(places)
    first = Path(places.certificate("authority")).read_text()
    make_certificates(places)
    assert Path(places.certificate("authority")).read_text() == first
    Path(places.certificate("front-proxy")).unlink()
    make_certificates(places)
    assert Path(places.certificate("authority")).read_text() != first
    assert Path(places.certificate("front-proxy")).is_file()


def test_the_api_servers_own_clients_are_not_users(platform: Platform, tmp_path: Path) -> None:
    config = yaml.safe_load(platform.kubeconfig.read_text())
    pair = {"client-certificate": "certificate", "client-key": "key"}
    config["users"][0]["user"] = {key: getattr(platform.places, file)("front-proxy") for key, file in pair.items()}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with Cluster(tmp_path / "config") as cluster, pytest.raises(ApiError) as refused:
        cluster.list("v1", "Namespace")
    assert refused.value.status == 401


def test_nodes_have_certificates_and_run_no_commands(platform: Platform) -> None:
    context = ssl.create_default_context(cafile=platform.places.certificate("authority"))
    address = f"https://127.0.0.1:{read_ports(platform.places).kwok}"
    with urllib.request.urlopen(f"{address}/healthz", context=context, timeout=GUARD) as answer:  # noqa: S310
        assert answer.status == 200
    for path in ("/debug/pprof/", "/exec/ns/pod/container", "/containerLogs/ns/pod/container"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}{path}", context=context, timeout=GUARD)  # noqa: S310
        refused.value.close()
        assert refused.value.code == 405, path


@pytest.fixture
def disposable(tmp_path: Path) -> Iterator[Platform]:
    found = Platform(tmp_path / "home")
    try:
        found.up(quiet)
        yield found
    finally:
        found.down()


@pytest.mark.platform
def test_a_process_that_died_is_restarted_without_data_loss(disposable: Platform) -> None:
    with disposable.cluster() as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
    scheduler = pids(disposable)[SCHEDULER]
    assert scheduler
    os.kill(scheduler, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(scheduler)], timeout=300)
    assert [part.part for part in disposable.status() if not part.pid] == [SCHEDULER]
    reported: list[str] = []
    disposable.up(reported.append)
    assert reported == [f"restarting the control plane: {SCHEDULER} exited"]
    assert all(pids(disposable).values())
    with disposable.cluster() as cluster:
        assert cluster.exists("v1", "Namespace", "kept")

    home = disposable.places.home
    assert len(processes_of(home)) == 5
    disposable.down()
    assert processes_of(home) == []
    assert not home.exists()
    disposable.down()  # again is no error


def test_a_deployment_waits_for_another_one(tmp_path: Path) -> None:
    first, second = (Platform(tmp_path / "home", tmp_path / "cache") for _ in range(2))
    reported: list[str] = []

    def deploy() -> None:
        with second.deploying(reported.append):
            reported.append("deploying")

    deploying = Thread(target=deploy)
    with first.deploying(quiet):
        deploying.start()
        wait_for(lambda: reported or None, what="the second deployment to wait")
        first.down()  # neither waits for the other
    deploying.join()
    assert reported == ["waiting for another process that is deploying to this platform", "deploying"]


@pytest.fixture
def broken(tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A platform whose etcd only waits and whose API server ends at once."""
    del platform  # whose programs are built by now
    assets = tmp_path / "assets"
    a_program(assets, "etcd", "exec sleep 60")
    a_program(assets, "kube-apiserver", "echo first", "echo unknown flag --wrong", "exit 1")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    return Platform(tmp_path / "home")


def test_reports_exited_process_with_its_last_log_lines(broken: Platform) -> None:
    with pytest.raises(ConsoleError, match=r"kube-apiserver exited\. Last log lines:\nfirst\nunknown flag") as refused:
        broken.up(quiet)
    log = broken.places.log(API_SERVER)
    assert f"see the full log in {log}" in str(refused.value)
    assert log.is_file()
    assert processes_of(broken.places.home) == []
    assert not any(pids(broken).values())
    broken.down()
    assert not broken.places.home.exists()


def test_parts_retry_on_other_ports(broken: Platform, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    lines = (f'echo "$@" >> {starts}', 'echo "listen tcp 127.0.0.1:1: bind: address already in use"', "exit 1")
    a_program(tmp_path / "assets", "kube-apiserver", *lines)
    with pytest.raises(PortTakenError, match="address already in use"):
        broken.up(quiet)
    ports = re.findall(r"--secure-port=(\d+)", starts.read_text())
    assert len(set(ports)) == len(ports) == 3
    assert processes_of(broken.places.home) == []
    broken.down()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_never_answers_is_given_up_and_ended(
    broken: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "READY_WITHIN", 0.5)
    a_program(tmp_path / "assets", "kube-apiserver", "exec sleep 60")
    with pytest.raises(ConsoleError, match=r"kube-apiserver was not ready after 0\.5 s"):
        broken.up(quiet)
    assert not any(pids(broken).values())
    broken.down()


@pytest.mark.skipif(sys.platform != "linux", reason="where platformdirs follows XDG is fixed on Linux alone")
def test_data_is_in_state_folder_and_programs_in_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Platform()
    assert found.places.home == tmp_path / "state" / "gpu-tenancy" / "embedded"
    assert found.cache == tmp_path / "cache" / "gpu-tenancy"
