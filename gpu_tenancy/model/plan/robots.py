"""Robots of teams: their ServiceAccounts, and the cloud identities as which their CI jobs log in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Person

ACCOUNTS_OF_PODS: Final = ("default", "workload")
"""ServiceAccounts that pods of a team may run with, so that their rights would be everybody's."""


@dataclass(frozen=True, slots=True)
class RobotPlan:
    """A robot of a team.

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
        return f"robot:{self.team}/{self.name}" + (f" ({self.subject})" if self.subject else "")

    @property
    def people(self) -> tuple[Person, ...]:
        """Everybody that it is to the API server."""
        account = Person("serviceaccount", f"{self.team}/{self.name}")
        return (account, self.identity) if self.identity else (account,)


def robots(stack: Stack, team: str) -> Iterator[RobotPlan]:
    """The robots of a team."""
    for name, robot in stack.teams[team].robots.items():
        identity = stack.cluster.robot_identity(team, name) if robot.subject else None
        yield RobotPlan(team, name, robot.role, robot.subject, identity)


def identities(stack: Stack) -> tuple[RobotPlan, ...]:
    """The robots of all teams that have a cloud identity."""
    return tuple(robot for team in stack.teams for robot in robots(stack, team) if robot.identity)
