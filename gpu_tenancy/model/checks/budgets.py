"""A namespace's budgets: they must never refuse what the team's queues admit, nor pods that say nothing."""

from collections.abc import Iterator
from fractions import Fraction

from gpu_tenancy.model.plan.limits import container_defaults, ratios
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.problems import Path, Problem
from gpu_tenancy.model.quantity import CPU, MEMORY, format_amount
from gpu_tenancy.model.spec.teams import Team


def budget_problems(tree: Tree) -> Iterator[Problem]:
    """Where a budget, or a container's bounds, contradict what the stack promises."""
    for name, team in tree.stack.teams.items():
        yield from _queue_fits(tree, name, team)
        yield from _limits(("teams", name), team)
        yield from _datasets(tree, name, team)


def _queue_fits(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The queue counts requests, and so does the budget: it must hold all that the queues may admit at once."""
    shares = tree.team_shares.get(tree.queue_of(name), {})
    most = admitted(shares, gangs_of(team, tree.flavors))
    for resource in (CPU, MEMORY):
        budget = getattr(team.compute.requests, resource)
        if budget is None or most.get(resource, 0) <= budget:
            continue
        of_flavors = [
            f"{flavor} {format_amount(resource, each[resource].limit or 0)}"
            for flavor, each in shares.items()
            if each[resource].limit
        ]
        gangs = sum(each.get(resource, 0) for each in gangs_of(team, tree.flavors).values())
        of_gangs = [f"gangs {format_amount(resource, gangs)}"] if gangs else []
        needed = format_amount(resource, most[resource])
        yield Problem(
            ("teams", name, "compute", "requests", resource),
            f"is less than the {needed} that the team's queues may admit ({', '.join(of_flavors + of_gangs)}), and"
            " pods beyond it would fail for ever",
            f"raise it to {needed}, or lower what the team may reach with teams.{name}.quota.<flavor>.{resource}",
            format_amount(resource, budget),
            about=(("teams", name), ("pools",)),
        )


def _limits(path: Path, team: Team) -> Iterator[Problem]:
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests is not None and limits is not None and limits < requests:
            yield Problem(
                (*path, "compute", "limits", resource),
                f"is less than the requests' {format_amount(resource, requests)}, which no pod may exceed",
                "raise it or lower the requests",
                format_amount(resource, limits),
            )
            return
    defaults = container_defaults(team)
    for resource, most in ratios(team).items():
        default, request = defaults.limits[resource], defaults.requests[resource]
        if Fraction(default, request) > most:
            yield Problem(
                (*path, "containers", "default", resource),
                f"is {float(Fraction(default, request)):g} times the default request"
                f" {format_amount(resource, request)}, but the budget's limits are only {float(most):g} times its"
                " requests, so containers that say nothing would be refused",
                f"lower it to {format_amount(resource, int(request * most))} or raise compute.limits.{resource}",
                format_amount(resource, default),
            )


def _datasets(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    mounted = {key: d for key, d in tree.stack.datasets.items() if not d.teams or name in d.teams}
    total, claims = sum(dataset.size for dataset in mounted.values()), len(mounted)
    about = (("datasets",),)
    if team.objects.storage is not None and total > team.objects.storage:
        needed = format_amount("storage", total)
        rule = f"is less than the {needed} of the team's datasets"
        value = format_amount("storage", team.objects.storage)
        yield Problem(("teams", name, "objects", "storage"), rule, f"raise it to {needed}", value, about)
    if team.objects.persistentvolumeclaims is not None and claims > team.objects.persistentvolumeclaims:
        value = str(team.objects.persistentvolumeclaims)
        rule = f"is less than the {claims} claims of the team's datasets"
        yield Problem(("teams", name, "objects", "persistentvolumeclaims"), rule, "raise it", value, about)
    for key, dataset in mounted.items():
        least, most = team.claims.min or 0, team.claims.max or dataset.size
        if not least <= dataset.size <= most:
            yield Problem(
                ("datasets", key, "size"),
                f"is outside the {format_amount('storage', least)} to {format_amount('storage', most)} that a claim"
                f" may have in {name}",
                f"change it, or teams.{name}.claims",
                format_amount("storage", dataset.size),
                about=(("teams", name, "claims"),),
            )
