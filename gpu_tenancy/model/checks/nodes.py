"""Checks of node pools against their cloud: unsupported options, and missing ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic.alias_generators import to_snake

from gpu_tenancy.base.problems import Problem, listed, unknown
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.model.catalogue import Machine, find_machine, machines
from gpu_tenancy.model.catalogue.clouds import CloudRules, clouds, fixed_prices
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.catalogue.storage import storage_services
from gpu_tenancy.model.checks import pools
from gpu_tenancy.model.checks.fabric import driver_problems
from gpu_tenancy.model.plan.cluster import fixed_tags
from gpu_tenancy.model.plan.needs import has_claims
from gpu_tenancy.model.plan.pools import MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL, ResolvedPool, uses_local_disks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import stored
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Pool

_LEAST_DISK: Final = 50 * 2**30
"""An NVIDIA image with a training framework needs more; pods would be evicted because of disk pressure."""


def node_problems(tree: Tree) -> Iterator[Problem]:
    """Options of pools that the stack's cloud does not support, and missing ones."""
    stack = tree.stack
    service = service_of(stack.cluster)
    if service not in clouds():
        known = (name for name in clouds() if name != stack.cluster.cloud)
        yield Problem(("cluster", "provider"), *unknown("provider", service, known))
        return
    rules = clouds()[service]
    if stack.cluster.creation:
        yield from _system(stack.cluster.creation.system.machine, service)
    yield from _prices(stack, service)
    yield from _tags(stack, rules)
    for name, pool in tree.pools.items():
        if stack.cluster.NODES_MADE:
            yield from _made(pool, rules)
            yield from pools.empty_pool_problems(pool, rules)
        elif service == stack.cluster.cloud:
            yield from (replace(problem, about=(("cluster",),)) for problem in _somebody_elses(name, pool.pool))
        if pool.pool.alternatives:
            yield from _alternatives(pool, rules)
        yield from pools.capacity_problems(pool, rules)
    yield from _apart(tree, rules)
    for flavor in tree.flavors.values():
        first = flavor.pools[0]
        for pool in flavor.pools[1:]:
            if pool.provisioning != first.provisioning:
                rule = (
                    f"differs from pool {first.name} ({first.capacity}) of the same flavor {flavor.name}, but Kueue"
                    " requests all nodes of a flavor in the same way"
                )
                place, fix = ("pools", pool.name, "capacity"), "set different flavors for the pools"
                yield Problem(place, rule, fix, pool.capacity)
    yield from driver_problems(tree, rules)


def _apart(tree: Tree, rules: CloudRules) -> Iterator[Problem]:
    """Pools of a flavor in different zones, whose pods use the network between GPUs."""
    firsts: dict[str, ResolvedPool] = {}
    for pool in (pool for pool in tree.pools.values() if pool.fabric and rules.fabric_zone):
        first = firsts.setdefault(pool.flavor, pool)
        zones, others = (set(one.cluster.node_zones(one.pool.zones)) for one in (pool, first))
        if zones and others and zones != others:
            rule = f"differs from the zone of pool {first.name} of the same flavor, but {pool.fabric} connects only one"
            fix = "set the same zone, or different flavors"
            yield Problem(("pools", pool.name, "zones"), f"{rule} zone", fix, ", ".join(sorted(zones)))


def _prices(stack: Stack, service: str) -> Iterator[Problem]:
    """Machines are priced by the hour, classes of storage by size."""
    claims = [claim for team in stack.teams.values() for _, claim in stored(team)]
    classes = {*storage_services().get(service, {}), *(claim.storage_class for claim in claims if claim.storage_class)}
    own = [*stack.machines, *fixed_prices().get(service, {})]
    for name, price in stack.prices.items():
        place = ("prices", name)
        if name in classes and price.gib_month is None:
            yield Problem(place, "is storage, whose price is for a GiB in a month", "set gibMonth", name)
        elif name in classes and (price.on_demand or price.spot):
            yield Problem(place, "is storage, which has no price per hour", "remove onDemand and spot", name)
        elif name not in classes and name not in own and find_machine(name) is None:
            known = [*own, *(machine for cloud, machine in machines() if service in {cloud, "existing"}), *classes]
            command = pools.machines_command(service)
            yield Problem(place, *unknown("machine type or class of storage", name, known, command))
        elif name not in classes and price.gib_month is not None:
            yield Problem(place, "is a machine type, which has no price for a GiB", "remove gibMonth", name)


def _made(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    name, pool, machine, cloud = resolved.name, resolved.pool, resolved.machine, resolved.cluster.cloud
    if not rules.pool_name.fits(name):
        yield Problem(("pools", name), f"is not a valid pool name on {rules.title}", f"use {rules.pool_name.write}")
    if pool.machine is None:
        rule = f"has no machine type, which {rules.title} needs to create the pool"
        yield Problem(("pools", name), rule, "set machine; if it is not in the catalogue, add it under machines")
    elif machine and machine.cloud not in {"", cloud}:
        rule = f"is a machine type of {clouds()[machine.cloud].title}, but the cluster is on {rules.title}"
        of_cloud = {other: row for (of, other), row in machines().items() if of == cloud}
        alike = [other for other, row in of_cloud.items() if (row.gpu, row.gpus) == (machine.gpu, machine.gpus)]
        known = listed(pool.machine, alike or of_cloud, pools.machines_command(cloud))
        fix = f"use a machine type of {rules.title}, such as {known}"
        yield Problem(("pools", name, "machine"), rule, fix, pool.machine)
    elif machine:
        yield from _machine(name, pool, machine, rules)
        yield from _network(resolved, machine, rules)
        local, images = uses_local_disks(resolved.cluster, machine), pool.image_disk
        if images and (wrong := resolved.cluster.image_disk_rule(images, pool.driver, local_disks=local)):
            yield Problem(("pools", name, "imageDisk"), *wrong, images)
        yield from pools.zone_problems(resolved, machine, rules)
        yield from pools.placement_problems(resolved, machine, rules)
    for index, zone in enumerate(pool.zones):
        if wrong := resolved.cluster.zone_rule(zone):
            yield Problem(("pools", name, "zones", index), *wrong, zone, about=(("cluster",),))
    yield from _disk(name, pool, rules)
    yield from _labels(resolved, rules)


def _machine(name: str, pool: Pool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    if pool.cpu is not None or pool.memory is not None:
        rule = f"sets cpu or memory, which machine type {machine.name} determines"
        yield Problem(("pools", name), rule, "remove cpu and memory, or override the machine type under machines")
    if pool.numa and machine.gpus < _FEWEST_ALIGNED:
        rule = f"is for several GPUs, and machine type {machine.name} has {machine.gpus or 'none'}"
        yield Problem(("pools", name, "numa"), rule, "remove it", pool.numa)
    if rules.names_gpus and machine.gpus and machine.accelerator is None:
        rule = f"has GPUs, but no accelerator type, which {rules.title} needs"
        fix = f"set machines.{machine.name}.accelerator, such as nvidia-h100-80gb"
        yield Problem(("pools", name, "machine"), rule, fix, machine.name)
    if machine.local_disk and rules.local_disk and machine.local_disk % rules.local_disk:
        rule = f"is no multiple of {format_bytes(rules.local_disk)}, the size of a local disk on {rules.title}"
        fix = "set all local disks of the machine together"
        yield Problem(("machines", machine.name, "localDisk"), rule, fix, format_bytes(machine.local_disk))


def _disk(name: str, pool: Pool, rules: CloudRules) -> Iterator[Problem]:
    if pool.disk.size < _LEAST_DISK:
        rule = "is too small for images of training frameworks: pods would be evicted because of disk pressure"
        fix = f"set {format_bytes(_LEAST_DISK)} or more"
        yield Problem(("pools", name, "disk", "size"), rule, fix, format_bytes(pool.disk.size))
    if pool.disk.key and not rules.disk_key:
        rule = f"is a disk key of one pool, but {rules.title} supports only one key for the whole cluster"
        fix = "remove it, and set the key of the cluster (cluster.create.diskEncryptionSet)"
        yield Problem(("pools", name, "disk", "key"), rule, fix, pool.disk.key)


_FEWEST_ALIGNED: Final = 2  # GPUs of a machine, of which a container can get some of another NUMA node
_PROGRAM: Final = "gpu-tenancy.dev"  # domain of this program's own labels and taints
_SHARING_LABELS: Final = frozenset({MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL})
_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_KUBELETS_OWN: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
"""Domains of Kubernetes in which a kubelet can set labels of its own node:
https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction."""


def _labels(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    name, pool, added = resolved.name, resolved.pool, resolved.bare.node_labels
    of_modes = {key for mode in rules.drivers.values() for key in mode.node_labels}
    keys: list[tuple[str, str | int, str]] = [("labels", key, key) for key in pool.labels]
    keys += [("taints", index, taint.key) for index, taint in enumerate(pool.taints)]
    for section, place, key in keys:
        domain = key.rpartition("/")[0]
        of_kubelet = section == "labels" and _under(domain, _KUBELETS_OWN)
        if key in added:
            if section == "labels" and pool.labels[key] != added[key]:
                rule = f"contradicts the label that nodes of this pool have already ({key}={added[key]})"
                yield Problem(("pools", name, section, place), rule, "remove it", pool.labels[key])
        elif domain == _PROGRAM or key in _SHARING_LABELS | of_modes:
            rule = "is a label or taint that this program sets for the options of a pool"
            yield Problem(
                ("pools", name, section, place), rule, "remove it, and set driver or sharing of the pool", key
            )
        elif (_under(domain, _KUBERNETES) and not of_kubelet) or _under(domain, rules.own_labels):
            rule = f"uses the reserved domain {domain}/, which {rules.title} rejects for node pools"
            yield Problem(("pools", name, section, place), rule, "use your own domain, such as example.com/")
    for key, value in pool.labels.items():
        if not value and not rules.empty_labels:
            rule = f"has no value, which {rules.title} requires"
            yield Problem(("pools", name, "labels", key), rule, 'set a value, such as "true"')


def _tags(stack: Stack, rules: CloudRules) -> Iterator[Problem]:
    fixed = fixed_tags(stack.environment)
    for key, value in getattr(stack.cluster, "tags", dict[str, str]()).items():
        if value != fixed.get(key, value):
            rule = f"contradicts the tag that all resources have ({key}={fixed[key]})"
            yield Problem(("cluster", "tags", key), rule, "remove it", value)
        elif key.startswith(rules.own_tags):
            rule = f"begins like a tag of the cloud itself ({', '.join(rules.own_tags)})"
            yield Problem(("cluster", "tags", key), rule, "rename it", key)


def _under(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _network(resolved: ResolvedPool, machine: Machine, rules: CloudRules) -> Iterator[Problem]:
    pool, network, place = resolved.pool, machine.network, ("pools", resolved.name, "fabric")
    if not pool.fabric:
        return
    fabric = network.fabric if network else None
    if network is None or fabric is None:
        rule = f"machine type {machine.name} has no network between GPUs"
        yield Problem(place, rule, "remove it, or use a machine type with one")
    elif fabric not in rules.fabrics:
        rule = f"{fabric} is not supported on {rules.title} (supported: {', '.join(rules.fabrics) or 'none'})"
        yield Problem(place, rule, "remove it")
    elif pool.fabric == "dranet":
        yield from _dranet(resolved, fabric)
    elif lacking := resolved.cluster.fabric_rule(fabric, network.interfaces):
        yield Problem(place, *lacking, about=(("cluster", "fabricNetworks"),))


def _dranet(resolved: ResolvedPool, fabric: str) -> Iterator[Problem]:
    """Interfaces that GKE would not attach, or that pods could not claim.

    https://docs.cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra: from 1.34.1-gke.1829001.
    """
    place, machine = ("pools", resolved.name, "fabric"), resolved.pool.machine
    if not fabrics()[fabric].dranet:
        of = ", ".join(name for name, row in fabrics().items() if row.dranet)
        rule = f"is only for machine types of GKE with {of}, but {machine} has {fabric}"
        yield Problem(place, rule, "set fabric: true", "dranet")
    elif not has_claims(resolved.cluster):
        rule = f"requires ResourceClaims, but Kubernetes {resolved.cluster.kubernetes} is older than 1.34"
        yield Problem(place, rule, "set cluster.create.version: 1.34 or later", "dranet")
    elif resolved.pool.sharing:
        rule = "is not possible with sharing: only pods with all GPUs of a node claim its interfaces"
        yield Problem(place, rule, "remove sharing or fabric", "dranet")


def _somebody_elses(name: str, pool: Pool) -> Iterator[Problem]:
    """Settings without effect, because this program does not create the nodes."""
    for key in ("zones", "compact", "placementPolicy", "fabric", "numa", "imageDisk"):
        if getattr(pool, to_snake(key)):
            yield Problem(("pools", name, key), *_NO_EFFECT)
    if pool.disk != type(pool.disk)():
        yield Problem(("pools", name, "disk"), *_NO_EFFECT)


_NO_EFFECT: Final = (
    "has no effect: the nodes of an existing cluster are not created here",
    "remove it, or set cluster.cloud to the cloud",
)


def _alternatives(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    """Other machine types of a spot pool: pods must fit on each of them, and see the same GPUs."""
    pool, place = resolved.pool, ("pools", resolved.name, "alternatives")
    if not resolved.cluster.NODES_MADE:
        yield Problem(place, *_NO_EFFECT)
        return
    if not rules.alternatives:
        yield Problem(place, f"is not supported on {rules.title}", "remove it, or add a pool of the same flavor")
        return
    if pool.capacity.kind != "spot":
        yield Problem(place, "is only for spot nodes", "remove it, or set capacity: spot", pool.capacity.kind)
    if pool.fabric:
        yield Problem(place, "is not supported with fabric, which differs by machine type", "remove it, or fabric")
    machine, service = resolved.machine, service_of(resolved.cluster)
    for index, text in enumerate(pool.alternatives):
        other, at = find_machine(text, service), (*place, index)
        if other is None:
            known = (of_cloud for cloud, of_cloud in machines() if cloud == service)
            yield Problem(at, *unknown(f"{rules.title} machine type", text, known, pools.machines_command(service)))
        elif machine and any(getattr(other, key) != getattr(machine, key) for key in ("gpu", "gpus", "architecture")):
            has = f"{machine.gpus} {machine.gpu} GPUs" if machine.gpus else f"no GPUs and {machine.architecture} CPUs"
            yield Problem(at, f"differs from {pool.machine}, which has {has}", "use a machine type with the same", text)
        elif machine and (other.cpu < machine.cpu or other.memory < machine.memory):
            rule = f"has less CPU or memory than {pool.machine}, which is what pods are planned for"
            yield Problem(at, rule, f"set machine to {text}, and move {pool.machine} to alternatives", text)


def _system(name: str, service: str) -> Iterator[Problem]:
    place, command = ("cluster", "create", "system", "machine"), pools.machines_command(service)
    without_gpus = [other for (of, other), row in machines().items() if of == service and not row.gpus]
    machine = find_machine(name, service)
    if machine is None:
        yield Problem(place, *unknown(f"{clouds()[service].title} machine type", name, without_gpus, command))
    elif machine.gpus:
        fix = f"use a machine type without GPUs: {listed(name, without_gpus, command)}"
        yield Problem(place, "has GPUs, which system nodes do not need", fix, name)
