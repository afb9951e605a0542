"""Origin of each number in a team's objects: rule and lines of the stack."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_tenancy.base.problems import Path
from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, is_extended
from gpu_tenancy.model.outlook.shares import OWN_QUEUE, Outlook, grace_of, holdings
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.namespaces import OTHERS, container_defaults, namespace
from gpu_tenancy.model.plan.object_storage import sidecars
from gpu_tenancy.model.plan.rollouts import waiting_in_rollouts
from gpu_tenancy.model.plan.shares import Share, Tree, gangs_of, measures
from gpu_tenancy.model.spec.tenancy import Shares


@dataclass(frozen=True, slots=True)
class Reason:
    """Origin of one number of one object."""

    object: str  # `ClusterQueue ml-research`
    field: str  # `a100 nvidia.com/gpu nominalQuota`
    value: str  # as a Kubernetes quantity
    because: str  # the rule, with its numbers
    paths: tuple[Path, ...]  # keys of the stack that determine the value, nearest first


def explain(tree: Tree, team: str) -> list[Reason]:
    """Numbers of a team's queues, ResourceQuotas and LimitRange, with their origin."""
    queue = tree.queue_of(team)
    return [
        *(_queue(tree, queue) if queue in tree.team_shares else ()),
        *_preempted(tree, team),
        *_gangs(tree, team),
        *_quotas(tree, team),
        *_containers(tree, team),
    ]


def _queue(tree: Tree, queue: str) -> Iterator[Reason]:
    spec, name = tree.stack.teams[queue], f"ClusterQueue {queue}"
    for flavor, shares in tree.team_shares[queue].items():
        for resource, share in shares.items():
            paths, of_guarantee, of_limit = _origin(spec, queue, tree.flavors[flavor], resource)
            field, limit = f"{flavor} {resource}", share.effective_limit
            guaranteed, borrowed = format_amount(resource, share.guaranteed), limit - share.guaranteed
            because = f"limit {format_amount(resource, limit)} minus guaranteed {guaranteed}; {of_limit}"
            yield Reason(name, f"{field} nominalQuota", guaranteed, of_guarantee, paths)
            yield Reason(name, f"{field} borrowingLimit", format_amount(resource, borrowed), because, paths)
            if not tree.lends(queue):
                key, why = "serving", "set for teams with inference servers, which keep their guaranteed GPUs"
                if spec.lends is False:
                    key, why = "lends", "lends: false"
                yield Reason(name, f"{field} lendingLimit", "0", why, (("teams", queue, key),))
        guarantee = tree.guarantee(queue, flavor)
        if guarantee.units:
            because = f"{guarantee}; Kueue reclaims only for a job that fits into nominalQuota in every resource"
            paths, _, _ = _origin(spec, queue, tree.flavors[flavor], CPU)
            yield Reason(name, f"{flavor} largest job", guarantee.bound, because, paths)


def _preempted(tree: Tree, team: str) -> Iterator[Reason]:
    """Preemptible amounts of a team's workloads, their preemptors, and when the pods stop."""
    queue, outlooks = tree.queue_of(team), {measure: Outlook(tree, measure) for measure in measures(tree)}
    for holding in holdings(tree, queue, outlooks):
        for queues, when, amount in holding.preemptors:
            field = f"{holding.flavor} preempted by {', '.join(queues) or OWN_QUEUE}"
            value, because = format_amount(holding.resource, amount), f"{when}; its pods stop {grace_of(tree.stack)}"
            paths = tuple(("teams", name, "preemption") for name in queues or (queue,))
            yield Reason(f"Workloads of {team}", field, value, because, paths)


def _origin(spec: Shares, queue: str, flavor: Flavor, resource: str) -> tuple[tuple[Path, ...], str, str]:
    """Keys of the stack that determine a share, and the rule of its guarantee and of its limit."""
    pools: tuple[Path, ...] = tuple(("pools", pool.name) for pool in flavor.pools)
    section = "gpus" if flavor.name in spec.gpus else "quota"
    whole: Path = ("teams", queue, section, flavor.name)
    stated = "set in the stack"
    if resource == flavor.resource:
        return (whole,), stated, stated
    quota = spec.quota.get(flavor.name)
    said = getattr(quota, resource) if quota else None
    if said and (flavor.resource is None or "guaranteed" in said.model_fields_set):
        return (("teams", queue, "quota", flavor.name, resource),), stated, stated
    if flavor.resource is not None:
        gpus = spec.gpus.get(flavor.name) or quota
        share = Share(gpus.guaranteed, gpus.limit) if gpus else Share()
        part = format_amount(resource, flavor.per_gpu[resource])
        each = f"{part} per GPU: allocatable of the node divided by its GPUs"
        of_limit = stated if said else f"{share.effective_limit} GPUs, {each}"
        return (whole, *pools), f"{share.guaranteed} GPUs, {each}", of_limit
    rest = "compute budget minus the GPU flavors, at most the capacity of the nodes"
    other = quota and (quota.cpu if resource == MEMORY else quota.memory)
    follows = f"share of the node that belongs to its guaranteed {'CPUs' if resource == MEMORY else 'memory'}"
    of_guarantee = follows if other and other.guaranteed else "not guaranteed"
    return (("teams", queue, "compute", "requests", resource), *pools), of_guarantee, rest


def _gangs(tree: Tree, team: str) -> Iterator[Reason]:
    for name, amounts in gangs_of(tree.stack.teams[team], tree.flavors).items():
        gang, paths = tree.stack.teams[team].gangs[name], (("teams", team, "gangs", name),)
        for resource, amount in amounts.items():
            own = getattr(gang, resource) if resource in {CPU, MEMORY} else gang.effective_limit
            because = "set in the stack" if own is not None else "in proportion to its GPUs"
            because += "; subtracted from the quota of Kueue queues"
            value = format_amount(resource, amount)
            yield Reason(f"Volcano Queue {team}-{name}", f"{resource} capability", value, because, paths)


def _quotas(tree: Tree, team: str) -> Iterator[Reason]:
    spec, compute = tree.stack.teams[team], ("teams", team, "compute")
    for quota in namespace(tree, team).quotas:
        for resource, amount in quota.hard.items():
            bare = resource.removeprefix("requests.").removeprefix("limits.")
            because, paths = _bounded(tree, team, resource, bare)
            if spec.compute.waiting and (bare in {CPU, MEMORY} or (is_extended(bare) and bare[:6] != "count/")):
                because += f", times {1 + spec.compute.waiting}, because pods that are pending count too"
                paths = (*paths, (*compute, "waiting"))
            if quota.scope and resource == "pods":
                because, paths = "pods of other priority classes have no quota", ((*compute, "priorities"),)
            yield Reason(f"ResourceQuota {team}/{quota.name}", resource, format_amount(bare, amount), because, paths)
    if spec.queue:
        because = "set in the stack: the team uses the queue of this team"
        yield Reason(f"LocalQueue {team}", "clusterQueue", spec.queue, because, (("teams", team, "queue"),))


def _bounded(tree: Tree, team: str, resource: str, bare: str) -> tuple[str, tuple[Path, ...]]:
    spec = tree.stack.teams[team]
    kind = resource.partition(".")[0]
    if bare in {CPU, MEMORY}:
        value = getattr(spec.compute.requests if kind == "requests" else spec.compute.limits, bare)
        if value is not None:
            return "set in the stack", (("teams", team, "compute", kind, bare),)
    elif "/" not in bare or bare.startswith("count/"):
        keys = ("jobs", "pods") if "/" in bare else (bare,)
        keys = ("others",) if bare in OTHERS else ("cronjobs",) if "/cronjobs." in bare else keys
        set_keys = tuple(("teams", team, "objects", key) for key in keys if getattr(spec.objects, key) is not None)
        return ("set in the stack", set_keys) if set_keys else ("default of objects", (("teams", team),))
    parts = [
        f"{format_amount(bare, share.limit or 0)} of {flavor}"
        for flavor, shares in tree.shares_of(team).items()
        for name, share in shares.items()
        if name == bare and share.limit
    ]
    further = {f"{flavor} for gangs": amounts for flavor, amounts in gangs_of(spec, tree.flavors).items()}
    further["sidecars of datasets"] = sidecars(tree.stack.datasets, spec)
    parts += [f"{format_amount(bare, amounts[bare])} of {of}" for of, amounts in further.items() if amounts.get(bare)]
    paths: list[Path] = [
        ("teams", tree.queue_of(team), section) for section in ("gpus", "quota") if getattr(spec, section)
    ]
    paths += [("teams", team, "gangs")] if spec.gangs else []
    surge = waiting_in_rollouts(tree, team).get(bare, 0)
    rolled = f", and {format_amount(bare, surge)} of pods that wait in rollouts of servers" if surge else ""
    paths += [("teams", team, "serving")] if surge else []
    return f"sum of its queue limits: {' + '.join(parts) or '0'}{rolled}", tuple(paths) or (("teams", team),)


def _containers(tree: Tree, team: str) -> Iterator[Reason]:
    defaults, containers = container_defaults(tree.stack.teams[team]), ("teams", team, "containers")
    stated = tree.stack.teams[team].containers.model_fields_set
    for field, amounts, key in (
        ("defaultRequest", defaults.requests, "default_request"),
        ("default", defaults.limits, "default"),
    ):
        because, path = "default, within the limit-to-request ratio of the budget", containers[:2]
        if key in stated:
            because, path = "set in the stack", (*containers, field)
        for resource, amount in amounts.items():
            value = format_amount(resource, amount)
            yield Reason(f"LimitRange {team}/containers", f"{resource} {field}", value, because, (path,))
