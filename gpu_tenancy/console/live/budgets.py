"""A namespace's quotas: which of them count a pod, and whether what they have left is enough.

Scopes as in https://kubernetes.io/docs/concepts/policy/resource-quotas/: a quota with scopes counts only the pods that
match all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.console.live.amounts import amounts, ordered, plain, said
from gpu_tenancy.console.live.answers import Answer, Verdict, worst
from gpu_tenancy.console.live.pods import Manifest, asked, called, limits, requests
from gpu_tenancy.console.offline.wire import at, maps_at, text_at
from gpu_tenancy.model.quantity import CPU, MEMORY, add, is_extended, times

ABOUT: Final = "namespace quota"
_COMPUTE: Final = (CPU, MEMORY, "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Budget:
    """One line of a quota as its controller counts it."""

    quota: str
    resource: str
    used: int
    hard: int

    @property
    def left(self) -> int:
        """What may still be asked for."""
        return self.hard - self.used


def budgets(quota: Manifest) -> list[Budget]:
    """The lines of one ResourceQuota; where its controller has not counted yet, nothing is used."""
    hard = amounts(at(quota, "status", "hard")) or amounts(at(quota, "spec", "hard"))
    used = amounts(at(quota, "status", "used"))
    return [Budget(called(quota), name, used.get(name, 0), hard[name]) for name in ordered(hard)]


def judge_budgets(quotas: Iterable[Manifest], pods: Sequence[tuple[Manifest, int]], priority: str) -> Answer:
    """Whether a namespace's quotas let pods in, now and when the namespace is empty.

    Args:
        quotas: the namespace's.
        pods: specs with the defaults filled in, and how many of each are there at once.
        priority: name of the priority class that a pod without one gets; empty for none.
    """
    verdicts, words, counted = list[Verdict](), list[str](), list[str]()
    for quota in quotas:
        matching = [(spec, count) for spec, count in pods if count and counts(quota, spec, priority)]
        if not matching:
            continue
        for unnamed in _unnamed(quota, matching):
            verdicts.append("never")
            words.append(unnamed)
        total = add(*(times({**_charged(spec), "pods": 1, "count/pods": 1}, count) for spec, count in matching))
        for line in budgets(quota):
            need = total.get(line.resource, 0)
            if not need:
                continue
            verdict, said_so = _line(line, need)
            verdicts.append(verdict)
            (words if verdict != "now" else counted).append(said_so)
    verdict = worst(verdicts)
    return Answer(ABOUT, verdict, tuple(words or counted) or ("no quota of the namespace counts these pods",))


def _line(line: Budget, need: int) -> tuple[Verdict, str]:
    name = line.resource
    asks, hard, used = (said(name, each) for each in (need, line.hard, line.used))
    if need > line.hard:
        return "never", f"{line.quota}: {name} {asks} is more than all of its {hard}"
    if need > line.left:
        short = said(name, need - line.left)
        return "later", f"{line.quota}: {name} {asks}, and {used} of {hard} are used: {short} must be freed first"
    return "now", f"{line.quota}: {name} {asks}, {said(name, line.left)} of {hard} are free"


def _charged(spec: Manifest) -> dict[str, int]:
    """A pod under the names that quotas have: of extended resources requests alone."""
    request, limit = requests(spec), limits(spec)
    return {
        **{f"requests.{name}": value for name, value in request.items()},
        **{name: value for name, value in request.items() if name in _COMPUTE},
        **{f"limits.{name}": value for name, value in limit.items() if not is_extended(name)},
    }


def _unnamed(quota: Manifest, pods: Iterable[tuple[Manifest, int]]) -> Iterator[str]:
    """A quota of cpu or memory refuses containers that do not say how much."""
    for line in budgets(quota):
        kind = plain(line.resource)
        which = "limits" if line.resource.startswith("limits.") else "requests"
        if kind not in _COMPUTE:
            continue
        for spec, _ in pods:
            for container in maps_at(spec, "containers"):
                found = amounts(at(container, "resources", "limits")) if which == "limits" else asked(container, which)
                if kind not in found:
                    yield f"{line.quota}: container {text_at(container, 'name')} must say its {which}.{kind}"


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
