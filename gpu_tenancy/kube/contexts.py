"""Contexts of kubeconfigs, with what the `kubernetes` package does not read."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from gpu_tenancy.base.errors import ConsoleError

_FILES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Keys of a kubeconfig with paths, which are relative to its folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A context of a kubeconfig, with absolute paths.

    Attributes:
        user: the entry; it may have credentials.
    """

    name: str
    cluster: dict[str, Any]
    user_name: str
    user: dict[str, Any]


def entry_of(files: Path, context: str | None) -> Entry:
    """A context of a kubeconfig, or of several joined as in KUBECONFIG; None for the current one.

    Raises:
        ConsoleError: a file is not a kubeconfig, or does not have the context.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = context
    for file in str(files).split(os.pathsep):
        config = _read(Path(file).expanduser())
        current = current or config.get("current-context")
        for section, entries in found.items():
            rows: list[dict[str, Any]] = config.get(section) or []
            for row in rows:
                entries.setdefault(row["name"], _absolute(row[section[:-1]] or {}, Path(file).expanduser().parent))
    chosen = found["contexts"].get(current or "")
    cluster = found["clusters"].get(chosen.get("cluster", "")) if chosen else None
    if not current or chosen is None or cluster is None:
        what = f"context {current} not found" if current else "no current context"
        raise ConsoleError(f"{files}: {what}", f"specify --context {' or '.join(sorted(found['contexts']))}")
    user = chosen.get("user", "")
    return Entry(current, cluster, user, found["users"].get(user, {}))


def _read(file: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConsoleError(f"{file}: the file is not a kubeconfig", "specify another kubeconfig") from error
    if not isinstance(config, dict):
        raise ConsoleError(f"{file}: the file is not a kubeconfig", "specify another kubeconfig")
    return cast("dict[str, Any]", config)


def _absolute(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {key: str(folder.absolute() / value) if key in _FILES else value for key, value in entry.items()}


def impersonation(user: dict[str, Any]) -> dict[str, str]:
    """The headers by which a user entry acts as another user, which the `kubernetes` package leaves out.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation

    Raises:
        ConsoleError: the entry names several groups.
    """
    groups: list[str] = user.get("as-groups") or []
    if len(groups) > 1:
        raise ConsoleError(f"as-groups: {len(groups)} groups cannot be impersonated together", "specify one group")
    headers = {"Impersonate-User": str(user.get("as") or ""), "Impersonate-Group": "".join(groups)}
    return {name: value for name, value in headers.items() if value}
