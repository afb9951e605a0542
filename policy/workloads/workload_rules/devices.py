"""Rules for devices that a container runtime adds to containers, beside those that Kubernetes allocates."""

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import Field

from rule_engine import MUST, Part, Resource, Severity, Subject, View, rule
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Container, Pod, Tenants, for_tenants, holds_pods, kind_of


class VisibleDevices(Tenants):
    """Environment variables that bypass GPU allocation by Kubernetes."""

    variables: list[str] = Field(
        [
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_MIG_CONFIG_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES",
            "NVIDIA_IMEX_CHANNELS",
            "AMD_VISIBLE_DEVICES",
            "HABANA_VISIBLE_DEVICES",
            "HABANA_VISIBLE_MODULES",
        ],
        description="Environment variables that the container runtime treats as GPU requests.",
    )
    annotations: list[str] = Field(
        ["cdi.k8s.io", "*.cdi.k8s.io"],
        description="Domains of annotations by which the container runtime adds devices to a pod, as patterns.",
    )


_NONE: Final = frozenset({"", "none", "void"})
"""Values that select no GPU."""
_SOURCES: Final = frozenset({"core:ConfigMap", "core:Secret"})
_MOUNTED: Final = "nvidia-container-devices"
"""Folder under /var/run whose mounts stand for GPUs, however the path is written:
https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details."""


def _of_pod(pod: Pod, settings: VisibleDevices) -> Iterator[str]:
    for key in sorted(pod.meta.entries("annotations")):
        if matches_any(key.partition("/")[0], settings.annotations):
            yield f"has annotation {key}, which bypasses GPU allocation; remove it, and request GPUs under limits"


def _of_container(container: Container, settings: VisibleDevices) -> Iterator[str]:
    for mount in container.view.items("volumeMounts"):
        if _MOUNTED in mount.text("mountPath"):
            yield f"mounts {mount.text('mountPath')}, which bypasses GPU allocation; remove the mount"
    for source in container.view.items("envFrom"):
        prefix = source.text("prefix")
        for name in settings.variables:
            if prefix and name.startswith(prefix):
                yield f"envFrom with prefix {prefix} can set {name}; use another prefix"
    for variable in container.view.items("env"):
        name = variable.text("name")
        if name not in settings.variables:
            continue
        if variable.has("valueFrom"):
            yield f"sets {name} from a reference; remove it (the device plugin sets it)"
        elif variable.text("value") not in _NONE:
            yield f"sets {name} itself, which bypasses GPU allocation; remove it, or set it to none"


def _of_source(source: Part, settings: VisibleDevices) -> Iterator[str]:
    """A ConfigMap or a Secret, of which `envFrom` makes variables."""
    for field in ("data", "stringData"):
        entries = source.resource.props.entries(field)
        for name in settings.variables:
            if name in entries and _value(source.resource, field, entries[name]) not in _NONE:
                yield f"has the key {name}, which bypasses GPU allocation in containers with envFrom; remove it"


def _value(source: Resource, field: str, entry: View) -> str:
    if kind_of(source) != "core:Secret" or field == "stringData":
        return entry.text()
    try:
        return b64decode(entry.text()).decode(errors="replace")
    except ValueError:
        return entry.text()


def _find_variables(resource: Resource) -> Iterable[Pod | Container | Part]:
    if kind_of(resource) in _SOURCES:
        return (Part(resource),)
    return (*resource.parts(POD_PARTS), *resource.parts(CONTAINERS))


_VARIABLES: Final = Subject(
    "pods, containers, ConfigMaps and Secrets",
    lambda resource: kind_of(resource) in _SOURCES or holds_pods(resource),
    _find_variables,
)


@rule(
    "gpu-visible-devices",
    rationale=(
        "If the container runtime honors them, the container uses GPUs that are allocated to another team,"
        " or all GPUs of the node."
    ),
    fix=(
        "Request GPUs under `limits` and remove the variable, the mount or the annotation; the values `none` and `void`"
        " are allowed."
    ),
    link="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    severity=Severity.CRITICAL,
    level=MUST,
    on=_VARIABLES,
)
@for_tenants
def gpu_visible_devices(part: Pod | Container | Part, settings: VisibleDevices) -> Iterator[str]:
    """A pod must not select GPUs by an environment variable, a ConfigMap or Secret with one, a mount or annotation."""
    if isinstance(part, Pod):
        yield from _of_pod(part, settings)
    else:
        yield from _of_container(part, settings) if isinstance(part, Container) else _of_source(part, settings)
