"""Random changes by tenants on the real Kueue: the pods of no object hold more GPUs than Kueue counts for it.

Objects of each kind, admitted or pending, are changed again and again, and so is all that operators and Kueue create
for them, by three accounts. `make attempts` tries thousands, of another seed each time.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import yaml
from kinds_by_hand import AROUND, INTEGRATED, within, written
from researchers import TEAM, Researcher, weakened
from test_live_counted import KUEUE

from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.cluster.bound import KINDS, breaches
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.reading import Kind, State, read
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference

pytestmark = [pytest.mark.platform, pytest.mark.slow]
ATTEMPTS: Final = int(os.environ.get("GPU_TENANCY_ATTEMPTS", "100"))
KNOWN: Final = 800  # attempts that must find a known way
SEED: Final = os.environ.get("GPU_TENANCY_SEED", str(time.time_ns()) if "GPU_TENANCY_ATTEMPTS" in os.environ else "0")
AT_ONCE: Final = 12  # objects
SECOND: Final = 1.0  # for which more GPUs can be bound than are counted
REST: Final = 1.5  # seconds after an accepted change
CHANGES: Final = 5  # accepted changes of an object, before another one takes its place
LATE: Final = 5.0  # seconds until Volcano has written what it counts
GANG: Final = "Gang"  # a Job of Volcano
API: Final = {
    **{one.kind: one.api for one in INTEGRATED.values()},
    **{kind: (version, kind) for kind, version in (("ReplicaSet", "apps/v1"), ("Workload", KUEUE))},
    "PodGroup": ("scheduling.volcano.sh/v1beta1", "PodGroup"),
    GANG: ("batch.volcano.sh/v1alpha1", "Job"),
}
FRESH: Final[tuple[Kind, ...]] = ("Pod", "PodGroup", "Workload")
# By known way: kinds whose random changes must find it without these rules of guards, a field that they change, and
# how many seconds it lasts: Kueue suspends a job again within 0.3 s.
WAYS: Final[dict[str, tuple[list[str], list[tuple[str, str]], str, float]]] = {
    "sizes of children": (["JobSet", "TrainJob", "RayJob"], [("sizes", "owned")], "", SECOND),
    "suspend": (["Job", "JobSet"], [("sizes", "resized")], "suspend", 0.0),
}


def places(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Each path of the table with its values."""
    for key, inner in found.items():
        step = (*path, key.replace("kueue:", "kueue.x-k8s.io/"))
        yield from [(step, inner)] if isinstance(inner, list) else places(inner, step)


TABLE: Final = yaml.safe_load(Path(__file__).with_name("attempts.yaml").read_text(encoding="utf-8"))
OF: Final = {
    "pods": {path[-1] for path, _ in places(TABLE["pods"])},
    "sizes": TABLE["sizes"],
    "starts": ["+", "schedulingGates"],
}


def groups(kind: str) -> list[list[Any]]:
    """The places of a kind: metadata, parts of pod templates, others, what starts pods, and twice the sizes."""
    found: dict[str, list[Any]] = {}
    for path, values in places(TABLE[kind]):
        group = path[0] if path[0] == "metadata" else next((name for name in reversed(OF) if path[-1] in OF[name]), "")
        found.setdefault(group, []).append((path, values))
    return [*found.values(), *([found["sizes"]] if "sizes" in found else [])]


VALUES: Final = {kind: groups(kind) for kind in API}


class Live(dict[str, dict[str, Any]]):
    """The objects of each kind by their names, listed when they are needed."""

    def __init__(self, cluster: Cluster, state: State) -> None:
        self.cluster = cluster
        self.state = state.joined(read(cluster, ("Queue",), TEAM, only=FRESH))

    def __missing__(self, kind: str) -> dict[str, Any]:
        version, name = API[kind]
        known: dict[str, tuple[Manifest, ...]] = {one: self.state.of(one) for one in FRESH}
        listed = known.get(kind) or self.cluster.list(version, name, namespace=TEAM)
        self[kind] = {text_at(one, "metadata", "name"): {**one, "apiVersion": version, "kind": name} for one in listed}
        return self[kind]

    def remove(self, name: str, kinds: Iterable[str]) -> None:
        for one in [one for kind in kinds for key, one in self[kind].items() if name in key]:
            with suppress(ApiError):
                self.cluster.patch(Reference.of(one), {"metadata": {"finalizers": None}})
                self.cluster.delete(Reference.of(one), grace=0, wait=0)

    def uncounted(self, walk: "Walk") -> str:
        """The breach of the object and its pods alone, for gangs of their queue; empty if there is none."""
        if walk.kind == GANG:
            found = breaches(self.state)
            return "; ".join(one.text for one in found if any(walk.name in owner for owner in one.owners))
        kinds: tuple[Kind, ...] = ("Pod", "Workload")
        own: dict[Kind, tuple[Manifest, ...]] = {
            kind: tuple(one for one in self.state.of(kind) if walk.name in name_of(one)) for kind in kinds
        }
        return "; ".join(one.text for one in breaches(self.state.joined(State(own))))


def changed(old: Any, new: Any) -> Any:
    """A merge patch from one version of an object to another; None removes."""
    values: dict[str, Any] = new
    found: dict[str, Any] = {}
    for key, value in values.items():
        if value != old.get(key, ...):
            found[key] = changed(old[key], value) if {type(value), type(old.get(key))} == {dict} else value
    return found


def drawn(draw: Random, name: str, kinds: Sequence[str]) -> tuple[str, Any]:
    """An object of some kind, which Kueue admits or whose flavor has no quota, or a gang."""
    kind, _, always = draw.choice(kinds).partition(" ")
    pending, elastic = draw.random() < 0.5, draw.random() < 0.4 or always
    if kind == GANG:
        return kind, {**deepcopy(TABLE["gang"]), "metadata": {"name": name}}
    found = written(INTEGRATED[kind], "both")
    found["metadata"]["name"] = name
    resources = TABLE["small"]
    for pods in INTEGRATED[kind].pod_sets(found):
        spec: Any = pods.template.get("spec")
        if spec:
            spec["containers"][0]["resources"] = resources
            spec |= {"nodeSelector": TABLE["elsewhere"]} if pending else {}
    if kind == "TrainJob":
        found["spec"]["trainer"]["resourcesPerNode"] = resources
        found["spec"] |= {"runtimePatches": TABLE["patches"]} if pending else {}
    if elastic and kind in {"Job", "RayCluster", "RayJob"}:
        found["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    return kind, found


@dataclass
class Walk:
    """An object and its changes."""

    name: str
    kind: str
    draw: Random
    made: Any
    rests: float  # until then
    closely: bool = False  # looked at after each change, for what ends within the second
    seen: str = ""
    history: list[str] = field(default_factory=list[str])

    @property
    def kinds(self) -> list[str]:
        pods = () if self.kind == "Pod" else ("Pod",)
        return [self.kind, *TABLE["made"].get(self.kind, ()), *pods, "Workload"]

    def is_over(self, live: Live) -> bool:
        return len(self.history) >= CHANGES or self.name not in live[self.kind]

    def attempts(self, live: Live, people: dict[str, Cluster]) -> int:
        """Changes it once, after at most five refusals; returns the number of attempts."""
        tried = 0
        for _ in range(6):
            done = self.attempt(live, people)
            tried += done is not None
            if done:
                self.rests = time.monotonic() + REST
                for _ in range(4 if self.closely else 0):
                    self.seen = self.seen or Live(live.cluster, live.state).uncounted(self)
                break
        return tried

    def attempt(self, live: Live, people: dict[str, Cluster]) -> bool | None:
        """Whether a change was accepted; None if there is nothing to change. Draws depend on the seed only."""
        draw, kinds = self.draw, self.kinds
        kind, who = draw.choice([*kinds, *kinds[:-2], *kinds[:-2]]), draw.choice(["rita", "rita", "edit", "boss"])
        who = "boss" if kind in TABLE["boss"] else "rita" if who == "edit" and "." in API[kind][0] else who
        which, act, size = draw.random(), draw.random(), draw.choice([0, 1, 4])
        phase = draw.choice(["Succeeded", "Failed"])
        parts = [draw.choice(draw.choice(VALUES[kind])) for _ in range(draw.choice([1, 1, 1, 2]))]
        sets = [(path, draw.choice(values)) for path, values in parts]
        found = [one for name, one in sorted(live[kind].items()) if self.name in name]
        if not found:
            return None
        target = found[int(which * len(found))]
        reference, new = Reference.of(target), deepcopy(target)
        for path, value in sets:
            within(new, [*path[:-1]]).update(value if path[-1] == "+" else {path[-1]: value})
        if new["metadata"].get("ownerReferences") == "released":
            owners = maps_at(target, "metadata", "ownerReferences")
            new["metadata"]["ownerReferences"] = [{**one, "controller": False} for one in owners]
        patch: Any = changed(target, new)
        subresource = ""
        if act < 0.1 and "replicas" in new["spec"]:
            patch, subresource = {"spec": {"replicas": size}}, "scale"
        elif act < 0.1 and kind == "Pod":
            who, patch, subresource = "kubelet", {"status": {"phase": phase}}, "status"
        if not patch:
            return None
        try:
            if 0.1 < act < 0.15:
                words = f"delete{' --cascade=foreground' * (size > 1)}"
                people[who].delete(reference, foreground=size > 1, wait=0)
            else:
                words = f"patch {subresource} {json.dumps(patch)}"
                people[who].patch(reference, patch, subresource=subresource)
        except ApiError:
            return False
        self.history.append(f"{time.strftime('%X')} as {who}: {kind} {reference.name}: {words}")
        return True


def started(rita: Researcher, kinds: Sequence[str], number: int, *, closely: bool) -> Walk | None:
    """A new object; None if it is refused."""
    name, draw = f"x{number:05}", Random(f"{SEED} {number}")  # noqa: S311 - repeatable
    kind, made = drawn(draw, name, kinds)
    try:
        rita.submit(made)
    except ApiError:
        return None
    return Walk(name, kind, draw, made, time.monotonic() + 2 * REST, closely)


def walked(
    rita: Researcher,
    people: dict[str, Cluster],
    kinds: Sequence[str] = (*AROUND, GANG),
    attempts: int = ATTEMPTS,
    lasting: float = SECOND,
) -> Iterator[str]:
    """Objects with GPUs that no queue counts for a second, each with its changes."""
    walks: dict[str, Walk] = {}
    since: dict[str, float] = {}
    tried = number = 0
    state = read(rita.cluster, KINDS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while tried < attempts:
            live, now = Live(rita.cluster, state), time.monotonic()
            found = {name: walk.seen or live.uncounted(walk) for name, walk in walks.items()}
            since = {name: since.get(name, now) for name in found if found[name]}
            allowed = {name: LATE if walks[name].kind == GANG else lasting for name in since}
            over = [name for name, start in since.items() if now - start >= allowed[name]]
            for name in over:
                title = f"{found[name]}\nafter {tried} attempts of seed {SEED}"
                yield "\n".join((title, json.dumps(walks[name].made), *walks[name].history))
            rested = [walk for name, walk in walks.items() if walk.rests < now and name not in since]
            gone = [walks.pop(name) for name in over] + [walks.pop(one.name) for one in rested if one.is_over(live)]
            going = [one for one in rested if one.name in walks]
            tried += sum(pool.map(partial(Walk.attempts, live=live, people=people), going))
            missing = range(number, number + AT_ONCE - len(walks))
            number = missing.stop
            made = pool.map(partial(started, rita, kinds, closely=not lasting), missing)
            walks |= {walk.name: walk for walk in made if walk}
            list(pool.map(live.remove, [walk.name for walk in gone], [walk.kinds for walk in gone]))


def test_no_change_binds_more_gpus_than_kueue_counts(researcher: Researcher, people: dict[str, Cluster]) -> None:
    found = [*walked(researcher, people)]
    Live(researcher.cluster, State()).remove("x0", API)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("way", WAYS)
def test_changes_find_a_known_way_without_its_rule(
    researcher: Researcher, people: dict[str, Cluster], way: str
) -> None:
    kinds, rules, field, lasting = WAYS[way]
    with ExitStack() as removed:
        for policy, rule in rules:
            removed.enter_context(weakened(researcher.cluster, policy, rule))
        found = next((one for one in walked(researcher, people, kinds, KNOWN, lasting) if field in one), "")
        Live(researcher.cluster, State()).remove("x0", API)
    assert found, f"no breach in {KNOWN} attempts of seed {SEED}"
