"""What the GPUs of pods do, as nvidia-smi in their containers says: a container sees its own GPUs only."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.base.quantity import MEMORY, amount_text, gpus
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, name_of, requests

QUERY: Final = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")
"""Percent of the last second in which a kernel ran, and MiB: https://docs.nvidia.com/deploy/nvidia-smi/index.html."""
_MIB: Final = 2**20
_AT_ONCE: Final = 8
_REASONS: Final = (
    ("(Forbidden)", "you may not exec into them"),
    ("executable file not found", "their image has no nvidia-smi"),
    ("no answer within", "no answer in time"),
)
"""Why a pod does not tell, by a part of what kubectl or a container runtime prints."""


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


@dataclass(frozen=True, slots=True)
class Answers:
    """What pods say of their GPUs.

    Attributes:
        use: by the name of the pod; without pods that do not tell.
        notes: how many do not tell, and why.
    """

    use: Mapping[str, GpuUse] = field(default_factory=dict[str, GpuUse])
    notes: tuple[str, ...] = ()


def gpu_use(pods: Iterable[Manifest], run: Callable[[str], str]) -> Answers:
    """What the GPUs of running pods do.

    Args:
        pods: of any kind.
        run: prints the answer of `QUERY` in a pod.
    """
    asked = [
        name_of(pod)
        for pod in pods
        if text_at(pod, "status", "phase") == "Running" and gpus(requests(map_at(pod, "spec")))
    ]

    def ask(name: str) -> GpuUse | str:
        try:
            return read_gpu_use(run(name)) or "nvidia-smi has no number, as for MIG partitions"
        except ConsoleError as error:
            return _reason(str(error))

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = dict(zip(asked, threads.map(ask, asked), strict=True))
    reasons = Counter(answer for answer in answers.values() if isinstance(answer, str))
    return Answers(
        {name: answer for name, answer in answers.items() if isinstance(answer, GpuUse)},
        tuple(f"GPU use of {plural(count, 'pod')} unknown: {reason}" for reason, count in reasons.items()),
    )


def _reason(error: str) -> str:
    return next((reason for part, reason in _REASONS if part in error), error.partition("` failed: ")[2] or error)


def together(use: Mapping[str, GpuUse], names: Iterable[str]) -> GpuUse | None:
    """The GPUs of several pods; None if none of them tells."""
    known = [use[name] for name in names if name in use]
    if not known:
        return None
    percent = tuple(one for each in known for one in each.percent)
    return GpuUse(percent, sum(each.used for each in known), sum(each.memory for each in known))
