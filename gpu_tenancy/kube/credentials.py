"""The login of a kubeconfig: a token, a password, a client certificate, or a program that gets one of them."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.contexts import Entry, impersonation
from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError

_VALIDITY: Final = re.compile(rb"(?:\x17\x0d|\x18\x0f)\d{12,14}Z(?:\x17\x0d|\x18\x0f)(\d{12,14})Z")
"""Begin and end of a certificate's validity, in DER: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5."""
_CONFIG: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster entry whose content is for the login program."""


class Certificate(NamedTuple):
    """A client certificate and its key, in PEM."""

    chain: bytes
    key: bytes


class Login:
    """How the requests of a context are authenticated, in kubectl's order; safe to share between threads.

    Attributes:
        certificate: of the client; None without one.
    """

    def __init__(self, entry: Entry, place: Path) -> None:
        """Reads the credentials, or runs the program that gets them.

        Args:
            entry: the context.
            place: the kubeconfig, for messages.

        Raises:
            ConsoleError: they cannot be read, or the program fails.
        """
        self._place, self._user, self._cluster = place, entry.user, entry.cluster
        self._identity = impersonation(entry.user)
        self._lock = Lock()
        self._got: Mapping[str, Any] = {}
        if "exec" in entry.user and not self._authorization():
            self._got = self._run()
        chain, key = (
            (str(self._got.get(f"{name}Data") or "").encode() for name in ("clientCertificate", "clientKey"))
            if self._got
            else (content(entry.user, name, place) for name in ("client-certificate", "client-key"))
        )
        self.certificate = Certificate(chain, key) if chain and key else None

    def headers(self) -> dict[str, str]:
        """The headers of a request; a token that expired is got again.

        Raises:
            ConsoleError: the program that gets it fails.
        """
        with self._lock:
            if "token" in self._got and _expired(self._got):
                self._got = self._run()
            authorization = self._authorization()
        return {**self._identity, **({"Authorization": authorization} if authorization else {})}

    def _authorization(self) -> str:
        user = self._user
        if "tokenFile" in user:  # read each time: in a pod it is replaced every hour
            return f"Bearer {content(user, 'tokenFile', self._place).decode().strip()}"
        provider: Mapping[str, Any] = user.get("auth-provider") or {}
        config: Mapping[str, Any] = provider.get("config") or {}
        if token := user.get("token") or config.get("id-token") or self._got.get("token"):
            return f"Bearer {token}"
        if user.get("username"):
            pair = f"{user['username']}:{user.get('password') or ''}"
            return f"Basic {base64.b64encode(pair.encode()).decode()}"
        return ""

    def _run(self) -> Mapping[str, Any]:
        """The `status` of an ExecCredential.

        https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
        """
        section: Mapping[str, Any] = self._user["exec"]
        command = str(section.get("command"))
        interactive = sys.stdin.isatty() and section.get("interactiveMode") != "Never"
        spec = {"interactive": interactive, **({"cluster": self._info()} if section.get("provideClusterInfo") else {})}
        asked = {"apiVersion": section.get("apiVersion"), "kind": "ExecCredential", "spec": spec}
        named = {variable["name"]: variable["value"] for variable in section.get("env") or ()}
        try:
            done = subprocess.run(
                [command, *(section.get("args") or ())],
                env={**os.environ, **named, "KUBERNETES_EXEC_INFO": json.dumps(asked)},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=True,
            )
            answer = json.loads(done.stdout)["status"]
            if not answer.get("token") and not answer.get("clientCertificateData"):
                raise KeyError("token")
        except OSError as error:
            fix = " ".join(str(section.get("installHint") or f"install {command}").split())
            raise ConsoleError(f"{self._place}: login program {command}: {error.strerror}", fix) from error
        except subprocess.CalledProcessError as error:
            what = f"{self._place}: login program {command} failed with exit code {error.returncode}"
            raise ConsoleError(what, "log in again, or specify another kubeconfig or context") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            what = f"{self._place}: login program {command} printed no ExecCredential with a token or certificate"
            raise ConsoleError(what, "check its version and its arguments in the kubeconfig") from None
        return answer

    def _info(self) -> dict[str, Any]:
        """The cluster, for a login program that wants to know it."""
        keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
        authority = base64.b64encode(content(self._cluster, "certificate-authority", self._place)).decode()
        extensions: list[dict[str, Any]] = self._cluster.get("extensions") or []
        return {
            **{key: self._cluster[key] for key in keys if key in self._cluster},
            **({"certificate-authority-data": authority} if authority else {}),
            "config": next((row["extension"] for row in extensions if row["name"] == _CONFIG), None),
        }

    def rejected(self, server: str) -> ApiError:
        """The error for credentials that the server does not accept; names a client certificate that has expired."""
        what = f"{self._place}: the API server at {server} rejected the credentials"
        if self.certificate is None:
            why = "a token is missing, invalid or expired"
        elif (end := _end(self.certificate.chain)) and end <= datetime.now(UTC):
            why = f"the client certificate expired on {end:%Y-%m-%d}"
        else:
            why = "the server does not trust the client certificate"
        return ApiError(UNAUTHORIZED, "Unauthorized", f"{what}; {why}")


def content(entry: Mapping[str, Any], key: str, place: Path) -> bytes:
    """What an entry has under `key-data` in base64, or in the file of `key`; empty without both.

    Raises:
        ConsoleError: it cannot be read.
    """
    try:
        if data := entry.get(f"{key}-data"):
            return base64.b64decode(data, validate=True)
        return Path(entry[key]).read_bytes() if entry.get(key) else b""
    except OSError as error:
        raise ConsoleError(f"{place}: {key}: {error.filename}: {error.strerror}", "make it readable") from error
    except (ValueError, TypeError):
        raise ConsoleError(f"{place}: {key}-data is not valid base64", "get the kubeconfig again") from None


def _expired(answer: Mapping[str, Any]) -> bool:
    moment = answer.get("expirationTimestamp")
    return isinstance(moment, str) and datetime.fromisoformat(moment) <= datetime.now(UTC)


def _end(chain: bytes) -> datetime | None:
    """When the first certificate of a PEM text expires."""
    body = chain.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END")[0]
    found = _VALIDITY.search(base64.b64decode(body))
    if not found:
        return None
    text = found[1].decode()
    form = "%Y%m%d%H%M%S" if len(text) > len("YYMMDDHHMMSS") else "%y%m%d%H%M%S"
    return datetime.strptime(text, form).replace(tzinfo=UTC)
