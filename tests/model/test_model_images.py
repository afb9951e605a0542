"""Registries of images."""

import pytest
from builders import AKS, Data, errors, job, pool, server, stack, team

from gpu_tenancy.model.plan.guards import is_allowed, own_images

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


def sections(**images: list[str]) -> Data:
    roles = {"server": {}, "worker": {"image": "ghcr.io/org/tools:1.0"}}
    training = {"label": job(framework="jobset", gpus=0, image="quay.io/org/label:1.0", roles=roles)}
    of_team = team(gpus={"h100": {"guaranteed": 8}}, serving={"api": server()}, training=training)
    of_team["quota"] = {"cpu": {"cpu": {"guaranteed": 8}}}
    return stack(teams={"a": of_team}, images=images)


def test_images_of_workloads_and_roles_come_from_an_allowed_registry() -> None:
    assert errors(sections()) == []
    fix = "use an image of registry.example.com, or add its registry to images.allowed"
    assert errors(sections(allowed=["registry.example.com"])) == [
        f"teams.a.training.label.image: quay.io/org/label:1.0 is not from an allowed registry; {fix}",
        f"teams.a.training.label.roles.worker.image: ghcr.io/org/tools:1.0 is not from an allowed registry; {fix}",
    ]
    assert errors(sections(allowed=["registry.example.com", "*"])) == []


@pytest.mark.parametrize(
    "prefix", ["ml/train", "https://registry.example.com", "registry.example.com/ml/", "UPPER", ""]
)
def test_an_invalid_registry_is_refused(prefix: str) -> None:
    (error,) = errors(sections(allowed=[prefix]))
    assert "is not a registry or the start of a path in one; write the host first" in error


def test_readers_of_a_registry_belong_to_the_cluster_of_its_cloud() -> None:
    (error,) = errors(sections(registries=["projects/ml-images/locations/eu/repositories/ml"]))
    assert error.startswith("images.registries[0]: projects/ml-images/locations/eu/repositories/ml has no effect")
    acr = f"/subscriptions/{'0' * 8}-0000-0000-0000-{'0' * 12}/resourceGroups/ml/providers/Microsoft.ContainerRegistry"
    here = stack(
        cluster=AKS,
        pools={"a": pool("Standard_ND96asr_v4", 1)},
        teams={},
        images={"registries": [f"{acr}/registries/mlimages"]},
    )
    assert [error for error in errors(here) if "registries" in error] == []


def test_images_that_this_program_adds_to_pods_are_allowed() -> None:
    assert own_images()
    assert all("/" in image and "@" not in image for image in own_images())
