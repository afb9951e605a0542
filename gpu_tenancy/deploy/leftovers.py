"""Objects that exist and that the state of Pulumi does not have: those of a killed run, and those of somebody else."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, cast

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import Live, foreign, survey
from gpu_tenancy.kube.outcome import ApplyError, Failure
from gpu_tenancy.kube.references import Key, Reference
from gpu_tenancy.kube.request import CONNECTIONS

_PROVIDER: Final = "pulumi-kubernetes"
"""Start of the field managers of Pulumi's Kubernetes provider:
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/."""


@dataclass(frozen=True, slots=True)
class State:
    """The objects of a stack in the state of Pulumi.

    Attributes:
        known: objects that it has.
        creating: objects whose creation had begun when the engine was killed; they may exist.
    """

    known: frozenset[Key]
    creating: frozenset[Key]

    @classmethod
    def read(cls, exported: str) -> "State":
        """Reads the output of `pulumi stack export`."""
        state = cast("Mapping[str, Json]", json.loads(exported))
        pending = maps_at(state, "deployment", "pending_operations")
        creating = [at(operation, "resource") for operation in pending if operation.get("type") == "creating"]
        return cls(
            frozenset(_keys(maps_at(state, "deployment", "resources"))),
            frozenset(_keys(resource for resource in creating if isinstance(resource, dict))),
        )


def _keys(resources: Iterable[Mapping[str, Json]]) -> Iterator[Key]:
    for resource in resources:
        inputs = at(resource, "inputs")
        if text_at(resource, "type").startswith("kubernetes:") and isinstance(inputs, dict) and "kind" in inputs:
            yield Reference.of(inputs).key


def leftovers(cluster: Cluster, objects: Sequence[Reference], state: State, adopt: Collection[str]) -> list[str]:
    """The names, as in `cluster.adopt`, of existing objects that a killed run created.

    Raises:
        ApplyError: objects of somebody else exist, or cannot be read.
    """
    unknown = [reference for reference in objects if reference.key not in state.known]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        existing = survey(cluster, pool, unknown)
    created: list[str] = []
    failures: list[Failure] = []
    for reference in unknown:
        live = existing[reference]
        if isinstance(live, Failure):
            failures.append(live)
        elif live and reference.key in state.creating and of_provider(live):
            created.append(reference.adoptable)
        elif live and reference.adoptable not in adopt:
            failures.append(Failure(reference, foreign(reference, live)))
    if failures:
        raise ApplyError(failures, ())
    return created


def of_provider(live: Live) -> bool:
    """Whether Pulumi's provider created an object; one without fields has no field manager."""
    return not live.managers or any(manager.startswith(_PROVIDER) for manager in live.managers)
