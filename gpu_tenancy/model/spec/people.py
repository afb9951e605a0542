"""People: who administers and audits the platform, and the members of cohorts and teams."""

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, model_validator

from gpu_tenancy.model.fields import Name, Section, refuse

Kind: TypeAlias = Literal["group", "user", "serviceaccount", "role"]

_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}):(role|user)/(?:[\w+=,.@-]+/)*([\w+=,.@-]+)")
"""https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-arns."""
_ACCOUNT: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBJECT: Final = re.compile(r"[!-~]{1,127}")
"""Google Cloud accepts 127 bytes: https://cloud.google.com/iam/docs/workload-identity-federation#mapping."""
_FORMS: Final = "write group:NAME, user:NAME, serviceaccount:NAMESPACE/NAME, or the ARN of an IAM role or user"


@dataclass(frozen=True, slots=True, order=True)
class Person:
    """A user, a group of users, or a service account, as a directory names it.

    Attributes:
        kind: what it is; `role` is an IAM role or user of AWS.
        name: without the kind: a group's or user's name, `NAMESPACE/NAME` of a service account, or an ARN.
    """

    kind: Kind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "role" else f"{self.kind}:{self.name}"


def person(text: str) -> Person | None:
    """A person as a stack writes it; None for a name of `people.names`."""
    if _ROLE.fullmatch(text):
        return Person("role", text)
    kind, separator, name = text.partition(":")
    if separator and kind in {"group", "user", "serviceaccount"}:
        return Person(kind, name)  # pyright: ignore[reportArgumentType] - one of these
    return None


def _entry(text: str) -> str:
    found = person(text)
    if found is None:
        if not _NAME.fullmatch(text):
            raise refuse("is not a person", f"{_FORMS}, or a name of people.names")
        return text
    if found.kind in {"group", "user"}:
        if not found.name or found.name != found.name.strip():
            raise refuse(f"is not a {found.kind}", f"write {found.kind}:NAME")
        if found.name.startswith("system:"):
            raise refuse(
                "is a name that Kubernetes reserves, such as that of all users", "name your own groups and users"
            )
    if found.kind == "serviceaccount" and not _ACCOUNT.fullmatch(found.name):
        raise refuse("is not a service account", "write serviceaccount:NAMESPACE/NAME")
    return text


def _full(text: str) -> str:
    if person(_entry(text)) is None:
        raise refuse("is not a person", _FORMS)
    return text


Entry: TypeAlias = Annotated[str, AfterValidator(_entry)]
"""A person, or a name of `people.names`."""
FullEntry: TypeAlias = Annotated[str, AfterValidator(_full)]
"""A person."""


class Members(Section):
    """Members of a team, or of all teams of a cohort and of the cohorts below it.

    Each entry is a group (`group:NAME`), a user (`user:NAME`), a service account (`serviceaccount:NAMESPACE/NAME`), the
    ARN of an IAM role or user on EKS, or a name of `people.names`. The directory of the cluster must know it: on GKE
    e-mail addresses, on AKS object ids of Entra (and user names), on other clusters what their API server accepts.
    """

    leads: list[Entry] = []
    """Do what researchers do, manage Secrets, ConfigMaps and PersistentVolumeClaims, change the priority of workloads,
    and stop the team's queue."""
    researchers: list[Entry] = []
    """Submit, watch and delete workloads, read their logs, open shells and ports in their pods, read quotas."""
    viewers: list[Entry] = []
    """Read everything in the namespace, except Secrets, without shells."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        seen: dict[str, str] = {}
        for role in ("leads", "researchers", "viewers"):
            for entry in getattr(self, role):
                if entry in seen:
                    raise refuse(
                        f"lists {entry} under {seen[entry]} and {role}",
                        "keep the entry under one role: leads can do what researchers can, and these what viewers can",
                    )
                seen[entry] = role
        return self


def _subject(text: str) -> str:
    if "*" in text or "?" in text:
        raise refuse(
            "has a wildcard, but a service account is one subject", "write the subject of one branch or environment"
        )
    if not _SUBJECT.fullmatch(text):
        raise refuse(
            "is not the subject of a CI system's token",
            "write its claim `sub`, such as repo:example/vision:ref:refs/heads/main",
        )
    return text


class ServiceAccount(Section):
    """A service account for the CI jobs of a team: a ServiceAccount in the team's namespace with a role.

    It has no stored token, and members of the team cannot run pods with it. On EKS, GKE and AKS, `subject` also gives
    it a cloud identity, as which a job of the CI system logs in to the cluster with its own OIDC token.
    """

    role: Literal["researcher", "viewer"]
    """What it may do in the team. A service account cannot be a lead, since its jobs would read Secrets of the team."""
    subject: Annotated[str, AfterValidator(_subject)] | None = None
    """Claim `sub` of the tokens of one CI job, such as `repo:example/vision:ref:refs/heads/main`, which the issuer of
    `cluster.identityProvider` signs. Default: no cloud identity, only tokens of the ServiceAccount."""


class People(Section):
    """Administrators and auditors of the platform, and short names for people that are used several times."""

    names: dict[Name, FullEntry] = {}
    """Short names of people, for `admins`, `auditors` and `members`."""
    admins: list[Entry] = []
    """May do everything in the cluster (ClusterRole `cluster-admin`)."""
    auditors: list[Entry] = []
    """May read everything of the platform and of all teams, except Secrets, without shells."""
