"""An embedded platform whose files or processes were changed outside `tenancy`, and the next `up` or `down`."""

import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import yaml
from cryptography import x509
from embedded_builders import quiet
from test_embedded_platform import pids, processes_of

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.cluster.waiting import wait_for
from gpu_tenancy.console.embedded import certificates
from gpu_tenancy.console.embedded.credentials import CONTEXT
from gpu_tenancy.console.embedded.parts import API_SERVER, ETCD, PARTS
from gpu_tenancy.console.embedded.platform import Platform
from gpu_tenancy.console.embedded.processes import marked, start
from gpu_tenancy.console.errors import ConsoleError


def test_whatever_happens_to_its_files_up_repairs_it_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One test: a platform of its own for each step would take half a minute more.
    platform = Platform(tmp_path / "home")
    try:
        platform.up(quiet)
        with platform.cluster() as cluster:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        another_current_context_is_not_followed(platform)
        another_server_is_refused(platform)
        a_damaged_kubeconfig_is_written_again(platform)
        expired_certificates_are_renewed(platform, monkeypatch)
        a_damaged_state_leaves_no_process(platform)
        with platform.cluster() as cluster:
            assert cluster.exists("v1", "Namespace", "kept")
        home = platform.places.home
    finally:
        platform.down()
    assert processes_of(home) == []
    assert not home.exists()


def another_current_context_is_not_followed(platform: Platform) -> None:
    """As `kind create cluster` does with the KUBECONFIG that `up` prints."""
    config = yaml.safe_load(platform.kubeconfig.read_text())
    other = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    config["clusters"].insert(0, {"name": "a-kind", "cluster": other})
    config["contexts"].insert(0, {"name": "a-kind", "context": {"cluster": "a-kind", "user": "admin"}})
    config["current-context"] = "a-kind"
    platform.kubeconfig.write_text(yaml.safe_dump(config))
    with Cluster(platform.kubeconfig, patience=0) as cluster:
        assert not cluster.ready()  # whoever followed the file would be at the other cluster
    before, told = pids(platform), list[str]()
    platform.up(told.append)
    assert (pids(platform), told) == (before, [])
    with platform.cluster() as cluster:
        assert cluster.exists("v1", "Namespace", "kept")


def another_server_is_refused(platform: Platform) -> None:
    config = yaml.safe_load(platform.kubeconfig.read_text())
    for item in config["clusters"]:
        item["cluster"]["server"] = "https://127.0.0.1:1"
    platform.kubeconfig.write_text(yaml.safe_dump(config))
    own = rf"context {CONTEXT}: https://127\.0\.0\.1:1 is not the embedded platform, which is https://127\.0\.0\.1:\d+"
    with pytest.raises(ConsoleError, match=own):
        platform.cluster()
    is_repaired(platform, own)


def a_damaged_kubeconfig_is_written_again(platform: Platform) -> None:
    platform.kubeconfig.write_text("clusters: [")
    is_repaired(platform, "invalid kubeconfig: while parsing a flow node")


def is_repaired(platform: Platform, why: str) -> None:
    before, told = pids(platform), list[str]()
    platform.up(told.append)
    assert pids(platform) == before
    (line,) = told
    assert re.search(f"writing the kubeconfig of the platform again: .*{why}", line)
    with Cluster(platform.kubeconfig) as cluster:
        assert cluster.exists("v1", "Namespace", "kept")


def expired_certificates_are_renewed(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    places = platform.places
    shutil.rmtree(places.certificates)
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "_VALIDITY", -certificates._SKEW / 2)  # pyright: ignore[reportPrivateUsage]
        certificates.make_certificates(places)
    assert expiry(places.certificate("serving")) < datetime.now(UTC)
    api_server = pids(platform)[API_SERVER]
    assert api_server
    psutil.Process(api_server).kill()
    psutil.wait_procs([psutil.Process(api_server)], timeout=5)
    platform.up(quiet)
    assert all(pids(platform).values())
    assert expiry(places.certificate("serving")) > datetime.now(UTC)
    with platform.cluster() as cluster:
        assert cluster.exists("v1", "Namespace", "kept")


def expiry(file: str) -> datetime:
    return x509.load_pem_x509_certificate(Path(file).read_bytes()).not_valid_after_utc


def a_damaged_state_leaves_no_process(platform: Platform) -> None:
    before = set(pids(platform).values())
    platform.places.state.write_text('{"ports"')
    platform.up(quiet)
    after = set(pids(platform).values())
    assert len(after) == len(PARTS)
    assert not before & after
    assert sorted(processes_of(platform.places.home)) == sorted(pid for pid in after if pid)


def test_a_process_whose_starter_was_killed_before_it_could_record_it_is_ended(tmp_path: Path) -> None:
    home = tmp_path / "home"
    platform, other = Platform(home, tmp_path / "cache"), Platform(tmp_path / "home2", tmp_path / "cache")
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = start(sleeping, platform.places.log(ETCD))
    theirs = start(sleeping, other.places.log(ETCD))
    try:
        wait_for(lambda: {ours, theirs} <= set(marked_in(platform) + marked_in(other)) or None, what="both to run")
        platform.down()
        assert ours.process is None
        assert theirs.process is not None
        assert not home.exists()
    finally:
        other.down()
    assert theirs.process is None


def marked_in(platform: Platform) -> list[object]:
    return list(marked(platform.places.log(ETCD).parent))
