"""Who may do something, and what somebody may do: over roles and bindings of a stack or of a cluster."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gpu_tenancy.access.resources import VERBS, Resource
from gpu_tenancy.access.rules import Grant
from gpu_tenancy.model.plan.people import Subject

WHOLE = ""
"""The place of rights in the whole cluster; other places are namespaces."""

Ask: TypeAlias = Callable[[str, Resource, str], bool]
"""Whether somebody may do something: verb, resource, place."""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Somebody who may do what was asked."""

    subject: Subject
    role: str
    place: str


@dataclass(frozen=True, slots=True)
class Right:
    """What somebody may do at some places.

    Attributes:
        places: namespaces, or `WHOLE`.
        verbs: in the order of `VERBS`.
    """

    places: tuple[str, ...]
    verbs: tuple[str, ...]
    resources: tuple[Resource, ...]


def who_can(grants: Iterable[Grant], verb: str, resource: Resource, namespace: str | None = None) -> tuple[Holder, ...]:
    """Who may do something, each with the role and the place.

    Args:
        grants: roles of everybody.
        verb: such as `create`.
        resource: of any group.
        namespace: leaves out rights in other namespaces; None for all places.
    """
    found: set[Holder] = set()
    for grant in grants:
        place = grant.namespace if namespace is None or not resource.namespaced else namespace
        if not resource.namespaced and grant.namespace:
            continue
        if grant.allows(verb, resource, place):
            found.add(Holder(grant.subject, grant.role, grant.namespace))
    return tuple(sorted(found))


def can(ask: Ask, resources: Iterable[Resource], namespaces: Sequence[str]) -> tuple[Right, ...]:
    """What somebody may do: in the whole cluster, and beyond that in each namespace."""
    everywhere: set[tuple[str, Resource]] = set()
    at_place: dict[str, set[tuple[str, Resource]]] = {}
    asked = [(verb, resource) for resource in resources for verb in VERBS]
    everywhere.update(pair for pair in asked if ask(*pair, WHOLE))
    at_place[WHOLE] = everywhere
    left = [pair for pair in asked if pair[1].namespaced and pair not in everywhere]
    for namespace in namespaces:
        at_place[namespace] = {pair for pair in left if ask(*pair, namespace)}
    return _joined(at_place)


def _joined(at_place: Mapping[str, set[tuple[str, Resource]]]) -> tuple[Right, ...]:
    """Places with the same rights, and resources with the same verbs, together."""
    places: defaultdict[frozenset[tuple[str, Resource]], list[str]] = defaultdict(list)
    for place, pairs in at_place.items():
        places[frozenset(pairs)].append(place)
    rights: list[Right] = []
    for pairs, same in places.items():
        by_resource: defaultdict[Resource, set[str]] = defaultdict(set)
        for verb, resource in pairs:
            by_resource[resource].add(verb)
        by_verbs: defaultdict[tuple[str, ...], list[Resource]] = defaultdict(list)
        for resource, verbs in sorted(by_resource.items()):
            by_verbs[tuple(verb for verb in VERBS if verb in verbs)].append(resource)
        rights += [Right(tuple(same), verbs, tuple(found)) for verbs, found in by_verbs.items()]
    return tuple(rights)
