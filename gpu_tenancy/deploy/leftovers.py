"""Objects that exist and that the state of Pulumi does not have: those of a killed run, and those of somebody else."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from gpu_tenancy.base.json import Json, maps_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import foreign, survey
from gpu_tenancy.kube.outcome import ApplyError, Failure
from gpu_tenancy.kube.references import Key, Reference
from gpu_tenancy.kube.request import CONNECTIONS


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
