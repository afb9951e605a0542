"""Kubeconfigs that cannot be read, and credentials that a real API server does not accept."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cluster_builders import a_kubeconfig
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback import Handler, serving
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded import certificates
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster

EXPIRED = timedelta(minutes=-30)
"""Certificates begin an hour ago, so they were valid for half an hour."""


def with_user(platform: Platform, file: Path, user: Mapping[str, str]) -> Path:
    """The platform's kubeconfig with other credentials."""
    config = yaml.safe_load(platform.kubeconfig.read_text())
    config["users"][0]["user"] = dict(user)
    file.write_text(yaml.safe_dump(config))
    return file


def expired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """An expired certificate for loopback, and its key."""
    monkeypatch.setattr(certificates, "_VALIDITY", EXPIRED)
    made = certificates.make_webhook_certificates(folder / "expired", [], "")
    assert all(made.values())
    return folder / "expired" / "tls.crt", folder / "expired" / "tls.key"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("clusters: [a\n", "invalid YAML in line 2; specify another kubeconfig or context"),
        ("a:\n\t- b\n", "invalid YAML in line 2; specify"),
        ("- a\n", "the file is not a kubeconfig; specify another kubeconfig or context"),
        ("hello", "the file is not a kubeconfig; specify"),
        ("clusters: {a: b}", "the file is not a kubeconfig; specify"),
        ("", "the file is not a kubeconfig; specify"),
        ("\udcff\udcfe", "invalid YAML; specify"),
    ],
    ids=["no YAML", "tab", "list", "text", "other YAML", "empty", "binary"],
)
def test_an_invalid_kubeconfig_is_named(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConsoleError, match=f"{file}: {problem}"):
        Cluster(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match=f"{tmp_path}: Is a directory; make it readable, or specify another kube"):
        Cluster(tmp_path)


def test_a_context_that_is_not_there_is_named_with_those_that_are(platform: Platform) -> None:
    with pytest.raises(ConsoleError, match="context prod not found; specify --context gpu-tenancy-embedded"):
        Cluster(platform.kubeconfig, "prod")


def asked(kubeconfig: Path) -> str:
    """The error of a command that reads the cluster."""
    seen = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["usage", "--kubeconfig", str(kubeconfig)])
    assert (seen.exit_code, seen.stdout) == (1, ""), seen.stdout
    assert seen.stderr.count("\n") == 1
    return seen.stderr


def test_a_rejected_token_is_reported_as_credentials(platform: Platform, tmp_path: Path) -> None:
    said = asked(with_user(platform, tmp_path / "config", {"token": "canary-canary"}))
    assert "rejected the credentials; a token is missing, invalid or expired (401 Unauthorized); log in again" in said
    assert str(tmp_path / "config") in said
    assert "canary" not in said


def test_an_expired_client_certificate_has_its_date(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = expired(tmp_path, monkeypatch)
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    said = asked(with_user(platform, tmp_path / "config", user))
    assert "the client certificate expired on 20" in said
    assert "log in again, or specify another kubeconfig or context" in said


def test_a_client_certificate_of_another_cluster_is_reported(platform: Platform, tmp_path: Path) -> None:
    places = certificates.Places(tmp_path / "other")
    certificates.make_certificates(places)
    user = {"client-certificate": places.certificate("admin"), "client-key": places.key("admin")}
    assert "the server does not trust the client certificate" in asked(with_user(platform, tmp_path / "config", user))


def trusting(server: str, authority: Path, file: Path) -> Path:
    return a_kubeconfig(file, {"server": server, "certificate-authority": str(authority)}, {"token": "one"})


@pytest.mark.process
def test_an_expired_server_certificate_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = certificates._authority("tests")  # pyright: ignore[reportPrivateUsage]
    private = ec.generate_private_key(ec.SECP256R1())
    monkeypatch.setattr(certificates, "_VALIDITY", EXPIRED)
    (tmp_path / "ca.crt").write_text(authority.pem)
    (tmp_path / "tls.crt").write_text(authority.issue({NameOID.COMMON_NAME: "server"}, private))
    (tmp_path / "tls.key").write_text(certificates._key_pem(private))  # pyright: ignore[reportPrivateUsage]
    with serving(Handler, (tmp_path / "tls.crt", tmp_path / "tls.key")) as server:
        said = asked(trusting(server, tmp_path / "ca.crt", tmp_path / "config"))
    fix = "renew the server's certificate, and check the clock of this machine"
    assert f"the API server at {server} is not reachable: certificate has expired; {fix}" in said


def test_a_server_of_another_cluster_is_reported(platform: Platform, tmp_path: Path) -> None:
    places = certificates.Places(tmp_path / "other")
    certificates.make_certificates(places)
    with platform.cluster() as cluster:
        said = asked(trusting(cluster.server, Path(places.certificate("authority")), tmp_path / "config"))
    assert "the kubeconfig may be of another cluster; get it again from the owner of the cluster" in said
