"""Checks of budgets: a namespace's must not reject pods that the queues admit, and monthly ones need known costs."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, add, format_amount
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.namespaces import container_defaults, ratios
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.object_storage import sidecars
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
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


_MONTH: Final = 30 * 86_400
"""Seconds that a monthly budget is about."""


def spending_problems(tree: Tree) -> Iterator[Problem]:
    """Monthly budgets of which no alert can tell whether they are exceeded."""
    budgets = [name for name, team in tree.stack.teams.items() if team.monthly_budget]
    if not budgets:
        return
    prices = gpu_prices(tree)
    for name in budgets:
        for rule, fix in _reasons(tree, name, prices):
            yield Problem(("teams", name, "monthlyBudget"), rule, fix)


def _reasons(tree: Tree, name: str, prices: dict[str, float | None]) -> Iterator[tuple[str, str]]:
    if (queue := tree.queue_of(name)) != name:
        yield f"the team uses the queue of {queue}, whose GPUs are counted there", f"set teams.{queue}.monthlyBudget"
        return
    priced = [flavor for flavor in tree.team_shares[name] if flavor in prices]
    if not priced:
        yield "the team has no GPUs, and only their costs are counted", "remove it"
    unknown = [flavor for flavor in priced if prices[flavor] is None]
    if unknown:
        what = f"the price of {', '.join(unknown)} is unknown"
        yield what, "set `prices` of the machines of its pools, or remove the budget"
    here = installed_by(tree, "prometheus") == "here"
    if not _has_prometheus(tree):
        yield "no Prometheus of this stack records what GPUs are used", "set operators.prometheus to here or installed"
    elif here and ((storage := tree.stack.metrics.storage) is None or storage.retention < _MONTH):
        yield "Prometheus does not keep its samples for 30 days", "set metrics.storage.retention to 30d or more"


def _has_prometheus(tree: Tree) -> bool:
    return installed_by(tree, "prometheus") == "here" or tree.stack.operators.of("prometheus").install == "installed"


def opencost_problems(tree: Tree) -> Iterator[Problem]:
    """Prices for an OpenCost that could not count anything."""
    if tree.stack.metrics.opencost and not _has_prometheus(tree):
        rule = "OpenCost reads from Prometheus what is used, and this stack has none"
        yield Problem(("metrics", "opencost"), rule, "set operators.prometheus to here or installed, or remove it")


def alert_problems(tree: Tree) -> Iterator[Problem]:
    """Receivers for which no Alertmanager of this stack has a configuration."""
    if installed_by(tree, "prometheus") == "here":
        return
    alerts, teams = tree.stack.metrics.alerts, tree.stack.teams
    places: list[Path] = [("teams", name, "alerts") for name, team in teams.items() if team.alerts]
    places += [("metrics", "alerts", "receiver")] if alerts.receiver else []
    places += [("metrics", "alerts", "deadMansSwitch")] if alerts.dead_mans_switch else []
    for place in places:
        yield Problem(
            place, "no Alertmanager of this stack sends alerts", "set operators.prometheus to here, or remove it"
        )
