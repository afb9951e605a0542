"""Rules for the quota of serving workloads at their maximum replicas, and for their disruption budgets."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from rule_engine import MUST, Resource, Severity, Stack, Subject, format_number, located_at, rule
from workload_rules.objects import BUDGETS, QUOTAS, name, number_or_percentage, scopes, selects
from workload_rules.pods import PODS, Pod, TenantGpus, Tenants, kind_of, namespace_of
from workload_rules.priorities import class_of
from workload_rules.quotas import gpu_lines
from workload_rules.scaling import GROUPED, SERVERS, pods_of, pods_per_replica

_QUOTAS: Final = "https://kubernetes.io/docs/concepts/policy/resource-quotas/"
_ROLLOUT: Final = "https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#max-surge"
_QUARTER: Final = 4
"""Pods of which 25 %, rounded down, is one."""
_BUDGET: Final = "https://kubernetes.io/docs/tasks/run-application/configure-pdb/"


def _counts(quota: Resource, pod: Pod) -> bool:
    """Whether a quota counts a serving pod with GPUs: all of its scopes match."""
    for scope, operator, view in scopes(quota):
        if scope == "PriorityClass":
            pod_class = class_of(pod)
            values = view.texts("values") if isinstance(view.value, dict) else []
            matches = {
                "In": pod_class in values,
                "NotIn": pod_class not in values,
                "Exists": bool(pod_class),
                "DoesNotExist": not pod_class,
            }.get(operator, False)
        else:
            # The API server accepts no deadline in the pods of a server.
            matches = scope in {"NotTerminating", "NotBestEffort"}
        if not matches:
            return False
    return True


def _pod_namespace(pod: Pod) -> str:
    return pod.namespace


def _servers(namespace: str, quota: Resource, resource: str, settings: TenantGpus, stack: Stack) -> list[Pod]:
    """Pods of scalable workloads of a namespace that request a GPU resource and count in a quota."""
    return stack.matching(
        SERVERS, lambda pod: resource in pod.gpus(settings) and _counts(quota, pod), (_pod_namespace, namespace)
    )


def _needs(pod: Pod, resource: str, settings: TenantGpus, stack: Stack) -> tuple[Decimal, Decimal]:
    """The maximum number of pods of a workload, and the GPUs of a pod."""
    gpus_per_pod = pod.gpus(settings)[resource]
    return pods_of(pod, stack)[1], gpus_per_pod


@rule(
    "autoscaler-maximum-fits",
    rationale="Otherwise the API server rejects pods that the autoscaler creates at peak load.",
    fix="Raise the quota, or lower the autoscaler maximums.",
    link=_QUOTAS,
    severity=Severity.HIGH,
    level=MUST,
    on=QUOTAS,
)
def autoscaler_maximum_fits(quota: Resource, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    """A namespace's quota must cover its serving workloads at their maximum replicas."""
    namespace = namespace_of(quota)
    if not settings.tenant(namespace):
        return
    for resource, hard in gpu_lines(quota, settings).items():
        parts: list[str] = []
        total = Decimal(0)
        for pod in _servers(namespace, quota, resource, settings, stack):
            count, gpus_per_pod = _needs(pod, resource, settings, stack)
            total += count * gpus_per_pod
            parts.append(f"{name(pod.resource)} {format_number(count)} pods of {format_number(gpus_per_pod)}")
        if total > hard:
            yield (
                f"quota is {format_number(hard)} {resource}, but serving workloads need up to {format_number(total)}"
                f" ({', '.join(parts)}); raise requests.{resource}, or lower the autoscaler maximums"
            )


def _added(pod: Pod, resource: str, settings: TenantGpus, stack: Stack) -> tuple[Decimal, str, Decimal]:
    """What a rollout adds to the pods of a template: how many, what they are, and the GPUs of each.

    A LeaderWorkerSet adds whole groups, which count for the first of its templates with GPUs.
    """
    count, gpus_per_pod = _needs(pod, resource, settings, stack)
    if kind_of(pod.resource) != GROUPED:
        return _surge(pod.resource, count), "pods", gpus_per_pod
    templates = [one for one in pod.resource.parts(PODS) if resource in one.gpus(settings)]
    each = pods_per_replica(pod)
    if templates[0].spec.path != pod.spec.path or not each:
        return Decimal(0), "groups", Decimal(0)
    surge = pod.resource.props.at("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
    of_group = sum((pods_per_replica(one) * one.gpus(settings)[resource] for one in templates), Decimal(0))
    groups = number_or_percentage(surge, count / each) if surge.has() else None
    return groups or Decimal(0), "groups", of_group


def _surge(workload: Resource, count: Decimal) -> Decimal:
    """Pods that a rollout adds to `count`: `maxSurge` (default 25 %) for Deployments and Rollouts, else 0."""
    if workload.kind == "Rollout":
        canary = workload.props.at("spec", "strategy", "canary")
        if not canary.has():
            return count  # a blue-green rollout runs both versions
        surge_pods = number_or_percentage(canary.at("maxSurge"), count) if canary.has("maxSurge") else None
    elif workload.kind == "Deployment" and workload.props.text("spec", "strategy", "type") != "Recreate":
        surge = workload.props.at("spec", "strategy", "rollingUpdate", "maxSurge")
        surge_pods = number_or_percentage(surge, count) if surge.has() else None
    else:
        return Decimal(0)
    return Decimal(-(-int(count) // 4)) if surge_pods is None else surge_pods


def _replaces(pod: Pod, resource: str, settings: TenantGpus, stack: Stack) -> bool:
    """Whether a rollout at maximum replicas also removes old pods first, and so completes without the added ones.

    Defaults of `maxUnavailable` are 1 for LeaderWorkerSets and 25 % for Deployments.
    """
    grouped = kind_of(pod.resource) == GROUPED
    strategy = ("rolloutStrategy", "rollingUpdateConfiguration") if grouped else ("strategy", "rollingUpdate")
    unavailable = pod.resource.props.at("spec", *strategy, "maxUnavailable")
    each = pods_per_replica(pod) if grouped else 1
    if not each:
        return False
    total = _needs(pod, resource, settings, stack)[0] / each
    if unavailable.has():
        return bool(number_or_percentage(unavailable, total, down=True))
    return grouped or (pod.resource.kind == "Deployment" and total >= _QUARTER)


def _in_use(quota: Resource, resource: str, settings: TenantGpus, stack: Stack) -> Decimal:
    """GPUs of all serving workloads that a quota counts, at their maximum replicas."""
    servers = _servers(namespace_of(quota), quota, resource, settings, stack)
    needs = [_needs(server, resource, settings, stack) for server in servers]
    return sum((count * gpus for count, gpus in needs), Decimal(0))


@rule(
    "surge-fits",
    rationale="Otherwise the API server rejects the new pods, and a rollout that removes no old ones waits forever.",
    fix="Set `maxUnavailable` so that it is 1 or more at maximum replicas, or raise the quota for the additional pods.",
    link=_ROLLOUT,
    severity=Severity.MEDIUM,
    level=MUST,
    on=SERVERS,
)
def surge_fits(pod: Pod, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    """A namespace's quota must cover the pods that a rollout adds."""
    namespace = pod.namespace
    if not settings.tenant(namespace):
        return
    for resource in pod.gpus(settings):
        surge, noun, gpus_of_each = _added(pod, resource, settings, stack)
        if not surge or _replaces(pod, resource, settings, stack):
            continue
        for quota in stack.matching(QUOTAS, lambda other: _counts(other, pod), (namespace_of, namespace)):
            with located_at(quota):
                hard = gpu_lines(quota, settings).get(resource)
            if hard is None:
                continue
            total = stack.once(
                (_in_use, id(settings), id(quota), resource), partial(_in_use, quota, resource, settings, stack)
            )
            if total <= hard < total + surge * gpus_of_each:
                yield (
                    f"a rollout at maximum replicas adds {format_number(surge)} {noun} of {format_number(gpus_of_each)}"
                    f" {resource} to the {format_number(total)} in use, but {quota.place} allows {format_number(hard)};"
                    " set maxUnavailable to 1 or more there, or raise the quota to"
                    f" {format_number(total + surge * gpus_of_each)}"
                )


def _covers(budget: Resource, pod: Pod) -> bool:
    return selects(budget.props.at("spec", "selector"), pod.meta.string_map("labels"))


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A serving pod under one of its labels, by which budgets find it without a look at all pods of a namespace.

    Attributes:
        pod: the pod.
        label: key and value; None for each pod once, for selectors without labels.
    """

    pod: Pod
    label: tuple[str, str] | None

    @property
    def place(self) -> str:
        """The pod's place."""
        return self.pod.place


def _labelled(resource: Resource) -> Iterator[Labelled]:
    for pod in resource.parts(SERVERS):
        yield Labelled(pod, None)
        for label in pod.meta.string_map("labels").items():
            yield Labelled(pod, label)


_LABELLED: Final = Subject("pods of scalable workloads by label", SERVERS.selects, _labelled)


def _namespace_of_labelled(labelled: Labelled) -> str:
    return labelled.pod.namespace


def _label(labelled: Labelled) -> tuple[str, str] | None:
    return labelled.label


def _selected_label(budget: Resource) -> tuple[str, str] | None:
    """One of the labels that a budget's selector requires; None if it requires none."""
    return min(budget.props.string_map("spec", "selector", "matchLabels").items(), default=None)


@rule(
    "disruption-budget-lets-go",
    rationale=(
        "Otherwise nodes that run these pods cannot be drained or upgraded, and the cloud eventually terminates"
        " them by force."
    ),
    fix="Set `maxUnavailable: 1`.",
    link=_BUDGET,
    severity=Severity.MEDIUM,
    level=MUST,
    on=BUDGETS,
)
def disruption_budget_lets_go(budget: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    """A PodDisruptionBudget must allow at least one pod to be evicted."""
    if not settings.tenant(namespace_of(budget)):
        return
    spec = budget.props.at("spec")
    if spec.has("maxUnavailable"):
        if not number_or_percentage(spec.at("maxUnavailable"), Decimal(100)):
            yield f"maxUnavailable is {spec.text('maxUnavailable')}, so no pod can be evicted; set it to 1"
        return
    min_available = spec.text("minAvailable")
    if min_available.endswith("%") and number_or_percentage(spec.at("minAvailable"), Decimal(100)) == Decimal(100):
        yield f"minAvailable is {min_available}, so no pod can be evicted; set maxUnavailable: 1 instead"
        return
    selected = stack.matching(
        _LABELLED,
        lambda labelled: _covers(budget, labelled.pod),
        (_namespace_of_labelled, namespace_of(budget)),
        (_label, _selected_label(budget)),
    )
    for pod in (labelled.pod for labelled in selected):
        fewest, _ = pods_of(pod, stack)
        required = number_or_percentage(spec.at("minAvailable"), fewest)
        if fewest and required is not None and required >= fewest:
            yield (
                f"minAvailable is {min_available} and the minimum number of pods of {pod.place} is"
                f" {format_number(fewest)}, so no pod can be evicted; set maxUnavailable: 1 instead"
            )
