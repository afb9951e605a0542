"""Checks of a namespace's budgets: they must not reject pods that the queues admit, or pods without requests."""

from collections.abc import Iterator
from fractions import Fraction

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, add, format_amount
from gpu_tenancy.model.plan.limits import container_defaults, ratios
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.plan.sidecars import sidecars
from gpu_tenancy.model.plan.storage import stored
from gpu_tenancy.model.spec.teams import Team


def budget_problems(tree: Tree) -> Iterator[Problem]:
    """Budgets and container bounds that conflict with the quotas of the stack."""
    for name, team in tree.stack.teams.items():
        yield from _queue_fits(tree, name, team)
        yield from _limits(("teams", name), team)
        yield from _claims(tree, name, team)


def _queue_fits(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The budget must cover the requests of everything that the queues can admit at once."""
    shares = tree.team_shares.get(tree.queue_of(name), {})
    of_sidecars = sidecars(tree.stack.datasets, team)
    admissible = add(admitted(shares, gangs_of(team, tree.flavors)), of_sidecars)
    for resource in (CPU, MEMORY):
        budget = getattr(team.compute.requests, resource)
        if budget is None or admissible.get(resource, 0) <= budget:
            continue
        of_flavors = [
            f"{flavor} {format_amount(resource, resources[resource].limit or 0)}"
            for flavor, resources in shares.items()
            if resources[resource].limit
        ]
        gangs = sum(amounts.get(resource, 0) for amounts in gangs_of(team, tree.flavors).values())
        of_gangs = [f"gangs {format_amount(resource, gangs)}"] if gangs else []
        if of_sidecars.get(resource):
            of_gangs.append(f"sidecars of datasets {format_amount(resource, of_sidecars[resource])}")
        needed = format_amount(resource, admissible[resource])
        yield Problem(
            ("teams", name, "compute", "requests", resource),
            f"is less than the {needed} {resource} that the team's queues can admit"
            f" ({', '.join(of_flavors + of_gangs)}), so the quota would reject admitted pods",
            f"raise it to {needed}, or lower the team's limit with teams.{name}.quota.<flavor>.{resource}",
            format_amount(resource, budget),
            about=(("teams", name), ("pools",)),
        )


def _limits(path: Path, team: Team) -> Iterator[Problem]:
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests is not None and limits is not None and limits < requests:
            yield Problem(
                (*path, "compute", "limits", resource),
                f"is less than compute.requests.{resource} ({format_amount(resource, requests)})",
                f"raise it, or lower compute.requests.{resource}",
                format_amount(resource, limits),
            )
            return
    defaults = container_defaults(team)
    for resource, ratio in ratios(team).items():
        default, request = defaults.limits[resource], defaults.requests[resource]
        if Fraction(default, request) > ratio:
            yield Problem(
                (*path, "containers", "default", resource),
                f"is {float(Fraction(default, request)):g} times the default request"
                f" {format_amount(resource, request)}, but the budget's limits are only {float(ratio):g} times its"
                " requests, so containers without requests and limits would be rejected",
                f"lower it to {format_amount(resource, int(request * ratio))}, or raise compute.limits.{resource}",
                format_amount(resource, default),
            )


def _claims(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The budget must cover the claims of datasets, of storage and of a notebook, and its bounds each of them."""
    sizes: dict[Path, int] = {
        ("datasets", key, "size"): dataset.size for key, dataset in tree.stack.datasets.items() if dataset.is_of(name)
    }
    sizes |= {("teams", name, *place, "size"): storage.size for place, storage in stored(team)}
    of = "datasets and storage" if any(stored(team)) else "datasets"
    total, about = sum(sizes.values()), (("datasets",), ("teams", name, "storage"))
    if team.objects.storage is not None and total > team.objects.storage:
        needed = format_amount("storage", total)
        rule = f"is less than the {needed} storage of the team's {of}"
        value = format_amount("storage", team.objects.storage)
        yield Problem(("teams", name, "objects", "storage"), rule, f"raise it to {needed}", value, about)
    if team.objects.persistentvolumeclaims is not None and len(sizes) > team.objects.persistentvolumeclaims:
        value = str(team.objects.persistentvolumeclaims)
        rule = f"is less than the {len(sizes)} PersistentVolumeClaims of the team's {of}"
        fix = f"raise it to {len(sizes)} or more"
        yield Problem(("teams", name, "objects", "persistentvolumeclaims"), rule, fix, value, about)
    for path, size in sizes.items():
        minimum, maximum = team.claims.min or 0, team.claims.max or size
        if not minimum <= size <= maximum:
            yield Problem(
                path,
                f"is outside the range of claim sizes in team {name}"
                f" ({format_amount('storage', minimum)} to {format_amount('storage', maximum)})",
                f"change it, or change teams.{name}.claims",
                format_amount("storage", size),
                about=(("teams", name, "claims"),),
            )
