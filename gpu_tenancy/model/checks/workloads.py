"""Checks of workloads against their team: flavor, node size, LimitRange, queue, budgets and metrics."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, add, format_amount, format_duration, times
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.checks.queues import beyond
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.fabric import lack, pod_fabric
from gpu_tenancy.model.plan.namespaces import needed, ratios
from gpu_tenancy.model.plan.notebooks import as_job
from gpu_tenancy.model.plan.pods import PodSize, choices, is_gang, limits_of, parts, pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.signals import metric_name, monitor
from gpu_tenancy.model.plan.workloads import WAITS_FOR_RAY
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.roles import HEAD
from gpu_tenancy.model.spec.workloads import Server, Training

_COUNTED: Final = {
    "services": "Services of the team's servers and distributed jobs",
    "pods": "pods of the team's servers at their peak and its largest job",
    "jobs": "its servers or jobs of one kind",
    "children": "groups of its largest server, or workers of its largest Ray cluster",
}
"""Objects that the stack itself creates, by key of `objects`."""
_RAY_NAME: Final = 47
"""Maximum length of a RayJob's name, above which KubeRay does not run it (`MaxRayJobNameLength` in
https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go)."""


def workload_problems(tree: Tree) -> Iterator[Problem]:
    """Workloads that would never run, or never scale."""
    for _, path, workload in workloads(tree):
        yield from _workload(tree, path, workload)
    for name, team in tree.stack.teams.items():
        least = needed(tree, team)
        for key, what in _COUNTED.items():
            budget = getattr(team.objects, key)
            if budget is not None and least[key] > budget:
                rule, place = f"is less than the number of {what} ({least[key]})", ("teams", name, "objects", key)
                yield Problem(place, rule, f"raise it to {least[key]}", str(budget), (("teams", name),))


def workloads(tree: Tree) -> Iterator[tuple[str, Path, ResolvedServer | Training]]:
    """The servers and jobs of all teams, with team and place in the stack."""
    for name, team in tree.stack.teams.items():
        for kind, specs in (("serving", team.serving), ("training", team.training)):
            yield from ((name, ("teams", name, kind, workload), spec) for workload, spec in specs.items())


def _workload(tree: Tree, path: Path, workload: ResolvedServer | Training) -> Iterator[Problem]:
    name = str(path[1])
    team, allowed = tree.stack.teams[name], tree.stack.teams[name].compute.priorities
    default = next((key for key, entry in tree.stack.priorities.items() if entry.default), None)
    priority = workload.priority or team.priority or default
    if allowed and priority not in allowed:
        rule = f"is not among the priority classes that the namespace allows ({', '.join(allowed)})"
        fix = f"set one of them, or add it to teams.{name}.compute.priorities"
        about = (("teams", name, "compute"), ("teams", name, "priority"))
        yield Problem((*path, "priority"), rule, fix, priority or "no priority class", about=about)
    if isinstance(workload, ResolvedServer):
        yield from _metric(tree, path, workload)
    roles = parts(tree, name, workload)
    sizes = {role: size for role, part in roles.items() if (size := pod_size(tree, name, part))}
    for role, part in roles.items():
        own = isinstance(workload, Training) and role in workload.roles
        yield from part_problems(tree, (*path, "roles", role) if own else path, part, sizes.get(role))
    if isinstance(workload, Training):
        if "keep" in workload.model_fields_set:
            rule = "has no effect in a stack: its finished jobs stay, or the next deployment would run them again"
            yield Problem((*path, "keep"), rule, "remove it", format_duration(workload.keep))
        if workload.kind.submits:
            yield from _ray(tree, path, workload, sizes)
        if len(sizes) == len(roles):
            yield from _whole_job(tree, path, workload, sizes)


def part_problems(tree: Tree, path: Path, workload: Server | Training, size: PodSize | None) -> Iterator[Problem]:
    """Problems of pods that are alike: of a server, or of one role of a job."""
    team = str(path[1])
    if size is None:
        if workload.flavor is None:
            section, owner = ("gangs", team) if is_gang(workload) else ("gpus", tree.queue_of(team))
            whose = "the team" if owner == team else f"team {owner}, whose queue it uses,"
            rule, fix = f"no flavor to run on: {whose} has no {section}", f"add quota under teams.{owner}.{section}"
            shares = [] if is_gang(workload) or workload.gpus else sorted(tree.shares_of(team))
            if shares:
                rule = "no flavor to run on: no pool is without GPUs"
                fix = f"add one, or set flavor: {' or '.join(shares)}"
            if flavors := choices(tree, team, workload):
                rule = "required key is missing: the team has several flavors"
                fix = f"set flavor: {' or '.join(flavors)}"
            yield Problem((*path, "flavor"), rule, fix, about=(("teams", team), ("teams", owner), ("pools",)))
        return
    if workload.gpus and size.flavor.resource is None:
        rule = f"GPUs requested, but flavor {size.flavor.name} has none"
        yield Problem((*path, "gpus"), rule, "set gpus: 0", str(workload.gpus))
        return
    if size.flavor.resource and not workload.gpus and not is_gang(workload) and (cpus := choices(tree, team, workload)):
        rule = f"on flavor {size.flavor.name}, with GPUs: Kueue would choose {cpus[0]}, and no node has both labels"
        yield Problem((*path, "gpus"), rule, f"request GPUs, or set flavor: {' or '.join(cpus)}", "0")
    yield from _of_node(path, size)
    yield from _one_client(tree, path, workload, size.flavor)
    memory, shared = size.amounts[MEMORY], workload.shared_memory
    if shared is not None and shared > memory:
        rule = f"exceeds the pod's memory ({format_amount(MEMORY, memory)}), so the pod could be OOM-killed"
        yield Problem((*path, "sharedMemory"), rule, "lower it, or raise memory", format_amount(MEMORY, shared))
    yield from _fabric(tree, path, workload, size.flavor)
    yield from _container(tree, path, size)
    yield from _limits(tree, path, workload, size)


def _of_node(path: Path, size: PodSize) -> Iterator[Problem]:
    """Amounts that no node of the flavor has. GPUs first: their CPU and memory are derived from them."""
    flavor, needs = size.flavor, add(size.amounts, size.flavor.caches.every)
    lacking = [resource for resource, amount in size.amounts.items() if amount > flavor.node.get(resource, 0)]
    for resource in [flavor.resource] if flavor.resource in lacking else lacking:
        value, of_node = (format_amount(resource, of.get(resource, 0)) for of in (size.amounts, flavor.node))
        rule = f"exceeds the {of_node} {resource} of a node of flavor {flavor.name}"
        fix = "lower it, and raise workers if the job can be distributed"
        yield Problem((*path, _key(resource)), rule, fix, value, about=(("pools",),))
    if not lacking and not any(all(pool.node.get(r, 0) >= needs[r] for r in needs) for pool in flavor.pools):
        amounts = (size.amounts, *(pool.node for pool in flavor.pools))
        pod, *nodes = (" and ".join(f"{format_amount(r, of.get(r, 0))} {r}" for r in size.amounts) for of in amounts)
        rule = f"needs a node with {pod}, but those of flavor {flavor.name} have {', or '.join(nodes)}"
        fix = "lower what is too much for one of them, or set different flavors for their pools"
        yield Problem(path, rule, fix, about=(("pools",),))


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


def _metric(tree: Tree, path: Path, server: ResolvedServer) -> Iterator[Problem]:
    seconds, about = server.scale_on.latency_p99, (("metrics",),)
    if seconds is not None and metric_name(tree.stack.metrics, server) is None:
        rule = "needs a latency metric, but the stack defines none, so the autoscaler would never scale"
        fix = (
            "set metrics.histogram to the histogram (in seconds) that your servers expose, or metrics.latencyP99 to the"
            " pod metric (in seconds) that your adapter serves"
        )
        yield Problem((*path, "scaleOn", "latencyP99"), rule, fix, f"{seconds:g}s", about)
    if server.metrics_port is not None and monitor(tree, server) is None:
        missing, fix = "the server neither scales on latency nor sets metrics", "remove it"
        if seconds is not None:
            missing = "metrics.histogram is not set"
            fix = "set metrics.histogram to what your servers expose, or remove it"
        yield Problem((*path, "metricsPort"), f"has no effect: {missing}", fix, str(server.metrics_port), about)


def _fabric(tree: Tree, path: Path, workload: Server | Training, flavor: Flavor) -> Iterator[Problem]:
    """Pods that request the network between GPUs and cannot use it, or that the namespace would reject."""
    team, place = str(path[1]), (*path, "fabric")
    reason = lack(tree, flavor.name, workload) if workload.gpus else "the pods have no GPUs"
    if workload.fabric and reason:
        fix = "remove it, or change gpus or flavor"
        yield Problem(place, f"is not possible: {reason}", fix, "true", about=(("pools",),))
        return
    fabric, level = pod_fabric(tree, flavor.name, workload), tree.stack.teams[team].pod_security
    if fabric and fabrics()[fabric.name].pod_security == "privileged" and level != "privileged":
        rule = f"{fabric.name} needs host paths in its pods, which the team's podSecurity rejects ({level})"
        fix = f"set fabric: false, or set teams.{team}.podSecurity: privileged if the team may have access to the nodes"
        yield Problem(place, rule, fix, about=(("teams", team), ("pools",)))


def _key(resource: str) -> str:
    return resource if resource in {CPU, MEMORY} else "gpus"


def _container(tree: Tree, path: Path, size: PodSize) -> Iterator[Problem]:
    team = str(path[1])
    containers = tree.stack.teams[team].containers
    for resource, amount in size.amounts.items():
        key = resource if resource in {CPU, MEMORY} else "gpu"
        maximum, minimum = getattr(containers.max, key), getattr(containers.min, key, None)
        if maximum is not None and amount > maximum:
            compared, name, bound = "exceeds", "max", maximum
        elif minimum is not None and amount < minimum:
            compared, name, bound = "is less than", "min", minimum
        else:
            continue
        rule = f"{compared} the team's containers.{name}.{key} ({format_amount(resource, bound)})"
        fix, about = f"change it, or change teams.{team}.containers.{name}.{key}", (("teams", team, "containers"),)
        yield Problem((*path, _key(resource)), rule, fix, format_amount(resource, amount), about=about)


def _limits(tree: Tree, path: Path, workload: Server | Training, size: PodSize) -> Iterator[Problem]:
    """Limits that the API server or the namespace rejects, or that cost a pod its exclusive CPUs."""
    team = str(path[1])
    containers, ratio_of = tree.stack.teams[team].containers, ratios(tree.stack.teams[team])
    pools = tree.stack.pools | dict(tree.stack.elsewhere)
    aligned = next((pool.name for pool in size.flavor.pools if pools[pool.name].numa), None)
    for resource, limit in limits_of(workload).items():
        request, maximum, ratio = size.amounts[resource], getattr(containers.max, resource), ratio_of.get(resource)
        of_node = size.flavor.node.get(resource, 0)
        about: tuple[Path, ...] = (("teams", team, "containers"), ("teams", team, "compute"))
        if limit < request:
            rule, fix = f"is below the request of a pod ({format_amount(resource, request)})", "raise it, or remove it"
        elif maximum is not None and limit > maximum:
            rule = f"exceeds the team's containers.max.{resource} ({format_amount(resource, maximum)})"
            fix = f"lower it, or raise teams.{team}.containers.max.{resource}"
        elif limit > of_node:
            rule = f"exceeds the {format_amount(resource, of_node)} {resource} of a node of flavor {size.flavor.name}"
            fix, about = "lower it, or remove it", (("pools",),)
        elif ratio is not None and limit > request * ratio:
            rule = f"exceeds {float(ratio):g} times the request, the ratio of the team's compute.limits and requests"
            fix = f"lower it, raise {resource}, or raise teams.{team}.compute.limits.{resource}"
        elif limit > request and aligned:
            rule = f"is above the request, but pools.{aligned}.numa aligns only pods whose limits are their requests"
            fix, about = "remove it, or use another flavor", (("pools", aligned),)
        else:
            continue
        yield Problem((*path, "limits", resource), rule, fix, format_amount(resource, limit), about)


def _whole_job(tree: Tree, path: Path, job: Training, sizes: dict[str, PodSize]) -> Iterator[Problem]:
    """Kueue admits all pods of a job at once, so their sum must fit the limit."""
    for flavor in {size.flavor.name: size.flavor for size in sizes.values()}.values():
        there = {role: job.pods_by_role[role] * job.groups for role, size in sizes.items() if size.flavor == flavor}
        totals = add(*(times(sizes[role].amounts, pods) for role, pods in there.items()))
        for resource, total in reversed(totals.items()):  # GPUs first: their CPU and memory are derived from them.
            pods, team, gang = list(there.values()), str(path[1]), is_gang(job)
            if found := beyond(tree, team, flavor, (resource, total), gang=gang):
                each, amount = total // sum(pods), format_amount(resource, total)
                of_each = "" if len(pods) > 1 else f" ({format_amount(resource, each)} each)"
                rule = f"pods need {amount} {resource} of flavor {flavor.name} at once{of_each}, {found.rule}: the job"
                fewer = job.elastic and not beyond(tree, team, flavor, (resource, job.workers.min * each))
                rule += " would never have all of them" if fewer else " would stay pending"
                fix = f"lower the number of pods or {_key(resource)}, or {found.fix}"
                key = "tasks" if job.tasks else "roles" if job.roles else "workers"
                yield Problem((*path, key), rule, fix, str(sum(pods)), about=found.about)
                return


def _ray(tree: Tree, path: Path, job: Training, sizes: Mapping[str, PodSize]) -> Iterator[Problem]:
    """Names that KubeRay rejects, and the container that it adds to workers whatever the bounds of the team."""
    team, name = str(path[1]), str(path[-1])
    if len(name) > _RAY_NAME:
        rule = f"is the name of a RayJob, which has at most {_RAY_NAME} characters"
        yield Problem(path, rule, "shorten the name", name)
    for resource, amount in WAITS_FOR_RAY.items():
        if any(size.amounts[resource] < amount for role, size in sizes.items() if role != HEAD):
            needed_amount = format_amount(resource, amount)
            rule = (
                f"is below the {needed_amount} of the container that KubeRay adds to workers, and Kueue does not count"
            )
            yield Problem((*path, resource), rule, f"set {needed_amount} or more")
        minimum = getattr(tree.stack.teams[team].containers.min, resource)
        if minimum is not None and minimum > amount:
            needs, bound = format_amount(resource, amount), format_amount(resource, minimum)
            rule = f"needs pods with a container of {needs} {resource}, which KubeRay adds"
            fix, about = f"lower teams.{team}.containers.min.{resource} to {needs}", (("teams", team, "containers"),)
            rule = f"{rule} and the team's containers.min.{resource} ({bound}) rejects"
            yield Problem((*path, "framework"), rule, fix, job.framework, about=about)


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
        for key, spec in team.notebooks.sizes.items():
            job = as_job(team.notebooks, spec)
            size = pod_size(tree, name, job)
            yield from part_problems(tree, (*place, "sizes", key), job, size)
            for resource, amount in size.amounts.items() if size else ():
                if size and (found := beyond(tree, name, size.flavor, (resource, amount))):
                    rule = f"exceeds the {found.value} {resource} of flavor {size.flavor.name}"
                    rule += " that the team can have at most, so the notebook would stay pending"
                    value, fix = format_amount(resource, amount), f"lower it, or {found.fix}"
                    yield Problem((*place, "sizes", key, _key(resource)), rule, fix, value, about=found.about)
