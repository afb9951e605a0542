"""The size of a server from its load: replicas by what one replica answers, with headroom."""

import math
from dataclasses import dataclass

from gpu_tenancy.base.quantity import Amounts, format_rate
from gpu_tenancy.model.plan.environment import Flavor


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that a server's replicas run on: numbers of them that are always there, and at most.

    Attributes:
        each: the most replicas that one node has room for.
        always: the scheduler spreads replicas over them (a preferred anti-affinity), while nodes that an autoscaler
            adds are filled first.
    """

    each: int
    always: int
    most: int

    def lost_with_one(self, replicas: int) -> int:
        """The most replicas that are lost with one node; 0 if no other node could answer."""
        if self.most <= 1:
            return 0
        spread = -(-replicas // self.always) if self.always > 1 else replicas
        return min(self.each, spread)


def nodes_of(flavor: Flavor, pod: Amounts) -> Nodes:
    """The nodes of a flavor, for replicas with such pods."""
    fits = (min(pool.node.get(name, 0) // amount for name, amount in pod.items() if amount) for pool in flavor.pools)
    most = sum(pool.max_nodes for pool in flavor.pools)
    return Nodes(max(1, *fits), min(flavor.always, most), most)


@dataclass(frozen=True, slots=True)
class Size:
    """Replicas for a load.

    Attributes:
        rate: requests per second at the peak, in thousandths.
        per_replica: requests per second that one replica answers, in thousandths.
        surge: replicas that a rollout adds; without, it replaces one at a time.
        nodes: None if they are unknown: then only the headroom for a rollout counts.
        headroom: whether the load is carried while a node is lost or a replica is replaced.
    """

    rate: int
    per_replica: int
    surge: int = 0
    nodes: Nodes | None = None
    headroom: bool = True

    @property
    def needed(self) -> int:
        """Replicas that carry the load while all of them answer."""
        return -(-self.rate // self.per_replica)

    @property
    def replicas(self) -> int:
        """Replicas with headroom: without the replicas that can be lost at once, those that are needed remain."""
        count = self.needed
        while count - self._lost(count) < self.needed:
            count += 1
        return count

    @property
    def peak(self) -> int:
        """Replicas while a rollout adds some."""
        return self.replicas + self.surge

    def _lost(self, replicas: int) -> int:
        """The more of what a lost node and a rollout without surge take."""
        if not self.headroom:
            return 0
        return max(self.nodes.lost_with_one(replicas) if self.nodes else 0, 0 if self.surge else 1)

    def arithmetic(self) -> str:
        """`10,000/s ÷ 220/s = 46 replicas, + 4 for the loss of a node = 50`."""
        text = f"{format_rate(self.rate)} ÷ {format_rate(self.per_replica)} = {self.needed} replicas"
        spare = self.replicas - self.needed
        if not spare:
            return text
        of_node = self.nodes is not None and self.nodes.lost_with_one(self.replicas) >= spare
        reason = "the loss of a node" if of_node else "a rollout, which replaces one at a time"
        return f"{text}, + {spare} for {reason} = {self.replicas}"


def in_flight(per_replica: int, latency: float) -> int:
    """The most requests that one replica answers at a time, on average: the mean latency is below its percentile.

    By Little's law, from thousandths of requests per second and seconds: https://en.wikipedia.org/wiki/Little%27s_law.
    """
    return math.ceil(per_replica * latency / 1000)
