"""Checks of workloads against their team: flavor, node size, LimitRange, queue, budgets and metrics."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts, add, format_amount
from gpu_tenancy.model.catalogue.fabrics import fabrics
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.fabric import lack, pod_fabric
from gpu_tenancy.model.plan.namespaces import needed
from gpu_tenancy.model.plan.notebooks import as_job
from gpu_tenancy.model.plan.pods import PodSize, choices, is_gang, limits, parts, pod_size
from gpu_tenancy.model.plan.queues import potential_available
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.signals import metric_name, monitor
from gpu_tenancy.model.resolve import ResolvedServer, ResolvedTeam
from gpu_tenancy.model.spec.workloads import Server, Training

_WAITING: Final = {CPU: 200, MEMORY: 256 * 2**20}
"""Requests and limits of the init container `wait-gcs-ready` of Ray's workers:
https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/common/pod.go."""
_COUNTED: Final = {
    "services": "Services of the team's servers and distributed jobs",
    "pods": "pods of the team's servers at their peak and its largest job",
    "jobs": "its servers or jobs of one kind",
}
"""What the stack itself creates, by key of `objects`."""
_RAY_NAME: Final = 47
"""Maximum length of a RayJob's name, above which KubeRay does not run it (`MaxRayJobNameLength` in
https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go)."""


def workload_problems(tree: Tree) -> Iterator[Problem]:
    """Workloads that would never run, or never scale."""
    for name, team in tree.stack.teams.items():
        for path, workload in workloads(name, team):
            yield from dict.fromkeys(_workload(tree, path, workload))  # Roles can have the same problem.
        yield from _objects(tree, name, team)


def workloads(name: str, team: ResolvedTeam) -> Iterator[tuple[Path, ResolvedServer | Training]]:
    """A team's servers and jobs, with their places in the stack."""
    for server, spec in team.serving.items():
        yield ("teams", name, "serving", server), spec
    for job, spec in team.training.items():
        yield ("teams", name, "training", job), spec


def _workload(tree: Tree, path: Path, workload: ResolvedServer | Training) -> Iterator[Problem]:
    name = str(path[1])
    yield from _priority(tree, path, workload)
    if isinstance(workload, ResolvedServer):
        yield from _metric(tree, path, workload)
    roles = parts(tree, name, workload)
    sizes: dict[str, PodSize] = {}
    for role, part in roles.items():
        own = isinstance(workload, Training) and role in workload.roles
        size = pod_size(tree, name, part)
        if size:
            sizes[role] = size
        yield from part_problems(tree, (*path, "roles", role) if own else path, part, size)
    if isinstance(workload, Training):
        yield from _ray(tree, path, workload)
        if len(sizes) == len(roles):
            yield from _whole_job(tree, path, workload, sizes)


def part_problems(tree: Tree, path: Path, workload: Server | Training, size: PodSize | None) -> Iterator[Problem]:
    """Pods that are alike: of a server, or of one role of a job."""
    if size is None:
        if workload.flavor is None:
            yield _no_flavor(tree, path, workload)
        return
    if workload.gpus and size.flavor.resource is None:
        yield Problem(
            (*path, "gpus"),
            f"GPUs requested, but flavor {size.flavor.name} has none",
            "set gpus: 0",
            str(workload.gpus),
        )
        return
    yield from _node(path, size)
    yield from _one_client(tree, path, workload, size.flavor)
    yield from _shared_memory(path, workload, size)
    yield from _fabric(tree, path, workload, size.flavor)
    yield from _container(tree, path, size)


def _one_client(tree: Tree, path: Path, workload: Server | Training, flavor: Flavor) -> Iterator[Problem]:
    """A container cannot be two clients of MPS: NVIDIA's device plugin rejects it on the node, after admission.

    https://github.com/NVIDIA/k8s-device-plugin/releases/tag/v0.15.0
    """
    pools = tree.stack.pools | dict(tree.stack.elsewhere)
    shared = [pool.name for pool in flavor.pools if (sharing := pools[pool.name].sharing) and sharing.mps]
    if workload.gpus > 1 and shared:
        rule = f"exceeds 1, the most that a container gets of GPUs shared with mps ({shared[0]})"
        fix = f"set gpus: 1, lower pools.{shared[0]}.sharing.mps, or use another flavor"
        yield Problem((*path, "gpus"), rule, fix, str(workload.gpus), about=(("pools", shared[0]),))


def _no_flavor(tree: Tree, path: Path, workload: Server | Training) -> Problem:
    name = str(path[1])
    flavors = choices(tree, name, workload)
    section = "gangs" if is_gang(workload) else "gpus"
    if flavors:
        rule, fix = "required key is missing: the team has several flavors", f"set flavor: {' or '.join(flavors)}"
    else:
        rule, fix = f"no flavor to run on: the team has no {section}", f"add quota under teams.{name}.{section}"
    return Problem((*path, "flavor"), rule, fix, about=(("teams", name), ("pools",)))


def _priority(tree: Tree, path: Path, workload: Server | Training) -> Iterator[Problem]:
    team = tree.stack.teams[str(path[1])]
    default = next((name for name, entry in tree.stack.priorities.items() if entry.default), None)
    priority = workload.priority or team.priority or default
    if team.compute.priorities and priority not in team.compute.priorities:
        listed = ", ".join(team.compute.priorities)
        yield Problem(
            (*path, "priority"),
            f"is not among the priority classes that the namespace allows ({listed})",
            f"set one of them, or add it to teams.{path[1]}.compute.priorities",
            priority or "no priority class",
            about=(("teams", str(path[1]), "compute"),),
        )


def _metric(tree: Tree, path: Path, server: ResolvedServer) -> Iterator[Problem]:
    seconds = server.scale_on.latency_p99
    if seconds is not None and metric_name(tree.stack.metrics, server) is None:
        yield Problem(
            (*path, "scaleOn", "latencyP99"),
            "needs a latency metric, but the stack defines none, so the autoscaler would never scale",
            "set metrics.histogram to the histogram (in seconds) that your servers expose, or metrics.latencyP99 to the"
            " pod metric (in seconds) that your adapter serves",
            f"{seconds:g}s",
            about=(("metrics",),),
        )
    if server.metrics_port is not None and monitor(tree, server) is None:
        missing = (
            "the server neither scales on latency nor sets metrics"
            if seconds is None
            else "metrics.histogram is not set"
        )
        yield Problem(
            (*path, "metricsPort"),
            f"has no effect: {missing}",
            "remove it" if seconds is None else "set metrics.histogram to what your servers expose, or remove it",
            str(server.metrics_port),
            about=(("metrics",),),
        )


def _shared_memory(path: Path, workload: Server | Training, size: PodSize) -> Iterator[Problem]:
    memory = size.amounts[MEMORY]
    if workload.shared_memory is not None and workload.shared_memory > memory:
        yield Problem(
            (*path, "sharedMemory"),
            f"exceeds the pod's memory ({format_amount(MEMORY, memory)}), so the pod could be OOM-killed",
            "lower it, or raise memory",
            format_amount(MEMORY, workload.shared_memory),
        )


def _fabric(tree: Tree, path: Path, workload: Server | Training, flavor: Flavor) -> Iterator[Problem]:
    """The network between GPUs: pods that ask for it and cannot use it, or that the namespace would reject."""
    reason = lack(tree, flavor.name, workload) if workload.gpus else "the pods have no GPUs"
    if workload.fabric and reason:
        yield Problem(
            (*path, "fabric"),
            f"is not possible: {reason}",
            "remove it, or change gpus or flavor",
            "true",
            about=(("pools",),),
        )
        return
    team = str(path[1])
    fabric = pod_fabric(tree, flavor.name, workload)
    level = tree.stack.teams[team].pod_security
    if fabric and fabrics()[fabric.name].pod_security == "privileged" and level != "privileged":
        yield Problem(
            (*path, "fabric"),
            f"{fabric.name} needs host paths in its pods, which the team's podSecurity rejects ({level})",
            f"set fabric: false, or set teams.{team}.podSecurity: privileged if the team may have access to the nodes",
            about=(("teams", team), ("pools",)),
        )


def _node(path: Path, size: PodSize) -> Iterator[Problem]:
    for resource, amount in size.amounts.items():
        of_node = size.flavor.node.get(resource, 0)
        if amount > of_node:
            yield Problem(
                (*path, _key(resource)),
                f"exceeds the {format_amount(resource, of_node)} {resource} of a node of flavor {size.flavor.name}",
                "lower it, and raise workers if the job can be distributed",
                format_amount(resource, amount),
                about=(("pools",),),
            )


def _key(resource: str) -> str:
    return resource if resource in {CPU, MEMORY} else "gpus"


def _container(tree: Tree, path: Path, size: PodSize) -> Iterator[Problem]:
    containers = tree.stack.teams[str(path[1])].containers
    for resource, amount in size.amounts.items():
        key = resource if resource in {CPU, MEMORY} else "gpu"
        maximum, minimum = getattr(containers.max, key), getattr(containers.min, key, None)
        if maximum is not None and amount > maximum:
            bound = ("exceeds", "max", maximum)
        elif minimum is not None and amount < minimum:
            bound = ("is less than", "min", minimum)
        else:
            continue
        yield Problem(
            (*path, _key(resource)),
            f"{bound[0]} the team's containers.{bound[1]}.{key} ({format_amount(resource, bound[2])})",
            f"change it, or change teams.{path[1]}.containers.{bound[1]}.{key}",
            format_amount(resource, amount),
            about=(("teams", str(path[1]), "containers"),),
        )


def _whole_job(tree: Tree, path: Path, job: Training, sizes: dict[str, PodSize]) -> Iterator[Problem]:
    """Kueue admits all pods of a job at once, so their sum must fit the limit."""
    team, gang = str(path[1]), is_gang(job)
    key = "tasks" if job.tasks else "roles" if job.roles else "workers"
    for flavor in {size.flavor.name: size.flavor for size in sizes.values()}.values():
        there = {role: job.pods_by_role[role] * job.groups for role, size in sizes.items() if size.flavor == flavor}
        number = sum(there.values())
        totals: Amounts = {}
        for role, pods in there.items():
            totals = add(totals, {name: amount * pods for name, amount in sizes[role].amounts.items()})
        # pyrefly: ignore[no-matching-overload]
        for resource, total in reversed(totals.items()):  # GPUs first: their CPU and memory are derived from them.
            limit = limits(tree, team, flavor, gang=gang).get(resource, 0)
            reach = limit if gang else min(limit, potential_available(tree, team, flavor.name, resource))
            if total <= reach:
                continue
            needs = f"pods need {format_amount(resource, total)} {resource} of flavor {flavor.name} at once"
            if total <= limit:
                rule = (
                    f"{needs}, but the team can never get more than {format_amount(resource, reach)}: the job would"
                    " stay pending"
                )
                fix = f"lower the number of pods or {_key(resource)}, or add nodes of flavor {flavor.name}"
                about: tuple[Path, ...] = (("teams",), ("cohorts",), ("pools",))
            else:
                of_each = "" if len(there) > 1 else f" ({format_amount(resource, total // number)} each)"
                rule = (
                    f"{needs}{of_each}, which exceeds the team's limit of {format_amount(resource, limit)}: the job"
                    " would stay pending"
                )
                where = f"teams.{team}.{'gangs' if gang else 'gpus'}.{flavor.name}.limit"
                fix = f"lower the number of pods or {_key(resource)}, or raise {where}"
                about = (("teams", team), ("pools",))
            yield Problem((*path, key), rule, fix, str(number), about=about)
            return


def _ray(tree: Tree, path: Path, job: Training) -> Iterator[Problem]:
    """What KubeRay rejects, and the container that it adds to workers whatever the bounds of the team."""
    if not job.kind.submits:
        return
    if len(str(path[-1])) > _RAY_NAME:
        rule = f"is the name of a RayJob, which has at most {_RAY_NAME} characters"
        yield Problem(path, rule, "shorten the name", str(path[-1]))
    least = tree.stack.teams[str(path[1])].containers.min
    for resource, amount in _WAITING.items():
        minimum = getattr(least, resource)
        if minimum is not None and minimum > amount:
            yield Problem(
                (*path, "framework"),
                f"needs pods with a container of {format_amount(resource, amount)} {resource}, which KubeRay adds and"
                f" the team's containers.min.{resource} ({format_amount(resource, minimum)}) rejects",
                f"lower teams.{path[1]}.containers.min.{resource} to {format_amount(resource, amount)}",
                job.framework,
                about=(("teams", str(path[1]), "containers"),),
            )


def _objects(tree: Tree, name: str, team: ResolvedTeam) -> Iterator[Problem]:
    """The counts must cover what the stack itself creates in the namespace."""
    least = needed(tree, team)
    for key, what in _COUNTED.items():
        budget = getattr(team.objects, key)
        if budget is not None and least[key] > budget:
            rule = f"is less than the number of {what} ({least[key]})"
            yield Problem(
                ("teams", name, "objects", key), rule, f"raise it to {least[key]}", str(budget), (("teams", name),)
            )


def notebook_problems(tree: Tree) -> Iterator[Problem]:
    """Notebooks that would never run."""
    for name, team in tree.stack.teams.items():
        if team.notebooks is None:
            continue
        place = ("teams", name, "notebooks")
        if tree.stack.dispatches:
            rule = "run in this cluster, but the workloads of its teams run in worker clusters"
            yield Problem(place, rule, "remove it, and set notebooks in the stacks of the workers")
            continue
        for size, spec in team.notebooks.sizes.items():
            job = as_job(team.notebooks, spec)
            found = pod_size(tree, name, job)
            yield from part_problems(tree, (*place, "sizes", size), job, found)
            if found:
                yield from _reach(tree, name, (*place, "sizes", size), found)


def _reach(tree: Tree, team: str, path: Path, size: PodSize) -> Iterator[Problem]:
    """A size above what the team can ever have."""
    for resource, amount in size.amounts.items():
        limit = limits(tree, team, size.flavor, gang=False).get(resource, 0)
        reach = min(limit, potential_available(tree, team, size.flavor.name, resource))
        if amount > reach:
            key = resource if resource in {CPU, MEMORY} else "gpus"
            rule = f"exceeds the {format_amount(resource, reach)} {resource} of flavor {size.flavor.name}"
            rule += " that the team can have at most, so the notebook would stay pending"
            fix = f"lower it, or raise the team's limit of {size.flavor.name}"
            about = (("teams",), ("cohorts",), ("pools",))
            yield Problem((*path, key), rule, fix, format_amount(resource, amount), about=about)
