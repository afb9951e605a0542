"""Pods that would be refused if they were created again after a change: by a LimitRange, or by guards that deny.

Judged are bounds of containers, priority classes, schedulers and grace periods. Rules about images, volumes, privileges
and submitters are not, since a snapshot of a cluster does not have these fields.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import amount_text, amounts, is_extended, parse_quantity
from gpu_tenancy.cluster.pods import Manifest, container_amounts, ended, name_of, namespace_of, requests, scheduler
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.model.kinds import kinds
from gpu_tenancy.model.names import DEFAULT_GRACE
from gpu_tenancy.model.plan.guards import FACTS
from gpu_tenancy.model.spec.people import Grace

_SERVERS: Final = frozenset(
    key for key, kind in kinds().items() if kind.work == "serving" or (kind.made and kind.work is None)
)
"""Owners of pods, by group and kind, whose grace period has the upper bound: servers, and what controllers create for
them. Guards judge pods of any other owner as jobs."""
Rule = Callable[[Manifest], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Pods of a namespace that one bound refuses, as names."""

    team: str
    why: str
    pods: tuple[str, ...]


def refused(now: State, objects: Iterable[Mapping[str, Json]], grace: Grace | None) -> tuple[Refused, ...]:
    """The pods that run or wait now, and are refused after the change but not before.

    Args:
        now: the cluster.
        objects: all that the stack declares.
        grace: of guards that deny; None where they do not.
    """
    declared = [dict(one) for one in objects]
    spaces = {name_of(one): one for one in declared if text_at(one, "kind") == "Namespace"}
    live = {name_of(one): one for one in now.of("Namespace")}
    classes = [name_of(one) for one in declared if text_at(one, "kind") == "PriorityClass"]
    ranges = [one for one in declared if text_at(one, "kind") == "LimitRange"]
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in now.of("Pod"):
        space = namespace_of(pod)
        if space not in spaces or ended(pod):
            continue
        reasons = dict.fromkeys(_beyond(pod, ranges))
        before = set(_beyond(pod, now.of("LimitRange")))
        if grace:
            reasons |= dict.fromkeys(_denied(pod, spaces[space], classes, grace))
            before |= set(_denied(pod, live.get(space, {}), None, None))
        for reason in reasons:
            if reason not in before:
                found[space, reason].append(name_of(pod))
    return tuple(Refused(team, why, tuple(sorted(pods))) for (team, why), pods in sorted(found.items()))


def _beyond(pod: Manifest, ranges: Iterable[Manifest]) -> Iterator[str]:
    """The bounds of LimitRanges that a container breaks: https://kubernetes.io/docs/concepts/policy/limit-range/."""
    containers = [*maps_at(pod, "spec", "containers"), *maps_at(pod, "spec", "initContainers")]
    items = (
        item
        for one in ranges
        if namespace_of(one) == namespace_of(pod)
        for item in maps_at(one, "spec", "limits")
        if text_at(item, "type") == "Container"
    )
    for item in items:
        most, least = amounts(at(item, "max")), amounts(at(item, "min"))
        ratios = texts_at(item, "maxLimitRequestRatio")
        for container in containers:
            limits, asked = (container_amounts(container, which) for which in ("limits", "requests"))
            for name, limit in limits.items():
                text = f"limit of {amount_text(name, limit)} {name} in a container"
                if name in most and limit > most[name]:
                    yield f"{text} exceeds the maximum of {amount_text(name, most[name])}"
                if name in ratios and limit > parse_quantity(ratios[name]) * asked.get(name, limit):
                    yield f"{text} exceeds {ratios[name]} times its request"
            for name, amount in asked.items():
                if amount < least.get(name, 0):
                    text = f"request of {amount_text(name, amount)} {name} in a container"
                    yield f"{text} is below the minimum of {amount_text(name, least[name])}"


def _denied(pod: Manifest, space: Manifest, classes: list[str] | None, grace: Grace | None) -> Iterator[str]:
    """What guards refuse in a namespace with these facts; None: not known, so that it refuses nothing."""
    spec, facts = map_at(pod, "spec"), texts_at(space, "metadata", "annotations")
    own = facts.get(f"{FACTS}priority-classes", "")
    allowed = own.split(",") if own else classes
    name = text_at(spec, "priorityClassName")
    if name and allowed is not None and name not in allowed:
        yield f"priority class {name} is not one of the team's"
    if classes is not None or any(key.startswith(FACTS) for key in facts):
        schedulers = facts.get(f"{FACTS}schedulers", "default-scheduler").split(",")
        if scheduler(spec) not in schedulers:
            yield f"scheduler {scheduler(spec)} is not one of the team's"
    if grace and any(is_extended(resource) for resource in requests(spec)):
        owners = maps_at(pod, "metadata", "ownerReferences")
        served = any(
            (text_at(one, "apiVersion").rpartition("/")[0], text_at(one, "kind")) in _SERVERS for one in owners
        )
        bound = grace.servers if served else grace.jobs
        if (seconds := int_at(spec, "terminationGracePeriodSeconds", otherwise=DEFAULT_GRACE)) > bound:
            yield f"grace period of {seconds} s exceeds the maximum of {bound:g} s"
