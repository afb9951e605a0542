"""Rules for what a pod asks of GPUs."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from judge import MUST, AnyRule, Rule, Severity, shown
from workload_rules.pods import CONTAINERS, PODS, Container, Gpus, Pod, TenantGpus

_DOCS: Final = "https://kubernetes.io/docs"


def _request_equals_limit(container: Container, settings: Gpus) -> Iterator[str]:
    limits = container.view.entries("resources", "limits")
    requests = container.view.entries("resources", "requests")
    for name in sorted({*limits, *requests}):
        if not settings.is_gpu(name):
            continue
        limit = limits[name].number() if name in limits else None
        request = requests[name].number() if name in requests else limit
        if limit is None:
            if request:
                count = shown(request)
                yield f"requests {count} {name} without a limit; write limits.{name}: {count} too"
        elif request != limit:
            yield f"requests {shown(request or limit)} {name} with a limit of {shown(limit)}; write the same number"
        elif limit != limit.to_integral_value():
            yield f"asks for {shown(limit)} {name}; a GPU is whole: write a whole number, or ask for a partition"


GPU_REQUEST: Final = Rule(
    name="gpu-request-equals-limit",
    says="A container's GPUs are a whole number, the same as request and as limit.",
    why="The API server refuses the pod otherwise, and a Deployment or Job then never has any.",
    mend="Write the number of GPUs under `limits`, and the same under `requests` or nothing there.",
    link=f"{_DOCS}/tasks/manage-gpus/scheduling-gpus/",
    severity=Severity.HIGH,
    level=MUST,
    on=CONTAINERS,
    judge=_request_equals_limit,
    settings=Gpus,
)


class TaintSettings(TenantGpus):
    """The taint of GPU nodes."""

    taints: list[str] = Field(
        [],
        description="Keys of the taints on GPU nodes; left empty, the resource's name is the key.",
    )


def tolerates(tolerations: list[dict[str, str]], key: str, effect: str = "NoSchedule") -> bool:
    """Whether one of these tolerations lets a pod onto a node with a taint of this key, whatever its value.

    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    return any(each.get("key", "") in {key, ""} and each.get("effect", "") in {effect, ""} for each in tolerations)


def _taint_of(name: str, settings: TaintSettings) -> list[str]:
    return settings.taints or [f"{name.split('/', 1)[0]}/gpu" if name.startswith("nvidia.com/") else name]


def _tolerates_taint(pod: Pod, settings: TaintSettings) -> Iterator[str]:
    if not settings.tenant(pod.namespace):
        return
    keys = {key for name in pod.gpus(settings) for key in _taint_of(name, settings)}
    if not keys:
        return
    tolerations = [each.words() for each in pod.spec.items("tolerations")]
    for key in sorted(keys):
        if not tolerates(tolerations, key):
            yield f"asks for GPUs and does not tolerate {key}; add {{key: {key}, operator: Exists, effect: NoSchedule}}"


GPU_TOLERATION: Final = Rule(
    name="gpu-toleration",
    says="A pod that asks for GPUs tolerates the taint of GPU nodes.",
    why="It would wait for ever: every GPU node refuses it.",
    mend="Add a toleration of the taint's key, with operator Exists and effect NoSchedule.",
    link=f"{_DOCS}/concepts/scheduling-eviction/taint-and-toleration/",
    severity=Severity.HIGH,
    level=MUST,
    on=PODS,
    judge=_tolerates_taint,
    settings=TaintSettings,
)

RULES: Final[tuple[AnyRule, ...]] = (GPU_REQUEST, GPU_TOLERATION)
