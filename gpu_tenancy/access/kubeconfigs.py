"""Kubeconfigs of people and service accounts, for the namespace of a team."""

import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from gpu_tenancy.access.connecting import SECRETS, with_authority
from gpu_tenancy.access.planned import shown
from gpu_tenancy.access.questions import Access
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.writing import write_private
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.contexts import Entry
from gpu_tenancy.model.kubeconfig import kubeconfig
from gpu_tenancy.model.plan.people import MEMBER, subject
from gpu_tenancy.model.spec.people import Person

_MARK: Final = "gpu-tenancy"
"""Name of the extension by which a file of ours is known."""
SHORTEST, LONGEST = 600, 24 * 3600
"""Seconds that a token is valid: the API server's minimum, and a day."""


def check_member(access: Access, team: str, who: Person) -> None:
    """Checks that the stack gives a person a role in a team, or in the whole cluster.

    Raises:
        ConsoleError: it does not.
    """
    me = subject(who)
    if not any(grant.subject == me and grant.namespace == team for grant in access.grants) and not any(
        grant.subject == me and not grant.namespace and grant.role != MEMBER for grant in access.grants
    ):
        known = sorted({shown(grant.subject, access.names) for grant in access.grants if grant.namespace == team})
        fix = f"add it to teams.{team}.members" + (f", or specify one of: {', '.join(known)}" if known else "")
        raise ConsoleError(f"--as: {who} has no role in team {team}", fix)


def of_context(entry: Entry, who: Person | None) -> tuple[dict[str, Any], str]:
    """A kubeconfig for a context of another one, and a note for whoever gets it.

    Credentials in the other file are not copied: then the user entry is the other file's, by its name.

    Raises:
        ConsoleError: NAME can only be impersonated by a copy of the user entry, and that has credentials.
    """
    embedded = [key for key in SECRETS if key in entry.user]
    cluster = with_authority(entry.cluster)
    if not embedded:
        return kubeconfig(entry.name, cluster, entry.user_name, impersonating(entry.user, who)), ""
    if who is not None:
        what = f"context {entry.name}: user {entry.user_name} has credentials in the file ({', '.join(embedded)})"
        fix = "leave --as out, and use kubectl --as and --as-group; or specify --as serviceaccount:NAMESPACE/NAME"
        raise ConsoleError(f"{what}, which are not copied", fix)
    note = f"credentials of user {entry.user_name} are not copied; list both files in KUBECONFIG, this one first"
    return kubeconfig(entry.name, cluster, entry.user_name, None), note


def impersonating(user: Mapping[str, Any], who: Person | None) -> dict[str, Any]:
    """A user entry that acts as a person; the caller needs the right to impersonate, as administrators have.

    An IAM role is not impersonated but assumed, by the helper.
    """
    if who is None or who.kind == "role":
        return dict(user)
    if who.kind == "group":
        return {**user, "as": "gpu-tenancy:member", "as-groups": [who.name]}
    return {**user, "as": who.name}


def plain(entry: Entry) -> dict[str, Any]:
    """A kubeconfig for the cluster of a context, without a login."""
    return kubeconfig(entry.name, with_authority(entry.cluster), entry.user_name, None)


def as_person(config: Mapping[str, Any], who: Person | None) -> dict[str, Any]:
    """A kubeconfig whose login acts as a person."""
    (user,) = config["users"]
    return {**config, "users": [{**user, "user": impersonating(user["user"], who)}]}


@contextmanager
def connected(config: Mapping[str, Any]) -> Generator[Path]:
    """A file, for as long as it is needed, with a kubeconfig that has no credentials."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        write_private(file, yaml.safe_dump(dict(config)))
        yield file


def with_token(
    cluster: Cluster, config: Mapping[str, Any], who: Person, seconds: float, longest: float = LONGEST
) -> dict[str, Any]:
    """A kubeconfig with a token of a service account (TokenRequest) in place of the login that asked for it.

    Raises:
        ConsoleError: the account does not exist, or the validity is out of bounds.
        ApiError: the caller may not create the token.
    """
    if not SHORTEST <= seconds <= longest:
        raise ConsoleError(
            f"--for: {seconds:g} s is not between 10m and {longest / 3600:g}h", "set a duration such as 1h"
        )
    namespace, _, account = who.name.partition("/")
    if not cluster.exists("v1", "ServiceAccount", account, namespace):
        fix = f"deploy the stack if it declares it; else kubectl create serviceaccount {account} -n {namespace}"
        raise ConsoleError(f"--as: service account {namespace}/{account} does not exist", fix)
    token = cluster.token(namespace, account, seconds=int(seconds))
    (entry,) = config["clusters"]
    return kubeconfig(entry["name"], entry["cluster"], account, {"token": token})


def in_team(config: Mapping[str, Any], stack: str, team: str) -> str:
    """The text of a kubeconfig whose namespace is a team's, marked as a file of ours."""
    (context,) = config["contexts"]
    name = f"{stack}-{team}"
    placed = {"name": name, "context": {**context["context"], "namespace": team}}
    mark = [{"name": _MARK, "extension": {"stack": stack, "team": team}}]
    whole = {**config, "contexts": [placed], "current-context": name, "extensions": mark}
    return yaml.safe_dump(whole, sort_keys=False)


def write(file: Path, text: str) -> None:
    """Writes a kubeconfig, readable only by its owner (mode 0600).

    Raises:
        ConsoleError: the file exists and is not one that this command wrote.
    """
    mark = f"\nextensions:\n- name: {_MARK}\n"
    if file.exists() and mark not in file.read_text(encoding="utf-8", errors="replace"):
        raise ConsoleError(
            f"--out: {file} exists and was not written by this command", "specify another file, or remove it"
        )
    write_private(file, text)
