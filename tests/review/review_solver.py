"""Guarantees and limits of teams, recomputed from the rendered Kubernetes objects alone.

The model and the console are not used: quotas as Kueue reads them, `alone` by Kueue's own rule of available quota
(https://kueue.sigs.k8s.io/docs/concepts/cohort/), `busy` by enumerating all distributions in which no queue can use one
more GPU.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import product
from math import floor, gcd, prod
from typing import Any, TypeAlias

Manifest: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]  # flavor and resource

GPUS = "nvidia.com/"
WAYS = 300_000  # ways of sharing; more would take too long to enumerate


@dataclass
class Node:
    name: str
    parent: str
    nominal: dict[Key, int] = field(default_factory=dict)
    borrowing: dict[Key, int] = field(default_factory=dict)
    lending: dict[Key, int] = field(default_factory=dict)
    reclaim: str = ""
    weight: Fraction = Fraction(1)


@dataclass(frozen=True)
class Gang:
    team: str
    flavor: str
    resource: str
    guaranteed: int
    most: int


class World:
    def __init__(self, objects: list[Manifest]) -> None:
        self.objects = objects
        self.queues = {_name(manifest): _node(manifest, "cohortName") for manifest in self.of("ClusterQueue")}
        self.cohorts = {_name(manifest): _node(manifest, "parentName") for manifest in self.of("Cohort")}
        self.root = next(name for name, node in self.cohorts.items() if not node.parent)
        self.fair = any("fairSharing" in manifest["spec"] for manifest in self.of("ClusterQueue"))
        self.teams = {
            manifest["metadata"]["namespace"]: manifest["spec"]["clusterQueue"] for manifest in self.of("LocalQueue")
        }
        self.gangs = [_gang(manifest, self.teams) for manifest in self.of("Queue")]
        keys = {key for node in self.cohorts.values() for key in node.nominal if key[1].startswith(GPUS)}
        self.keys = sorted(key for key in keys if self.supply(key) > 0)

    def of(self, kind: str) -> list[Manifest]:
        return [manifest for manifest in self.objects if manifest["kind"] == kind]

    def below(self, cohort: str) -> list[Node]:
        return [node for node in (*self.cohorts.values(), *self.queues.values()) if node.parent == cohort]

    def is_queue(self, node: Node) -> bool:
        return self.queues.get(node.name) is node

    def total(self, node: Node, key: Key) -> int:
        """All quota of a node and of its descendants, lent or not."""
        own = node.nominal.get(key, 0)
        return own if self.is_queue(node) else own + sum(self.total(child, key) for child in self.below(node.name))

    def limit(self, node: Node, key: Key) -> int | None:
        return self.total(node, key) + node.borrowing[key] if key in node.borrowing else None

    def supply(self, key: Key) -> int:
        return self.total(self.cohorts[self.root], key)

    def kept(self, node: Node, key: Key) -> int:
        return max(0, self._shared(node, key) - node.lending[key]) if key in node.lending else 0

    def _shared(self, node: Node, key: Key) -> int:
        """A node's quota as Kueue adds it up: without descendants' quota that is never lent."""
        lent = [] if self.is_queue(node) else self.below(node.name)
        return node.nominal.get(key, 0) + sum(self._shared(child, key) - self.kept(child, key) for child in lent)

    def alone(self, node: Node, key: Key) -> int:
        """A node's available quota when nothing is used."""
        if not node.parent:
            return self._shared(node, key)
        above = self.alone(self.cohorts[node.parent], key)
        stored = self._shared(node, key) - self.kept(node, key)
        if key in node.borrowing:
            above = min(above, stored + node.borrowing[key])
        return self.kept(node, key) + above

    def busy(self, key: Key) -> dict[str, tuple[int, int]]:
        """The minimum and maximum of each queue when all request their limits."""
        queues = [node for node in self.queues.values() if key in node.nominal and (self.limit(node, key) or 0) > 0]
        if self.fair:
            amounts = {node.name: 0 for node in queues} | self._even(key)
            return {name: (amount, amount) for name, amount in amounts.items()}
        ranges = [(node.nominal[key], self.limit(node, key) or 0) for node in queues]
        bounds = [self.limit(node, key) or 0 for node in self.cohorts.values()]
        totals = [self.total(node, key) for node in self.cohorts.values()]
        step = reduce(gcd, [amount for pair in ranges for amount in pair] + bounds + totals) or 1
        assert prod((most - least) // step + 1 for least, most in ranges) <= WAYS
        names = [node.name for node in queues]
        found = [
            way
            for amounts in product(*(range(least, most + 1, step) for least, most in ranges))
            if self._holds(way := dict(zip(names, amounts, strict=True)), key) and self._full(way, key, step)
        ]
        return {name: (min(way[name] for way in found), max(way[name] for way in found)) for name in names}

    def _holds(self, way: Mapping[str, int], key: Key) -> bool:
        """Whether no bound is broken, and no group lacks a guarantee that it can use."""
        return all(
            self._floor(node, key) <= self._used(node, way) <= self._ceiling(node, key)
            for node in self.cohorts.values()
        )

    def _full(self, way: Mapping[str, int], key: Key, step: int) -> bool:
        """Whether no queue can use more."""
        return not any(
            self._holds({**way, name: amount + step}, key)
            for name, amount in way.items()
            if amount < (self.limit(self.queues[name], key) or 0)
        )

    def _used(self, node: Node, way: Mapping[str, int]) -> int:
        return way.get(node.name, 0) if self.is_queue(node) else sum(self._used(e, way) for e in self.below(node.name))

    def _ceiling(self, node: Node, key: Key) -> int:
        limit = self.limit(node, key) if node.parent else self.supply(key)
        return self.supply(key) if limit is None else limit

    def _most(self, node: Node, key: Key) -> int:
        if self.is_queue(node):
            return self.limit(node, key) or 0
        return min(self._ceiling(node, key), sum(self._most(child, key) for child in self.below(node.name)))

    def _floor(self, node: Node, key: Key) -> int:
        return min(self.total(node, key), self._most(node, key)) if node.parent else 0

    def _even(self, key: Key) -> dict[str, int]:
        return dict(self._rising(self.cohorts[self.root], Fraction(self.supply(key)), key))

    def _rising(self, cohort: Node, amount: Fraction, key: Key) -> Iterator[tuple[str, int]]:
        """The level of weighted borrowing at which the sum of all equals the amount."""
        below = [node for node in self.below(cohort.name) if self._most(node, key) > 0]

        def at(level: Fraction, node: Node) -> Fraction:
            most = self._most(node, key)
            return min(Fraction(most), min(self.total(node, key), most) + node.weight * level)

        def full(level: Fraction) -> Fraction:
            return sum((at(level, node) for node in below), Fraction(0))

        turns = sorted(
            {
                (self._most(node, key) - min(self.total(node, key), self._most(node, key))) / node.weight
                for node in below
            }
        )
        level = Fraction(0)
        for turn in turns:
            if (high := full(turn)) >= amount:
                low = full(level)
                level += (amount - low) * (turn - level) / (high - low) if high > low else 0
                break
            level = turn
        for node in below:
            if self.is_queue(node):
                yield node.name, floor(at(level, node))
            else:
                yield from self._rising(node, at(level, node), key)


def _name(manifest: Manifest) -> str:
    return manifest["metadata"]["name"]


def _node(manifest: Manifest, parent: str) -> Node:
    spec = manifest.get("spec", {})
    node = Node(_name(manifest), spec.get(parent, ""))
    node.reclaim = spec.get("preemption", {}).get("reclaimWithinCohort", "")
    node.weight = Fraction(str(spec.get("fairSharing", {}).get("weight", 1)))
    for key, line in _lines(spec):
        node.nominal[key] = int(line["nominalQuota"])
        if "borrowingLimit" in line:
            node.borrowing[key] = int(line["borrowingLimit"])
        if "lendingLimit" in line:
            node.lending[key] = int(line["lendingLimit"])
    return node


def _lines(spec: Manifest) -> Iterator[tuple[Key, Manifest]]:
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for line in flavor["resources"]:
                if line["name"].startswith(GPUS):
                    yield (flavor["name"], line["name"]), line


def _gang(manifest: Manifest, teams: Mapping[str, str]) -> Gang:
    """The name of a queue of Volcano has its team and its flavor."""
    team = max((name for name in teams if _name(manifest).startswith(f"{name}-")), key=len)
    spec = manifest["spec"]
    resource = next(name for name in spec["capability"] if name.startswith(GPUS))
    sure = int(spec["guarantee"]["resource"][resource])
    return Gang(team, _name(manifest).removeprefix(f"{team}-"), resource, sure, int(spec["capability"][resource]))
