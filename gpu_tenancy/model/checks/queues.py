"""Checks of queues: guarantees against supply, servers against limits, fairness, and jobs that MultiKueue refuses."""

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.base.quantity import CPU, MEMORY, amount_text, format_amount
from gpu_tenancy.base.texts import counted
from gpu_tenancy.model.plan import coverage
from gpu_tenancy.model.plan.environment import Flavor, gang_amounts
from gpu_tenancy.model.plan.namespaces import gpu_resources
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.operators.kueue import usage_weights
from gpu_tenancy.model.plan.pods import PodSize, limits, pod_size
from gpu_tenancy.model.plan.queues import borrowable, potential_available
from gpu_tenancy.model.plan.shares import Tree, cohorts_downwards
from gpu_tenancy.model.plan.workloads import SHIPPED
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.tenancy import Usage
from gpu_tenancy.model.spec.workloads import Training


def promise_problems(tree: Tree) -> Iterator[Problem]:
    """Guarantees that exceed the supply or the guarantee of their group, and limits below guarantees."""
    for flavor in tree.flavors.values():
        # GPUs first: if they are overcommitted, so are the CPU and memory that are derived from them.
        for resource in sorted(flavor.capacity, key=lambda resource: resource != flavor.resource):
            problems = list(_root(tree, flavor, resource))
            for group in tree.stated:
                problems += _group(tree, group, flavor, resource)
            yield from problems
            if problems and resource == flavor.resource:
                break


def _root(tree: Tree, flavor: Flavor, resource: str) -> Iterator[Problem]:
    supply = flavor.capacity[resource] - flavor.caches.total.get(resource, 0)
    gangs = flavor.gangs.get(resource, 0)
    about = (*_about(flavor), ("teams",))
    if gangs and gangs > supply:
        of_gangs = {
            name: gang_amounts(flavor, team.gangs[flavor.name]).get(resource, 0)
            for name, team in tree.stack.teams.items()
            if flavor.name in team.gangs
        }
        total, has = _total(of_gangs, resource), _supply(flavor, resource, less_gangs=False)
        rule = f"gangs with {total} in total exceed the {has}: {_by_name(of_gangs, resource)}"
        place = ("teams", next(iter(of_gangs)), "gangs", flavor.name)
        yield Problem(place, rule, f"lower them, or raise {_more(tree, flavor)}", about=about)
        return
    teams = {
        team: shares[flavor.name][resource].guaranteed
        for team, shares in tree.team_shares.items()
        if flavor.name in shares and resource in shares[flavor.name]
    }
    excessive = {team: amount for team, amount in teams.items() if amount > supply - gangs}
    for team, amount in excessive.items():
        place, rule = _key(tree, team, flavor, resource), f"exceeds the {_supply(flavor, resource)}"
        fix = f"lower it, or raise {_more(tree, flavor)}"
        yield Problem(place, rule, fix, format_amount(resource, amount), about=_about(flavor))
    if not excessive and tree.cohort_nominal(tree.root, flavor.name, resource) < 0:
        promised = tree.children_guaranteed(tree.root, flavor.name, resource)
        total, has = _total(promised, resource), _supply(flavor, resource)
        rule = f"guarantees of {total} in total exceed the {has}: {_by_name(promised, resource)}"
        fix = f"lower a guarantee, or raise {_more(tree, flavor)}"
        yield Problem(("pools", flavor.pools[0].name, "nodes"), rule, fix, about=(*about, ("cohorts",)))


def _what(flavor: Flavor, resource: str) -> str:
    """The noun of an amount: `h100 GPUs`, `cpu of h100`."""
    return f"{flavor.name} GPUs" if resource == flavor.resource else f"{resource} of {flavor.name}"


def _about(flavor: Flavor) -> tuple[Path, ...]:
    of_caches = (("datasets", name, "accelerate") for name in flavor.caches.by_dataset)
    return (*(("pools", pool.name) for pool in flavor.pools), ("cluster", "autoscaler"), *of_caches)


def _supply(flavor: Flavor, resource: str, *, less_gangs: bool = True) -> str:
    """The supply with its calculation: `16 h100 GPUs of the pools (2 nodes with 8 each)`."""
    gangs = flavor.gangs.get(resource, 0) if less_gangs else 0
    caches = flavor.caches.total.get(resource, 0)
    amounts = [(pool.max_nodes, format_amount(resource, pool.node.get(resource, 0))) for pool in flavor.pools]
    parts = " + ".join(
        f"1 node with {amount}" if nodes == 1 else f"{nodes} nodes with {amount} each" for nodes, amount in amounts
    )
    less = f", minus {format_amount(resource, gangs)} for Volcano gangs" if gangs else ""
    less += f", minus {format_amount(resource, caches)} for caches of datasets" if caches else ""
    supply = format_amount(resource, flavor.capacity[resource] - gangs - caches)
    return f"{supply} {_what(flavor, resource)} of the pools ({parts}{less})"


def _key(tree: Tree, team: str, flavor: Flavor, resource: str) -> Path:
    section = "gpus" if flavor.name in tree.stack.teams[team].gpus else "quota"
    if resource == flavor.resource:
        return ("teams", team, section, flavor.name, "guaranteed")
    if getattr(tree.stack.teams[team].quota.get(flavor.name), resource, None) is not None:
        return ("teams", team, "quota", flavor.name, resource, "guaranteed")
    return ("teams", team, section, flavor.name)


def _more(tree: Tree, flavor: Flavor) -> str:
    pool = f"pools.{flavor.pools[0].name}.nodes"
    if tree.stack.cluster.grows:
        return f"{pool}.max"
    return f"{pool}.min (without an autoscaler, only the minimum number of nodes can be guaranteed)"


def _by_name(amounts: Mapping[str, int], resource: str) -> str:
    return ", ".join(f"{name} {format_amount(resource, amount)}" for name, amount in amounts.items())


def _total(amounts: Mapping[str, int], resource: str) -> str:
    return format_amount(resource, sum(amounts.values()))


def _group_key(tree: Tree, group: str, flavor: str, resource: str) -> Path:
    if resource in {CPU, MEMORY} and tree.is_stated(group, flavor, resource):
        return ("cohorts", group, "quota", flavor, resource)
    return ("cohorts", group, "gpus" if flavor in tree.stack.cohorts[group].gpus else "quota", flavor)


def _group(tree: Tree, group: str, flavor: Flavor, resource: str) -> Iterator[Problem]:
    own, about = tree.cohort_nominal(group, flavor.name, resource), (("cohorts",), ("teams",))
    place, what = _group_key(tree, group, flavor.name, resource), _what(flavor, resource)
    if own < 0:
        promised = tree.children_guaranteed(group, flavor.name, resource)
        total = _total(promised, resource)
        rule = f"is less than the {total} {what} guaranteed to its children: {_by_name(promised, resource)}"
        value = format_amount(resource, sum(promised.values()) + own)
        yield Problem((*place, "guaranteed"), rule, f"raise it to {total}, or lower one of them", value, about=about)
    limit = tree.cohort_limit(group, flavor.name, resource)
    guaranteed = tree.guaranteed(group, flavor.name, resource)
    if limit is not None and limit < guaranteed and own >= 0:
        least = format_amount(resource, guaranteed)
        rule, fix = f"is less than the {least} {what} guaranteed in it", f"raise it to {least}, or lower a guarantee"
        yield Problem((*place, "limit"), rule, fix, format_amount(resource, limit), about=about)


def coverage_problems(tree: Tree) -> Iterator[Problem]:
    """Quota that no job can use, and guaranteed GPUs that no job, or a job of the stack, can get back.

    Both lack CPU or memory. With `fairness: even`, Kueue preempts by share for jobs that borrow, so the second is a
    warning.
    """
    for queue in tree.queue_owners:
        problems = list(_void(tree, queue))
        yield from problems
        void = {problem.path[3] for problem in problems}
        for found in coverage.uncovered(tree, queue) if not tree.stack.fairness.even else ():
            if not found.of_cohort and not {found.gpus.flavor, found.lacking.flavor} & void:
                yield _uncovered(queue, found)


def _void(tree: Tree, queue: str) -> Iterator[Problem]:
    """Limits and guarantees with 0 of CPU or memory."""
    quotas = tree.stack.teams[queue].quota
    for name in (name for name in quotas if name in tree.flavors):
        flavor, guarantee = tree.flavors[name], tree.guarantee(queue, name)
        most = tree.share(queue, name, flavor.resource).effective_limit if flavor.resource else guarantee.units
        reclaims = not tree.stack.fairness.even and coverage.reclaims(tree, queue, name)
        for resource in (r for r, amount in guarantee.beside.items() if not amount and getattr(quotas[name], r)):
            key = {"guaranteed"} & getattr(quotas[name], resource).model_fields_set
            if most and not tree.share(queue, name, resource).effective_limit:
                units, key, rule = most, set[str](), f"admits no pod on flavor {name}, because each requests {resource}"
            elif (units := guarantee.units) and reclaims and not coverage.quota_of_cohorts(tree, queue, name, resource):
                counts = counted(units, guarantee.resource, name if flavor.resource else "")
                rule = f"voids the guarantee of {counts}: {coverage.WHY}"
            else:
                continue
            share = flavor.with_gpus(units) if flavor.resource else flavor.follows(CPU, units)
            fix = f"remove it, for the share of the machine ({amount_text(resource, share[resource])}), or raise it"
            yield Problem(("teams", queue, "quota", name, resource, *key), rule, fix, "0", about=_about(flavor))


def _uncovered(queue: str, found: coverage.Uncovered) -> Problem:
    resource, flavor, bound = found.resource, found.lacking.flavor, found.lacking.amounts[found.resource]
    of = "" if flavor == found.gpus.flavor else f" of flavor {flavor}"
    gpus = counted(found.gpus.units, found.gpus.resource, found.gpus.flavor)
    has = f"{queue} is guaranteed {amount_text(resource, bound)} with its {gpus}"
    needs = f"needs {counted(found.amount, resource)}{of}"
    fix = f"raise {found.lacking.key(queue, resource)} to {format_amount(resource, found.amount)}"
    if bound:
        fix = f"lower the {resource} of its pods to {amount_text(resource, bound)} in total, or {fix}"
    return Problem(found.path, f"{needs}, and {has}: {coverage.WHY}", fix, about=(("teams", queue), ("pools",)))


def peak_problems(tree: Tree) -> Iterator[Problem]:
    """Servers whose last pods would stay pending. Teams that share a queue share its limit, so they are added up."""
    for owner in tree.queue_owners:
        by_flavor = grouped(
            (size.flavor.name, (server, size))
            for team in tree.users[owner]
            for server in tree.stack.teams[team].serving.values()
            if (size := pod_size(tree, team, server))
        )
        for servers in by_flavor.values():
            yield from _at_peak(tree, owner, servers)


def beyond(tree: Tree, team: str, flavor: Flavor, needed: tuple[str, int], *, gang: bool = False) -> Problem | None:
    """Why a team can never have an amount of a resource, with the most that it can have as value; None if it can."""
    resource, amount = needed
    limit = limits(tree, team, flavor, gang=gang).get(resource, 0)
    reach = limit if gang else min(limit, potential_available(tree, team, flavor.name, resource))
    most, about = format_amount(resource, reach), (("teams",), ("cohorts",), ("pools",))
    if amount > limit:
        owner, rule = tree.queue_of(team), f"which exceeds the team's limit of {format_amount(resource, limit)}"
        spec, key = tree.stack.teams[owner], tree.key(owner, flavor.name, resource, "limit")
        if gang:
            key = f"teams.{team}.gangs.{flavor.name}.{'limit' if resource == flavor.resource else resource}"
        elif not flavor.resource and getattr(spec.quota.get(flavor.name), resource, None) is None:
            budget = getattr(spec.compute.requests, resource)  # The default: the budget within what the nodes have.
            bounded = budget is not None and budget <= limit
            key = f"teams.{owner}.compute.requests.{resource}" if bounded else f"pools.{flavor.pools[0].name}.nodes"
        return Problem((), rule, f"raise {key}", most, (("teams", team), ("teams", owner), ("pools",)))
    rule, fix = f"but the team can never get more than {most}", f"add nodes of flavor {flavor.name}"
    return Problem((), rule, fix, most, about) if amount > reach else None


def _at_peak(tree: Tree, owner: str, running: list[tuple[ResolvedServer, PodSize]]) -> Iterator[Problem]:
    flavor = running[0][1].flavor
    # GPUs first: their CPU and memory are derived from them.
    for resource in reversed(dict.fromkeys(resource for _, size in running for resource in size.amounts)):
        per_pod = [(server, size.amounts.get(resource, 0)) for server, size in running]
        peak = sum(server.most_pods * amount for server, amount in per_pod)
        if found := beyond(tree, owner, flavor, (resource, peak)):
            path, maximum = (running[0][0].written_at(*keys) for keys in (("replicas",), ("replicas", "max")))
            pods = ", ".join(_pods(server, format_amount(resource, amount)) for server, amount in per_pod)
            needs = f"the servers on flavor {flavor.name} need {format_amount(resource, peak)} {resource} at their peak"
            rule = f"{needs} ({pods}), {found.rule}: the last pods would stay pending"
            lower = dotted(maximum[4:]) + (" or surge" if any(server.surge for server, _ in per_pod) else "")
            about = (*found.about, *(("teams", server.team) for server, _ in per_pod))
            yield Problem(path, rule, f"lower {lower}, or {found.fix}", about=about)
            return


def _pods(server: ResolvedServer, each: str) -> str:
    """`model-server: 50 + 1 surge pods with 2 each`, or `chat: 3 groups of 2 pods with 8 each`."""
    surge = f" + {server.surge} surge" if server.surge else ""
    groups = f" groups of {server.nodes}" if server.grouped else ""
    return f"{server.name}: {server.replicas.max}{surge}{groups} pods with {each} each"


_NAMED: Final = 3  # resources that an error names


def fair_sharing_problems(tree: Tree) -> Iterator[Problem]:
    """Guarantees of groups that Kueue would not keep, and policies and weights without effect.

    Kueue reclaims a queue's own nominal quota whatever the queue borrows elsewhere (`preemptorWithinNominal` in
    pkg/scheduler/preemption/preemption.go of v0.19.2), but has no such rule for the quota of a Cohort. There it
    compares the shares of Cohorts, and a share is the largest of all resources and flavors. So a group that borrows
    CPUs does not reclaim its GPUs from a group that borrows fewer. Only a group that never borrows always has the share
    0.
    """
    if not tree.stack.fairness.even:
        for section, specs in (("teams", tree.stack.teams), ("cohorts", tree.stack.cohorts)):
            weights = {name: spec.weight for name, spec in specs.items() if "weight" in spec.model_fields_set}
            for name, weight in ((name, weight) for name, weight in weights.items() if weight is not None):
                rule, fix = "has no effect without fairness: even", "set fairness: even, or remove it"
                yield Problem((section, name, "weight"), rule, fix, f"{weight:g}", about=(("fairness",),))
        return
    for group in cohorts_downwards(tree):
        for flavor, shares in tree.stated.get(group, {}).items():
            for resource in shares:
                yield from _group_guarantee(tree, group, flavor, resource)
    for name in tree.queue_owners:
        borrows = tree.stack.teams[name].preemption.borrow_within_cohort
        if borrows != "Never":
            place = ("teams", name, "preemption", "borrowWithinCohort")
            rule = "has no effect with fairness: even, in which shares decide who preempts to borrow"
            yield Problem(place, rule, "remove it, or set fairness: hierarchical", borrows, about=(("fairness",),))


def usage_problems(tree: Tree) -> Iterator[Problem]:
    """Usage over time without effect: no team shares a queue, or no counted resource exists."""
    usage = tree.stack.fairness.usage
    if usage is not None:
        yield from _usage(tree, usage)
    for name, team in tree.stack.teams.items():
        queue = tree.queue_of(name)
        if team.usage_weight is not None and not tree.by_usage(queue):
            rule, fix = "has no effect without fairness.usage", "set fairness.usage, or remove it"
            if usage:
                rule = f"has no effect, because no other team uses the queue {queue}"
                fix = "remove it, or let another team use the queue"
            about = (("fairness",), *(("teams", other) for other in tree.stack.teams if other != name))
            yield Problem(("teams", name, "usageWeight"), rule, fix, f"{team.usage_weight:g}", about=about)


def _usage(tree: Tree, usage: Usage) -> Iterator[Problem]:
    place = ("fairness", "usage")
    if not any(tree.by_usage(queue) for queue in tree.queue_owners):
        rule = "has no effect: Kueue compares the past usage of teams that share a queue, and every team has its own"
        yield Problem(place, rule, "set queue: TEAM in teams that share, or remove it", about=(("teams",),))
    covered = {CPU, MEMORY, *gpu_resources(tree)}
    for resource in usage.weights:
        if resource not in covered:
            fix = f"use one of: {', '.join(sorted(covered))}"
            yield Problem((*place, "weights", resource), "is not a resource of the pools", fix)
    weights = usage_weights(tree, usage)
    if not any(weights[resource] for resource in covered):
        rule = "gives every resource the weight 0, so no usage is counted"
        yield Problem((*place, "weights"), rule, "raise the weight of a resource")


def _group_guarantee(tree: Tree, group: str, flavor: str, resource: str) -> Iterator[Problem]:
    beyond = tree.cohort_nominal(group, flavor, resource)
    if not tree.is_stated(group, flavor, resource) or beyond <= 0:
        return
    borrowers = ((name, list(_borrows(tree, name))) for name in tree.above(group) if name != tree.root)
    borrower, found = next((entry for entry in borrowers if entry[1]), ("", list[str]()))
    if not found:
        return
    guaranteed = tree.guaranteed(group, flavor, resource)
    children = format_amount(resource, guaranteed - beyond)
    listed = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    rule = (
        f"exceeds its children's guarantees ({children} {_what(tree.flavors[flavor], resource)}), which fairness: even"
        f" keeps only for a group that cannot borrow; {borrower} can borrow {listed}"
    )
    fix = (
        f"lower it to {children} and guarantee the rest to teams, set limits of {borrower} to its guarantees, or set"
        " fairness: hierarchical"
    )
    place, about = (*_group_key(tree, group, flavor, resource), "guaranteed"), (("teams",), ("cohorts",), ("fairness",))
    yield Problem(place, rule, fix, format_amount(resource, guaranteed), about=about)


def _borrows(tree: Tree, group: str) -> Iterator[str]:
    """Amounts that a group can borrow: `h100 GPUs`, `cpu of cpu`; GPUs first."""
    for name, flavor in sorted(tree.flavors.items(), key=lambda item: item[1].resource is None):
        for resource in sorted(flavor.capacity, key=lambda resource: resource != flavor.resource):
            if borrowable(tree, group, name, resource):
                yield _what(flavor, resource)


_ROLE: tuple[Path, ...] = (("multikueue",),)


def multikueue_problems(tree: Tree) -> Iterator[Problem]:
    """Workloads and options of a manager that no worker would run."""
    stack = tree.stack
    if not stack.multikueue:
        return
    if not there(tree, "kueue"):
        rule = "is off, but MultiKueue is a part of Kueue"
        yield Problem(("operators", "kueue", "install"), rule, "remove it, or remove multikueue", "off", about=_ROLE)
    if not stack.dispatches:
        return
    if stack.split is not None:
        rule = "is not supported for a MultiKueue manager"
        yield Problem(("split",), rule, "remove it; divide the stacks of the workers instead", about=_ROLE)
    for team, spec in stack.teams.items():
        for name, job in spec.training.items():
            yield from _job(("teams", team, "training", name), job)


def _job(path: Path, job: Training) -> Iterator[Problem]:
    move = "move the job to the stack of a worker"
    if job.scheduler == "volcano" or job.gang:
        key = "gang" if job.gang else "scheduler"
        rule = "needs Volcano, whose jobs MultiKueue does not dispatch"
        yield Problem((*path, key), rule, f"remove {key}, or {move}", about=_ROLE)
        return
    if job.kind.endless:
        rule = "makes a LeaderWorkerSet, which has no spec.managedBy: its pods would be created in this cluster too"
        yield Problem((*path, "framework"), rule, move, job.framework, about=_ROLE)
    if not job.kind.runtime:
        return
    if job.framework not in SHIPPED:
        rule = "needs a runtime of its own, which MultiKueue does not copy to a worker"
        yield Problem((*path, "framework"), rule, f"set framework: jobset, or {move}", job.framework, about=_ROLE)
        return
    why = "a TrainJob that MultiKueue dispatches has Trainer's runtime of the worker"
    if job.env_from:
        fix = f"use env, set framework: jobset, or {move}"
        yield Problem((*path, "envFrom"), f"is not possible: {why}", fix, about=_ROLE)
    for key in ("retries", "keep"):
        if key in job.model_fields_set:
            fix = f"remove {key}, set framework: jobset, or {move}"
            yield Problem((*path, key), f"has no effect: {why}", fix, about=_ROLE)
