"""What the page shows: the answers of `tenancy usage`, `queue` and `jobs`, and the nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gpu_tenancy.base.quantity import gpus
from gpu_tenancy.cluster.nodes import read_nodes
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, Missing, State, read
from gpu_tenancy.explain import usage
from gpu_tenancy.jobs import listing
from gpu_tenancy.jobs.jobs import read_jobs
from gpu_tenancy.jobs.overview import JobRow, rows
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.ui.tree import tree

KINDS: Final[tuple[Kind, ...]] = tuple(dict.fromkeys((*usage.KINDS, *listing.KINDS)))


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with GPUs, or of a flavor.

    Attributes:
        gpus: what it has, by resource.
        used: what the pods on it have that the user may read.
        state: `ready`, or what keeps pods away.
    """

    name: str
    flavor: str
    gpus: dict[str, int]
    used: dict[str, int]
    state: str


@dataclass(frozen=True, slots=True)
class Board:
    """What was read at one moment.

    Attributes:
        team: the namespace that is shown; empty for all.
        jobs: of the team, also those that ended; None where all teams are shown.
        nodes: None where the user may not read them.
        tree: of all teams; empty where the user may not read ClusterQueues.
        missing: why objects of a kind are not shown.
    """

    team: str
    at: datetime
    usage: usage.Usage
    queue: listing.Listing
    tree: tuple[Branch, ...]
    jobs: tuple[JobRow, ...] | None
    nodes: tuple[NodeRow, ...] | None
    missing: Mapping[Kind, Missing]


def read_board(cluster: Cluster, own: str, team: str) -> Board:
    """Reads a cluster with the rights of the user.

    Args:
        cluster: the API server.
        own: namespace that is read alone where the user may not read all.
        team: namespace to show; empty for all.

    Raises:
        ConsoleError: the team does not exist, or the API server does not answer.
        ApiError: it rejects the request, except for a missing right.
    """
    state = read(cluster, KINDS, own)
    jobs = rows(read_jobs(cluster, team, queued=True)) if team else None
    return board_of(state, team, jobs)


def board_of(state: State, team: str, jobs: tuple[JobRow, ...] | None) -> Board:
    """The board of what was read.

    Raises:
        ConsoleError: the team does not exist.
    """
    queues = Queues(state)
    measured = usage.measure(state, team, queues)
    readable = state.knows("ClusterQueue")
    return Board(
        team=team,
        at=datetime.now().astimezone(),
        usage=measured,
        queue=listing.listing(state, team, queues),
        tree=tree(queues, usage.rows_of(queues) if team else measured.rows) if readable else (),
        jobs=jobs,
        nodes=tuple(_nodes(queues)) if state.knows("Node") else None,
        missing=state.missing,
    )


def _nodes(queues: Queues) -> Iterable[NodeRow]:
    """The nodes with GPUs, or of a flavor, in the order of flavors."""
    state, flavors = queues.state, queues.flavor_by_node
    manifests = {name_of(node): node for node in state.of("Node")}
    found: list[NodeRow] = []
    for node in read_nodes(manifests.values(), state.of("Pod")):
        whole = gpus(node.whole)
        if not whole and node.name not in flavors:
            continue
        ready = is_true(manifests[node.name], "Ready")
        stands = "not ready" if not ready else "ready" if node.open else "unschedulable"
        used = {name: amount - node.free[name] for name, amount in whole.items()}
        found.append(NodeRow(node.name, flavors.get(node.name, ""), dict(whole), used, stands))
    return sorted(found, key=lambda row: (row.flavor or "~", row.name))


def by_flavor(nodes: Iterable[NodeRow]) -> dict[str, tuple[Counter[str], Counter[str], Counter[str]]]:
    """For each flavor how many nodes have which state, the GPUs that they have, and those in use."""
    found: dict[str, tuple[Counter[str], Counter[str], Counter[str]]] = {}
    for node in nodes:
        states, whole, used = found.setdefault(node.flavor, (Counter(), Counter(), Counter()))
        states[node.state] += 1
        whole.update(node.gpus)
        used.update(node.used)
    return found
