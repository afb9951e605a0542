"""Amounts, quotas, queues, nodes and gangs: their free capacity."""

from collections.abc import Sequence
from typing import Any

import pytest
from live_builders import GPU, Data, cluster_queue, cohort, flavor, node, pod, pod_spec

from gpu_tenancy import kueue
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.quantity import amount, amount_text
from gpu_tenancy.cluster.budgets import judge_quota, with_defaults
from gpu_tenancy.cluster.cluster_queues import quotas_of, read_cluster_queue, read_cohort
from gpu_tenancy.cluster.gangs import EXISTING, gang_queues, judge_gang, too_few
from gpu_tenancy.cluster.nodes import judge_nodes, read_nodes, suits_node, untolerated
from gpu_tenancy.cluster.pods import requests
from gpu_tenancy.cluster.queueing import Offer, QuotaRequest, Refusal, Source, judge_queue
from gpu_tenancy.cluster.workloads import PodSet
from gpu_tenancy.kueue import (
    BorrowWithinCohort,
    FlavorQuotas,
    Policy,
    Preemption,
    Quota,
    Quotas,
    ResourceGroup,
    Tenancy,
)

# Amounts.


@pytest.mark.parametrize(
    ("resource", "written", "expected", "shown"),
    [
        ("cpu", "500m", 500, "500m"),
        ("cpu", 8, 8000, "8"),
        ("requests.cpu", "587500m", 587500, "587.5"),
        ("cpu", "100u", 1, "1m"),
        ("memory", "4Gi", 4 * 2**30, "4Gi"),
        ("limits.memory", "1500Mi", 1500 * 2**20, "1.5Gi"),
        ("memory", "12e6", 12_000_000, "12M"),
        (GPU, "2k", 2000, "2000"),
        (GPU, 0, 0, "0"),
    ],
)
def test_a_quantity_is_read_and_shown(resource: str, written: Any, expected: int, shown: str) -> None:
    assert amount(resource, written) == expected
    assert amount_text(resource, expected) == shown


@pytest.mark.parametrize("written", ["eight", "", "1/2", "4Gx"])
def test_an_invalid_quantity_is_refused(written: str) -> None:
    with pytest.raises(ConsoleError, match="is not a valid quantity; set one such as 500m, 8 or 32Gi"):
        amount("cpu", written)


def test_pod_requests_add_sidecars_and_the_largest_init() -> None:
    def container(cpu: int, **more: Any) -> Data:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec: Data = {"containers": [container(1), container(1)]}
    assert requests(spec) == {"cpu": 2000}
    spec["initContainers"] = [container(1, restartPolicy="Always"), container(4)]
    assert requests(spec) == {"cpu": 5000}
    spec["initContainers"][1] = container(1)
    assert requests(spec) == {"cpu": 3000}
    assert requests({**spec, "initContainers": [container(4, restartPolicy="Always")]}) == {"cpu": 6000}
    assert requests({**spec, "overhead": {"cpu": "250m"}}) == {"cpu": 3250}
    assert requests({**spec, "resources": {"requests": {"cpu": 7}}}) == {"cpu": 7000}


# Container defaults.


def limit_range(**rule: Any) -> Data:
    return {"metadata": {"name": "containers"}, "spec": {"limits": [{"type": "Container", **rule}]}}


def bare(**resources: Any) -> Data:
    return {"containers": [{"name": "main", "resources": resources}]}


def test_limit_range_defaults_apply_to_unset_resources() -> None:
    rules = limit_range(default={"cpu": "2", GPU: "0"}, defaultRequest={"cpu": "1", GPU: "0"})
    spec, texts = with_defaults([rules], bare(limits={"memory": "4Gi"}))
    assert texts == ("container main: requests cpu 1 and limits cpu 2",)
    assert requests(spec) == {"memory": 4 * 2**30, "cpu": 1000, GPU: 0}


def test_limit_without_request_precedes_defaults() -> None:
    spec, texts = with_defaults([limit_range(defaultRequest={"cpu": "1"})], bare(limits={"cpu": 4}))
    assert texts == ()
    assert requests(spec) == {"cpu": 4000}


def test_a_range_of_whole_pods_sets_no_defaults() -> None:
    rules: Data = {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "3"}}]}}
    assert with_defaults([rules], bare(limits={"cpu": 2}))[1] == ()


# Quotas.


def quota(hard: Data, used: Data | None = None, **spec: Any) -> Data:
    return {
        "metadata": {"name": "budget"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


GPUS = f"requests.{GPU}"
RAISE = "ask the platform team to raise the quota"


@pytest.mark.parametrize(
    ("hard", "used", "verdict", "words"),
    [
        ({GPUS: "16"}, "0", "now", [f"{GPUS} 16 requested, 16 of 16 free"]),
        ({GPUS: "16"}, "4", "later", [f"{GPUS} 16 requested, 4 of 16 used; 4 must be released first"]),
        ({GPUS: "15", "pods": "1"}, "0", "never",
         [f"{GPUS} 16 requested, exceeds the quota of 15; request at most 15, or {RAISE}",
         f"pods 2 requested, exceeds the quota of 1; request at most 1, or {RAISE}"]),
    ],
)  # fmt: skip
def test_a_quota_has_room_now_later_or_never(hard: Data, used: str, verdict: str, words: list[str]) -> None:
    found = judge_quota([quota(hard, {GPUS: used})], [(pod_spec(8), 2)], "")
    assert (found.verdict, found.lines) == (verdict, tuple(f"ResourceQuota budget: {text}" for text in words))


@pytest.mark.parametrize(
    ("operator", "own", "default", "counted"),
    [
        ("In", "high", "", True),
        ("In", "low", "", False),
        ("In", "", "high", True),
        ("NotIn", "low", "", True),
        ("NotIn", "", "", True),
    ],
)
def test_a_quota_counts_the_pods_of_its_classes(operator: str, own: str, default: str, *, counted: bool) -> None:
    rule = {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}
    scoped = quota({"pods": "0"}, scopeSelector={"matchExpressions": [rule]})
    found = judge_quota([scoped], [({**pod_spec(), **({"priorityClassName": own} if own else {})}, 1)], default)
    assert found.verdict == ("never" if counted else "now")
    if not counted:
        assert found.lines == ("no ResourceQuota of the namespace applies to these pods",)


# The queue.


def offers(
    sets: Sequence[PodSet], *manifests: Data, cohorts: tuple[Data, ...] = (), flavors: Sequence[Data] | None = None
) -> list[Offer]:
    """The offers of the first queue."""
    queues = [read_cluster_queue(manifest) for manifest in manifests]
    tenancy = Tenancy(tuple(queue.spec for queue in queues), tuple(read_cohort(cohort) for cohort in cohorts))
    given = [flavor()] if flavors is None else flavors
    return judge_queue(quotas_of(tenancy, queues), queues[0].spec, given, sets)


def ask(count: int, gpus: int, *queues: Data, cohorts: tuple[Data, ...] = (), spec: Data | None = None) -> Offer:
    """The first queue's offer to some pods."""
    pods = PodSet("main", count, {GPU: gpus}, spec or pod_spec(gpus))
    (offer,) = offers([pods], *queues, cohorts=cohorts)
    return offer


@pytest.mark.parametrize(
    ("queues", "root", "source", "words"),
    [
        ((cluster_queue("a", used=0), ), 0, Source.NOMINAL, "fits now (guaranteed 8, unused 8)"),
        ((cluster_queue("a", "org", used=4, borrowingLimit=24), ), 24, Source.BORROWED,
         "fits now by borrowing 4 (guaranteed 8, unused 4; 28 available in total)"),
        ((cluster_queue("a", "org", used=0), cluster_queue("b", "org", used=12)), 0, Source.RECLAIMED,
         "fits after reclaiming 4 that other queues borrowed (guaranteed 8, unused 8)"),
        ((cluster_queue("a", "org", used=8), cluster_queue("b", "org", used=4)), 0, Source.OTHERS,
         "fits when other queues release 4 (guaranteed 8, unused 0; limit 16, used 8)"),
        ((cluster_queue("a", used=4), ), 0, Source.OWN_QUEUE,
         "fits when workloads of its own queue end (guaranteed 8, unused 4; limit 8, used 4)"),
        ((cluster_queue("a", nominalQuota=7), ), 0, Source.NEVER, "exceeds the limit of 7"),
    ],
)  # fmt: skip
def test_the_source_of_quota_is_shown(queues: tuple[Data, ...], root: int, source: Source, words: str) -> None:
    cohorts = (cohort("org", nominal=root),) if root else ()
    offer = ask(1, 8, *queues, cohorts=cohorts)
    text = f"a100 nvidia.com/gpu: 8 requested, {words}"
    assert (offer.source, [request.text for request in offer.requests]) == (source, [text])


def test_a_queue_that_does_not_reclaim_waits_for_others() -> None:
    queue = cluster_queue("a", "org")
    queue["spec"]["preemption"]["reclaimWithinCohort"] = "Never"
    assert ask(1, 8, queue, cluster_queue("b", "org", used=12)).source is Source.OTHERS


def test_borrowing_one_resource_preempts_no_other_resource() -> None:
    """Seen on Kueue 0.19.2: with 5 GPUs guaranteed and lent out, 5 GPUs with 15 of 12 guaranteed CPUs stay pending."""
    line, beyond = ("a100", GPU), ("a100", "cpu")

    def queue(name: str, gpus: Quota, cpus: Quota, preemption: Preemption) -> kueue.ClusterQueue:
        group = ResourceGroup((FlavorQuotas("a100", {GPU: gpus, "cpu": cpus}),))
        return kueue.ClusterQueue(name, (group,), "org", preemption=preemption)

    def sources(cpu: int, *, borrow: BorrowWithinCohort | None = None) -> list[Source]:
        own = queue("a", Quota(5, 10), Quota(12_000, 12_000), Preemption(reclaim=Policy.ANY, borrow=borrow))
        other = queue("b", Quota(3), Quota(12_000), Preemption())
        quotas = Quotas(Tenancy((own, other)), {"b": {line: 8, beyond: 0}})
        (offer,) = judge_queue(quotas, own, [], [PodSet("main", 5, {GPU: 1, "cpu": cpu}, {})])
        return [request.source for request in offer.requests]

    assert sources(2400) == [Source.RECLAIMED, Source.NOMINAL]
    assert sources(3000) == [Source.OTHERS, Source.BORROWED]
    assert sources(3000, borrow=BorrowWithinCohort()) == [Source.RECLAIMED, Source.BORROWED]


def test_pod_sets_share_free_nodes() -> None:
    sets = [PodSet(name, 1, {GPU: 5}, pod_spec(5)) for name in ("master", "worker")]
    first, second = offers(sets, cluster_queue("a"))
    assert (first.source, second.source) == (Source.NOMINAL, Source.NEVER)
    assert second.requests[0].text == "a100 nvidia.com/gpu: 10 requested, exceeds the limit of 8"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tolerations": []}, "flavor a100: the pod does not tolerate the taint nvidia.com/gpu=present:NoSchedule"),
        ({"nodeSelector": {"model": "h100"}}, "flavor a100: does not match the pod's node selector or affinity"),
    ],
)
def test_a_flavor_that_does_not_match_is_reported(change: Data, words: str) -> None:
    offer = ask(1, 8, cluster_queue("a"), spec={**pod_spec(), **change})
    assert (offer.source, offer.requests) == (Source.NEVER, ())
    assert [refusal.text for refusal in offer.refused] == [words]


def test_a_label_that_no_flavor_knows_is_left_to_the_nodes() -> None:
    assert ask(1, 8, cluster_queue("a"), spec=pod_spec(nodeSelector={"zone": "b"})).source is Source.NOMINAL


def test_a_resource_in_no_flavor_is_never_admitted() -> None:
    (offer,) = offers([PodSet("main", 1, {GPU: 1, "example.com/nic": 1}, pod_spec(1))], cluster_queue("a"))
    never = "no flavor of queue a covers example.com/nic, so Kueue never admits the workload"
    assert (offer.source, offer.refused) == (Source.NEVER, (Refusal(never, decisive=True),))


def test_takes_first_fitting_flavor_else_the_larger() -> None:
    two: Any = cluster_queue("a", "org", nominalQuota=0)
    lines = two["spec"]["resourceGroups"][0]["flavors"]
    lines.append({"name": "b100", "resources": [{"name": GPU, "nominalQuota": "8"}]})
    flavors = [flavor(), flavor("b100")]
    anywhere = pod_spec(nodeSelector={})

    def request(count: int, *, root: int) -> QuotaRequest:
        pods = PodSet("m", count, {GPU: 8}, anywhere)
        return offers([pods], two, cohorts=(cohort("org", nominal=root),), flavors=flavors)[0].requests[0]

    assert request(1, root=8).flavor == "a100"  # By borrowing, before one with room of its own.
    assert request(1, root=0).flavor == "b100"
    assert request(4, root=4).text == "b100 nvidia.com/gpu: 32 requested, exceeds the limit of 8"


# Nodes.


def places(
    nodes: list[Data], pods: list[Data], count: int = 1, gpus: int = 8, **change: Any
) -> tuple[str, tuple[str, ...]]:
    spec = {**pod_spec(gpus), **change}
    answer, _ = judge_nodes(read_nodes(nodes, pods), PodSet("main", count, requests(spec), spec), [flavor()])
    return answer.verdict, answer.lines


RUNNING = [pod("a", on="n1", gpus=3), pod("b", on="n2"), pod("c", on="n2", phase="Succeeded")]


@pytest.mark.parametrize(
    ("nodes", "pods", "count", "verdict", "words"),
    [
        ([node("n1"), node("n2")], [], 1, "now", ["2 suitable nodes, room for 2 such pods now and 2 when empty"]),
        ([node("n1"), node("n2")], RUNNING, 2, "later",
         ["2 suitable nodes, no room for such a pod now, for 2 when empty",
          "free nvidia.com/gpu: 0 on 1 node, 5 on 1 node"]),
        ([node(gpus=4)], [], 1, "never",
         [("a pod requests 8 nvidia.com/gpu, but the largest of 1 suitable node has 4 nvidia.com/gpu;"
           " request less in each of more pods")]),
        ([node()], [], 3, "later",
         ["1 suitable node, room for 1 such pod now and 1 when empty; the autoscaler must add nodes"]),
        ([node(model="l4")], [], 1, "later", ["no node of flavor a100 exists yet; the autoscaler must add one"]),
    ],
    ids=["room", "full", "a larger pod", "more pods", "no node of the flavor"],
)  # fmt: skip
def test_nodes_have_room_now_later_or_never(
    nodes: list[Data], pods: list[Data], count: int, verdict: str, words: list[str]
) -> None:
    found, lines = places(nodes, pods, count)
    assert (found, list(lines[: len(words)])) == (verdict, words)


def test_a_resource_of_no_node_is_named_without_more_pods() -> None:
    efa = "vpc.amazonaws.com/efa"
    spec = pod_spec(8)
    spec["containers"][0]["resources"]["limits"] |= {efa: 4}
    answer, _ = judge_nodes(read_nodes([node()], []), PodSet("main", 1, requests(spec), spec), [flavor()])
    line = f"1 suitable node, none with {efa}; request none, or ask the platform team for such nodes"
    assert (answer.verdict, answer.lines) == ("never", (line,))


def test_taints_and_closed_nodes_are_counted() -> None:
    closed = node("n3")
    closed["spec"]["unschedulable"] = True
    assert places([node("n1"), node("n2"), closed], [], tolerations=[]) == (
        "never",
        (
            (
                "matching nodes do not accept the pod: 2 nodes with taint nvidia.com/gpu=present:NoSchedule,"
                " which it does not tolerate; 1 unschedulable node"
            ),
        ),
    )
    assert places([closed], [])[0] == "later"


def test_a_label_without_nodes_lists_existing_values() -> None:
    assert places([node(), node("n2", model="a100", zone="b")], [], nodeSelector={"zone": "a"}) == (
        "never",
        ("no node has the label zone=a; existing values: b",),
    )


@pytest.mark.parametrize(
    ("operator", "values", "taken"),
    [
        ("In", ["a", "b"], True),
        ("NotIn", ["b"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["3"], False),
    ],
)
def test_required_affinity_takes_nodes_by_their_labels(operator: str, values: list[str], *, taken: bool) -> None:
    rule = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    required: Data = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [rule]}}
    assert suits_node({"affinity": {"nodeAffinity": required}}, {"zone": "b"}) is taken


@pytest.mark.parametrize(
    ("toleration", "held"),
    [
        ({"operator": "Exists"}, ""),
        ({"key": "k", "operator": "Exists"}, ""),
        ({"key": "k", "value": "v"}, ""),
        ({"key": "k", "value": "other"}, "k=v:NoSchedule"),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, "k=v:NoSchedule"),
    ],
)
def test_a_toleration_covers_a_taint_or_does_not(toleration: Data, held: str) -> None:
    assert untolerated({"tolerations": [toleration]}, [{"key": "k", "value": "v", "effect": "NoSchedule"}]) == held


# Gangs.


def gang_queue(used: int = 0, **status: Any) -> Data:
    capability = {GPU: "4"}
    return {
        "metadata": {"name": "research-l4"},
        "spec": {"capability": capability, "guarantee": {"resource": capability}},
        "status": {"allocated": {GPU: str(used)}, "state": "Open", **status},
    }


@pytest.mark.parametrize(
    ("queue", "gpus", "verdict", "words"),
    [
        (gang_queue(), 4, "now", "nvidia.com/gpu 4 requested, 4 of 4 free"),
        (gang_queue(1), 4, "later", "nvidia.com/gpu 4 requested, fits when other gangs end (1 of 4 used)"),
        (gang_queue(), 5, "never", "nvidia.com/gpu 5 requested, exceeds the limit of 4"),
        (gang_queue(state="Closed"), 4, "never", "the queue is in state Closed and accepts no gangs"),
    ],
)
def test_volcanos_queue_takes_a_gang_whole(queue: Data, gpus: int, verdict: str, words: str) -> None:
    found = judge_gang(gang_queues([queue], []), "research-l4", [({GPU: 1}, gpus)])
    assert (found.verdict, found.lines) == (verdict, (words,))


def test_gang_needs_quota_for_its_minimum_only() -> None:
    pods = [({GPU: 1}, 8)]
    queues = gang_queues([gang_queue()], [])
    assert judge_gang(queues, "research-l4", pods).verdict == "never"
    assert judge_gang(queues, "research-l4", pods, 2).verdict == "now"


def test_gang_with_fewer_pods_than_its_minimum_never_starts() -> None:
    assert too_few(2, 2) is None
    assert too_few(5, 2) == (
        "5 pods must start together, but it has 2 pods",
        "set minAvailable, or the annotation scheduling.volcano.sh/group-min-member, to at most 2",
    )


def test_gang_in_a_queue_of_volcanos_own_has_no_quota() -> None:
    found = judge_gang([], "default", [({GPU: 1}, 1)])
    assert (found.verdict, "no quota of the team" in found.lines[0]) == ("now", True)


def test_a_gang_in_no_queue_never_starts() -> None:
    found = judge_gang(gang_queues([gang_queue()], []), "research-h100", [({GPU: 1}, 1)])
    assert found.lines == (f"the queue does not exist; {EXISTING}",)


# ClusterQueues of a cluster: what each can use now and at most, who borrows, who lends, and how they are read.


LINE = ("a100", GPU)


def quotas(*manifests: Data, cohorts: tuple[Data, ...] = ()) -> Quotas:
    queues = [read_cluster_queue(manifest) for manifest in manifests]
    specs = tuple(queue.spec for queue in queues)
    return quotas_of(Tenancy(specs, tuple(read_cohort(cohort) for cohort in cohorts)), queues)


OWN = cluster_queue("a", "org")
GROUPS = (cohort("org", nominal=24), cohort("g", "org", nominal=0, borrowingLimit=4))


@pytest.mark.parametrize(
    ("queues", "cohorts", "available", "limit"),
    [
        ([cluster_queue("a", used=3)], (), 5, 8),
        ([cluster_queue("a", used=12)], (), -4, 8),
        ([OWN, cluster_queue("b", "org")], (), 16, 16),
        ([OWN, cluster_queue("b", "org", lendingLimit=0)], (), 8, 8),
        ([OWN, cluster_queue("b", "org", lendingLimit=3)], (), 11, 11),
        ([cluster_queue("b", "org"), cluster_queue("c", "org", lendingLimit=0)], (), 8, 8),
        ([cluster_queue("c", "org", lendingLimit=0), cluster_queue("b", "org")], (), 16, 16),
        ([cluster_queue("a", "g"), cluster_queue("b", "g", used=12)], GROUPS, 8, 20),
        ([cluster_queue("a", "x")], (cohort("x", "y"), cohort("y", "x")), 8, 8),
    ],
    ids=["a queue alone", "usage above quota", "an implicit cohort", "no quota lent", "some quota lent",
         "another that lends none", "its own quota, which it lends to none", "a group's borrowing limit",
         "groups in a ring"],
)  # fmt: skip
def test_the_first_queue_can_use(queues: list[Data], cohorts: tuple[Data, ...], available: int, limit: int) -> None:
    found, name = quotas(*queues, cohorts=cohorts), queues[0]["metadata"]["name"]
    assert (found.available(name, LINE), found.potential_available(name, LINE)) == (available, limit)
    assert found.borrowed(name, LINE) == 0 or available < 0


def test_a_queue_borrows_up_to_its_borrowing_limit() -> None:
    queues = (
        cluster_queue("a", "org", used=24, borrowingLimit=24),
        cluster_queue("b", "org", used=8, nominalQuota=0, borrowingLimit=8),
    )
    found = quotas(*queues, cohorts=(cohort("org", nominal=24),))
    # As Kueue 0.19.2 said of these numbers: 8 more needed of 8, maximum capacity 32.
    assert (found.available("a", LINE), found.potential_available("a", LINE)) == (0, 32)
    assert (found.available("b", LINE), found.potential_available("b", LINE)) == (0, 8)
    assert found.borrowers("a", LINE) == {"b": 8}
    assert found.borrowers("b", LINE) == {"a": 16}


# Lent.


@pytest.mark.parametrize(
    ("queues", "cohorts", "lent"),
    [
        ([cluster_queue("a", "org", used=2), cluster_queue("b", "org", used=12)], (), [4, 0]),
        ([cluster_queue("a", "org"), cluster_queue("b", "org", used=12)], (cohort("org", nominal=4),), [0, 0]),
        ([cluster_queue("a", "org"), cluster_queue("b", "org", used=12)], (cohort("org", nominal=3),), [1, 0]),
        ([cluster_queue("a", "org"), cluster_queue("b", "org", used=5), cluster_queue("c", "org", used=12)], (),
         [4, 3, 0]),
        ([cluster_queue("a", "org", lendingLimit=0), cluster_queue("b", "org", used=8)], (), [0, 0]),
        ([cluster_queue("a", "g", used=1), cluster_queue("b", "h", used=11)],
         (cohort("g", "org"), cohort("h", "org")), [3, 0]),
    ],
    ids=["an idle guarantee", "unassigned quota first", "the rest of a guarantee", "by guarantees that are idle",
         "lending limit 0", "another group"],
)  # fmt: skip
def test_a_borrowed_amount_is_lent_by(queues: list[Data], cohorts: tuple[Data, ...], lent: list[int]) -> None:
    found = quotas(*queues, cohorts=cohorts)
    assert [found.lent(queue["metadata"]["name"], LINE) for queue in queues] == lent


# Reading.


def test_a_queue_is_read_with_its_policies_and_its_state() -> None:
    manifest: Any = cluster_queue("a", "org", used=None)
    queue = read_cluster_queue(manifest)
    assert (queue.counted, queue.inactive, queue.strict, queue.invalid) == (False, "", False, "")
    assert (queue.spec.preemption.reclaim, queue.spec.preemption.borrow) == (Policy.ANY, None)
    manifest["spec"]["preemption"] = {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    lower = read_cluster_queue(manifest).spec.preemption
    assert lower.reclaim is Policy.LOWER
    assert lower.borrow is not None
    manifest["spec"]["stopPolicy"] = "Hold"
    manifest["spec"]["queueingStrategy"] = "StrictFIFO"
    manifest["spec"]["preemption"]["reclaimWithinCohort"] = "Never"
    stopped = read_cluster_queue(manifest)
    assert (stopped.inactive, stopped.stop_policy, stopped.strict) == ("stopPolicy is Hold", "Hold", True)
    assert stopped.spec.preemption.reclaim is Policy.NEVER


def test_a_policy_that_kueue_does_not_know_counts_as_the_default() -> None:
    manifest: Any = cluster_queue("a", "org")
    manifest["spec"]["preemption"] = {"reclaimWithinCohort": "Sometimes"}
    queue = read_cluster_queue(manifest)
    assert queue.spec.preemption.reclaim is Policy.NEVER
    assert queue.invalid == "'Sometimes' is not a valid Policy"


def test_an_inactive_queue_shows_kueues_message() -> None:
    manifest = cluster_queue("a")
    words = "Can't admit new workloads: references missing ResourceFlavor(s): a100."
    manifest["status"]["conditions"] = [
        {"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": words}
    ]
    assert read_cluster_queue(manifest).inactive == words
