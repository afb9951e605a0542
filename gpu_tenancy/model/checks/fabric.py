"""Checks of drivers, GPU sharing, and the network between nodes."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.base.problems import Path, Problem, unknown
from gpu_tenancy.model.catalogue import find_gpu
from gpu_tenancy.model.catalogue.clouds import CloudRules, SharingRule, rules_of
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.environment import Environment, Flavor
from gpu_tenancy.model.plan.fabric import is_connected, most_nodes, serves_domains
from gpu_tenancy.model.plan.needs import has_claims, installed_by, there
from gpu_tenancy.model.plan.operators.gpus import clashes
from gpu_tenancy.model.plan.pods import PodSize, parts, placed_roles, pod_size
from gpu_tenancy.model.plan.pools import PoolSupply, ResolvedPool, cloud_labels
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.pools import Level, Mig
from gpu_tenancy.model.spec.workloads import Server, Training

_GROUP: Final = 2  # pod sets that Kueue can group: `model.plan.pods.grouped`


def topology_problems(tree: Tree) -> Iterator[Problem]:
    """Topologies of pools that Kueue cannot use, and workloads that request a level that their flavor does not have."""
    for flavor in tree.flavors.values():
        for pool in flavor.pools:
            if pool.levels != flavor.levels:
                rule = f"differs from that of pool {flavor.pools[0].name} of the same flavor"
                fix = "set the same topology for both, or different flavors"
                yield Problem(("pools", pool.name, "topology"), rule, fix, about=(("pools",),))
            elif pool.levels and not tree.stack.dispatches:  # The stacks of workers have their own problems.
                yield from _pool(tree, flavor, pool)
    for _, path, workload in workloads(tree):
        if isinstance(workload, Server) or workload.scheduler == "kueue":
            yield from _workload(tree, path, workload)


def _pool(tree: Tree, flavor: Flavor, pool: PoolSupply) -> Iterator[Problem]:
    place, spec = ("pools", pool.name, "topology"), tree.stack.pools[pool.name]
    if spec.topology and spec.topology.source == "cloud" and cloud_labels(spec, tree.pools[pool.name].rules) is None:
        rules = rules_of(service_of(tree.stack.cluster))
        listed = ", ".join(f"{machine}*" for rule in rules.topologies for machine in rule.machines)
        rule = f"{rules.title} sets no known labels of blocks and racks on nodes of {spec.machine or 'this pool'}"
        known = f" (known: {listed})" if listed else ""
        fix = "set topology: {block: LABEL, rack: LABEL} if your nodes have such labels, or topology: node"
        yield Problem(place, rule + known, fix)
    if (others := pool.max_nodes - pool.min_nodes) > 0 and pool.provisioning is None:
        rule = f"Kueue admits pods only to nodes that exist, so the autoscaler would never add the other {others} nodes"
        fix = f"set pools.{pool.name}.nodes to one number, use queued capacity, or remove topology"
        yield Problem(place, rule, fix, about=(("pools", pool.name, "nodes"),))
    if not flavor.node_labels:
        rule = f"Kueue requires a node label of flavor {flavor.name}, by which it finds the nodes"
        yield Problem(place, rule, f"add a label under pools.{pool.name}.labels")


def _workload(tree: Tree, path: Path, workload: ResolvedServer | Training) -> Iterator[Problem]:
    level = workload.together.level if workload.together else None
    roles = parts(tree, str(path[1]), workload)
    placed = {name: pod_size(tree, str(path[1]), roles[name]) for name in placed_roles(roles)}
    sizes = {name: size for name, size in placed.items() if size}
    if workload.together is None or level is None or len(sizes) < len(placed):
        return
    flavors = {size.flavor.name for size in sizes.values()}
    with_leader = len(sizes) == _GROUP and min(workload.pods_by_role[name] for name in sizes) == 1 and len(flavors) == 1
    if len(placed) > 1 and not with_leader:
        names = ", ".join(sizes)
        rule = f"Kueue places two roles of one flavor together, of which one has one pod, but the job has {names}"
        fix, about = "remove together, or change roles", ((*path, "roles"),)
        yield Problem((*path, "together"), rule, fix, level, about=about)
        return
    for size in sizes.values():
        alike = sum(_least(workload, name) for name, other in sizes.items() if other == size)
        yield from _role(tree, path, workload, level, (size, alike))


def _least(workload: Server | Training, role: str) -> int:
    """The number of pods of a role that Kueue places together: of a group, or the minimum of an elastic job."""
    if isinstance(workload, Training) and workload.elastic:
        return workload.workers.min
    return workload.pods_by_role[role]


def _role(
    tree: Tree, path: Path, workload: ResolvedServer | Training, level: Level, pods: tuple[PodSize, int]
) -> Iterator[Problem]:
    size, number = pods
    flavor, place = size.flavor, (*path, "together")
    known = [item.level for item in flavor.levels if item.level]
    if level not in known:
        has = f"has only {', '.join(known)}" if known else "has no topology"
        rule = f"nodes of flavor {flavor.name} have no level {level}: the flavor {has}"
        fix = f"set pools.{flavor.pools[0].name}.topology, or remove together"
        yield Problem(place, rule, fix, level, about=(("pools",),))
        return
    on_node = min(flavor.node.get(key, 0) // amount for key, amount in size.amounts.items() if amount)
    domains = [tree.all_pools[pool.name].machine for pool in flavor.pools]
    nodes = [machine.domain for machine in domains if machine and machine.domain]
    most = on_node if level == "node" else None
    if level == "rack" and len(nodes) == len(domains):
        most = max(nodes) * on_node  # Else the number of nodes of a rack is unknown.
    if workload.together and workload.together.required and most is not None and number > most:
        noun, key = ("group", "nodes") if isinstance(workload, Server) else ("job", "workers")
        rule = f"one {level} of flavor {flavor.name} has room for {most} of the {noun}'s {number} pods"
        fix = f"lower {key} to {most}, or set together: {{preferred: {level}}}"
        yield Problem(place, f"{rule}, so the {noun} would stay pending", fix, level, about=(("pools",),))


def domain_problems(tree: Tree) -> Iterator[Problem]:
    """Jobs with `computeDomain` whose pods would never run, or not share memory."""
    for team, spec in tree.stack.teams.items():
        for name, job in spec.training.items():
            if job.compute_domain:
                yield from _job(tree, ("teams", team, "training", name), job)


def _job(tree: Tree, path: Path, job: Training) -> Iterator[Problem]:
    place, team, stack = (*path, "computeDomain"), str(path[1]), tree.stack
    if stack.dispatches:
        rule = "is not supported with MultiKueue, which copies no ComputeDomain to a worker"
        yield Problem(place, rule, "remove it, or add the job to the stack of a worker", about=(("multikueue",),))
        return
    if not has_claims(stack.cluster):
        rule = f"requires ResourceClaims, but Kubernetes {stack.cluster.kubernetes} is older than 1.34"
        key = ("cluster", "create", "version") if stack.cluster.creation else ("cluster", "version")
        yield Problem(place, rule, f"set {'.'.join(key)}: 1.34 or later", about=(key,))
    elif there(tree, "dra_driver") and not serves_domains(tree):
        rule = "requires compute domains of NVIDIA's DRA driver, which its values disable"
        fix = "remove operators.draDriver.values.resources.computeDomains"
        yield Problem(place, rule, fix, about=(("operators", "draDriver"),))
    sizes = {name: pod_size(tree, team, part) for name, part in parts(tree, team, job).items() if part.gpus}
    known = {name: size for name, size in sizes.items() if size}
    if len(known) < len(sizes):
        return  # The flavor is ambiguous, which another check reports.
    pods = sum(_least(job, name) for name in known)
    if pods < 2:  # noqa: PLR2004 - machines that share memory
        rule = f"needs two or more pods with GPUs, which share memory between machines, but the job has {pods}"
        fix = "remove it" if job.roles else "set workers to 2 or more, or remove it"
        yield Problem(place, rule, fix, about=((*path, "workers"), (*path, "roles")))
        return
    yield from _pods(tree, path, job, known)


def _pods(tree: Tree, path: Path, job: Training, sizes: Mapping[str, PodSize]) -> Iterator[Problem]:
    place = (*path, "computeDomain")
    names = list(dict.fromkeys(size.flavor.name for size in sizes.values()))
    if len(names) > 1:
        rule = f"requires that all pods with GPUs run on one flavor, but the job uses {' and '.join(names)}"
        yield Problem(place, rule, "set one flavor, or remove it", about=((*path, "roles"),))
        return
    (flavor,) = names
    if not is_connected(tree.pools_of(flavor)):
        rule = f"requires NVLink between machines, which nodes of flavor {flavor} do not have"
        fix = "use a flavor of GB200 or GB300 machines without sharing, or remove it"
        yield Problem(place, rule, fix, about=(("pools",),))
        return
    yield from _domain(tree, path, flavor, job, sum(job.pods_by_role[name] for name in sizes))
    for name, size in sizes.items():
        gpus, node = (amounts.get(size.flavor.resource or "", 0) for amounts in (size.amounts, size.flavor.node))
        if gpus < node:
            own = name in job.roles and job.roles[name].gpus is not None
            of_role = (*path, "roles", name, "gpus") if own else (*path, "gpus")
            rule = f"is less than the {node} GPUs of a node, which has one channel"
            fix, about = f"set {node}, or remove computeDomain", (place, ("pools",))
            yield Problem(of_role, f"{rule}, so only one pod of the job can run there", fix, str(gpus), about)


def _domain(tree: Tree, path: Path, flavor: str, job: Training, pods: int) -> Iterator[Problem]:
    """More pods than NVLink connects nodes, or pods that could run on unconnected nodes."""
    nodes, place = most_nodes(tree.pools_of(flavor)), (*path, "computeDomain")
    if nodes is None:
        return
    rule = f"requires NVLink between all nodes of the job, but it connects at most {nodes} nodes of flavor {flavor}"
    total = sum(pool.max_nodes for pool in tree.flavors[flavor].pools)
    if pods > nodes:
        fix = f"lower the {pods} pods with GPUs to {nodes}, or remove it"
        yield Problem(place, rule, fix, about=((*path, "workers"), (*path, "roles"), ("pools",)))
    elif total > nodes and job.together is None:
        fix = "set together: rack and the topology of its pools, or together: anywhere to share what NVLink connects"
        yield Problem(place, f"{rule}, which has {total}", fix, about=((*path, "together"), ("pools",)))


def driver_problems(tree: Tree, rules: CloudRules) -> Iterator[Problem]:
    """Driver modes and sharing of the pools that are unsupported, or conflict with each other."""
    for name, pool in tree.pools.items():
        place, driver = ("pools", name, "driver"), pool.pool.driver
        if driver and not pool.of_nvidia:
            yield Problem(place, "is a mode of the NVIDIA driver, but the pool has no NVIDIA GPUs", "remove it", driver)
        elif driver and driver not in rules.drivers:
            known = "; ".join(f"{mode} ({row.means})" for mode, row in rules.drivers.items())
            yield Problem(place, f"is not a driver mode of {rules.title}", f"use one of: {known}", driver)
        yield from _cut(pool, rules)
    conflicts = list(clashes(tree))
    for first, other in conflicts:
        modes = first.rules.drivers
        names = [pool.pool.driver or next(iter(modes)) for pool in (first, other)]
        rule = (
            f"needs other GPU Operator values than driver {names[0]} of pool {first.name}, but a cluster has one GPU"
            " Operator: the nodes of one pool would have no driver or no container runtime"
        )
        fix = f"set the same driver for both pools, or use two clusters ({names[0]}: {modes[names[0]].means})"
        yield Problem(("pools", other.name, "driver"), rule, fix, names[1], about=(("pools", first.name, "driver"),))
    if not conflicts:
        yield from _approved(tree, rules)
    for flavor in () if tree.stack.dispatches else tree.flavors.values():
        yield from _trust(tree, flavor)


def _approved(environment: Environment, rules: CloudRules) -> Iterator[Problem]:
    """Changed GPU Operator values remove the driver from running nodes, so the stack must confirm the mode."""
    confirmed, place = environment.stack.operators.driver, ("operators", "driver")
    if confirmed is not None and confirmed not in rules.drivers:
        yield Problem(place, *unknown(f"{rules.title} driver mode", confirmed, rules.drivers))
        return
    pool, usual = next(iter(environment.nvidia_pools), None), next(iter(rules.drivers))
    here = environment.stack.cluster.NODES_MADE and installed_by(environment, "gpu_operator") == "here"
    if here and pool and pool.mode and pool.mode.operator != rules.drivers[confirmed or usual].operator:
        name = pool.pool.driver or usual
        rule = f"needs other GPU Operator values than {confirmed or usual}"
        rule += ", and the change removes the driver from running nodes"
        fix = f"drain the nodes, then set operators.driver: {name} to confirm the change"
        yield Problem(("pools", pool.name, "driver"), rule, fix, name, about=(place,))


def _cut(resolved: ResolvedPool, rules: CloudRules) -> Iterator[Problem]:
    name, pool, mode, gpu = resolved.name, resolved.pool, resolved.mode, resolved.gpu
    if pool.sharing is None or mode is None or gpu is None:
        return  # Sharing without GPUs is reported by another check.
    way = pool.sharing.way
    place = ("pools", name, "sharing", way)
    if not resolved.of_nvidia:
        yield Problem(place, f"is only supported for NVIDIA GPUs, and {gpu} is not one", "remove sharing")
        return
    rule_of = resolved.sharing_rule
    if rule_of is None:
        able = [driver for driver, row in rules.drivers.items() if row.sharing(way)]
        rule = f"is not supported on {rules.title} with this driver mode ({mode.means})"
        if way == "mps" and mode.without_mps:
            rule += f": {mode.without_mps}"
        yield Problem(place, rule, f"set driver: {' or '.join(able)}" if able else "remove it")
    elif rule_of.gpus and gpu not in rule_of.gpus:
        rule = f"is supported on {rules.title} only for {', '.join(rule_of.gpus)}, and the pool has {gpu}"
        able = [driver for driver, row in rules.drivers.items() if (of := row.sharing(way)) and not of.gpus]
        yield Problem(place, rule, f"set driver: {' or '.join(able)}" if able else "remove it")
    if pool.sharing.pods and (lacking := resolved.cluster.time_slicing_rule()):
        yield Problem(place, *lacking)
    if rule_of and not rule_of.grows and pool.nodes.min != pool.nodes.max:
        rule = f"must be a fixed number: the autoscaler of {rules.title} does not add nodes with MIG partitions"
        able = [driver for driver, row in rules.drivers.items() if row.mig and row.mig.grows]
        other = f", or set driver: {' or '.join(able)}" if able else ""
        fix = f"set one number of nodes, such as {pool.nodes.max}{other}"
        yield Problem(("pools", name, "nodes"), rule, fix, f"{pool.nodes.min} to {pool.nodes.max} nodes")
    if pool.sharing.mig:
        yield from _profile(name, pool.sharing.mig, gpu, rule_of)


def _profile(name: str, mig: Mig, gpu: str, rule_of: SharingRule | None) -> Iterator[Problem]:
    known, profile = find_gpu(gpu), mig.profile
    if known is None or profile not in known.mig:
        return
    place, partitions = ("pools", name, "sharing", "mig"), known.mig[profile]
    if mig.partitions and partitions != mig.partitions:
        rule = f"partitions do not match {gpu}, which has {partitions} partitions of {profile}"
        yield Problem((*place, "partitions"), rule, "remove it", str(mig.partitions))
    slices = profile.partition("g.")[0]
    smallest = next(other for other in known.mig if other.partition("g.")[0] == slices)
    if rule_of and rule_of.least_memory and smallest != profile:
        rule = f"is not supported by the cloud for {gpu}: its only profile with {slices}g is {smallest}"
        yield Problem((*place, "profile"), rule, f"set {smallest}, or set driver: operator", profile)


def _trust(tree: Tree, flavor: Flavor) -> Iterator[Problem]:
    """Time slicing does not isolate memory, and MPS no faults, so teams that share a GPU must trust each other."""
    teams = sorted(team for team in tree.stack.teams if _reaches(tree, team, flavor))
    for pool in flavor.pools:
        sharing = tree.stack.pools[pool.name].sharing
        if sharing is None or sharing.mig:
            continue
        place = ("pools", pool.name, "sharing", sharing.way)
        for index, team in enumerate(sharing.trusting):
            if team not in tree.stack.teams:
                yield Problem((*place, "trusting", index), *unknown("team", team, tree.stack.teams))
        if len(teams) > 1 and set(teams) - set(sharing.trusting):
            without = "isolation of faults" if sharing.mps else "memory isolation"
            rule = f"pods of {', '.join(teams[:-1])} and {teams[-1]} share a GPU without {without}"
            fix = (
                f"use mig, give the flavor to one team, or confirm that the teams trust each other with"
                f" trusting: [{', '.join(teams)}]"
            )
            yield Problem(place, rule, fix, about=tuple(("teams", team) for team in teams))


def _reaches(tree: Tree, team: str, flavor: Flavor) -> bool:
    """Whether a team's pods can run on a flavor, through its queue or as gangs."""
    share = tree.team_shares.get(tree.queue_of(team), {}).get(flavor.name, {}).get(flavor.resource or "")
    queued = share is not None and (share.guaranteed > 0 or share.limit is None or share.limit > 0)
    return queued or flavor.name in tree.stack.teams[team].gangs
