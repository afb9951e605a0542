"""Who may do what by the roles and bindings that the caller may read in a cluster, without a stack's file."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpu_tenancy.access.live import RBAC, granted, rules_by_role
from gpu_tenancy.access.rules import ALL, EVERYBODY, Grant, Holder, Rule
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.catalogue.access import roles, rules_of
from gpu_tenancy.model.plan.people import ADMIN, AUDITOR, PREFIX

_ASK: Final = f"ask a user with the role {AUDITOR}"


@dataclass(frozen=True, slots=True)
class Seen:
    """Roles of everybody, as far as the caller may read them.

    Attributes:
        notes: what is missing or not read from the cluster, and whom to ask.
    """

    grants: tuple[Grant, ...]
    notes: tuple[str, ...]


def is_tenant(holder: Holder, namespace: str) -> bool:
    """Whether somebody is no part of the control plane or of an operator, as far as names tell.

    Args:
        holder: of a right.
        namespace: that was asked for; empty for all.
    """
    who = holder.subject
    if who.kind == "ServiceAccount":
        return not namespace or namespace in {who.namespace, holder.place}
    return who.name in EVERYBODY or not who.name.startswith("system:")


def seen(cluster: Cluster, namespace: str) -> Seen:
    """Roles in a namespace and in the whole cluster.

    ClusterRoles of this program that the caller may not read have the rules of this version.

    Args:
        cluster: which.
        namespace: of a team; empty for all, which members of teams may not read.

    Raises:
        ConsoleError: the caller may not list the bindings there.
        ApiError: the API server rejects the request for another reason.
    """
    kinds = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        whole_roles, own_roles, whole, own = pool.map(partial(_listed, cluster, namespace), kinds)
    if own is None:
        where, fix = (namespace, _ASK) if namespace else ("the whole cluster", f"specify your team with -n, or {_ASK}")
        raise ConsoleError(f"you may not list RoleBindings in {where}", fix)
    rules = rules_by_role((*(whole_roles or ()), *(own_roles or ())))
    bindings = (*(whole or ()), *own)
    unread = {_role(binding) for binding in bindings} - rules.keys()
    known: Mapping[tuple[str, str], tuple[Rule, ...]] = _known() if whole_roles is None else {}
    rules = {**{key: known[key] for key in unread & known.keys()}, **rules}
    found = tuple(grant for binding in bindings for grant in granted(binding, rules))
    return Seen(found, tuple(_notes(unread, known.keys(), cluster_wide=whole is not None)))


def _listed(cluster: Cluster, namespace: str, kind: str) -> tuple[Manifest, ...] | None:
    try:
        return cluster.list(RBAC, kind, namespace=namespace)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None


def _role(binding: Manifest) -> tuple[str, str]:
    of_namespace = text_at(binding, "roleRef", "kind") == "Role"
    return text_at(binding, "metadata", "namespace") if of_namespace else "", text_at(binding, "roleRef", "name")


def _known() -> Mapping[tuple[str, str], tuple[Rule, ...]]:
    own = {("", f"{PREFIX}{name}"): tuple(map(Rule.of, rules_of(name))) for name in roles()}
    return {("", ADMIN): (ALL,), **own}


def _notes(
    unread: AbstractSet[tuple[str, str]], known: AbstractSet[tuple[str, str]], *, cluster_wide: bool
) -> Iterator[str]:
    if not cluster_wide:
        yield f"rights in the whole cluster not shown: you may not list ClusterRoleBindings; {_ASK}"
    assumed = sorted(name for _, name in unread & known)
    if assumed:
        yield f"rules of {', '.join(assumed)} are those of this version of tenancy: you may not list ClusterRoles"
    if left := sorted(name for _, name in unread - known):
        yield f"rights by {', '.join(left)} not shown: the role does not exist, or you may not read it; {_ASK}"
