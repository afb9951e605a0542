"""Logins by kubeconfig, and credentials, which no output and no file of a user has."""

import base64
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final
from unittest import mock

import pytest
import yaml
from builders import EXISTING
from cli_builders import Project, small
from cluster_builders import a_kubeconfig
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback import Handler, serving
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.embedded import certificates
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.live import survey
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS

VERSION: Final = "client.authentication.k8s.io/v1"


class Seen(Handler):
    """Records the authorization and the path of each request, and is always ready."""

    requests: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:  # noqa: N802 - the base class gives the name
        self.requests.append((self.headers.get("Authorization", ""), self.path))
        self.answer(200, b"{}")


@pytest.fixture
def server() -> Iterator[str]:
    Seen.requests.clear()
    with serving(Seen) as address:
        yield address


def sent(file: Path, cluster: Mapping[str, Json], user: Mapping[str, Json], times: int = 1) -> list[str]:
    with Cluster(a_kubeconfig(file, dict(cluster), dict(user))) as client:
        assert all(client.ready() for _ in range(times))
    return [authorization for authorization, _ in Seen.requests]


def helper(folder: Path, script: str, **more: Json) -> dict[str, Json]:
    program = folder / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"exec": {"apiVersion": VERSION, "command": "./login", "interactiveMode": "Never", **more}}


def answering(status: Json) -> str:
    return f"printf %s '{json.dumps({'apiVersion': VERSION, 'kind': 'ExecCredential', 'status': status})}'"


@pytest.mark.parametrize(
    ("user", "authorization"),
    [
        ({}, ""),
        ({"token": "one"}, "Bearer one"),
        ({"token": "one", "tokenFile": "token"}, "Bearer of-the-file"),
        ({"username": "me", "password": "p"}, "Basic " + base64.b64encode(b"me:p").decode()),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "id"}}}, "Bearer id"),
        ({"token": "one", "exec": {"command": "/nowhere"}}, "Bearer one"),
    ],
    ids=["nobody", "token", "file", "password", "oidc", "token before a program"],
)
@pytest.mark.process
def test_a_user_entry_is_sent_as_kubectl_would(
    server: str, tmp_path: Path, user: dict[str, Json], authorization: str
) -> None:
    (tmp_path / "token").write_text("of-the-file\n")
    assert sent(tmp_path / "config", {"server": server}, user) == [authorization]


@pytest.mark.process
def test_login_program_runs_once_while_token_is_valid(server: str, tmp_path: Path) -> None:
    later = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    script = f'echo "$ZONE $1 $KUBERNETES_EXEC_INFO" >> {tmp_path}/runs\n' + answering(
        {"token": "got", "expirationTimestamp": later}
    )
    user = helper(tmp_path, script, args=["get"], env=[{"name": "ZONE", "value": "west"}], provideClusterInfo=True)
    extension: Json = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "ml"}}]
    authorizations = sent(tmp_path / "config", {"server": server, "extensions": extension}, user, 2)
    assert authorizations == ["Bearer got"] * 2
    (run,) = (tmp_path / "runs").read_text().splitlines()
    zone, argument, info = run.split(" ", 2)
    assert (zone, argument) == ("west", "get")
    assert json.loads(info) == {
        "apiVersion": VERSION,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": server, "config": {"audience": "ml"}}},
    }


@pytest.mark.process
def test_a_token_that_expired_is_got_again(server: str, tmp_path: Path) -> None:
    script = f"echo >> {tmp_path}/runs\n" + answering({"token": "old", "expirationTimestamp": "2026-01-01T00:00:00Z"})
    assert sent(tmp_path / "config", {"server": server}, helper(tmp_path, script), 2) == ["Bearer old"] * 2
    assert len((tmp_path / "runs").read_text()) == 3


@pytest.mark.parametrize(
    ("script", "more", "problem"),
    [
        ("exit 3", {}, "failed with exit code 3; log in again"),
        ("echo no", {}, "printed no ExecCredential with a token or certificate; check its version"),
        (answering({}), {}, "printed no ExecCredential"),
        ("", {"command": "no-such-helper", "installHint": "get it\nfrom us"}, "No such file or directory; get it from"),
    ],
    ids=["failed", "no JSON", "empty", "missing"],
)
@pytest.mark.process
def test_a_login_program_that_fails_is_named(
    server: str, tmp_path: Path, script: str, more: dict[str, Json], problem: str
) -> None:
    with pytest.raises(ConsoleError, match=problem):
        sent(tmp_path / "config", {"server": server}, helper(tmp_path, script, **more))


@pytest.mark.process
def test_a_certificate_of_a_login_program_is_presented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = certificates.Places(tmp_path / "pki")
    certificates.make_certificates(places)
    certificate, key = (Path(file).read_text() for file in (places.certificate("admin"), places.key("admin")))
    script = answering({"clientCertificateData": certificate, "clientKeyData": key})
    pair = Path(places.certificate("serving")), Path(places.key("serving"))
    authority = base64.b64encode(Path(places.certificate("authority")).read_bytes()).decode()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with serving(Seen, pair) as server:
        cluster: dict[str, Json] = {"server": server, "certificate-authority-data": authority}
        assert sent(tmp_path / "config", cluster, helper(tmp_path, script))
        assert not [file for file in tmp_path.glob("tmp*") if file.is_file()]


@pytest.mark.parametrize(
    ("environment", "entry", "by_proxy"),
    [
        ({"http_proxy": "PROXY"}, {}, True),
        ({}, {"proxy-url": "PROXY"}, True),
        ({"http_proxy": "PROXY", "no_proxy": "127.0.0.1"}, {}, False),
        ({"http_proxy": "PROXY", "no_proxy": "10.0.0.0/8, 127.0.0.0/8"}, {}, False),
    ],
    ids=["environment", "kubeconfig", "excepted", "network"],
)
@pytest.mark.process
def test_a_proxy_is_used_as_kubectl_would(
    tmp_path: Path, server: str, environment: dict[str, str], entry: dict[str, str], by_proxy: object
) -> None:
    own = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    own |= {name: value.replace("PROXY", server) for name, value in environment.items()}
    cluster: dict[str, Json] = {"server": server}
    cluster |= {key: value.replace("PROXY", server) for key, value in entry.items()}
    with mock.patch.dict(os.environ, own, clear=True):
        assert sent(tmp_path / "config", cluster, {}) == [""]
    assert [path for _, path in Seen.requests] == [f"{server if by_proxy else ''}/readyz"]


@pytest.mark.parametrize(
    ("entry", "user", "problem"),
    [
        ({"certificate-authority-data": "!"}, {}, "certificate-authority-data is not valid base64; get the kubeconfig"),
        ({"certificate-authority-data": "aGVsbG8="}, {}, "certificate-authority is not a certificate; get"),
        ({"certificate-authority": "none.crt"}, {}, "certificate-authority: .*none.crt: No such file"),
        ({}, {"client-certificate-data": "aGk=", "client-key-data": "aGk="}, "do not belong together, or are not PEM"),
        (
            {"server": "https://gpu.example.com", "proxy-url": "socks5://127.0.0.1:1"},
            {},
            r"proxy socks5://127\.0\.0\.1:1 is not supported; use a proxy with http",
        ),
    ],
    ids=["base64", "PEM", "no file", "client", "proxy"],
)
@pytest.mark.process
def test_unusable_certificates_and_proxies_are_named(
    tmp_path: Path, entry: dict[str, Json], user: dict[str, Json], problem: str
) -> None:
    with pytest.raises(ConsoleError, match=problem):
        Cluster(a_kubeconfig(tmp_path / "config", {"server": "https://127.0.0.1:1", **entry}, dict(user)))


EXPIRED = timedelta(minutes=-30)  # certificates begin an hour ago, so they were valid for half an hour


def with_user(platform: Platform, file: Path, user: Mapping[str, str]) -> Path:
    config = yaml.safe_load(platform.kubeconfig.read_text())
    config["users"][0]["user"] = dict(user)
    file.write_text(yaml.safe_dump(config))
    return file


def expired(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
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


def test_missing_context_is_named_with_known_ones(platform: Platform) -> None:
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


def test_rejected_credentials_are_one_error_for_many_objects(platform: Platform, tmp_path: Path) -> None:
    many = [Reference("v1", "ConfigMap", f"a{number}", "default") for number in range(20)]
    with (
        Cluster(with_user(platform, tmp_path / "config", {"token": "canary-canary"})) as cluster,
        ThreadPoolExecutor(CONNECTIONS) as pool,
        pytest.raises(ConsoleError, match="rejected the credentials; a token is missing, invalid or expired"),
    ):
        survey(cluster, pool, many)


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


FALSE: Final = "hunter2-canary"


@dataclass(frozen=True)
class Place:
    """Folders of a user, whose kubeconfig is the only file that may have the token."""

    folder: Path
    cluster: Json

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def files_with(self, text: str) -> list[Path]:
        return [one for one in self.folder.rglob("*") if one.is_file() and text.encode() in one.read_bytes()]


@pytest.fixture
def place(tmp_path: Path, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "TMPDIR"))
    config = yaml.safe_load(platform.kubeconfig.read_text())
    return Place(tmp_path, config["clusters"][0]["cluster"])


@pytest.fixture
def token(cluster: Cluster, namespace: str) -> Iterator[str]:
    right = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    made: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin", "namespace": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "admin",
                "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "admin"},
            },
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": namespace},
            "roleRef": dict(right),
            "subjects": [{"kind": "ServiceAccount", "name": "admin", "namespace": namespace}],
        },
    ]
    for one in made:
        cluster.apply(one)
    encoded = cluster.wait_for(
        lambda: text_at(cluster.get("v1", "Secret", "admin", namespace) or {}, "data", "token") or None,
        what="the token",
    )
    yield base64.b64decode(encoded).decode()
    cluster.delete(Reference.of(made[-1]))


def said(caplog: pytest.LogCaptureFixture, *arguments: object) -> str:
    """All output and logs of a command."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        seen = CliRunner(env={"COLUMNS": "400"}).invoke(app, [str(each) for each in arguments])
    assert "Traceback" not in seen.output
    return seen.output + caplog.text


def test_tokens_are_never_written(
    place: Place, token: str, namespace: str, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    pod: Json = {"containers": [{"name": "c", "image": "registry.example.com/x:1"}]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace}, "spec": pod})
    a_kubeconfig(place.kubeconfig, place.cluster, {"token": token})
    project = Project.at(place.folder / "project")
    project.write("good", small(cluster={**EXISTING, "kubeconfig": str(place.kubeconfig)}))
    own = ("--kubeconfig", place.kubeconfig)
    texts = {
        "why": said(caplog, "why", f"{namespace}/p", *own),
        "usage": said(caplog, "usage", *own),
        "no team": said(caplog, "usage", namespace, "--json", *own),
        "doctor": said(caplog, "cluster", "doctor", "good", "--project", project.folder),
        "preview": said(caplog, "preview", "good", "--project", project.folder, "--out", place.folder / "out"),
    }
    assert "registry.example.com" in texts["why"] or f"{namespace}/p" in texts["why"]
    assert "/api" in texts["why"]  # the log of requests
    assert [name for name, text in texts.items() if token in text or "credentials" in text] == []
    assert place.files_with(token) == [place.kubeconfig]


def exec_plugin(place: Place, lines: str) -> Json:
    program = place.folder / "login"
    program.write_text(f"#!/bin/sh\n{lines}\n")
    program.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(program), "interactiveMode": "Never"}}


_OF_PLUGIN: Final = json.dumps(
    {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": FALSE}}
)


@pytest.mark.parametrize(
    "lines",
    [f"echo '{_OF_PLUGIN}'", f"echo {FALSE}", f"echo '{_OF_PLUGIN[:-1]}'", f"echo '{_OF_PLUGIN}'; exit 3"],
    ids=["refused", "no JSON", "half of it", "failed"],
)
def test_the_token_of_a_login_program_is_in_no_error(
    place: Place, caplog: pytest.LogCaptureFixture, lines: str
) -> None:
    a_kubeconfig(place.kubeconfig, place.cluster, exec_plugin(place, lines))
    text = said(caplog, "usage", "--kubeconfig", place.kubeconfig)
    assert str(place.kubeconfig) in text
    assert FALSE not in text
    assert place.files_with(FALSE) == [place.folder / "login"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"token: {FALSE}", f"token: {FALSE}"),
        (f"token: {FALSE}", f'token: "{FALSE}'),
        (f"token: {FALSE}", f"token: [{FALSE}]"),
        (f"token: {FALSE}", f"password: {FALSE}\n    username: me"),
        (f"token: {FALSE}", f"client-key-data: {FALSE}!\n    client-certificate-data: {FALSE}!"),
        ("https://127.0.0.1:", "https://127.0.0.1:1/"),
    ],
    ids=["refused", "no YAML", "a list", "password", "certificate", "unreachable"],
)
def test_credentials_are_in_no_error(place: Place, caplog: pytest.LogCaptureFixture, before: str, after: str) -> None:
    a_kubeconfig(place.kubeconfig, place.cluster, {"token": FALSE})
    place.kubeconfig.write_text(place.kubeconfig.read_text().replace(before, after))
    text = said(caplog, "usage", "--kubeconfig", place.kubeconfig)
    assert str(place.kubeconfig) in text or "is not reachable" in text
    assert FALSE not in text
    assert base64.b64encode(FALSE.encode()).decode() not in text
    assert place.files_with(FALSE) == [place.kubeconfig]
