"""The survey of a cluster: what is read, which rules are evaluated, and what they find."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import Json, at, list_at, text_at
from gpu_tenancy.cluster.supply import Names, Operator
from gpu_tenancy.cluster.reading import KUEUE, VOLCANO, Kind, State, read
from gpu_tenancy.cluster.supply import Facts, Pool, Total
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.yaml import UnreadableError, parse
from gpu_tenancy.survey import closed, defaults, promises, reach
from gpu_tenancy.survey.findings import Finding, Level, Rule
from gpu_tenancy.survey.preempting import Preemptions, preemptions

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "Deployment", "LimitRange", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup",
    "PriorityClass", "Queue", "ResourceFlavor", "ResourceQuota", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "Workload",
)  # fmt: skip
RULES: Final[tuple[Rule, ...]] = (*promises.RULES, *closed.RULES, *reach.RULES, *defaults.RULES)
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
    """What a cluster has, and what contradicts itself.

    Attributes:
        unknown: attributes of pools and totals that need kinds which could not be read.
        operators: those whose Deployments were read, and Kueue and Volcano with the versions of their API.
        broken: those that are wrong first.
        evaluated: how many rules were evaluated.
        not_evaluated: rules that need kinds which could not be read.
        partly: kinds that were read in the reader's own namespace only.
        unreadable: kinds that the reader may not read, by who may usually read them.
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
    state = facts.state
    can = [rule for rule in RULES if all(_was_read(state, kind, own=rule.own) for kind in rule.needs)]
    broken = [Broken(rule.name, rule.level, found) for rule in can if (found := tuple(rule.find(facts)))]
    return Survey(
        operators=tuple(_operators(facts)),
        pools=_named(facts),
        totals=facts.totals,
        unknown=frozenset(name for kind, names in _NUMBERS.items() if not _was_read(state, kind) for name in names),
        counts={
            kind: len(state.of(kind)) for kind in ("Namespace", "Node", "ClusterQueue", "Queue", "Pod", "Workload")
        },
        broken=tuple(sorted(broken, key=lambda each: each.level == "risk")),
        preemptions=preemptions(facts),
        evaluated=len(can),
        not_evaluated=tuple(rule.name for rule in RULES if rule not in can),
        unreadable=_unreadable(state),
        partly=tuple(missing.kind for missing in state.refused() if missing.partly),
    )


def _unreadable(state: State) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for missing in state.refused():
        if not missing.partly:
            found[missing.who] = (*found.get(missing.who, ()), missing.kind)
    return found


def _was_read(state: State, kind: Kind, *, own: bool = False) -> bool:
    """Whether the objects of a kind are known, those of the reader's own namespace at least with `own`.

    A kind that the server does not serve has none.
    """
    missing = state.missing.get(kind)
    return missing is None or not missing.who or (own and missing.partly)


def _named(facts: Facts) -> tuple[Pool, ...]:
    name = facts.name
    return tuple(
        replace(pool, flavors=tuple(map(name, pool.flavors)), nodes=tuple(map(name, pool.nodes)))
        for pool in facts.pools
    )


def _operators(facts: Facts) -> list[str]:
    """Operators with versions; one without a readable Deployment by the API that it serves."""
    known: list[Operator] = list(facts.operators)
    texts = [f"{operator.name} {operator.version}" for operator in known]
    for name, group in (("Kueue", KUEUE.rpartition("/")[0]), ("Volcano", VOLCANO.rpartition("/")[0])):
        versions = facts.served.get(group, ())
        if versions and not any(operator.name == name for operator in known):
            texts.append(f"{name} (serves {', '.join(versions)})")
    return texts
