"""Facts about machines and GPUs, from the tables beside this module.

Raises `pydantic.ValidationError` at the first look where a table is malformed; a test reads them whole.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict

from model.spec.base import Bytes, Cpu

Checked: TypeAlias = Literal["read", "remembered"]

PRODUCT_LABELS: Final[Mapping[str, str]] = {
    "nvidia.com": "nvidia.com/gpu.product",
    "amd.com": "amd.com/gpu.product-name",
    "gpu.intel.com": "gpu.intel.com/product",
}
"""Node label with a GPU's model, by the domain of the resource name, and who writes it: GPU feature discovery
(https://github.com/NVIDIA/k8s-device-plugin), AMD's node labeller (https://github.com/ROCm/k8s-device-plugin), Intel's
NFD rules (https://github.com/intel/intel-device-plugins-for-kubernetes; remembered, not yet looked up again)."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Gpu(_Row):
    """One model of GPU.

    Attributes:
        product: value of the node label `nvidia.com/gpu.product`.
        memory: bytes.
        mig: partitions that one GPU holds, by MIG profile; empty where it cannot be cut.
        source: page of the vendor's.
        checked: how sure the row is.
    """

    product: str
    memory: Bytes
    mig: dict[str, int] = {}
    source: str
    checked: Checked


class Machine(_Row):
    """One machine type.

    Attributes:
        cpu: millicores of the machine.
        memory: bytes of the machine.
        gpu: key of the GPU table; None for a machine without.
        gpus: GPUs of the machine.
    """

    cpu: Cpu
    memory: Bytes
    gpu: str | None = None
    gpus: int = 0


class _Cloud(_Row):
    source: str
    checked: Checked
    machines: dict[str, Machine]


def _table(name: str) -> Mapping[str, Any]:
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


@cache
def gpus() -> Mapping[str, Gpu]:
    """GPUs by their name in stacks, such as `h100-80gb`."""
    return {name: Gpu.model_validate(row) for name, row in _table("gpus.yaml").items()}


@cache
def machines() -> Mapping[tuple[str, str], Machine]:
    """Machine types by cloud and name, such as `("aws", "p5.48xlarge")`."""
    clouds = {cloud: _Cloud.model_validate(rows) for cloud, rows in _table("machines.yaml").items()}
    return {(cloud, name): row for cloud, table in clouds.items() for name, row in table.machines.items()}


def find_machine(name: str) -> Machine | None:
    """The machine type of that name in any cloud: names do not repeat between them."""
    return next((machine for (_, known), machine in machines().items() if known == name), None)


def find_gpu(name: str) -> Gpu | None:
    """The GPU by its name in stacks or by its product label."""
    return gpus().get(name) or next((gpu for gpu in gpus().values() if gpu.product == name), None)


_RESERVED_CPU: Final = ((1000, 0.06), (1000, 0.01), (2000, 0.005))
_RESERVED_CPU_BEYOND: Final = 0.0025
_GIB: Final = 2**30
_RESERVED_MEMORY: Final = ((4 * _GIB, 0.25), (4 * _GIB, 0.20), (8 * _GIB, 0.10), (112 * _GIB, 0.06))
_RESERVED_MEMORY_BEYOND: Final = 0.02
_EVICTION: Final = 100 * 2**20


def allocatable(machine: Machine) -> tuple[int, int]:
    """Millicores and bytes of a machine that pods can have, rounded down to whole cpus and GiB.

    By GKE's formula, the most cautious of the three clouds':
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
    """
    cpu = machine.cpu - _stepped(machine.cpu, _RESERVED_CPU, _RESERVED_CPU_BEYOND)
    memory = machine.memory - _stepped(machine.memory, _RESERVED_MEMORY, _RESERVED_MEMORY_BEYOND) - _EVICTION
    return int(cpu // 1000 * 1000), int(memory // _GIB * _GIB)


def _stepped(amount: int, steps: tuple[tuple[int, float], ...], beyond: float) -> float:
    total, left = 0.0, amount
    for width, share in steps:
        total += min(left, width) * share
        left = max(0, left - width)
    return total + left * beyond
