"""Where pods are in the network: the levels of a pool's nodes, and the level that all pods of a job share."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import model_validator

from gpu_tenancy.model.fields import LabelKey, Section, Shorthand, refuse

Level: TypeAlias = Literal["block", "rack", "node"]
"""A part of the network, the largest first: a block has several racks, a rack several nodes."""

HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of the lowest level, which every node has."""


class Topology(Section):
    """Levels of the network, by node labels. Kueue then selects the node of each pod of the flavor."""

    source: Literal["cloud", "node"] | None = None
    """`cloud`: the labels that the cloud sets on nodes of this machine type. `node`: no level above the node."""
    block: LabelKey | None = None
    """Node label whose value is the node's block, where you set the labels."""
    rack: LabelKey | None = None
    """Node label whose value is the node's rack or NVLink domain, such as `nvidia.com/gpu.clique`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.source is None) == (self.block is None and self.rack is None):
            raise refuse(
                "must set either source, or the node labels of block and rack",
                "set topology: cloud, topology: node, or topology: {block: LABEL, rack: LABEL}",
            )
        labels = [label for label in (self.block, self.rack, HOSTNAME) if label]
        if len(set(labels)) < len(labels):
            raise refuse("has two levels with the same label", f"set different labels, none of them {HOSTNAME}")
        return self


TopologyEntry: TypeAlias = Annotated[Topology, Shorthand(str, ("source",))]


class Together(Section):
    """The part of the network in which all pods of a job run."""

    required: Literal["block", "rack", "node", "anywhere"] | None = None
    """All pods run in one `block`, one `rack` or on one `node`; until one has room, the job is pending. `anywhere`: no
    condition."""
    preferred: Level | None = None
    """As `required`, but if no such part has room, Kueue tries the next larger one, and finally several."""

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if (self.required is None) == (self.preferred is None):
            raise refuse(
                "must set exactly one of required and preferred", "set together: rack, or together: {preferred: rack}"
            )
        return self

    @property
    def level(self) -> Level | None:
        """The level, required or preferred; None for anywhere."""
        return None if self.required == "anywhere" else self.required or self.preferred


TogetherEntry: TypeAlias = Annotated[Together, Shorthand(str, ("required",))]
