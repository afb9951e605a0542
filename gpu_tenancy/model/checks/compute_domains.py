"""Checks of jobs with a ComputeDomain: machines, driver, and pods that could never share memory."""

from collections.abc import Iterator, Mapping

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.plan.compute_domains import is_connected, most_nodes, serves_domains
from gpu_tenancy.model.plan.needs import has_claims, there
from gpu_tenancy.model.plan.pods import PodSize, parts, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.workloads import Training


def domain_problems(tree: Tree) -> Iterator[Problem]:
    """Jobs with `computeDomain` whose pods would never run, or not share memory."""
    for team, spec in tree.stack.teams.items():
        for name, job in spec.training.items():
            if job.compute_domain:
                yield from _job(tree, ("teams", team, "training", name), job)


def _job(tree: Tree, path: Path, job: Training) -> Iterator[Problem]:
    place, roles = (*path, "computeDomain"), parts(tree, str(path[1]), job)
    if tree.stack.dispatches:
        rule = "is not supported with MultiKueue, which copies no ComputeDomain to a worker"
        yield Problem(place, rule, "remove it, or add the job to the stack of a worker", about=(("multikueue",),))
        return
    yield from _driver(tree, place)
    sizes = {name: pod_size(tree, str(path[1]), part) for name, part in roles.items() if part.gpus}
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


def _least(job: Training, role: str) -> int:
    return job.workers.min if job.elastic else job.pods_by_role[role]


def _driver(tree: Tree, place: Path) -> Iterator[Problem]:
    stack = tree.stack
    if not has_claims(stack.cluster) and stack.cluster.creation:
        rule = f"requires ResourceClaims, but Kubernetes {stack.cluster.creation.version} is older than 1.34"
        yield Problem(place, rule, "set cluster.create.version: 1.34 or later", about=(("cluster", "create"),))
    elif there(tree, "dra_driver") and not serves_domains(tree):
        rule = "requires compute domains of NVIDIA's DRA driver, which its values disable"
        fix = "remove operators.draDriver.values.resources.computeDomains"
        yield Problem(place, rule, fix, about=(("operators", "draDriver"),))


def _pods(tree: Tree, path: Path, job: Training, sizes: Mapping[str, PodSize]) -> Iterator[Problem]:
    """Problems of the pods with GPUs, by role: their flavor, their number, and the GPUs of each."""
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
    pods, together = sum(job.pods_by_role[name] for name in sizes), job.together is not None
    if problem := _domain(tree, place, flavor, pods, together=together):
        yield problem
    for name, size in sizes.items():
        yield from _gpus(path, job, name, size)


def _domain(tree: Tree, place: Path, flavor: str, pods: int, *, together: bool) -> Problem | None:
    """More pods than NVLink connects nodes, or pods that could run on nodes that it does not connect."""
    nodes, job = most_nodes(tree.pools_of(flavor)), place[:-1]
    if nodes is None:
        return None
    rule = f"requires NVLink between all nodes of the job, but it connects at most {nodes} nodes of flavor {flavor}"
    if pods > nodes:
        fix = f"lower the {pods} pods with GPUs to {nodes}, or remove it"
        return Problem(place, rule, fix, about=((*job, "workers"), (*job, "roles"), ("pools",)))
    total = sum(pool.max_nodes for pool in tree.flavors[flavor].pools)
    if total > nodes and not together:
        fix = "set together: rack and the topology of its pools, or together: anywhere to share what NVLink connects"
        return Problem(place, f"{rule}, which has {total}", fix, about=((*job, "together"), ("pools",)))
    return None


def _gpus(path: Path, job: Training, role: str, size: PodSize) -> Iterator[Problem]:
    resource = size.flavor.resource
    gpus, node = (amounts.get(resource or "", 0) for amounts in (size.amounts, size.flavor.node))
    if gpus < node:
        own = role in job.roles and job.roles[role].gpus is not None
        place = (*path, "roles", role, "gpus") if own else (*path, "gpus")
        rule = (
            f"is less than the {node} GPUs of a node, which has one channel, so only one pod of the job can run there"
        )
        about = ((*path, "computeDomain"), ("pools",))
        yield Problem(place, rule, f"set {node}, or remove computeDomain", str(gpus), about)
