"""Registries of images."""

import pytest

from gpu_tenancy.model.plan.images import is_allowed, own_images

ALLOWED = ["registry.example.com", "*.pkg.dev/ml-prod", "docker.io/library", "ghcr.io/org/a*", "localhost:5000/x"]
IMAGES: dict[str, bool] = {
    "registry.example.com/a:1": True,
    "registry.example.com:5000/a:1": False,
    "sub.registry.example.com/a:1": False,
    "registry.example.community/a:1": False,
    "evil.com/registry.example.com/a:1": False,
    "eu-docker.pkg.dev/ml-prod/x/y:2": True,
    f"eu-docker.pkg.dev/ml-prod/x@sha256:{'0' * 64}": True,
    "eu-docker.pkg.dev/ml-prod-test/y:1": False,
    "python:3.12": True,
    "docker.io/python:3.12": True,
    "index.docker.io/python:3.12": True,
    "org/x:1": False,
    "ghcr.io/org/abc/d:1": True,
    "ghcr.io/org/b:1": False,
    "localhost:5000/x:1": True,
    "localhost:5000/xy:1": False,
}


@pytest.mark.parametrize(("image", "allowed"), IMAGES.items())
def test_whole_segments_of_an_image_are_compared(image: str, *, allowed: bool) -> None:
    assert is_allowed(image, ALLOWED) is allowed


def test_images_that_this_program_adds_to_pods_are_allowed() -> None:
    assert own_images()
    assert all("/" in image and "@" not in image for image in own_images())
