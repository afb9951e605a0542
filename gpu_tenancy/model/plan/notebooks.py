"""Notebooks of a team: images and sizes for its people, as the ConfigMap of the team has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.quantity import CPU, MEMORY, format_amount, format_bytes
from gpu_tenancy.model.plan.people import Subject
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import claim_of
from gpu_tenancy.model.spec.serving import Notebooks, NotebookSize
from gpu_tenancy.model.spec.workloads import Training

NOTEBOOK_STOPS: Final = "notebook-stops"  # namespace of the CronJob that stops notebooks, which belongs to no team
STOPPER: Final = Subject("ServiceAccount", "stop", NOTEBOOK_STOPS)


@dataclass(frozen=True, slots=True)
class OfferedSize:
    """A size of notebooks; amounts as Kubernetes writes them."""

    flavor: str
    gpus: int
    cpu: str
    memory: str


@dataclass(frozen=True, slots=True)
class OfferedHome:
    """The storage of a notebook; without a class it has the cluster's default class."""

    size: str
    access_mode: str
    storage_class: str | None


@dataclass(frozen=True, slots=True)
class NotebooksOffer:
    """Notebooks that people of a team can start; the first image and the first size are the defaults."""

    images: tuple[str, ...]
    sizes: Mapping[str, OfferedSize]
    home: OfferedHome
    idle: int  # seconds without activity until it stops
    longest: int  # seconds after which it always stops
    hosts: Mapping[str, str] = field(default_factory=dict[str, str])  # by notebook


def notebooks(tree: Tree, team: str) -> NotebooksOffer | None:
    """The notebooks that people of a team can start; None without notebooks."""
    spec = tree.stack.teams[team].notebooks
    if spec is None:
        return None
    home = claim_of(tree.stack.cluster, team, "home", spec.home)
    sizes: dict[str, OfferedSize] = {}
    for name, size in spec.sizes.items():
        if pod := pod_size(tree, team, as_job(spec, size)):  # `model.checks` reports the others
            amounts = {resource: format_amount(resource, pod.amounts[resource]) for resource in (CPU, MEMORY)}
            sizes[name] = OfferedSize(pod.flavor.name, size.gpus, **amounts)
    return NotebooksOffer(
        tuple(spec.images),
        sizes,
        OfferedHome(format_bytes(home.size), home.access_mode, home.storage_class),
        spec.idle,
        spec.longest,
        spec.expose.hosts if spec.expose else {},
    )


def as_job(spec: Notebooks, size: NotebookSize) -> Training:
    """A job of one pod of a size, so that it has the checks and the defaults of one."""
    return Training.model_construct(
        image=spec.images[0], flavor=size.flavor, gpus=size.gpus, cpu=size.cpu, memory=size.memory
    )
