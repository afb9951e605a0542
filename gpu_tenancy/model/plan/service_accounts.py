"""Service accounts for the CI jobs of teams, and the cloud identities as which their CI jobs log in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.model.names import ACCOUNT
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Person

ACCOUNTS_OF_PODS: Final = ("default", ACCOUNT)
"""ServiceAccounts that pods of a team may run with, so that their rights would be everybody's."""


@dataclass(frozen=True, slots=True)
class ServiceAccountPlan:
    """A service account of a team.

    Attributes:
        team: its namespace.
        name: of its ServiceAccount.
        role: what it may do in the team.
        subject: claim `sub` of the tokens of its CI job; None without a cloud identity.
        identity: its cloud identity as the cluster knows it; None without.
    """

    team: str
    name: str
    role: Literal["researcher", "viewer"]
    subject: str | None = None
    identity: Person | None = None

    def __str__(self) -> str:
        """As a review lists it: with the subject, because another one is somebody else."""
        return f"serviceaccount:{self.team}/{self.name}" + (f" ({self.subject})" if self.subject else "")

    @property
    def people(self) -> tuple[Person, ...]:
        """Everybody that it is to the API server."""
        account = Person("serviceaccount", f"{self.team}/{self.name}")
        return (account, self.identity) if self.identity else (account,)


def service_accounts(stack: Stack, team: str) -> Iterator[ServiceAccountPlan]:
    """The service accounts of a team."""
    for name, account in stack.teams[team].service_accounts.items():
        identity = stack.cluster.account_identity(team, name) if account.subject else None
        yield ServiceAccountPlan(team, name, account.role, account.subject, identity)


def identities(stack: Stack) -> tuple[ServiceAccountPlan, ...]:
    """The service accounts of all teams that have a cloud identity."""
    return tuple(account for team in stack.teams for account in service_accounts(stack, team) if account.identity)
