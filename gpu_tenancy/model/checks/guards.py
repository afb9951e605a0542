"""Checks of the guards' exemptions: tenants must not be exempt."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Problem
from gpu_tenancy.model.plan.guards import accounts
from gpu_tenancy.model.plan.shares import Tree

_EVERYBODY: Final = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


def guard_problems(tree: Tree) -> Iterator[Problem]:
    """Exemptions that include tenants."""
    stack = tree.stack
    if stack.guards.action == "off":
        return
    for index, account in enumerate(stack.guards.exempt):
        path = ("guards", "exempt", index)
        if account in _EVERYBODY:
            yield Problem(
                path,
                "would exempt everyone",
                "list only the accounts to exempt, or set guards.action: off",
                account,
            )
        team = next((name for name in stack.teams if _of(name, account)), None)
        if team:
            yield Problem(
                path,
                f"is in the namespace of team {team}: anyone who can edit that namespace can use it",
                "exempt an account in a namespace that belongs to no team",
                account,
                about=(("teams", team),),
            )


def _of(team: str, account: str) -> bool:
    return account == accounts(team) or account.startswith(f"system:serviceaccount:{team}:")
