"""The survey of a cluster: what is read, which rules are evaluated, and what they find."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import Json, at, list_at, text_at
from gpu_tenancy.cluster.reading import KUEUE, VOLCANO, Kind, State, read
from gpu_tenancy.cluster.supply import Facts, Names, Pool, Total
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.yaml import UnreadableError, parse
from gpu_tenancy.survey.preempting import Preemptions, preemptions
from gpu_tenancy.survey.queue_rules import CLOSED, REACH
from gpu_tenancy.survey.rules import DEFAULTS, PROMISES, Finding, Level, Rule

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "Deployment", "LimitRange", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup",
    "PriorityClass", "Queue", "ResourceFlavor", "ResourceQuota", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "Workload",
)  # fmt: skip
RULES: Final[tuple[Rule, ...]] = (*PROMISES, *CLOSED, *REACH, *DEFAULTS)
_NUMBERS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "Pod": ("used", "idle", "held"),
    "Node": ("exist", "ready", "idle"),
    "ClusterQueue": ("promised", "queues"),
    "Cohort": ("promised", "queues"),
    "Queue": ("gangs",),
    "ResourceQuota": ("quotas",),
}
"""Attributes of pools and totals that need a kind."""
_CONFIGURATION: Final = ("v1", "ConfigMap", "kueue-manager-config", "kueue-system")


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule with what breaks it."""

    rule: str
    level: Level
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a cluster has, and what contradicts itself; rules that are wrong come first.

    Rules are not evaluated, and attributes of pools and totals are unknown, if the kinds that they need could not be
    read. `unreadable` kinds are by who may usually read them; `partly` read ones are of the reader's namespace only.
    """

    operators: tuple[str, ...]
    pools: tuple[Pool, ...]
    totals: tuple[Total, ...]
    unknown: frozenset[str]
    counts: Mapping[str, int]
    broken: tuple[Broken, ...]
    preemptions: Preemptions
    evaluated: int
    not_evaluated: tuple[str, ...]
    unreadable: Mapping[str, tuple[str, ...]]
    partly: tuple[str, ...]


def read_facts(cluster: Cluster, *, anonymous: bool = False) -> Facts:
    """Reads a cluster with the rights of the reader.

    Raises:
        UnreachableError: the cluster does not answer.
        ApiError: the API server rejects a request, except for a missing right.
    """
    state = read(cluster, KINDS, cluster.namespace)
    groups = (version.rpartition("/")[0] for version in (KUEUE, VOLCANO))
    served = {group: cluster.versions(group) for group in groups}
    return Facts(state, served, _managed(cluster), Names(anonymous=anonymous))


def _managed(cluster: Cluster) -> Json:
    """The namespaces that Kueue's configuration has it manage whole, as a selector; None for none or unknown.

    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/: without a selector, all but those of Kubernetes and
    Kueue. Pods are managed only with their integration.
    """
    try:
        found = cluster.get(*_CONFIGURATION)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None
    try:
        written: Json = parse(text_at(found or {}, "data", "controller_manager_config.yaml"))
    except UnreadableError:
        return None
    if not isinstance(written, dict) or written.get("manageJobsWithoutQueueName") is not True:
        return None
    with_pods = "pod" in list_at(written, "integrations", "frameworks")
    return (at(written, "managedJobsNamespaceSelector") or {}) if with_pods else None


def survey(facts: Facts) -> Survey:
    """Evaluates all rules whose objects could be read."""
    state, name = facts.state, facts.name
    can = [rule for rule in RULES if all(_was_read(state, kind, own=rule.own) for kind in rule.needs)]
    broken = [Broken(rule.name, rule.level, found) for rule in can if (found := tuple(rule.find(facts)))]
    # Operators with versions; one without a readable Deployment by the API that it serves.
    operators = [f"{operator.name} {operator.version}" for operator in facts.operators]
    for operator, group in (("Kueue", KUEUE.rpartition("/")[0]), ("Volcano", VOLCANO.rpartition("/")[0])):
        versions = facts.served.get(group, ())
        if versions and not any(known.name == operator for known in facts.operators):
            operators.append(f"{operator} (serves {', '.join(versions)})")
    unreadable: dict[str, tuple[str, ...]] = {}
    for missing in state.refused():
        if not missing.partly:
            unreadable[missing.who] = (*unreadable.get(missing.who, ()), missing.kind)
    counted: tuple[Kind, ...] = ("Namespace", "Node", "ClusterQueue", "Queue", "Pod", "Workload")
    return Survey(
        operators=tuple(operators),
        pools=tuple(
            replace(pool, flavors=tuple(map(name, pool.flavors)), nodes=tuple(map(name, pool.nodes)))
            for pool in facts.pools
        ),
        totals=facts.totals,
        unknown=frozenset(name for kind, names in _NUMBERS.items() if not _was_read(state, kind) for name in names),
        counts={kind: len(state.of(kind)) for kind in counted},
        broken=tuple(sorted(broken, key=lambda each: each.level == "risk")),
        preemptions=preemptions(facts),
        evaluated=len(can),
        not_evaluated=tuple(rule.name for rule in RULES if rule not in can),
        unreadable=unreadable,
        partly=tuple(missing.kind for missing in state.refused() if missing.partly),
    )


def _was_read(state: State, kind: Kind, *, own: bool = False) -> bool:
    """Whether the objects of a kind are known, those of the reader's own namespace at least with `own`.

    A kind that the server does not serve has none.
    """
    missing = state.missing.get(kind)
    return missing is None or not missing.who or (own and missing.partly)
