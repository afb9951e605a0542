"""Autoscalers, and the minimum and maximum number of pods of a workload."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from rule_engine import Among, Part, Resource, Stack, Subject, kubernetes, located_at
from workload_rules.objects import name, objects
from workload_rules.pods import PODS, Pod, kind_of, namespace_of

SCALED: Final = frozenset({"apps:Deployment", "apps:StatefulSet", "apps:ReplicaSet", "argoproj.io:Rollout"})
"""Kinds with `spec.replicas` and one pod template, whose pods run as long as they do."""
GROUPED: Final = "leaderworkerset.x-k8s.io:LeaderWorkerSet"
"""Kind whose replicas are groups of pods: a leader, and workers with a template of their own or the leader's.
https://github.com/kubernetes-sigs/lws/blob/v0.9.0/api/leaderworkerset/v1/leaderworkerset_types.go"""
REPLICATED: Final = SCALED | {GROUPED}
"""Kinds with `spec.replicas`, which an autoscaler can set."""
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
    def namespace(self) -> str:
        """Its namespace, which is also that of its target."""
        return namespace_of(self.resource)

    @property
    def target(self) -> tuple[str, str]:
        """API group (empty if it is not set) and kind of the target."""
        target = self.resource.props.at("spec", "scaleTargetRef")
        version = target.text("apiVersion", default="apps/v1" if self._keda else "")
        group = version.split("/", 1)[0] if "/" in version else ""
        return group, target.text("kind", default="Deployment" if self._keda else "")

    @property
    def target_name(self) -> str:
        """Name of the target."""
        return self.resource.props.text("spec", "scaleTargetRef", "name")

    @property
    def minimum(self) -> Decimal:
        """Minimum number of pods; the default is 1, and 0 with KEDA."""
        minimum = self.resource.props.number("spec", "minReplicaCount" if self._keda else "minReplicas")
        return Decimal(0 if self._keda else 1) if minimum is None else minimum

    @property
    def maximum(self) -> Decimal:
        """Maximum number of pods; KEDA's default is 100."""
        maximum = self.resource.props.number("spec", "maxReplicaCount" if self._keda else "maxReplicas")
        return Decimal(100) if maximum is None else maximum

    def scales(self, workload: Resource) -> bool:
        """Whether a workload is the target."""
        group, kind = self.target
        return (
            kind == workload.kind
            and group in {workload.group, ""}
            and self.namespace == namespace_of(workload)
            and self.target_name == name(workload)
        )


AUTOSCALERS: Final = Subject(
    "autoscalers",
    kubernetes("autoscaling:HorizontalPodAutoscaler", "keda.sh:ScaledObject"),
    lambda resource: (Autoscaler(resource),),
)


def autoscalers_of(workload: Resource, stack: Stack) -> list[Autoscaler]:
    """The autoscalers of a workload.

    Raises:
        UnknownValueError: the target of one is unknown.
    """
    return stack.matching(AUTOSCALERS, lambda autoscaler: autoscaler.scales(workload), *_target_keys(workload))


def _target_keys(workload: Resource) -> tuple[Among[Autoscaler], ...]:
    return (_namespace, namespace_of(workload)), (_kind, workload.kind), (_target_name, name(workload))


def _namespace(autoscaler: Autoscaler) -> str:
    return autoscaler.namespace


def _kind(autoscaler: Autoscaler) -> str:
    return autoscaler.target[1]


def _target_name(autoscaler: Autoscaler) -> str:
    return autoscaler.target_name


def pods_of(pod: Pod, stack: Stack) -> tuple[Decimal, Decimal]:
    """Minimum and maximum number of pods of a template: its workload's replicas, of which a group has several.

    Raises:
        UnknownValueError: they are unknown.
    """
    (fewest, most), each = _replicas(pod.resource, stack), pods_per_replica(pod)
    return fewest * each, most * each


def pods_per_replica(pod: Pod) -> Decimal:
    """Number of pods of a template in each replica of its workload.

    Raises:
        UnknownValueError: the size of the groups is unknown.
    """
    if kind_of(pod.resource) != GROUPED or "leaderTemplate" in pod.spec.path:
        return Decimal(1)
    with located_at(pod.resource):
        group = pod.resource.props.at("spec", "leaderWorkerTemplate")
        size = group.number("size")
        return (Decimal(1) if size is None else size) - group.has("leaderTemplate")


def _replicas(workload: Resource, stack: Stack) -> tuple[Decimal, Decimal]:
    """Minimum and maximum number of replicas of a workload: those of its autoscaler, else `spec.replicas`."""
    autoscaler = stack.first(AUTOSCALERS, lambda candidate: candidate.scales(workload), *_target_keys(workload))
    if autoscaler is not None:
        with located_at(autoscaler):
            return autoscaler.minimum, autoscaler.maximum
    with located_at(workload):
        replicas = workload.props.number("spec", "replicas")
    fixed = Decimal(1) if replicas is None else replicas
    return fixed, fixed
