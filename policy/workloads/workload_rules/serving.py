"""Rules for autoscalers of serving workloads."""

from collections.abc import Iterator
from typing import Any, Final, cast

from pydantic import Field

from rule_engine import MUST, Resource, Severity, Stack, UnknownValueError, format_number, rule
from workload_rules.objects import always, matches_any, name
from workload_rules.pods import Tenants, namespace_of
from workload_rules.scaling import AUTOSCALERS, REPLICATED, WORKLOADS, Autoscaler, autoscalers_of

_HPA: Final = "https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/"


class ScaleSettings(Tenants):
    """Bounds for the minimum and maximum replicas of autoscalers."""

    maximum: int = Field(100, ge=1, description="Upper bound for the maximum replicas of an autoscaler.")
    minimum: int = Field(0, ge=0, description="Lower bound for the minimum replicas of an autoscaler; 2 in production.")


@rule(
    "autoscaler-bounded",
    rationale="A wrong metric can use every GPU that the quota allows, or leave a single pod without redundancy.",
    fix="Lower maxReplicas (maxReplicaCount), or raise minReplicas (minReplicaCount).",
    link=_HPA,
    severity=Severity.MEDIUM,
    level=MUST,
    on=AUTOSCALERS,
)
def autoscaler_bounded(autoscaler: Autoscaler, settings: ScaleSettings) -> Iterator[str]:
    """An autoscaler's minimum and maximum must be within the organisation's bounds."""
    if not settings.tenant(autoscaler.namespace):
        return
    if autoscaler.maximum > settings.maximum:
        yield (
            f"maximum of {format_number(autoscaler.maximum)} pods exceeds the upper bound ({settings.maximum}); lower"
            " its maximum"
        )
    if autoscaler.minimum < settings.minimum:
        yield (
            f"minimum of {format_number(autoscaler.minimum)} pods is below the lower bound ({settings.minimum}); raise"
            " its minimum"
        )


class TargetSettings(Tenants):
    """Workloads created outside this stack."""

    workloads: list[str] = Field(
        [],
        description=(
            "Workloads created outside this stack that an autoscaler may reference, `namespace/name`, as patterns."
        ),
    )


def _kind(workload: Resource) -> str:
    return workload.kind


@rule(
    "autoscaler-target",
    rationale="The API server accepts an unknown target without an error, and the number of replicas never changes.",
    fix="Correct `scaleTargetRef`, or list the workload under `workloads` if it is created elsewhere.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=AUTOSCALERS,
)
def autoscaler_target(autoscaler: Autoscaler, settings: TargetSettings, stack: Stack) -> Iterator[str]:
    """The target of an autoscaler must exist."""
    namespace = autoscaler.namespace
    if not settings.tenant(namespace):
        return
    _, kind = autoscaler.target
    target_name = autoscaler.target_name
    if matches_any(f"{namespace}/{target_name}", settings.workloads):
        return
    in_namespace = (namespace_of, namespace)
    sibling = stack.first(WORKLOADS, always, in_namespace, (_kind, kind))
    if (
        sibling is not None
        and stack.first(WORKLOADS, autoscaler.scales, in_namespace, (_kind, kind), (name, target_name)) is None
    ):
        yield f"references {kind} {target_name}, which does not exist in namespace {namespace}; correct scaleTargetRef"


@rule(
    "one-autoscaler",
    rationale="Two autoscalers overwrite each other's replica count repeatedly.",
    fix="Keep one; with KEDA, keep the ScaledObject and remove the HorizontalPodAutoscaler.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=WORKLOADS,
)
def one_autoscaler(workload: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    """A workload must have at most one autoscaler."""
    if not settings.tenant(namespace_of(workload)):
        return
    autoscalers = autoscalers_of(workload, stack)
    if len(autoscalers) > 1:
        names = " and ".join(sorted(autoscaler.place for autoscaler in autoscalers))
        yield f"is scaled by {names}; keep one (KEDA creates its own HorizontalPodAutoscaler)"


class ReplicaSettings(Tenants):
    """Workloads with an autoscaler created outside this stack."""

    autoscaled: list[str] = Field(
        [],
        description=(
            "Workloads that an autoscaler scales, `namespace/name`, as patterns. The remedy removes `replicas` from"
            " these workloads only."
        ),
    )


def _by_program(workload: Resource) -> bool:
    """Whether the program wrote `spec.replicas`, not the API server or an autoscaler.

    Rules for a whole stack read the outputs, in which the API server has set the field. Pulumi's provider keeps the
    inputs in `__inputs`, which the engine does not pass to policies, but `managedFields` has the owner of each field.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management

    Raises:
        UnknownValueError: the object was not applied server-side, so the field owner is unknown.
    """
    managers = workload.props.items("metadata", "managedFields")
    owners = [manager for manager in managers if manager.has("fieldsV1", "f:spec", "f:replicas")]
    if not managers:
        return True
    if any(owner.text("operation") == "Apply" for owner in owners):
        return True
    if any(manager.text("operation") == "Apply" for manager in managers) or any(
        manager.has("subresource") for manager in owners
    ):
        return False
    raise UnknownValueError(("spec", "replicas"), "may be set by the program or by the API server")


def _json_map(value: object) -> dict[str, Any]:
    """The value if it is a map, else (missing or unknown) an empty map."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _drop(type_: str, props: dict[str, Any], settings: ReplicaSettings) -> bool:
    parts = type_.split(":")
    group = parts[1].split("/")[0] if len(parts) == len(("kubernetes", "group/version", "kind")) else ""
    meta, spec = _json_map(props.get("metadata")), _json_map(props.get("spec"))
    full_name = f"{meta.get('namespace', 'default')}/{meta.get('name')}"
    if (
        f"{group}:{parts[-1]}" not in REPLICATED
        or not matches_any(full_name, settings.autoscaled)
        or "replicas" not in spec
    ):
        return False
    del spec["replicas"]
    return True


@rule(
    "replicas-left-out",
    rationale="Each deployment resets the number of replicas, regardless of the load.",
    fix="Remove `spec.replicas`; the autoscaler's minimum applies instead.",
    link=f"{_HPA}#migrating-deployments-and-statefulsets-to-horizontal-autoscaling",
    severity=Severity.MEDIUM,
    level=MUST,
    on=WORKLOADS,
    remedy=_drop,
)
def replicas_left_out(workload: Resource, settings: ReplicaSettings, stack: Stack) -> Iterator[str]:
    """A workload with an autoscaler must not set replicas."""
    namespace = namespace_of(workload)
    if not settings.tenant(namespace) or not workload.props.has("spec", "replicas"):
        return
    if any(path in {"spec.replicas", "spec", "*"} for path in workload.ignored):
        return
    autoscalers = autoscalers_of(workload, stack)
    owner = autoscalers[0].place if autoscalers else "an autoscaler outside this stack"
    if (autoscalers or matches_any(f"{namespace}/{name(workload)}", settings.autoscaled)) and _by_program(workload):
        yield f"sets replicas, which {owner} also sets; remove spec.replicas"
