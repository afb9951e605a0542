"""Holds of teams, flavors and pools: discovery, prompts, changes and restoration, and output of `why` and `usage`."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from live_builders import Data, cluster_queue, flavor, job, local_queue, node, only_gpus, workload

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.explain.usage import measure
from gpu_tenancy.explain.why import why
from gpu_tenancy.maintenance.holding import Subject, ending, find, moment, releasing
from gpu_tenancy.model.names import HOLD

END = datetime(2026, 11, 24, 20, 0, tzinfo=UTC)
JOB = only_gpus(job())


def state(**objects: list[Data]) -> State:
    found: Any = {
        "ClusterQueue": [cluster_queue("research")],
        "LocalQueue": [local_queue("research")],
        "ResourceFlavor": [flavor()],
        "Node": [node()],
        "Workload": [workload(JOB), workload(only_gpus(job("runs")), admitted=True)],
        **objects,
    }
    return State({kind: tuple(items) for kind, items in found.items()})


def held(subject: Subject, **options: Any) -> tuple[Hold, Data]:
    hold = subject.held_by("ada", END, **{"drain": False, **options})
    changed: Any = json.loads(json.dumps(subject.manifest))
    changed["kind"] = subject.kind
    changed["spec"][hold.path[1]] = hold.after
    changed["metadata"]["annotations"] = {HOLD: hold.annotation}
    return hold, changed


def patched(manifest: Data, operations: list[Any]) -> Data:
    """A JSON patch applied by RFC 6902, limited to the operations of holds."""
    found: Any = json.loads(json.dumps(manifest))
    for operation in operations:
        *way, last = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
        place = found
        for part in way:
            place = place[part]
        match operation["op"]:
            case "test":
                assert place[last] == operation["value"]
            case "remove":
                del place[last]
            case _:
                place[last] = operation["value"]
    return found


@pytest.mark.parametrize("name", ["research", "a100"])
@pytest.mark.parametrize("before", [None, "None"])
def test_a_release_restores_what_was_there(name: str, before: str | None) -> None:
    queue, plain = cluster_queue("research"), flavor()
    if before:
        queue["spec"]["stopPolicy"] = before
    else:
        del plain["spec"]["nodeTaints"]
    subject = find(state(ClusterQueue=[queue], ResourceFlavor=[plain]), name)
    hold, changed = held(subject)
    assert Hold.of(changed) == hold
    restored = patched(changed, releasing(hold))
    assert restored["spec"] == subject.manifest["spec"]
    assert restored["metadata"]["annotations"] == {}


def test_what_others_changed_since_is_not_overwritten() -> None:
    hold, changed = held(find(state(), "a100"))
    changed["spec"]["nodeTaints"] = []
    with pytest.raises(AssertionError):
        patched(changed, releasing(hold))


def test_the_question_names_who_waits_and_who_is_evicted() -> None:
    one = "1 workload, 1 pod, 8 nvidia.com/gpu: research/"
    for name in ("research", "a100", "ResourceFlavor/a100"):
        lines = [*find(state(), name).consequences(drain=True)]
        assert lines == [
            f"pending, not admitted while it is held: {one}train (8 nvidia.com/gpu)",
            f"running, evicted and pending again: {one}runs (8 nvidia.com/gpu)",
        ]
    assert "not interrupted" in [*find(state(), "research").consequences(drain=False)][1]


def test_a_pool_is_held_by_its_flavor_unless_it_shares_it() -> None:
    pool = node("n1", model="a100", pool="big")
    subject = find(state(Node=[pool]), "big")
    assert (subject.kind, subject.name) == ("ResourceFlavor", "a100")
    with pytest.raises(ConsoleError, match=r"big: Kueue holds whole flavors only.*a100; .*kubectl cordon -l pool=big"):
        find(state(Node=[pool, node("n2", model="a100", pool="small")]), "big")


def test_names_that_fit_nothing_or_several_objects_are_refused() -> None:
    with pytest.raises(ConsoleError, match=r"researhc: no team, flavor or pool has this name; .*research"):
        find(state(), "researhc")
    both = state(ResourceFlavor=[flavor("research")])
    with pytest.raises(ConsoleError, match="several objects match; specify ClusterQueue/research or ResourceFlavor/"):
        find(both, "research")
    assert find(both, "resourceflavor/research").kind == "ResourceFlavor"


def test_what_is_held_is_not_held_again() -> None:
    _, changed = held(find(state(), "a100"))
    with pytest.raises(
        ConsoleError, match=r"already held by ada since .* until 2026-11-24 20:00 UTC; release it first"
    ):
        find(state(ResourceFlavor=[changed]), "a100").held_by("bob", None, drain=False)


@pytest.mark.parametrize(("name", "kind"), [("research", "ClusterQueue"), ("a100", "ResourceFlavor")])
def test_why_and_usage_say_who_holds_and_until_when(name: str, kind: str) -> None:
    hold, changed = held(find(state(), name))
    found = state(**{kind: [changed]})
    answer = why(target_of(JOB, found), found)
    shown = "ClusterQueue research" if kind == "ClusterQueue" else "flavor a100"
    assert answer.reason == f"{shown} is {hold.text}"
    assert answer.fix == f"wait until then, or ask the platform team for `tenancy cluster release {name}`"
    usage = measure(found)
    assert usage.remarks[0] == f"{kind} {name} is {hold.text}"
    assert [(row.flavor, row.waiting) for row in usage.rows] == [("a100", 8)]


@pytest.mark.parametrize("written", ["", "null", "[]", "{}", '{"by": "ada", "since": "yesterday", "until": ""}'])
def test_an_annotation_of_others_is_no_hold(written: str) -> None:
    assert Hold.of({"metadata": {"annotations": {HOLD: written}}}) is None


def test_its_end_is_a_minute_that_a_cronjob_can_have() -> None:
    now = datetime(2026, 11, 24, 18, 0, 30, tzinfo=UTC)
    assert moment("90m", now) == moment("1.5h", now) == datetime(2026, 11, 24, 19, 31, tzinfo=UTC)
    assert moment("2026-11-24T21:00+01:00", now) == moment("2026-11-24T20:00", now) == END
    for wrong in ("soon", "2026-11-24T17:00Z", "400d", "9" * 30 + "d"):
        with pytest.raises(ConsoleError, match="--until"):
            moment(wrong, now)


def test_what_ends_it_may_change_this_object_alone() -> None:
    hold, changed = held(find(state(), "a100"))
    binding, role, _, cron = (json.loads(json.dumps(item)) for item in ending(hold, "kueue-system"))
    named = {(rule["resources"][0], *rule["resourceNames"], *rule["verbs"]) for rule in role["rules"]}
    assert named == {
        ("resourceflavors", "a100", "get", "patch"),
        ("clusterrolebindings", binding["metadata"]["name"], "get", "delete"),
    }
    assert (cron["spec"]["schedule"], cron["spec"]["timeZone"]) == ("0 20 24 11 *", "Etc/UTC")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    patch = pod["initContainers"][0]["args"][-1].removeprefix("--patch=")
    assert patched(changed, json.loads(patch))["spec"] == flavor()["spec"]
