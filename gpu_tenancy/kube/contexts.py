"""Contexts of kubeconfigs: https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.model.yaml import UnreadableError, read_table

_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of a kubeconfig with paths, which are relative to its folder."""
_ANOTHER: Final = "specify another kubeconfig or context"


@dataclass(frozen=True, slots=True)
class Entry:
    """A context of a kubeconfig, with absolute paths.

    Attributes:
        user: the entry; it may have credentials.
        namespace: the default of its commands; empty where it has none.
    """

    name: str
    cluster: dict[str, Any]
    user_name: str
    user: dict[str, Any]
    namespace: str = ""

    @property
    def server(self) -> str:
        """The address of the API server, without a slash at its end."""
        return str(self.cluster["server"]).rstrip("/")


def entry_of(files: Path, context: str | None) -> Entry:
    """A context of a kubeconfig, or of several joined as in KUBECONFIG; None for the current one.

    Raises:
        ConsoleError: a file cannot be read, is not a kubeconfig, or does not have the context.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = context
    for file in (Path(file).expanduser() for file in str(files).split(os.pathsep)):
        config = _read(file)
        try:
            current = current or config.get("current-context")
            for section, entries in found.items():
                rows: list[dict[str, Any]] = config.get(section) or []
                for row in rows:
                    entries.setdefault(row["name"], _absolute(row[section[:-1]] or {}, file.parent.absolute()))
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


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = {key: str(folder / value) if key in _FILES else value for key, value in entry.items()}
    helper: dict[str, Any] = made.get("exec") or {}
    if "/" in helper.get("command", ""):  # another one is looked up on the PATH
        made["exec"] = {**helper, "command": str(folder / helper["command"])}
    return made


def impersonation(user: dict[str, Any]) -> dict[str, str]:
    """The headers by which a user entry acts as another user.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation

    Raises:
        ConsoleError: the entry names several groups.
    """
    groups: list[str] = user.get("as-groups") or []
    if len(groups) > 1:
        raise ConsoleError(f"as-groups: {len(groups)} groups cannot be impersonated together", "specify one group")
    headers = {"Impersonate-User": str(user.get("as") or ""), "Impersonate-Group": "".join(groups)}
    return {name: value for name, value in headers.items() if value}
