"""Resources in the states of Pulumi stacks."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias, cast

from gpu_tenancy.base.json import Json, maps_at
from gpu_tenancy.engine.recording import SIGNATURE
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import ApplyError, Failure, foreign, survey
from gpu_tenancy.kube.references import Key, Reference
from gpu_tenancy.kube.request import CONNECTIONS

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


def exported_keys(exported: str) -> frozenset[Key]:
    """The objects in the output of `pulumi stack export`."""
    state = cast("Mapping[str, Json]", json.loads(exported))
    return keys(maps_at(state, "deployment", "resources"))


def keys(resources: Iterable[Mapping[str, Any]]) -> frozenset[Key]:
    """The objects among the resources of a state."""
    return frozenset(Reference.of(one["inputs"]).key for one in resources if is_object(one))


def is_object(resource: Mapping[str, Any]) -> bool:
    """Whether a resource of a state is one object of Kubernetes, and not a provider, a release or a component."""
    return str(resource["type"]).startswith("kubernetes:") and "kind" in (resource.get("inputs") or {})


def leftovers(
    cluster: Cluster, objects: Sequence[Reference], known: frozenset[Key], adopt: Collection[str], mark: str
) -> list[Reference]:
    """Existing objects that an earlier run of the same stack created, and that its state does not have.

    Args:
        cluster: of the stack.
        objects: that the stack declares.
        known: objects in its state.
        adopt: names of objects of others that the stack takes over.
        mark: of the stack, as `gpu_tenancy.model.names.deployed_by`.

    Raises:
        ApplyError: objects of somebody else exist, or cannot be read.
    """
    unknown = [reference for reference in objects if reference.key not in known]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        existing = survey(cluster, pool, unknown)
    created: list[Reference] = []
    failures: list[Failure] = []
    for reference in unknown:
        live = existing[reference]
        if isinstance(live, Failure):
            failures.append(live)
        elif live and live.deployed_by == mark:
            created.append(reference)
        elif live and reference.adoptable not in adopt:
            failures.append(Failure(reference, foreign(reference, live)))
    if failures:
        raise ApplyError(failures, ())
    return created
