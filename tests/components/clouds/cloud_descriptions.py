"""What a cloud says of its own API, as a test may ask it: the same questions for all three."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Inputs: TypeAlias = Mapping[str, Any]
"""Inputs of one resource as Pulumi sends them: plain JSON, camelCase keys."""

Place: TypeAlias = tuple[str | int, ...]
"""Where in the inputs: keys and list positions."""


class Description(Protocol):
    """A cloud's own description of its API, held against what we send.

    Inputs go by the Pulumi provider's names; each description knows how they map to the API's, and reports an input
    that maps to nothing.
    """

    stacks: Sequence[str]
    """Names of the stacks that go to this cloud."""
    types: frozenset[str]
    """Type tokens of the resources that it describes, such as `aws:eks/nodeGroup:NodeGroup`."""
    undescribed: Mapping[str, str]
    """Type tokens of the cloud's resources that it does not describe, and why."""

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        """What the cloud would refuse: unknown names, values outside an enumeration or pattern, what is missing."""
        ...

    def required(self, token: str, inputs: Inputs) -> list[Place]:
        """Places of the inputs without which the cloud refuses the call."""
        ...

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]:
        """Places of the inputs whose values are one of a few words."""
        ...
