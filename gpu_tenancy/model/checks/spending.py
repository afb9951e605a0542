"""Checks of what somebody must watch: monthly budgets, whose costs must be known for as long as a month, and alerts."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.shares import Tree

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
