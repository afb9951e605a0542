"""State of a tenancy as read from its API server: guarantees, limits and usage; and the parts of the platform."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu_tenancy.base.json import at, map_at, maps_at, text_at
from gpu_tenancy.base.quantity import amount_text, amounts
from gpu_tenancy.cluster.cluster_queues import read_settled
from gpu_tenancy.cluster.pods import ended, name_of
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.workloads import waiting
from gpu_tenancy.embedded.controllers import Controller
from gpu_tenancy.embedded.controllers.table import read_rows
from gpu_tenancy.explain.usage import KINDS, Row, TeamBudget, team_budgets
from gpu_tenancy.explain.usage import measure as measure_usage
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.local.checks.scaling import targets
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.shares import Measure, Tree, measures, measures_of


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs of one flavor that one team may use; CPU or memory, in base units, where the flavor has no GPUs."""

    team: str
    flavor: str  # `Measure.label`: the flavor, with the resource where it has no GPUs
    scheduler: str  # `Kueue`, or `Volcano` for gangs
    guaranteed: int  # nominal quota
    limit: int  # usage that its queue could have if all others used nothing
    used: int  # GPUs of its admitted workloads; where Kueue is not running, of its scheduled pods
    lends: bool  # whether other teams may borrow its idle guarantee
    resource: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Its texts in a table, from the team to the usage."""
        amounts = (amount_text(self.resource, amount) for amount in (self.guaranteed, self.limit, self.used))
        return self.team, self.flavor, self.scheduler, *amounts


@dataclass(frozen=True, slots=True)
class Supply:
    """A flavor's nodes, its allocatable GPUs and those in use; CPU or memory, in base units, where it has no GPUs."""

    flavor: str
    product: str
    nodes: int
    capacity: int
    used: int
    resource: str


@dataclass(frozen=True, slots=True)
class Summary:
    """State of the whole tenancy at one moment."""

    holdings: tuple[Holding, ...]
    budgets: tuple[TeamBudget, ...]
    supply: tuple[Supply, ...]
    waiting: int
    astray: tuple[str, ...]  # pods on nodes with a different GPU model than requested; empty if the scheduler works
    # Namespace and name of workloads that are pending in Kueue, in the order of the queues.
    pending: tuple[tuple[str, str], ...] = ()


def summarise(cluster: Cluster, plan: Plan, tree: Tree) -> Summary:
    """Reads queues, quotas, nodes and pods from the API server."""
    state = read_settled(cluster, KINDS)
    queues = Queues(state)
    teams = [team.namespace.name for team in plan.teams]
    counted = {(measure.flavor, measure.resource): measure for measure in measures(tree)}
    own = {(team, measure) for team in tree.team_shares for measure in measures_of(tree, team)}
    holdings = [
        _holding(row, queues, counted[row.flavor, row.resource])
        for row in measure_usage(state).rows
        if not row.part_of
        and (row.flavor, row.resource) in counted
        and (row.scheduler == "Volcano" or row.used or (row.team, counted[row.flavor, row.resource]) in own)
    ]
    pods = [pod for team in teams for pod in state.of("Pod", team) if not ended(pod)]
    nodes = {name_of(node): node for node in state.of("Node")}
    return Summary(
        holdings=tuple(holding for holding in holdings if holding.limit),
        budgets=tuple(team_budgets(state, teams)),
        supply=tuple(_supply(tree, measure, queues, holdings) for measure in counted.values()),
        waiting=sum(1 for pod in pods if not text_at(pod, "spec", "nodeName")),
        astray=tuple(
            f"{text_at(pod, 'metadata', 'namespace')}/{name_of(pod)}"
            for pod in pods
            if (node := nodes.get(text_at(pod, "spec", "nodeName")))
            for label, value in map_at(pod, "spec", "nodeSelector").items()
            if text_at(node, "metadata", "labels", label) != value
        ),
        pending=tuple(
            (workload.namespace, text_at(owner, "name"))
            for workload in waiting(queues.workloads)
            for owner in maps_at(workload.manifest, "metadata", "ownerReferences")
        ),
    )


def _holding(row: Row, queues: Queues, measure: Measure) -> Holding:
    quotas = {} if row.scheduler == "Volcano" else queues.cluster_queues[row.team].spec.quotas
    quota = quotas.get((row.flavor, row.resource))
    lends = quota is not None and quota.lending_limit != 0
    return Holding(
        row.team, measure.label, row.scheduler, row.guaranteed or 0, row.limit or 0, row.used, lends, row.resource
    )


def _supply(tree: Tree, measure: Measure, queues: Queues, holdings: Sequence[Holding]) -> Supply:
    flavor = tree.flavors[measure.flavor]
    nodes = [node for node in queues.state.of("Node") if queues.flavor_by_node.get(name_of(node)) == flavor.name]
    capacity = sum(amounts(at(node, "status", "allocatable")).get(measure.resource, 0) for node in nodes)
    if tree.stack.dispatches:  # The nodes are in the worker clusters.
        capacity = flavor.capacity[measure.resource]
    used = sum(holding.used for holding in holdings if holding.flavor == measure.label)
    return Supply(measure.label, flavor.product or "", len(nodes), capacity, used, measure.resource)


@dataclass(frozen=True, slots=True)
class Composition:
    """The real and the simulated parts of the platform: `Kueue 0.19.2`, and `nodes and their GPUs (kwok)`."""

    real: tuple[str, ...]
    simulated: tuple[str, ...]

    def __str__(self) -> str:
        return f"real: {', '.join(self.real)}; simulated: {', '.join(self.simulated)}"


def composition(kubernetes: str, controllers: Iterable[Controller], plan: Plan, tree: Tree) -> Composition:
    """The parts of a platform with a stack; the checks simulate the load of its servers.

    `kubernetes` is the version that the API server reports.
    """
    versions = {one.chart: one.version.removeprefix("v") for one in controllers if one.runs}
    rows = {chart: row for chart, row in read_rows().items() if chart in versions}
    # A chart in an operator's chart, such as JobSet's in Trainer's, has a name of its own.
    own = {chart for chart, row in rows.items() if row.part or not row.operator}
    titles = {chart: chart if chart in own else operators()[row.operator].title for chart, row in rows.items()}
    real = [f"API server {kubernetes.removeprefix('v')}", "controller manager", "scheduler"]
    real += [f"{title} {versions[chart]}" for chart, title in titles.items()]
    nodes = "nodes and their GPUs" if any(flavor.resource for flavor in tree.flavors.values()) else "nodes"
    scaled = [server.scaling for team in plan.teams for server in team.servers if server.scaling]
    load = ["CPU load"] if any(scaling.cpu for scaling in scaled) else []
    metrics = dict.fromkeys(metric for scaling in scaled if not scaling.by_keda for metric in targets(scaling))
    return Composition(tuple(real), (f"{nodes} (kwok)", *load, *metrics))
