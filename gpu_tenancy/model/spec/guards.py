"""Guards: admission policies for objects that tenants create after the deployment."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from gpu_tenancy.model.spec.base import Section, Shorthand, refuse


def _off(value: Any) -> Any:
    """YAML 1.1 reads an unquoted `off` as false, YAML 1.2 as a string."""
    return "off" if value is False else value


Action: TypeAlias = Annotated[Literal["deny", "warn", "audit", "off"], BeforeValidator(_off)]
"""`deny`: rejected. `warn`: accepted with a warning and an audit log entry. `audit`: audit log entry only. `off`: not
evaluated."""


def _account(text: str) -> str:
    if not text.strip() or text != text.strip() or "*" in text:
        raise refuse(
            "is not an account name",
            "set a user, group or service account by its API server name, such as"
            " system:serviceaccount:argo:workflow-controller or system:serviceaccounts:argo; wildcards are not"
            " supported",
        )
    return text


Account: TypeAlias = Annotated[str, AfterValidator(_account)]
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


GuardsEntry: TypeAlias = Annotated[Guards, Shorthand(str, ("action",)), BeforeValidator(_off)]
"""The guards: an action, or a mapping."""
