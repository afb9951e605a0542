"""Checks Volcano's promises on temporary nodes: a gang starts whole or not at all, and each GPU has one scheduler."""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CPU, amount, amounts
from gpu_tenancy.embedded.nodes import add_node
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local.checks.check import CHECK, IMAGE, Check, temporary_node
from gpu_tenancy.model.manifests.jobs import gang_manifest
from gpu_tenancy.model.names import KUEUE, VOLCANO
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.pools import NodeTaint
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import JobPlan, PodPlan, RolePlan
from gpu_tenancy.simulation.copies import Place
from gpu_tenancy.simulation.live import job_of_pods

# Seconds in which no pod of a gang may start although most would fit; Volcano schedules each second.
WATCHED: Final = 4.0
PATIENCE: Final = 30.0  # seconds in which a gang that fits starts; about 2 are usual
_SIZE: Final = 4
_DAY: Final = 86_400


def check_gangs(cluster: Cluster, plan: Plan, tree: Tree, places: Mapping[str, Place]) -> Iterator[Check]:
    """Checks gangs of four on the first flavor with gangs, and quotas of both schedulers on each flavor with gangs.

    One gang is in Volcano's default queue, the other is a Job that Kueue admits and Volcano schedules, in one of
    `places`: the copies of the stack's queues.
    """
    flavors = dict.fromkeys(queue.flavor for queue in plan.queues.gang_queues)
    yield from (_promised_once(cluster, plan, tree.flavors[name]) for name in flavors)
    first = next(iter(flavors), next((name for name, flavor in tree.flavors.items() if flavor.resource), None))
    owner = next((queue for queue in tree.queue_owners if first in tree.team_shares[queue]), None)
    if first is None or owner is None:
        return
    flavor = tree.flavors[first]
    place = Place(places[owner].namespace, places[owner].local_queue, runs=True)
    role = _role(flavor)
    gang = JobPlan(
        "check-gang", place.namespace, "default", "job", (role,), gang=True, retries=0, deadline=None, keep=_DAY
    )
    yield _whole(cluster, flavor, place, gang_manifest(gang), "a gang of 4")
    queued = job_of_pods("check-queued-gang", place, role.pod, _SIZE, gang=True)
    yield _whole(cluster, flavor, place, queued, "a job with `gang`, through both,")


def _promised_once(cluster: Cluster, plan: Plan, flavor: Flavor) -> Check:
    resource = flavor.resource or CPU
    selected = [
        node
        for node in cluster.list("v1", "Node")
        if flavor.node_labels.items() <= texts_at(node, "metadata", "labels").items()
    ]
    there = sum(amounts(at(node, "status", "allocatable")).get(resource, 0) for node in selected)
    owners = {"ClusterQueue": plan.queues.cluster_queues, "Cohort": plan.queues.cohorts}
    found = (cluster.get(KUEUE, kind, owner.name) or {} for kind, listed in owners.items() for owner in listed)
    by_kueue = sum(
        amount(resource, at(quota, "nominalQuota"))
        for owner in found
        for group in maps_at(owner, "spec", "resourceGroups")
        for item in maps_at(group, "flavors")
        if text_at(item, "name") == flavor.name
        for quota in maps_at(item, "resources")
        if text_at(quota, "name") == resource
    )
    names = [queue.name for queue in plan.queues.gang_queues if queue.flavor == flavor.name]
    queues = (cluster.get(VOLCANO, "Queue", name) or {} for name in names)
    by_volcano = sum(amounts(at(queue, "spec", "capability")).get(resource, 0) for queue in queues)
    return Check(
        f"no {flavor.name} GPU is promised by both schedulers",
        f"quota of Kueue {by_kueue} and capability of Volcano {by_volcano}, of {there} on {len(selected)} nodes",
        holds=by_kueue + by_volcano <= there,
    )


def _whole(cluster: Cluster, flavor: Flavor, place: Place, job: Manifest, what: str) -> Check:
    """Starts a gang on a node with one GPU too few, then adds the missing one."""
    reference = Reference.of(job)
    nodes = [
        temporary_node(flavor, name, {**flavor.node, (flavor.resource or CPU): gpus})
        for name, gpus in (("gang-3", _SIZE - 1), ("gang-1", 1))
    ]
    try:
        add_node(cluster, nodes[0])
        cluster.create(job)
        early, deadline = 0, time.monotonic() + WATCHED
        while time.monotonic() < deadline:
            early = max(early, _running(cluster, place))
            time.sleep(0.2)
        answer = _message(cluster, place)
        add_node(cluster, nodes[1])
        began = time.monotonic()
        with suppress(ConsoleError):
            all_run = f"all pods of {reference.name} to start"
            cluster.wait_for(lambda: _running(cluster, place) == _SIZE, timeout=PATIENCE, what=all_run)
        late = _running(cluster, place)
    finally:
        cluster.delete(reference, foreground=True)
        for shape in nodes:
            cluster.delete(Reference("v1", "Node", shape.name))
    return Check(
        f"{what} starts whole or not at all",
        f"with {_SIZE - 1} GPUs free, {early} of {_SIZE} pods started; with {_SIZE} free,"
        f" {late} started after {time.monotonic() - began:.1f} s",
        holds=early == 0 and late == _SIZE,
        message=answer,
    )


def _running(cluster: Cluster, place: Place) -> int:
    return sum(1 for pod in cluster.list("v1", "Pod", namespace=place.namespace) if text_at(pod, "spec", "nodeName"))


def _message(cluster: Cluster, place: Place) -> str:
    for group in cluster.list(VOLCANO, "PodGroup", namespace=place.namespace):
        for condition in maps_at(group, "status", "conditions"):
            if text_at(condition, "type") == "Unschedulable" and is_true(group, "Unschedulable"):
                return f"Volcano: {text_at(condition, 'message')}"
        return f"PodGroup {text_at(group, 'status', 'phase') or 'without a phase'}"
    return "no PodGroup"


def _role(flavor: Flavor) -> RolePlan:
    """Four pods, each for one GPU of the temporary nodes."""
    taints = (*flavor.taints, NodeTaint(CHECK, "", "NoSchedule"))
    labels = {**flavor.node_labels, CHECK: "true"}
    one = {flavor.resource: 1} if flavor.resource else {CPU: 1000}
    return RolePlan("worker", _SIZE, PodPlan(IMAGE, (), (), {}, one, labels, taints, priority=None, non_root=True))
