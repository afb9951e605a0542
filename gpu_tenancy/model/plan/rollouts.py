"""Replicas of a server for its load, with headroom, and its rollouts.

A rollout is within the quota, and has no fewer replicas than the server's minimum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.problems import dotted
from gpu_tenancy.base.quantity import Amounts, add, format_amount, format_duration, format_rate, times
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.object_storage import sidecars_of
from gpu_tenancy.model.plan.pods import PodSize, pod_size
from gpu_tenancy.model.plan.servers import DEREGISTERED_AFTER
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.cluster import service_of


@dataclass(frozen=True, slots=True)
class Nodes:
    """Numbers of nodes for a server's replicas: replicas that fit on `each`, nodes that `always` exist, and at `most`.

    The scheduler spreads replicas over the permanent nodes (a preferred anti-affinity), and fills added nodes first.
    """

    each: int
    always: int
    most: int

    def lost_with_one(self, replicas: int) -> int:
        """The most replicas that are lost with one node; 0 if no other node could answer."""
        if self.most <= 1:
            return 0
        return min(self.each, -(-replicas // self.always) if self.always > 1 else replicas)


def nodes_of(flavor: Flavor, pod: Amounts) -> Nodes:
    """The nodes of a flavor, for replicas with such pods."""
    fits = (min(pool.node.get(name, 0) // amount for name, amount in pod.items() if amount) for pool in flavor.pools)
    most = sum(pool.max_nodes for pool in flavor.pools)
    return Nodes(max(1, *fits), min(flavor.always, most), most)


@dataclass(frozen=True, slots=True)
class Size:
    """Replicas for a load; `rate` and `per_replica` are thousandths of requests per second."""

    rate: int
    per_replica: int
    surge: int = 0  # replicas that a rollout adds; without, it replaces one at a time
    nodes: Nodes | None = None  # None if they are unknown: then only the headroom for a rollout counts
    headroom: bool = True  # whether the load is carried while a node is lost or a replica is replaced

    @property
    def needed(self) -> int:
        """Replicas that carry the load while all of them answer."""
        return -(-self.rate // self.per_replica)

    @property
    def replicas(self) -> int:
        """Replicas with headroom: enough remain when one node, or one replica of a rollout, is lost."""
        count = self.needed
        while count - self._lost(count) < self.needed:
            count += 1
        return count

    @property
    def peak(self) -> int:
        """Replicas while a rollout adds some."""
        return self.replicas + self.surge

    def _lost(self, replicas: int) -> int:
        """The larger of the losses by a node and by a rollout without surge."""
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


_WHOLE: Final = 100
SCHEDULED_WITHIN: Final = 300
"""Seconds, in addition to `startup`, until a new pod must be ready: its node, its images and its admission. Ours."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The bounds of a rollout: replicas that it adds (maxSurge), and that it can remove first (maxUnavailable)."""

    surge: int
    unavailable: int | str
    warning: str = ""  # a violated bound with the fix; empty if none

    @property
    def at_maximum(self) -> int:
        """Replicas with quota in addition to the maximum: 0 if a rollout removes one first."""
        return 0 if self.unavailable else self.surge

    @property
    def waiting(self) -> int:
        """Replicas that wait in the queue, at the maximum, until old ones end."""
        return self.surge if self.unavailable else 0


def rollout(tree: Tree, server: ResolvedServer, size: PodSize) -> Rollout:
    """The bounds of a rollout of a server, whose replicas an autoscaler sets.

    With quota for one more replica than the maximum, it adds one. Else it adds one below the number of replicas with
    guaranteed quota, and removes one first from there on, because the additional one would wait forever. Only a
    percentage expresses both: rounded down, it is 0 for fewer replicas.
    https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-unavailable
    """
    least, most = max(1, server.replicas.min), server.replicas.max
    # Rollouts that add a group do not complete on Kueue 0.19.2 with LeaderWorkerSet 0.9.
    # The base of a burst serves meanwhile.
    if server.grouped or server.surge is not None or not server.has_service:
        surge = server.surge or 0
        below = f"{_fewer(least)}; remove surge: 0" if server.surge == 0 else ""
        return Rollout(surge, 0 if surge else 1, below)
    resource, room = _room(tree, server, size)
    percent = -(-_WHOLE // room) if room else _WHOLE
    if room > most:
        return Rollout(1, 0)
    if least < room and percent * least < _WHOLE:
        return Rollout(1, f"{percent}%")
    owner, flavor = tree.queue_of(server.team), size.flavor.name
    each = size.amounts[resource] * server.nodes
    has, wanted = (format_amount(resource, amount * each) for amount in (room, least + 1))
    counted = f"{has} {resource} of flavor {flavor} are guaranteed to it, {least} + 1 replicas need {wanted}"
    key = tree.key(owner, flavor, resource, "guaranteed")
    fix = f"raise {key} by {format_amount(resource, (least + 1 - room) * each)}, or lower replicas"
    if room >= least + 1:
        return Rollout(1, 1, f"{_fewer(least)}: a percentage cannot tell {least} from {room} replicas; {fix}")
    share = tree.share(owner, flavor, resource)
    if (share.limit or 0) - share.guaranteed >= (least + 1 - room) * each:
        return Rollout(1, 0, f"waits until quota can be borrowed: {counted}; {fix}")
    return Rollout(0, 1, f"{_fewer(least)}: {counted}; {fix}")


def waiting_in_rollouts(tree: Tree, name: str) -> dict[str, int]:
    """Requests of servers' pods that wait in the queue while a rollout removes the old ones.

    A ResourceQuota without room would reject them, and their controller retries with pauses that double up to 1000 s
    (https://pkg.go.dev/k8s.io/client-go/util/workqueue#DefaultTypedControllerRateLimiter). Like `compute.waiting`, the
    room is only for namespaces in which nothing but the queue decides what runs.
    """
    team = tree.stack.teams[name]
    if team.compute.waiting or team.gangs or tree.stack.guards_action != "deny":
        return {}
    waiting: dict[str, int] = {}
    for server in team.serving.values():
        if size := pod_size(tree, name, server):
            pod = add(size.amounts, sidecars_of(tree.stack.datasets, team, server).amounts)
            waiting = add(waiting, times(pod, rollout(tree, server, size).waiting * server.nodes))
    return waiting


def _fewer(least: int) -> str:
    return f"has {least - 1} of {least} replicas"


def _room(tree: Tree, server: ResolvedServer, size: PodSize) -> tuple[str, int]:
    """The resource with the least guaranteed quota, and for how many replicas: beside the team's other servers."""
    owner, flavor = tree.queue_of(server.team), size.flavor.name
    taken = dict.fromkeys(size.amounts, 0)
    for user in tree.users[owner]:
        for other in tree.stack.teams[user].serving.values():
            of_other = None if other is server else pod_size(tree, user, other)
            if of_other and of_other.flavor.name == flavor:
                for resource in taken:
                    taken[resource] += of_other.amounts.get(resource, 0) * other.most_pods
    rooms = {
        resource: max(0, tree.share(owner, flavor, resource).guaranteed - taken[resource]) // (amount * server.nodes)
        for resource, amount in reversed(size.amounts.items())
        if amount
    }
    least = min(rooms, key=lambda resource: rooms[resource])
    return least, rooms[least]


KARPENTER_DRAINS: Final = 90
"""Seconds that Karpenter waits for the pods of a spot node (`terminationGracePeriod`), of two minutes of notice."""


def interruption_warnings(tree: Tree, server: ResolvedServer, flavor: Flavor) -> Iterator[str]:
    """Requests that a spot node does not complete, and the share of the load without a server's burst."""
    place = dotted(server.written_at())
    within = _within(tree, flavor)
    rest = within - DEREGISTERED_AFTER if within is not None else 0
    if within is not None and server.drain is not None and server.drain > rest:
        title = rules_of(service_of(tree.stack.cluster)).title
        left = f"{within} s - {DEREGISTERED_AFTER} s until no proxy sends requests = {rest} s, but drain is"
        fix = f"set drain to at most {rest}s, or expect" if rest > 0 else "expect"
        yield (
            f"{place}: when {title} takes a node of flavor {flavor.name} back, requests in progress have {left}"
            f" {format_duration(server.drain)}; {fix} that longer ones fail"
        )
    base = tree.stack.teams[server.team].serving[server.service]
    if base is server:
        return
    has, load = base.replicas.max, base.load
    carry = "; set load of the server to see what they carry"
    if load:
        carried = min(has * load.per_replica, load.rate)
        carry = f", which carry {format_rate(carried)} of the load of {format_rate(load.rate)}"
    yield (f"{place}: without flavor {flavor.name}, {has} of {has + server.replicas.max} replicas remain{carry}")


def _within(tree: Tree, flavor: Flavor) -> int | None:
    """Seconds from the notice until a pod has ended; None without spot nodes, or if it is unknown."""
    rule = rules_of(service_of(tree.stack.cluster)).capacity.get("spot")
    if rule is None or rule.notice is None or all(pool.capacity != "spot" for pool in flavor.pools):
        return None
    karpenter = getattr(tree.stack.cluster, "autoscaler", "") == "karpenter"
    return min(rule.notice.pods, KARPENTER_DRAINS) if karpenter else rule.notice.pods
