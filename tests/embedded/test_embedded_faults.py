"""An embedded platform whose files or processes were changed outside `tenancy`, and the next `up` or `down`."""

import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import yaml
from cli_builders import Project, small
from cluster_builders import a_config_map
from cryptography import x509
from embedded_builders import quiet
from pulumi import RunError
from test_embedded_platform import pids, processes_of

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.embedded import certificates
from gpu_tenancy.embedded.parts import API_SERVER, ETCD, PARTS
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.embedded.processes import marked, start
from gpu_tenancy.kube.apply import Change, apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import wait_for
from gpu_tenancy.local.up import Options, up
from gpu_tenancy.model.names import EMBEDDED_CONTEXT

pytestmark = pytest.mark.platform


@pytest.mark.slow
def test_up_repairs_missing_or_damaged_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One test: a platform of its own for each step would take half a minute more.
    platform = Platform(tmp_path / "home")
    try:
        platform.up(quiet)
        with platform.cluster() as cluster:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        another_current_context_is_not_followed(platform)
        another_server_is_refused(platform)
        a_damaged_kubeconfig_is_written_again(platform)
        etcd_restarted_under_load_is_waited_for(platform, tmp_path)
        a_stack_that_cannot_be_rendered_changes_nothing(platform, tmp_path)
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
    with Cluster(platform.kubeconfig, retry_seconds=0) as cluster:
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
    own = rf"context {EMBEDDED_CONTEXT}: https://127\.0\.0\.1:1 is not the embedded platform, which is https://127\.0\.0\.1:\d+"
    with pytest.raises(ConsoleError, match=own):
        platform.cluster()
    is_repaired(platform, own)


def a_damaged_kubeconfig_is_written_again(platform: Platform) -> None:
    platform.kubeconfig.write_text("clusters: [")
    is_repaired(platform, "invalid YAML in line")


def is_repaired(platform: Platform, why: str) -> None:
    before, told = pids(platform), list[str]()
    platform.up(told.append)
    assert pids(platform) == before
    (line,) = told
    assert re.search(f"writing the kubeconfig of the platform again: .*{why}", line)
    with Cluster(platform.kubeconfig) as cluster:
        assert cluster.exists("v1", "Namespace", "kept")


def etcd_restarted_under_load_is_waited_for(platform: Platform, folder: Path) -> None:
    wave = [a_config_map(f"n{number}", "kept", text="x" * 1000) for number in range(400)]
    etcd = pids(platform)[ETCD]
    assert etcd
    command, done = psutil.Process(etcd).cmdline(), list[Change]()

    def restart(change: Change) -> None:
        done.append(change)
        if len(done) == 50:
            psutil.Process(etcd).kill()
            psutil.wait_procs([psutil.Process(etcd)], timeout=300)
            start(command, platform.places.log("etcd-restarted"))

    with platform.cluster() as cluster:
        changes = apply(cluster, [wave], folder / "inventory.json", restart)
        assert {change.action for change in changes} == {"created"}
        assert len(cluster.list("v1", "ConfigMap", namespace="kept", labels="owner=tests")) == len(wave)
        assert {change.action for change in apply(cluster, [wave], folder / "inventory.json")} == {"unchanged"}
    told: list[str] = []
    platform.up(told.append)
    assert told == [f"restarting the control plane: {ETCD} exited"]  # the other etcd is not the platform's
    assert len(processes_of(platform.places.home)) == len(PARTS)


def a_stack_that_cannot_be_rendered_changes_nothing(platform: Platform, folder: Path) -> None:
    before = pids(platform)
    with pytest.raises(RunError, match="no such bucket"):
        up("good", platform, quiet, unrenderable(folder), Options(controllers="none"))
    assert pids(platform) == before


def unrenderable(folder: Path) -> Path:
    project = Project.at(folder / "unrenderable")
    project.write("good", small())
    (project.folder / "__main__.py").write_text("import pulumi\nraise pulumi.RunError('no such bucket')\n")
    return project.folder


@pytest.mark.slow
def test_removes_a_new_platform_if_rendering_fails(tmp_path: Path) -> None:
    platform, told = Platform(tmp_path / "home"), list[str]()
    with pytest.raises(RunError, match="no such bucket"):
        up("good", platform, told.append, unrenderable(tmp_path), Options(controllers="none"))
    assert "starting the control plane" in told  # meanwhile
    assert processes_of(platform.places.home) == []
    assert not platform.places.home.exists()


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
    psutil.wait_procs([psutil.Process(api_server)], timeout=300)
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


def test_ends_processes_that_were_never_recorded(tmp_path: Path) -> None:
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
