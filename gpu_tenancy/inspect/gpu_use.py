"""What the GPUs of pods do, as nvidia-smi in their containers says: a container sees its own GPUs only."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.amounts import amount_text, gpus
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.base.quantity import MEMORY
from gpu_tenancy.inspect.pods import Manifest, name_of, requests

QUERY: Final = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")
"""Percent of the last second in which a kernel ran, and MiB: https://docs.nvidia.com/deploy/nvidia-smi/index.html."""
_MIB: Final = 2**20
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Of one or several GPUs.

    Attributes:
        percent: of each GPU, how long a kernel ran.
        used: memory of all of them in bytes.
        memory: that they have.
    """

    percent: tuple[int, ...]
    used: int
    memory: int

    @property
    def busy(self) -> str:
        """The mean, and the least busy GPU if that differs much: `81 %, one 0 %`."""
        mean, least = sum(self.percent) / len(self.percent), min(self.percent)
        return f"{mean:.0f} %" + (f", one {least} %" if least < mean / 2 else "")

    @property
    def filled(self) -> str:
        """Memory in use."""
        return f"{amount_text(MEMORY, self.used)} of {amount_text(MEMORY, self.memory)}"


def read_gpu_use(text: str) -> GpuUse | None:
    """What nvidia-smi printed for `QUERY`; None if a number is not available, as for MIG partitions."""
    try:
        rows = [tuple(int(cell) for cell in line.split(",")) for line in text.splitlines() if line.strip()]
        percent, used, memory = zip(*rows, strict=True)
    except ValueError:
        return None
    return GpuUse(percent, sum(used) * _MIB, sum(memory) * _MIB)


def gpu_use(pods: Iterable[Manifest], run: Callable[[str], str]) -> dict[str, GpuUse]:
    """What the GPUs of running pods do, by pod; without pods that do not tell.

    Args:
        pods: of any kind.
        run: prints the answer of `QUERY` in a pod.
    """
    asked = [
        name_of(pod)
        for pod in pods
        if text_at(pod, "status", "phase") == "Running" and gpus(requests(map_at(pod, "spec")))
    ]

    def ask(name: str) -> GpuUse | None:
        try:
            return read_gpu_use(run(name))
        except ConsoleError:
            return None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return {name: use for name, use in zip(asked, threads.map(ask, asked), strict=True) if use}


def together(use: Mapping[str, GpuUse], names: Iterable[str]) -> GpuUse | None:
    """The GPUs of several pods; None if none of them tells."""
    known = [use[name] for name in names if name in use]
    if not known:
        return None
    percent = tuple(one for each in known for one in each.percent)
    return GpuUse(percent, sum(each.used for each in known), sum(each.memory for each in known))
