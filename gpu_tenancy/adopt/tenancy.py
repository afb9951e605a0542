"""Teams, cohorts and priorities of a stack, as the objects of a cluster show them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gpu_tenancy import kueue
from gpu_tenancy.adopt.pools import Drafted, pools
from gpu_tenancy.base.json import at, int_at, list_at, maps_at, text_at, texts_at
from gpu_tenancy.cluster.pods import name_of
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.kueue import Quota
from gpu_tenancy.model.kinds import kinds

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LimitRange", "LocalQueue", "Namespace", "Node", "PriorityClass", "Queue",
    "ResourceFlavor", "ResourceQuota", "StorageClass", "WorkloadPriorityClass",
)  # fmt: skip
"""What is read of a cluster."""
OPERATED: Final = {kind.group: kind.operator for kind in kinds().values() if kind.operator}
"""API groups of jobs and servers, and the operator, by its field, that runs them."""
ROOT: Final = "org"
_MOST: Final = 1_000_000_000
"""Classes of the system are above: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/."""
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_PAYS: Final = {"owner": "owner", "costCenter": "cost-center"}
"""Keys of a team that a stack requires, and the label that has them."""


@dataclass(frozen=True)
class Seen:
    """A cluster as a stack would have it.

    Attributes:
        groups: API groups that the cluster serves, of `OPERATED`.
    """

    facts: Facts
    groups: frozenset[str] = frozenset()

    @cached_property
    def pools(self) -> tuple[Drafted, dict[str, str]]:
        """The pools, and the GPU resource of each flavor."""
        return pools(self.facts)

    @cached_property
    def queue_of(self) -> dict[str, str]:
        """The ClusterQueue of each namespace with a LocalQueue whose ClusterQueue exists: a team."""
        queues = self.facts.queues
        found = {space: queues.homes[space][queues.usual(space)] for space in sorted(queues.homes)}
        return {space: queue for space, queue in found.items() if queue in queues.cluster_queues}

    @cached_property
    def owners(self) -> dict[str, str]:
        """The team that has each ClusterQueue; others share it."""
        found: dict[str, str] = {}
        for team, queue in self.queue_of.items():
            if queue not in found or team == queue:
                found[queue] = team
        return found

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """Each cohort with its parent, with the root that a stack has."""
        tenancy = self.facts.queues.tenancy
        named = {queue.cohort for queue in tenancy.queues if queue.cohort}
        found: dict[str, str | None] = dict.fromkeys(sorted(named))
        for cohort in tenancy.cohorts:
            found[cohort.name] = cohort.parent
            if cohort.parent:
                found.setdefault(cohort.parent, None)
        roots = [name for name, parent in found.items() if parent is None]
        if len(roots) == 1:
            return found
        root = ROOT if ROOT not in found else f"{ROOT}-root"
        return {root: None, **{name: parent or root for name, parent in found.items()}}

    def _depth(self, cohort: str) -> int:
        seen: list[str] = []
        while (above := self.parents.get(cohort)) and above not in seen:
            seen.append(above)
            cohort = above
        return len(seen)

    @cached_property
    def provides(self) -> list[str]:
        """What a stack says that a cluster has. No object shows whether NetworkPolicies are enforced: assumed."""
        classes = self.facts.state.of("StorageClass")
        default = any(texts_at(each, "metadata", "annotations").get(_DEFAULT_CLASS) == "true" for each in classes)
        return ["networkPolicies", *(["defaultStorageClass"] if default else [])]

    def bounds(self, owner: kueue.ClusterQueue | kueue.Cohort, flavor: str, resource: str) -> dict[str, int]:
        """Guarantee and limit of a queue or cohort; a queue without a borrowing limit may use all of its tree."""
        quota = owner.quotas.get((flavor, resource), Quota(0))
        own = quota.nominal + self._below(owner.name, flavor, resource) * isinstance(owner, kueue.Cohort)
        upper = owner.cohort if isinstance(owner, kueue.ClusterQueue) else owner.parent
        limit = (
            own + quota.borrowing_limit if quota.borrowing_limit is not None else self._total(upper, flavor, resource)
        )
        return {"guaranteed": own, "limit": max(own, limit)}

    def _total(self, cohort: str | None, flavor: str, resource: str) -> int:
        """What a whole tree has, seen from one of its cohorts."""
        tops = {each.name: each.parent for each in self.facts.queues.tenancy.cohorts}
        while cohort and tops.get(cohort):
            cohort = tops[cohort]
        return self._below(cohort, flavor, resource, own=True) if cohort else 0

    def _below(self, cohort: str, flavor: str, resource: str, *, own: bool = False) -> int:
        """The nominal quota below a cohort, with its own where asked."""
        tenancy, key = self.facts.queues.tenancy, (flavor, resource)
        parts = [queue for queue in tenancy.queues if queue.cohort == cohort]
        total = sum(part.quotas[key].nominal for part in parts if key in part.quotas)
        for each in tenancy.cohorts:
            if each.parent == cohort and each.name != cohort:
                total += self._below(each.name, flavor, resource, own=True)
            if own and each.name == cohort and key in each.quotas:
                total += each.quotas[key].nominal
        return total

    def _gpus(self, owner: kueue.ClusterQueue | kueue.Cohort) -> dict[str, Any]:
        shares: dict[str, Any] = {}
        for flavor, resource in owner.quotas:
            if resource and self.pools[1].get(flavor) == resource:
                share = self.bounds(owner, flavor, resource)
                if share["limit"]:
                    shares[flavor] = share
        return {"gpus": shares} if shares else {}

    @cached_property
    def teams(self) -> Drafted:
        """The namespaces with a queue."""
        drafted, queues = Drafted(), self.facts.queues
        spaces = {name_of(each): texts_at(each, "metadata", "labels") for each in self.facts.state.of("Namespace")}
        for team, queue in self.queue_of.items():
            labels = spaces.get(team, {})
            entry: dict[str, Any] = {key: labels.get(label, "unknown") for key, label in _PAYS.items()}
            if "pod-security.kubernetes.io/enforce" not in labels:
                entry["podSecurity"] = "privileged"  # What runs must be accepted again.
            if classes := self._classes(team):
                entry["compute"] = {"priorities": classes}
            if self.owners[queue] != team:
                entry["queue"] = self.owners[queue]
            else:
                spec = queues.cluster_queues[queue].spec
                if spec.cohort and self.parents.get(spec.cohort):
                    entry["cohort"] = spec.cohort
                entry |= self._gpus(spec)
                entry |= {} if spec.cohort else {"lends": False}
            drafted.entries[team] = entry
            drafted.notes[team] = f"Namespace {team}, LocalQueue {queues.usual(team)}, ClusterQueue {queue}"
        return drafted

    def _classes(self, team: str) -> list[str]:
        """The priority classes whose pods a ResourceQuota of the namespace counts."""
        for quota in self.facts.state.of("ResourceQuota", team):
            for scope in maps_at(quota, "spec", "scopeSelector", "matchExpressions"):
                if (text_at(scope, "scopeName"), text_at(scope, "operator")) == ("PriorityClass", "In"):
                    return list_at(scope, "values")
        return []

    @cached_property
    def cohorts(self) -> Drafted:
        """The tree; empty if it is only the root that a stack has anyhow."""
        known = {cohort.name: cohort for cohort in self.facts.queues.tenancy.cohorts}
        drafted = Drafted()
        for name, parent in sorted(self.parents.items(), key=lambda item: (self._depth(item[0]), item[0])):
            cohort = known.get(name)
            entry: dict[str, Any] = {"parent": parent} if parent else {}
            if parent and cohort and cohort.quotas:
                entry |= self._gpus(cohort)
            if cohort and cohort.weight is not None:
                entry["weight"] = cohort.weight
            drafted.entries[name] = entry
            drafted.notes[name] = f"Cohort {name}" if cohort else "named by queues, without an object"
            if not cohort and name not in {queue.cohort for queue in self.facts.queues.tenancy.queues}:
                drafted.notes[name] = "not in the cluster: a stack has one root, so separate trees are joined"
        return Drafted() if drafted.entries in ({ROOT: {}}, {}) else drafted

    @cached_property
    def priorities(self) -> Drafted:
        """The priority classes of people; those that a chart installed stay its own."""
        drafted = Drafted()
        for kind in ("WorkloadPriorityClass", "PriorityClass"):
            for each in self.facts.state.of(kind):
                name, value = name_of(each), int_at(each, "value")
                if value > _MOST or name.startswith("system-"):
                    continue
                if texts_at(each, "metadata", "labels").get("app.kubernetes.io/managed-by") == "Helm":
                    drafted.left.append(f"{kind} {name}: of a Helm release, which keeps it")
                    continue
                entry: dict[str, Any] = {"value": value}
                entry |= {"preempts": False} if text_at(each, "preemptionPolicy") == "Never" else {}
                entry |= {"default": True} if at(each, "globalDefault") is True else {}
                entry |= {"description": text} if (text := text_at(each, "description")) else {}
                drafted.entries[name] = entry
                drafted.notes[name] = f"{kind} {name}"
        return drafted

    def sections(self, name: str) -> dict[str, Any]:
        """The stack; its environment is that of the namespaces' labels, else its name."""
        spaces = [each for each in self.facts.state.of("Namespace") if name_of(each) in self.queue_of]
        said = {texts_at(each, "metadata", "labels").get("environment", "") for each in spaces}
        environment = said.pop() if len(said) == 1 else name
        parts: Mapping[str, Any] = {
            "pools": self.pools[0].entries,
            "priorities": self.priorities.entries,
            "cohorts": self.cohorts.entries,
            "teams": self.teams.entries,
        }
        fair = {"fairness": "even"} if self.facts.queues.tenancy.fair_sharing else {}
        cluster: dict[str, Any] = {"cloud": "existing", "provides": self.provides}
        operators = {to_camel(name): "installed" for name in sorted({OPERATED[group] for group in self.groups})}
        start = {"environment": environment or name, "cluster": cluster, **fair}
        start |= {"operators": operators} if operators else {}
        return {**start, **{key: part for key, part in parts.items() if part}}
