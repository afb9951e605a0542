"""Rules for versions of images and charts, and for NVIDIA's GPU Operator together with node pools."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import Resource, Settings, Stack, Subject, UnknownValueError, View, located_at, rule
from workload_rules.objects import always, matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Tenants, for_tenants, holds_pods

_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")


_PARTS: Final = ("repository", "tag", "version")
"""Fields beside `image` in objects of operators that compose the name of an image from several fields."""


def _version_of(image: str) -> tuple[str, str] | None:
    """Tag and digest of an image, empty without, as container runtimes read its name; None if that is invalid.

    A first part with a colon or capital letters can only be a host; others have the form of a path too:
    https://github.com/distribution/reference/blob/main/normalize.go
    """
    name, at, digest = image.partition("@")
    first, slash, rest = name.partition("/")
    is_host = slash and (":" in first or first != first.lower())
    path, colon, tag = (rest if is_host else name).partition(":")
    right = (
        (not is_host or _HOST.fullmatch(first))
        and _PATH.fullmatch(path)
        and bool(_TAG.fullmatch(tag)) == bool(colon)
        and bool(_DIGEST.fullmatch(digest)) == bool(at)
    )
    return (tag, digest) if right else None


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """An image of a container or of a volume; `view` is the container, or the volume's image."""

    resource: Resource
    place: str
    view: View


def _images(resource: Resource) -> Iterator[Image]:
    for container in resource.parts(CONTAINERS):
        if container.view.has("image") and not any(container.view.has(field) for field in _PARTS):
            # The name is read later, so that an unknown one does not hide the others.
            yield Image(resource, container.place, container.view)
    for pod in resource.parts(POD_PARTS):
        for volume in pod.spec.items("volumes"):
            if volume.has("image", "reference"):
                yield Image(resource, f"{pod.place}, volume {volume.text('name')}", volume.at("image"))


class _Pins(Tenants):
    digests: bool = False
    """Whether each image must have a digest (`@sha256:…`)."""
    mutable: list[str] = Field(["latest"])
    """Mutable tags, as patterns."""


@rule("image-pinned", Subject("images", holds_pods, _images))
@for_tenants
def image_pinned(image: Image, settings: _Pins) -> Iterator[str]:
    """Each image must be pinned to one version."""
    name = image.view.text("reference") or image.view.text("image")
    version = _version_of(name)
    if version is None:
        yield f"{name} is not a valid image name; use registry/path:tag"
        return
    tag, digest = version
    if digest:
        return
    if not tag:
        yield f"{name} has no tag, so the latest image is used; set a version tag or a digest"
    elif matches_any(tag, settings.mutable):
        yield f"{name} has a mutable tag; set a version tag or a digest"
    elif settings.digests:
        yield f"{name} has no digest; add the digest from the registry (@sha256:…)"


_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_CHARTS: Final = (_RELEASE, "kubernetes:helm.sh/v3:Chart", "kubernetes:helm.sh/v4:Chart")
CHARTS: Final = Subject("charts", lambda resource: resource.type in _CHARTS, lambda resource: (resource,))
_EXACT: Final = re.compile(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_IN_ADDRESS: Final = re.compile(r"@sha256:[0-9a-f]{64}|(?<=[-/:])v?\d+\.\d+\.\d+[0-9A-Za-z.+-]*$")


def _chart(resource: Resource) -> str:
    """The name or address of a chart; unknown of a Chart, a component, whose inputs the engine does not pass."""
    if not resource.props.has("chart") and resource.type != _RELEASE:
        raise UnknownValueError(
            ("chart",), "is an input of a component, which policies cannot read during a deployment"
        )
    return resource.props.text("chart")


class _ChartSettings(Settings):
    charts: list[str] = Field([])
    """Charts, as patterns, that need no exact version."""


@rule("charts-pinned", CHARTS)
def charts_pinned(resource: Resource, settings: _ChartSettings) -> Iterator[str]:
    """A chart must be installed in one exact version."""
    if resource.props.has("path"):
        return
    chart = _chart(resource)
    if (
        chart.startswith((".", "/"))
        or matches_any(chart, settings.charts)
        or _IN_ADDRESS.search(chart.removesuffix(".tgz"))
    ):
        return
    version = resource.props.text("version")
    if not version:
        yield f"installs the latest version of {chart}; set version to one release number"
    elif not _EXACT.fullmatch(version):
        yield f"version {version} of {chart} is not an exact version; set one release number, such as 1.2.3"


_POOL: Final = re.compile(
    r"aws:eks/nodeGroup:NodeGroup|gcp:container/nodePool:NodePool|azure-native:containerservice(/v\w+)?:AgentPool"
)
_NVIDIA_SIZE: Final = re.compile(r"standard_n[cdv]\d(?!.*mi300x)(?!\d*as_v4)", re.IGNORECASE)
_NO_GKE_PLUGIN: Final = "gke-no-default-nvidia-gpu-device-plugin"
_NODE_LABELS: Final = {
    "driver": "nvidia.com/gpu.deploy.driver",
    "toolkit": "nvidia.com/gpu.deploy.container-toolkit",
    "devicePlugin": "nvidia.com/gpu.deploy.device-plugin",
}
"""Node labels that disable a part of the operator on a node."""


POOLS: Final = Subject(
    "EKS, GKE and AKS node pools", lambda resource: bool(_POOL.fullmatch(resource.type)), lambda resource: (resource,)
)


@dataclass(frozen=True, slots=True)
class Mode:
    """Who installs the driver of a pool with NVIDIA GPUs, and which parts of the GPU Operator it needs."""

    settings: str  # the pool's settings, for messages
    parts: Mapping[str, bool]  # for each part of the operator, whether it must be enabled
    labels: Mapping[str, str]  # labels of its nodes
    no_driver: bool = False  # whether the pool's settings leave its nodes without a driver


def _eks(pool: Resource) -> Mode | None:
    """https://docs.aws.amazon.com/eks/latest/userguide/ml-eks-optimized-ami.html."""
    image = pool.props.text("amiType")
    if "NVIDIA" not in image and image != "AL2_x86_64_GPU":
        return None
    parts = {"driver": False, "toolkit": False}
    if image.startswith("BOTTLEROCKET"):
        parts["devicePlugin"] = False
    return Mode(f"amiType {image}", parts, pool.props.string_map("labels"))


def _gke(pool: Resource) -> Mode | None:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-operator."""
    config = pool.props.at("nodeConfig")
    gpus = config.items("guestAccelerators")
    if not gpus:
        return None
    driver = gpus[0].text("gpuDriverInstallationConfig", "gpuDriverVersion", default="DEFAULT")
    labels = config.string_map("labels")
    own_plugin = labels.get(_NO_GKE_PLUGIN) == "true"
    settings = f"gpuDriverVersion {driver} {'with' if own_plugin else 'without'} the label {_NO_GKE_PLUGIN}"
    parts = {"devicePlugin": own_plugin}
    if driver != "INSTALLATION_DISABLED" or "UBUNTU" not in config.text("imageType").upper():
        parts["driver"] = False
    return Mode(settings, parts, labels, no_driver=own_plugin and driver in {"DEFAULT", "LATEST"})


def _aks(pool: Resource) -> Mode | None:
    """https://learn.microsoft.com/azure/aks/use-nvidia-gpu."""
    driver = pool.props.text("gpuProfile", "driver")
    if not driver and not _NVIDIA_SIZE.match(pool.props.text("vmSize")):
        return None
    by_operator = driver == "None"
    settings = f"gpuProfile.driver {driver or 'Install'}"
    return Mode(settings, {"driver": by_operator, "toolkit": by_operator}, pool.props.string_map("nodeLabels"))


class _OperatorSettings(Settings):
    chart: str = "gpu-operator"
    """Last part of the chart's name or address."""


def _chart_name(chart: Resource) -> str:
    return _chart(chart).rsplit("/", 1)[-1].split(":")[0].removesuffix(".tgz")


@rule("gpu-operator-driver-mode", POOLS)
def gpu_operator_driver_mode(pool: Resource, settings: _OperatorSettings, stack: Stack) -> Iterator[str]:
    """The GPU Operator must install exactly what a pool's image lacks."""
    modes = {"aws": _eks, "gcp": _gke, "azure-native": _aks}
    mode = modes[pool.type.partition(":")[0]](pool)
    if mode is None:
        return
    if mode.no_driver:
        yield f"has {mode.settings}, so no driver is installed; remove the label, or set INSTALLATION_DISABLED"
        return
    for operator in stack.matching(CHARTS, always, (_chart_name, settings.chart)):
        for part, wanted in mode.parts.items():
            if not wanted and mode.labels.get(_NODE_LABELS[part]) == "false":
                continue
            with located_at(operator):
                enabled = operator.props.flag("values", part, "enabled", default=True)
            if enabled != wanted:
                yield (
                    f"has {mode.settings}, but {operator.place} has {part}.enabled {str(enabled).lower()}; set"
                    f" {part}.enabled: {str(wanted).lower()}, or change the pool's mode"
                )
