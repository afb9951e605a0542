"""The order in which a stack's objects can be applied."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.manifests import KubernetesObject


class DependencyCycleError(ValueError):
    """Objects depend on each other; `cycle` has their URNs and ends with the first one."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__("dependency cycle: " + " → ".join(self.cycle))


def waves(objects: Sequence[KubernetesObject]) -> tuple[tuple[KubernetesObject, ...], ...]:
    """Groups objects into waves, so that the dependencies of each object are in earlier waves.

    An object depends also on its namespace and the definition of its kind, if these are among the objects: Pulumi's
    provider retries until both exist, but an apply by waves does not. Each wave keeps the order of `objects`.

    Raises:
        DependencyCycleError: there is a dependency cycle.
    """
    positions = {urn: index for index, urn in reversed([(index, item.urn) for index, item in enumerate(objects)])}
    foundations = _foundations(objects)
    sorter = TopologicalSorter[int]()
    for index, item in enumerate(objects):
        before = {positions[urn] for urn in item.depends_on if urn in positions}
        before |= {foundations[key] for key in _foundations_of(item) if key in foundations}
        sorter.add(index, *sorted(before - {index}))
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists a cycle from dependency to dependent; the message has the opposite order.
        members = cast("list[int]", error.args[1])
        raise DependencyCycleError([objects[index].urn for index in reversed(members)]) from None
    grouped: list[tuple[KubernetesObject, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        grouped.append(tuple(objects[index] for index in sorted(ready)))
        sorter.done(*ready)
    return tuple(grouped)


_Foundation = tuple[str, str, str]


def _foundations(objects: Sequence[KubernetesObject]) -> dict[_Foundation, int]:
    """The positions of namespaces and custom resource definitions."""
    positions: dict[_Foundation, int] = {}
    for index, item in enumerate(objects):
        if (item.group, item.kind) == ("", "Namespace"):
            positions.setdefault(("Namespace", "", item.name), index)
        elif item.kind == "CustomResourceDefinition":
            spec = ("spec", "group"), ("spec", "names", "kind")
            group, kind = (text_at(item.manifest, *path) for path in spec)
            positions.setdefault(("CustomResourceDefinition", group, kind), index)
    return positions


def _foundations_of(item: KubernetesObject) -> tuple[_Foundation, _Foundation]:
    return ("Namespace", "", item.namespace), ("CustomResourceDefinition", item.group, item.kind)
