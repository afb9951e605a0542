"""Rules about queues that can never admit a workload, or not the workloads that they are for."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cluster.pods import name_of, namespace_of, selects
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.survey.findings import Finding, Rule


def _missing(facts: Facts, queue: str) -> list[str]:
    there = {name_of(flavor) for flavor in facts.state.of("ResourceFlavor")}
    return sorted({flavor for flavor, _ in facts.queues.cluster_queues[queue].spec.quotas} - there)


def stopped(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues and LocalQueues that are stopped."""
    for name, queue in facts.queues.cluster_queues.items():
        if queue.stop_policy and queue.hold:
            yield Finding(f"ClusterQueue {facts.name(name)}", "a hold", queue.hold.text, queue.hold.fix)
        elif queue.stop_policy:
            yield _stopped(f"ClusterQueue {facts.name(name)}", queue.stop_policy)
    for local in facts.state.of("LocalQueue"):
        namespace, name = namespace_of(local), name_of(local)
        if policy := facts.queues.stop_policy(namespace, name):
            yield _stopped(f"LocalQueue {facts.name(f'{namespace}/{name}')}", policy)


def _stopped(place: str, policy: str) -> Finding:
    return Finding(place, f"stopPolicy {policy}", "admits no workloads", "set stopPolicy to None, or delete the queue")


def missing_flavor(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues with a flavor that does not exist."""
    for name in facts.queues.cluster_queues:
        if missing := _missing(facts, name):
            yield Finding(
                f"ClusterQueue {facts.name(name)}",
                f"ResourceFlavor {facts.name.listed(missing)}",
                "does not exist: the queue admits nothing",
                "create the ResourceFlavor, or remove it from the queue",
            )


def inactive(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues that Kueue reports as inactive for another reason."""
    for name, queue in facts.queues.cluster_queues.items():
        if queue.inactive and not queue.stop_policy and not _missing(facts, name):
            yield Finding(
                f"ClusterQueue {facts.name(name)}",
                "inactive",
                f"for Kueue: {facts.name.message(queue.inactive)}",
                "correct what the message names",
            )


def without_quota(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues that have no quota and can borrow none."""
    quotas = facts.queues.quotas
    for name, queue in facts.queues.cluster_queues.items():
        none = not any(quotas.potential_available(name, line) for line in queue.spec.quotas)
        if none and not _missing(facts, name):
            yield Finding(
                f"ClusterQueue {facts.name(name)}",
                "quota 0",
                "of each resource and nothing to borrow: no workload is ever admitted",
                "set nominalQuota, or a cohort with quota to borrow from",
            )


def without_nodes(facts: Facts) -> Iterator[Finding]:
    """Flavors with GPU quota that no node has the labels and the resource of."""
    for pool in facts.pools:
        if pool.nodes:
            continue
        for flavor in pool.flavors:
            labelled = facts.flavors.get(flavor)
            if labelled is None:  # It is missing, which another rule says.
                continue
            here = "no node with GPUs has its labels"
            if labelled:
                offered = sorted({name for node in facts.nodes if node.name in labelled for name in node.gpus})
                here = f"its nodes offer {', '.join(offered) or 'no GPUs'}"
            yield Finding(
                f"ResourceFlavor {facts.name(flavor)}",
                f"{facts.promised[flavor, pool.resource]} {pool.resource}",
                f"promised, but {here}: admitted pods find no node",
                "correct nodeLabels or resource name, or check that an autoscaler adds such nodes",
            )


def no_namespace(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues whose selector matches no namespace."""
    for queue in facts.state.of("ClusterQueue"):
        selector = at(queue, "spec", "namespaceSelector")
        if not any(selects(selector, here) for here in facts.labels.values()):
            value = "no namespaceSelector" if selector is None else "namespaceSelector"
            yield Finding(
                f"ClusterQueue {facts.name(name_of(queue))}",
                value,
                "which matches no namespace: no workload is ever admitted",
                "set namespaceSelector: {} for all namespaces, or label the namespaces",
            )


def unused(facts: Facts) -> Iterator[Finding]:
    """ClusterQueues with quota that no namespace can use."""
    for name in facts.queues.cluster_queues:
        quota = sum(quota.nominal for quota in facts.queues.cluster_queues[name].spec.quotas.values())
        cohort = facts.queues.cluster_queues[name].spec.cohort
        if quota and not cohort and not facts.queues.users(name):
            yield Finding(
                f"ClusterQueue {facts.name(name)}",
                "quota",
                "without a LocalQueue and without a cohort: nobody can use it",
                "create a LocalQueue, or delete the queue",
            )


def local_queues(facts: Facts) -> Iterator[Finding]:
    """LocalQueues of a ClusterQueue that does not exist or excludes their namespace."""
    selectors = {name_of(queue): at(queue, "spec", "namespaceSelector") for queue in facts.state.of("ClusterQueue")}
    for local in facts.state.of("LocalQueue"):
        namespace, target = namespace_of(local), text_at(local, "spec", "clusterQueue")
        place, value = f"LocalQueue {facts.name(f'{namespace}/{name_of(local)}')}", f"ClusterQueue {facts.name(target)}"
        if target not in selectors:
            fix = "create the ClusterQueue, or point the LocalQueue to another one"
            yield Finding(place, value, "does not exist: workloads stay pending", fix)
        elif namespace in facts.labels and not selects(selectors[target], facts.labels[namespace]):
            fix = "change the namespaceSelector, or label the namespace"
            yield Finding(place, value, "does not select this namespace: workloads stay pending", fix)


RULES: Final = (
    Rule("queue-stopped", "risk", ("ClusterQueue", "LocalQueue"), stopped, own=True),
    Rule("flavor-missing", "wrong", ("ClusterQueue", "ResourceFlavor"), missing_flavor),
    Rule("queue-inactive", "wrong", ("ClusterQueue", "ResourceFlavor"), inactive),
    Rule("queue-without-quota", "wrong", ("ClusterQueue", "Cohort", "ResourceFlavor"), without_quota),
    Rule("flavor-without-nodes", "wrong", ("ClusterQueue", "ResourceFlavor", "Node"), without_nodes),
    Rule("queue-of-no-namespace", "wrong", ("ClusterQueue", "Namespace"), no_namespace),
    Rule("queue-unused", "risk", ("ClusterQueue", "LocalQueue"), unused),
    Rule("local-queue-closed", "wrong", ("ClusterQueue", "LocalQueue"), local_queues, own=True),
)
