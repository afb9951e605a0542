"""Tenancies at rest, drawn by chance, and the same as an API server has them."""

from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from live_builders import ACTIVE, GPU, Data, condition, flavor, job, local_queue, meta, only_gpus, workload

from gpu_tenancy import kueue
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, Missing, State
from gpu_tenancy.kueue import (
    FAIR,
    Admitted,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Quota,
    ResourceGroup,
    Simulation,
    Strategy,
    Tenancy,
    settle,
)

FLAVORS = ("a100", "b100")
QUEUES = ("a", "b", "c")


@dataclass(frozen=True)
class World:
    """A tenancy at rest: who came in which order, and who runs."""

    tenancy: Tenancy
    workloads: tuple[kueue.Workload, ...]
    running: dict[str, Admitted]

    def again(self, *ended: str) -> set[str]:
        """Who runs when all is as it was, and then these have ended one after another."""
        simulation = Simulation(self.tenancy)
        for at, each in enumerate(self.workloads):
            if each.name in self.running:
                simulation.place(each, self.running[each.name].flavors, at - 1000)
            else:
                simulation.submit(each)
        simulation.rest()
        for name in ended:
            simulation.finish(name)
            if simulation.rest():
                return set()
        return {each.name for each in simulation.settled().admitted}


@st.composite
def _groups(draw: st.DrawFn, flavors: int) -> tuple[ResourceGroup, ...]:
    found: list[FlavorQuotas] = []
    for name in FLAVORS[:flavors]:
        nominal = draw(st.integers(0, 6))
        quota = Quota(nominal, draw(st.none() | st.integers(0, 6)), draw(st.none() | st.integers(0, nominal)))
        found.append(FlavorQuotas(name, {GPU: quota}))
    return (ResourceGroup(tuple(found)),)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to three queues of one cohort, with up to nine workloads of which some wait."""
    flavors = draw(st.integers(1, 2))
    names = QUEUES[: draw(st.integers(1, 3))]
    queues = tuple(
        ClusterQueue(
            name,
            draw(_groups(flavors)),
            "org",
            draw(st.sampled_from(Strategy)),
            Preemption(
                draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.LOWER_OR_NEWER])),
                draw(st.sampled_from([Policy.NEVER, Policy.LOWER, Policy.ANY])),
            ),
            Fungibility(draw(st.sampled_from(Fungible)), draw(st.sampled_from(Fungible))),
        )
        for name in names
    )
    tenancy = Tenancy(queues, (Cohort("org"),), draw(st.sampled_from([None, FAIR])))
    shapes = st.tuples(st.sampled_from(names), st.integers(1, 5), st.integers(0, 2))
    asked = draw(st.lists(shapes, min_size=2, max_size=9))
    workloads = tuple(
        kueue.Workload(f"{queue}/w{at}", queue, (PodSet({GPU: gpus}),), priority)
        for at, (queue, gpus, priority) in enumerate(asked)
    )
    rest = settle(tenancy, workloads)
    assume(not rest.livelock and rest.pending)
    return World(tenancy, workloads, {each.name: each for each in rest.admitted})


def _quota(each: Quota) -> Data:
    limits = {"borrowingLimit": each.borrowing_limit, "lendingLimit": each.lending_limit}
    return {
        "name": GPU,
        "nominalQuota": str(each.nominal),
        **{key: str(limit) for key, limit in limits.items() if limit is not None},
    }


def _queue(world: World, queue: ClusterQueue) -> Data:
    used: dict[str, int] = {}
    for each in world.workloads:
        if each.name in world.running and each.queue == queue.name:
            name = world.running[each.name].flavors[0][GPU]
            used[name] = used.get(name, 0) + each.pod_sets[0].requests[GPU]
    flavors = queue.groups[0].flavors
    status: Data = {
        "conditions": [ACTIVE],
        "flavorsReservation": [
            {"name": name, "resources": [{"name": GPU, "total": str(much)}]} for name, much in used.items()
        ],
    }
    if world.tenancy.fair_sharing:
        status["fairSharing"] = {"weightedShare": 0}
    return {
        "metadata": meta(queue.name),
        "spec": {
            "cohortName": queue.cohort,
            "namespaceSelector": {},
            "queueingStrategy": str(queue.strategy),
            "preemption": {
                "withinClusterQueue": str(queue.preemption.within),
                "reclaimWithinCohort": str(queue.preemption.reclaim),
            },
            "flavorFungibility": {
                "whenCanBorrow": str(queue.fungibility.when_can_borrow),
                "whenCanPreempt": str(queue.fungibility.when_can_preempt),
            },
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [{"name": each.flavor, "resources": [_quota(each.resources[GPU])]} for each in flavors],
                }
            ],
        },
        "status": status,
    }


def _workload(world: World, at: int, each: kueue.Workload) -> Data:
    about = only_gpus(job(each.name, each.queue, gpus=each.pod_sets[0].requests[GPU]))
    about["spec"]["template"]["spec"]["nodeSelector"] = {}
    runs = world.running.get(each.name)
    found = workload(about, f"2026-01-01T00:00:{at:02}Z", each.priority, admitted=runs is not None)
    found["metadata"]["name"] = each.name.partition("/")[2]
    found["metadata"]["ownerReferences"][0]["name"] = found["metadata"]["name"]
    if runs is not None:
        found["status"]["admission"]["podSetAssignments"][0]["flavors"] = dict(runs.flavors[0])
        reserved = condition("QuotaReserved", "True", "QuotaReserved", "")
        found["status"]["conditions"][0] = {**reserved, "lastTransitionTime": f"2026-01-02T00:00:{at:02}Z"}
    return found


def queues_of(world: World, of: str = "") -> Queues:
    """What was read of the world's cluster: by an administrator, or by a member of the team `of`."""
    objects: Any = {
        "ClusterQueue": [_queue(world, each) for each in world.tenancy.queues],
        "LocalQueue": [local_queue(each.name) for each in world.tenancy.queues if of in {"", each.name}],
        "ResourceFlavor": [flavor(name) for name in FLAVORS],
        "Workload": [_workload(world, at, each) for at, each in enumerate(world.workloads) if of in {"", each.queue}],
    }
    hidden: dict[Kind, Missing] = {
        kind: Missing(kind, "", "", "an admin", partly=True) for kind in (("Workload", "LocalQueue") if of else ())
    }
    return Queues(State({kind: tuple(each) for kind, each in objects.items()}, hidden))
