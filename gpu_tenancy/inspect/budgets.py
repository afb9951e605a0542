"""A namespace's ResourceQuotas: which of them apply to a pod, and what they have free.

Scopes as in https://kubernetes.io/docs/concepts/policy/resource-quotas/: a quota with scopes applies only to pods that
match all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import amount_text, amounts, ordered
from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.quantity import CPU, MEMORY, add, is_extended, times
from gpu_tenancy.inspect.answers import Verdict
from gpu_tenancy.inspect.pods import Manifest, called, limits, requests

_COMPUTE: Final = (CPU, MEMORY, "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Budget:
    """One resource of a quota, as its controller counts it, in base units."""

    quota: str
    resource: str
    used: int
    hard: int

    @property
    def left(self) -> int:
        """What is free."""
        return self.hard - self.used


def budgets(quota: Manifest) -> list[Budget]:
    """The lines of one ResourceQuota; where its controller has not reported yet, nothing is used."""
    hard = amounts(at(quota, "status", "hard")) or amounts(at(quota, "spec", "hard"))
    used = amounts(at(quota, "status", "used"))
    return [Budget(called(quota), name, used.get(name, 0), hard[name]) for name in ordered(hard)]


@dataclass(frozen=True, slots=True)
class Need:
    """What pods request of one line of a quota."""

    budget: Budget
    requested: int

    @property
    def verdict(self) -> Verdict:
        """Whether the quota has it free now, later or never."""
        if self.requested > self.budget.hard:
            return "never"
        return "later" if self.requested > self.budget.left else "now"

    @property
    def text(self) -> str:
        """What is requested of the resource, and how much of it is free."""
        budget, resource = self.budget, self.budget.resource
        hard, used = amount_text(resource, budget.hard), amount_text(resource, budget.used)
        head = f"ResourceQuota {budget.quota}: {resource} {amount_text(resource, self.requested)} requested"
        match self.verdict:
            case "never":
                return f"{head}, exceeds the quota of {hard}"
            case "later":
                lacking = amount_text(resource, self.requested - budget.left)
                return f"{head}, {used} of {hard} used; {lacking} must be released first"
            case _:
                return f"{head}, {amount_text(resource, budget.left)} of {hard} free"


def needs(quotas: Iterable[Manifest], pods: Sequence[tuple[Manifest, int]], priority: str) -> list[Need]:
    """What pods request of a namespace's quotas.

    Args:
        quotas: of the namespace.
        pods: specs with the namespace's defaults, and how many of each run at once.
        priority: name of the priority class that a pod without one gets; empty for none.
    """
    needed: list[Need] = []
    for quota in quotas:
        matching = [(spec, count) for spec, count in pods if count and counts(quota, spec, priority)]
        if not matching:
            continue
        total = add(*(times({**_charged(spec), "pods": 1, "count/pods": 1}, count) for spec, count in matching))
        needed += [Need(line, total[line.resource]) for line in budgets(quota) if total.get(line.resource, 0)]
    return needed


def _charged(spec: Manifest) -> dict[str, int]:
    """A pod under the resource names of quotas; extended resources have requests only."""
    request, limit = requests(spec), limits(spec)
    return {
        **{f"requests.{name}": value for name, value in request.items()},
        **{name: value for name, value in request.items() if name in _COMPUTE},
        **{f"limits.{name}": value for name, value in limit.items() if not is_extended(name)},
    }


def counts(quota: Manifest, spec: Manifest, priority: str = "") -> bool:
    """Whether a quota counts a pod."""
    scopes = at(quota, "spec", "scopes")
    rules: list[Mapping[str, object]] = [{"scopeName": each} for each in (scopes if isinstance(scopes, list) else ())]
    rules += maps_at(quota, "spec", "scopeSelector", "matchExpressions")
    own = text_at(spec, "priorityClassName") or priority
    return all(_in_scope(rule, spec, own) for rule in rules)


def _in_scope(rule: Mapping[str, object], spec: Manifest, priority: str) -> bool:
    ends = at(spec, "activeDeadlineSeconds") is not None
    judged = {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": not _bounded(spec),
        "NotBestEffort": _bounded(spec),
        "CrossNamespacePodAffinity": False,
    }
    if rule.get("scopeName") != "PriorityClass":
        return judged.get(str(rule.get("scopeName")), True)
    values = rule.get("values")
    named = isinstance(values, list) and priority in values
    operator = str(rule.get("operator", "Exists"))
    return {"In": named, "NotIn": not named, "Exists": bool(priority), "DoesNotExist": not priority}[operator]


def _bounded(spec: Manifest) -> bool:
    return any({**requests(spec), **limits(spec)}.get(name) for name in (CPU, MEMORY))


def is_exceeded_quota(message: str) -> bool:
    """Whether the ResourceQuota admission plugin rejected a pod; only the text of a Status tells."""
    return "exceeded quota" in message
