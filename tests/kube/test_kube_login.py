"""The kinds of logins and places of a kubeconfig, as a server on the loopback sees them."""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final
from unittest import mock

import pytest
from cluster_builders import a_kubeconfig
from loopback import Handler, serving

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.embedded import certificates
from gpu_tenancy.kube.client import Cluster

pytestmark = pytest.mark.process
VERSION: Final = "client.authentication.k8s.io/v1"


class Seen(Handler):
    """Keeps the authorization and the path of each request, and is always ready."""

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
    """The authorizations of requests with a kubeconfig."""
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
def test_a_user_entry_is_sent_as_kubectl_would(
    server: str, tmp_path: Path, user: dict[str, Json], authorization: str
) -> None:
    (tmp_path / "token").write_text("of-the-file\n")
    assert sent(tmp_path / "config", {"server": server}, user) == [authorization]


def test_a_login_program_knows_what_it_is_asked_and_runs_once_while_its_token_is_valid(
    server: str, tmp_path: Path
) -> None:
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
def test_a_login_program_that_fails_is_named(
    server: str, tmp_path: Path, script: str, more: dict[str, Json], problem: str
) -> None:
    with pytest.raises(ConsoleError, match=problem):
        sent(tmp_path / "config", {"server": server}, helper(tmp_path, script, **more))


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


def test_a_proxy_of_another_kind_is_refused(tmp_path: Path) -> None:
    cluster: Json = {"server": "https://gpu.example.com", "proxy-url": "socks5://127.0.0.1:1"}
    with pytest.raises(ConsoleError, match=r"proxy socks5://127\.0\.0\.1:1 is not supported; use a proxy with http"):
        Cluster(a_kubeconfig(tmp_path / "config", cluster, {}))


@pytest.mark.parametrize(
    ("entry", "user", "problem"),
    [
        ({"certificate-authority-data": "!"}, {}, "certificate-authority-data is not valid base64; get the kubeconfig"),
        ({"certificate-authority-data": "aGVsbG8="}, {}, "certificate-authority is not a certificate; get"),
        ({"certificate-authority": "none.crt"}, {}, "certificate-authority: .*none.crt: No such file"),
        ({}, {"client-certificate-data": "aGk=", "client-key-data": "aGk="}, "do not belong together, or are not PEM"),
    ],
    ids=["base64", "PEM", "no file", "client"],
)
def test_certificates_that_cannot_be_used_are_named(
    tmp_path: Path, entry: dict[str, Json], user: dict[str, Json], problem: str
) -> None:
    with pytest.raises(ConsoleError, match=problem):
        Cluster(a_kubeconfig(tmp_path / "config", {"server": "https://127.0.0.1:1", **entry}, dict(user)))
