"""Survey rules: promises of queues, gangs and quotas against nodes and each other, and contradictory defaults."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.json import Json, at, list_at, map_at, text_at, texts_at
from gpu_tenancy.base.quantity import Amounts, add, amount, amount_text, amounts, is_extended
from gpu_tenancy.base.texts import counted
from gpu_tenancy.cluster.budgets import budgets, container_defaults, container_rules, counts
from gpu_tenancy.cluster.pods import Manifest, name_of, namespace_of
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.cluster.supply import Facts, Pool, accelerators
from gpu_tenancy.explain.coverage import guarantee_of, quotas_beside
from gpu_tenancy.kueue import Policy
from gpu_tenancy.model.names import UNCOVERED

# `wrong`: a promise that cannot be kept, or something that can never work. `risk`: it works until somebody uses it.
Level: TypeAlias = Literal["wrong", "risk"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction: an object, its value, the problem, and the fix in the imperative."""

    place: str
    value: str
    problem: str
    fix: str

    @property
    def text(self) -> str:
        """The finding in one line."""
        return f"{self.place}: {self.value} {self.problem}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A survey rule, such as `promised-beyond-nodes`."""

    name: str
    level: Level
    needs: tuple[Kind, ...]  # not evaluated without these kinds
    find: Callable[[Facts], Iterator[Finding]]
    own: bool = False  # evaluated for the reader's own namespace if only that is readable


def _place(facts: Facts, pool: Pool) -> str:
    names = facts.name.listed(pool.flavors)
    return f"ResourceFlavor {names}" if len(pool.flavors) == 1 else f"ResourceFlavors {names}"


def _beyond_nodes(facts: Facts) -> Iterator[Finding]:
    for pool in facts.pools:
        if pool.nodes and pool.promised > pool.exist:
            twice = ", the same nodes by several flavors" if len(pool.flavors) > 1 else ""
            problem = f"promised by queues, but the {len(pool.nodes)} nodes have {pool.exist}{twice}"
            fix = f"lower nominal quotas by {pool.promised - pool.exist}, or check that an autoscaler adds nodes"
            yield Finding(_place(facts, pool), f"{pool.promised} {pool.resource}", problem, fix)

    for total in facts.totals:
        if total.gangs > total.exist:
            place = f"Volcano queue {facts.name.listed(queue.name for queue in facts.gangs if queue.guarantee)}"
            problem = f"guaranteed to gangs, but all nodes have {total.exist}"
            fix = f"lower guarantees by {total.gangs - total.exist}, or check that an autoscaler adds nodes"
            yield Finding(place, f"{total.gangs} {total.resource}", problem, fix)


def _beyond_ready(facts: Facts) -> Iterator[Finding]:
    for pool in facts.pools:
        if pool.ready < pool.promised <= pool.exist:
            closed = f"{pool.exist - pool.ready} of {pool.exist} are on nodes"
            problem = f"promised by queues, but {closed} that are not ready or not schedulable"
            fix = "repair or uncordon these nodes, or hold the queues until then"
            yield Finding(_place(facts, pool), f"{pool.promised} {pool.resource}", problem, fix)


def _by_two_schedulers(facts: Facts) -> Iterator[Finding]:
    guaranteed, possible = (add(*(getattr(queue, key) for queue in facts.gangs)) for key in ("guarantee", "capability"))
    for total in facts.totals:
        limit = max(guaranteed.get(total.resource, 0), possible.get(total.resource, 0))
        if total.queues and limit and total.queues + limit > total.exist:
            names = [queue.name for queue in facts.gangs if total.resource in {*queue.guarantee, *queue.capability}]
            counts = f"usable by gangs, and {total.queues} promised by Kueue, but {total.exist} exist"
            problem = f"{counts}: two schedulers promise the same GPUs"
            fix = "lower capability or nominal quotas so that both fit, on nodes of their own"
            yield Finding(f"Volcano queue {facts.name.listed(names)}", f"{limit} {total.resource}", problem, fix)


def _by_quotas(facts: Facts) -> Iterator[Finding]:
    hard = {
        namespace: add(*(amounts(at(quota, "spec", "hard")) for quota in facts.state.of("ResourceQuota", namespace)))
        for namespace in facts.tenants
        if namespace not in facts.queues.homes
    }
    for total in facts.totals:
        key = f"requests.{total.resource}"
        outside = {namespace: amount[key] for namespace, amount in hard.items() if amount.get(key)}
        amount = sum(outside.values())
        if amount and amount + total.queues > total.exist:
            beside = f" and {total.queues} by queues" if total.queues else ""
            place = f"ResourceQuotas of namespaces without a queue ({facts.name.listed(outside)})"
            problem = f"allowed{beside}, but {total.exist} exist: who comes first gets them"
            fix = "give these namespaces a LocalQueue, or lower the quotas until all fit"
            yield Finding(place, f"{amount} {total.resource}", problem, fix)


def _refused_by_quota(facts: Facts) -> Iterator[Finding]:
    # A ResourceQuota rejects pods that the queue of the namespace admits.
    quotas, known = facts.queues.quotas, facts.queues.cluster_queues
    resources: Json = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    sample: Manifest = {"containers": [{"resources": resources}]}  # A pod of a job, to tell which quotas count it.
    for namespace, locals_ in sorted(facts.queues.homes.items()):
        lines = ((queue, line) for queue in set(locals_.values()) & set(known) for line in known[queue].spec.quotas)
        admitted = add(*({line[1]: quotas.potential_available(queue, line)} for queue, line in lines))
        for quota in facts.state.of("ResourceQuota", namespace):
            for line in budgets(quota) if counts(quota, sample) else ():
                limit = admitted.get(line.resource.removeprefix("requests."), 0)
                if limit > line.hard:
                    name = facts.name(f"{namespace}/{name_of(quota)}")
                    hard, most = (amount_text(line.resource, value) for value in (line.hard, limit))
                    problem = f"is below the {most} that the queue admits: admitted pods are rejected"
                    fix = f"raise it to {most}, or lower the limit of the queue"
                    yield Finding(f"ResourceQuota {name}", f"{line.resource} {hard}", problem, fix)


# Such as gold.storageclass.storage.k8s.io/requests.storage.
_OF_CLASS: Final = re.compile(r".+class\.\w+\.k8s\.io/.+")


def _counts_nothing(facts: Facts) -> Iterator[Finding]:
    for quota in facts.state.of("ResourceQuota"):
        for name, value in texts_at(quota, "spec", "hard").items():
            resource = name.removeprefix("limits.")
            if is_extended(resource) and not name.startswith("requests.") and not _OF_CLASS.fullmatch(name):
                place = f"ResourceQuota {facts.name(f'{namespace_of(quota)}/{name_of(quota)}')}"
                problem = "limits nothing: the API server counts extended resources only by requests"
                yield Finding(place, f"{name} {value}", problem, f"write requests.{resource}")


def _unhealthy(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        for resource, count in node.broken.items():
            whole = count + node.gpus.get(resource, 0)
            problem = f"not allocatable, of {whole}: they are unhealthy, or the device plugin does not run"
            fix = "check the device plugin and the driver on the node"
            yield Finding(f"Node {facts.name(node.name)}", f"{count} {resource}", problem, fix)


@dataclass(frozen=True, slots=True)
class _Reclaimed:
    """Guaranteed GPUs of a queue that others of its cohort can borrow.

    `share` is the nodes' CPU and memory for these GPUs, where the queue is guaranteed less and can borrow more, or
    is guaranteed none; empty without nodes.
    """

    place: str
    guarantee: Guarantee
    share: Amounts
    fair: bool  # with fair sharing, Kueue also preempts by share, for jobs that borrow

    @property
    def gpus(self) -> str:
        return counted(self.guarantee.units, self.guarantee.resource, self.guarantee.flavor)

    @property
    def fix(self) -> str:
        return "raise nominalQuota of " + " and of ".join(
            f"{name} to {amount_text(name, value)}" for name, value in self.share.items()
        )


def _reclaimed(facts: Facts) -> Iterator[_Reclaimed]:
    for name, queue in facts.queues.cluster_queues.items():
        if queue.spec.preemption.reclaim is Policy.NEVER or set(facts.queues.quotas.related(name)[0]) == {name}:
            continue
        quotas = queue.spec.quotas
        for flavor, resource in (line for line, quota in quotas.items() if accelerators({line[1]: quota.nominal})):
            guarantee = guarantee_of(queue.spec, flavor, resource)
            beside, per_gpu = quotas_beside(queue.spec, flavor), facts.per_gpu.get(flavor, {})
            low = guarantee.below(per_gpu)
            share = {
                key: per_gpu[key] * guarantee.units for key in low if beside[key].borrowing_limit != 0 or not low[key]
            }
            guarantee = replace(guarantee, flavor=facts.name(flavor))
            yield _Reclaimed(f"ClusterQueue {facts.name(name)}", guarantee, share, facts.queues.quotas.fair(name))


def _without_cpu(facts: Facts) -> Iterator[Finding]:
    for found in _reclaimed(facts):
        zero = [name for name, amount in found.guarantee.beside.items() if not amount]
        if zero and not found.fair:
            must = f"a job that requests {' or '.join(zero)} must borrow"
            reclaims = "Kueue reclaims no GPUs for a job that borrows"
            problem = f"guaranteed with nominalQuota 0 of {' and '.join(zero)}: {must}, and {reclaims}"
            fix = found.fix if found.share else f"raise {' and '.join(zero)} to what jobs of these GPUs request"
            yield Finding(found.place, found.gpus, problem, fix)


def _below_share(facts: Facts) -> Iterator[Finding]:
    for found in _reclaimed(facts):
        if found.share and (found.fair or all(found.guarantee.beside.values())):
            less = f"guaranteed with less {' and '.join(found.share)} than their share of the nodes"
            largest = f"the largest job for which Kueue reclaims{' whatever the shares are' if found.fair else ''}"
            problem = f"{less}: {largest} has {found.guarantee}"
            yield Finding(found.place, found.gpus, problem, f"{found.fix}, or request less for each GPU")


def is_promised(facts: Facts) -> bool:
    """Whether any queue has quota of GPUs."""
    return bool(accelerators({resource: amount for (_, resource), amount in facts.promised.items()}))


PROMISES: Final = (
    Rule("promised-beyond-nodes", "wrong", ("ClusterQueue", "ResourceFlavor", "Node"), _beyond_nodes),
    Rule("promised-twice-by-schedulers", "wrong", ("ClusterQueue", "Queue", "Node"), _by_two_schedulers),
    Rule("promised-by-quotas", "wrong", ("LocalQueue", "ResourceQuota", "Namespace", "Node"), _by_quotas),
    Rule("promised-on-broken-nodes", "risk", ("ClusterQueue", "ResourceFlavor", "Node"), _beyond_ready),
    Rule("quota-below-queue", "wrong", ("ClusterQueue", "LocalQueue", "ResourceQuota"), _refused_by_quota, own=True),
    Rule("guarantee-without-cpu", "wrong", ("ClusterQueue", "Cohort"), _without_cpu),
    Rule("guarantee-below-share", "risk", ("ClusterQueue", "Cohort", "ResourceFlavor", "Node"), _below_share),
    Rule("quota-counts-nothing", "wrong", ("ResourceQuota",), _counts_nothing, own=True),
    Rule("unhealthy-devices", "risk", ("Node",), _unhealthy),
)

# Fields of LimitRanges; the first must not be above the second. An API server compares them within one object only,
# but all objects of a namespace are in force together.
_BELOW: Final = (
    ("defaultRequest", "default", "the default request is above the default limit"),
    ("default", "max", "the default limit is above the maximum"),
    ("defaultRequest", "max", "the default request is above the maximum"),
    ("min", "default", "the default limit is below the minimum"),
    ("min", "defaultRequest", "the default request is below the minimum"),
    ("min", "max", "the minimum is above the maximum"),
)


def _given(facts: Facts) -> Iterator[tuple[str, str, Amounts]]:
    """Namespace, LimitRange, and the requests that it gives to containers without own values."""
    for limits, rule in container_rules(facts.state.of("LimitRange")):
        requests, namespace = amounts(container_defaults(rule)[1]), namespace_of(limits)
        place = f"LimitRange {facts.name(f'{namespace}/{name_of(limits)}')}"
        yield namespace, place, {resource: value for resource, value in requests.items() if value}


def _gpus_by_default(facts: Facts) -> Iterator[Finding]:
    for _, place, given in _given(facts):
        for resource, count in accelerators(given).items():
            given_to = "given to each container without own values, so pods without GPUs take GPUs"
            problem = f"{given_to}: the API server fills a missing default with max"
            yield Finding(place, f"{count} {resource}", problem, f"set default and defaultRequest of {resource} to 0")


def _not_covered(facts: Facts) -> Iterator[Finding]:
    # If the configuration is unknown, Kueue is assumed to ignore what this program has it ignore.
    settings: Manifest = {"excludeResourcePrefixes": [*UNCOVERED]}
    if facts.configuration is not None:
        settings = map_at(facts.configuration, "resources")
    if text_at(settings, "quotaCheckStrategy") == "IgnoreUndeclared":
        return
    excluded = tuple(list_at(settings, "excludeResourcePrefixes"))
    queues = facts.queues.cluster_queues
    for namespace, place, given in _given(facts):
        for queue in sorted({*facts.queues.homes.get(namespace, {}).values()} & {*queues}):
            covered = {resource for _, resource in queues[queue].spec.quotas}
            lacking = [name for name in given if name not in covered and not name.startswith(excluded)]
            if covered and lacking:
                lacks = f"ClusterQueue {facts.name(queue)} has no quota of it: Kueue never admits their workloads"
                problem = f"is requested for containers without own values, but {lacks}"
                fix = "add it to the queue, or remove it from the LimitRange"
                yield Finding(place, f"default {', '.join(lacking)}", problem, fix)


def _limit_ranges(facts: Facts) -> Iterator[Finding]:
    ranges = container_rules(facts.state.of("LimitRange"))
    by_namespace = grouped((namespace_of(limits), (name_of(limits), rule)) for limits, rule in ranges)
    for namespace, rules in sorted(by_namespace.items()):
        for ((one, lower), (other, upper)), (low, high, contradiction) in product(product(rules, rules), _BELOW):
            ceiling, where = map_at(upper, high), "" if one == other else f" of {facts.name(other)}"
            for resource, value in map_at(lower, low).items():
                if resource in ceiling and amount(resource, value) > amount(resource, ceiling[resource]):
                    mine, its = (amount_text(resource, amount(resource, each)) for each in (value, ceiling[resource]))
                    place = f"LimitRange {facts.name(f'{namespace}/{one}')}"
                    problem = f"against {high} {its}{where}: {contradiction}, so pods without own values are rejected"
                    yield Finding(place, f"{low} {resource} {mine}", problem, f"set {low} to at most {its}")


DEFAULTS: Final = (
    Rule("limit-ranges-contradict", "wrong", ("LimitRange",), _limit_ranges, own=True),
    Rule("gpus-by-default", "wrong", ("LimitRange",), _gpus_by_default, own=True),
    Rule("default-not-covered", "wrong", ("LimitRange", "LocalQueue", "ClusterQueue"), _not_covered),
)
