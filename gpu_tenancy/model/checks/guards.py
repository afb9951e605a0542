"""Guards that nobody whom they are for can step around."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.model.plan.guards import accounts
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Problem

_EVERYBODY: Final = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


def guard_problems(tree: Tree) -> Iterator[Problem]:
    """Exemptions of the tenants themselves."""
    stack = tree.stack
    if stack.guards.action == "off":
        return
    for index, account in enumerate(stack.guards.exempt):
        path = ("guards", "exempt", index)
        if account in _EVERYBODY:
            yield Problem(
                path, "is everybody", "name the accounts that must not be judged, or write action: off", account
            )
        team = next((name for name in stack.teams if _of(name, account)), None)
        if team:
            yield Problem(
                path,
                f"is in the namespace of team {team}, as which whoever may edit it can act",
                "exempt an account of a namespace that no team has",
                account,
                about=(("teams", team),),
            )


def _of(team: str, account: str) -> bool:
    return account == accounts(team) or account.startswith(f"system:serviceaccount:{team}:")
