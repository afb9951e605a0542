"""Reads a cluster, evaluates the survey rules, collects their findings, and simulates the next preemptions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy import kueue
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.cluster.bound import read_checked
from gpu_tenancy.cluster.pods import Manifest
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.snapshot import LIVELOCK, NotSimulatedError, settled
from gpu_tenancy.cluster.supply import Facts, Names, Pool, Total, accelerators
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.model.names import KUEUE, VOLCANO
from gpu_tenancy.model.yaml import UnreadableError, parse
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
# Upper bound of workloads and quotas of all simulations; in a large cluster, fewer idle guarantees are tried.
WORK: Final = 20_000
_CLAIM: Final = "a workload that claims an idle guarantee"


@dataclass(frozen=True, slots=True)
class Preemption:
    """Workloads that a queue would preempt for its pending workload `by`, or (empty) to use its idle guarantee."""

    queue: str
    by: str
    amount: int
    flavor: str
    preempted: tuple[str, ...]

    @property
    def text(self) -> str:
        """The preemption in one line."""
        whom = first_names(self.preempted, 3)
        if self.by:
            return f"{self.by} preempts {whom} now"
        return f"if queue {self.queue} uses its {self.amount} idle guaranteed {self.flavor} GPUs: {whom} preempted"


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
    preemptions: tuple[Preemption, ...]
    not_simulated: tuple[str, ...]  # cohort trees and idle guarantees without preemptions, with the reason
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
    preempted, not_simulated = preemptions(facts)
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
        preemptions=preempted,
        not_simulated=not_simulated,
        evaluated=len(can),
        not_evaluated=tuple(rule.name for rule in RULES if rule not in can),
        unreadable=unreadable,
        partly=tuple(missing.kind for missing in state.refused() if missing.partly),
    )


def _was_read(state: State, kind: Kind, *, own: bool = False) -> bool:
    # A kind that the server does not serve has no objects.
    missing = state.missing.get(kind)
    return missing is None or not missing.who or (own and missing.partly)


def preemptions(facts: Facts) -> tuple[tuple[Preemption, ...], tuple[str, ...]]:
    """Preemptions by pending workloads and by each idle guarantee in simulations; cohort trees without one, and why."""
    queues, trials = facts.queues, _Trials(facts.queues)
    found: list[Preemption] = []
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    for name in queues.cluster_queues if facts.state.knows("ClusterQueue") else ():
        related = sorted(queues.quotas.related(name)[0])
        if name in seen or not any(queues.members.get(other) for other in related):
            continue
        seen.update(related)
        try:
            for one in trials.of_tree(related):
                preempted = tuple(facts.name(each) for each in one.preempted)
                by, flavor = facts.name(one.by), facts.name(one.flavor)
                found.append(Preemption(facts.name(one.queue), by, one.amount, flavor, preempted))
        except NotSimulatedError as error:
            reasons.setdefault(facts.name.message(str(error)), facts.name(name))
    texts = [f"cohort tree of {queue}: {why}" for why, queue in reasons.items()]
    if trials.left_out:
        texts.append(f"{plural(trials.left_out, 'idle guarantee')}: it would take too long")
    return tuple(found), tuple(texts)


class _Trials:
    """Simulations of one cluster, limited by `WORK`; further idle guarantees are `left_out`."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._left = WORK
        self.left_out = 0

    def of_tree(self, related: list[str]) -> Iterator[Preemption]:
        """Preemptions in one cohort tree. Raises NotSimulatedError if it cannot be simulated."""
        snapshot, simulation = settled(self._queues, related[0])
        now = simulation.settled()
        running = {workload.name for workload in now.admitted}
        by = grouped((eviction.by, eviction.name) for eviction in now.evicted if eviction.name not in running)
        queue_of = {workload.name: workload.queue for workload in now.admitted}
        for who, whom in by.items():
            yield Preemption(queue_of.get(who, ""), who, 0, "", tuple(dict.fromkeys(whom)))
        # Guarantees of GPUs that are not used, where others of the tree borrow the same; the largest first.
        quotas, queues = self._queues.quotas, self._queues.cluster_queues
        lines = [(name, line) for name in related for line in queues[name].spec.quotas if accelerators({line[1]: 1})]
        borrowed = {line for name, line in lines if quotas.borrowed(name, line)}
        unused = ((quotas.nominal(name, line) - quotas.usage(name, line), name, line) for name, line in lines)
        idle = sorted((one for one in unused if one[0] > 0 and one[2] in borrowed), key=lambda one: (-one[0], *one[1:]))
        fork = simulation.fork()
        cost = len(snapshot.participants) + sum(len(queue.quotas) for queue in snapshot.tenancy.queues)
        for at, (amount, queue, (flavor, resource)) in enumerate(idle):
            self._left -= cost
            if self._left < 0:
                self.left_out += len(idle) - at
                return
            trial = fork()
            pods = kueue.PodSet({resource: 1}, amount, frozenset((flavor,)))
            trial.submit(kueue.Workload(_CLAIM, queue, (pods,)))
            if trial.rest():
                raise NotSimulatedError(LIVELOCK)
            after = {workload.name for workload in trial.settled().admitted}
            if _CLAIM in after and (gone := sorted(running - after)):
                yield Preemption(queue, "", amount, flavor, tuple(gone))
