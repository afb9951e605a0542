"""Changes of queues while workloads run: the forecast from the cluster, and Kueue's result."""

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from benchmarks.agree.kueue import NAMESPACE, SCENARIO, Objects
from benchmarks.agree.playing import CAREFUL, QUICK, Play, Played, Stage
from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.cluster.cluster_queues import counts_are_current
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.explain.proposal import Proposal, effect
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.model.names import KUEUE

Data = dict[str, Any]

_POLICIES: Final = ("Never", "LowerPriority", "Any")
_AGAIN: Final = 0.3
_TWO: Final = 0.5  # part of the changes that give one queue's quota to another


@dataclass(frozen=True, slots=True)
class Outcome:
    """Workloads that a change preempts, and pending ones that it admits, by name."""

    preempted: tuple[str, ...]
    admitted: tuple[str, ...]
    missed: tuple[str, ...] = ()  # why there is no forecast; empty otherwise


def with_change(scenario: Data) -> Data:
    """A scenario with a change of its queues after its last step, drawn by its id."""
    chance = Random(f"change {scenario['id']}")  # noqa: S311 - the same changes every time, no secret
    return {**scenario, "change": _drawn(scenario, chance)}


def _drawn(scenario: Data, chance: Random) -> Data:
    changed: Data = deepcopy({key: scenario.get(key) or [] for key in ("clusterQueues", "cohorts")})
    queues: list[Data] = changed["clusterQueues"]
    queue = chance.choice(queues)
    line = chance.choice(queue["resources"])
    if chance.random() < _TWO and len(queues) > 1:
        other = chance.choice([one for one in queues if one is not queue])
        taker = next((one for one in other["resources"] if _same(one, line)), None)
        if taker is not None:
            moved = chance.randint(1, max(1, line["nominal"]))
            line["nominal"], taker["nominal"] = max(0, line["nominal"] - moved), taker["nominal"] + moved
            _lend_at_mostnominal(line)
            return changed
    owners = [one for one in changed["cohorts"] if one.get("quota")]
    match chance.choice(("nominal", "nominal", "borrowing", "policy", "cohort", "pool")):
        case "borrowing" if queue.get("cohort"):
            line["borrowingLimit"] = chance.randint(0, 6)
        case "policy":
            policy: Data = {**(queue.get("preemption") or {}), "reclaimWithinCohort": chance.choice(_POLICIES)}
            if policy["reclaimWithinCohort"] == "Never":
                policy.pop("borrowWithinCohort", None)
            queue["preemption"] = policy
        case "cohort" if changed["cohorts"] and queue.get("cohort"):
            queue["cohort"] = chance.choice(changed["cohorts"])["name"]
        case "pool" if owners:
            pool = chance.choice(chance.choice(owners)["quota"])
            pool["nominal"] = max(0, pool["nominal"] + chance.choice((-4, -2, 2, 4)))
            _lend_at_mostnominal(pool)
        case _:
            line["nominal"] = max(0, line["nominal"] + chance.choice((-6, -3, 2, 4, 6, 8)))
            _lend_at_mostnominal(line)
    return changed


def _lend_at_mostnominal(line: Data) -> None:
    """Kueue's webhook refuses more."""
    if line.get("lendingLimit") is not None:
        line["lendingLimit"] = min(line["lendingLimit"], line["nominal"])


def _same(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return (one["flavor"], one["resource"]) == (other["flavor"], other["resource"])


def changed_objects(scenario: Data, prefix: str) -> Iterator[Manifest]:
    """Changed objects, the ones that give up quota first: else Kueue can admit both quotas between two writes."""
    before = {_place(one): one for one in Objects(scenario, prefix).queues()}
    after = Objects({**scenario, **scenario["change"]}, prefix).queues()
    different = [one for one in after if before[_place(one)] != one]
    yield from sorted(different, key=lambda one: nominal(one) - nominal(before[_place(one)]))


def nominal(manifest: Manifest) -> int:
    flavors = (flavor for group in maps_at(manifest, "spec", "resourceGroups") for flavor in maps_at(group, "flavors"))
    return sum(int(text_at(line, "nominalQuota")) for flavor in flavors for line in maps_at(flavor, "resources"))


def _place(manifest: Manifest) -> tuple[str, str]:
    return text_at(manifest, "kind"), text_at(manifest, "metadata", "name")


def foreseen(cluster: Cluster, scenario: Data, prefix: str) -> Outcome:
    state = _state(cluster, prefix)
    while not counts_are_current(state):
        time.sleep(_AGAIN)
        state = _state(cluster, prefix)
    seen = effect(state, Proposal(list(changed_objects(scenario, prefix)), "agreement"))
    names = [tuple(sorted(_short(one.label) for one in part)) for part in (seen.preempted, seen.admitted)]
    return Outcome(names[0], names[1], seen.not_simulated)


def _state(cluster: Cluster, prefix: str) -> State:
    kinds: tuple[Kind, ...] = ("ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor", "Workload")
    found: dict[Kind, tuple[Manifest, ...]] = {"Namespace": (), "Node": (), "Pod": (), "ResourceQuota": ()}
    for kind in kinds:
        objects = cluster.list(KUEUE, kind, namespace=NAMESPACE if kind in {"LocalQueue", "Workload"} else "")
        found[kind] = tuple(one for one in objects if kind == "ResourceFlavor" or _belongs(one, prefix))
    return State(found)


def _belongs(manifest: Manifest, prefix: str) -> bool:
    labelled = text_at(manifest, "metadata", "labels", SCENARIO) == prefix
    return labelled or text_at(manifest, "spec", "queueName").startswith(f"{prefix}-")


def _short(label: str) -> str:
    return label.rpartition("/")[2].partition("-")[2]


def change(play: Play) -> tuple[bool, Outcome, Outcome] | None:
    """Changes the queues; whether the scenario settled, the forecast, and Kueue's result."""
    if "change" not in play.scenario:
        return None
    play.next_second()
    cluster = play.stage.cluster
    expected = foreseen(cluster, play.scenario, play.prefix)
    before, begun = play.observed()["admitted"], len(play.view.events)
    for manifest in changed_objects(play.scenario, play.prefix):
        cluster.apply(manifest, force=True)
    settled = play.rest("", begun, submitted=False)
    preempted = {event[2] for event in play.view.events[begun:] if event[1] == "-"}
    joined = set(play.observed()["admitted"]) - set(before)
    return settled, expected, Outcome(tuple(sorted(preempted)), tuple(sorted(joined)))


@dataclass(frozen=True, slots=True)
class Changed:
    """One change; not counted if Kueue did not settle, decided by a random id, or acted differently in two plays."""

    scenario: Data
    agrees: bool | None  # None where it does not count
    outcomes: tuple[Outcome, Outcome] | None
    why: str = ""  # it does not count


def play_changes(stage: Stage, scenarios: Sequence[Data]) -> list[Changed]:
    """Plays scenarios with a change at their end, and different ones twice more: the first play is in a hurry."""

    def play(chosen: Sequence[Data], *, careful: bool) -> dict[str, Played]:
        played = stage.play_all(chosen, CAREFUL if careful else QUICK, lambda _: None)
        return {one["id"]: seen for one, seen in zip(chosen, played, strict=True)}

    first = play(scenarios, careful=False)
    again = [one for one in scenarios if not agrees(first[one["id"]])]
    second, third = (play(again, careful=True) if again else {} for _ in range(2))
    found: list[Changed] = []
    for one in scenarios:
        name = one["id"]
        plays = [second[name], third[name]] if name in second else [first[name]]
        unstable = len({play.after and play.after[2] for play in plays}) > 1
        why = _uncounted(plays[0]) or ("two plays differ" if unstable else "")
        found.append(Changed(one, None if why else agrees(plays[0]), plays[0].after and plays[0].after[1:], why))
    return found


def _uncounted(played: Played) -> str:
    if not played.settled or played.after is None or not played.after[0]:
        return "Kueue did not come to rest"
    if played.tie:
        return "Kueue decided by a random id"
    return "; ".join(played.after[1].missed)


def agrees(played: Played) -> bool:
    return not _uncounted(played) and played.after[1] == played.after[2]
