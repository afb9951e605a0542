"""Rules for what servers need at their most, and for what may be taken from them at once."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Resource, Rule, Severity, Stack, elsewhere, shown
from workload_rules.objects import BUDGETS, QUOTAS, name, scopes, selects, share
from workload_rules.pods import Pod, TenantGpus, Tenants, namespace
from workload_rules.priorities import class_of
from workload_rules.scaling import SERVERS, pods_of

_QUOTAS: Final = "https://kubernetes.io/docs/concepts/policy/resource-quotas/"
_ROLLOUT: Final = "https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-surge"
_BUDGET: Final = "https://kubernetes.io/docs/tasks/run-application/configure-pdb/"


def _counts(quota: Resource, pod: Pod) -> bool:
    """Whether a quota counts a pod of a server with GPUs: its scopes match, all of them."""
    for scope, operator, view in scopes(quota):
        if scope == "PriorityClass":
            mine = class_of(pod)
            values = view.texts("values") if isinstance(view.value, dict) else []
            matches = {
                "In": mine in values,
                "NotIn": mine not in values,
                "Exists": bool(mine),
                "DoesNotExist": not mine,
            }.get(operator, False)
        elif scope in {"Terminating", "NotTerminating"}:
            matches = pod.spec.has("activeDeadlineSeconds") == (scope == "Terminating")
        else:
            matches = scope == "NotBestEffort"
        if not matches:
            return False
    return True


def _space(pod: Pod) -> str:
    return pod.namespace


def _servers(where: str, quota: Resource, resource: str, settings: TenantGpus, stack: Stack) -> list[Pod]:
    """Pods of a namespace that go on as long as their workload, ask for a GPU resource, and count in a quota."""
    return stack.matching(SERVERS, lambda pod: resource in pod.gpus(settings) and _counts(quota, pod), (_space, where))


def _needs(pod: Pod, resource: str, settings: TenantGpus, stack: Stack) -> tuple[Decimal, Decimal]:
    """The most pods of a server, and the GPUs of each."""
    each = pod.gpus(settings)[resource]
    return pods_of(pod.resource, stack)[1], each


def _gpu_lines(quota: Resource, settings: TenantGpus) -> dict[str, Decimal]:
    """GPUs that a quota admits, by resource name."""
    lines = quota.props.entries("spec", "hard")
    names = {line.removeprefix("requests."): line for line in lines if line.startswith("requests.")}
    return {each: lines[line].number() or Decimal(0) for each, line in sorted(names.items()) if settings.is_gpu(each)}


def _maximum_fits(quota: Resource, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    where = namespace(quota)
    if not settings.tenant(where):
        return
    for resource, hard in _gpu_lines(quota, settings).items():
        parts: list[str] = []
        total = Decimal(0)
        for pod in _servers(where, quota, resource, settings, stack):
            count, each = _needs(pod, resource, settings, stack)
            total += count * each
            parts.append(f"{name(pod.resource)} {shown(count)} pods of {shown(each)}")
        if total > hard:
            yield (
                f"quota is {shown(hard)} {resource}, but serving workloads need up to {shown(total)}"
                f" ({', '.join(parts)}); raise requests.{resource}, or lower the autoscaler maximums"
            )


FITS: Final = Rule(
    name="autoscaler-maximum-fits",
    title="A namespace's quota must cover its serving workloads at their maximum replicas.",
    rationale="Otherwise the API server rejects pods that the autoscaler creates at peak load.",
    fix="Raise the quota, or lower the autoscaler maximums.",
    link=_QUOTAS,
    severity=Severity.HIGH,
    level=MUST,
    on=QUOTAS,
    check=_maximum_fits,
    settings=TenantGpus,
    whole=True,
)


def _surge(workload: Resource, count: Decimal) -> Decimal:
    """Pods that a rollout adds to `count`: `maxSurge` (default 25 %) for Deployments and Rollouts, else 0."""
    if workload.kind == "Rollout":
        canary = workload.props.at("spec", "strategy", "canary")
        if not canary.has():
            return count  # blue and green stand side by side
        found = share(canary.at("maxSurge"), count) if canary.has("maxSurge") else None
    elif workload.kind == "Deployment" and workload.props.text("spec", "strategy", "type") != "Recreate":
        surge = workload.props.at("spec", "strategy", "rollingUpdate", "maxSurge")
        found = share(surge, count) if surge.has() else None
    else:
        return Decimal(0)
    return Decimal(-(-int(count) // 4)) if found is None else found


def _surge_fits(pod: Pod, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    where = pod.namespace
    if not settings.tenant(where):
        return
    for resource in pod.gpus(settings):
        count, each = _needs(pod, resource, settings, stack)
        surge = _surge(pod.resource, count)
        if not surge:
            continue
        for quota in stack.matching(QUOTAS, lambda one: _counts(one, pod), (namespace, where)):
            with elsewhere(quota):
                hard = _gpu_lines(quota, settings).get(resource)
            if hard is None:
                continue
            others = _servers(where, quota, resource, settings, stack)
            total = sum(
                (count * gpus for count, gpus in (_needs(one, resource, settings, stack) for one in others)), Decimal(0)
            )
            if total <= hard < total + surge * each:
                yield (
                    f"a rollout at maximum replicas adds {shown(surge)} pods of {shown(each)} {resource} to the"
                    f" {shown(total)} in use, but {quota.place} allows {shown(hard)}; set maxSurge: 0 and"
                    f" maxUnavailable: 1, or raise the quota to {shown(total + surge * each)}"
                )


SURGE: Final = Rule(
    name="surge-fits",
    title="A namespace's quota must cover the pods that a rollout adds.",
    rationale="Otherwise the API server rejects the new pods, and the rollout does not complete.",
    fix="Set `maxSurge: 0` and `maxUnavailable: 1`, or raise the quota for the additional pods.",
    link=_ROLLOUT,
    severity=Severity.MEDIUM,
    level=MUST,
    on=SERVERS,
    check=_surge_fits,
    settings=TenantGpus,
    whole=True,
)


class PresentSettings(TenantGpus):
    """Which servers have a disruption budget."""

    least: int = Field(2, ge=1, description="Minimum number of replicas from which a PodDisruptionBudget is required.")


def _covers(budget: Resource, pod: Pod) -> bool:
    return selects(budget.props.at("spec", "selector"), pod.meta.words("labels"))


def _present(pod: Pod, settings: PresentSettings, stack: Stack) -> Iterator[str]:
    if not settings.tenant(pod.namespace) or not pod.gpus(settings):
        return
    fewest, _ = pods_of(pod.resource, stack)
    here = (namespace, pod.namespace)
    if fewest >= settings.least and stack.first(BUDGETS, lambda each: _covers(each, pod), here) is None:
        yield (
            f"has at least {shown(fewest)} pods and no PodDisruptionBudget that selects them; add one with"
            " maxUnavailable: 1"
        )


PRESENT: Final = Rule(
    name="disruption-budget-present",
    title="Serving workloads with several replicas must have a PodDisruptionBudget.",
    rationale="Without one, a node upgrade can evict all replicas at once.",
    fix="Add a PodDisruptionBudget that selects the pods' labels, with `maxUnavailable: 1`.",
    link=_BUDGET,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=SERVERS,
    check=_present,
    settings=PresentSettings,
    whole=True,
)


def _not_blocking(budget: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    if not settings.tenant(namespace(budget)):
        return
    spec = budget.props.at("spec")
    if spec.has("maxUnavailable"):
        if not share(spec.at("maxUnavailable"), Decimal(100)):
            yield f"maxUnavailable is {spec.text('maxUnavailable')}, so no pod can be evicted; set it to 1"
        return
    if not spec.has("minAvailable"):
        return
    kept = spec.text("minAvailable")
    if kept.endswith("%") and share(spec.at("minAvailable"), Decimal(100)) == Decimal(100):
        yield f"minAvailable is {kept}, so no pod can be evicted; set maxUnavailable: 1 instead"
        return
    for pod in stack.matching(SERVERS, lambda each: _covers(budget, each), (_space, namespace(budget))):
        fewest, _ = pods_of(pod.resource, stack)
        keeps = share(spec.at("minAvailable"), fewest)
        if fewest and keeps is not None and keeps >= fewest:
            yield (
                f"minAvailable is {kept} and the minimum number of pods of {pod.place} is {shown(fewest)}, so no"
                " pod can be evicted; set maxUnavailable: 1 instead"
            )


NOT_BLOCKING: Final = Rule(
    name="disruption-budget-lets-go",
    title="A PodDisruptionBudget must allow at least one pod to be evicted.",
    rationale=(
        "Otherwise nodes that run these pods cannot be drained or upgraded, and the cloud eventually terminates"
        " them by force."
    ),
    fix="Set `maxUnavailable: 1`.",
    link=_BUDGET,
    severity=Severity.MEDIUM,
    level=MUST,
    on=BUDGETS,
    check=_not_blocking,
    settings=Tenants,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (FITS, SURGE, PRESENT, NOT_BLOCKING)
