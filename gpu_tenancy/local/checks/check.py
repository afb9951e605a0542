"""The result of one check on a cluster, and the temporary nodes of checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json
from gpu_tenancy.base.quantity import format_amounts
from gpu_tenancy.embedded.nodes import NodeShape
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.pools import NodeTaint

CHECK: Final = "gpu-tenancy.dev/check"
"""Label and taint of the temporary nodes, which keeps other pods off them."""
IMAGE: Final = "registry.example.com/check:1"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes:
        promise: the checked fact, in the present tense.
        seen: observation; if the fact was not checked, the reason.
        holds: whether the observation confirms the fact; None if it was not checked.
        message: what the API server or a controller wrote about it.
    """

    promise: str
    seen: str
    holds: bool | None
    message: str = ""


def temporary_node(flavor: Flavor, name: str, amounts: Mapping[str, int]) -> NodeShape:
    """A node of a flavor for the pods of checks, with these amounts of resources."""
    taints = (*flavor.taints, NodeTaint(CHECK, "", "NoSchedule"))
    labels = {**flavor.node_labels, CHECK: "true"}
    return NodeShape(f"check-{name}", labels, taints, {**format_amounts(amounts), "pods": "10"})


def on_temporary_nodes(flavor: Flavor, *, tolerate: bool = True) -> dict[str, Json]:
    """Fields of a pod that runs on the temporary nodes of a flavor, if it tolerates the flavor's own taints."""
    tolerated = [CHECK, *(taint.key for taint in flavor.taints if tolerate)]
    return {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {**flavor.node_labels, CHECK: "true"},
        "tolerations": [{"key": key, "operator": "Exists"} for key in tolerated],
    }
