"""What the API server itself judges of what tenants make after the deployment."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from gpu_tenancy.model.spec.base import Section, Shorthand, refuse


def _off(value: Any) -> Any:
    """YAML 1.1 reads a bare `off` as false, YAML 1.2 as the word."""
    return "off" if value is False else value


Action: TypeAlias = Annotated[Literal["deny", "warn", "audit", "off"], BeforeValidator(_off)]
"""`deny`: refused. `warn`: admitted with a warning, and written to the audit log. `audit`: written there alone. `off`:
not judged."""


def _account(text: str) -> str:
    if not text.strip() or text != text.strip() or "*" in text:
        raise refuse(
            "names no account",
            "write a user, a group or a service account as the API server calls it, such as"
            " system:serviceaccount:argo:workflow-controller or system:serviceaccounts:argo; there are no wildcards",
        )
    return text


Account: TypeAlias = Annotated[str, AfterValidator(_account)]
"""A user, a group or a service account, as the API server calls it."""


class Guards(Section):
    """Admission policies in the teams' namespaces. A word alone is the action."""

    action: Action | None = None
    """What becomes of what breaks a rule: `deny`, `warn`, `audit` or `off`; left out, `deny` where `environment` is
    prod, else `warn`."""
    exempt: list[Account] = []
    """Users, groups and service accounts that are not judged, beside Kubernetes' own controllers, the operators of this
    stack and `system:masters`: such as the controller of another batch system, in whose place its owners must be
    judged."""


GuardsEntry: TypeAlias = Annotated[Guards, Shorthand(str, ("action",)), BeforeValidator(_off)]
"""The guards: a word, or spelled out."""
