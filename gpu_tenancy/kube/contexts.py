"""Contexts of kubeconfigs, and their logins: token, password, certificate or credential plugin.

https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, cast

from urllib3 import HTTPHeaderDict

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError
from gpu_tenancy.model.yaml import UnreadableError, read_table

_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")  # relative paths
_ANOTHER: Final = "specify another kubeconfig or context"


@dataclass(frozen=True, slots=True)
class Entry:
    """A context of a kubeconfig, with absolute paths; `user` may have credentials."""

    name: str
    cluster: dict[str, Any]
    user_name: str
    user: dict[str, Any]
    namespace: str = ""

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end."""
        return str(self.cluster["server"]).rstrip("/")


def entry_of(files: Path, context: str | None) -> Entry:
    """Reads a context (None: current) of kubeconfigs joined as in KUBECONFIG; raises ConsoleError if that fails."""
    found: dict[str, dict[str, dict[str, Any]]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = context
    for file in (Path(file).expanduser() for file in str(files).split(os.pathsep)):
        config, folder = _read(file), file.parent.absolute()
        try:
            current = current or config.get("current-context")
            for section, entries in found.items():
                rows: list[dict[str, Any]] = config.get(section) or []
                for row in rows:
                    entry: dict[str, Any] = row[section[:-1]] or {}
                    made = {key: str(folder / value) if key in _FILES else value for key, value in entry.items()}
                    helper: dict[str, Any] = entry.get("exec") or {}
                    if "/" in helper.get("command", ""):  # another one is looked up on the PATH
                        made["exec"] = {**helper, "command": str(folder / helper["command"])}
                    entries.setdefault(row["name"], made)
        except (AttributeError, KeyError, TypeError) as error:
            raise ConsoleError(f"{file}: the file is not a kubeconfig", _ANOTHER) from error
    chosen = found["contexts"].get(current or "")
    cluster = found["clusters"].get(chosen.get("cluster", "")) if chosen else None
    if not current or chosen is None or cluster is None:
        what = f"context {current} not found" if current else "no current context"
        raise ConsoleError(f"{files}: {what}", f"specify --context {' or '.join(sorted(found['contexts']))}")
    if not isinstance(cluster.get("server"), str):
        raise ConsoleError(f"{files}: cluster {chosen['cluster']} has no server", _ANOTHER)
    user = chosen.get("user", "")
    return Entry(current, cluster, user, found["users"].get(user, {}), chosen.get("namespace") or "")


def _read(file: Path) -> dict[str, Any]:
    try:
        config = read_table(file)
    except OSError as error:
        raise ConsoleError(f"{file}: {error.strerror}", f"make it readable, or {_ANOTHER}") from error
    except UnreadableError as error:
        # The parser's own message can have a part of the file, and so a credential.
        place = f" in line {error.line}" if error.line else ""
        raise ConsoleError(f"{file}: invalid YAML{place}", _ANOTHER) from None
    if not isinstance(config, dict):
        raise ConsoleError(f"{file}: the file is not a kubeconfig", _ANOTHER)
    return cast("dict[str, Any]", config)


# Begin and end of a certificate's validity, in DER: https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5.
_VALIDITY: Final = re.compile(rb"(?:\x17\x0d|\x18\x0f)\d{12,14}Z(?:\x17\x0d|\x18\x0f)(\d{12,14})Z")
# The extension of a cluster entry whose content is for the credential plugin.
_CONFIG: Final = "client.authentication.k8s.io/exec"


class Certificate(NamedTuple):
    """A client certificate and its key, in PEM."""

    chain: bytes
    key: bytes


class Login:
    """Authenticates the requests of a context, in kubectl's order; safe to share between threads."""

    def __init__(self, entry: Entry, place: Path) -> None:
        """Reads credentials, or runs the credential plugin; raises ConsoleError, which names the kubeconfig `place`."""
        self._place, self._user, self._cluster = place, entry.user, entry.cluster
        # https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
        groups: list[str] = entry.user.get("as-groups") or []
        user = str(entry.user.get("as") or "")
        self._identity = [("Impersonate-User", user)] if user else []
        self._identity += [("Impersonate-Group", group) for group in groups]
        self._lock = Lock()
        self._got: Mapping[str, Any] = {}
        if "exec" in entry.user and not self._authorization():
            self._got = self._run()
        if self._got:
            parts = ("clientCertificateData", "clientKeyData")
            chain, key = (str(self._got.get(part) or "").encode() for part in parts)
        else:
            chain, key = (content(entry.user, name, place) for name in ("client-certificate", "client-key"))
        self.certificate = Certificate(chain, key) if chain and key else None

    def headers(self) -> HTTPHeaderDict:
        """Headers of a request, one for each group; renews an expired token.

        Raises ConsoleError if the credential plugin fails.
        """
        with self._lock:
            end = self._got.get("expirationTimestamp")
            if "token" in self._got and isinstance(end, str) and datetime.fromisoformat(end) <= datetime.now(UTC):
                self._got = self._run()
            authorization = self._authorization()
        return HTTPHeaderDict([*self._identity, *([("Authorization", authorization)] if authorization else [])])

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
        # https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
        section: Mapping[str, Any] = self._user["exec"]
        command = str(section.get("command"))
        interactive = sys.stdin.isatty() and section.get("interactiveMode") != "Never"
        spec: dict[str, Any] = {"interactive": interactive}
        if section.get("provideClusterInfo"):
            keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
            spec["cluster"] = {key: self._cluster[key] for key in keys if key in self._cluster}
            if authority := content(self._cluster, "certificate-authority", self._place):
                spec["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
            extensions: list[dict[str, Any]] = self._cluster.get("extensions") or []
            spec["cluster"]["config"] = next((row["extension"] for row in extensions if row["name"] == _CONFIG), None)
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

    def rejected(self, server: str) -> ApiError:
        """Error for credentials that the server rejects; names a client certificate that has expired."""
        why = "a token is missing, invalid or expired"
        if self.certificate:
            why = "the server does not trust the client certificate"
            body = self.certificate.chain.partition(b"-----BEGIN CERTIFICATE-----")[2].partition(b"-----END")[0]
            if found := _VALIDITY.search(base64.b64decode(body)):
                text = found[1].decode()
                form = "%Y%m%d%H%M%S" if len(text) > len("YYMMDDHHMMSS") else "%y%m%d%H%M%S"
                end = datetime.strptime(text, form).replace(tzinfo=UTC)
                why = f"the client certificate expired on {end:%Y-%m-%d}" if end <= datetime.now(UTC) else why
        what = f"{self._place}: the API server at {server} rejected the credentials"
        return ApiError(UNAUTHORIZED, "Unauthorized", f"{what}; {why}")


def content(entry: Mapping[str, Any], key: str, place: Path) -> bytes:
    """Content of `key-data` in base64, or of the file of `key`, or empty; raises ConsoleError if it is not readable."""
    try:
        if data := entry.get(f"{key}-data"):
            return base64.b64decode(data, validate=True)
        return Path(entry[key]).read_bytes() if entry.get(key) else b""
    except OSError as error:
        raise ConsoleError(f"{place}: {key}: {error.filename}: {error.strerror}", "make it readable") from error
    except (ValueError, TypeError):
        raise ConsoleError(f"{place}: {key}-data is not valid base64", "get the kubeconfig again") from None
