"""Who the cluster thinks that the caller is, and which roles follow from the rules that it states."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpu_tenancy.access.answers import WHOLE
from gpu_tenancy.access.live import rules_of
from gpu_tenancy.access.planned import rule_of
from gpu_tenancy.access.rules import ALL, Rule
from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.plan.people import TEAM_ROLES, rules
from gpu_tenancy.model.spec import Stack

_BASE: Final = "default"
"""A namespace of every cluster in which a stack binds nobody."""


@dataclass(frozen=True, slots=True)
class Me:
    """The caller as the API server knows it (SelfSubjectReview)."""

    user: str
    groups: tuple[str, ...]


def who_am_i(cluster: Cluster) -> Me:
    """Who the API server thinks that the caller is.

    Raises:
        ApiError: it does not accept the caller's credentials.
    """
    answer = cluster.create({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    groups = at(answer, "status", "userInfo", "groups")
    found = groups if isinstance(groups, list) else []
    return Me(text_at(answer, "status", "userInfo", "username"), tuple(map(str, found)))


def roles(cluster: Cluster, stack: Stack, namespaces: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The roles of a stack that the caller has, by place; places without a role are left out.

    A caller has a role whose rules the API server states for it (SelfSubjectRulesReview), however it got them.
    """
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        base, *stated = pool.map(partial(_stated, cluster), (_BASE, *namespaces))
    whole = tuple(_whole(base, stack))
    by_place = {name: _team_role(found, stack) for name, found in zip(namespaces, stated, strict=True)}
    everywhere = _team_role(base, stack) if whole else ()
    own = {name: found for name, found in by_place.items() if found and found != everywhere and "admin" not in whole}
    return {WHOLE: whole, **own} if whole else own


def _stated(cluster: Cluster, namespace: str) -> tuple[Rule, ...]:
    spec: dict[str, Json] = {"namespace": namespace}
    asked: Manifest = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": spec}
    return tuple(rules_of(maps_at(cluster.create(asked), "status", "resourceRules")))


def _whole(stated: Sequence[Rule], stack: Stack) -> Iterator[str]:
    """Roles in the whole cluster; who has one that includes others has only that."""
    if ALL in stated:
        yield "admin"
    elif _has(stated, stack, "auditor"):
        yield "auditor"
    elif _has(stated, stack, "member"):
        yield "member"


def _team_role(stated: Sequence[Rule], stack: Stack) -> tuple[str, ...]:
    return next(((role,) for role in TEAM_ROLES if _has(stated, stack, role)), ())


def _has(stated: Iterable[Rule], stack: Stack, role: str) -> bool:
    """Whether stated rules allow all that a role allows."""
    found = {triple for rule in stated if not rule.names for triple in _triples(rule)}
    wanted = (rule_of(rule) for rule in rules(stack, role))
    return ("*", "*", "*") in found or all(triple in found for rule in wanted for triple in _triples(rule))


def _triples(rule: Rule) -> Iterator[tuple[str, str, str]]:
    return ((group, name, verb) for group in rule.groups for name in rule.resources for verb in rule.verbs)
