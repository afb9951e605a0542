"""The stack summary: guarantees and limits of teams, capacity of flavors, and costs; from the stack alone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpu_tenancy.base.problems import dotted, nearest
from gpu_tenancy.base.quantity import CPU, MEMORY, is_extended
from gpu_tenancy.model.catalogue import PRODUCT_LABELS, gpus
from gpu_tenancy.model.catalogue.clouds import rules_of
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.outlook.bill import Bill, bill
from gpu_tenancy.model.outlook.data import (
    CacheOutlook,
    DataAccess,
    Membership,
    caches_of_stack,
    data_of,
    memberships,
    network_needs,
    rights_to_grant,
)
from gpu_tenancy.model.outlook.shares import (
    NOTHING,
    Cost,
    Holding,
    Outlook,
    Span,
    cost_of,
    cost_of_storage,
    grace_of,
    holdings,
)
from gpu_tenancy.model.plan.costs import pool_costs, prices
from gpu_tenancy.model.plan.coverage import guarantee_warnings
from gpu_tenancy.model.plan.guards import pull_rights
from gpu_tenancy.model.plan.needs import installed_by, reason
from gpu_tenancy.model.plan.object_storage import egress_of_datasets
from gpu_tenancy.model.plan.people import access
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.queues import cohort_parents
from gpu_tenancy.model.plan.rollouts import interruption_warnings, rollout
from gpu_tenancy.model.plan.secrets import SecretRow, secret_rows
from gpu_tenancy.model.plan.servers import notebook_routes, route
from gpu_tenancy.model.plan.shares import Measure, Tree, measures, supply_of
from gpu_tenancy.model.plan.storage import storage_classes
from gpu_tenancy.model.resolve import ResolvedStack
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of


@dataclass(frozen=True, slots=True)
class Pool:
    """A node pool, with the price of a node in US dollars per hour; None if it is unknown."""

    name: str
    machine: str  # empty for custom nodes
    flavor: str
    resource: str
    gpus: int
    node: dict[str, int]  # allocatable CPU in millicores and memory in bytes of one node
    nodes: Span
    capacity: str  # capacity type, such as `spot`
    node_price: float | None


@dataclass(frozen=True, slots=True)
class Supply:
    """Capacity, guarantees and limits of one flavor's GPUs; of its CPU or memory without GPUs, in base units."""

    flavor: str  # `Measure.label`
    resource: str
    product: str  # GPU model, as in the node label; empty without GPUs
    capacity: Span  # allocatable GPUs, with the minimum and the maximum of nodes
    guaranteed: int  # sum of all guarantees, including Volcano's; a cohort's, if it is more than its teams'
    limits: int
    price: float | None  # US dollars per hour for one GPU, or for a millicore; None if unknown


@dataclass(frozen=True, slots=True)
class TeamOutlook:
    """One team with its GPUs and monthly cost."""

    name: str
    owner: str
    cost_center: str
    tier: str
    cohort: str
    queue: str  # team whose queue it uses, usually itself
    holdings: tuple[Holding, ...]  # of its own queue and gangs; the team of a shared queue has those of the queue
    cost: Cost  # of its holdings and its storage

    @property
    def shares(self) -> str:
        """`queue of ml-research`, if it shares the queue of another team; else empty."""
        return "" if self.queue == self.name else f"queue of {self.queue}"


@dataclass(frozen=True, slots=True)
class Group:
    """A cohort, with own quota, guarantee and limit (None: no limit) by `Measure.label`."""

    name: str
    parent: str | None
    groups: tuple[str, ...]
    teams: tuple[str, ...]
    shares: dict[str, tuple[int, int, int | None]]


@dataclass(frozen=True, slots=True)
class Serving:
    """An inference server and the limit of its team's queue."""

    team: str
    name: str
    flavor: str
    gpus: int  # GPUs per replica: of one pod, or of all pods of a group of nodes
    replicas: Span
    surge: int  # additional replicas during a rollout with the maximum number of replicas
    limit: int  # GPUs of the flavor that the team's queue admits at most
    warnings: tuple[str, ...] = ()  # violations of the server's bounds, each with its place in the stack and the fix

    @property
    def peak(self) -> int:
        """GPUs of all its replicas at once, including the surge of a rollout."""
        return self.gpus * (self.replicas.maximum + self.surge)


@dataclass(frozen=True, slots=True)
class WayIn:
    """A host with a route from outside of the cluster to servers, or to a notebook, which asks for its token."""

    team: str
    host: str
    reach: str  # `internal` or `public`
    gateway: str
    paths: tuple[str, ...]  # prefixes of the paths
    key: str  # Secret with the API key; empty without one
    servers: tuple[tuple[str, int], ...]  # servers with their percentage of the requests
    notebook: bool = False


@dataclass(frozen=True, slots=True)
class Access:
    """Network and data access of a team's namespace."""

    team: str
    owner: str
    pod_security: str
    clients: str  # allowed clients of its servers
    egress: tuple[str, ...]  # CIDRs for HTTPS, with the datasets' sidecars
    datasets: dict[str, str]  # buckets by name


@dataclass(frozen=True, slots=True)
class StackOutlook:
    """Summary of a stack; teams, pools and flavors in the stack's order."""

    environment: str
    production: bool
    standing: str  # with consequences: `environment prod-us: production (protected, guards deny)`
    expects: str  # what somebody else installs, and the command that checks it; empty if nothing
    grace: str  # when the pods of a preempted workload stop
    fairness: str
    root: str
    borrows_as_one: tuple[str, ...]  # with even fairness, the cohorts with bounds or a weight of their own; else empty
    groups: tuple[Group, ...]
    supply: tuple[Supply, ...]
    pools: tuple[Pool, ...]
    teams: tuple[TeamOutlook, ...]
    cost_centers: dict[str, Cost]
    bill: Bill
    serving: tuple[Serving, ...]
    ways_in: tuple[WayIn, ...]
    access: tuple[Access, ...]
    people: tuple[Membership, ...]
    prerequisites: tuple[str, ...]  # of a created cluster, with the command that creates or finds each
    commands: tuple[str, ...]  # commands that an administrator of the cloud must run so that people can log in
    adopts: tuple[str, ...]  # existing objects that the stack takes over
    workers: tuple[str, ...] = ()  # MultiKueue clusters in which the workloads run; empty if they run in this one
    data: tuple[DataAccess, ...] = ()
    data_rights: tuple[str, ...] = ()  # tasks of the buckets' administrator, which the stack cannot do
    network_needs: tuple[str, ...] = ()  # requirements of the network for shared storage
    secrets: tuple[SecretRow, ...] = ()
    pulls: tuple[str, ...] = ()  # rights of the nodes to pull images of the allowed registries
    caches: tuple[CacheOutlook, ...] = ()
    guarantee_warnings: tuple[str, ...] = ()
    other_warnings: tuple[str, ...] = ()  # GPU models that are unknown; classes with which the scheduler ends pods
    cluster: str = ""  # service and name, such as `EKS ml-prod`
    kubernetes: str = ""  # minor version of a created cluster; empty for others

    @property
    def totals(self) -> tuple[Supply, ...]:
        """The measures that sums over flavors count: GPUs, or CPUs if no flavor has GPUs."""
        with_gpus = tuple(supply for supply in self.supply if is_extended(supply.resource))
        return with_gpus or tuple(supply for supply in self.supply if supply.resource == CPU)

    @property
    def resources(self) -> dict[str, str]:
        """The counted resource of each flavor, by `Measure.label`."""
        return {supply.flavor: supply.resource for supply in self.supply}

    @property
    def warnings(self) -> tuple[str, ...]:
        """About guarantees that CPU or memory bound, GPU models, priorities and servers, each with place and fix."""
        of_servers = (warning for server in self.serving for warning in server.warnings)
        return (*self.guarantee_warnings, *self.other_warnings, *of_servers)


def outlook(stack: Stack) -> StackOutlook:
    """Summary of a valid stack."""
    tree = Tree(stack)
    counted = measures(tree)
    prices_of = prices(tree.flavors, counted, pool_costs(tree))
    outlooks = {measure: Outlook(tree, measure) for measure in counted}
    teams = tuple(_team(tree, name, outlooks, prices_of) for name in stack.teams)
    supply = {measure: _supply(tree, measure, teams, prices_of[measure.label]) for measure in counted}
    centers: dict[str, Cost] = {}
    for team in teams:
        centers[team.cost_center] = centers.get(team.cost_center, NOTHING) + team.cost
    return StackOutlook(
        environment=stack.environment,
        production=stack.is_production,
        standing=f"environment {stack.environment}: {stack.standing}",
        expects=_expects(tree),
        grace=grace_of(stack),
        fairness=stack.fairness.kind,
        root=tree.root,
        borrows_as_one=tuple(name for name in cohort_parents(tree) if name != tree.root) if stack.fairness.even else (),
        groups=tuple(_group(tree, name, counted) for name in tree.parents),
        supply=tuple(supply.values()),
        pools=tuple(_pools(tree)),
        teams=teams,
        cost_centers=centers,
        bill=bill(tree, [(measure, one.guaranteed, one.limits) for measure, one in supply.items()]),
        serving=tuple(_serving(tree)),
        ways_in=tuple(_ways_in(tree.stack)),
        access=tuple(_access(stack, name) for name in stack.teams),
        people=tuple(memberships(tree)),
        prerequisites=tuple(stack.cluster.prerequisites()),
        commands=people.commands if (people := access(tree)) else (),
        secrets=tuple(secret_rows(tree.stack)),
        pulls=pull_rights(stack),
        adopts=tuple(stack.cluster.adopt),
        workers=tuple(worker.name for worker in stack.multikueue.workers) if stack.multikueue else (),
        data=tuple(data_of(tree)),
        data_rights=tuple(dict.fromkeys(rights_to_grant(stack))),
        network_needs=tuple(dict.fromkeys(network_needs(storage_classes(stack.cluster, stack.teams.values())))),
        caches=tuple(caches_of_stack(tree)),
        guarantee_warnings=tuple(guarantee_warnings(tree)),
        other_warnings=(*_model_warnings(tree), *_priority_warnings(stack)),
        cluster=f"{rules_of(service_of(stack.cluster)).title} {getattr(stack.cluster, 'name', '')}".strip(),
        kubernetes=stack.cluster.kubernetes or "",
    )


def _expects(tree: Tree) -> str:
    expected = [
        operator
        for name, operator in operators().items()
        if installed_by(tree, name) == "installed"
        and (operator.gpus or tree.stack.operators.of(name).install or reason(tree, name))
    ]
    versions = [f"{operator.title} {operator.charts[operator.release].version}" for operator in expected]
    groups = [group for operator in expected for group in operator.charts[operator.release].serves]
    provided = f"; {', '.join(tree.stack.cluster.provides)} (cluster.provides)" if tree.stack.cluster.provides else ""
    check = f"; `kubectl api-versions` must list {', '.join(groups)}" if groups else ""
    return f"Expected in the cluster, not checked: {', '.join(versions)}{provided}{check}" if expected else ""


def _model_warnings(tree: Tree) -> Iterator[str]:
    for pool in tree.nvidia_pools:
        label = f"{PRODUCT_LABELS['nvidia.com']}={pool.product}"
        if pool.gpu and pool.model is None and PRODUCT_LABELS["nvidia.com"] not in pool.pool.labels:
            model = pool.gpu.lower()
            alike = [name for name in gpus() if name.startswith(model)] or gpus()
            known = f"GPU model {pool.gpu} is not in the catalogue ({nearest(model, alike)})"
            yield f"{dotted(('pools', pool.name))}: {known}; use one of these, or check that its nodes have {label}"


def _priority_warnings(stack: Stack) -> Iterator[str]:
    usable = {name for team in stack.teams.values() for name in team.compute.priorities or stack.priorities}
    for name in (name for name, entry in stack.priorities.items() if entry.preempts and name in usable):
        rule = "true lets the scheduler end admitted pods of other teams, also on a node that a pod names"
        fix = "remove it: Kueue preempts by priority, or keep the class from teams by their compute.priorities"
        yield f"priorities.{name}.preempts: {rule}; {fix}"


def _team(tree: Tree, name: str, outlooks: dict[Measure, Outlook], prices_of: dict[str, float | None]) -> TeamOutlook:
    spec = tree.stack.teams[name]
    held = tuple(holdings(tree, name, outlooks))
    return TeamOutlook(
        name=name,
        owner=spec.owner,
        cost_center=spec.cost_center,
        tier=spec.tier,
        cohort=tree.cohort_of(tree.queue_of(name)),
        queue=tree.queue_of(name),
        holdings=held,
        cost=cost_of(held, prices_of) + cost_of_storage(tree.stack.cluster, tree.stack.prices, spec.storage.values()),
    )


def _group(tree: Tree, name: str, counted: Iterable[Measure]) -> Group:
    groups, teams = tree.children(name)
    shares: dict[str, tuple[int, int, int | None]] = {}
    for measure in counted:
        place = (name, measure.flavor, measure.resource)
        guaranteed: int = supply_of(tree, measure)
        limit: int | None = guaranteed
        if name != tree.root:
            guaranteed, limit = tree.guaranteed(*place), tree.cohort_limit(*place)
        shares[measure.label] = (tree.cohort_nominal(*place), guaranteed, limit)
    return Group(name, tree.parents[name], tuple(groups), tuple(teams), shares)


def _supply(tree: Tree, measure: Measure, teams: tuple[TeamOutlook, ...], price: float | None) -> Supply:
    flavor, resource = tree.flavors[measure.flavor], measure.resource
    held = [holding for team in teams for holding in team.holdings if holding.flavor == measure.label]
    gangs = sum(holding.guaranteed for holding in held if holding.scheduler == "Volcano")
    guaranteed = sum(tree.children_guaranteed(tree.root, flavor.name, resource).values())
    of_caches = flavor.caches.total.get(resource, 0)
    nodes = [(pool.min_nodes, pool.max_nodes, pool.node.get(resource, 0)) for pool in flavor.pools]
    capacity = Span(
        sum(least * amount for least, _, amount in nodes) - of_caches,
        sum(most * amount for _, most, amount in nodes) - of_caches,
    )
    limits = sum(holding.limit for holding in held)
    return Supply(measure.label, resource, flavor.product or "", capacity, guaranteed + gangs, limits, price)


def _pools(tree: Tree) -> Iterator[Pool]:
    costs = {cost.pool: cost for cost in pool_costs(tree)}
    pools = {pool.name: pool for flavor in tree.flavors.values() for pool in flavor.pools}
    for name, resolved in tree.pools.items():
        if pool := pools.get(name):
            yield Pool(
                name=name,
                machine=resolved.machine.name if resolved.machine else "",
                flavor=pool.flavor,
                resource=pool.resource or "",
                gpus=pool.gpus_per_node,
                node={resource: pool.node[resource] for resource in (CPU, MEMORY)},
                nodes=Span(pool.min_nodes, pool.max_nodes),
                capacity=pool.capacity,
                node_price=costs[name].node,
            )


def _serving(tree: Tree) -> Iterator[Serving]:
    for server in tree.stack.servers:
        size = pod_size(tree, server.team, server)
        if size is None:
            continue
        share = tree.shares_of(server.team).get(size.flavor.name, {}).get(size.flavor.resource or "")
        bounds = rollout(tree, server, size)
        late = (f"{dotted(server.written_at())}: a rollout {bounds.warning}",) if bounds.warning else ()
        yield Serving(
            team=server.team,
            name=server.name,
            flavor=size.flavor.name,
            gpus=server.gpus * server.nodes,
            replicas=Span(server.replicas.min, server.replicas.max),
            surge=bounds.at_maximum,
            limit=(share.limit or 0) if share else 0,
            warnings=(*late, *interruption_warnings(tree, server, size.flavor)),
        )


def _ways_in(stack: ResolvedStack) -> Iterator[WayIn]:
    for name, team in stack.teams.items():
        for spec in team.serving.values():
            planned = route(spec)
            if spec.expose and planned:
                key = spec.expose.api_key.secret if spec.expose.api_key else ""
                reach, gateway = spec.expose.reach, spec.expose.gateway
                yield WayIn(name, planned.host, reach, gateway, planned.paths, key, planned.backends)
        for planned in notebook_routes(team.notebooks).values():
            gateway = "/".join(planned.gateway)
            yield WayIn(name, planned.host, "internal", gateway, planned.paths, "", planned.backends, notebook=True)


def _access(stack: Stack, name: str) -> Access:
    team = stack.teams[name]
    return Access(
        team=name,
        owner=team.owner,
        pod_security=team.pod_security,
        clients=team.network.clients,
        egress=tuple(dict.fromkeys((*team.network.egress, *egress_of_datasets(stack.datasets.values(), name)))),
        datasets={dataset: spec.place for dataset, spec in stack.datasets.items() if spec.is_of(name)},
    )
