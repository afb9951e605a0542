"""Guards: admission policies for objects that tenants create, and the registries that they may use."""

import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpu_tenancy.model.fields import OFF, Matching, Seconds, Section, Shorthand

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

    jobs: GracePeriod = 600.0
    """Of pods and jobs: the time to write a checkpoint. The default is what the Cluster Autoscaler waits at most."""
    servers: GracePeriod = 3600.0
    """Of Deployments, StatefulSets, LeaderWorkerSets, RayServices and Rollouts: the time to complete requests."""


class Guards(Section):
    """Admission policies in the teams' namespaces. A string sets the action."""

    action: Action | None = None
    """What happens to objects that violate a policy: `deny`, `warn`, `audit` or `off`; default: `deny` in
    production, else `warn`."""
    exempt: list[Account] = []
    """Users, groups and service accounts that the policies do not apply to, in addition to Kubernetes' own
    controllers, the operators of this stack and `system:masters`: such as the controller of another batch system, if
    the owners of its objects are restricted in another way."""
    grace: Grace | None = None
    """Maximum termination grace periods of pods with GPUs."""

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
    """Registries of the teams' images, each with the start of a path if only a part of it is allowed:
    `[registry.example.com/ml, "*.pkg.dev/ml-prod"]`. Images of the stack are checked, and a guard evaluates those of
    tenants; default: any."""
    registries: list[Readable] = []
    """Registries that the nodes get the right to read, also as pull-through caches: repositories of Artifact Registry
    in other projects (`projects/PROJECT/locations/LOCATION/repositories/NAME`), or Azure container registries (by
    resource ID). On EKS, nodes can read ECR of their account without it; on GKE, Artifact Registry of their project."""
