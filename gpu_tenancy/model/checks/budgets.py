"""Checks of budgets: a namespace's must not reject pods that the queues admit, and monthly ones need known costs."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import CPU, MEMORY, add, format_amount
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.namespaces import container_defaults, ratios
from gpu_tenancy.model.plan.needs import installed_by, there
from gpu_tenancy.model.plan.object_storage import sidecars
from gpu_tenancy.model.plan.shares import Tree, admitted, gangs_of
from gpu_tenancy.model.plan.storage import stored
from gpu_tenancy.model.spec.teams import Idle, Team


def budget_problems(tree: Tree) -> Iterator[Problem]:
    """Budgets that conflict with the stack, or that nothing measures."""
    for name, team in tree.stack.teams.items():
        yield from _queue_fits(tree, name, team)
        yield from _limits(("teams", name), team)
        yield from _claims(tree, name, team)
    prices = gpu_prices(tree) if any(team.monthly_budget for team in tree.stack.teams.values()) else {}
    for name, team in tree.stack.teams.items():
        for rule, fix in _reasons(tree, name, prices) if team.monthly_budget else ():
            yield Problem(("teams", name, "monthlyBudget"), rule, fix)
    idle: dict[Path, Idle | None] = {("teams", name, "idle"): team.idle for name, team in tree.stack.teams.items()}
    idle[("idle",)] = tree.stack.idle
    for place in (place for place, spec in idle.items() if spec and spec.then != "off"):
        yield from (Problem(place, rule, fix, about=(("operators",),)) for rule, fix in _unmeasured(tree))
    by = installed_by(tree, "prometheus")
    for place, here in _of_prometheus(tree):
        if by == "off" or (here and by != "here"):
            rule = f"has no effect: this stack {'installs' if here else 'has'} no Prometheus"
            fix = f"set operators.prometheus to here{'' if here else ' or installed'}, or remove it"
            yield Problem(place, rule, fix, about=(("cluster",), ("operators",)))


def _queue_fits(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The budget must cover the requests of all pods that the queues can admit at once."""
    shares, owner = tree.shares_of(name), tree.queue_of(name)
    of_sidecars, gangs = sidecars(tree.stack.datasets, team), gangs_of(team, tree.flavors)
    admissible = add(admitted(shares, gangs), of_sidecars)
    for resource in (CPU, MEMORY):
        budget = getattr(team.compute.requests, resource)
        if budget is None or admissible.get(resource, 0) <= budget:
            continue
        amounts = [(flavor, resources[resource].limit or 0) for flavor, resources in shares.items()]
        amounts.append(("gangs", sum(of_gang.get(resource, 0) for of_gang in gangs.values())))
        amounts.append(("sidecars of datasets", of_sidecars.get(resource, 0)))
        parts = ", ".join(f"{part} {format_amount(resource, amount)}" for part, amount in amounts if amount)
        needed = format_amount(resource, admissible[resource])
        rule = f"is less than the {needed} {resource} that the team's queues can admit ({parts})"
        rule += ", so the quota would reject admitted pods"
        fix = f"raise it to {needed}, or lower the team's limit with teams.{owner}.quota.<flavor>.{resource}"
        place, about = ("teams", name, "compute", "requests", resource), (("teams",), ("pools",))
        yield Problem(place, rule, fix, format_amount(resource, budget), about)


def _limits(path: Path, team: Team) -> Iterator[Problem]:
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests is not None and limits is not None and limits < requests:
            rule = f"is less than compute.requests.{resource} ({format_amount(resource, requests)})"
            fix = f"raise it, or lower compute.requests.{resource}"
            yield Problem((*path, "compute", "limits", resource), rule, fix, format_amount(resource, limits))
            return
    defaults = container_defaults(team)
    for resource, ratio in ratios(team).items():
        default, request = defaults.limits[resource], defaults.requests[resource]
        if Fraction(default, request) > ratio:
            rule = (
                f"is {float(Fraction(default, request)):g} times the default request"
                f" {format_amount(resource, request)}, but the budget's limits are only {float(ratio):g} times its"
                " requests, so containers without requests and limits would be rejected"
            )
            lower = format_amount(resource, int(request * ratio))
            fix = f"lower it to {lower}, or raise compute.limits.{resource}"
            yield Problem((*path, "containers", "default", resource), rule, fix, format_amount(resource, default))


def _claims(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The budget must cover the claims of datasets, storage and notebooks; its bounds must cover each claim."""
    sizes: dict[Path, int] = {
        ("datasets", key, "size"): dataset.size for key, dataset in tree.stack.datasets.items() if dataset.is_of(name)
    }
    sizes |= {("teams", name, *place, "size"): storage.size for place, storage in stored(team)}
    of = "datasets and storage" if any(stored(team)) else "datasets"
    about = (("datasets",), ("teams", name, "storage"))
    budget, most, total = team.objects.storage, team.objects.persistentvolumeclaims, sum(sizes.values())
    if budget is not None and total > budget:
        needed, value = format_amount("storage", total), format_amount("storage", budget)
        rule = f"is less than the {needed} storage of the team's {of}"
        yield Problem(("teams", name, "objects", "storage"), rule, f"raise it to {needed}", value, about)
    if most is not None and len(sizes) > most:
        rule = f"is less than the {len(sizes)} PersistentVolumeClaims of the team's {of}"
        fix = f"raise it to {len(sizes)} or more"
        yield Problem(("teams", name, "objects", "persistentvolumeclaims"), rule, fix, str(most), about)
    for path, size in sizes.items():
        minimum, maximum = team.claims.min or 0, team.claims.max or size
        if not minimum <= size <= maximum:
            bounds = f"{format_amount('storage', minimum)} to {format_amount('storage', maximum)}"
            rule = f"is outside the range of claim sizes in team {name} ({bounds})"
            fix, bound = f"change it, or change teams.{name}.claims", ("teams", name, "claims")
            yield Problem(path, rule, fix, format_amount("storage", size), about=(bound,))


_MONTH: Final = 30 * 86_400  # seconds of a monthly budget
_PROMETHEUS: Final = "set operators.prometheus to here or installed"


def _reasons(tree: Tree, name: str, prices: dict[str, float | None]) -> Iterator[tuple[str, str]]:
    """Reasons why no alert can detect that a monthly budget is exceeded, each with the fix."""
    if (queue := tree.queue_of(name)) != name:
        yield f"the team uses the queue of {queue}, whose GPUs are counted there", f"set teams.{queue}.monthlyBudget"
        return
    priced = [flavor for flavor in tree.team_shares[name] if flavor in prices]
    if not priced:
        yield "the team has no GPUs, and only their costs are counted", "remove it"
    if unknown := [flavor for flavor in priced if prices[flavor] is None]:
        bare = any(pool.machine is None for flavor in unknown for pool in tree.pools_of(flavor))
        first = "set machine of its pools, with a row in `machines`, and " if bare else ""
        fix = "set `prices` of the machines of its pools, or remove the budget"
        yield f"the price of {', '.join(unknown)} is unknown", first + fix
    here, storage = installed_by(tree, "prometheus") == "here", tree.stack.metrics.storage
    if not there(tree, "prometheus"):
        yield "no Prometheus of this stack records what GPUs are used", _PROMETHEUS
    elif here and (storage is None or storage.retention < _MONTH):
        yield "Prometheus does not keep its samples for 30 days", "set metrics.storage.retention to 30d or more"


def _unmeasured(tree: Tree) -> Iterator[tuple[str, str]]:
    """Reasons why nothing can measure idle GPUs, each with the fix."""
    if not there(tree, "prometheus"):
        yield "no Prometheus of this stack records how much GPUs are used", _PROMETHEUS
    if not there(tree, "gpu_operator"):
        rule = "the stack has no GPU Operator, whose dcgm-exporter measures GPUs"
        yield rule, "set operators.gpuOperator to here or installed, or remove idle"
    if tree.stack.multikueue:
        yield "a MultiKueue manager and its workers would both queue a stopped job again", "remove idle"


def _of_prometheus(tree: Tree) -> Iterator[tuple[Path, bool]]:
    """The keys that a stack sets and that only a Prometheus reads, and whether this program must install it."""
    here = {"alerts", "storage"}
    keys = here | {"prometheus", "service_levels", "team_dashboards", "opencost", "metrics", "service_level"}
    sections: dict[Path, Any] = {("metrics",): tree.written.metrics}
    for team, spec in tree.written.teams.items():
        if spec.alerts:
            yield ("teams", team, "alerts"), True
        sections |= {("teams", team, "serving", name): server for name, server in spec.serving.items()}
    for path, section in sections.items():
        own = keys & section.model_fields_set
        yield from (((*path, to_camel(key)), key in here) for key, value in section if value and key in own)
