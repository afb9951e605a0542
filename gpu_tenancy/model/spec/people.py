"""People with their roles, and guards: admission policies for the objects and images of tenants."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from gpu_tenancy.model.fields import OFF, Matching, Name, Seconds, Section, Shorthand, refuse

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
    """A user, a group of users, or a service account, as a directory names it."""

    kind: Kind  # `role` is an IAM role or user of AWS
    name: str  # without the kind: a group's or user's name, `NAMESPACE/NAME` of a service account, or an ARN

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
    elif found.kind in {"group", "user"}:
        if not found.name or found.name != found.name.strip():
            raise refuse(f"is not a {found.kind}", f"write {found.kind}:NAME")
        if found.name.startswith("system:"):
            rule = "is a name that Kubernetes reserves, such as that of all users"
            raise refuse(rule, "name your own groups and users")
    elif found.kind == "serviceaccount" and not _ACCOUNT.fullmatch(found.name):
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
    e-mail addresses, on AKS object ids of Entra (and user names), elsewhere what the API server accepts.
    """

    leads: list[Entry] = []
    """Do what researchers do, manage Secrets, ConfigMaps, claims, Services and autoscalers, change the priority of
    workloads, and stop the team's queue."""
    researchers: list[Entry] = []
    """Submit and delete workloads, read logs and quotas, open shells and ports, create ConfigMaps and claims."""
    viewers: list[Entry] = []
    """Read everything in the namespace, except Secrets, without shells."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        seen: dict[str, str] = {}
        for role in ("leads", "researchers", "viewers"):
            for entry in getattr(self, role):
                if entry in seen:
                    fix = "keep the entry under one role: leads can do what researchers can, and these what viewers can"
                    yield f"lists {entry} under {seen[entry]} and {role}", fix
                seen[entry] = role


def _subject(text: str) -> str:
    if "*" in text or "?" in text:
        rule = "has a wildcard, but a service account is one subject"
        raise refuse(rule, "write the subject of one branch or environment")
    if not _SUBJECT.fullmatch(text):
        fix = "write its claim `sub`, such as repo:example/vision:ref:refs/heads/main"
        raise refuse("is not the subject of a CI system's token", fix)
    return text


class ServiceAccount(Section):
    """A service account for the CI jobs of a team: a ServiceAccount in the team's namespace with a role.

    It has no stored token, and members of the team cannot run pods with it. On EKS, GKE and AKS, `subject` also gives
    it a cloud identity, as which a CI job logs in to the cluster with its own OIDC token.
    """

    role: Literal["researcher", "viewer"]
    """What it may do in the team. A service account cannot be a lead, since its jobs would read Secrets of the team."""
    subject: Annotated[str, AfterValidator(_subject)] | None = None
    """Claim `sub` of the tokens of one CI job, signed by the issuer of `cluster.identityProvider`, such as
    `repo:example/vision:ref:refs/heads/main`. Default: no cloud identity, only tokens of the ServiceAccount."""


class People(Section):
    """Administrators and auditors of the platform, and short names for people that are used several times."""

    names: dict[Name, FullEntry] = {}
    """Short names of people, for `admins`, `auditors` and `members`."""
    admins: list[Entry] = []
    """May do everything in the cluster (ClusterRole `cluster-admin`)."""
    auditors: list[Entry] = []
    """May read everything of the platform and of all teams, except Secrets, without shells."""


Action: TypeAlias = Annotated[Literal["deny", "warn", "audit", "off"], OFF]
"""`deny`: rejected. `warn`: accepted with a warning and an audit log entry. `audit`: audit log entry only. `off`: not
evaluated."""

Account: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(r"[^\s*]|[^\s*][^*]*[^\s*]", re.DOTALL),
        "is not an account name",
        "set a user, group or service account by its API server name, such as"
        " system:serviceaccount:argo:workflow-controller or system:serviceaccounts:argo; wildcards are not supported",
        schema="",
    ),
]
"""A user, group or service account, by its API server name."""

GracePeriod: TypeAlias = Annotated[Seconds, Field(ge=1, le=86_400)]
"""Maximum termination grace period."""


class Grace(Section):
    """Maximum termination grace periods of pods with GPUs.

    A deleted or preempted pod keeps its GPUs for this time, while its queue admits another workload in its place.
    """

    jobs: GracePeriod = 600
    """Of pods and jobs: the time to write a checkpoint. The default is what the Cluster Autoscaler waits at most."""
    servers: GracePeriod = 3600
    """Of Deployments, StatefulSets, LeaderWorkerSets, RayServices and Rollouts: the time to complete requests."""


CsiDriver: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"),
        "is not the name of a CSI driver",
        "write the name of its CSIDriver, such as secrets-store.csi.k8s.io",
    ),
]
"""Name of a CSIDriver: https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-driver-v1/."""


class Guards(Section):
    """Admission policies in the teams' namespaces. A string sets the action."""

    action: Action | None = None
    """What happens to objects that violate a policy: `deny`, `warn`, `audit` or `off`; default: `deny` in
    production, else `warn`."""
    exempt: list[Account] = []
    """Users, groups and service accounts that the policies do not apply to, besides Kubernetes' own controllers, the
    operators of this stack and `system:masters`: such as the controller of another batch system, if the owners of its
    objects are restricted in another way."""
    grace: Grace | None = None
    """Maximum termination grace periods of pods with GPUs."""
    elastic_jobs: bool = False
    """Whether jobs can have Kueue's annotation `kueue.x-k8s.io/elastic-job: "true"`, by which their size can change
    while they run; Kueue 0.18 or later."""
    csi: list[CsiDriver] = []
    """CSI drivers of inline volumes of teams' pods (`volumes[].csi`), such as `secrets-store.csi.k8s.io`, which the
    node mounts with any attributes that the pod sets; default: none. Claims of any driver are allowed."""

    @property
    def periods(self) -> Grace:
        """The maximum grace periods, with the defaults."""
        return self.grace or Grace()


GuardsEntry: TypeAlias = Annotated[Guards, Shorthand(str, ("action",)), OFF]
"""The guards: an action, or a mapping."""

_HOST: Final = r"(?=[^/]*[.*]|localhost)[A-Za-z0-9*][A-Za-z0-9.*-]*(:\d+)?"

Prefix: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(rf"{_HOST}(/[a-z0-9*._-]+)*"),
        "is not a registry or the start of a path in one",
        "write the host first, such as registry.example.com/ml, *.pkg.dev/ml-prod or docker.io/library",
        schema=r"^[A-Za-z0-9*][^/]*(/[a-z0-9*._-]+)*$",
    ),
]
"""A registry with the start of a path; `*` stands for any characters of one segment."""

ARTIFACTS: Final = re.compile(
    r"projects/(?P<project>[a-z][-a-z0-9]{4,28}[a-z0-9])/locations/(?P<location>[a-z0-9-]+)/repositories/(?P<name>[a-z][-a-z0-9]{0,61}[a-z0-9])"
)
"""A repository of Artifact Registry."""
ACR: Final = re.compile(
    r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[-\w.()]+/providers/Microsoft\.ContainerRegistry/registries/(?P<name>[A-Za-z0-9]{5,50})"
)
"""Resource ID of an Azure container registry."""

Readable: TypeAlias = Annotated[
    str,
    Matching(
        re.compile("|".join(pattern.pattern.replace("?P<name>", "") for pattern in (ARTIFACTS, ACR))),
        "is not a registry whose readers are set one by one",
        "write projects/PROJECT/locations/LOCATION/repositories/NAME of Artifact Registry, or the resource ID of an"
        " Azure container registry",
        schema="^(projects|/subscriptions)/.+$",
    ),
]


class Images(Section):
    """Images of teams' containers, and what the nodes may pull."""

    allowed: list[Prefix] = []
    """Registries of the teams' images, with the start of a path: `[registry.example.com/ml, "*.pkg.dev/ml-prod"]`.
    Images of the stack are checked, and a guard evaluates those of tenants; default: any."""
    registries: list[Readable] = []
    """Registries that the nodes get the right to read, also as pull-through caches: repositories of Artifact Registry
    in other projects (`projects/PROJECT/locations/LOCATION/repositories/NAME`), or Azure container registries (resource
    IDs). Without it, nodes read ECR of their account on EKS, and Artifact Registry of their project on GKE."""
