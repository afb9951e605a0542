"""Pools as their cloud can make them: what it does not have, and what it must be told."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.model.catalogue import Machine, find_machine, machines
from gpu_tenancy.model.catalogue.clouds import CapacityRule, CloudRules, clouds
from gpu_tenancy.model.checks.drivers import driver_problems
from gpu_tenancy.model.plan.gpus import machine_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.problems import Problem, nearest
from gpu_tenancy.model.quantity import format_bytes
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool

_DAY: Final = 86400
_LEAST_DISK: Final = 50 * 2**30
"""An NVIDIA image with one training framework takes more than this: pods would be evicted for want of disk."""


def node_problems(tree: Tree) -> Iterator[Problem]:
    """What the stack's cloud cannot do, or is not told enough to do."""
    stack = tree.stack
    service = service_of(stack.cluster)
    if service not in clouds():
        known = nearest(service, (name for name in clouds() if name != stack.cluster.cloud))
        yield Problem(("cluster", "provider"), "is no service whose ways are known", known, service)
        return
    rules = clouds()[service]
    yield from _system(stack)
    for machine in stack.prices:
        if machine not in stack.machines and find_machine(machine) is None:
            known = nearest(machine, [*stack.machines, *(name for _, name in machines())])
            yield Problem(("prices", machine), "is the price of no machine", known)
    for name, pool in stack.pools.items():
        if stack.cluster.NODES_MADE:
            yield from _made(stack, name, rules)
        elif service == stack.cluster.cloud:
            yield from _somebody_elses(name, pool)
        yield from _capacity(stack, name, rules.title, rules.capacity[pool.capacity.kind])
    for flavor in tree.flavors.values():
        yield from _announced(flavor)
    yield from driver_problems(tree, rules)


def _made(stack: Stack, name: str, rules: CloudRules) -> Iterator[Problem]:
    pool = stack.pools[name]
    if not rules.pool_name.fits(name):
        rule = f"is no name that {rules.title} takes for a pool"
        yield Problem(("pools", name), rule, f"use {rules.pool_name.write}")
    machine = machine_of(stack, pool)
    if pool.machine is None:
        rule = f"is to be made on {rules.title}, and does not say of which machine"
        yield Problem(("pools", name), rule, "write machine, and describe it under machines if the catalogue lacks it")
    elif machine and machine.cloud not in {"", stack.cluster.cloud}:
        rule = f"is a machine of {clouds()[machine.cloud].title}, and the cluster is one of {rules.title}"
        own = [known for cloud, known in machines() if cloud == stack.cluster.cloud]
        yield Problem(("pools", name, "machine"), rule, nearest(pool.machine, own), pool.machine)
    elif machine:
        yield from _machine(name, pool, machine, rules)
        yield from _network(stack, name, machine, rules)
    for index, zone in enumerate(pool.zones):
        if wrong := stack.cluster.zone_rule(zone):
            yield Problem(("pools", name, "zones", index), *wrong, zone)
    yield from _disk(name, pool, rules)
    yield from _labels(name, pool, rules)


def _machine(name: str, pool: Pool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    if pool.cpu is not None or pool.memory is not None:
        rule = f"says what {machine.name} has, beside the machine itself"
        yield Problem(("pools", name), rule, "leave cpu and memory out, or describe the machine under machines")
    if rules.names_gpus and machine.gpus and machine.accelerator is None:
        rule = f"has GPUs for which {rules.title} has a name of its own, and nothing says it"
        mend = f"write accelerator under machines.{machine.name}, such as nvidia-h100-80gb"
        yield Problem(("pools", name, "machine"), rule, mend, machine.name)


def _disk(name: str, pool: Pool, rules: CloudRules) -> Iterator[Problem]:
    if pool.disk.size < _LEAST_DISK:
        rule = "is too small for the images of GPU work, whose pods would be evicted"
        mend = f"give it at least {format_bytes(_LEAST_DISK)}"
        yield Problem(("pools", name, "disk", "size"), rule, mend, format_bytes(pool.disk.size))
    if pool.disk.key and not rules.disk_key:
        rule = f"is a key of one pool's disks, and {rules.title} has one for the whole cluster"
        yield Problem(("pools", name, "disk", "key"), rule, "leave it out, and give the cluster its key", pool.disk.key)


_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_KUBELETS_OWN: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
"""Domains of Kubernetes' under which a node may label itself:
https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction."""


def _labels(name: str, pool: Pool, rules: CloudRules) -> Iterator[Problem]:
    said = [("labels", key, key) for key in pool.labels]
    said += [("taints", index, taint.key) for index, taint in enumerate(pool.taints)]
    for section, place, key in said:
        domain = key.rpartition("/")[0]
        theirs = _under(domain, _KUBERNETES) and not _under(domain, _KUBELETS_OWN)
        if theirs or _under(domain, rules.own_labels):
            rule = f"has a key under {domain}/, which no node of {rules.title} may be given by its pool"
            yield Problem(("pools", name, section, place), rule, "choose a domain of your own, such as example.com/")
    for key, value in pool.labels.items():
        if not value and not rules.empty_labels:
            rule = f"has no value, which {rules.title} does not take"
            yield Problem(("pools", name, "labels", key), rule, 'write one, such as "true"')


def _under(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _network(stack: Stack, name: str, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    pool, network = stack.pools[name], machine.network
    fabric = network.fabric if network else None
    if pool.fabric and fabric is None:
        rule = f"asks for a network between GPUs that {machine.name} does not have"
        yield Problem(("pools", name, "fabric"), rule, "leave it out, or choose a machine that has one")
    elif pool.fabric and fabric not in rules.fabrics:
        rule = f"asks for {fabric}, which is not set up on {rules.title}"
        yield Problem(("pools", name, "fabric"), rule, f"leave it out; set up here: {', '.join(rules.fabrics)}")
    elif pool.fabric and network and fabric and (lacking := stack.cluster.fabric_rule(fabric, network.interfaces)):
        yield Problem(("pools", name, "fabric"), *lacking)
    if pool.compact and pool.capacity.kind not in rules.compact:
        rule = f"asks for nodes close to each other, which {rules.title} does not promise with {pool.capacity.kind}"
        mend = f"leave it out; it goes with {', '.join(rules.compact)}"
        yield Problem(("pools", name, "compact"), rule, mend)
    elif pool.compact and rules.compact_zones and len(pool.zones) not in rules.compact_zones:
        rule = f"asks for nodes close to each other, which {rules.title} takes for one zone alone"
        yield Problem(("pools", name, "compact"), rule, f"write it under pools.{name}.zones")


def _somebody_elses(name: str, pool: Pool) -> Iterator[Problem]:
    """A switch that nobody reads would only seem to do something."""
    for key, said in (("zones", pool.zones), ("compact", pool.compact), ("fabric", pool.fabric)):
        if said:
            rule = "says how nodes are made, and the nodes of an existing cluster are somebody else's"
            yield Problem(("pools", name, key), rule, "leave it out, or name the cloud under cluster.cloud")
    if pool.disk != type(pool.disk)():
        rule = "says how nodes are made, and the nodes of an existing cluster are somebody else's"
        yield Problem(("pools", name, "disk"), rule, "leave it out, or name the cloud under cluster.cloud")


def _capacity(stack: Stack, name: str, title: str, rule: CapacityRule) -> Iterator[Problem]:
    pool, place = stack.pools[name], ("pools", name, "capacity")
    kind = pool.capacity.kind
    if rule.refused:
        yield Problem(place, f"is not there: {rule.refused}", rule.instead or "use another", kind)
        return
    if pool.machine and pool.machine.startswith(rule.machines_without):
        broken = f"cannot be had for {pool.machine} on {title}"
        yield Problem(place, broken, "use on-demand, or another machine", kind)
    if pool.capacity.kind in {"reserved", "capacity-block"}:
        reservation = getattr(pool.capacity, "reservation", "")
        if rule.reservation and not rule.reservation.fits(reservation):
            mend = f"write {rule.reservation.write}"
            yield Problem((*place, "reservation"), f"names no reservation of {title}", mend, reservation)
    if rule.zones is not None and len(pool.zones) != rule.zones and stack.cluster.NODES_MADE:
        there = f"{len(pool.zones)} zones" if pool.zones else "no zone"
        broken = f"is bought in {rule.zones} zone, and the pool names {there}"
        yield Problem(
            ("pools", name, "capacity"), broken, f"write the reservation's zone under pools.{name}.zones", kind
        )
    if rule.min is not None and pool.nodes.min != rule.min:
        broken = f"nodes are always there, and {kind} brings nodes only when they are asked for"
        yield Problem(("pools", name, "nodes", "min"), broken, f"write {rule.min}", str(pool.nodes.min))
    longest = getattr(pool.capacity, "max_run", 0)
    if rule.longest is not None and longest > rule.longest:
        broken = f"is longer than a node of {kind} may live on {title}"
        yield Problem((*place, "maxRun"), broken, f"write {rule.longest / _DAY:g}d or less", f"{longest / _DAY:g}d")


def _announced(flavor: Flavor) -> Iterator[Problem]:
    """A queue asks for nodes of one class for the whole flavor."""
    first = flavor.pools[0]
    for pool in flavor.pools[1:]:
        if pool.provisioning != first.provisioning:
            rule = (
                f"is bought otherwise than pool {first.name} ({first.capacity}) of the same flavor, and a queue either"
                f" asks for all nodes of {flavor.name} in the same words, or for none"
            )
            yield Problem(("pools", pool.name, "capacity"), rule, "give the pools different flavors", pool.capacity)


def _system(stack: Stack) -> Iterator[Problem]:
    creation = stack.cluster.creation
    if creation is None:
        return
    place = ("cluster", "create", "system", "machine")
    machine = find_machine(creation.system.machine, service_of(stack.cluster))
    own = [known for (cloud, known), row in machines().items() if cloud == service_of(stack.cluster) and not row.gpus]
    if machine is None:
        title = clouds()[service_of(stack.cluster)].title
        rule = f"is no machine of {title} in the catalogue"
        yield Problem(place, rule, nearest(creation.system.machine, own), creation.system.machine)
    elif machine.gpus:
        rule = "has GPUs, which the cluster's own pods would only block"
        yield Problem(place, rule, f"choose one without: {', '.join(own)}", creation.system.machine)
