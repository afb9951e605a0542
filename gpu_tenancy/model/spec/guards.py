"""Guards: admission policies for objects that tenants create after the deployment."""

import re
from typing import Annotated, Literal, TypeAlias

from gpu_tenancy.model.spec.base import OFF, Matching, Section, Shorthand

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


class Guards(Section):
    """Admission policies in the teams' namespaces. A string sets the action."""

    action: Action | None = None
    """What happens to objects that violate a policy: `deny`, `warn`, `audit` or `off`; default: `deny` if
    `environment` is prod, else `warn`."""
    exempt: list[Account] = []
    """Users, groups and service accounts that the policies do not apply to, in addition to Kubernetes' own
    controllers, the operators of this stack and `system:masters`: such as the controller of another batch system, if
    the owners of its objects are restricted in another way."""


GuardsEntry: TypeAlias = Annotated[Guards, Shorthand(str, ("action",)), OFF]
"""The guards: an action, or a mapping."""
