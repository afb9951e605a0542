"""People of a stack by team and role."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.model.plan.people import bindings, resolved
from gpu_tenancy.model.plan.service_accounts import service_accounts
from gpu_tenancy.model.plan.shares import Tree


@dataclass(frozen=True, slots=True)
class Membership:
    """The people who have a role.

    Attributes:
        team: where they have it; empty for the whole cluster.
        role: `lead`, `researcher` or `viewer` of a team; `admin` or `auditor` of the cluster.
        people: as the stack writes them, with their kind; of service accounts, each once.
    """

    team: str
    role: str
    people: tuple[str, ...]


def memberships(tree: Tree) -> Iterator[Membership]:
    """Who has which role: administrators and auditors first, then the members of each team."""
    people = tree.stack.people
    for role, entries in (("admin", people.admins), ("auditor", people.auditors)):
        if entries:
            yield Membership("", role, tuple(map(str, resolved(people.names, entries))))
    for team in tree.stack.teams:
        shown = {who: str(account) for account in service_accounts(tree.stack, team) for who in account.people}
        for binding in bindings(tree, team):
            found = dict.fromkeys(shown.get(who, str(who)) for who in binding.people)
            yield Membership(team, binding.role, tuple(found))
