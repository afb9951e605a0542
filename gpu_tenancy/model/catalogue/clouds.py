"""What each cloud can do with a node pool, from the table beside this module.

Raises `pydantic.ValidationError` at the first look where the table is malformed.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from gpu_tenancy.model.spec.base import Seconds
from gpu_tenancy.model.tables import read_table


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)


class Form(_Row):
    """How a name is written in a cloud."""

    pattern: str
    write: str

    def fits(self, text: str) -> bool:
        """Whether a text is written so."""
        return re.fullmatch(self.pattern, text) is not None


class ByQueue(_Row):
    """Nodes that come only for a workload that Kueue announces.

    Attributes:
        provisioning_class: the autoscaler's class of such requests.
        node_selector: node labels of what came for a request, by the detail of its answer that holds their value.
        source: where it was read.
    """

    provisioning_class: str
    node_selector: Mapping[str, str] = {}
    source: str


class CapacityRule(_Row):
    """One way to buy machines in one cloud.

    Attributes:
        refused: why there is no such thing; None where there is.
        instead: what to use then.
        reservation: how a reservation is named; None where there is none.
        zones: how many zones such a pool has; None for any.
        min: what `nodes.min` must be; None for anything.
        longest: seconds a node may live at most; None where nothing bounds it.
        machines_without: beginnings of the names of machines that cannot be had so.
        taints: those that the cloud itself puts on such nodes, as `key=value:effect`.
        by_queue: how Kueue asks for such nodes; None where pods alone bring them.
    """

    refused: str | None = None
    instead: str | None = None
    reservation: Form | None = None
    zones: int | None = None
    min: int | None = None
    longest: Seconds | None = None
    machines_without: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    by_queue: ByQueue | None = None


class SharingRule(_Row):
    """How one GPU serves several pods under one driver mode.

    Attributes:
        by: who cuts the GPU: the cloud, by an input of the pool, or the GPU Operator, by a label.
        whole: whether a partition is still asked for by the GPU's own resource name.
        least_memory: whether, of as many slices, there is only the profile with the least memory.
        grows: whether an autoscaler can add such nodes.
        labels: labels that such nodes carry, with `{profile}` and `{turns}` to be filled in.
    """

    by: Literal["cloud", "operator"]
    whole: bool = False
    least_memory: bool = False
    grows: bool = True
    labels: Mapping[str, str] = {}


class DriverMode(_Row):
    """Who brings driver, container toolkit and device plugin: the pool's half and the operator's half of one choice.

    Attributes:
        means: in a sentence.
        operator: values of the GPU Operator's chart.
        labels: labels of the pool's nodes.
        mig: how partitions are made; None where they cannot be.
        time_slicing: how turns are made; None where they cannot be.
        source: where it was read.
    """

    means: str
    operator: Mapping[str, Any]
    labels: Mapping[str, str] = {}
    mig: SharingRule | None = None
    time_slicing: SharingRule | None = None
    source: str


class CloudRules(_Row):
    """What one cloud can do with a node pool.

    Attributes:
        title: its Kubernetes service.
        package: the Python package that speaks to it; None where Kubernetes' own does.
        capacity: by kind.
        compact: kinds of capacity whose nodes can stand close to each other.
        compact_zones: how many zones such a pool may have; empty for any number.
        disk_key: whether each pool's disks may have a key of their own.
        own_labels: domains of labels and taints that are the cloud's alone.
        empty_labels: whether a label may have no value.
        names_gpus: whether the cloud is told the GPU by a name of its own, beside the machine.
        fabrics: networks between GPUs that can be set up here.
        drivers: driver modes by name, the usual one first.
    """

    title: str
    package: str | None = None
    pool_name: Form
    capacity: Mapping[str, CapacityRule]
    compact: tuple[str, ...]
    compact_zones: tuple[int, ...] = ()
    disk_key: bool = True
    own_labels: tuple[str, ...] = ()
    empty_labels: bool = True
    names_gpus: bool = False
    fabrics: tuple[str, ...]
    drivers: Mapping[str, DriverMode]


@cache
def clouds() -> Mapping[str, CloudRules]:
    """Every cloud's rules, by the word under `cluster.cloud`."""
    rows: Mapping[str, Any] = read_table(Path(__file__).with_name("clouds.yaml"))
    return {name: CloudRules.model_validate(row, strict=False) for name, row in rows.items()}


def rules_of(service: str) -> CloudRules:
    """A service's rules; of one that nobody knows, those of a cluster that exists (`model.checks.nodes` says so)."""
    return clouds().get(service) or clouds()["existing"]


def driver_mode(cloud: str, name: str | None) -> DriverMode | None:
    """A cloud's driver mode; left out, its usual one. None where it has none of that name."""
    modes = rules_of(cloud).drivers
    return modes.get(name or next(iter(modes)))
