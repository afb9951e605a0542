"""Guards: admission policies for objects that tenants create after the deployment."""

import re
from typing import Annotated, Literal, TypeAlias

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
