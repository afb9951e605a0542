"""Rules for the versions and registries of images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import MUST, Resource, Severity, Subject, View, rule
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Tenants, for_tenants, holds_pods

_HUB: Final = "docker.io"
_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")


_PARTS: Final = ("repository", "tag", "version")
"""Fields beside `image` in objects of operators that compose the name of an image from several fields."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The parts of an image name.

    Attributes:
        registry: host and port: `registry.example.com:5000`.
        path: `ml/train`; for Docker Hub, `library/` is added if the name has no namespace.
        tag: empty without.
        digest: empty without.
    """

    registry: str
    path: str
    tag: str
    digest: str

    @classmethod
    def of(cls, text: str) -> "Reference | None":
        """Parses a name as container runtimes do; None if it is invalid.

        The first part is a host if it has a dot or a port, or is localhost:
        https://github.com/distribution/reference/blob/main/normalize.go
        """
        name, at, digest = text.partition("@")
        first, slash, rest = name.partition("/")
        is_host = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
        host, name = (first, rest) if is_host else (_HUB, name)
        path, colon, tag = name.partition(":")
        host = _HUB if host == "index.docker.io" else host
        if host == _HUB and "/" not in path:
            path = f"library/{path}"
        right = (
            _HOST.fullmatch(host)
            and _PATH.fullmatch(path)
            and bool(_TAG.fullmatch(tag)) == bool(colon)
            and bool(_DIGEST.fullmatch(digest)) == bool(at)
        )
        return cls(host, path, tag, digest) if right else None


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """An image of a container or of a volume.

    Attributes:
        resource: the object that uses it.
        place: the place of the container or the volume.
        view: the container or the volume's image.
    """

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


IMAGES: Final = Subject("images", holds_pods, _images)


def _name(image: Image) -> str:
    return image.view.text("reference") or image.view.text("image")


class Pins(Tenants):
    """Requirements for tags and digests."""

    digests: bool = Field(default=False, description="Whether each image must have a digest (`@sha256:…`).")
    mutable: list[str] = Field(["latest"], description="Mutable tags, as patterns.")


@rule(
    "image-pinned",
    rationale="With a mutable tag, pods of one job can run different images, and a rollback is not possible.",
    fix="Use an immutable tag; in production, add a digest.",
    link="https://kubernetes.io/docs/concepts/containers/images/#image-names",
    severity=Severity.MEDIUM,
    level=MUST,
    on=IMAGES,
)
@for_tenants
def image_pinned(image: Image, settings: Pins) -> Iterator[str]:
    """Each image must be pinned to one version."""
    name = _name(image)
    reference = Reference.of(name)
    if reference is None:
        yield f"{name} is not a valid image name; use registry/path:tag"
    elif reference.digest:
        return
    elif not reference.tag:
        yield f"{name} has no tag, so the latest image is used; set a version tag or a digest"
    elif matches_any(reference.tag, settings.mutable):
        yield f"{name} has a mutable tag; set a version tag or a digest"
    elif settings.digests:
        yield f"{name} has no digest; add the digest from the registry (@sha256:…)"


class Registries(Tenants):
    """Approved registries."""

    registries: list[str] = Field(
        [],
        description=(
            "Approved registries, as patterns, each with the required part of the path: `registry.example.com`,"
            " `*.pkg.dev/ml-prod`, `docker.io/library`. If empty, images are not checked."
        ),
    )

    def approved(self, reference: Reference) -> bool:
        """Whether an image comes from one of them. Whole path segments are compared: `ml` does not match `ml-test`."""
        parts = (reference.registry, *reference.path.split("/"))
        wanted = [prefix.strip("/").split("/") for prefix in self.registries]
        return any(
            len(prefix) <= len(parts)
            and all(matches_any(part, [pattern]) for part, pattern in zip(parts, prefix, strict=False))
            for prefix in wanted
        )


@rule(
    "image-registries",
    rationale="Images from other registries run unreviewed code with access to a team's data and GPUs.",
    fix="Copy the image to an approved registry, and use that copy.",
    link="https://kubernetes.io/docs/concepts/containers/images/",
    severity=Severity.HIGH,
    level=MUST,
    on=IMAGES,
)
@for_tenants
def image_registries(image: Image, settings: Registries) -> Iterator[str]:
    """Images must come from approved registries."""
    if not settings.registries:
        return
    name = _name(image)
    reference = Reference.of(name)
    if reference is None:
        yield f"{name} is not a valid image name; use registry/path:tag"
    elif not settings.approved(reference):
        yield f"{name} is from {reference.registry}, which is not approved; use one of {', '.join(settings.registries)}"
