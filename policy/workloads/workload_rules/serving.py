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
        yield "serves with GPUs and has no readinessProbe; write one that asks whether the model is loaded"


READY: Final = Rule(
    name="serving-readiness",
    says="A server's container with GPUs has a readiness probe.",
    why="Requests reach a pod that is still loading its model, and a rollout goes on as if it served.",
    mend="Write `readinessProbe`, against a path that answers once the model is loaded.",
    link=_PROBES,
    severity=Severity.HIGH,
    level=MUST,
    on=CONTAINERS,
    judge=_ready,
    settings=TenantGpus,
)


def _alive(container: Container, settings: TenantGpus) -> Iterator[str]:
    if _probed(container, settings) and not container.view.has("livenessProbe"):
        yield "serves with GPUs and has no livenessProbe; write one, with a startupProbe for the time of loading"


ALIVE: Final = Rule(
    name="serving-liveness",
    says="A server's container with GPUs has a liveness probe.",
    why="A server that hangs keeps its GPUs and answers nobody.",
    mend="Write `livenessProbe`, and a `startupProbe` that covers the time of loading.",
    link=_PROBES,
    severity=Severity.LOW,
    level=ADVICE,
    on=CONTAINERS,
    judge=_alive,
    settings=TenantGpus,
)


class ScaleSettings(Tenants):
    """Bounds for autoscalers."""

    most: int = Field(100, ge=1, description="The highest maximum of pods.")
    least: int = Field(0, ge=0, description="The lowest minimum of pods; 2 in production.")


def _bounded(autoscaler: Autoscaler, settings: ScaleSettings) -> Iterator[str]:
    if not settings.tenant(autoscaler.namespace):
        return
    if autoscaler.maximum > settings.most:
        yield f"may make {shown(autoscaler.maximum)} pods, and {settings.most} is the most; lower its maximum"
    if autoscaler.minimum < settings.least:
        yield f"may leave {shown(autoscaler.minimum)} pods, and {settings.least} is the least; raise its minimum"


SCALE: Final = Rule(
    name="autoscaler-bounded",
    says="An autoscaler's minimum and maximum are within the organisation's bounds.",
    why="A wrong metric can take every GPU that the quota allows, or leave one pod whose end is the service's.",
    mend="Lower maxReplicas (maxReplicaCount), raise minReplicas (minReplicaCount).",
    link=_HPA,
    severity=Severity.MEDIUM,
    level=MUST,
    on=AUTOSCALERS,
    judge=_bounded,
    settings=ScaleSettings,
)


class TargetSettings(Tenants):
    """Workloads beside those of the stack."""

    workloads: list[str] = Field(
        [], description="Workloads made elsewhere, `namespace/name`, as patterns, that an autoscaler may name."
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
        yield f"scales {kind} {wanted}, which nothing in namespace {where} makes; mend scaleTargetRef"


TARGET: Final = Rule(
    name="autoscaler-target",
    says="What an autoscaler scales exists.",
    why="The API server takes it in silence, and the servers stay at the number that they began with.",
    mend="Mend `scaleTargetRef`, or list the workload under `workloads` if it is made elsewhere.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=AUTOSCALERS,
    judge=_target,
    settings=TargetSettings,
    whole=True,
)


def _one(workload: Resource, settings: Tenants, stack: Stack) -> Iterator[str]:
    if not settings.tenant(namespace(workload)):
        return
    found = autoscalers_of(workload, stack)
    if len(found) > 1:
        names = " and ".join(sorted(each.place for each in found))
        yield f"is scaled by {names}; keep one (KEDA makes its own HorizontalPodAutoscaler)"


ONE: Final = Rule(
    name="one-autoscaler",
    says="A workload has one autoscaler.",
    why="Two set the number of its pods against each other, up and down without end.",
    mend="Keep one; with KEDA, the ScaledObject and no HorizontalPodAutoscaler.",
    link=_HPA,
    severity=Severity.HIGH,
    level=MUST,
    on=WORKLOADS,
    judge=_one,
    settings=Tenants,
    whole=True,
)


class ReplicaSettings(Tenants):
    """What is scaled beside what the stack's autoscalers name."""

    autoscaled: list[str] = Field(
        [],
        description="Workloads, `namespace/name`, as patterns, that an autoscaler scales: the remedy takes `replicas`"
        " out of these, and of these alone.",
    )


def _by_program(workload: Resource) -> bool:
    """Whether the program wrote `spec.replicas`, not the API server or an autoscaler.

    Rules about a whole stack see what the API server answered: it fills in the field. Pulumi's provider keeps the
    inputs beside (`__inputs`), which the engine does not hand to policies; it does hand on who owns each field.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management

    Raises:
        CannotTellError: the object was not applied by the server's side, so nobody kept who wrote it.
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
    raise CannotTellError(("spec", "replicas"), "may be the program's or the API server's own")


def _left_out(workload: Resource, settings: ReplicaSettings, stack: Stack) -> Iterator[str]:
    where = namespace(workload)
    if not settings.tenant(where) or not workload.props.has("spec", "replicas"):
        return
    if any(each in {"spec.replicas", "spec", "*"} for each in workload.ignored):
        return
    found = autoscalers_of(workload, stack)
    by = found[0].place if found else "an autoscaler made elsewhere"
    if (found or like(f"{where}/{name(workload)}", settings.autoscaled)) and _by_program(workload):
        yield f"has replicas, which {by} sets too; take spec.replicas out"


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
    says="A workload with an autoscaler says no number of replicas.",
    why="Each deployment sets the number back, in the middle of whatever load there is.",
    mend="Take `spec.replicas` out; the autoscaler's minimum holds instead.",
    link=f"{_HPA}#migrating-deployments-and-statefulsets-to-horizontal-autoscaling",
    severity=Severity.MEDIUM,
    level=MUST,
    on=WORKLOADS,
    judge=_left_out,
    settings=ReplicaSettings,
    whole=True,
    remedy=_drop,
)

RULES: Final[tuple[AnyRule, ...]] = (READY, ALIVE, SCALE, TARGET, ONE, LEFT_OUT)
