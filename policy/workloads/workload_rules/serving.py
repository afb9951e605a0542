"""Rules for servers: probes, autoscalers, disruption budgets."""

from collections.abc import Iterator
from typing import Any, Final, cast

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, CannotTellError, Resource, Rule, Severity, Stack, shown
from workload_rules.objects import like, name
from workload_rules.pods import CONTAINERS, Container, TenantGpus, Tenants, namespace
from workload_rules.scaling import AUTOSCALERS, SCALED, WORKLOADS, Autoscaler, autoscalers_of

_PROBES: Final = "https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/"
_HPA: Final = "https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/"


def _probed(container: Container, settings: TenantGpus) -> bool:
    """Whether a container is a server's that asks for GPUs, and stays."""
    pod = container.pod
    return pod.kind in SCALED and settings.tenant(pod.namespace) and container.stays and _asks(container, settings)


def _asks(container: Container, settings: TenantGpus) -> bool:
    return any(container.gpus(settings).values())


def _ready(container: Container, settings: TenantGpus) -> Iterator[str]:
    if _probed(container, settings) and not container.view.has("readinessProbe"):
        yield "serves with GPUs and has no readinessProbe; add one that checks whether the model is loaded"


READY: Final = Rule(
    name="serving-readiness",
    title="A serving container with GPUs must have a readiness probe.",
    rationale="Otherwise requests reach pods that are still loading the model, and a rollout continues too early.",
    fix="Add `readinessProbe` on a path that responds once the model is loaded.",
    link=_PROBES,
    severity=Severity.HIGH,
    level=MUST,
    on=CONTAINERS,
    check=_ready,
    settings=TenantGpus,
)


def _alive(container: Container, settings: TenantGpus) -> Iterator[str]:
    if _probed(container, settings) and not container.view.has("livenessProbe"):
        yield "serves with GPUs and has no livenessProbe; add one, with a startupProbe for the model loading time"


ALIVE: Final = Rule(
    name="serving-liveness",
    title="A serving container with GPUs must have a liveness probe.",
    rationale="A server that hangs keeps its GPUs and does not respond.",
    fix="Add `livenessProbe`, and a `startupProbe` that covers the model loading time.",
    link=_PROBES,
    severity=Severity.LOW,
    level=ADVICE,
    on=CONTAINERS,
    check=_alive,
    settings=TenantGpus,
)


class ScaleSettings(Tenants):
    """Bounds for autoscalers."""

    most: int = Field(100, ge=1, description="Upper bound for the maximum replicas of an autoscaler.")
    least: int = Field(0, ge=0, description="Lower bound for the minimum replicas of an autoscaler; 2 in production.")


def _bounded(autoscaler: Autoscaler, settings: ScaleSettings) -> Iterator[str]:
    if not settings.tenant(autoscaler.namespace):
        return
    if autoscaler.maximum > settings.most:
        yield (
            f"maximum of {shown(autoscaler.maximum)} pods exceeds the upper bound ({settings.most}); lower its maximum"
        )
    if autoscaler.minimum < settings.least:
        yield (
            f"minimum of {shown(autoscaler.minimum)} pods is below the lower bound ({settings.least}); raise its"
            " minimum"
        )


SCALE: Final = Rule(
    name="autoscaler-bounded",
    title="An autoscaler's minimum and maximum must be within the organisation's bounds.",
    rationale="A wrong metric can use every GPU that the quota allows, or leave a single pod without redundancy.",
    fix="Lower maxReplicas (maxReplicaCount), or raise minReplicas (minReplicaCount).",
    link=_HPA,
    severity=Severity.MEDIUM,
    level=MUST,
    on=AUTOSCALERS,
    check=_bounded,
    settings=ScaleSettings,
)


class TargetSettings(Tenants):
    """Workloads beside those of the stack."""

    workloads: list[str] = Field(
        [],
        description=(
            "Workloads created outside this stack that an autoscaler may reference, `namespace/name`, as patterns."
        ),
    )


def _target(autoscaler: Autoscaler, settings: TargetSettings, stack: Stack) -> Iterator[str]:
    where = autoscaler.namespace
    if not settings.tenant(where):
        return
    _, kind = autoscaler.target
    wanted = autoscaler.target_name
    if like(f"{where}/{wanted}", settings.workloads):
        return
    here = (namespace, where)
    beside = stack.first(WORKLOADS, lambda each: each.kind == kind, here)
    if beside is not None and stack.first(WORKLOADS, autoscaler.scales, here) is None:
        yield f"references {kind} {wanted}, which does not exist in namespace {where}; correct scaleTargetRef"


TARGET: Final = Rule(
    name="autoscaler-target",
    title="The target of an autoscaler must exist.",
    rationale="The API server accepts an unknown target without an error, and the number of replicas never changes.",
    fix="Correct `scaleTargetRef`, or list the workload under `workloads` if it is created elsewhere.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=AUTOSCALERS,
    check=_target,
    settings=TargetSettings,
    whole=True,
)


def _one(workload: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    if not settings.tenant(namespace(workload)):
        return
    found = autoscalers_of(workload, stack)
    if len(found) > 1:
        names = " and ".join(sorted(each.place for each in found))
        yield f"is scaled by {names}; keep one (KEDA creates its own HorizontalPodAutoscaler)"


ONE: Final = Rule(
    name="one-autoscaler",
    title="A workload must have at most one autoscaler.",
    rationale="Two autoscalers overwrite each other's replica count repeatedly.",
    fix="Keep one; with KEDA, keep the ScaledObject and remove the HorizontalPodAutoscaler.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=WORKLOADS,
    check=_one,
    settings=Tenants,
    whole=True,
)


class ReplicaSettings(Tenants):
    """What is scaled beside what the stack's autoscalers name."""

    autoscaled: list[str] = Field(
        [],
        description=(
            "Workloads that an autoscaler scales, `namespace/name`, as patterns. The remedy removes `replicas` from"
            " these workloads only."
        ),
    )


def _by_program(workload: Resource) -> bool:
    """Whether the program wrote `spec.replicas`, not the API server or an autoscaler.

    Rules about a whole stack see what the API server answered: it fills in the field. Pulumi's provider keeps the
    inputs beside (`__inputs`), which the engine does not hand to policies; it does hand on who owns each field.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management

    Raises:
        CannotTellError: the object was not applied server-side, so the field owner is unknown.
    """
    if not workload.props.has("spec", "replicas"):
        return False
    managers = workload.props.items("metadata", "managedFields")
    owners = [each for each in managers if each.has("fieldsV1", "f:spec", "f:replicas")]
    if not managers:
        return True
    if any(each.text("operation") == "Apply" for each in owners):
        return True
    if any(each.text("operation") == "Apply" for each in managers) or any(each.has("subresource") for each in owners):
        return False
    raise CannotTellError(("spec", "replicas"), "may be set by the program or by the API server")


def _left_out(workload: Resource, settings: ReplicaSettings, stack: Stack) -> Iterator[str]:
    where = namespace(workload)
    if not settings.tenant(where) or not workload.props.has("spec", "replicas"):
        return
    if any(each in {"spec.replicas", "spec", "*"} for each in workload.ignored):
        return
    found = autoscalers_of(workload, stack)
    by = found[0].place if found else "an autoscaler outside this stack"
    if (found or like(f"{where}/{name(workload)}", settings.autoscaled)) and _by_program(workload):
        yield f"sets replicas, which {by} also sets; remove spec.replicas"


def _json_map(value: object) -> dict[str, Any]:
    """A map as it is, anything else (nothing, an unknown value) as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _drop(type_: str, props: dict[str, Any], settings: ReplicaSettings) -> bool:
    parts = type_.split(":")
    group = parts[1].split("/")[0] if len(parts) == len(("kubernetes", "group/version", "kind")) else ""
    meta, spec = _json_map(props.get("metadata")), _json_map(props.get("spec"))
    called = f"{meta.get('namespace', 'default')}/{meta.get('name')}"
    if f"{group}:{parts[-1]}" not in SCALED or not like(called, settings.autoscaled) or "replicas" not in spec:
        return False
    del spec["replicas"]
    return True


LEFT_OUT: Final = Rule(
    name="replicas-left-out",
    title="A workload with an autoscaler must not set replicas.",
    rationale="Each deployment resets the number of replicas, regardless of the load.",
    fix="Remove `spec.replicas`; the autoscaler's minimum applies instead.",
    link=f"{_HPA}#migrating-deployments-and-statefulsets-to-horizontal-autoscaling",
    severity=Severity.MEDIUM,
    level=MUST,
    on=WORKLOADS,
    check=_left_out,
    settings=ReplicaSettings,
    whole=True,
    remedy=_drop,
)

RULES: Final[tuple[AnyRule, ...]] = (READY, ALIVE, SCALE, TARGET, ONE, LEFT_OUT)
