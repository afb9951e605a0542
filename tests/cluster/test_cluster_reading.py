"""Kubeconfigs and reads of a cluster, and its snapshot for the simulation."""

from pathlib import Path

import pytest
from builders import GPU
from live_builders import Data, came, cluster_queue, cohort, condition, counted, flavor, local_queue, meta, state, waits

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.terminal import Place
from gpu_tenancy.cluster.contexts import connect, kubeconfig, uses_embedded
from gpu_tenancy.cluster.demand import belongs
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import with_devices
from gpu_tenancy.cluster.snapshot import Participant, Snapshot, take_snapshot
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kueue import FAIR, Cohort, Fungibility, Fungible, Preference


def played(*found: Data, **objects: list[Data]) -> Snapshot:
    queues = [local_queue("research"), local_queue("speech")]
    live = {"ClusterQueue": counted(list(found)), "Cohort": [], "LocalQueue": queues, "Workload": [*found], **objects}
    return take_snapshot(Queues(state(**live)), "research")


def participants(made: Snapshot) -> dict[str, Participant]:
    return {each.workload.name: each for each in made.participants}


# Who takes part.


def test_workloads_are_ordered_by_creation_with_their_usage() -> None:
    made = played(came("b", "speech", 4, 3), waits("a", day=2), came("c", "research", 8, 1))
    assert [each.workload.name for each in made.participants] == ["research/c", "research/a", "speech/b"]
    there = participants(made)
    assert there["research/a"].flavors is None
    assert there["research/c"].flavors == ({"nvidia.com/gpu": "a100"},)
    assert (there["speech/b"].since, there["research/c"].since) == (-1, -1 - 2 * 24 * 3600)
    assert {name: each.queue for name, each in ((n, a.workload) for n, a in there.items())} == {
        "research/c": "research",
        "research/a": "research",
        "speech/b": "speech",
    }


GATE = {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
PENDING = waits("a")["status"]["conditions"]


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("spec", {"active": False}),
        ("status", {"requeueState": {"count": 1, "requeueAt": "2026-02-01T00:00:00Z"}}),
        ("status", {"conditions": [*PENDING, condition("Requeued", "False", "PodsReadyTimeout", "later")]}),
        ("metadata", {"annotations": GATE}),
        ("status", {"conditions": [condition("QuotaReserved", "False", "OnHold", "not yet")]}),
    ],
    ids=["inactive", "in backoff", "not requeued", "gated", "on hold"],
)
def test_workloads_that_kueue_ignores_are_not_simulated(part: str, fields: Data) -> None:
    there = waits("a")
    assert set(participants(played(there))) == {"research/a"}
    there[part] |= fields
    assert not participants(played(there))


def evicted(reason: str) -> Data:
    return condition("Evicted", "True", reason, "x")


def test_preempted_workloads_are_leaving_evicted_are_gone() -> None:
    preempted, timed_out = came("a", "research", 4), came("b", "research", 4)
    preempted["status"]["conditions"].append(evicted("Preempted"))
    timed_out["status"]["conditions"].append(evicted("PodsReadyTimeout"))
    there = participants(played(preempted, timed_out))
    assert {name: each.leaving for name, each in there.items()} == {"research/a": True}


def stop(policy: str, *found: Data) -> list[Data]:
    there = counted(list(found))
    there[1]["spec"]["stopPolicy"] = policy
    return there


def checked(found: Data) -> Data:
    found["status"]["conditions"][1] = condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "x")
    return found


@pytest.mark.parametrize(
    ("policy", "part"),
    [("None", (True, True, False)), ("Hold", (True, False, True)), ("HoldAndDrain", (False, False, False))],
)
def test_a_stopped_queue_keeps_running_workloads_unless_drained(policy: str, part: tuple[bool, bool, bool]) -> None:
    found = came("runs", "speech", 4), checked(came("checked", "speech", 4)), waits("waits", "speech")
    there = participants(played(*found, ClusterQueue=stop(policy, *found)))
    runs = there.get("speech/runs")
    assert (runs is not None, "speech/waits" in there, runs is not None and runs.fixed) == part
    assert ("speech/checked" in there) == (policy == "None")


@pytest.mark.parametrize(("policy", "there"), [("None", ["runs", "waits"]), ("Hold", ["runs"]), ("HoldAndDrain", [])])
def test_a_stopped_local_queue_blocks_admission(policy: str, there: list[str]) -> None:
    own = local_queue("research")
    own["spec"]["stopPolicy"] = policy
    made = played(came("runs", "research"), waits("waits"), LocalQueue=[own, local_queue("speech")])
    assert [each.workload.name.removeprefix("research/") for each in made.participants] == there


def test_an_inactive_queue_is_as_if_held() -> None:
    found = came("runs", "speech"), waits("waits", "speech")
    there = counted(list(found))
    there[1]["status"]["conditions"] = [{"type": "Active", "status": "False", "message": "a flavor is missing"}]
    made = played(*found, ClusterQueue=there)
    assert {name: each.fixed for name, each in participants(made).items()} == {"speech/runs": True}


def test_a_workload_of_an_unselected_namespace_blocks_no_other() -> None:
    found = waits("a"), waits("b", "speech")
    there = counted(list(found))
    there[1]["spec"]["namespaceSelector"] = {"matchLabels": {"kueue": "yes"}}
    spaces = [{"metadata": meta(name, labels={})} for name in ("research", "speech")]
    assert set(participants(played(*found, ClusterQueue=there, Namespace=spaces))) == {"research/a"}


def test_usage_stays_with_the_admitting_cluster_queue() -> None:
    there = came("a", "research")
    made = played(there, LocalQueue=[local_queue("research", "speech"), local_queue("speech")])
    assert [each.workload.queue for each in made.participants] == ["research"]


def test_reclaimed_pods_use_no_quota() -> None:
    there = came("a", "research", 4)
    assigned = there["status"]["admission"]["podSetAssignments"][0]
    assigned |= {"count": 2, "resourceUsage": {"nvidia.com/gpu": "8"}}
    there["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    (participant,) = played(there, ClusterQueue=[cluster_queue("research", "org", used=4)]).participants
    assert [(each.count, dict(each.requests)) for each in participant.workload.pod_sets] == [(1, {"nvidia.com/gpu": 4})]


def test_other_trees_are_left_out() -> None:
    found = came("a", "research"), came("b", "speech")
    there = counted(list(found))
    there[1]["spec"]["cohortName"] = "elsewhere"
    made = played(*found, ClusterQueue=there, Cohort=[cohort("org", "all"), cohort("far")])
    assert [each.name for each in made.tenancy.queues] == ["research"]
    assert made.tenancy.cohorts == (Cohort("org", "all"),)
    assert set(participants(made)) == {"research/a"}


# By which rules.


def test_flavor_fungibility_of_a_queue_is_read() -> None:
    (own, other) = counted([])
    own["spec"]["flavorFungibility"] = {
        "whenCanBorrow": "TryNextFlavor",
        "whenCanPreempt": "MayStopSearch",
        "preference": "PreemptionOverBorrowing",
    }
    made = played(ClusterQueue=[own, other]).tenancy.queues
    assert made[0].fungibility == Fungibility(Fungible.NEXT, Fungible.STOP, Preference.PREEMPT)
    assert made[1].fungibility == Fungibility()


def test_resource_groups_stay_as_written() -> None:
    (own, other) = counted([])
    line = {"name": "example.com/license", "nominalQuota": "3"}
    own["spec"]["resourceGroups"] += [
        {"coveredResources": ["example.com/license"], "flavors": [{"name": "site", "resources": [line]}]},
        {
            "coveredResources": ["cpu"],
            "flavors": [
                {"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]} for name in ("spot", "reserved")
            ],
        },
    ]
    (made, _) = played(ClusterQueue=[own, other], ResourceFlavor=[flavor()]).tenancy.queues
    assert [[each.flavor for each in group.flavors] for group in made.groups] == [
        ["a100"],
        ["site"],
        ["spot", "reserved"],
    ]
    assert made.groups[2].flavors[0].resources["cpu"].nominal == 1000


@pytest.mark.parametrize(
    ("status", "weight", "looked", "fair"),
    [(True, None, True, True), (False, "2", True, False), (False, "2", False, True), (False, None, False, False)],
)
def test_fair_sharing_follows_shares_or_a_weight(*, status: bool, weight: str | None, looked: bool, fair: bool) -> None:
    (own, other) = counted([])
    if not looked:
        for each in (own, other):
            each["status"] = {"flavorsReservation": each["status"]["flavorsReservation"]}
    if status:
        own["status"]["fairSharing"] = {"weightedShare": 0}
    if weight:
        own["spec"]["fairSharing"] = {"weight": weight}
    made = scene_of([own, other])
    assert made.tenancy.fair_sharing == (FAIR if fair else None)
    assert made.tenancy.queues[0].weight == (float(weight) if weight else None)


def scene_of(there: list[Data]) -> Snapshot:
    for each in there:
        each["status"]["flavorsReservation"] = [
            {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "total": "0"}]}
        ]
    return played(ClusterQueue=there)


# GPUs of DRA drivers as resources of nodes.


DRIVER = "gpu.nvidia.com"
NVIDIAS = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
NODE: Manifest = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}


def device_class(expression: str = NVIDIAS, resource: str | None = GPU) -> Manifest:
    named: dict[str, Json] = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": DRIVER}, "spec": {**named, "selectors": [{"cel": {"expression": expression}}]}}


def slice_of(*kinds: str, node: str = "n", driver: str = DRIVER) -> Manifest:
    devices: list[Json] = [
        {"name": f"{kind}-{number}", "attributes": {"type": {"string": kind}}} for number, kind in enumerate(kinds)
    ]
    return {"spec": {"driver": driver, "nodeName": node, "devices": devices}}


def devices_counted(classes: list[Manifest], slices: list[Manifest]) -> Json:
    (node,) = with_devices([NODE], classes, slices)
    status = node["status"]
    assert isinstance(status, dict)
    return status["allocatable"]


def test_counts_whole_gpus_of_all_slices() -> None:
    slices = [slice_of("gpu", "gpu", "mig"), slice_of("gpu")]
    assert devices_counted([device_class()], slices) == {"cpu": "8", GPU: "3"}


def test_devices_of_other_nodes_and_drivers_do_not_count() -> None:
    slices = [slice_of("gpu", node="other"), slice_of("gpu", driver="gpu.example.com")]
    assert devices_counted([device_class()], slices) == {"cpu": "8"}


def test_unrelated_device_classes_have_no_effect() -> None:
    for one in (device_class(resource=None), device_class("device.attributes['x'].fast")):
        assert devices_counted([one], [slice_of("gpu")]) == {"cpu": "8"}


# Which kubeconfig is meant.


def a_file(folder: Path, name: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    return file


def test_it_is_found_as_kubectl_finds_it(tmp_path: Path) -> None:
    usual = a_file(tmp_path, ".kube/config")
    one, other = a_file(tmp_path, "one"), a_file(tmp_path, "other")
    home = {"HOME": str(tmp_path)}
    assert kubeconfig(None, home) == usual
    assert kubeconfig(None, {**home, "KUBECONFIG": f"{one}:{tmp_path / 'gone'}:{other}"}) == Path(f"{one}:{other}")
    assert kubeconfig(one, {**home, "KUBECONFIG": str(other)}) == one


def test_a_missing_kubeconfig_lists_the_places_searched(tmp_path: Path) -> None:
    with pytest.raises(
        ConsoleError, match=f"no kubeconfig found: {tmp_path}/.kube/config does not exist; set --kubeconfig"
    ):
        kubeconfig(None, {"HOME": str(tmp_path)})
    a_file(tmp_path, ".kube/config")
    with pytest.raises(ConsoleError, match="no kubeconfig found: KUBECONFIG is /no/where; set --kubeconfig"):
        kubeconfig(None, {"HOME": str(tmp_path), "KUBECONFIG": "/no/where"})
    with pytest.raises(ConsoleError, match="kubeconfig /no/where not found; set --kubeconfig"):
        kubeconfig(Path("/no/where"), {})
    with pytest.raises(ConsoleError, match=f"kubeconfig {tmp_path} is not a file; set --kubeconfig"):
        kubeconfig(tmp_path, {})


def test_uses_embedded_platform_without_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = {"HOME": str(tmp_path / "home")}
    assert not uses_embedded(home)
    a_file(tmp_path, "state/gpu-tenancy/embedded/kubeconfig")
    assert uses_embedded(home)
    assert not uses_embedded({**home, "KUBECONFIG": "/no/where"})
    a_file(tmp_path, "home/.kube/config")
    assert not uses_embedded(home)


def test_embedded_excludes_another_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(
        ConsoleError, match="--embedded cannot be combined with --kubeconfig or --context; remove one of them"
    ):
        connect(Place(a_file(tmp_path, "one"), embedded=True))


@pytest.mark.parametrize(("status", "own"), [("active", True), ("pending", True), ("", False)])
def test_pods_of_both_clusters_of_a_ray_service(status: str, own: bool) -> None:  # noqa: FBT001 - a column
    """Of the cluster that serves and of the one that starts; neither is known at first."""
    found: Json = {f"{status}ServiceStatus": {"rayClusterName": "chat-abcde"}} if status else {}
    service: Manifest = {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat"}, "status": found}
    assert belongs({"metadata": {"uid": "uid-1", "labels": {"ray.io/cluster": "chat-abcde"}}}, service) == own
