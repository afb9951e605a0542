"""Checks of images: registries that are not allowed, and readers that the cluster's cloud does not know."""

from collections.abc import Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.images import is_allowed
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.base import UNREAD
from gpu_tenancy.model.spec.images import ACR
from gpu_tenancy.model.spec.workloads import Training


def image_problems(tree: Tree) -> Iterator[Problem]:
    """Images of workloads from other registries, and registries of another cloud."""
    stack, allowed = tree.stack, tree.stack.images.allowed
    for name, team in stack.teams.items() if allowed else ():
        for path, workload in workloads(name, team):
            yield from _image((*path, "image"), workload.image, allowed)
            for role, spec in workload.roles.items() if isinstance(workload, Training) else ():
                if spec.image:
                    yield from _image((*path, "roles", role, "image"), spec.image, allowed)
    for index, registry in enumerate(stack.images.registries):
        cloud = "azure" if ACR.fullmatch(registry) else "gcp"
        if stack.cluster.cloud != cloud:
            yield Problem(
                ("images", "registries", index),
                f"has no effect: its readers are identities of {cloud}, which are not managed for this cluster",
                "remove it, and give the nodes the right to read the registry yourself",
                registry,
                about=(("cluster",),),
            )


def _image(path: Path, image: str, allowed: list[str]) -> Iterator[Problem]:
    # Only the engine knows an image that is secret or late.
    if image != UNREAD and ".invalid/" not in image and not is_allowed(image, allowed):
        fix = f"use an image of {' or '.join(allowed)}, or add its registry to images.allowed"
        yield Problem(path, "is not from an allowed registry", fix, image, about=(("images",),))
