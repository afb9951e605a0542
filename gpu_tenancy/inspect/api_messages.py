"""What messages of an API server mean. It puts these facts into its texts only; no field of a Status has them."""

import re
from typing import Final

_FORBIDDEN_LIST: Final = re.compile(
    r'cannot list resource "([^"]+)" in API group "([^"]*)" (at the cluster scope|in the namespace "[^"]+")'
)


def is_exceeded_quota(message: str) -> bool:
    """Whether the ResourceQuota admission plugin rejected a pod."""
    return "exceeded quota" in message


def is_missing_create_right(message: str) -> bool:
    """Whether the user lacks the right to create the object, apart from what is in it."""
    return "cannot create resource" in message


def without_user(message: str) -> str:
    """The missing right to list a kind, without the name of the user; any other message unchanged."""
    match = _FORBIDDEN_LIST.search(message)
    if not match:
        return message
    resource, group, scope = match.groups()
    where = "in the whole cluster" if "cluster scope" in scope else scope.replace('"', "").replace("in the", "in")
    return f"you may not list {resource}{'.' if group else ''}{group} {where}"
