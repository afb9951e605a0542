"""What teams run must fit what they have: flavor, node, container bounds, queue, budgets, metrics."""

from collections.abc import Iterator

from gpu_tenancy.model.plan.latency import metric_name, monitor
from gpu_tenancy.model.plan.pods import PodSize, choices, flavor_of, is_gang, limits, pod_size, pods_of
from gpu_tenancy.model.plan.shares import Tree, reachable
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, Training


def workload_problems(tree: Tree) -> Iterator[Problem]:
    """What could never run, or never scale, once it is deployed."""
    for name, team in tree.stack.teams.items():
        for path, workload in workloads(name, team):
            yield from _one(tree, path, workload)
        yield from _pods(name, team)
        yield from _services(name, team)


def workloads(name: str, team: Team) -> Iterator[tuple[Path, Server | Training]]:
    """A team's servers and jobs, each with its place in the stack."""
    for server, spec in team.serving.items():
        yield ("teams", name, "serving", server), spec
    for job, spec in team.training.items():
        yield ("teams", name, "training", job), spec


def _one(tree: Tree, path: Path, workload: Server | Training) -> Iterator[Problem]:
    name = str(path[1])
    yield from _priority(tree, path, workload)
    if isinstance(workload, Server):
        yield from _metric(tree, path, workload)
    flavor = flavor_of(tree, name, workload)
    if flavor is None:
        if workload.flavor is None:
            yield _no_flavor(tree, path, workload)
        return
    size = pod_size(tree, name, workload)
    if size is None:
        return
    if workload.gpus and flavor.resource is None:
        yield Problem(
            (*path, "gpus"),
            f"asks for GPUs on {flavor.name}, which has none",
            "write gpus: 0",
            str(workload.gpus),
        )
        return
    yield from _node(path, size)
    yield from _shared_memory(path, workload, size)
    yield from _container(tree, path, size)
    if isinstance(workload, Training):
        yield from _whole_job(tree, path, workload, size)


def _no_flavor(tree: Tree, path: Path, workload: Server | Training) -> Problem:
    name = str(path[1])
    found = choices(tree, name, workload)
    section = "gangs" if is_gang(workload) else "gpus"
    rule = (
        "does not say its flavor, and its team has several"
        if found
        else f"runs on no flavor: the team has no {section}"
    )
    mend = f"write flavor: {' or '.join(found)}" if found else f"give the team some under teams.{name}.{section}"
    return Problem((*path, "flavor"), rule, mend, about=(("teams", name), ("pools",)))


def _priority(tree: Tree, path: Path, workload: Server | Training) -> Iterator[Problem]:
    team = tree.stack.teams[str(path[1])]
    default = next((name for name, each in tree.stack.priorities.items() if each.default), None)
    priority = workload.priority or team.priority or default
    if team.compute.priorities and priority not in team.compute.priorities:
        listed = ", ".join(team.compute.priorities)
        yield Problem(
            (*path, "priority"),
            f"is none of {listed}, and the namespace admits no other",
            f"name one of them, or add it to teams.{path[1]}.compute.priorities",
            priority or "no class",
            about=(("teams", str(path[1]), "compute"),),
        )


def _metric(tree: Tree, path: Path, server: Server) -> Iterator[Problem]:
    seconds = server.scale_on.latency_p99 if server.scale_on else None
    if seconds is not None and metric_name(tree.stack.metrics) is None:
        yield Problem(
            (*path, "scaleOn", "latencyP99"),
            "is a custom metric that no adapter serves, so the autoscaler would never act on it",
            "name the histogram in seconds that your servers expose as metrics.histogram, or the pod metric in"
            " seconds that your adapter serves as metrics.latencyP99",
            f"{seconds:g}s",
            about=(("metrics",),),
        )
    if server.metrics_port is not None and monitor(tree.stack, server) is None:
        missing = "the server scales on no latency" if seconds is None else "the stack names no histogram"
        yield Problem(
            (*path, "metricsPort"),
            f"is scraped by nothing: {missing}",
            "leave it out"
            if seconds is None
            else "name what your servers expose as metrics.histogram, or leave it out",
            str(server.metrics_port),
            about=(("metrics",),),
        )


def _shared_memory(path: Path, workload: Server | Training, size: PodSize) -> Iterator[Problem]:
    memory = size.amounts[MEMORY]
    if workload.shared_memory is not None and workload.shared_memory > memory:
        yield Problem(
            (*path, "sharedMemory"),
            f"is part of the pod's memory, which is {format_amount(MEMORY, memory)}, so a pod that filled it would end",
            "lower it, or raise memory",
            format_amount(MEMORY, workload.shared_memory),
        )


def _node(path: Path, size: PodSize) -> Iterator[Problem]:
    for resource, amount in size.amounts.items():
        most = size.flavor.node.get(resource, 0)
        if amount > most:
            yield Problem(
                (*path, _key(resource)),
                f"is more than the {format_amount(resource, most)} {resource} of a node of {size.flavor.name}",
                "lower it, and raise workers where the work can be split",
                format_amount(resource, amount),
                about=(("pools",),),
            )


def _key(resource: str) -> str:
    return resource if resource in {CPU, MEMORY} else "gpus"


def _container(tree: Tree, path: Path, size: PodSize) -> Iterator[Problem]:
    containers = tree.stack.teams[str(path[1])].containers
    for resource, amount in size.amounts.items():
        key = resource if resource in {CPU, MEMORY} else "gpu"
        most, least = getattr(containers.max, key), getattr(containers.min, key, None)
        if most is not None and amount > most:
            bound = ("more", "max", most)
        elif least is not None and amount < least:
            bound = ("less", "min", least)
        else:
            continue
        yield Problem(
            (*path, _key(resource)),
            f"is {bound[0]} than the team's containers.{bound[1]}.{key} of {format_amount(resource, bound[2])}",
            f"change it, or teams.{path[1]}.containers.{bound[1]}.{key}",
            format_amount(resource, amount),
            about=(("teams", str(path[1]), "containers"),),
        )


def _whole_job(tree: Tree, path: Path, job: Training, size: PodSize) -> Iterator[Problem]:
    """A job is admitted whole, so all its pods must fit the limit at once."""
    team, gang = str(path[1]), is_gang(job)
    for resource, amount in reversed(size.amounts.items()):  # GPUs first: their cpu and memory follow from them.
        limit = limits(tree, team, size.flavor, gang=gang).get(resource, 0)
        reach = limit if gang else min(limit, reachable(tree, team, size.flavor, resource))
        if reach < amount * pods_of(job) <= limit:
            yield Problem(
                (*path, "tasks" if job.tasks else "workers"),
                f"need {format_amount(resource, amount * pods_of(job))} {resource} of {size.flavor.name} at once, but"
                f" all that others leave the team is {format_amount(resource, reach)}, so it would wait for ever",
                f"lower them, or {_key(resource)}, or raise what there is of {size.flavor.name}",
                str(pods_of(job)),
                about=(("teams",), ("cohorts",), ("pools",)),
            )
            return
        if amount * pods_of(job) > limit:
            where = f"teams.{team}.{'gangs' if gang else 'gpus'}.{size.flavor.name}.limit"
            yield Problem(
                (*path, "tasks" if job.tasks else "workers"),
                f"need {format_amount(resource, amount * pods_of(job))} {resource} of {size.flavor.name} at once"
                f" ({pods_of(job)} pods of {format_amount(resource, amount)}), but the team's limit is"
                f" {format_amount(resource, limit)}, so it would wait for ever",
                f"lower them, or {_key(resource)}, or raise {where}",
                str(pods_of(job)),
                about=(("teams", team), ("pools",)),
            )
            return


def _services(name: str, team: Team) -> Iterator[Problem]:
    """A server has a Service, and so have the pods of a gang and of a TrainJob, to find each other by name."""
    jobs = [job for job in team.training.values() if is_gang(job) or job.framework == "pytorch"]
    needed, most = len(team.serving) + len(jobs), team.objects.services
    if most is not None and needed > most:
        yield Problem(
            ("teams", name, "objects", "services"),
            f"is less than the {needed} services of its servers and distributed jobs",
            f"raise it to {needed}",
            str(most),
            about=(("teams", name),),
        )


def _pods(name: str, team: Team) -> Iterator[Problem]:
    """What runs all the time, and the largest job beside it, within the number of pods."""
    most = team.objects.pods
    servers = sum(pods_of(spec) for spec in team.serving.values())
    largest = max((pods_of(spec) for spec in team.training.values()), default=0)
    if most is not None and servers + largest > most:
        yield Problem(
            ("teams", name, "objects", "pods"),
            f"is less than the {servers + largest} pods of its servers at their peak and its largest job",
            f"raise it to {servers + largest}",
            str(most),
            about=(("teams", name),),
        )
