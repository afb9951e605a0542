"""IAM policies as AWS evaluates them: an evaluator of its own, which shares nothing with the code that writes policies.

Only what policies here can have: Allow and Deny, the principal `*`, wildcards in actions and resources, and the
operators `Bool`, `StringEquals` and `StringLike`. A key that a request does not have matches no such condition.
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html,
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_EVERYONE: Final = {"AWS": "*"}


def allowed(policy: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Whether a policy allows a request.

    Args:
        policy: the JSON document.
        action: such as `s3:GetObject`.
        resource: the ARN.
        context: the request's values of condition keys.

    Raises:
        KeyError: the policy has an element or an operator that this evaluator does not know.
    """
    effects = [
        statement["Effect"]
        for statement in json.loads(policy)["Statement"]
        if statement.get("Principal", _EVERYONE) == _EVERYONE and _applies(statement, action, resource, context or {})
    ]
    return "Allow" in effects and "Deny" not in effects


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    if unknown := statement.keys() - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}:
        raise KeyError(*unknown)
    return (
        any(_matches(pattern.lower(), action.lower()) for pattern in _list(statement["Action"]))
        and any(_matches(pattern, resource) for pattern in _list(statement["Resource"]))
        and all(
            key in context and any(OPERATORS[name](value, context[key]) for value in _list(values))
            for name, of_operator in statement.get("Condition", {}).items()
            for key, values in of_operator.items()
        )
    )


def _matches(pattern: str, text: str) -> bool:
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(char, re.escape(char)) for char in pattern), text) is not None


OPERATORS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "Bool": operator.eq,
    "StringEquals": operator.eq,
    "StringLike": _matches,
}


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
