"""Rules for the versions of images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import MUST, Resource, Severity, Subject, View, rule
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Tenants, for_tenants, holds_pods

_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-fA-F]{32,}")
_TAG: Final = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PATH: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?")


_PARTS: Final = ("repository", "tag", "version")
"""Fields beside `image` in objects of operators that compose the name of an image from several fields."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What an image name says about its version.

    Attributes:
        tag: empty without.
        digest: empty without.
    """

    tag: str
    digest: str

    @classmethod
    def of(cls, text: str) -> "Reference | None":
        """Parses a name as container runtimes do; None if it is invalid.

        A first part with a colon or capital letters can only be a host; others have the form of a path too:
        https://github.com/distribution/reference/blob/main/normalize.go
        """
        name, at, digest = text.partition("@")
        first, slash, rest = name.partition("/")
        is_host = slash and (":" in first or first != first.lower())
        path, colon, tag = (rest if is_host else name).partition(":")
        right = (
            (not is_host or _HOST.fullmatch(first))
            and _PATH.fullmatch(path)
            and bool(_TAG.fullmatch(tag)) == bool(colon)
            and bool(_DIGEST.fullmatch(digest)) == bool(at)
        )
        return cls(tag, digest) if right else None


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
