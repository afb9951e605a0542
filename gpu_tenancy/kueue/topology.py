"""Annotations of a pod template by which Kueue selects the nodes of pods in flavors with a topology.

https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
"""

from typing import Final

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
"""All pods run in one part of the network of this level, a node label."""
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
"""All pods run in one part of this level if one has room, else in a larger one."""
GROUP: Final = "kueue.x-k8s.io/podset-group-name"
"""Two pod sets with the same name run in the same part; one of them has one pod."""
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
"""The pods run on any nodes."""
