"""Notebooks that people of a team start."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from gpu_tenancy.model.fields import Bytes, Count, Cpu, Image, Name, Seconds, Section, refuse
from gpu_tenancy.model.spec.data import Storage
from gpu_tenancy.model.spec.exposure import NotebooksExpose


class NotebookSize(Section):
    """The resources of a notebook."""

    gpus: Count = 0
    """GPUs, or MIG partitions of a flavor whose GPUs are partitioned."""
    flavor: Name | None = None
    """Flavor to run on; required if the team has several GPU flavors."""
    cpu: Cpu | None = None
    """CPUs; default: 90 % of its GPUs' share of the machine, or `containers.defaultRequest`."""
    memory: Bytes | None = None
    """Memory; default: 90 % of its GPUs' share of the machine, or `containers.defaultRequest`."""


class Notebooks(Section):
    """JupyterLab for the people of a team, by `tenancy notebook`, in the team's queue.

    A researcher can start any server in the namespace: this is what `tenancy notebook` offers, and what stops notebooks
    that it started.
    """

    images: Annotated[list[Image], Field(min_length=1)]
    """Images to choose from; the first is the default. They have JupyterLab, Python and a user other than root."""
    sizes: Annotated[dict[Name, NotebookSize], Field(min_length=1)]
    """Sizes to choose from, by name; the first is the default."""
    home: Storage
    """Storage of each notebook, under /home/notebook. It stays when the notebook stops or is deleted."""
    idle: Annotated[Seconds, Field(ge=300)] = 3600.0
    """Time without a running cell and without output of a terminal, after which a notebook stops. An open browser does
    not count."""
    longest: Annotated[Seconds, Field(ge=600)] = 43200.0
    """Time after which a running notebook stops, whatever it does."""
    expose: NotebooksExpose | None = None
    """Hosts by which browsers reach notebooks; default: none, only `kubectl port-forward` reaches them."""

    @model_validator(mode="after")
    def _no_snapshots(self) -> Self:
        if self.home.snapshots:
            raise refuse("sets home.snapshots, which are taken of storage of the team only", "remove home.snapshots")
        return self
