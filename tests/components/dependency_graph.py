"""Which resources wait for which, by the rules of Pulumi's engine, for tests of order."""

from collections.abc import Iterable
from functools import cached_property

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered


class Graph:
    """The resources of a stack; a dependency on a component is one on all that is below it."""

    def __init__(self, rendered: Rendered) -> None:
        self.known = {registration.urn: registration for registration in rendered.registrations}

    def needs(self, one: Registration) -> set[str]:
        """What a resource waits for directly: what it names, its provider, and its parent's URN."""
        named = {*one.dependencies, one.provider.rpartition("::")[0], one.parent} & self.known.keys()
        return {urn for item in named for urn in (item, *(self._below(item) if item != one.parent else ()))} - {one.urn}

    def _below(self, urn: str) -> Iterable[str]:
        for child in self._children.get(urn, ()):
            yield child
            yield from self._below(child)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for registration in self.known.values():
            found.setdefault(registration.parent, []).append(registration.urn)
        return found

    def all_needs(self, one: Registration) -> set[str]:
        """All that is there before a resource is."""
        found: set[str] = set()
        left = [one.urn]
        while left:
            for urn in self.needs(self.known[left.pop()]) - found:
                found.add(urn)
                left.append(urn)
        return found

    def order(self) -> list[str]:
        """The resources in an order of their making; destruction is its reverse.

        Raises:
            AssertionError: some wait for each other.
        """
        left: dict[str, set[str]] = {urn: self.needs(value) for urn, value in self.known.items()}
        made: list[str] = []
        while left:
            there = set(made)
            ready = sorted(urn for urn, needs in left.items() if needs <= there)
            assert ready, f"these wait for each other: {sorted(left)}"
            made += ready
            left = {urn: needs for urn, needs in left.items() if urn not in ready}
        return made

    def find(self, type_: str, name: str = "") -> list[Registration]:
        """Resources of a type, by their name in the cluster."""
        return [
            registration
            for registration in self.known.values()
            if registration.type == type_ and name in {"", name_of(registration)}
        ]


def name_of(one: Registration) -> str:
    """A resource's name in the cluster: of a release its own, of an object its metadata's."""
    metadata = one.inputs.get("metadata")
    return str(metadata.get("name", "") if isinstance(metadata, dict) else one.inputs.get("name", ""))
