"""The order in which a stack's objects can be applied."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import cast

from gpu_tenancy.console.offline.manifests import KubernetesObject
from gpu_tenancy.console.offline.wire import text_at


class DependencyCycleError(ValueError):
    """Objects wait for one another, so none can be the first; `cycle` has their URNs, ending as it began."""

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__("objects wait for one another: " + " → ".join(self.cycle))


def waves(objects: Sequence[KubernetesObject]) -> tuple[tuple[KubernetesObject, ...], ...]:
    """Groups objects so that each finds what it needs in the waves before its own.

    Beside what the program says, an object waits for its namespace and for the definition of its kind where
    these are among the objects: Pulumi's provider tries again until both are there, who applies by waves
    tries once. Each wave keeps the order of `objects`.

    Raises:
        DependencyCycleError: some objects wait for one another.
    """
    named = {urn: index for index, urn in reversed([(index, one.urn) for index, one in enumerate(objects)])}
    foundations = _foundations(objects)
    sorter = TopologicalSorter[int]()
    for index, one in enumerate(objects):
        before = {named[urn] for urn in one.depends_on if urn in named}
        before |= {foundations[key] for key in _stands_on(one) if key in foundations}
        sorter.add(index, *sorted(before - {index}))
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists a cycle from what must come first; a reader follows who waits for whom.
        members = cast("list[int]", error.args[1])
        raise DependencyCycleError([objects[index].urn for index in reversed(members)]) from None
    found: list[tuple[KubernetesObject, ...]] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        found.append(tuple(objects[index] for index in sorted(ready)))
        sorter.done(*ready)
    return tuple(found)


_Foundation = tuple[str, str, str]


def _foundations(objects: Sequence[KubernetesObject]) -> dict[_Foundation, int]:
    """Where the namespaces and the definitions of kinds are."""
    found: dict[_Foundation, int] = {}
    for index, one in enumerate(objects):
        if (one.group, one.kind) == ("", "Namespace"):
            found.setdefault(("Namespace", "", one.name), index)
        elif one.kind == "CustomResourceDefinition":
            spec = ("spec", "group"), ("spec", "names", "kind")
            group, kind = (text_at(one.manifest, *path) for path in spec)
            found.setdefault(("CustomResourceDefinition", group, kind), index)
    return found


def _stands_on(one: KubernetesObject) -> tuple[_Foundation, _Foundation]:
    return ("Namespace", "", one.namespace), ("CustomResourceDefinition", one.group, one.kind)
