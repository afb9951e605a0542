"""Autoscalers of workloads, and rules for replicas and quotas of serving workloads at their maximum replicas."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

from pydantic import Field

from rule_engine import (
    Among,
    Part,
    Resource,
    Stack,
    Subject,
    UnknownValueError,
    format_number,
    kubernetes,
    located_at,
    rule,
)
from workload_rules.objects import QUOTAS, matches_any, meets, name, number_or_percentage, objects, scopes
from workload_rules.pods import PODS, Pod, TenantGpus, Tenants, namespace_of
from workload_rules.priorities import class_of
from workload_rules.quotas import gpu_lines

SCALED: Final = frozenset({"apps:Deployment", "apps:StatefulSet", "apps:ReplicaSet", "argoproj.io:Rollout"})
"""Kinds with `spec.replicas` and one pod template, whose pods run as long as they do."""
GROUPED: Final = "leaderworkerset.x-k8s.io:LeaderWorkerSet"
"""Kind whose replicas are groups of pods: a leader, and workers with a template of their own or the leader's.
https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go"""
REPLICATED: Final = SCALED | {GROUPED}  # kinds with `spec.replicas`, which an autoscaler can set
WORKLOADS: Final = objects("workloads", *REPLICATED)
SERVERS: Final = Subject("pods of scalable workloads", kubernetes(*REPLICATED), lambda resource: resource.parts(PODS))


@dataclass(frozen=True, slots=True, eq=False)
class Autoscaler(Part):
    """A HorizontalPodAutoscaler, or a ScaledObject, from which KEDA creates one.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/,
    https://keda.sh/docs/latest/reference/scaledobject-spec/
    """

    @property
    def _keda(self) -> bool:
        return self.resource.group == "keda.sh"

    @property
    def target(self) -> tuple[str, str]:
        """API group (empty if it is not set) and kind of the target."""
        target = self.resource.props.at("spec", "scaleTargetRef")
        version = target.text("apiVersion", default="apps/v1" if self._keda else "")
        group = version.split("/", 1)[0] if "/" in version else ""
        return group, target.text("kind", default="Deployment" if self._keda else "")

    @property
    def maximum(self) -> Decimal:
        """Maximum number of pods; KEDA's default is 100."""
        maximum = self.resource.props.number("spec", "maxReplicaCount" if self._keda else "maxReplicas")
        return Decimal(100) if maximum is None else maximum

    def can_scale(self, workload: Resource) -> bool:
        """Whether a workload with its target's namespace, kind and name is the target."""
        return self.target[0] in {workload.group, ""}


AUTOSCALERS: Final = Subject(
    "autoscalers",
    kubernetes("autoscaling:HorizontalPodAutoscaler", "keda.sh:ScaledObject"),
    lambda resource: (Autoscaler(resource, resource.props),),
)


def _target_keys(workload: Resource) -> tuple[Among[Autoscaler], ...]:
    return (namespace_of, namespace_of(workload)), (_kind, workload.kind), (_target_name, name(workload))


def _kind(autoscaler: Autoscaler) -> str:
    return autoscaler.target[1]


def _target_name(autoscaler: Autoscaler) -> str:
    return autoscaler.resource.props.text("spec", "scaleTargetRef", "name")


def _pods_per_replica(pod: Pod) -> Decimal:
    """Number of pods of a template in each replica of its workload."""
    if pod.kind != GROUPED or "leaderTemplate" in pod.spec.path:
        return Decimal(1)
    with located_at(pod.resource):
        group = pod.resource.props.at("spec", "leaderWorkerTemplate")
        size = group.number("size")
        return (Decimal(1) if size is None else size) - group.has("leaderTemplate")


def _most_replicas(workload: Resource, stack: Stack) -> Decimal:
    """Maximum number of replicas of a workload: its autoscaler's maximum, else `spec.replicas`."""
    autoscaler = stack.first(AUTOSCALERS, lambda candidate: candidate.can_scale(workload), *_target_keys(workload))
    if autoscaler is not None:
        with located_at(autoscaler):
            return autoscaler.maximum
    with located_at(workload):
        replicas = workload.props.number("spec", "replicas")
    return Decimal(1) if replicas is None else replicas


class _ReplicaSettings(Tenants):
    autoscaled: list[str] = Field([])
    """Workloads that an autoscaler scales, `namespace/name`, as patterns. The remedy removes `replicas` from these
    workloads only."""


def _by_program(workload: Resource) -> bool:
    """Whether the program wrote `spec.replicas`, not the API server or an autoscaler."""
    # Rules for a whole stack read the outputs, in which the API server has set the field. Pulumi's provider keeps the
    # inputs in `__inputs`, which the engine does not pass to policies, but `managedFields` has the owner of each field.
    # https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    # It is unknown for an object that was not applied server-side.
    managers = workload.props.items("metadata", "managedFields")
    owners = [manager for manager in managers if manager.has("fieldsV1", "f:spec", "f:replicas")]
    if not managers or any(owner.text("operation") == "Apply" for owner in owners):
        return True
    applied = any(manager.text("operation") == "Apply" for manager in managers)
    if applied or any(manager.has("subresource") for manager in owners):
        return False
    raise UnknownValueError(("spec", "replicas"), "may be set by the program or by the API server")


def _drop(type_: str, props: dict[str, Any], settings: _ReplicaSettings) -> bool:
    group, kind = type_.split(":")[1].split("/", maxsplit=1)[0], type_.rpartition(":")[2]
    known = all(isinstance(props.get(field), dict) for field in ("metadata", "spec"))
    if f"{group}:{kind}" not in REPLICATED or not known:
        return False
    meta: dict[str, Any] = props["metadata"]
    spec: dict[str, Any] = props["spec"]
    full_name = f"{meta.get('namespace', 'default')}/{meta.get('name')}"
    return matches_any(full_name, settings.autoscaled) and spec.pop("replicas", None) is not None


@rule("replicas-left-out", WORKLOADS, remedy=_drop)
def replicas_left_out(workload: Resource, settings: _ReplicaSettings, stack: Stack) -> Iterator[str]:
    """A workload with an autoscaler must not set replicas."""
    namespace = namespace_of(workload)
    if not settings.tenant(namespace) or not workload.props.has("spec", "replicas"):
        return
    if any(path in {"spec.replicas", "spec", "*"} for path in workload.ignored):
        return
    autoscalers = stack.matching(AUTOSCALERS, lambda candidate: candidate.can_scale(workload), *_target_keys(workload))
    owner = autoscalers[0].place if autoscalers else "an autoscaler outside this stack"
    if (autoscalers or matches_any(f"{namespace}/{name(workload)}", settings.autoscaled)) and _by_program(workload):
        yield f"sets replicas, which {owner} also sets; remove spec.replicas"


_QUARTER: Final = 4  # pods of which 25 %, rounded down, is one


def _counts(quota: Resource, pod: Pod) -> bool:
    """Whether a quota counts a serving pod with GPUs: all of its scopes match."""
    for scope, operator, view in scopes(quota):
        if scope == "PriorityClass":
            values = view.texts("values") if isinstance(view.value, dict) else []
            matches = meets(class_of(pod) or None, operator, values)
        else:
            # The API server accepts no deadline in the pods of a server.
            matches = scope in {"NotTerminating", "NotBestEffort"}
        if not matches:
            return False
    return True


def _servers(quota: Resource, resource: str, settings: TenantGpus, stack: Stack) -> list[Pod]:
    """Pods of scalable workloads that request a GPU resource and count in a quota of their namespace."""
    in_namespace = (namespace_of, namespace_of(quota))
    return stack.matching(SERVERS, lambda pod: resource in pod.gpus(settings) and _counts(quota, pod), in_namespace)


def _most_pods(pod: Pod, stack: Stack) -> Decimal:
    """The maximum number of pods of a template; a group, as one replica, has several."""
    return _most_replicas(pod.resource, stack) * _pods_per_replica(pod)


@rule("autoscaler-maximum-fits", QUOTAS)
def autoscaler_maximum_fits(quota: Resource, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    """A namespace's quota must cover its serving workloads at their maximum replicas."""
    if not settings.tenant(namespace_of(quota)):
        return
    for resource, hard in gpu_lines(quota, settings).items():
        parts: list[str] = []
        total = Decimal(0)
        for pod in _servers(quota, resource, settings, stack):
            gpus_per_pod, count = pod.gpus(settings)[resource], _most_pods(pod, stack)
            total += count * gpus_per_pod
            parts.append(f"{name(pod.resource)} {format_number(count)} pods of {format_number(gpus_per_pod)}")
        if total > hard:
            yield (
                f"quota is {format_number(hard)} {resource}, but serving workloads need up to {format_number(total)}"
                f" ({', '.join(parts)}); raise requests.{resource}, or lower the autoscaler maximums"
            )


def _added(pod: Pod, resource: str, settings: TenantGpus, stack: Stack) -> tuple[Decimal, str, Decimal]:
    """Pods that a rollout adds to a template: their number, their kind, and the GPUs of each."""
    # A LeaderWorkerSet adds whole groups, which count for the first of its templates with GPUs.
    gpus_per_pod, count = pod.gpus(settings)[resource], _most_pods(pod, stack)
    if pod.kind != GROUPED:
        return _surge(pod.resource, count), "pods", gpus_per_pod
    templates = [one for one in pod.resource.parts(PODS) if resource in one.gpus(settings)]
    each = _pods_per_replica(pod)
    if templates[0].spec.path != pod.spec.path or not each:
        return Decimal(0), "groups", Decimal(0)
    surge = pod.resource.props.at("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
    of_group = sum((_pods_per_replica(one) * one.gpus(settings)[resource] for one in templates), Decimal(0))
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


def _replaces(pod: Pod, stack: Stack) -> bool:
    """Whether a rollout at maximum replicas also removes old pods first, and so completes without the added ones."""
    # Defaults of `maxUnavailable` are 1 for LeaderWorkerSets and 25 % for Deployments.
    grouped = pod.kind == GROUPED
    strategy = ("rolloutStrategy", "rollingUpdateConfiguration") if grouped else ("strategy", "rollingUpdate")
    unavailable = pod.resource.props.at("spec", *strategy, "maxUnavailable")
    each = _pods_per_replica(pod) if grouped else 1
    if not each:
        return False
    total = _most_pods(pod, stack) / each
    if unavailable.has():
        return bool(number_or_percentage(unavailable, total, down=True))
    return grouped or (pod.resource.kind == "Deployment" and total >= _QUARTER)


def _in_use(quota: Resource, resource: str, settings: TenantGpus, stack: Stack) -> Decimal:
    """GPUs of all serving workloads that a quota counts, at their maximum replicas."""
    servers = _servers(quota, resource, settings, stack)
    return sum((_most_pods(server, stack) * server.gpus(settings)[resource] for server in servers), Decimal(0))


@rule("surge-fits", SERVERS)
def surge_fits(pod: Pod, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    """A namespace's quota must cover the pods that a rollout adds."""
    namespace = namespace_of(pod)
    if not settings.tenant(namespace):
        return
    for resource in pod.gpus(settings):
        surge, noun, gpus_of_each = _added(pod, resource, settings, stack)
        if not surge or _replaces(pod, stack):
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
