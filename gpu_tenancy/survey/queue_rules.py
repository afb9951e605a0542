"""Survey rules: queues that can never admit their workloads, GPUs outside of queues, pods with GPUs that do not run."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.json import at, map_at, text_at, texts_at
from gpu_tenancy.base.quantity import add
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.demand import owners
from gpu_tenancy.cluster.pods import name_of, namespace_of, scheduler, selects
from gpu_tenancy.cluster.supply import Facts, unplaced
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.survey.rules import Finding, Rule, is_promised


def _no_taint(facts: Facts) -> Iterator[Finding]:
    bare = [node.name for node in facts.nodes if not node.taints]
    if bare:
        problem = "without a taint: pods without GPUs can use their CPUs and memory, so that GPUs stay idle"
        fix = "taint the node pool, such as nvidia.com/gpu=present:NoSchedule"
        yield Finding(f"Nodes {facts.name.listed(bare)}", plural(len(bare), "GPU node"), problem, fix)


def _without_queue(facts: Facts) -> Iterator[Finding]:
    reachable = [name for name in facts.tenants if name not in facts.queues.homes and not _bounded(facts, name)]
    if facts.nodes and reachable:
        how = "any pod" if any(not node.taints for node in facts.nodes) else "a pod with a toleration"
        problem = f"with neither a LocalQueue nor a GPU quota: {how} uses GPUs that no queue or quota counts"
        fix = "add a ResourceQuota of 0 GPUs, a LocalQueue, or an admission policy for tolerations"
        yield Finding(f"namespaces {facts.name.listed(reachable)}", plural(len(reachable), "namespace"), problem, fix)


def _beside_queue(facts: Facts) -> Iterator[Finding]:
    names = [name for name in facts.tenants if name in facts.queues.homes and not _bounded(facts, name)]
    if facts.nodes and names:
        problem = "with a LocalQueue and no GPU quota: jobs without the label kueue.x-k8s.io/queue-name are not queued"
        fix = "set manageJobsWithoutQueueName in Kueue's configuration, with the integration pod"
        yield Finding(f"namespaces {facts.name.listed(names)}", plural(len(names), "namespace"), problem, fix)


def _bounded(facts: Facts, namespace: str) -> bool:
    # Kueue manages all pods of a namespace, or quotas without scopes or a policy limit its GPUs.
    labels = facts.labels.get(namespace, {})
    if selects(facts.managed, labels) or any(one is None or selects(one, labels) for one in facts.guarded):
        return True
    hard: set[str] = set()
    for quota in facts.state.of("ResourceQuota", namespace):
        if not (at(quota, "spec", "scopes") or at(quota, "spec", "scopeSelector")):
            hard.update(map_at(quota, "spec", "hard"))
    return all(f"requests.{name}" in hard for node in facts.nodes for name in node.gpus)


def _running_unqueued(facts: Facts) -> Iterator[Finding]:
    if not is_promised(facts):
        return
    queued = frozenset(owner for workload in facts.queues.workloads for owner in workload.owners)
    outside: dict[str, dict[str, int]] = defaultdict(dict)
    for pod, wanted in facts.gpu_pods:
        # Kueue counts a pod that has a mark of Kueue, or whose owner has a Workload.
        marks = {**texts_at(pod, "metadata", "labels"), **texts_at(pod, "metadata", "annotations")}
        counted = any(mark.startswith("kueue.x-k8s.io/") for mark in marks) or queued.intersection(owners(pod))
        apart = scheduler(map_at(pod, "spec")) != "volcano" and not counted
        if text_at(pod, "spec", "nodeName") and apart and namespace_of(pod) in facts.tenants:
            outside[namespace_of(pod)] = add(outside[namespace_of(pod)], wanted)
    for namespace, wanted in sorted(outside.items()):
        for resource, amount in wanted.items():
            problem = "used by pods that no queue counts: admitted workloads can find these GPUs taken"
            fix = "submit them through a LocalQueue, or take them off the quotas of the queues"
            yield Finding(f"namespace {facts.name(namespace)}", f"{amount} {resource}", problem, fix)


def _beyond_counted(facts: Facts) -> Iterator[Finding]:
    for breach in facts.state.breaches:
        value, problem = f"{breach.bound} {breach.resource}", breach.problem(facts.name)
        yield Finding(f"queue {facts.name(breach.queue)}", value, problem, breach.fix(facts.name))


def _two_schedulers(facts: Facts) -> Iterator[Finding]:
    by_node: dict[str, set[str]] = defaultdict(set)
    for pod, _ in facts.gpu_pods:
        if node := text_at(pod, "spec", "nodeName"):
            by_node[node].add(scheduler(map_at(pod, "spec")))
    mixed = sorted(node for node, names in by_node.items() if len(names) > 1)
    if mixed:
        names = sorted({name for node in mixed for name in by_node[node]})
        pods = f"with GPU pods of {' and '.join(map(facts.name, names))}"
        problem = f"{pods}: each scheduler places pods without the other, which the kubelet then rejects"
        fix = "separate their nodes by taints or labels"
        yield Finding(f"Nodes {facts.name.listed(mixed)}", plural(len(mixed), "node"), problem, fix)


def _nobody_schedules(facts: Facts) -> Iterator[Finding]:
    named: dict[str, list[str]] = defaultdict(list)
    total: dict[str, dict[str, int]] = defaultdict(dict)
    for pod, wanted in facts.gpu_pods:
        gated = at(pod, "spec", "schedulingGates")
        if not text_at(pod, "spec", "nodeName") and not gated and not condition(pod, "PodScheduled"):
            which = scheduler(map_at(pod, "spec"))
            named[which].append(f"{namespace_of(pod)}/{name_of(pod)}")
            total[which] = add(total[which], wanted)
    for which, pods in sorted(named.items()):
        for resource, amount in total[which].items():
            problem = f"requested, and scheduler {facts.name(which)} has not looked at them"
            fix = "install this scheduler, or correct schedulerName"
            yield Finding(f"Pods {facts.name.listed(pods)}", f"{amount} {resource}", problem, fix)


def _gated(facts: Facts) -> Iterator[Finding]:
    found = [(wanted, f"{namespace}/{name}") for wanted, is_gated, namespace, name in unplaced(facts) if is_gated]
    if found:
        yield Finding(
            f"Pods {facts.name.listed(name for _, name in found)}",
            ", ".join(f"{amount} {resource}" for resource, amount in add(*(wanted for wanted, _ in found)).items()),
            "requested by pods with schedulingGates of others than Kueue: they count in ResourceQuotas and do not run",
            "check the controller that removes the gates, or delete the pods",
        )


def _unbounded_default(facts: Facts) -> Iterator[Finding]:
    default = next((queue for queue in facts.state.of("Queue") if name_of(queue) == "default"), None)
    offered = {name for node in facts.nodes for name in node.gpus}
    bounded = set(texts_at(default or {}, "spec", "capability"))
    if default is not None and is_promised(facts) and offered - bounded:
        yield Finding(
            "Volcano queue default",
            "no capability",
            f"for {', '.join(sorted(offered - bounded))}: pods with schedulerName volcano use GPUs that Kueue promises",
            "set capability of the queue, such as 0 GPUs",
        )


REACH: Final = (
    Rule("gpu-nodes-without-taint", "risk", ("Node",), _no_taint),
    Rule("gpus-without-queue", "risk", ("Node", "Namespace", "LocalQueue", "ResourceQuota"), _without_queue),
    Rule("gpus-beside-queue", "risk", ("Node", "Namespace", "LocalQueue", "ResourceQuota"), _beside_queue),
    Rule("used-outside-queues", "wrong", ("Node", "Namespace", "Pod", "ClusterQueue"), _running_unqueued),
    Rule("bound-beyond-counted", "wrong", ("Node", "Pod", "ClusterQueue", "Workload"), _beyond_counted),
    Rule("two-schedulers-on-node", "wrong", ("Node", "Pod"), _two_schedulers, own=True),
    Rule("pods-nobody-schedules", "wrong", ("Pod",), _nobody_schedules, own=True),
    Rule("pods-gated", "risk", ("Pod",), _gated, own=True),
    Rule("volcano-default-unbounded", "risk", ("Node", "Queue", "ClusterQueue"), _unbounded_default),
)


def _missing(facts: Facts, queue: str) -> list[str]:
    there = {name_of(flavor) for flavor in facts.state.of("ResourceFlavor")}
    return sorted({flavor for flavor, _ in facts.queues.cluster_queues[queue].spec.quotas} - there)


def _stopped(facts: Facts) -> Iterator[Finding]:
    def stopped(place: str, policy: str) -> Finding:
        fix = "set stopPolicy to None, or delete the queue"
        return Finding(place, f"stopPolicy {policy}", "admits no workloads", fix)

    for name, queue in facts.queues.cluster_queues.items():
        if queue.stop_policy and queue.hold:
            yield Finding(f"ClusterQueue {facts.name(name)}", "a hold", queue.hold.text, queue.hold.fix)
        elif queue.stop_policy:
            yield stopped(f"ClusterQueue {facts.name(name)}", queue.stop_policy)
    for local in facts.state.of("LocalQueue"):
        namespace, name = namespace_of(local), name_of(local)
        if policy := facts.queues.stop_policy(namespace, name):
            yield stopped(f"LocalQueue {facts.name(f'{namespace}/{name}')}", policy)


def _missing_flavor(facts: Facts) -> Iterator[Finding]:
    for name in facts.queues.cluster_queues:
        if missing := _missing(facts, name):
            place = f"ClusterQueue {facts.name(name)}"
            problem = "does not exist: the queue admits nothing"
            fix = "create the ResourceFlavor, or remove it from the queue"
            yield Finding(place, f"ResourceFlavor {facts.name.listed(missing)}", problem, fix)


def _inactive(facts: Facts) -> Iterator[Finding]:
    for name, queue in facts.queues.cluster_queues.items():
        if queue.inactive and not queue.stop_policy and not _missing(facts, name):
            problem = f"for Kueue: {facts.name.message(queue.inactive)}"
            yield Finding(f"ClusterQueue {facts.name(name)}", "inactive", problem, "correct what the message names")


def _without_quota(facts: Facts) -> Iterator[Finding]:
    quotas = facts.queues.quotas
    for name, queue in facts.queues.cluster_queues.items():
        none = not any(quotas.potential_available(name, line) for line in queue.spec.quotas)
        if none and not _missing(facts, name):
            problem = "of each resource and nothing to borrow: no workload is ever admitted"
            fix = "set nominalQuota, or a cohort with quota to borrow from"
            yield Finding(f"ClusterQueue {facts.name(name)}", "quota 0", problem, fix)


def _without_nodes(facts: Facts) -> Iterator[Finding]:
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
            place = f"ResourceFlavor {facts.name(flavor)}"
            problem = f"promised, but {here}: admitted pods find no node"
            fix = "correct nodeLabels or resource name, or check that an autoscaler adds such nodes"
            yield Finding(place, f"{facts.promised[flavor, pool.resource]} {pool.resource}", problem, fix)


def _no_namespace(facts: Facts) -> Iterator[Finding]:
    for queue in facts.state.of("ClusterQueue"):
        name, selector = name_of(queue), at(queue, "spec", "namespaceSelector")
        lends = facts.queues.cluster_queues[name].spec.cohort and not facts.queues.users(name)  # It is for the cohort.
        if not lends and not any(selects(selector, here) for here in facts.labels.values()):
            value = "no namespaceSelector" if selector is None else "namespaceSelector"
            problem = "which matches no namespace: no workload is ever admitted"
            fix = "set namespaceSelector: {} for all namespaces, or label the namespaces"
            yield Finding(f"ClusterQueue {facts.name(name)}", value, problem, fix)


def _unused(facts: Facts) -> Iterator[Finding]:
    for name in facts.queues.cluster_queues:
        quota = sum(quota.nominal for quota in facts.queues.cluster_queues[name].spec.quotas.values())
        cohort = facts.queues.cluster_queues[name].spec.cohort
        if quota and not cohort and not facts.queues.users(name):
            problem = "without a LocalQueue and without a cohort: nobody can use it"
            fix = "create a LocalQueue, or delete the queue"
            yield Finding(f"ClusterQueue {facts.name(name)}", "quota", problem, fix)


def _local_queues(facts: Facts) -> Iterator[Finding]:
    selectors = {name_of(queue): at(queue, "spec", "namespaceSelector") for queue in facts.state.of("ClusterQueue")}
    managed = at(facts.configuration or {}, "managedJobsNamespaceSelector")
    for local in facts.state.of("LocalQueue"):
        namespace, target = namespace_of(local), text_at(local, "spec", "clusterQueue")
        place, value = f"LocalQueue {facts.name(f'{namespace}/{name_of(local)}')}", f"ClusterQueue {facts.name(target)}"
        if target not in selectors:
            fix = "create the ClusterQueue, or point the LocalQueue to another one"
            yield Finding(place, value, "does not exist: workloads stay pending", fix)
        elif namespace in facts.labels and not selects(selectors[target], facts.labels[namespace]):
            fix = "change the namespaceSelector, or label the namespace"
            yield Finding(place, value, "does not select this namespace: workloads stay pending", fix)
        elif namespace in facts.labels and managed and not selects(managed, facts.labels[namespace]):
            problem = "of Kueue's configuration does not select this namespace: Kueue ignores its jobs"
            fix = "change the selector, or delete the LocalQueue"
            yield Finding(place, "managedJobsNamespaceSelector", problem, fix)


CLOSED: Final = (
    Rule("queue-stopped", "risk", ("ClusterQueue", "LocalQueue"), _stopped, own=True),
    Rule("flavor-missing", "wrong", ("ClusterQueue", "ResourceFlavor"), _missing_flavor),
    Rule("queue-inactive", "wrong", ("ClusterQueue", "ResourceFlavor"), _inactive),
    Rule("queue-without-quota", "wrong", ("ClusterQueue", "Cohort", "ResourceFlavor"), _without_quota),
    Rule("flavor-without-nodes", "wrong", ("ClusterQueue", "ResourceFlavor", "Node"), _without_nodes),
    Rule("queue-of-no-namespace", "wrong", ("ClusterQueue", "Namespace"), _no_namespace),
    Rule("queue-unused", "risk", ("ClusterQueue", "LocalQueue"), _unused),
    Rule("local-queue-closed", "wrong", ("ClusterQueue", "LocalQueue"), _local_queues, own=True),
)
