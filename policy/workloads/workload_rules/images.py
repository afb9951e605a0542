"""Rules for versions of images and charts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import Resource, Settings, Subject, UnknownValueError, View, rule
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Tenants, for_tenants, holds_pods

_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")

_PARTS: Final = ("repository", "tag", "version")
"""Fields beside `image` in objects of operators that compose the name of an image from several fields."""


def _version_of(image: str) -> tuple[str, str] | None:
    """Tag and digest of an image, empty without, as container runtimes read its name; None if that is invalid."""
    # A first part with a colon or capital letters can only be a host; others have the form of a path too:
    # https://github.com/distribution/reference/blob/main/normalize.go
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
_EXACT: Final = re.compile(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
_IN_ADDRESS: Final = re.compile(r"@sha256:[0-9a-f]{64}|(?<=[-/:])v?\d+\.\d+\.\d+[0-9A-Za-z.+-]*$")


class _ChartSettings(Settings):
    charts: list[str] = Field([])
    """Charts, as patterns, that need no exact version."""


@rule("charts-pinned", Subject("charts", lambda resource: resource.type in _CHARTS, lambda resource: (resource,)))
def charts_pinned(resource: Resource, settings: _ChartSettings) -> Iterator[str]:
    """A chart must be installed in one exact version."""
    if resource.props.has("path"):
        return
    if not resource.props.has("chart") and resource.type != _RELEASE:
        raise UnknownValueError(
            ("chart",), "is an input of a component, which policies cannot read during a deployment"
        )
    chart = resource.props.text("chart")
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
