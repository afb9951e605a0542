"""kubectl for shells in pods, forwarded ports and nvidia-smi, which shows the GPUs of its container only."""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import map_at, text_at
from gpu_tenancy.base.progress import patient
from gpu_tenancy.base.quantity import MEMORY, amount_text, gpus
from gpu_tenancy.base.terminal import Place
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import Manifest, name_of, requests
from gpu_tenancy.kube.errors import NO_CONTAINERS, SIMULATED

# Percent of the last second in which a kernel ran, and MiB: https://docs.nvidia.com/deploy/nvidia-smi/index.html.
QUERY: Final = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")
_MIB: Final = 2**20
_AT_ONCE: Final = 8
# Reasons, by a part of the output of kubectl or a container runtime.
_REASONS: Final = (
    ("(Forbidden)", "you may not exec into them"),
    ("executable file not found", "their image has no nvidia-smi"),
    ("no answer within", "no answer in time"),
)


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Utilization of one or several GPUs."""

    percent: tuple[int, ...]  # time with a running kernel, of each GPU
    used: int  # memory of all GPUs in bytes
    memory: int  # total of all GPUs in bytes

    @property
    def busy(self) -> str:
        """Mean utilization, with the least busy GPU if that differs much: `81 %, one 0 %`."""
        mean, least = sum(self.percent) / len(self.percent), min(self.percent)
        return f"{mean:.0f} %" + (f", one {least} %" if least < mean / 2 else "")

    @property
    def filled(self) -> str:
        """Used and total memory."""
        return f"{amount_text(MEMORY, self.used)} of {amount_text(MEMORY, self.memory)}"


def read_gpu_use(text: str) -> GpuUse | None:
    """Reads the output of `QUERY`; None if a number is not available, as for MIG partitions."""
    try:
        rows = [tuple(int(cell) for cell in line.split(",")) for line in text.splitlines() if line.strip()]
        percent, used, memory = zip(*rows, strict=True)
    except ValueError:
        return None
    return GpuUse(percent, sum(used) * _MIB, sum(memory) * _MIB)


@dataclass(frozen=True, slots=True)
class Answers:
    """Utilization of GPUs that pods report."""

    use: Mapping[str, GpuUse] = field(default_factory=dict[str, GpuUse])  # by name of the pod, if it reports any
    notes: tuple[str, ...] = ()  # how many pods report nothing, and why


def gpu_use(pods: Iterable[Manifest], run: Callable[[str], str]) -> Answers:
    """Reads the GPUs of running pods; `run` returns the output of `QUERY` in a pod by name."""
    asked = [
        name_of(pod)
        for pod in pods
        if text_at(pod, "status", "phase") == "Running" and gpus(requests(map_at(pod, "spec")))
    ]

    def ask(name: str) -> GpuUse | str:
        try:
            return read_gpu_use(run(name)) or "nvidia-smi has no number, as for MIG partitions"
        except ConsoleError as error:
            text = str(error)
            other = text.partition("` failed: ")[2] or text
            return next((reason for part, reason in _REASONS if part in text), other)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = dict(zip(asked, threads.map(ask, asked), strict=True))
    reasons = Counter(answer for answer in answers.values() if isinstance(answer, str))
    return Answers(
        {name: answer for name, answer in answers.items() if isinstance(answer, GpuUse)},
        tuple(f"GPU use of {plural(count, 'pod')} unknown: {reason}" for reason, count in reasons.items()),
    )


def together(use: Mapping[str, GpuUse], names: Iterable[str]) -> GpuUse | None:
    """GPUs of several pods together; None if no pod reports any."""
    known = [use[name] for name in names if name in use]
    if not known:
        return None
    percent = tuple(one for each in known for one in each.percent)
    return GpuUse(percent, sum(each.used for each in known), sum(each.memory for each in known))


_PATIENCE: Final = 20.0  # seconds for nvidia-smi in a pod
# Log line of kubectl itself: https://github.com/kubernetes/klog/blob/v2.130.1/klog.go
_LOGGED: Final = re.compile(r"^[IWEF]\d{4} [\d:.]+ .*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a kubeconfig, in a namespace."""

    kubeconfig: Path
    words: tuple[str, ...]

    @classmethod
    def of(cls, place: Place, namespace: str) -> "Kubectl":
        """Uses the cluster of the command; raises ConsoleError without kubectl."""
        if not shutil.which("kubectl"):
            raise ConsoleError("kubectl not found", "install it: https://kubernetes.io/docs/tasks/tools/")
        from gpu_tenancy.cluster.contexts import chosen, resolved  # noqa: PLC0415 - it loads the schema of stacks

        file, used = chosen(resolved(place))
        return cls(file, ("kubectl", *(("--context", used) if used else ()), "--namespace", namespace))

    def nvidia_smi(self, pod: str) -> str:
        """Output of nvidia-smi in a pod; raises ConsoleError if that fails."""
        return self.run("exec", pod, "--", *QUERY, fix="see `tenancy logs`", patience=patient(_PATIENCE))

    def run(self, *words: str, fix: str, shown: bool = False, patience: float | None = None) -> str:
        """Output of kubectl with `words` after the options for the cluster; empty if `shown` on the terminal.

        `patience` is in seconds; None for no limit. Raises ConsoleError if kubectl fails or takes too long.
        """
        every = [*self.words, *words]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        try:
            done = subprocess.run(
                every, env=environment, capture_output=not shown, text=True, check=False, timeout=patience
            )
        except subprocess.TimeoutExpired as error:
            raise ConsoleError(f"`{' '.join(every)}`: no answer within {patience:g} s", fix) from error
        if done.returncode:
            if not shown and SIMULATED in done.stderr:
                raise ConsoleError(f"`{' '.join(every)}` failed: {NO_CONTAINERS}", "use a cluster with real nodes")
            said = "" if shown else _LOGGED.sub("", done.stderr).strip()
            raise ConsoleError(f"`{' '.join(every)}` failed{said and f': {said}'}", fix)
        return "" if shown else done.stdout.strip()
