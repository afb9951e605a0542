"""Reasons why a job is pending, from the queue to its pods, and rollouts that do not complete."""

from typing import Any

import live_builders
import pytest
from live_builders import (
    HIDDEN_QUEUES,
    Data,
    changed,
    cluster_queue,
    cohort,
    condition,
    cpu_job,
    flavor,
    job,
    local_queue,
    meta,
    node,
    only_gpus,
    owned,
    pod,
    state,
    with_cpu,
    workload,
)

from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import Missing
from gpu_tenancy.cluster.workloads import interrupted, read_workloads
from gpu_tenancy.explain.running import Why
from gpu_tenancy.explain.why import why
from gpu_tenancy.model.names import IDLE


def asked(about: Data | None = None, missing: tuple[Missing, ...] = (), /, **objects: list[Data]) -> Why:
    found = state(missing, **objects)
    return why(target_of(about or JOB, found), found)


JOB = only_gpus(job())
HELD = "Workload job-train-abcde in LocalQueue research (ClusterQueue research), priority 0"
SAYS = (
    "Kueue condition QuotaReserved (Pending): couldn't assign flavors to pod set main: insufficient"
    " unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
)
NOBODY = "no workload is ahead of it in the queue"


def queues(own: int, others: int = 0, **quota: Any) -> list[Data]:
    return [cluster_queue("research", "org", used=own, **quota), cluster_queue("speech", "org", used=others)]


# In no queue.


def test_a_job_without_the_label_is_not_queued_at_all() -> None:
    bare = only_gpus(job())
    bare["metadata"]["labels"] = {}
    found = asked(bare)
    assert found.conclusion == (
        "no queue is set: the Job has no label kueue.x-k8s.io/queue-name;"
        " run `kubectl -n research label job train kueue.x-k8s.io/queue-name=research`"
    )
    held = workload(bare)
    held["spec"]["queueName"] = ""  # Kueue makes a Workload of a Job without the label too, where it manages all Jobs.
    assert asked(bare, Workload=[held]).conclusion == found.conclusion
    assert asked(bare, LocalQueue=[]).fix == "the namespace has no LocalQueue; ask the platform team for one"
    both = [local_queue("research"), {"metadata": meta("default", "research"), "spec": {"clusterQueue": "research"}}]
    assert asked(bare, LocalQueue=both).fix == found.fix


def test_a_missing_queue_is_reported() -> None:
    found = asked(LocalQueue=[local_queue("research"), {"metadata": meta("other", "speech"), "spec": {}}])
    assert found.conclusion.startswith("not queued yet: Kueue has not created a Workload for it; check that the Kueue")
    lost = asked(LocalQueue=[{"metadata": meta("reserch", "research"), "spec": {"clusterQueue": "research"}}])
    assert lost.conclusion == (
        "LocalQueue research not found in namespace research; did you mean 'reserch'? Known: reserch"
    )


# Waiting for quota.


def test_a_pending_job_names_workloads_that_use_its_quota() -> None:
    found = asked(Workload=[workload(JOB)], ClusterQueue=queues(8, 32, borrowingLimit=24))
    assert found.lines == (
        HELD,
        NOBODY,
        (
            "a100 nvidia.com/gpu: 8 requested, fits when other queues release 8 (guaranteed 8, unused"
            " 0; limit 32, used 8)"
        ),
        "a100 nvidia.com/gpu borrowed now by: speech 24",
        (
            "not simulated: Kueue reports 8 nvidia.com/gpu of a100 in use in queue research, but its"
            " workloads hold 0; retry in a moment"
        ),
    )
    assert found.messages == (SAYS,)
    assert found.conclusion == (
        "queue research cannot borrow enough: 8 of 8 a100 GPUs missing (8 in use, 8 guaranteed); wait for speech to"
        " release it, request less, or ask the platform team to raise the guarantee"
    )


def untolerating() -> Data:
    found = only_gpus(job())
    del found["spec"]["template"]["spec"]["tolerations"]
    return found


def stopped(**fields: Any) -> Data:
    """A deactivated workload, with conditions and fields of its spec."""
    conditions = fields.pop("conditions", [])
    found = changed(workload(JOB), active=False, **fields)
    found["status"]["conditions"] += conditions
    return found


def inactive(message: str) -> Data:
    found = cluster_queue("research")
    found["status"]["conditions"] = [{"type": "Active", "status": "False", "message": message}]
    return found


def lower_reclaim() -> list[Data]:
    found = queues(0, 36, borrowingLimit=24)
    found[0]["spec"]["preemption"]["reclaimWithinCohort"] = "LowerPriority"
    return found


def unplaced(message: str, **spec: Any) -> Data:
    found = owned(pod("train-x", conditions=[condition("PodScheduled", "False", "Unschedulable", message)]))
    found["spec"] |= spec
    return found


def not_pulled() -> Data:
    stuck = owned(pod("train-x", on="n1"))
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    stuck["status"] = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": waits}]}
    return stuck


NO_CHECK = "Can't admit new workloads: references missing AdmissionCheck(s): provision-a100."
TIMED_OUT = "DeactivatedDueToMaximumExecutionTimeExceeded"
LARGE = only_gpus(job(pods=5))
ADMITTED = workload(JOB, admitted=True)
UNBOUND = unplaced(
    "pod has unbound immediate PersistentVolumeClaims",
    volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}}],
)
CORPUS = {"metadata": meta("corpus", "research"), "status": {"phase": "Pending"}}
CONCLUSIONS: dict[str, tuple[Data, dict[str, list[Data]], str]] = {
    "guaranteed quota that others borrow": (JOB, {"Workload": [workload(JOB)], "ClusterQueue": queues(0, 36,
        borrowingLimit=24)}, ("others borrow guaranteed quota of queue research: 4 a100 GPUs;"
        " no action needed: Kueue reclaims it from speech")),
    "the team's own workloads": (JOB, {"Workload": [workload(JOB)], "ClusterQueue": queues(28, 0, borrowingLimit=24)},
        ("queue research would exceed its limit: 28 of 32 a100 GPUs in use, 8 requested; wait for workloads of"
        " the queue to end, end some of them, or ask the platform team to raise the limit of the team")),
    "Kueue": (JOB, {"Workload": [workload(JOB)], "ClusterQueue": queues(0, 0, borrowingLimit=24)},
        "quota is free but the workload is not admitted; if this persists, check the Kueue controller"),
    "reclaim from lower priority": (JOB, {"Workload": [workload(JOB)], "ClusterQueue": lower_reclaim()},
        ("others borrow guaranteed quota of queue research: 4 a100 GPUs; Kueue reclaims it only from workloads of lower"
        " priority; otherwise wait for speech to release it")),
    "more than the limit": (LARGE, {"Workload": [workload(LARGE)]},
        ("queue research can never admit it: 40 a100 GPUs requested, limit 32; request at most 32, or ask the"
        " platform team to raise the limit of the team")),
    "a queue that lacks an admission check": (JOB, {"Workload": [workload(JOB)], "ClusterQueue": [inactive(NO_CHECK)]},
        (f"ClusterQueue research admits no workloads: {NO_CHECK}; fix this; Kueue then admits the workload"
        " without further action")),
    "a held LocalQueue": (JOB, {"Workload": [workload(JOB)], "LocalQueue": [changed(local_queue("research"),
        stopPolicy="HoldAndDrain")]},
        ("LocalQueue research is stopped (stopPolicy HoldAndDrain); ask a lead of the team for `kubectl -n research"
        """ patch localqueue research --type merge -p '{"spec": {"stopPolicy": "None"}}'`""")),
    "a queue that does not select the namespace": (JOB, {"Workload": [workload(JOB)],
        "ClusterQueue": [changed(cluster_queue("research"), namespaceSelector={"matchLabels": {"kueue": "yes"}})]},
        ("namespaceSelector of ClusterQueue research does not match namespace research; change the selector, or use"
        " another queue")),
    "a taint that it does not tolerate": (untolerating(), {"Workload": [workload(untolerating())]},
        ("queue research can never admit it: flavor a100: the pod does not tolerate the taint"
        " nvidia.com/gpu=present:NoSchedule; add to the pod template: tolerations: [{key: nvidia.com/gpu, operator:"
        " Exists, effect: NoSchedule}]")),
    "a deactivated workload": (JOB, {"Workload": [stopped()]},
        "its Workload is deactivated (spec.active is false); run `tenancy requeue research/train`"),
    "a cancelled workload with idle GPUs": (JOB, {"Workload": [stopped() | {"metadata": {**workload(JOB)["metadata"],
        "annotations": {IDLE: "cancel: stopped at 2026-01-01T12:00:00Z, idle since 2026-01-01T10:00:00Z"}}}]},
        ("its GPUs were idle (cancel: stopped at 2026-01-01T12:00:00Z, idle since 2026-01-01T10:00:00Z); run `tenancy"
        " requeue research/train`")),
    "a maximum run time": (JOB, {"Workload": [stopped(maximumExecutionTimeSeconds=3600,
        conditions=[condition("Evicted", "True", TIMED_OUT, "x")])]},
        ("it ran for its maximum run time of 3600 s, and Kueue stopped it; run `tenancy requeue research/train`, which"
        " lets it run as long again; or submit it with a longer deadline")),
    "a claim that is not bound": (JOB, {"Workload": [ADMITTED], "Pod": [UNBOUND], "PersistentVolumeClaim": [CORPUS]},
        "volumes not ready: claim corpus is Pending; see its events: `kubectl -n research describe pvc`"),
    "an image": (JOB, {"Workload": [ADMITTED], "Pod": [not_pulled()]},
        "containers do not start: main: ImagePullBackOff: not found; fix this error"),
    "nothing": ({**JOB, "status": {"conditions": [condition("Complete", "True", "", "")]}}, {},
        "not pending: ended (Complete)"),
}  # fmt: skip


@pytest.mark.parametrize(("about", "objects", "conclusion"), CONCLUSIONS.values(), ids=CONCLUSIONS)
def test_a_job_waits_for(about: Data, objects: dict[str, list[Data]], conclusion: str) -> None:
    found = asked(about, **objects)
    assert (found.conclusion, found.waits) == (conclusion, "not pending" not in conclusion)


# GPUs are guaranteed, and something beside them is not.

BORROWED = "from borrowers"
RAISE = "raise teams.research.quota.a100.cpu.guaranteed"
BLOCKED = f"so it cannot reclaim a100 GPUs {BORROWED}"


def vector(nominal: int, used: int = 0, gpus: int = 0, **spec: Any) -> list[Data]:
    """Queues of research with 8 GPUs, and of speech, which borrows all that research does not use."""
    own = with_cpu(cluster_queue("research", "org", used=gpus, borrowingLimit=8), nominal, used)
    own["spec"]["preemption"] |= spec
    return [own, with_cpu(cluster_queue("speech", "org", used=16 - gpus, borrowingLimit=8), 64)]


def shares() -> list[Data]:
    found = vector(10)
    for each in found:
        each["status"]["fairSharing"] = {"weightedShare": 0}
    return found


def own_group(nominal: int) -> list[Data]:
    """A cohort below the root, with CPUs of its own."""
    line = {"name": "cpu", "nominalQuota": str(nominal)}
    flavors = [{"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "0"}, line]}]
    group = {"coveredResources": ["nvidia.com/gpu", "cpu"], "flavors": flavors}
    return [changed(cohort("group", "org"), resourceGroups=[group])]


def grouped() -> list[Data]:
    own, other = vector(10)
    return [changed(own, cohortName="group"), other]


WIDE = cpu_job("train")
SMALL = cpu_job("train", gpus=2, cpu=8)
MORE = "pending: needs 22 CPUs more than research is guaranteed"
UNCOVERED: dict[str, tuple[Data, list[Data], list[Data], str]] = {
    "more CPUs than guaranteed": (WIDE, vector(10), [], f"{MORE} (10), {BLOCKED}; request up to 10 CPUs, or {RAISE}"),
    "more, and running jobs use some": (WIDE, vector(10, 4), [],
        f"{MORE} (10, 4 in use), {BLOCKED}; request up to 6 CPUs, or {RAISE}"),
    "more, and running jobs use all": (WIDE, vector(10, 10), [],
        f"{MORE} (10, 10 in use), {BLOCKED}; request up to 10 CPUs once its running jobs have ended, or {RAISE}"),
    "no CPUs guaranteed": (WIDE, vector(0), [],
        f"pending: needs 32 CPUs more than research is guaranteed (0), {BLOCKED}; {RAISE}"),
    "running jobs use the CPUs": (SMALL, vector(10, 8, 2), [],
        (f"pending: needs 8 CPUs, and running jobs of research use 8 of its guaranteed 10 CPUs, {BLOCKED}; wait until"
        f" running jobs release 6 CPUs, request up to 2 CPUs, or {RAISE}")),
    "running jobs use more than the CPUs": (SMALL, vector(10, 12, 2), [],
        (f"pending: needs 8 CPUs, and running jobs of research use 10 of its guaranteed 10 CPUs, {BLOCKED}; wait until"
        f" running jobs release 10 CPUs, or {RAISE}")),
    # reviews/inputs/r04: a job of 1 GPU and 80 CPUs, then jobs of 1 GPU and 8 CPUs, the first of which is covered.
    "a wide job of the team": (cpu_job("train", gpus=1, cpu=8), [with_cpu(cluster_queue("research", "org", used=2,
        borrowingLimit=8), 95, 88, 190), with_cpu(cluster_queue("speech", "org", used=14, borrowingLimit=8), 95)], [],
        (f"pending: needs 8 CPUs, and running jobs of research use 88 of its guaranteed 95 CPUs, {BLOCKED}; wait until"
        f" running jobs release 1 CPU, request up to 7 CPUs, or {RAISE}")),
    "fair sharing": (WIDE, shares(), [],
        f"{MORE} (10), so shares decide whether it reclaims a100 GPUs {BORROWED}; request up to 10 CPUs, or {RAISE}"),
    "borrowWithinCohort": (WIDE, vector(10, borrowWithinCohort={"policy": "LowerPriority"}), [],
        (f"{MORE} (10), so it reclaims a100 GPUs only {BORROWED} that borrowWithinCohort allows; request up to 10"
        f" CPUs, or {RAISE}")),
    "a group that lacks the CPUs too": (WIDE, grouped(), own_group(21),
        f"{MORE} (10), {BLOCKED}; request up to 10 CPUs, or {RAISE}"),
}  # fmt: skip


@pytest.mark.parametrize(("about", "owned", "cohorts", "conclusion"), UNCOVERED.values(), ids=UNCOVERED)
def test_names_what_the_guarantee_does_not_cover(
    about: Data, owned: list[Data], cohorts: list[Data], conclusion: str
) -> None:
    found = asked(about, Workload=[workload(about)], ClusterQueue=owned, Cohort=cohorts)
    assert (found.conclusion, found.waits) == (conclusion, True)


@pytest.mark.parametrize(
    ("about", "owned", "cohorts"),
    [
        (cpu_job("train", cpu=10), vector(10), []),
        (WIDE, vector(10, reclaimWithinCohort="Never"), []),
        (cpu_job("train", gpus=12), vector(10), []),
        (WIDE, grouped(), own_group(22)),
        (cpu_job("train", cpu=65), vector(10), []),
    ],
    ids=["covered", "no reclaim", "more GPUs than guaranteed", "a group that covers it", "more than the limit"],
)
def test_does_not_blame_cpu_where_it_does_not_decide(about: Data, owned: list[Data], cohorts: list[Data]) -> None:
    found = asked(about, Workload=[workload(about)], ClusterQueue=owned, Cohort=cohorts)
    assert "CPUs more than" not in found.conclusion


def test_a_simulated_job_names_cpu_with_a_teams_rights() -> None:
    borrowing = [workload(cpu_job(f"s{at}", "speech", cpu=8), admitted=True) for at in range(2)]
    mine = workload(WIDE)
    whole = {"LocalQueue": [local_queue("research"), local_queue("speech")], "Cohort": list[Data]()}
    owned = vector(10)
    owned[1]["status"]["flavorsReservation"][0]["resources"][1]["total"] = "16"
    conclusion = f"{MORE} (10), {BLOCKED}; request up to 10 CPUs, or {RAISE}"
    every = asked(WIDE, Workload=[mine, *borrowing], ClusterQueue=owned, **whole)
    assert every.unblock is not None
    assert (every.conclusion, every.unblock.admitted) == (conclusion, False)
    part = Missing("Workload", "pending workloads", "you may not list workloads", "an admin", partly=True)
    own = asked(WIDE, (part,), Workload=[mine], ClusterQueue=owned, **whole)
    assert own.conclusion == conclusion
    hidden = asked(WIDE, (HIDDEN_QUEUES,), Workload=[mine], ClusterQueue=[])
    assert hidden.conclusion == "pending for quota; you may not see how much is free; ask an admin"


def requeued(name: str) -> Data:
    """A workload that an admission check requeued after another workload was created."""
    sent = workload(only_gpus(job(name)), "2026-01-01T00:00:00Z")
    evicted = condition("Evicted", "True", "AdmissionCheck", "x")
    sent["status"]["conditions"].append({**evicted, "lastTransitionTime": "2026-01-05T00:00:00Z"})
    return sent


FRESH = workload(only_gpus(job("fresh")), "2026-01-02T00:00:00Z")
FIRST = workload(only_gpus(job("first", pods=9)), "2025-01-01T00:00:00Z")
STRICT = changed(cluster_queue("research"), queueingStrategy="StrictFIFO")


@pytest.mark.parametrize(
    ("about", "objects", "line"),
    [
        (only_gpus(job("back")), {"Workload": [requeued("back"), FRESH]},
         "1 workload is ahead of it, requesting 8 nvidia.com/gpu: research/fresh"),
        (JOB, {"Workload": [workload(JOB), FIRST], "ClusterQueue": [STRICT]},
         "its queue is StrictFIFO: no workload passes the first, even if that one can never be admitted"),
    ],
    ids=["requeued by an admission check", "StrictFIFO"],
)  # fmt: skip
def test_the_order_of_the_queue_is_explained(about: Data, objects: dict[str, list[Data]], line: str) -> None:
    assert line in asked(about, **objects).lines


def test_those_ahead_are_counted_by_priority_then_time() -> None:
    earlier, higher, later = (only_gpus(job(name)) for name in ("earlier", "higher", "later"))
    waiting = [
        workload(JOB, "2026-01-02T00:00:00Z"),
        workload(earlier, "2026-01-01T00:00:00Z"),
        workload(higher, "2026-01-03T00:00:00Z", 10),
        workload(later, "2026-01-03T00:00:00Z"),
        workload(only_gpus(job("done")), "2025-01-01T00:00:00Z", admitted=True),
    ]
    found = asked(Workload=waiting)
    assert found.lines[1] == (
        "2 workloads are ahead of it, requesting 16 nvidia.com/gpu: research/higher, research/earlier"
    )
    assert found.conclusion == "other workloads are ahead of it in its queue; wait, or set a higher priority class"


@pytest.mark.parametrize(
    ("status", "gate", "reason"),
    [
        ({"requeueState": {"count": 1, "requeueAt": "2026-02-01T00:00:00Z"}}, "",
         "evicted; Kueue requeues it at 2026-02-01T00:00:00Z"),
        ({"conditions": [condition("Requeued", "False", "PodsReadyTimeout", "pods were not ready")]}, "",
         "not requeued by Kueue: pods were not ready"),
        ({"conditions": [condition("QuotaReserved", "False", "OnHold", "by hand")]}, "", "on hold: by hand"),
        ({}, "example.com/budget", "gated by example.com/budget (annotation kueue.x-k8s.io/admission-gated-by)"),
    ],
)  # fmt: skip
def test_a_backoff_workload_shows_its_end_and_has_no_position(status: Data, gate: str, reason: str) -> None:
    off, later = workload(JOB), only_gpus(job("later"))
    off["status"] |= status
    if gate:
        off["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": gate}
    found = asked(Workload=[off])
    later_on = (
        "no action needed until then"
        if "requeueState" in status
        else "fix this; Kueue then admits the workload without further action"
    )
    assert (found.conclusion, found.unblock) == (f"{reason}; {later_on}", None)
    behind = asked(later, Workload=[off, workload(later, "2026-01-02T00:00:00Z")])
    assert NOBODY in behind.lines


def test_without_rights_to_read_queues_kueues_message_is_shown() -> None:
    found = asked(JOB, (HIDDEN_QUEUES,), Workload=[workload(JOB)], ClusterQueue=[])
    assert (found.lines, found.messages) == ((HELD, NOBODY, HIDDEN_QUEUES.text), (SAYS,))
    assert found.conclusion == "pending for quota; you may not see how much is free; ask an admin"


def test_taint_of_a_gpu_flavor_precedes_other_flavors() -> None:
    tainted = only_gpus(job())
    del tainted["spec"]["template"]["spec"]["tolerations"]
    del tainted["spec"]["template"]["spec"]["nodeSelector"]
    first = cluster_queue("research")
    flavors = first["spec"]["resourceGroups"][0]["flavors"]
    flavors.insert(0, {"name": "cpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "0"}]})
    cpu = {"metadata": meta("cpu"), "spec": {"nodeLabels": {"node-type": "cpu"}}}
    found = asked(tainted, Workload=[workload(tainted)], ClusterQueue=[first], ResourceFlavor=[cpu, flavor()])
    assert "flavor a100: the pod does not tolerate the taint" in found.reason
    assert "cpu" not in found.conclusion


def preempted(by: str, cause: str, path: str) -> Data:
    """A workload that is pending since another one preempted it, as of Kueue 0.19.2."""
    held = workload(JOB)
    words = (
        f"Preempted to accommodate a workload (UID: {by}, JobUID: job-{by}) due to reasons;"
        f" preemptor path: {path}; preemptee path: /org/research"
    )
    held["status"]["conditions"] += [
        condition("Evicted", "True", "Preempted", words),
        condition("Preempted", "True", cause, words),
    ]
    return held


def test_a_preempted_workload_names_who_preempted_it() -> None:
    urgent = workload(only_gpus(job("urgent")), priority=10, admitted=True)
    urgent["metadata"]["uid"] = "uid-w"
    full = [cluster_queue("research", used=8)]
    own = asked(Workload=[preempted("uid-w", "InClusterQueue", "/org/research"), urgent], ClusterQueue=full)
    assert own.reason == (
        "preempted by research/urgent, which has a higher priority in the same queue; now queue research is at its"
        " limit: 8 of 8 a100 GPUs in use"
    )
    other = asked(Workload=[preempted("uid-x", "InCohortReclamation", "/org/speech"), urgent], ClusterQueue=full)
    assert other.reason.startswith(
        "preempted by a workload of queue speech, which reclaims its guaranteed quota; now queue research"
    )


def test_kueue_does_not_follow_a_scaled_stateful_set() -> None:
    server = {**JOB, "kind": "StatefulSet", "apiVersion": "apps/v1"}
    server["spec"] = {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": JOB["spec"]["template"]}
    held = owned(pod("train-0"))
    held["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    done = workload(JOB, admitted=True)
    done["status"]["conditions"].append(condition("Finished", "True", "Succeeded", ""))
    for pods in ([held], []):  # Kueue deletes the pods of some that it ends
        assert asked(server, Pod=pods, Workload=[done]).conclusion == (
            "Kueue starts no more pods: it was scaled to 3 pods, and its Workload has 1; Kueue does not follow such a"
            " change: delete the StatefulSet, and create it with replicas: 3"
        )
    server["spec"]["replicas"] = 0
    assert asked(server, Workload=[done]).conclusion == "not pending: ended"


def test_a_member_of_the_team_gets_the_same_sentences() -> None:
    hidden = tuple(
        Missing(kind, "those of others", "you may not list them", "an admin", partly=True)
        for kind in ("Workload", "LocalQueue")
    )
    bare = only_gpus(job())
    bare["metadata"]["labels"] = {}
    nameless = workload(bare)
    nameless["spec"]["queueName"] = ""
    assert asked(bare, hidden, Workload=[nameless]).conclusion == asked(bare).conclusion
    lost = [{"metadata": meta("reserch", "research"), "spec": {"clusterQueue": "research"}}]
    reason = asked(JOB, hidden, Workload=[workload(JOB)], LocalQueue=lost).reason
    assert reason == "LocalQueue research not found in namespace research"
    assert asked(JOB, hidden).reason == "not queued yet: Kueue has not created a Workload for it"


# Past the quota.


def test_a_pending_admission_check_is_named() -> None:
    held = workload(JOB, admitted=True)
    held["status"]["conditions"][1] = condition(
        "Admitted", "False", "UnsatisfiedAdmissionChecks", "The workload has failed admission checks"
    )
    held["status"]["admissionChecks"] = [{"name": "provision-a100", "state": "Pending", "message": "Waiting for nodes"}]
    found = asked(Workload=[held])
    assert "admission check provision-a100 is Pending: Waiting for nodes" in found.lines
    assert found.reason == ("quota is reserved (8 nvidia.com/gpu), but admission check provision-a100 is not ready")


def event(message: str, about: str = "train", reason: str = "FailedCreate", at: str = "00:00:00") -> Data:
    return {
        "metadata": meta("e", "research"),
        "reason": reason,
        "involvedObject": {"name": about, "uid": f"uid-{about}"},
        "lastTimestamp": f"2026-01-01T{at}Z",
        "message": message,
    }


_DENIED = "is forbidden: ValidatingAdmissionPolicy 'gpu-tenancy-x' with binding 'gpu-tenancy-x' denied request: sets y;"


@pytest.mark.parametrize(
    ("about", "reason", "message", "conclusion"),
    [
        ("train", "TrainJobResourcesCreationFailed",
         f'TrainJob resources reconciliation failed: jobsets.jobset.x-k8s.io "train" {_DENIED} remove it',
         "its JobSet is refused: sets y; remove it"),
        ("train", "JobCreationFailed", f'jobs.batch "train-node-0" {_DENIED} set a; or b',
         "its Job is refused: sets y; set a; or b"),
        ("train-node-0", "FailedCreate", 'Error creating: pods "train-node-0-x" is forbidden: no such class',
         "its pods are refused: no such class; fix this error"),
        ("train-head", "FailedToCreateHeadPod",
         ('Failed to create head Pod research/train-head, pods "train-head" is forbidden: [memory max limit to request'
         " ratio per Container is 2, but provided ratio is 4.000000]"),
         ("its pods are refused: LimitRange: the limit of memory is 4 times the request, at most 2 is allowed;"
         " raise requests.memory to limits.memory / 2")),
        ("train", "FailedToCreateService", ('services "train" is forbidden: exceeded quota: budget, requested:'
         " services=1, used: services=9, limited: services=9"),
         ("its services are refused: ResourceQuota budget has 9 of 9 services in use, 1 more requested;"
         " wait until quota is free; see `tenancy usage`")),
    ],
)  # fmt: skip
def test_why_names_the_refused_child(about: str, reason: str, message: str, conclusion: str) -> None:
    admitted, refused = workload(JOB, admitted=True), event(message, about, reason)
    assert asked(Workload=[admitted], Event=[refused]).conclusion == f"admitted, but {conclusion}"
    problem = conclusion.partition("; ")[0]
    assert problem in asked(Workload=[workload(JOB)], Event=[refused]).lines
    since = event("Created pod: train-x", about, "SuccessfulCreate", at="00:00:01")
    assert "refused" not in asked(Workload=[admitted], Event=[refused, since]).conclusion
    others = event(message, "train-node-0", reason), workload(only_gpus(job(name="train-node")))
    assert "refused" not in asked(Workload=[admitted, others[1]], Event=[others[0]]).conclusion


def test_pods_rejected_by_quota_show_the_api_servers_message() -> None:
    words = (
        'Error creating: pods "train-x" is forbidden: exceeded quota: budget, requested: requests.cpu=5,'
        "requests.memory=4Gi, used: requests.cpu=17500m,requests.memory=8Gi,"
        " limited: requests.cpu=20,requests.memory=9Gi"
    )
    admitted = workload(JOB, admitted=True)
    found = asked(Workload=[admitted], Event=[event(words)])
    assert found.messages == (f"refused: {words}",)
    assert found.conclusion == (
        "0 of 1 pod created: ResourceQuota budget has 17.5 of 20 requests.cpu in use, 5 more requested;"
        " wait until quota is free; see `tenancy usage`"
    )
    own = owned(pod("train-x", on="n1"))
    assert asked(Workload=[admitted], Event=[event(words)], Pod=[own]).conclusion == "not pending: 1 pod running"


NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
NEEDS = "a pod needs 8 nvidia.com/gpu on one node"
OWN_PODS = Missing("Pod", "running pods and their nodes", "you may not list pods", "an admin", partly=True)


def split(gpus: int, *missing: Missing) -> Why:
    """An admitted job, and pods of another team with some GPUs of each of two nodes."""
    others = [pod(f"piece-{at}", "speech", gpus=gpus, on=f"n{at}") for at in (1, 2)]
    queues = [cluster_queue("research", used=8), cluster_queue("speech", used=2 * gpus)]
    pods, nodes = [unplaced(NO_ROOM), *(() if missing else others)], [node("n1"), node("n2")]
    return asked(JOB, missing, Workload=[workload(JOB, admitted=True)], Pod=pods, Node=nodes, ClusterQueue=queues)


def test_an_unschedulable_pod_names_pods_that_split_gpus() -> None:
    room = "2 suitable nodes, no room for such a pod now, for 2 when empty"
    full = split(6)
    assert full.lines[1:] == ("1 pod unschedulable, such as train-x", room, "free nvidia.com/gpu: 2 on 2 nodes")
    assert (full.fix, full.messages) == ("wait, or add nodes", (f"pod train-x: {NO_ROOM}",))
    found = split(2)
    needs, users = f"{NEEDS}, and 12 are free on 2 nodes", ("n1: 2 by speech/piece-1", "n2: 2 by speech/piece-2")
    assert found.lines[2:] == (needs, room, "free nvidia.com/gpu: 6 on 2 nodes", *users)
    assert found.conclusion == (
        f"pods unschedulable: {needs}; wait until the pods on one of these nodes end, or"
        " ask an administrator to delete them; with `topology: node` for its pool in the stack, Kueue admits only"
        " what fits on nodes"
    )
    own = split(2, OWN_PODS)
    assert own.reason == f"pods unschedulable: {NEEDS}, and none has 8 free; queues count 12 of 16 as free"
    assert "speech/" not in "".join((*own.lines, own.conclusion))
    assert split(6, OWN_PODS).reason == f"pods unschedulable: {NO_ROOM}"


def test_an_unschedulable_pod_lists_existing_nodes() -> None:
    lost = asked(Workload=[workload(JOB, admitted=True)], Pod=[unplaced(NO_ROOM)], Node=[node(model="l4")])
    assert lost.conclusion == (
        "pods unschedulable: no node has the label model=a100; existing values: l4; request what the"
        " nodes have, or tolerate their taint"
    )


def test_finds_pods_and_workloads_of_a_deployment() -> None:
    server: Data = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta("api", "research", uid="uid-api", labels={"kueue.x-k8s.io/queue-name": "research"}),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "api"}},
            "template": {"spec": JOB["spec"]["template"]["spec"]},
        },
    }
    runs, waits, others = pod("api-1", on="n1"), pod("api-2"), pod("other-1", on="n1")
    for each in (runs, waits):
        each["metadata"]["labels"] = {"app": "api"}
    waits["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    own, held = workload(JOB, admitted=True), workload(JOB)
    for each, of in ((own, "uid-api-1"), (held, "uid-api-2")):
        each["metadata"] |= {"name": f"pod-{of}", "ownerReferences": [{"uid": of}]}
    full = [cluster_queue("research", used=8)]
    found = asked(server, Pod=[runs, waits, others], Workload=[own, held], ClusterQueue=full)
    assert found.lines[0] == "Workload pod-uid-api-2 in LocalQueue research (ClusterQueue research), priority 0"
    assert found.reason == "queue research is at its limit: 8 of 8 a100 GPUs in use"
    assert asked(server, Pod=[runs, others], Workload=[own]).conclusion == "not pending: 1 pod running"
    server["spec"]["replicas"] = 3
    words = 'pods "api-x" is forbidden: exceeded quota: budget, requested: pods=1, used: pods=2, limited: pods=2'
    full_quota = event(words, about="api-5f7d")
    last = asked(server, Pod=[runs, waits], Workload=[own, held], ClusterQueue=full, Event=[full_quota])
    assert last.reason == found.reason
    assert last.lines[-1] == "2 of 3 pods created: ResourceQuota budget has 2 of 2 pods in use, 1 more requested"


# Gangs.


GANG: Data = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": meta("gang", "research", uid="uid-gang"),
    "spec": {"queue": "research-l4", "tasks": [{"name": "w", "replicas": 4,
        "template": {"spec": only_gpus(job(gpus=1))["spec"]["template"]["spec"]}}]},
}  # fmt: skip


def gang_state(used: int) -> dict[str, list[Data]]:
    capability = {"nvidia.com/gpu": "4"}
    words = "3/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable"
    unready = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": words}
    group = {
        "metadata": meta("gang-1", "research", ownerReferences=[{"uid": "uid-gang"}]),
        "spec": {"queue": "research-l4", "minMember": 4, "minResources": {"nvidia.com/gpu": "4"}},
        "status": {"phase": "Pending", "conditions": [unready]},
    }
    queue = {
        "metadata": meta("research-l4"),
        "spec": {"capability": capability},
        "status": {"state": "Open", "allocated": {"nvidia.com/gpu": str(used)}},
    }
    return {"Queue": [queue], "PodGroup": [group]}


def test_a_gang_waits_for_room_in_its_queue_all_at_once() -> None:
    found = asked(GANG, **gang_state(1))
    assert found.lines[:2] == (
        "gang in Volcano queue research-l4: all pods start together",
        "Volcano's PodGroup gang-1: Pending, 4 pods start together",
    )
    assert found.messages == (
        "Unschedulable: 3/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable",
    )
    assert found.conclusion == (
        "Volcano queue research-l4 is at capacity: nvidia.com/gpu 4 requested, fits when other gangs end (1 of 4"
        " used); wait until other gangs of the team end"
    )
    free = gang_state(0)
    assert asked(GANG, **free).reason == "no capacity for all pods of the gang at the same time"
    free["PodGroup"][0]["status"]["phase"] = "Inqueue"
    assert "submit it with another name" in asked(GANG, **free).conclusion


def test_counts_evictions_and_their_gpu_hours() -> None:
    counted = [
        {"reason": "Preempted", "underlyingCause": "", "count": 2},
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1},
    ]
    evicted = workload(JOB, admitted=True)
    evicted["status"] |= {"schedulingStats": {"evictions": counted}, "accumulatedPastExecutionTimeSeconds": 5400}
    found = asked(Workload=[evicted], Pod=[owned(pod("train-0", on="n1"))])
    gpu_hours = 1.5 * read_workloads([evicted])[0].total["nvidia.com/gpu"]
    assert found.lines[-1] == f"3 evictions (2 Preempted, 1 NodeFailures) after {gpu_hours:.1f} GPU-hours"
    other = {**evicted, "metadata": {**evicted["metadata"], "namespace": "speech"}}
    assert [(one.team, one.workloads, one.gpu_hours) for one in interrupted(read_workloads([evicted, other]))] == [
        ("research", 1, gpu_hours),
        ("speech", 1, gpu_hours),
    ]


TAKEN = "can be preempted by queue speech"
GRACE = "its pods then have 30 s to stop"


@pytest.mark.parametrize(
    ("used", "reclaim", "line"),
    [
        (8, "Any", []),
        (16, "Any", [f"{TAKEN} at any time; {GRACE}"]),
        (16, "LowerPriority", [f"{TAKEN} for workloads of higher priority; {GRACE}"]),
        (16, "Never", ["no queue reclaims it"]),
    ],
)
def test_running_workload_names_queues_that_can_preempt_it(used: int, reclaim: str, line: list[str]) -> None:
    both = queues(used)
    both[1]["spec"]["preemption"] = {"reclaimWithinCohort": reclaim}
    found = asked(Workload=[workload(JOB, admitted=True)], ClusterQueue=both, Pod=[owned(pod("train-0", on="n1"))])
    borrows = f"queue research borrows 8 of its {used} a100 nvidia.com/gpu; "
    assert [one for one in found.lines if "borrows" in one] == [f"{borrows}{one}" for one in line]
    assert not found.waits


# `why` about rollouts of Deployments and LeaderWorkerSets that do not complete.


_EXCEEDED = (
    'pods "chat-b-x" is forbidden: exceeded quota: quota, requested: requests.nvidia.com/gpu=8, used:'
    " requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16"
)


def _deployment(*conditions: tuple[str, str, str, str], new: int, replicas: int) -> dict[str, Any]:
    keys = ("type", "status", "reason", "message")
    selector: dict[str, Any] = {"matchLabels": {"app": "chat"}}
    template: dict[str, Any] = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [{"name": "server"}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "serving", "uid": "d"},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 900, "selector": selector, "template": template},
        "status": {
            "replicas": replicas, "updatedReplicas": new, "availableReplicas": 2,
            "conditions": [dict(zip(keys, one, strict=True)) for one in conditions],
        },
    }  # fmt: skip


def _pod(name: str, **status: Any) -> dict[str, Any]:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "serving", "uid": name, "labels": {"app": "chat"}},
        "spec": {"nodeName": "n", "containers": [{"name": "server"}]},
        "status": ready | status,
    }


def _new(state: dict[str, Any], **status: Any) -> dict[str, Any]:
    return _pod(
        "chat-b", conditions=[], containerStatuses=[{"name": "server", "restartCount": 0, "state": state} | status]
    )


_LATE = ("Progressing", "False", "ProgressDeadlineExceeded", "")
_CRASHED = {"terminated": {"exitCode": 1, "reason": "Error"}}
_PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
_LOGS = "see `kubectl -n serving logs chat-b -c server --previous`"
_USED = "16 of 16 requests.nvidia.com/gpu in use"
_SERVE = "rollout not complete, 2 replicas serve: "


@pytest.mark.parametrize(
    ("conditions", "new", "conclusion"),
    [
        ((), _new({"running": {}}), "rollout in progress: 3 pods running"),
        ((_LATE, ), _new({"running": {}}),
         f"{_SERVE}pod chat-b runs, but is not ready; see `kubectl -n serving describe pod chat-b` for its probes"),
        ((), _new({"running": {}}, restartCount=3, lastState=_CRASHED),
         f"{_SERVE}pod chat-b: container server ended 3 times, last with code 1 (Error); {_LOGS}"),
        ((), _new(_PULL), f"{_SERVE}containers do not start: server: ImagePullBackOff: not found; fix this error"),
        ((("ReplicaFailure", "True", "FailedCreate", _EXCEEDED), ), None,
         f"{_SERVE}new pods are rejected: ResourceQuota quota has {_USED}, 8 more requested; wait until"),
        ((("ReplicaFailure", "True", "FailedCreate", "denied by a guard"), ), None,
         f"{_SERVE}new pods are rejected: denied by a guard; fix this error"),
    ],
)  # fmt: skip
def test_stuck_rollout_has_its_cause_and_a_fix(
    conditions: tuple[tuple[str, str, str, str], ...], new: dict[str, Any] | None, conclusion: str
) -> None:
    manifest = _deployment(*conditions, new=1 if new else 0, replicas=3 if new else 2)
    state = live_builders.state(Pod=[_pod("chat-a1"), _pod("chat-a2"), *([new] if new else [])])
    answer = why(target_of(manifest, state), state)
    assert conclusion in answer.conclusion
    assert answer.waits is not conclusion.startswith("rollout in progress")
    late = "; it is late: no new pod became ready in 15m" if _LATE in conditions else ""
    assert answer.lines[0] == f"rollout: {1 if new else 0} of 2 replicas are new, 2 available{late}"


def test_finished_rollout_is_not_mentioned() -> None:
    manifest = _deployment(new=2, replicas=2)
    state = live_builders.state(Pod=[_pod("chat-a1"), _pod("chat-a2")])
    assert why(target_of(manifest, state), state).conclusion == "not pending: 2 pods running"


_BEGUN = "2026-11-26T10:00:00Z"
_RECREATED = "Worker pod chat-1-1 failed, deleted leader pod chat-1 to recreate group 1"


def _groups(*, new: int) -> dict[str, Any]:
    """A server of two groups of two pods, of which one is replaced."""
    updating = {"type": "UpdateInProgress", "status": "True", "lastTransitionTime": _BEGUN}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "chat", "namespace": "serving", "uid": "l"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "server"}]}}},
        },
        "status": {"replicas": 2, "updatedReplicas": new, "readyReplicas": 1, "conditions": [updating]},
    }


def _of_group(name: str, *, ready: bool = True, **status: Any) -> dict[str, Any]:
    pod = _pod(name, **({} if ready else {"conditions": []}), **status)
    pod["metadata"]["labels"] = {"leaderworkerset.sigs.k8s.io/name": "chat"}
    return pod


def _event(at: str = "2026-11-26T10:20:00.000000Z", leader: str = "chat-1", about: str = "chat") -> dict[str, Any]:
    """An event of LeaderWorkerSet 0.9, in the view of the API v1: the set, and the leader of the group."""
    return {
        "metadata": {"name": "e", "namespace": "serving"}, "reason": "RecreateGroup", "message": _RECREATED,
        "involvedObject": {"kind": "LeaderWorkerSet", "name": about}, "related": {"kind": "Pod", "name": leader},
        "eventTime": _BEGUN, "series": {"count": 6, "lastObservedTime": at},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "events", "conclusion"),
    [
        ({}, [], "rollout in progress: "),
        ({}, [_event()],
         f"rollout not complete, 1 replica serves: a group was recreated 6 times: {_RECREATED}; see `kubectl"),
        ({}, [_event("2026-11-26T09:59:00.000000Z")], "rollout in progress: "),
        ({}, [_event(leader="chat-0")], "rollout in progress: "),
        ({}, [_event(about="other")], "rollout in progress: "),
        ({"containerStatuses": [{"name": "server", "restartCount": 0, "state": _PULL}]}, [],
         "rollout not complete, 1 replica serves: containers do not start: server: ImagePullBackOff: not found"),
    ],
    ids=["starts", "ends again and again", "ended before", "runs again", "of another set", "has no image"],
)  # fmt: skip
def test_stuck_rollout_of_groups_has_its_cause(
    status: dict[str, Any], events: list[dict[str, Any]], conclusion: str
) -> None:
    pods = [_of_group("chat-0"), _of_group("chat-0-1"), _of_group("chat-1", ready=False, **status)]
    state = live_builders.state(Pod=pods, Event=events)
    answer = why(target_of(_groups(new=1), state), state)
    assert answer.conclusion.startswith(conclusion)
    assert answer.lines[0] == "rollout: 1 of 2 replicas are new, 1 available"


def test_groups_that_are_not_rolled_out_have_no_line_about_it() -> None:
    state = live_builders.state(Pod=[_of_group("chat-0"), _of_group("chat-0-1")], Event=[_event()])
    assert "rollout" not in why(target_of(_groups(new=2), state), state).conclusion
