"""Reads a cluster, evaluates the survey rules, and collects their findings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.cluster.bound import read_checked
from gpu_tenancy.cluster.pods import Manifest
from gpu_tenancy.cluster.reading import KUEUE, VOLCANO, Kind, State
from gpu_tenancy.cluster.supply import Facts, Names, Pool, Total
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.yaml import UnreadableError, parse
from gpu_tenancy.survey.preempting import Preemptions, preemptions
from gpu_tenancy.survey.queue_rules import CLOSED, REACH
from gpu_tenancy.survey.rules import DEFAULTS, PROMISES, Finding, Level, Rule

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "Deployment", "LimitRange", "LocalQueue", "Namespace", "Node", "Pod", "PodGroup",
    "Queue", "ResourceFlavor", "ResourceQuota", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "Workload",
)  # fmt: skip
RULES: Final[tuple[Rule, ...]] = (*PROMISES, *CLOSED, *REACH, *DEFAULTS)
# Attributes of pools and totals that need a kind.
_NUMBERS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "Pod": ("used", "idle", "held"),
    "Node": ("exist", "ready", "idle"),
    "ClusterQueue": ("promised", "queues"),
    "Cohort": ("promised", "queues"),
    "Queue": ("gangs",),
    "ResourceQuota": ("quotas",),
}
_CONFIGURATION: Final = ("v1", "ConfigMap", "kueue-manager-config", "kueue-system")


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule with its findings."""

    rule: str
    level: Level
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Survey:
    """Contents of a cluster, and its contradictions; rules of level `wrong` come first."""

    operators: tuple[str, ...]
    pools: tuple[Pool, ...]
    totals: tuple[Total, ...]
    unknown: frozenset[str]  # attributes of pools and totals whose kinds are not readable
    counts: Mapping[str, int]
    broken: tuple[Broken, ...]
    preemptions: Preemptions
    evaluated: int
    not_evaluated: tuple[str, ...]  # rules whose kinds are not readable
    unreadable: Mapping[str, tuple[str, ...]]  # kinds, by the role that may usually read them
    partly: tuple[str, ...]  # kinds read in the reader's namespace only


def read_facts(cluster: Cluster, *, anonymous: bool = False) -> Facts:
    """Reads a cluster with the rights of the reader; raises the errors of `read`."""
    state = read_checked(cluster, KINDS, cluster.namespace)
    groups = (version.rpartition("/")[0] for version in (KUEUE, VOLCANO))
    served = {group: cluster.versions(group) for group in groups}
    return Facts(state, served, _configuration(cluster), Names(anonymous=anonymous))


def _configuration(cluster: Cluster) -> Manifest | None:
    try:
        found = cluster.get(*_CONFIGURATION)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None
    return configuration_of(found or {})


def configuration_of(config: Manifest) -> Manifest | None:
    """Kueue's configuration in its ConfigMap; empty for Kueue's defaults, None if it is not valid YAML.

    https://kueue.sigs.k8s.io/docs/reference/kueue-config.v1beta2/
    """
    try:
        written: Json = parse(text_at(config, "data", "controller_manager_config.yaml"))
    except UnreadableError:
        return None
    return written if isinstance(written, dict) else {}


def survey(facts: Facts) -> Survey:
    """Evaluates all rules whose kinds were read."""
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
    # A kind that the server does not serve has no objects.
    missing = state.missing.get(kind)
    return missing is None or not missing.who or (own and missing.partly)
