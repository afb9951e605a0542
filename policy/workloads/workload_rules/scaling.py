"""What scales workloads, and how many pods they may have."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from judge import Resource, Stack, Subject, elsewhere, kubernetes
from workload_rules.objects import name
from workload_rules.pods import PODS, namespace

SCALED: Final = frozenset({"apps:Deployment", "apps:StatefulSet", "apps:ReplicaSet", "argoproj.io:Rollout"})
"""Kinds with `spec.replicas` and one pod template, whose pods run as long as they do."""
WORKLOADS: Final = Subject("workloads", kubernetes(*SCALED), lambda resource: (resource,))
SERVERS: Final = Subject("pods of scalable workloads", kubernetes(*SCALED), lambda resource: resource.parts(PODS))


@dataclass(frozen=True, slots=True, eq=False)
class Autoscaler:
    """A HorizontalPodAutoscaler, or KEDA's ScaledObject, which makes one.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/,
    https://keda.sh/docs/latest/reference/scaledobject-spec/
    """

    resource: Resource

    @property
    def place(self) -> str:
        """Its kind, namespace and name."""
        return self.resource.place

    @property
    def _keda(self) -> bool:
        return self.resource.group == "keda.sh"

    @property
    def namespace(self) -> str:
        """Its namespace, which is its target's too."""
        return namespace(self.resource)

    @property
    def target(self) -> tuple[str, str]:
        """API group (empty if it is not set) and kind of what it scales."""
        target = self.resource.props.at("spec", "scaleTargetRef")
        version = target.text("apiVersion", default="apps/v1" if self._keda else "")
        group = version.split("/", 1)[0] if "/" in version else ""
        return group, target.text("kind", default="Deployment" if self._keda else "")

    @property
    def target_name(self) -> str:
        """The name of what it scales."""
        return self.resource.props.text("spec", "scaleTargetRef", "name")

    @property
    def minimum(self) -> Decimal:
        """The fewest pods; if it is not set, 1, and 0 with KEDA."""
        found = self.resource.props.number("spec", "minReplicaCount" if self._keda else "minReplicas")
        return Decimal(0 if self._keda else 1) if found is None else found

    @property
    def maximum(self) -> Decimal:
        """The most pods; where KEDA is told none, 100."""
        found = self.resource.props.number("spec", "maxReplicaCount" if self._keda else "maxReplicas")
        return Decimal(100) if found is None else found

    def scales(self, workload: Resource) -> bool:
        """Whether this is what it scales."""
        group, kind = self.target
        return (
            kind == workload.kind
            and group in {workload.group, ""}
            and self.namespace == namespace(workload)
            and self.target_name == name(workload)
        )


AUTOSCALERS: Final = Subject(
    "autoscalers",
    kubernetes("autoscaling:HorizontalPodAutoscaler", "keda.sh:ScaledObject"),
    lambda resource: (Autoscaler(resource),),
)


def autoscalers_of(workload: Resource, stack: Stack) -> list[Autoscaler]:
    """What scales a workload.

    Raises:
        CannotTellError: of one it cannot be known.
    """
    return stack.matching(AUTOSCALERS, lambda each: each.scales(workload), (_space, namespace(workload)))


def _space(autoscaler: Autoscaler) -> str:
    return autoscaler.namespace


def pods_of(workload: Resource, stack: Stack) -> tuple[Decimal, Decimal]:
    """The fewest and the most pods of a workload: its autoscaler's bounds, else its replicas.

    Raises:
        CannotTellError: they cannot be known.
    """
    where = namespace(workload)
    autoscaler = stack.first(AUTOSCALERS, lambda each: each.scales(workload), (_space, where))
    if autoscaler is not None:
        with elsewhere(autoscaler):
            return autoscaler.minimum, autoscaler.maximum
    with elsewhere(workload):
        replicas = workload.props.number("spec", "replicas")
    found = Decimal(1) if replicas is None else replicas
    return found, found
