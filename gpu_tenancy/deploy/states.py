"""Resources in the states of Pulumi stacks."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.engine.wire import SIGNATURE

Entry: TypeAlias = Mapping[str, Any]
"""A resource in the state of a Pulumi stack."""
State: TypeAlias = Mapping[str, Any]
"""A deployment as `pulumi stack export` writes it, without the version around it."""
Mutable: TypeAlias = dict[str, Any]
"""A resource in a new state."""

ROOT: Final = "pulumi:pulumi:Stack"
"""Type of the resource that represents a stack: its state begins with it."""
TEAM: Final = "gpu-tenancy:tenancy:Team"
"""Type of the component with what is a team's own."""
_PROVIDER: Final = "pulumi:providers:"
_NEEDED: Final = ("dependencies", "replaceWith")
_BY_PROPERTY: Final = "propertyDependencies"
_WITH: Final = "deletedWith"
"""Fields with URNs: https://pkg.go.dev/github.com/pulumi/pulumi/sdk/v3/go/common/apitype#ResourceV3."""


def name_of(entry: Entry) -> str:
    """The name that the program gave a resource."""
    return str(entry["urn"]).rpartition("::")[2]


def plain(value: Any, *, hidden: bool = False) -> Any:
    """A value of a state without what is null, with secrets in clear text or hidden."""
    if isinstance(value, Mapping):
        known = cast("Mapping[str, Any]", value)
        if SIGNATURE in known:
            return "[secret]" if hidden else plain(json.loads(known["plaintext"]))
        return {key: plain(each, hidden=hidden) for key, each in known.items() if each is not None}
    if isinstance(value, list):
        return [plain(each, hidden=hidden) for each in cast("list[Any]", value)]
    return value


def is_scaffold(entry: Entry) -> bool:
    """Whether each stack has such a resource of its own: nothing of a cluster or cloud."""
    at_top = f"::{ROOT}::" in str(entry.get("parent", ""))
    provided = at_top and (entry["type"].startswith(_PROVIDER) or bool(entry.get("external")))
    return provided or entry["type"] == ROOT


def is_real(entry: Entry) -> bool:
    """Whether a resource is an object of a cluster, a release or a resource of a cloud."""
    return bool(entry.get("custom")) and not (entry.get("external") or entry["type"].startswith(_PROVIDER))


def without_missing(entry: Entry, there: set[str]) -> Mutable:
    """A resource without references to what is not in its state: Pulumi refuses a state with them.

    The next deployment records them again, as far as they are in the same stack.
    """
    left = dict(entry)
    for field in _NEEDED:
        if left.get(field):
            left[field] = [urn for urn in left[field] if urn in there]
    if by_property := left.get(_BY_PROPERTY):
        left[_BY_PROPERTY] = {key: [urn for urn in urns or () if urn in there] for key, urns in by_property.items()}
    if left.get(_WITH) and left[_WITH] not in there:
        del left[_WITH]
    return left
